//! `html`: one file for people, without scripts and without a network. The
//! verdict, the packet's way as a picture, findings, timelines, and what the
//! nodes were set up to do. Large traces are shown in part, and the page says
//! what it leaves out.

use std::io::{self, Write};

use page::Page;

use super::phrase;
use crate::diagnose;
use crate::trace::probe::Report;
use crate::trace::{Outcome, Packet, Severity, Step, StepKind, Trace};

mod page;
mod path;
mod picture;
mod state;

/// Pictures.
const PICTURES: usize = 2;
/// Packets with their timelines, and steps of each.
const PACKETS: usize = 200;
const STEPS: usize = 400;
/// Connections, findings, attempts, interfaces.
const ROWS: usize = 100;

const STYLE: &str = include_str!("html/style.css");

/// Writes the page.
pub fn write(out: &mut dyn Write, trace: &Trace) -> io::Result<()> {
    out.write_all(page(trace).as_bytes())?;
    out.flush()
}

fn page(trace: &Trace) -> String {
    let mut page = Page::default();
    let verdict = &trace.closing.verdict;
    page.raw("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n")
        .raw("<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n")
        .raw("<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n")
        .raw("<meta name=\"referrer\" content=\"no-referrer\">\n<title>")
        .text(&format!("{} - tracer", verdict.code))
        .raw("</title>\n<style>\n")
        .raw(STYLE)
        .raw("</style>\n</head>\n<body>\n");
    header(&mut page, trace);
    pictures(&mut page, trace);
    findings(&mut page, trace);
    if let Some(report) = &trace.closing.probe {
        probe(&mut page, report);
    }
    flows(&mut page, trace);
    packets(&mut page, trace);
    asked(&mut page, trace);
    if let Some(state) = &trace.closing.state {
        state::write(&mut page, state);
    }
    let tool = &trace.header.tool;
    page.raw("<footer><p>")
        .text(&format!(
            "Made by tracer {} on Linux {}. ~ marks what was worked out, not observed.",
            tool.version, tool.kernel
        ))
        .raw("</p></footer>\n</body>\n</html>\n");
    page.finish()
}

fn header(page: &mut Page, trace: &Trace) {
    let (closing, tool) = (&trace.closing, &trace.header.tool);
    let verdict = &closing.verdict;
    let (class, mark) = match &*verdict.code {
        _ if phrase::is_fault(trace) => ("bad", "✗"),
        _ if diagnose::is_open(verdict) => ("", "?"),
        _ => ("good", "✓"),
    };
    page.raw("<header>\n<h1>")
        .text(&title(trace))
        .raw("</h1>\n");
    page.raw(&format!(
        "<div class=\"verdict {class}\"><span class=\"mark\">{mark}</span>"
    ))
    .tag("span", "code", &verdict.code)
    .tag("p", "", &verdict.summary);
    let place = [("node", &verdict.node), ("interface", &verdict.iface)];
    let place: Vec<String> = place
        .iter()
        .filter_map(|(what, name)| name.as_ref().map(|n| format!("{what} {n}")))
        .collect();
    if let Some(id) = verdict.packet {
        page.raw("<p class=\"dim\">").text(&place.join(", "));
        page.raw(&format!(" <a href=\"#p{id}\">packet #{id}</a></p>"));
    } else if !place.is_empty() {
        page.tag("p", "dim", &place.join(", "));
    }
    page.raw("</div>\n");
    if closing.losses.any() {
        page.raw("<div class=\"limit lost\"><b>! LOST</b> ")
            .text(&phrase::losses(closing.losses))
            .raw("</div>\n");
    }
    for reason in tool.degraded.iter().take(ROWS) {
        page.raw("<div class=\"limit\"><b>! degraded</b> ")
            .text(reason)
            .raw("</div>\n");
    }
    page.raw("</header>\n");
}

/// What was followed, and when.
fn title(trace: &Trace) -> String {
    let first = trace
        .packets
        .iter()
        .flat_map(|p| &p.steps)
        .map(|s| s.ts)
        .min();
    let when = first.map_or_else(String::new, |ts| format!(", {}", phrase::utc(ts)));
    match trace.flows.first() {
        Some(f) => format!(
            "{} from {} to {}{when}",
            f.proto,
            phrase::endpoint(&f.client),
            phrase::endpoint(&f.server)
        ),
        None => format!("tracer{when}"),
    }
}

