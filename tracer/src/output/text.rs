//! The timeline as text: a line per packet and a line per step, then the
//! verdict. Made for a terminal of 110 columns and for `grep`.

use std::collections::HashMap;
use std::io::{self, Write};

use crate::diagnose;
use crate::trace::{Closing, Endpoint, Header, Outcome, Packet, Severity, Trace};

use paint::{Ink, Paint};

mod clocks;
mod paint;
mod probe;
pub(crate) mod words;

/// Widest line.
const WIDTH: usize = 110;

/// Writes text.
pub struct Text<W: Write> {
    out: W,
    paint: Paint,
    legend: bool,
}

impl<W: Write> Text<W> {
    /// Text with or without colour; the caller knows the terminal.
    pub fn new(out: W, color: bool) -> Self {
        Self {
            out,
            paint: Paint::new(color),
            legend: false,
        }
    }

    /// Writes a packet's timeline; `tries` where all tries of it are known.
    pub fn packet(&mut self, packet: &Packet, tries: Option<u32>) -> io::Result<()> {
        self.head(packet, tries)?;
        let Some(first) = packet.steps.first() else {
            return Ok(());
        };
        let nodes = packet.steps.iter().map(|s| clean(&s.node).chars().count());
        let width = nodes.max().unwrap_or(0).min(24);
        let mut node = "";
        for (i, step) in packet.steps.iter().enumerate() {
            let shown = if i > 0 && *step.node == *node {
                ""
            } else {
                &step.node
            };
            node = &step.node;
            let mark = if step.inferred { '~' } else { ' ' };
            let since = milliseconds(step.ts.saturating_sub(first.ts));
            let shown = short(&clean(shown), width);
            let lead = format!("  {since:>13}  {shown:<width$} {mark} ");
            let what = clean(&words::step(step, &packet.steps[..i]));
            self.line(&lead, &what, words::ink(step.kind))?;
            if let Some(rule) = words::rule(step) {
                let inferred = step.rule.as_ref().is_some_and(|r| r.inferred);
                let mark = if inferred { '~' } else { ' ' };
                let indent = lead.chars().count().saturating_sub(2);
                let lead = format!("{}{mark}   ", " ".repeat(indent));
                self.line(&lead, &clean(&rule), words::ink(step.kind))?;
            }
            let rule = step.rule.as_deref().filter(|r| r.inferred);
            if (step.inferred || rule.is_some()) && !self.legend {
                self.legend = true;
                let from = step
                    .from
                    .as_deref()
                    .or(rule.and_then(|r| r.from.as_deref()));
                let why = from.unwrap_or("other steps");
                let text = format!("(~ worked out, not observed; here from: {})", clean(why));
                self.line(&" ".repeat(lead.chars().count()), &text, Ink::Dim)?;
            }
        }
        Ok(())
    }

    /// Hands on what was written so far.
    pub fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    fn head(&mut self, packet: &Packet, tries: Option<u32>) -> io::Result<()> {
        let ends = packet.steps.first().map_or_else(String::new, |s| {
            format!("{} -> {}", endpoint(&s.src), endpoint(&s.dst))
        });
        let tried = match (packet.attempt, tries) {
            (n, Some(all)) if all > 1 => format!("  try {n} of {all}"),
            (n, _) if n > 1 => format!("  try {n}"),
            _ => String::new(),
        };
        let (outcome, ink) = outcome(packet);
        let lead = format!("#{} ", packet.id);
        let text = format!("{}  {ends}{tried}  {outcome}", packet.summary);
        self.line(&lead, &clean(&text), ink)
    }

    /// Writes the verdict with what shows it, and what limits it.
    pub fn closing(&mut self, closing: &Closing, header: &Header) -> io::Result<()> {
        if let Some(report) = &closing.probe {
            self.probe(report)?;
        }
        let verdict = &closing.verdict;
        let fault = closing
            .findings
            .iter()
            .any(|f| f.severity == Severity::Fault);
        let (mark, ink) = if fault {
            ("✗ ", Ink::Bad)
        } else {
            ("✓ ", Ink::Good)
        };
        let mark = if diagnose::is_open(verdict) {
            "? "
        } else {
            mark
        };
        writeln!(self.out)?;
        self.line(
            mark,
            &clean(&format!("{}: {}", verdict.code, verdict.summary)),
            ink,
        )?;
        for finding in &closing.findings {
            if finding.code != verdict.code {
                let text = clean(&format!("{}: {}", finding.code, finding.summary));
                self.line("  also      ", &text, Ink::Plain)?;
            }
            for evidence in &finding.evidence {
                self.line("  evidence  ", &clean(evidence), Ink::Plain)?;
            }
            for next in &finding.next {
                // A command is copied whole: it is never wrapped.
                writeln!(
                    self.out,
                    "  next      {}",
                    self.paint.on(Ink::Tunnel, &clean(next))
                )?;
            }
        }
        if closing.losses.any() {
            let l = closing.losses;
            let text = format!(
                "{} events in the ring buffer, {} in user space, {} otherwise: what is missing above may have happened",
                l.ring_buffer, l.user_space, l.other
            );
            self.line("! LOST      ", &text, Ink::Bad)?;
        }
        for reason in &header.tool.degraded {
            self.line("! degraded  ", &clean(reason), Ink::Rewrite)?;
        }
        if let Some(merged) = &header.merged {
            for text in clocks::lines(merged) {
                self.line("  clock     ", &clean(&text), Ink::Plain)?;
            }
            for note in &merged.notes {
                self.line("! note      ", &clean(note), Ink::Rewrite)?;
            }
        }
        self.out.flush()
    }

