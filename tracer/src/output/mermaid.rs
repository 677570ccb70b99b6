//! `mermaid`: a sequence diagram, for Markdown. It shows the few packets that
//! tell the story and says what it leaves out.
//!
//! Of text from outside nothing but letters, digits and some harmless marks is
//! written as it is; all else is written as a character entity (`#60;`), so
//! that no name can be part of the diagram's language or of the page.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::io::{self, Write};

use super::phrase;
use crate::trace::{Packet, Role, Step, StepKind, Trace};

/// Packets shown.
const PACKETS: usize = 4;
/// Steps shown of one packet.
const STEPS: usize = 40;
/// Longest name and longest text, in characters.
const NAME: usize = 60;
const TEXT: usize = 420;
/// Characters in a line of text.
const LINE: usize = 70;
/// Parts of the picture that stand side by side.
const LANES: usize = 12;

/// Writes the diagram.
pub fn write(out: &mut dyn Write, trace: &Trace) -> io::Result<()> {
    out.write_all(diagram(trace).as_bytes())?;
    out.flush()
}

/// The participants of the diagram: pods, and nodes.
#[derive(Default)]
struct Lanes {
    names: Vec<String>,
    known: HashSet<String>,
}

impl Lanes {
    /// The number of a lane; those that no longer fit share the last.
    fn of(&mut self, name: &str) -> usize {
        if let Some(at) = self.names.iter().position(|n| n == name) {
            return at;
        }
        if self.known.insert(name.to_owned()) && self.names.len() < LANES {
            self.names.push(name.to_owned());
            return self.names.len() - 1;
        }
        self.names.len().saturating_sub(1)
    }
}

fn diagram(trace: &Trace) -> String {
    let chosen = phrase::chosen(trace);
    let mut shown: Vec<&Packet> = chosen.into_iter().take(PACKETS).collect();
    shown.sort_by_key(|p| (p.steps.first().map_or(0, |s| s.ts), p.id));
    let mut lanes = Lanes::default();
    let mut body = String::new();
    for packet in &shown {
        draw(packet, &mut lanes, &mut body);
    }
    if lanes.names.is_empty() {
        lanes.of("no packet was seen");
    }
    let mut text = "sequenceDiagram\n".to_owned();
    for (i, name) in lanes.names.iter().enumerate() {
        let _ = writeln!(text, "    participant p{i} as {}", self::name(name));
    }
    let across = format!("p0,p{}", lanes.names.len() - 1);
    let verdict = &trace.closing.verdict;
    let mut head = vec![format!("{}: {}", verdict.code, verdict.summary)];
    if trace.closing.losses.any() {
        head.push(phrase::losses(trace.closing.losses));
    }
    head.extend(
        trace
            .header
            .tool
            .degraded
            .iter()
            .take(3)
            .map(|d| format!("degraded: {d}")),
    );
    for line in head {
        let _ = writeln!(text, "    Note over {across}: {}", lines(&line));
    }
    if shown.iter().flat_map(|p| &p.steps).any(|s| s.inferred) {
        let _ = writeln!(text, "    Note over {across}: ~ worked out, not observed");
    }
    text.push_str(&body);
    let left = trace.packets.len().saturating_sub(shown.len());
    if left > 0 {
        let _ = writeln!(
            text,
            "    Note over {across}: {} of {} packets shown, {left} left out",
            shown.len(),
            trace.packets.len()
        );
    }
    text
}

/// One packet's way.
fn draw(packet: &Packet, lanes: &mut Lanes, out: &mut String) {
    let Some(first) = packet.steps.first() else {
        return;
    };
    let mut at = lanes.of(&sender(first));
    let title = format!(
        "#{} {}, {}, {}",
        packet.id,
        packet.summary,
        phrase::direction(packet.direction),
        phrase::outcome(packet.outcome)
    );
    let mut rows = vec![format!("Note over p{at}: {}", lines(&title))];
    for (i, step) in packet.steps.iter().enumerate().take(STEPS) {
        let node = lanes.of(&node(step));
        let what = phrase::step(step, &packet.steps[..i]);
        let what = if step.inferred {
            format!("~ {what}")
        } else {
            what
        };
        let what = lines(&what);
        match step.kind {
            StepKind::Ingress | StepKind::Egress => {
                let (from, to) = hop(step, at, node, lanes);
                rows.push(if from == to {
                    format!("Note over p{to}: {what}")
                } else {
                    format!("p{from}->>p{to}: {what}")
                });
                at = to;
            }
            StepKind::Drop | StepKind::Reject | StepKind::FragmentNeeded => {
                rows.push(format!("p{node}-xp{node}: {what}"));
                at = node;
            }
            _ => {
                rows.push(format!("Note over p{node}: {what}"));
                at = node;
            }
        }
    }
    if packet.steps.len() > STEPS {
        let left = packet.steps.len() - STEPS;
        rows.push(format!("Note over p{at}: {left} more steps left out"));
    }
    if let Some(last) = packet.steps.last().filter(|s| !phrase::is_end(s)) {
        let how = match packet.outcome {
            crate::trace::Outcome::Lost => "LOST after this",
            crate::trace::Outcome::Pending => "not seen again after this",
            crate::trace::Outcome::Dropped | crate::trace::Outcome::Rejected => {
                "stopped after this"
            }
            crate::trace::Outcome::Delivered => "",
        };
        if !how.is_empty() {
            let place = if last.iface.is_empty() {
                String::new()
            } else {
                format!(" ({})", last.iface)
            };
            rows.push(format!("p{at}-xp{at}: {}", lines(&format!("{how}{place}"))));
        }
    }
    let ground = if phrase::is_bad(packet) {
        "rgba(220, 60, 60, 0.12)"
    } else {
        "rgba(90, 140, 200, 0.10)"
    };
    let _ = writeln!(out, "    rect {ground}");
    for line in rows {
        let _ = writeln!(out, "        {line}");
    }
    out.push_str("    end\n");
}

