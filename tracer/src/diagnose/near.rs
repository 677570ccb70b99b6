//! Each finding with a trace in which it speaks, and the same trace with the one
//! fact changed that decides: there it has to be silent.
//!
//! [`EXAMPLES`] is asked for every finding of [`pages`], so none can be added
//! without.
#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::net::IpAddr;
use std::path::Path;

use super::recorded::read;
use super::{diagnose, pages};
use crate::state::{Namespace, Route};
use crate::trace::{Drop, Finding, Outcome, Packet, Step, StepKind, Trace, Verdict};

mod frames;
mod names;
mod node;
mod policy;
mod service;
mod tunnel;

/// A finding that speaks, and what silences it.
pub(super) struct Example {
    code: &'static str,
    speaks: fn() -> Trace,
    near: &'static [Near],
}

/// A near miss.
pub(super) struct Near {
    what: &'static str,
    change: fn(&mut Trace),
    /// The code of the verdict then.
    then: &'static str,
}

const fn near(what: &'static str, then: &'static str, change: fn(&mut Trace)) -> Near {
    Near { what, change, then }
}

static EXAMPLES: &[&[Example]] = &[
    service::EXAMPLES,
    policy::EXAMPLES,
    tunnel::EXAMPLES,
    node::EXAMPLES,
    frames::EXAMPLES,
    names::EXAMPLES,
];

fn all() -> impl Iterator<Item = &'static Example> {
    EXAMPLES.iter().copied().flatten()
}

fn said(verdict: &Verdict, findings: &[Finding]) -> String {
    let lines = findings
        .iter()
        .map(|f| format!("\n  {:?} {}: {}", f.severity, f.code, f.summary));
    format!(
        "{}: {}{}",
        verdict.code,
        verdict.summary,
        lines.collect::<String>()
    )
}

#[test]
fn every_finding_has_an_example_and_a_near_miss() {
    let known: BTreeSet<&str> = pages().map(|p| p.code).collect();
    let with: BTreeSet<&str> = all()
        .filter(|e| !e.near.is_empty())
        .map(|e| e.code)
        .collect();
    assert_eq!(with, known);
}

#[test]
fn every_example_speaks() {
    for example in all() {
        let (verdict, findings) = diagnose(&(example.speaks)());
        assert!(
            findings.iter().any(|f| f.code == example.code),
            "no {} in {}",
            example.code,
            said(&verdict, &findings)
        );
    }
}

