//! The table of `tracer probe`.

use std::io::{self, Write};

use super::paint::Ink;
use super::{Text, address, clean, short};
use crate::trace::probe::{Attempt, Report, Way};

/// Widest cell but the last.
const CELL: usize = 52;

impl<W: Write> Text<W> {
    /// Writes what was tried, what came of it, and the layer that it points at.
    pub(super) fn probe(&mut self, report: &Report) -> io::Result<()> {
        let title = ["way", "target", "result", "where it stopped"].map(str::to_owned);
        let rows: Vec<[String; 4]> = report.attempts.iter().map(row).collect();
        let width = |column: usize| {
            let all = rows.iter().chain([&title]);
            let widest = all.map(|r| r[column].chars().count()).max();
            widest.unwrap_or(0).min(CELL)
        };
        let widths = [width(0), width(1), width(2)];
        self.row(&title, widths, Ink::Head)?;
        for (attempt, row) in report.attempts.iter().zip(&rows) {
            let ink = match attempt.result {
                r if r.is_good() => Ink::Good,
                r if r.is_bad() => Ink::Bad,
                _ => Ink::Plain,
            };
            self.row(row, widths, ink)?;
        }
        if let Some(resolver) = report.resolver.as_ref().filter(|r| r.assumed) {
            let text = format!("look-ups are by assumed settings: {}", resolver.origin);
            self.line("note  ", &clean(&text), Ink::Dim)?;
        }
        for note in &report.notes {
            self.line("note  ", &clean(note), Ink::Dim)?;
        }
        writeln!(self.out)?;
        self.line("layer  ", &clean(&report.layer.summary), Ink::Head)
    }

    fn row(&mut self, cells: &[String; 4], widths: [usize; 3], ink: Ink) -> io::Result<()> {
        let [way, target, result, place] = cells;
        let [a, b, c] = widths;
        let result = format!("{:<c$}", short(result, c));
        let lead = format!("{:<a$}  {:<b$}  ", short(way, a), short(target, b));
        let line = format!("{lead}{}  {place}", self.paint.on(ink, &result));
        writeln!(self.out, "{}", line.trim_end())
    }
}

fn row(a: &Attempt) -> [String; 4] {
    let way = match a.way {
        Way::Name => "name",
        Way::ClusterIp => "ClusterIP",
        Way::Address => "address",
        Way::Backend => "backend",
        Way::Pod => "pod",
    };
    let server = a.server.as_ref().map(address);
    let target = match (&a.name, &a.server) {
        (Some(name), Some(_)) => format!("{name} = {}", server.unwrap_or_default()),
        (Some(name), None) => name.clone(),
        (None, server_) => {
            // A backend by its pod; of the others the way says what they are.
            let name = server_.as_ref().and_then(|s| s.name.as_deref());
            let pod = name.filter(|n| n.starts_with("pod/"));
            let pod = pod.map_or_else(String::new, |n| format!(" {n}"));
            let unready = if a.unready { " (not ready)" } else { "" };
            format!("{}{pod}{unready}", server.unwrap_or_default())
        }
    };
    let place = a.stopped.as_ref().map_or_else(String::new, |p| {
        let at = [&*p.node, &*p.iface].join(" ");
        format!("{} ({}, #{})", at.trim(), p.how, p.packet)
    });
    [
        way.to_owned(),
        clean(&target),
        clean(&a.detail),
        clean(&place),
    ]
}
