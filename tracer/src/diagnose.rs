//! From a trace to the answer: what went wrong, where, and what to do next.
//!
//! Each finding is one file under `rules/`. A rule looks at the whole trace
//! and is silent unless it can explain what was seen. Pure: no I/O, no clock.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::sync::Arc;

use crate::trace::{Finding, Severity, Trace, Verdict};

pub use rules::RULES;

mod rules;
mod sentence;

/// What a rule says of a trace.
#[derive(Clone, Debug, PartialEq)]
pub enum Check {
    /// It is not this.
    Clear,
    /// Too little was seen to tell.
    NotYet,
    /// It is this.
    Found(Box<Found>),
}

/// A finding and where it shows.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// When it happened first: the verdict is the first fault on the path.
    pub ts: u64,
    /// Node.
    pub node: Option<Arc<str>>,
    /// Interface.
    pub iface: Option<Arc<str>>,
    /// The packet that shows it.
    pub packet: Option<u64>,
    /// What is said.
    pub finding: Finding,
}

/// One finding's rule.
pub trait Rule: Sync {
    /// Its stable code.
    fn code(&self) -> &'static str;
    /// Looks at a trace as of `now`, or at one that is over.
    fn check(&self, trace: &Trace, now: Option<u64>) -> Check;
}

/// The verdict on a trace that is over, and all findings in the order of their
/// importance.
pub fn diagnose(trace: &Trace) -> (Verdict, Vec<Finding>) {
    judge(trace, None)
}

/// The same while more may come: what may still be answered is waited for.
pub fn diagnose_live(trace: &Trace, now_ns: u64) -> (Verdict, Vec<Finding>) {
    judge(trace, Some(now_ns))
}

fn judge(trace: &Trace, now: Option<u64>) -> (Verdict, Vec<Finding>) {
    let mut found: Vec<Found> = Vec::new();
    for rule in RULES {
        if let Check::Found(f) = rule.check(trace, now) {
            found.push(*f);
        }
    }
    if trace.closing.losses.any() {
        // What was not seen may be among what was lost.
        for f in &mut found {
            if matches!(&*f.finding.code, "no-reply" | "underlay-loss") {
                f.finding.severity = Severity::Warning;
            }
        }
    }
    found.sort_by_key(|f| (rank(f.finding.severity), f.ts));
    if found
        .first()
        .is_some_and(|f| f.finding.severity == Severity::Fault)
    {
        // That something else arrived is no news beside a fault.
        found.retain(|f| f.finding.code != "delivered");
    }
    // A warning is no answer to "did it arrive"; that it did is.
    let healthy = found
        .first()
        .is_some_and(|f| f.finding.severity != Severity::Fault);
    let note = found
        .iter()
        .find(|f| healthy && f.finding.severity == Severity::Note);
    let mut verdict = note
        .or(found.first())
        .map_or_else(|| nothing(trace), verdict_of);
    let losses = trace.closing.losses;
    if losses.any() {
        let n = losses.ring_buffer + losses.user_space + losses.other;
        let events = if n == 1 { "event was" } else { "events were" };
        let _ = write!(verdict.summary, "; {n} {events} lost, so this is uncertain");
    }
    (verdict, found.into_iter().map(|f| f.finding).collect())
}

fn verdict_of(found: &Found) -> Verdict {
    Verdict {
        code: found.finding.code.clone(),
        summary: found.finding.summary.clone(),
        node: found.node.clone(),
        iface: found.iface.clone(),
        packet: found.packet,
    }
}

/// No rule had anything to say.
fn nothing(trace: &Trace) -> Verdict {
    let n = trace.packets.len();
    Verdict {
        code: Cow::Borrowed("delivered"),
        summary: format!("packets seen so far: {n}; no fault was found"),
        ..Verdict::default()
    }
}

fn rank(severity: Severity) -> u8 {
    match severity {
        Severity::Fault => 0,
        Severity::Warning => 1,
        Severity::Note => 2,
    }
}

/// The process's exit code: 0 no fault, 3 fault, 4 nothing seen.
pub fn exit_code(verdict: &Verdict, findings: &[Finding]) -> u8 {
    if verdict.code == "no-traffic" {
        4
    } else if findings.iter().any(|f| f.severity == Severity::Fault) {
        3
    } else {
        0
    }
}

#[cfg(test)]
mod tests;
