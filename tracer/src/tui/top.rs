//! What can lie on top of the panes, as lines.

use super::app::{App, Top, keys::KEYS};
use super::compare::{align, cell, ends, first_difference};
use super::query::SYNTAX;
use super::theme::Ink;
use super::width::{pad, width, wrap};
use crate::output::text::{Text, clean};
use crate::trace::{Closing, Packet};

/// A line: pieces of text, each with its ink.
pub(crate) type Line = Vec<(String, Ink)>;

fn line(text: impl Into<String>, ink: Ink) -> Line {
    vec![(text.into(), ink)]
}

/// The title.
pub(crate) fn title(top: &Top) -> String {
    match top {
        Top::Help => "keys  (Esc closes)".into(),
        Top::Verdict => "the verdict in full  (Esc closes)".into(),
        Top::Missing => "what may be missing  (Esc closes)".into(),
        Top::Compare(a, b) => format!("compare A = #{} with B = #{}  (Esc closes)", a.id, b.id),
    }
}

/// The lines, in so many columns.
pub(crate) fn lines(app: &App, top: &Top, columns: usize) -> Vec<Line> {
    match top {
        Top::Help => help(columns),
        Top::Verdict => verdict(app, columns),
        Top::Missing => missing(app, columns),
        Top::Compare(a, b) => compare(a, b, columns),
    }
}

fn help(columns: usize) -> Vec<Line> {
    let mut out = Vec::new();
    let mut row = |name: &str, text: &str| {
        let room = columns.saturating_sub(15);
        for (i, part) in wrap(text, room).into_iter().enumerate() {
            let name = pad(if i == 0 { name } else { "" }, 13);
            out.push(vec![(format!(" {name} "), Ink::Head), (part, Ink::Plain)]);
        }
    };
    for binding in KEYS {
        row(binding.keys, binding.help);
    }
    row("", "");
    row(
        "signs",
        "~ worked out, not observed   o at an interface   * address rewritten",
    );
    row(
        "",
        "║ inside a tunnel   ┌ put into it   └ taken out   ✗ ended badly   ? not seen again",
    );
    row("", "");
    row("search, filter", "words, all of which have to hold:");
    for (word, meaning) in SYNTAX {
        row("", &format!("{word:<16} {meaning}"));
    }
    out
}

fn verdict(app: &App, columns: usize) -> Vec<Line> {
    let mut out = Vec::new();
    let Some(judged) = &app.judged else {
        return vec![line("There is no verdict yet.", Ink::Plain)];
    };
    if !judged.last {
        out.push(line(
            "So far, not final: what is under way may still arrive.",
            Ink::Warn,
        ));
    }
    let closing = Closing {
        verdict: judged.verdict.clone(),
        findings: judged.findings.clone(),
        losses: app.losses,
        probe: app.model.closing.probe.clone(),
        ..Closing::default()
    };
    let mut text = Vec::new();
    let written = Text::new(&mut text, false).closing(&closing, &app.model.header);
    if written.is_err() {
        return out;
    }
    let text = String::from_utf8_lossy(&text);
    // It is made for a wider screen: what was broken there is joined again.
    let mut whole: Vec<String> = Vec::new();
    for part in text.trim_start_matches('\n').lines() {
        match whole.last_mut() {
            Some(last) if part.starts_with("            ") && !part.trim().is_empty() => {
                last.push(' ');
                last.push_str(part.trim_start());
            }
            Some(last) if whole_verdict(last) && part.starts_with("  ") && !labelled(part) => {
                last.push(' ');
                last.push_str(part.trim_start());
            }
            _ => whole.push(part.to_owned()),
        }
    }
    for part in whole {
        let part = clean(&part);
        let ink = match part.chars().next() {
            Some('✗' | '!') => Ink::Bad,
            Some('✓') => Ink::Good,
            Some('?') => Ink::Warn,
            _ if part.starts_with("  next") => Ink::Tunnel,
            _ => Ink::Plain,
        };
        let indent = if labelled(&part) || part.starts_with('!') {
            12
        } else {
            2
        };
        for (i, piece) in wrap(&part, columns.saturating_sub(indent))
            .iter()
            .enumerate()
        {
            let lead = if i == 0 { 0 } else { indent };
            // `wrap` joins words by one blank: the label keeps its column.
            let piece = if i == 0 {
                piece.clone()
            } else {
                piece.trim_start().to_owned()
            };
            out.push(line(format!("{}{piece}", " ".repeat(lead)), ink));
        }
    }
    out
}

fn whole_verdict(text: &str) -> bool {
    text.starts_with(['✗', '✓', '?'])
}

