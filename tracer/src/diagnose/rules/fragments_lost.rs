//! `fragments-lost`: some fragments of a datagram did not come.

use super::tell::tale;
use crate::diagnose::stop::{How, Stop, is_fragment};
use crate::diagnose::{Case, Found, Page, Rule};

pub(super) struct FragmentsLost;

static PAGE: Page = Page {
    code: "fragments-lost",
    title: "fragments of a datagram were lost",
    meaning: "A datagram larger than the path was sent in fragments, and not all of them arrived, so it was never put together. Firewalls and security groups like to drop later fragments, which carry no ports. Large DNS answers are the usual victims; over TCP the same query works.",
    told: "Fragments of one datagram were seen and none of it was delivered, or the node's reassembly failures grew while the flow went unanswered.",
    ruled_out: "IpReasmFails does not grow, and every fragment was seen.",
    next: &[
        "nstat -az IpReasmFails IpReasmReqds",
        "dig +bufsize=1232 NAME; dig +tcp NAME",
    ],
};

impl Rule for FragmentsLost {
    fn page(&self) -> &'static Page {
        &PAGE
    }

    fn explain(&self, case: &Case<'_>, stop: &Stop<'_>) -> Option<Found> {
        let timeout = stop.reason() == Some("FRAG_REASM_TIMEOUT");
        let lost = matches!(stop.how, How::Vanished | How::Lost) && is_fragment(stop.packet);
        if !timeout && !lost {
            return None;
        }
        told(case, stop)
    }
}

fn told(case: &Case<'_>, stop: &Stop<'_>) -> Option<Found> {
    let node = stop.last.map_or("", |s| &*s.node);
    let cause = format!(
        "it is one fragment of a datagram, and not all of them arrived on {node}, so the datagram was never put together"
    );
    tale(case, stop, PAGE.code, &cause)
        .state(|n| {
            let grown = n.grew("IpReasmFails");
            (grown > 0).then(|| format!("IpReasmFails grew by {grown}"))
        })
        .check_on(node, "nstat -az IpReasmFails IpReasmReqds")
        .done()
}
