//! `delivered`: packets were seen and reached the end of their path.

use std::borrow::Cow;

use crate::diagnose::{Case, Found, Page, Rule, sentence};
use crate::trace::{Finding, Outcome, Severity};

pub(super) struct Delivered;

static PAGE: Page = Page {
    code: "delivered",
    title: "packets arrived",
    meaning: "Packets of the flow reached the end of the path that can be seen, and no fault was found. If the client still has trouble, it is above TCP, or in what was not followed.",
    told: "At least one packet was seen to reach its pod, its socket or its host, or was acknowledged by the other side, and no fault was found.",
    ruled_out: "Any finding of severity fault.",
    next: &[],
};

impl Rule for Delivered {
    fn page(&self) -> &'static Page {
        &PAGE
    }

    fn whole(&self, case: &Case<'_>) -> Option<Found> {
        let trace = case.trace;
        let good: Vec<_> = trace
            .packets
            .iter()
            .filter(|p| p.outcome == Outcome::Delivered)
            .collect();
        let first = good.first()?;
        let flow = trace.flows.iter().find(|f| f.id == first.flow);
        let probed = trace.closing.probe.as_deref();
        let about = probed.map(|report| {
            let all = report.attempts.len();
            let good = report.attempts.iter().filter(|a| a.result.is_good());
            format!("{} of {all} ways lead to the server: ", good.count())
        });
        let by_flow = || {
            flow.map_or_else(String::new, |f| {
                let backend = f
                    .backend
                    .as_ref()
                    .map_or_else(String::new, |b| format!(", served by {}", sentence::who(b)));
                format!("{}{backend}: ", sentence::flow(f))
            })
        };
        let about = about.unwrap_or_else(by_flow);
        let (n, all) = (good.len(), trace.packets.len());
        let packets = if all == 1 { "packet" } else { "packets" };
        let summary = format!("{about}{n} of {all} {packets} seen to arrive");
        Some(note(first.id, summary))
    }
}

fn note(packet: u64, summary: String) -> Found {
    Found {
        ts: u64::MAX,
        node: None,
        iface: None,
        packet: Some(packet),
        part: String::new(),
        unsure: false,
        finding: Finding {
            code: Cow::Borrowed(PAGE.code),
            severity: Severity::Note,
            summary,
            evidence: Vec::new(),
            next: Vec::new(),
        },
    }
}