fn pictures(page: &mut Page, trace: &Trace) {
    let shown: Vec<&Packet> = phrase::chosen(trace).into_iter().take(PICTURES).collect();
    if shown.is_empty() {
        page.raw("<section><h2>The way</h2><p>No packet was seen.</p></section>\n");
        return;
    }
    page.raw("<section>\n<h2>The way</h2>\n");
    for packet in shown {
        let (stops, left) = path::path(packet);
        page.raw("<figure>\n<figcaption>");
        caption(page, packet);
        page.raw("</figcaption>\n");
        let way: Vec<&str> = stops.iter().map(|s| s.title.as_str()).collect();
        let about = format!("The way of packet {}: {}", packet.id, way.join(", "));
        picture::draw(page, &stops, &about);
        if left > 0 {
            page.tag(
                "p",
                "dim",
                &format!("{left} more steps are not in the picture; they are in its timeline"),
            );
        }
        page.raw("</figure>\n");
    }
    page.raw("</section>\n");
}

/// A packet in a line.
fn caption(page: &mut Page, packet: &Packet) {
    page.tag("b", "", &format!("#{} {}", packet.id, packet.summary))
        .raw(" ");
    if let Some(first) = packet.steps.first() {
        let (src, dst) = (phrase::endpoint(&first.src), phrase::endpoint(&first.dst));
        page.text(&format!("{src} → {dst} "));
    }
    if packet.attempt > 1 {
        page.tag("span", "dim", &format!("try {} ", packet.attempt));
    }
    let (class, mark) = match packet.outcome {
        Outcome::Delivered => ("out good", "✓ "),
        Outcome::Pending => ("out", ""),
        _ => ("out bad", "✗ "),
    };
    page.tag(
        "span",
        class,
        &format!("{mark}{}", phrase::outcome(packet.outcome)),
    );
    if let (Some(first), Some(last)) = (packet.steps.first(), packet.steps.last()) {
        let span = phrase::milliseconds(last.ts.saturating_sub(first.ts));
        page.tag("span", "dim", &format!(" {span}"));
    }
}

fn findings(page: &mut Page, trace: &Trace) {
    if trace.closing.findings.is_empty() {
        return;
    }
    page.raw("<section>\n<h2>Findings</h2>\n");
    for finding in trace.closing.findings.iter().take(ROWS) {
        let (class, word) = match finding.severity {
            Severity::Fault => ("fault", "fault"),
            Severity::Warning => ("warning", "warning"),
            Severity::Note => ("note", "note"),
        };
        page.raw(&format!(
            "<div class=\"finding {class}\"><span class=\"badge\">{word}</span>"
        ))
        .tag("b", "", &finding.code)
        .tag("p", "", &finding.summary);
        if !finding.evidence.is_empty() {
            page.raw("<h3>What shows it</h3>\n<ul>\n");
            for evidence in finding.evidence.iter().take(ROWS) {
                page.tag("li", "", evidence);
            }
            page.raw("</ul>\n");
        }
        if !finding.next.is_empty() {
            page.raw("<h3>What to do next</h3>\n");
            for next in finding.next.iter().take(ROWS) {
                page.tag("pre", "", next);
            }
        }
        page.raw("</div>\n");
    }
    left_out(page, trace.closing.findings.len(), ROWS, "findings");
    page.raw("</section>\n");
}

fn probe(page: &mut Page, report: &Report) {
    page.raw("<section>\n<h2>What was tried</h2>\n")
        .tag("p", "", &report.layer.summary);
    let rows = report.attempts.iter().take(ROWS).map(|a| {
        let server = a.server.as_ref().map_or_else(String::new, phrase::endpoint);
        let stopped = a.stopped.as_ref().map_or_else(String::new, |p| {
            format!("{} {} ({}, #{})", p.node, p.iface, p.how, p.packet)
        });
        let target = a
            .name
            .as_ref()
            .map_or_else(|| server.clone(), |n| format!("{n} = {server}"));
        vec![
            phrase::way(a.way).to_owned(),
            target,
            a.detail.clone(),
            stopped,
        ]
    });
    table(page, &["way", "target", "result", "where it stopped"], rows);
    left_out(page, report.attempts.len(), ROWS, "attempts");
    for note in report.notes.iter().take(ROWS) {
        page.tag("p", "dim", note);
    }
    page.raw("</section>\n");
}

fn flows(page: &mut Page, trace: &Trace) {
    if trace.flows.is_empty() {
        return;
    }
    page.raw("<section>\n<h2>Connections</h2>\n");
    let rows = trace.flows.iter().take(ROWS).map(|f| {
        let backend = f
            .backend
            .as_ref()
            .map_or_else(String::new, phrase::endpoint);
        vec![
            f.id.to_string(),
            f.proto.to_string(),
            phrase::endpoint(&f.client),
            phrase::endpoint(&f.server),
            backend,
            f.state.to_string(),
        ]
    });
    table(
        page,
        &["flow", "protocol", "client", "server", "served by", "state"],
        rows,
    );
    left_out(page, trace.flows.len(), ROWS, "connections");
    page.raw("</section>\n");
}