/// Between which lanes a step at an interface moves the packet.
fn hop(step: &Step, at: usize, node: usize, lanes: &mut Lanes) -> (usize, usize) {
    let into_pod = step.kind == StepKind::Egress && step.role == Some(Role::PodVeth)
        || step.kind == StepKind::Ingress && step.role == Some(Role::PodEth0);
    if into_pod {
        return (node, lanes.of(&end(&step.dst)));
    }
    (at, node)
}

/// Where a packet's picture begins.
fn sender(first: &Step) -> String {
    let from_pod = matches!(first.role, Some(Role::PodVeth | Role::PodEth0));
    let comes_in = first.kind == StepKind::Ingress;
    if from_pod || comes_in && first.tunnel.is_none() {
        end(&first.src)
    } else {
        node(first)
    }
}

fn end(e: &crate::trace::Endpoint) -> String {
    e.name
        .as_deref()
        .map_or_else(|| e.addr.to_string(), str::to_owned)
}

fn node(step: &Step) -> String {
    if step.node.is_empty() {
        "unknown node".to_owned()
    } else {
        format!("node {}", step.node)
    }
}

/// A text in lines.
fn lines(text: &str) -> String {
    let mut lines = vec![String::new()];
    let shown: String = text.chars().take(TEXT).collect();
    for word in shown.split_whitespace() {
        let used = lines.last().map_or(0, |l| l.chars().count());
        if used > 0 && used + word.chars().count() >= LINE {
            lines.push(String::new());
        }
        if let Some(line) = lines.last_mut() {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    if shown.len() < text.len()
        && let Some(line) = lines.last_mut()
    {
        line.push('…');
    }
    let lines: Vec<String> = lines.iter().map(|l| escape(l)).collect();
    lines.join("<br/>")
}

/// A name.
fn name(text: &str) -> String {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if text.chars().count() <= NAME {
        return escape(&text);
    }
    escape(&text.chars().take(NAME).chain(['…']).collect::<String>())
}

/// Text that is nothing but text to Mermaid and to a browser.
fn escape(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            'a'..='z'
            | 'A'..='Z'
            | '0'..='9'
            | ' '
            | '.'
            | ','
            | '/'
            | '_'
            | '('
            | ')'
            | '~'
            | '…'
            | '✗' => {
                out.push(c);
            }
            '-' | ':' | '+' | '=' | '*' | '[' | ']' | '@' | '\'' | '!' | '?' => {
                let _ = write!(out, "#{};", u32::from(c));
            }
            c if c.is_control()
                || super::text::clean(c.encode_utf8(&mut [0; 4])).len() > c.len_utf8() =>
            {
                out.push('.');
            }
            c => {
                let _ = write!(out, "#{};", u32::from(c));
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::samples;

    #[test]
    fn a_drop_is_crossed_out_and_the_rest_is_counted() {
        let trace = samples::recording("c11");
        let text = diagram(&trace);
        assert!(text.contains("-xp"), "{text}");
        assert!(text.contains("DROP"), "{text}");
        assert!(text.contains("left out"), "{text}");
    }

    #[test]
    fn a_million_packets_stay_readable() {
        let mut trace = samples::synthetic(2);
        let one = trace.packets.clone();
        for _ in 0..2_000 {
            trace.packets.extend(one.iter().cloned());
        }
        for step in 0..500 {
            let mut more = trace.packets[0].steps[0].clone();
            more.node = format!("node{step}").into();
            trace.packets[0].steps.push(more);
        }
        let text = diagram(&trace);
        assert!(text.lines().count() < 250, "{} lines", text.lines().count());
        assert!(text.contains("more steps left out"));
    }

    #[test]
    fn nothing_from_outside_is_language() {
        let text = diagram(&samples::hostile());
        for line in text.lines().skip(1) {
            let own = ["participant ", "Note over ", "rect rgba(", "end", "p"];
            assert!(
                own.iter().any(|o| line.trim_start().starts_with(o)),
                "{line}"
            );
            let said = line.split_once(": ").map_or("", |(_, said)| said);
            let said = said.replace("<br/>", "");
            let bad = ['<', '>', '"', '%', '{', '}', '`', '\\', '&', '|'];
            assert!(!said.contains(bad) && !line.contains("%%"), "{line}");
        }
    }
}