#[test]
fn every_near_miss_is_silent() {
    let mut wrong = String::new();
    for example in all() {
        for near in example.near {
            let mut trace = (example.speaks)();
            (near.change)(&mut trace);
            let (verdict, findings) = diagnose(&trace);
            let silent = findings.iter().all(|f| f.code != example.code);
            if !silent || verdict.code != near.then {
                // Writing to a String cannot fail.
                let _ = write!(
                    wrong,
                    "\n{}, {}: not {} but {}",
                    example.code,
                    near.what,
                    near.then,
                    said(&verdict, &findings)
                );
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

/// The laboratory's tests that a document names: `c09`, `healthy-outside`, `probe_of_…`.
fn named_tests(text: &str) -> BTreeSet<String> {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    let case =
        |w: &str| w.starts_with('c') && w.len() > 2 && w[1..3].chars().all(|c| c.is_ascii_digit());
    let words = text.split(|c| !word(c)).filter(|w| {
        case(w) || w.starts_with("healthy-") || w.starts_with("probe_") || w.starts_with("core_")
    });
    words.map(|w| w.replace('-', "_")).collect()
}

#[test]
fn the_document_has_every_finding_and_no_other() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let text = fs::read_to_string(root.join("docs/findings.md")).unwrap();
    let (tables, list) = text.split_once("## All findings").unwrap();
    let known: BTreeSet<&str> = pages().map(|p| p.code).collect();
    let listed: BTreeSet<&str> = list
        .lines()
        .filter_map(|l| l.strip_prefix("| `")?.split_once('`'))
        .map(|(code, _)| code)
        .collect();
    assert_eq!(listed, known);

    let quoted = tables.lines().filter(|l| l.starts_with('|'));
    let quoted = quoted.flat_map(|l| l.split('`').skip(1).step_by(2));
    let kebab = |w: &&str| w.chars().all(|c| c.is_ascii_lowercase() || c == '-');
    let used: BTreeSet<&str> = quoted.filter(kebab).collect();
    let unknown: Vec<_> = used.difference(&known).collect();
    assert!(unknown.is_empty(), "no such findings: {unknown:?}");

    let mut tests = String::new();
    for file in [
        "cases/table.rs",
        "cases/healthy.rs",
        "scenarios/probe.rs",
        "scenarios/usage.rs",
    ] {
        tests += &fs::read_to_string(root.join("tests/tests").join(file)).unwrap();
    }
    for name in named_tests(tables) {
        let there = [
            format!(" {name}_"),
            format!(" {name}:"),
            format!("fn {name}("),
        ];
        assert!(there.iter().any(|t| tests.contains(t)), "no test {name}");
    }
}

// What the examples are changed with.

fn on<'a>(trace: &'a mut Trace, node: &str) -> &'a mut Namespace {
    let state = trace.closing.state.as_mut().unwrap();
    let found = state.namespaces.iter_mut().find(|n| &*n.name == node);
    found.unwrap_or_else(|| panic!("no {node} in the state"))
}

/// Changes the text of a node's rules.
fn rules(trace: &mut Trace, node: &str, from: &str, to: &str) {
    let dumps = &mut on(trace, node).iptables;
    let mut changed = false;
    for dump in dumps {
        changed |= dump.text.contains(from);
        dump.text = dump.text.replace(from, to);
    }
    assert!(changed, "no {from:?} in the rules of {node}");
}

/// Sets the counters of all rules that have these words to zero.
fn uncounted(trace: &mut Trace, node: &str, words: &str) {
    let mut changed = false;
    for dump in &mut on(trace, node).iptables {
        let lines = dump.text.lines().map(|line| match line.split_once("] ") {
            Some((counters, rule)) if counters.starts_with('[') && rule.contains(words) => {
                changed = true;
                format!("[0:0] {rule}\n")
            }
            _ => format!("{line}\n"),
        });
        let text = lines.collect();
        dump.text = text;
    }
    assert!(changed, "no rule with {words:?} on {node}");
}

/// The counter did not move during the run.
fn still(trace: &mut Trace, node: &str, counter: &str) {
    let ns = on(trace, node);
    let before = ns.counters_before[counter];
    ns.counters.insert(counter.to_owned(), before);
}

/// It did.
fn grown(trace: &mut Trace, node: &str, counter: &str) {
    let ns = on(trace, node);
    let before = ns.counters_before[counter];
    ns.counters.insert(counter.to_owned(), before + 3);
}

fn route(dst: &str, prefix: u8, dev: &str, via: Option<&str>) -> Route {
    Route {
        dst: dst.parse().unwrap(),
        prefix,
        kind: "unicast".into(),
        table: 254,
        dev: Some(dev.into()),
        via: via.map(|v| v.parse().unwrap()),
        src: None,
        metric: 0,
    }
}

/// All steps.
fn steps(trace: &mut Trace) -> impl Iterator<Item = &mut Step> {
    trace.packets.iter_mut().flat_map(|p| &mut p.steps)
}

/// Freed there instead, and not by netfilter.
fn freed_by(trace: &mut Trace, function: &str, reason: &str) {
    freed(trace, function, reason, None);
}

fn freed(trace: &mut Trace, function: &str, reason: &str, hook: Option<&'static str>) {
    let mut changed = false;
    for step in steps(trace).filter(|s| s.kind == StepKind::Drop && s.icmp.is_none()) {
        changed = true;
        step.drop = Some(Box::new(Drop {
            reason: Some(reason.into()),
            function: function.into(),
            hook: hook.map(Into::into),
        }));
    }
    assert!(changed, "nothing is dropped in this trace");
    for packet in trace
        .packets
        .iter_mut()
        .filter(|p| p.outcome == Outcome::Rejected)
    {
        packet.outcome = Outcome::Dropped;
    }
}

/// Gives each packet a step of that kind, behind its first.
fn with_step(trace: &mut Trace, kind: StepKind) {
    for packet in &mut trace.packets {
        let mut step = packet.steps[0].clone();
        step.kind = kind;
        step.drop = None;
        packet.steps.insert(1, step);
    }
}

/// A copy of the last packet, that was sent in the given direction and arrived.
fn another(trace: &mut Trace, reply: bool) -> &mut Packet {
    let mut packet = trace.packets.last().unwrap().clone();
    packet.id += 1;
    packet.retransmits = None;
    packet.attempt = 1;
    packet.outcome = Outcome::Delivered;
    packet.direction = if reply {
        crate::trace::Direction::Reply
    } else {
        crate::trace::Direction::Request
    };
    for step in &mut packet.steps {
        step.reply = reply;
        step.packet = Some(packet.id);
        if reply {
            std::mem::swap(&mut step.src, &mut step.dst);
        }
    }
    trace.packets.push(packet);
    trace.packets.last_mut().unwrap()
}

fn addr(text: &str) -> IpAddr {
    text.parse().unwrap()
}