fn table(page: &mut Page, heads: &[&str], rows: impl Iterator<Item = Vec<String>>) {
    page.raw("<table><thead><tr>");
    for head in heads {
        page.tag("th", "", head);
    }
    page.raw("</tr></thead><tbody>\n");
    for row in rows {
        page.raw("<tr>");
        for (head, cell) in heads.iter().zip(row).filter(|(_, c)| !c.is_empty()) {
            page.raw(&format!("<td data-is=\"{head}\">"))
                .text(&cell)
                .raw("</td>");
        }
        page.raw("</tr>\n");
    }
    page.raw("</tbody></table>\n");
}

fn left_out(page: &mut Page, all: usize, shown: usize, what: &str) {
    if all > shown {
        page.tag(
            "p",
            "dim",
            &format!("{} of {all} {what} are not shown", all - shown),
        );
    }
}

fn packets(page: &mut Page, trace: &Trace) {
    if trace.packets.is_empty() {
        return;
    }
    let chosen = phrase::chosen(trace);
    let told = |p: &&Packet| chosen.iter().any(|c| c.id == p.id);
    let mut shown: Vec<&Packet> = trace.packets.iter().filter(told).collect();
    let rest = || trace.packets.iter().filter(|p| !told(p));
    // What went wrong comes first where not all fit.
    let more = rest()
        .filter(|p| phrase::is_bad(p))
        .chain(rest().filter(|p| !phrase::is_bad(p)));
    shown.extend(more.take(PACKETS.saturating_sub(shown.len())));
    shown.sort_by_key(|p| p.id);
    page.raw("<section>\n<h2>Packets</h2>\n");
    if trace.packets.len() > shown.len() {
        page.tag(
            "p",
            "limit",
            &format!(
                "{} of {} packets are shown: those that tell the story, then those that went wrong, then the first. All are in the recording.",
                shown.len(),
                trace.packets.len()
            ),
        );
    }
    for packet in shown {
        let open = if told(&packet) { " open" } else { "" };
        page.raw(&format!(
            "<details class=\"packet\" id=\"p{}\"{open}><summary>",
            packet.id
        ));
        caption(page, packet);
        page.raw("</summary><div class=\"in\">\n<ol class=\"steps\">\n");
        for i in 0..packet.steps.len().min(STEPS) {
            step(page, packet, i);
        }
        page.raw("</ol>\n");
        left_out(page, packet.steps.len(), STEPS, "steps");
        page.raw("</div></details>\n");
    }
    page.raw("</section>\n");
}

fn step(page: &mut Page, packet: &Packet, i: usize) {
    let step = &packet.steps[i];
    let first = packet.steps.first().map_or(0, |s| s.ts);
    let end = if phrase::is_end(step) { "end" } else { "" };
    let inferred = if step.inferred { " inferred" } else { "" };
    page.raw(&format!(
        "<li class=\"{}\">",
        format!("{end}{inferred}").trim()
    ))
    .tag(
        "span",
        "when",
        &phrase::milliseconds(step.ts.saturating_sub(first)),
    )
    .tag("span", "node", &step.node)
    .raw(&format!("<span class=\"what {}\">", class(step)))
    .text(&phrase::step(step, &packet.steps[..i]));
    if step.inferred {
        let from = step.from.as_deref().unwrap_or("other steps");
        page.tag(
            "span",
            "from",
            &format!("worked out, not observed; from: {from}"),
        );
    }
    page.raw("</span></li>\n");
}

fn class(step: &Step) -> &'static str {
    match step.kind {
        StepKind::Dnat
        | StepKind::Snat
        | StepKind::Masquerade
        | StepKind::UnDnat
        | StepKind::UnSnat => "rewrite",
        StepKind::Encap | StepKind::Decap => "tunnel",
        StepKind::ConntrackNew | StepKind::Route | StepKind::Policy | StepKind::Hook => "state",
        StepKind::Deliver => "good",
        _ => "",
    }
}

fn asked(page: &mut Page, trace: &Trace) {
    let header = &trace.header;
    page.raw("<section>\n<h2>How it was traced</h2>\n<details><summary>What was asked for, hooks, nodes</summary><div class=\"in\">\n");
    page.raw("<h3>Request</h3>");
    let request = serde_json::to_string_pretty(&header.request).unwrap_or_default();
    state::text(page, &request);
    page.raw("<h3>Hooks</h3>")
        .tag("p", "", &header.tool.hooks.join(", "));
    page.raw("<h3>Nodes</h3>\n<ul>\n");
    for node in header.nodes.iter().take(ROWS) {
        let addrs: Vec<String> = node.addrs.iter().map(ToString::to_string).collect();
        let names: Vec<&str> = node
            .interfaces
            .iter()
            .take(ROWS)
            .map(|i| &*i.name)
            .collect();
        page.tag(
            "li",
            "",
            &format!(
                "{}: {}; watched: {}",
                node.name,
                addrs.join(", "),
                names.join(", ")
            ),
        );
    }
    page.raw("</ul>\n</div></details>\n</section>\n");
}

#[cfg(test)]
mod tests;
