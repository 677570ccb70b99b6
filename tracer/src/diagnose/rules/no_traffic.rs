//! `no-traffic`: nothing of the flow was seen.

use std::borrow::Cow;

use crate::diagnose::{Check, Found, Rule};
use crate::trace::{Finding, Severity, Trace};

pub(super) struct NoTraffic;

impl Rule for NoTraffic {
    fn code(&self) -> &'static str {
        "no-traffic"
    }

    fn check(&self, trace: &Trace, _: Option<u64>) -> Check {
        if !trace.packets.is_empty() {
            return Check::Clear;
        }
        let nodes: Vec<&str> = trace.header.nodes.iter().map(|n| &*n.name).collect();
        let place = if nodes.is_empty() {
            String::new()
        } else {
            format!(" on {}", nodes.join(", "))
        };
        Check::Found(Box::new(Found {
            ts: 0,
            node: None,
            iface: None,
            packet: None,
            finding: Finding {
                code: Cow::Borrowed(self.code()),
                severity: Severity::Warning,
                summary: format!("no packet of the flow was seen{place} in the time given"),
                evidence: Vec::new(),
                next: vec!["tracer doctor".into()],
            },
        }))
    }
}
