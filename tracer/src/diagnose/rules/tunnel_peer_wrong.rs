//! `tunnel-peer-wrong`: the tunnel leads to an address that is not the pod's node.

use std::net::IpAddr;

use super::tell::tale;
use crate::diagnose::stop::{How, Stop};
use crate::diagnose::{Case, Found, Page, Rule, sentence};
use crate::rules::route;
use crate::trace::Role;

pub(super) struct TunnelPeerWrong;

static PAGE: Page = Page {
    code: "tunnel-peer-wrong",
    title: "wrapped and sent to the wrong address",
    meaning: "The packet was put into the tunnel with an outer destination that is not an address of the node where the pod runs: the FDB entry of the VTEP's MAC (or the route of IP-in-IP) is stale, as after a node got a new address.",
    told: "The outer destination, seen on the wire or read from the FDB, differs from the addresses of the node that owns the inner destination; or nobody answers ARP for it.",
    ruled_out: "The outer destination is one of that node's addresses; of a node that is not watched, it may be one that is not known.",
    next: &[
        "bridge fdb show dev vxlan.calico",
        "ip neigh show",
        "kubectl get nodes -o wide",
    ],
};

impl Rule for TunnelPeerWrong {
    fn page(&self) -> &'static Page {
        &PAGE
    }

    fn explain(&self, case: &Case<'_>, stop: &Stop<'_>) -> Option<Found> {
        if stop.how == How::Unanswered {
            return None;
        }
        let place = stop.place()?;
        let dst = place.dst.addr;
        let owner = case.owner(dst)?;
        if owner == *stop.node() {
            return None;
        }
        let outer = outer(case, stop)?;
        let peer_addrs: Vec<IpAddr> = case
            .trace
            .header
            .nodes
            .iter()
            .filter(|n| *n.name == *owner)
            .flat_map(|n| n.addrs.iter().copied())
            .chain(
                case.cluster
                    .iter()
                    .flat_map(|c| c.nodes.iter().filter(|n| *n.name == *owner))
                    .flat_map(|n| n.addrs.iter().copied()),
            )
            .collect();
        let right = *peer_addrs
            .first()
            .filter(|_| !peer_addrs.contains(&outer))?;
        // Of a node that is not watched not all addresses are known; then the
        // address has to be somebody else's, or nobody's.
        let nodes = &case.trace.header.nodes;
        let watched = nodes.iter().any(|n| *n.name == *owner);
        let silent = stop.reason() == Some("NEIGH_FAILED");
        let other = case.owner(outer).is_some_and(|o| o != owner);
        if !(watched || silent || other) {
            return None;
        }
        let cause = format!(
            "{} sends it through the tunnel to {outer}, but {dst} is on {owner}, which has {right}",
            stop.last.map_or(stop.node(), |s| &*s.node)
        );
        tale(case, stop, PAGE.code, &cause)
            .also(silent.then(|| format!("nobody answers ARP for {outer}")))
            .check("bridge fdb show | grep dst")
            .check(&format!(
                "ip neigh show {}",
                sentence::word(&outer.to_string())
            ))
            .ask("kubectl get nodes -o wide")
            .done()
    }
}

/// The outer destination: as seen, else as the state says for a packet that
/// was last seen going into the tunnel.
fn outer(case: &Case<'_>, stop: &Stop<'_>) -> Option<IpAddr> {
    let seen = stop
        .packet
        .steps
        .iter()
        .rev()
        .find_map(|s| s.tunnel.as_ref());
    if let Some(tunnel) = seen {
        return Some(tunnel.dst);
    }
    let last = stop.last.filter(|s| s.role == Some(Role::Tunnel))?;
    if stop.how == How::Dropped && !matches!(stop.reason(), Some("NEIGH_FAILED")) {
        return None;
    }
    let node = case.node(&last.node)?;
    route::next_hop(node, last.dst.addr, Some(last.src.addr), None, 0).vtep
}
