//! `undecided`: packets were seen, and neither their arrival nor a fault.

use std::borrow::Cow;

use crate::diagnose::{Case, Found, Page, Rule};
use crate::trace::{Finding, Outcome, Severity};

pub(super) struct Undecided;

static PAGE: Page = Page {
    code: "undecided",
    title: "neither arrival nor fault was seen",
    meaning: "Packets of the flow were seen, but not to the end of their way, and nothing says that they stopped. The trace ended before an answer could have come, or the rest of the way is out of sight.",
    told: "No packet was seen to arrive or was acknowledged, none was dropped, refused or lost, and none had waited long enough for its silence to mean something: 200 ms before the end of the trace.",
    ruled_out: "Any packet that arrived, and any fault.",
    next: &[
        "trace for longer: at least a second after the request",
        "watch the node that the packets went to as well",
    ],
};

impl Rule for Undecided {
    fn page(&self) -> &'static Page {
        &PAGE
    }

    fn whole(&self, case: &Case<'_>) -> Option<Found> {
        let packets = &case.trace.packets;
        let arrived = packets.iter().any(|p| p.outcome == Outcome::Delivered);
        if packets.is_empty() || arrived || !case.stops.is_empty() {
            return None;
        }
        let summary = match packets.len() {
            1 => "1 packet was seen; neither its arrival nor a fault was".to_owned(),
            n => format!("{n} packets were seen; neither their arrival nor a fault was"),
        };
        Some(Found {
            ts: u64::MAX,
            node: None,
            iface: None,
            packet: None,
            part: String::new(),
            unsure: false,
            finding: Finding {
                code: Cow::Borrowed(PAGE.code),
                severity: Severity::Note,
                summary,
                evidence: Vec::new(),
                next: PAGE.next.iter().map(|s| (*s).to_owned()).collect(),
            },
        })
    }
}
