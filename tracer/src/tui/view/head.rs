//! The verdict, always on top, and below it what limits it.

use ratatui::buffer::Buffer;

use super::{pieces, put, put_at};
use crate::diagnose;
use crate::output::text::clean;
use crate::trace::Severity;
use crate::tui::app::{App, Phase};
use crate::tui::layout::Areas;
use crate::tui::theme::{Ink, Theme};
use crate::tui::width::{clip, width, wrap};

/// The badge, its ink, and the sentence.
fn verdict(app: &App) -> (String, Ink, String) {
    let Some(judged) = &app.judged else {
        return match app.phase {
            Phase::Loading { .. } => (
                " LOADING ".into(),
                Ink::WarnBadge,
                "the recording is being read; the verdict follows".into(),
            ),
            _ => (
                " SO FAR ".into(),
                Ink::WarnBadge,
                "nothing to judge yet: waiting for the first packet".into(),
            ),
        };
    };
    let verdict = &judged.verdict;
    let fault = judged
        .findings
        .iter()
        .any(|f| f.severity == Severity::Fault);
    // Its own finding may be a warning alone, as where events were lost.
    let warning = judged
        .findings
        .iter()
        .any(|f| f.code == verdict.code && f.severity == Severity::Warning);
    let (word, ink) = if verdict.code == "no-traffic" {
        ("? NOTHING SEEN", Ink::WarnBadge)
    } else if diagnose::is_open(verdict) {
        ("? UNDECIDED", Ink::WarnBadge)
    } else if fault {
        ("✗ FAULT", Ink::BadBadge)
    } else if warning {
        ("! WARNING", Ink::WarnBadge)
    } else {
        ("✓ OK", Ink::GoodBadge)
    };
    let word = if judged.last {
        format!(" {word} ")
    } else {
        format!(" SO FAR: {word} ")
    };
    let text = if verdict.code == "no-traffic" && !judged.last {
        "nothing of the flow was seen yet: waiting for traffic".to_owned()
    } else {
        format!("{}: {}", verdict.code, clean(&verdict.summary))
    };
    (word, ink, text)
}

/// The sentence's lines, the badge before the first.
pub(crate) fn lines(app: &App, columns: u16) -> Vec<String> {
    let (badge, _, text) = verdict(app);
    let columns = usize::from(columns);
    let lead = width(&badge) + 1;
    // Blanks keep the badge's place while the text is broken into lines.
    let place = "\u{a0}".repeat(lead);
    wrap(&format!("{place}{text}"), columns.saturating_sub(1))
}

pub(super) fn draw(app: &App, theme: Theme, areas: &Areas, buf: &mut Buffer) {
    let area = areas.head;
    let (badge, ink, _) = verdict(app);
    let mut lines = lines(app, area.width);
    if lines.len() > usize::from(area.height) {
        lines.truncate(usize::from(area.height));
        if let Some(last) = lines.last_mut() {
            let room = usize::from(area.width).saturating_sub(8);
            *last = format!("{} … (v)", clip(last, room));
        }
    }
    let text = match ink {
        Ink::BadBadge => Ink::Bad,
        Ink::GoodBadge => Ink::Good,
        _ => Ink::Warn,
    };
    for (i, line) in lines.iter().enumerate() {
        put(
            buf,
            area,
            i as u16,
            &line.replace('\u{a0}', " "),
            theme.style(text),
        );
    }
    put_at(buf, area, 0, 0, &badge, theme.style(ink));
    pieces(buf, areas.status, 0, &status(app), theme);
}

/// Losses and what is degraded first: they limit everything else.
fn status(app: &App) -> Vec<(String, Ink)> {
    let mut out = Vec::new();
    let l = app.losses;
    let lost = l.ring_buffer + l.user_space + l.other;
    if lost > 0 {
        out.push((format!("! LOST {lost} events"), Ink::BadBadge));
    } else {
        out.push(("lost 0".into(), Ink::Plain));
    }
    out.push((" | ".into(), Ink::Dim));
    let degraded = app.model.header.tool.degraded.len();
    if degraded > 0 {
        out.push((format!("! degraded {degraded} (d)"), Ink::Warn));
    } else {
        out.push(("degraded 0".into(), Ink::Plain));
    }
    out.push((" | ".into(), Ink::Dim));
    match &app.phase {
        Phase::Loading { done, total } => {
            let percent = (done * 100).checked_div(*total).unwrap_or(0).min(100);
            out.push((format!("LOADING {percent} %"), Ink::Warn));
        }
        Phase::Live if app.paused => {
            let held = app.held.as_ref().map_or(0, |h| h.packets.len());
            out.push((format!(" PAUSED, {held} waiting (p) "), Ink::WarnBadge));
        }
        Phase::Live if app.is_leaving() => out.push(("ENDING ...".into(), Ink::Warn)),
        Phase::Live if app.follow => out.push(("LIVE, following".into(), Ink::Good)),
        Phase::Live => out.push(("LIVE (t follows)".into(), Ink::Good)),
        Phase::Finishing => {
            let text = "FINISHING: hooks are taken off, the nodes' state is read";
            out.push((text.into(), Ink::Warn));
        }
        Phase::Over if app.live => out.push(("ENDED, q leaves".into(), Ink::Head)),
        Phase::Over => out.push(("recording".into(), Ink::Plain)),
    }
    if app.model.filtered() {
        let model = &app.model;
        let mut what = Vec::new();
        if model.only_faults() {
            what.push("only faults".to_owned());
        }
        if !model.filter().is_empty() {
            what.push(clip(model.filter().text(), 20));
        }
        let text = format!(
            "FILTER {}: {} of {}",
            what.join(", "),
            model.shown_count(),
            model.kept()
        );
        out.push((" | ".into(), Ink::Dim));
        out.push((text, Ink::Warn));
    }
    let (kept, seen) = (app.model.kept() as u64, app.model.seen);
    let packets = if seen > kept {
        format!("{kept} packets (of {seen})")
    } else {
        format!("{kept} packets")
    };
    out.push((" | ".into(), Ink::Dim));
    out.push((packets, Ink::Plain));
    out
}
