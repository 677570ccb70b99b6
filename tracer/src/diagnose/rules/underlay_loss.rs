//! `underlay-loss`: tunnelled packets leave one node and never arrive at the
//! other, which is watched. Only told when it is certain: no events were lost,
//! and not one packet of that way through arrived.

use super::tell::tale;
use crate::diagnose::stop::{How, Stop};
use crate::diagnose::{Case, Found, Page, Rule, sentence};
use crate::trace::outcome::{Watched, left_for};
use crate::trace::{Packet, Role, Source, Step, Trace};

pub(super) struct UnderlayLoss;

static PAGE: Page = Page {
    code: "underlay-loss",
    title: "lost between two nodes",
    meaning: "The wrapped packet left one node and never reached the other. The nodes' own state is right; the network between them drops the tunnel: a security group or firewall without the tunnel's port, a hypervisor that keeps UDP 4789 for itself, a physical MTU without room for the outer header.",
    told: "A packet went out of the uplink in a tunnel to a node that is watched, was not seen there within a second, and no packet of that direction was; and no event was lost.",
    ruled_out: "Any packet of that direction of the flow seen on the other node.",
    next: &[
        "tcpdump -ni any 'host PEER and udp port 4789'  # on both nodes",
        "ping -M do -s 1472 PEER",
    ],
};

impl Rule for UnderlayLoss {
    fn page(&self) -> &'static Page {
        &PAGE
    }

    fn explain(&self, case: &Case<'_>, stop: &Stop<'_>) -> Option<Found> {
        if stop.how != How::Lost || case.trace.closing.losses.any() {
            return None;
        }
        let step = stop.last?;
        let tunnel = step.tunnel.as_ref()?;
        let watched = Watched::of(&case.trace.header);
        let peer = left_for(step, &watched)?;
        if !sees_uplink(case.trace, peer) || arrived_any(case.trace, stop.packet, step, peer) {
            return None;
        }
        let cause = format!(
            "it went to {} ({peer}) in {} and never arrived there, so the network between the nodes lost it",
            tunnel.dst, tunnel.kind
        );
        let port = tunnel
            .dport
            .map_or_else(String::new, |p| format!(" and udp port {p}"));
        let tale = tale(case, stop, PAGE.code, &cause).shows(format!(
            "{peer} is watched, and no packet of this direction was seen there"
        ));
        let tale = match assumed(case.trace, peer) {
            Some(assumption) => tale.shows(assumption),
            None => tale,
        };
        tale.check_on(
            peer,
            &format!("tcpdump -ni any 'host {}{port}'", tunnel.src),
        )
        .check(&format!(
            "ping -c 3 -I {} {}",
            sentence::word(&step.iface),
            tunnel.dst
        ))
        .done()
    }
}

/// Whether an interface of the node is watched through which it would have come.
fn sees_uplink(trace: &Trace, peer: &str) -> bool {
    let node = trace.header.nodes.iter().find(|n| *n.name == *peer);
    let listed = node.map_or(&[][..], |n| &n.interfaces);
    listed.is_empty() || listed.iter().any(|i| i.role == Role::Uplink)
}

/// What this rests on where recordings were merged whose clocks no packet ties
/// together.
fn assumed(trace: &Trace, peer: &str) -> Option<String> {
    let merged = trace.header.merged.as_deref()?;
    let of_peer = |s: &&Source| s.nodes.iter().any(|n| **n == *peer);
    let source = merged.sources.iter().find(of_peer)?;
    let tied = source.clock.uncertainty().is_some();
    (!tied).then(|| {
        format!("assumed: {peer}'s clock is right to a second, so that it was recording then; no packets of both directions show it")
    })
}

/// Whether any packet of that direction was seen on the other node.
fn arrived_any(trace: &Trace, lost: &Packet, step: &Step, peer: &str) -> bool {
    trace.packets.iter().any(|p| {
        let way = |s: &Step| s.reply == step.reply && *s.node == *peer;
        p.flow == lost.flow && p.steps.iter().any(way)
    })
}
