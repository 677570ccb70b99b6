//! `delivered`: packets were seen and reached the end of their path.

use std::borrow::Cow;

use crate::diagnose::{Check, Found, Rule, sentence};
use crate::trace::{Finding, Outcome, Severity, Trace};

pub(super) struct Delivered;

impl Rule for Delivered {
    fn code(&self) -> &'static str {
        "delivered"
    }

    fn check(&self, trace: &Trace, _: Option<u64>) -> Check {
        let good: Vec<_> = trace
            .packets
            .iter()
            .filter(|p| p.outcome == Outcome::Delivered)
            .collect();
        let Some(first) = good.first() else {
            return if trace.packets.is_empty() {
                Check::Clear
            } else {
                seen_only(trace)
            };
        };
        let flow = trace.flows.iter().find(|f| f.id == first.flow);
        let about = flow.map_or_else(String::new, |f| {
            let backend = f
                .backend
                .as_ref()
                .map_or_else(String::new, |b| format!(", served by {}", sentence::who(b)));
            format!("{}{backend}: ", sentence::flow(f))
        });
        let (n, all) = (good.len(), trace.packets.len());
        let packets = if all == 1 { "packet" } else { "packets" };
        let summary = format!("{about}{n} of {all} {packets} seen to arrive");
        note(self.code(), Some(first.id), summary)
    }
}

/// Something was seen, and neither its arrival nor a fault.
fn seen_only(trace: &Trace) -> Check {
    if trace.packets.iter().any(|p| p.outcome != Outcome::Pending) {
        return Check::Clear;
    }
    let n = trace.packets.len();
    note(
        "delivered",
        None,
        format!("{n} packets were seen, and no fault; their end is out of sight"),
    )
}

fn note(code: &'static str, packet: Option<u64>, summary: String) -> Check {
    Check::Found(Box::new(Found {
        ts: u64::MAX,
        node: None,
        iface: None,
        packet,
        finding: Finding {
            code: Cow::Borrowed(code),
            severity: Severity::Note,
            summary,
            evidence: Vec::new(),
            next: Vec::new(),
        },
    }))
}
