//! `fragments-lost`: some fragments of a datagram did not come.

use super::tell::tale;
use crate::diagnose::stop::{How, Stop, is_fragment};
use crate::diagnose::{Case, Found, Page, Rule, sentence};
use crate::trace::{Packet, Step};

pub(super) struct FragmentsLost;

static PAGE: Page = Page {
    code: "fragments-lost",
    title: "fragments of a datagram were lost",
    meaning: "A datagram larger than the path was sent in fragments, and not all of them arrived, so it was never put together. Firewalls and security groups like to drop later fragments, which carry no ports. Large DNS answers are the usual victims; over TCP the same query works.",
    told: "Fragments of one datagram were seen, not all of them where it was seen last, and none of it was delivered; or the kernel freed it because its reassembly took too long.",
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
        if !(timeout || lost && !whole(stop.packet)) {
            return None;
        }
        told(case, stop)
    }
}

/// Whether all fragments were seen where the datagram was seen last: the first
/// and the last, and each of those between begins where the one before ends.
fn whole(packet: &Packet) -> bool {
    let Some(last) = sentence::last_seen(packet) else {
        return false;
    };
    let here = |s: &&Step| {
        (s.kind, &s.node, &s.iface) == (last.kind, &last.node, &last.iface)
            && s.tunnel.is_some() == last.tunnel.is_some()
    };
    let parts = packet.steps.iter().filter(here).filter_map(|s| {
        let ip = s.ip.as_ref()?;
        Some((ip.frag_offset.unwrap_or(0), ip.more_fragments, s.payload))
    });
    let mut parts: Vec<(u32, bool, u32)> = parts.collect();
    parts.sort_unstable();
    parts.dedup();
    // All but the last are of one size (`ip_do_fragment`); of the first, the
    // L4 header counts as well, which is 8 bytes where it matters.
    let Some(&(0, true, payload)) = parts.first() else {
        return false;
    };
    let size = payload + 8;
    let in_row = (0..).zip(&parts).all(|(i, part)| part.0 == i * size);
    in_row && parts.last().is_some_and(|part| !part.1)
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