    /// Writes a whole trace.
    pub fn trace(&mut self, trace: &Trace) -> io::Result<()> {
        let mut tries: HashMap<u64, u32> = HashMap::new();
        for packet in &trace.packets {
            let most = tries
                .entry(packet.retransmits.unwrap_or(packet.id))
                .or_default();
            *most = packet.attempt.max(*most);
        }
        for packet in &trace.packets {
            let root = packet.retransmits.unwrap_or(packet.id);
            self.packet(packet, tries.get(&root).copied())?;
        }
        if trace.closing.probe.is_some() && !trace.packets.is_empty() {
            writeln!(self.out)?;
        }
        self.closing(&trace.closing, &trace.header)
    }

    /// One line, wrapped under its text.
    fn line(&mut self, lead: &str, text: &str, ink: Ink) -> io::Result<()> {
        let indent = lead.chars().count();
        let room = WIDTH.saturating_sub(indent).max(20);
        for (i, part) in wrap(text, room).iter().enumerate() {
            let lead = if i == 0 {
                lead.to_owned()
            } else {
                " ".repeat(indent)
            };
            writeln!(self.out, "{lead}{}", self.paint.on(ink, part))?;
        }
        Ok(())
    }
}

/// Writes a whole trace.
pub fn write(out: &mut dyn Write, trace: &Trace, color: bool) -> io::Result<()> {
    Text::new(out, color).trace(trace)
}

/// An endpoint in words: a pod by its name, a Service with its address.
pub fn endpoint(e: &Endpoint) -> String {
    match &e.name {
        Some(name) if name.starts_with("svc/") => format!("{} ({name})", address(e)),
        Some(name) => e
            .port
            .map_or_else(|| name.to_string(), |port| format!("{name}:{port}")),
        None => address(e),
    }
}

/// Address and port.
pub fn address(e: &Endpoint) -> String {
    match (e.addr, e.port) {
        (addr, None) => addr.to_string(),
        (addr, Some(port)) => std::net::SocketAddr::new(addr, port).to_string(),
    }
}

/// A duration in milliseconds.
pub fn milliseconds(ns: u64) -> String {
    format!("+{}.{:03} ms", ns / 1_000_000, ns / 1_000 % 1_000)
}

fn outcome(packet: &Packet) -> (String, Ink) {
    let span = match (packet.steps.first(), packet.steps.last()) {
        (Some(a), Some(b)) => b.ts.saturating_sub(a.ts),
        _ => 0,
    };
    let span = format!("{}.{:02} ms", span / 1_000_000, span / 10_000 % 100);
    match packet.outcome {
        Outcome::Delivered => (format!("delivered in {span}"), Ink::Good),
        Outcome::Dropped => (format!("✗ dropped after {span}"), Ink::Bad),
        Outcome::Rejected => (format!("✗ rejected after {span}"), Ink::Bad),
        Outcome::Lost => ("✗ lost".into(), Ink::Bad),
        Outcome::Pending => ("last seen below".into(), Ink::Head),
    }
}

/// Names come from outside: nothing in them may move the cursor, hide text or
/// turn its direction.
pub fn clean(text: &str) -> String {
    let hostile = |c: char| {
        c.is_control()
            || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
    };
    if !text.contains(hostile) {
        return text.to_owned();
    }
    text.chars()
        .flat_map(|c| {
            let escaped: Vec<char> = if hostile(c) {
                c.escape_default().collect()
            } else {
                vec![c]
            };
            escaped
        })
        .collect()
}

fn short(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    text.chars()
        .take(width.saturating_sub(1))
        .chain(['…'])
        .collect()
}

fn wrap(text: &str, room: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    let mut used = 0;
    for word in text.split(' ') {
        let len = word.chars().count();
        if used > 0 && used + 1 + len > room {
            lines.push(String::new());
            used = 0;
        }
        let Some(line) = lines.last_mut() else { break };
        if used > 0 {
            line.push(' ');
            used += 1;
        }
        line.push_str(word);
        used += len;
    }
    lines.into_iter().map(|l| l.trim_end().to_owned()).collect()
}

#[cfg(test)]
mod tests;
