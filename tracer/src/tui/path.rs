//! A packet's timeline as a path: through nodes, and on each from interface to
//! interface. Rows for the screen, without the screen.

use super::theme::{Ink, ink};
use super::width::{width, wrap};
use crate::output::text::{clean, words};
use crate::trace::outcome::{Watched, left_for};
use crate::trace::{Direction, Outcome, Packet, Step, StepKind};

/// Says that the way ends here.
pub(crate) const STOPPED: &str = "STOPPED HERE";

/// What a row is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A node begins.
    Node,
    /// A step, by its place in the packet.
    Step(usize),
    /// More of the step above.
    More(usize),
    /// What became of the packet.
    End,
}

/// A row.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Row {
    pub(crate) kind: Kind,
    /// `│` on a node, `║` inside a tunnel.
    pub(crate) line: &'static str,
    /// `~` where it was worked out.
    pub(crate) inferred: bool,
    /// A sign of the kind of step.
    pub(crate) sign: &'static str,
    pub(crate) text: String,
    pub(crate) ink: Ink,
    /// Nanoseconds since the packet was first seen.
    pub(crate) since: Option<u64>,
    /// The place where it ended badly.
    pub(crate) stop: bool,
}

/// The sign of a kind of step; readable without colour.
pub(crate) fn sign(kind: StepKind) -> &'static str {
    match kind {
        StepKind::Ingress | StepKind::Egress => "o",
        StepKind::Dnat
        | StepKind::Snat
        | StepKind::Masquerade
        | StepKind::UnDnat
        | StepKind::UnSnat => "*",
        StepKind::Encap => "┌",
        StepKind::Decap => "└",
        StepKind::ConntrackNew | StepKind::Route | StepKind::Policy | StepKind::Hook => "·",
        StepKind::Drop | StepKind::Reject | StepKind::FragmentNeeded => "✗",
        StepKind::Deliver => "✓",
    }
}

fn ends(kind: StepKind) -> bool {
    matches!(
        kind,
        StepKind::Drop | StepKind::Reject | StepKind::FragmentNeeded
    )
}

/// Columns beside the text: selection, line, `~`, sign, and the time.
pub(crate) const BESIDE: usize = 7;
/// Columns of the time.
pub(crate) const TIME: usize = 11;

/// The rows of a packet in so many columns.
pub(crate) fn rows(packet: &Packet, watched: &Watched, columns: usize) -> Vec<Row> {
    let room = columns.saturating_sub(BESIDE + TIME).max(20);
    let first = packet.steps.first().map_or(0, |s| s.ts);
    let mut out = Vec::with_capacity(packet.steps.len() * 2);
    let mut node: Option<&str> = None;
    // A drop that the packet outlived was one of a copy of it.
    let bad = matches!(packet.outcome, Outcome::Dropped | Outcome::Rejected);
    let stop = packet.steps.iter().rposition(|s| ends(s.kind));
    let stop = stop.filter(|_| bad);
    for (i, step) in packet.steps.iter().enumerate() {
        if node != Some(&*step.node) {
            out.push(heading(step, node.is_none()));
            node = Some(&step.node);
        }
        let here = stop == Some(i);
        let words = clean(&words::step(step, &packet.steps[..i]));
        let words = words.trim_start_matches("✗ ");
        let text = if here {
            format!("{STOPPED}  {words}")
        } else {
            words.to_owned()
        };
        let inside = step.tunnel.is_some();
        let line = if inside { "║" } else { "│" };
        let parts = if ends(step.kind) {
            indented(&text, room)
        } else {
            broken(&text, room)
        };
        for (n, part) in parts.into_iter().enumerate() {
            out.push(Row {
                kind: if n == 0 { Kind::Step(i) } else { Kind::More(i) },
                line,
                inferred: n == 0 && step.inferred,
                sign: if n == 0 { sign(step.kind) } else { " " },
                text: part,
                ink: ink(step.kind),
                since: (n == 0).then(|| step.ts.saturating_sub(first)),
                stop: here,
            });
        }
        let told = words::rule(step).map(|rule| format!("  {}", clean(&rule)));
        let guessed = step.rule.as_ref().is_some_and(|r| r.inferred);
        let parts = told.map_or_else(Vec::new, |rule| indented(&rule, room));
        for (n, text) in parts.into_iter().enumerate() {
            out.push(Row {
                kind: Kind::More(i),
                line,
                inferred: n == 0 && guessed,
                sign: " ",
                text,
                ink: ink(step.kind),
                since: None,
                stop: false,
            });
        }
    }
    out.extend(end(packet, watched, room));
    out
}

fn heading(step: &Step, first: bool) -> Row {
    let name = if step.node.is_empty() {
        "(node unknown)".to_owned()
    } else {
        clean(&step.node)
    };
    let lead = if first { "NODE" } else { "to NODE" };
    Row {
        kind: Kind::Node,
        line: if step.tunnel.is_some() { "╟" } else { "├" },
        inferred: false,
        sign: "",
        text: format!("{lead} {name}"),
        ink: Ink::Head,
        since: None,
        stop: false,
    }
}