fn labelled(text: &str) -> bool {
    ["  also ", "  evidence ", "  next "]
        .iter()
        .any(|label| text.starts_with(label))
}

fn missing(app: &App, columns: usize) -> Vec<Line> {
    let mut out = Vec::new();
    let mut add = |lead: &str, text: &str, ink| {
        for (i, part) in wrap(&clean(text), columns.saturating_sub(width(lead) + 1))
            .into_iter()
            .enumerate()
        {
            let lead = if i == 0 {
                lead.to_owned()
            } else {
                " ".repeat(width(lead))
            };
            out.push(line(format!("{lead}{part}"), ink));
        }
    };
    let l = app.losses;
    if l.any() {
        add(
            "LOST      ",
            &format!("{} events found the ring buffer full", l.ring_buffer),
            Ink::Bad,
        );
        add(
            "          ",
            &format!("{} events or steps had no room in user space", l.user_space),
            Ink::Bad,
        );
        add(
            "          ",
            &format!(
                "{} otherwise (tags pushed out, calls without a return, headers not read)",
                l.other
            ),
            Ink::Bad,
        );
        add("          ", "What is missing may have happened.", Ink::Bad);
    } else {
        add("lost      ", "no event was lost", Ink::Good);
    }
    let kept = app.model.kept() as u64;
    if app.model.seen > kept {
        let text = format!(
            "{kept} of {} packets are kept here: the newest, and those that ended badly. The verdict rests on what the trace itself keeps; a recording (-w) has them all.",
            app.model.seen
        );
        add("kept      ", &text, Ink::Warn);
    } else {
        add(
            "kept      ",
            &format!("all {kept} packets that were seen"),
            Ink::Plain,
        );
    }
    add("", "", Ink::Plain);
    let tool = &app.model.header.tool;
    if tool.degraded.is_empty() {
        add("degraded  ", "nothing: every hook is there", Ink::Good);
    }
    for reason in &tool.degraded {
        add("degraded  ", reason, Ink::Warn);
    }
    add("hooks     ", &tool.hooks.join(", "), Ink::Plain);
    for node in &app.model.header.nodes {
        let names: Vec<&str> = node.interfaces.iter().map(|i| &*i.name).collect();
        add(
            "watched   ",
            &format!("{}: {}", node.name, names.join(", ")),
            Ink::Plain,
        );
    }
    if !app.notes.is_empty() {
        add("", "", Ink::Plain);
    }
    for note in &app.notes {
        add("message   ", note, Ink::Plain);
    }
    out
}

fn compare(a: &Packet, b: &Packet, columns: usize) -> Vec<Line> {
    let half = columns.saturating_sub(5) / 2;
    let mut out = Vec::new();
    let both = |left: &str, right: &str, sign: &str, ink| {
        vec![
            (pad(left, half), ink),
            (
                format!(" {sign} "),
                if sign == "≠" { Ink::Bad } else { Ink::Dim },
            ),
            (pad(right, half), ink),
        ]
    };
    let head = |name, p: &Packet| {
        let (outcome, _) = super::path::outcome(p, true);
        format!("{name} = #{} {}  {outcome}", p.id, clean(&p.summary))
    };
    out.push(both(&head("A", a), &head("B", b), " ", Ink::Head));
    out.push(both(&ends(a), &ends(b), " ", Ink::Plain));
    if a.direction != b.direction || a.flow != b.flow {
        let text = "These are not of one flow and direction: they go different ways anyhow.";
        out.push(line(text, Ink::Warn));
    }
    let pairs = align(a, b);
    let first = first_difference(&pairs);
    if first.is_none() {
        out.push(line("No difference: both went the same way.", Ink::Good));
    }
    for (i, pair) in pairs.iter().enumerate() {
        if first == Some(i) {
            let what = pair.differs.join(", ");
            out.push(line(
                format!(">>> FIRST DIFFERENCE ({what})"),
                Ink::BadBadge,
            ));
        }
        let text = |packet, at: Option<usize>| at.map_or_else(|| "-".into(), |at| cell(packet, at));
        let (left, right) = (text(a, pair.left), text(b, pair.right));
        let differs = !pair.differs.is_empty();
        let ink = if differs { Ink::Bad } else { Ink::Plain };
        let left = wrap(&left, half);
        let right = wrap(&right, half);
        for n in 0..left.len().max(right.len()) {
            let part = |lines: &[String]| lines.get(n).cloned().unwrap_or_default();
            let sign = match (n, differs) {
                (0, true) => "≠",
                (0, false) => "=",
                _ => " ",
            };
            out.push(both(&part(&left), &part(&right), sign, ink));
        }
    }
    out
}
