//! From a trace to the answer: what went wrong, where, and what to do next.
//!
//! First the places where packets stopped are found (`stop`); then each is put
//! before the rules, one file each under `rules/`, and the first rule that can
//! explain all that was seen there speaks. A rule is silent unless it can.
//! Pure: no I/O, no clock; the state that was read is part of the trace.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::sync::Arc;

use crate::trace::{Finding, Severity, Trace, Verdict};

pub use case::Case;
pub use page::Page;
pub use probed::locate;
pub use rules::RULES;

mod case;
pub mod naming;
mod netfilter;
mod page;
mod probed;
mod rules;
mod sentence;
mod stop;

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
    /// Which of several of its kind on one node it is: the chain, device or
    /// address that it blames; empty where there can be one only.
    pub part: String,
    /// It rests on something not having been seen, so lost events may be all
    /// there is to it.
    pub unsure: bool,
    /// What is said.
    pub finding: Finding,
}

/// One finding's rule.
pub trait Rule: Sync {
    /// Its code and its page.
    fn page(&self) -> &'static Page;

    /// Whether it explains why this packet stopped. Rules are asked in the
    /// order of [`RULES`], and the first that answers is believed.
    #[expect(private_interfaces, reason = "rules live in this module only")]
    fn explain(&self, case: &Case<'_>, stop: &stop::Stop<'_>) -> Option<Found> {
        let _ = (case, stop);
        None
    }

    /// What it has to say of the trace as a whole.
    fn whole(&self, case: &Case<'_>) -> Option<Found> {
        let _ = case;
        None
    }
}

/// The page of a finding.
pub fn page(code: &str) -> Option<&'static Page> {
    pages().find(|p| p.code == code)
}

/// All pages, in the order of the rules.
pub fn pages() -> impl Iterator<Item = &'static Page> {
    RULES.iter().map(|r| r.page()).chain(rules::MORE_PAGES)
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
    let case = Case::new(trace, now);
    let mut found = explained(&case);
    found.extend(RULES.iter().filter_map(|r| r.whole(&case)));
    if trace.closing.losses.any() {
        // What was not seen may be among what was lost.
        for f in found.iter_mut().filter(|f| f.unsure) {
            if f.finding.severity == Severity::Fault {
                f.finding.severity = Severity::Warning;
            }
        }
    }
    // Last: that a connection failed is certain, whatever was lost.
    rules::probed::excuse(&case, &mut found);
    let own = rules::probed::probed(&case, &found);
    found.extend(own);
    found.sort_by_key(|f| (rank(f.finding.severity), f.ts));
    if found
        .first()
        .is_some_and(|f| f.finding.severity == Severity::Fault)
    {
        // That something else arrived is no news beside a fault.
        found.retain(|f| f.finding.code != "delivered");
    }
    let verdict = verdict(trace, &found);
    (verdict, found.into_iter().map(|f| f.finding).collect())
}

/// Every stop with its first explanation; the same cause is told once.
fn explained(case: &Case<'_>) -> Vec<Found> {
    let mut found: Vec<(Found, usize)> = Vec::new();
    for stop in &case.stops {
        let Some(next) = RULES.iter().find_map(|r| r.explain(case, stop)) else {
            continue;
        };
        let same = |f: &Found| {
            f.finding.code == next.finding.code
                && (&f.node, &f.part) == (&next.node, &next.part)
                && rank(f.finding.severity) <= rank(next.finding.severity)
        };
        match found.iter_mut().find(|(f, _)| same(f)) {
            Some((_, more)) => *more += 1,
            None => found.push((next, 0)),
        }
    }
    let told = found.into_iter().map(|(mut f, more)| {
        if more > 0 {
            let packets = if more == 1 { "packet" } else { "packets" };
            let text = format!("{more} more {packets} ended in the same way");
            f.finding.evidence.push(text);
        }
        f
    });
    told.collect()
}

fn verdict(trace: &Trace, found: &[Found]) -> Verdict {
    // A warning is no answer to "did it arrive"; that it did is.
    let healthy = found
        .first()
        .is_some_and(|f| f.finding.severity != Severity::Fault);
    // Unless it tells why the transfer crawls.
    let slow = found
        .first()
        .is_some_and(|f| f.finding.code == "rate-limited");
    let arrived = found
        .iter()
        .find(|f| healthy && !slow && f.finding.code == "delivered");
    let mut verdict = arrived
        .or(found.first())
        .map_or_else(|| nothing(trace), verdict_of);
    let losses = trace.closing.losses;
    if losses.any() {
        let n = losses.ring_buffer + losses.user_space + losses.other;
        let events = if n == 1 { "event was" } else { "events were" };
        let _ = write!(verdict.summary, "; {n} {events} lost, so this is uncertain");
    }
    verdict
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
        code: Cow::Borrowed("undecided"),
        summary: format!("packets seen: {n}; nothing explains what became of them"),
        ..Verdict::default()
    }
}

/// Whether neither arrival nor fault was seen, so that a screen must not say
/// that all is well.
pub fn is_open(verdict: &Verdict) -> bool {
    matches!(&*verdict.code, "no-traffic" | "undecided")
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
mod near;
#[cfg(test)]
mod recorded;
#[cfg(test)]
pub(crate) mod tests;