/// Breaks a long rewrite before its arrow, so that old and new stand below each
/// other; anything else between words.
fn broken(text: &str, room: usize) -> Vec<String> {
    if width(text) <= room {
        return vec![text.to_owned()];
    }
    match text.split_once(" -> ") {
        Some((old, new)) if width(old) <= room => {
            let column = old.rfind("  ").map_or(0, |at| at + 2);
            let indent = " ".repeat(column.saturating_sub(3).min(room / 2));
            let lead = format!("{indent}-> ");
            let new = wrap(new, room.saturating_sub(width(&lead)));
            let tail = " ".repeat(width(&lead));
            let lines = new.into_iter().enumerate();
            let lines = lines.map(|(i, l)| format!("{}{l}", if i == 0 { &lead } else { &tail }));
            std::iter::once(old.to_owned()).chain(lines).collect()
        }
        _ => indented(text, room),
    }
}

/// Breaks between words; what follows is set in.
fn indented(text: &str, room: usize) -> Vec<String> {
    let lines = wrap(text, room.saturating_sub(2)).into_iter().enumerate();
    lines
        .map(|(i, l)| if i == 0 { l } else { format!("  {l}") })
        .collect()
}

/// The last row: what became of it.
fn end(packet: &Packet, watched: &Watched, room: usize) -> Vec<Row> {
    let last = packet.steps.last();
    let place = last.map_or_else(String::new, |s| {
        clean(format!("{} {}", s.node, s.iface).trim())
    });
    let (sign, text, ink) = match packet.outcome {
        Outcome::Delivered => ("✓", "ARRIVED".to_owned(), Ink::Good),
        Outcome::Dropped => ("✗", "dropped".to_owned(), Ink::Bad),
        Outcome::Rejected => {
            let text = "rejected: answered with an error".to_owned();
            ("✗", text, Ink::Bad)
        }
        Outcome::Lost => {
            let peer = packet.steps.iter().rev().find_map(|s| left_for(s, watched));
            let peer = peer.map_or_else(String::new, |n| format!(" {}", clean(n)));
            let text = format!("{STOPPED}  LOST: it left {place} and never came to node{peer}");
            ("✗", text, Ink::Bad)
        }
        Outcome::Pending => ("?", format!("not seen after {place}"), Ink::Warn),
    };
    let stop = packet.outcome == Outcome::Lost;
    indented(&text, room)
        .into_iter()
        .enumerate()
        .map(|(n, text)| Row {
            kind: Kind::End,
            line: if n == 0 { "╰" } else { " " },
            inferred: false,
            sign: if n == 0 { sign } else { " " },
            text,
            ink,
            since: None,
            stop,
        })
        .collect()
}

/// What became of a packet, in a word and a sign.
pub(crate) fn outcome(packet: &Packet, over: bool) -> (&'static str, Ink) {
    match packet.outcome {
        Outcome::Delivered => ("✓ arrived", Ink::Good),
        Outcome::Dropped => ("✗ DROPPED", Ink::Bad),
        Outcome::Rejected => ("✗ REJECTED", Ink::Bad),
        Outcome::Lost => ("✗ LOST", Ink::Bad),
        Outcome::Pending if over => ("? not seen again", Ink::Warn),
        Outcome::Pending => ("… under way", Ink::Plain),
    }
}

/// The way a packet goes, as an arrow with a word.
pub(crate) fn direction(direction: Direction) -> &'static str {
    match direction {
        Direction::Request => "-> request",
        Direction::Reply => "<- reply",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tui::samples;

    fn text(case: &str, pick: impl Fn(&Packet) -> bool) -> Vec<String> {
        let trace = samples::recording(case);
        let watched = Watched::new(&trace.header.nodes);
        let packet = trace.packets.iter().find(|p| pick(p)).unwrap();
        let rows = rows(packet, &watched, 78);
        rows.iter()
            .map(|r| format!("{}{}{}", r.line, r.sign, r.text))
            .collect()
    }

    #[test]
    fn the_place_of_a_drop_is_marked_once() {
        let rows = text("c11", |p| p.outcome == Outcome::Dropped);
        let marked: Vec<_> = rows.iter().filter(|r| r.contains(STOPPED)).collect();
        assert_eq!(marked.len(), 1, "{rows:#?}");
        assert!(marked[0].contains("✗STOPPED HERE  DROP"), "{rows:#?}");
    }

    #[test]
    fn a_loss_between_nodes_names_both() {
        let rows = text("c26", |p| p.outcome == Outcome::Lost);
        let all = rows.join(" ");
        let words: Vec<&str> = all.split_whitespace().collect();
        let all = words.join(" ");
        assert!(
            all.contains("✗STOPPED HERE LOST: it left worker eth0"),
            "{all}"
        );
        assert!(all.contains("to node worker2"), "{all}");
    }

    #[test]
    fn tunnels_are_drawn_with_a_double_line() {
        let trace = samples::recording("c20");
        let watched = Watched::new(&trace.header.nodes);
        for packet in &trace.packets {
            for row in rows(packet, &watched, 100) {
                if let Kind::Step(i) = row.kind {
                    assert_eq!(row.line == "║", packet.steps[i].tunnel.is_some());
                }
            }
        }
    }

    #[test]
    fn long_rewrites_break_at_the_arrow() {
        let text = "dnat  dst 10.98.235.247:80 -> 10.244.158.65:8080 (pod/default/remote)";
        assert_eq!(
            broken(text, 60),
            [
                "dnat  dst 10.98.235.247:80",
                "   -> 10.244.158.65:8080 (pod/default/remote)"
            ]
        );
    }
}
