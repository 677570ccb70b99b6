//! `no-traffic`: nothing of the flow was seen.

use std::borrow::Cow;

use crate::diagnose::{Case, Found, Page, Rule};
use crate::trace::{Finding, Severity};

pub(super) struct NoTraffic;

static PAGE: Page = Page {
    code: "no-traffic",
    title: "nothing of the flow was seen",
    meaning: "No packet that fits the request passed a place that is watched. Perhaps nothing was sent, or from another address, or it was over before the tool was ready.",
    told: "The run ended and no step belongs to the flow.",
    ruled_out: "Any packet.",
    next: &["tracer doctor", "tracer probe --pod POD --dst DST"],
};

impl Rule for NoTraffic {
    fn page(&self) -> &'static Page {
        &PAGE
    }

    fn whole(&self, case: &Case<'_>) -> Option<Found> {
        let trace = case.trace;
        if !trace.packets.is_empty() {
            return None;
        }
        let nodes: Vec<&str> = trace.header.nodes.iter().map(|n| &*n.name).collect();
        let place = if nodes.is_empty() {
            String::new()
        } else {
            format!(" on {}", nodes.join(", "))
        };
        Some(Found {
            ts: 0,
            node: None,
            iface: None,
            packet: None,
            part: String::new(),
            unsure: false,
            finding: Finding {
                code: Cow::Borrowed(PAGE.code),
                severity: Severity::Warning,
                summary: format!("no packet of the flow was seen{place} in the time given"),
                evidence: Vec::new(),
                next: vec!["tracer doctor".into()],
            },
        })
    }
}
