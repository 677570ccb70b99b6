//! `tunnel-peer-missing`: the node does not know the way into the tunnel.

use super::tell::{Tale, tale};
use crate::diagnose::stop::{How, Stop};
use crate::diagnose::{Case, Found, Page, Rule, sentence};
use crate::rules::route::{self, Missing};
use crate::state::Namespace;
use crate::trace::{Role, StepKind};

pub(super) struct TunnelPeerMissing;

static PAGE: Page = Page {
    code: "tunnel-peer-missing",
    title: "the way to the other node's tunnel end is missing",
    meaning: "To reach a pod on another node through a VXLAN without learning, three entries are needed: a route for its block through the tunnel device, a neighbour entry with the MAC of the other tunnel end (VTEP), and an FDB entry with the other node's address for that MAC. The CNI writes all three; one is missing. The sentence says which.",
    told: "Route: the packet left by another device than the tunnel, without being wrapped, and no route leads to the pod's block. Neighbour: the packet was freed while the neighbour could not be resolved on the tunnel device. FDB: it was freed in vxlan_xmit and the FDB has no entry for the neighbour's MAC.",
    ruled_out: "What the packet was freed for is there in the node's state: `ip route get`, `ip neigh show dev TUNNEL` and `bridge fdb show dev TUNNEL` together lead to the other node's address.",
    next: &[
        "ip route get POD",
        "ip neigh show dev vxlan.calico",
        "bridge fdb show dev vxlan.calico",
        "kubectl -n calico-system logs ds/calico-node --tail=100",
    ],
};

/// The tunnel device of a node.
fn tunnel_of(node: &Namespace) -> Option<&str> {
    let tunnel = |l: &&crate::state::Link| matches!(&*l.kind, "vxlan" | "ipip" | "geneve");
    node.links.iter().find(tunnel).map(|l| &*l.name)
}

impl Rule for TunnelPeerMissing {
    fn page(&self) -> &'static Page {
        &PAGE
    }

    fn explain(&self, case: &Case<'_>, stop: &Stop<'_>) -> Option<Found> {
        if !matches!(stop.how, How::Dropped | How::Vanished | How::Rejected) {
            return None;
        }
        if stop.how == How::Vanished || matches!(stop.function(), "ip_error" | "ip6_pkt_discard") {
            return no_route(case, stop);
        }
        let step = stop.end?;
        let neighbour = stop.reason() == Some("NEIGH_FAILED")
            || matches!(
                stop.function(),
                "neigh_invalidate"
                    | "arp_error_report"
                    | "neigh_timer_handler"
                    | "__neigh_event_send"
            );
        let fdb = matches!(
            stop.function(),
            "vxlan_xmit" | "vxlan_xmit_one" | "vxlan_mdb_xmit"
        );
        let on_tunnel = step.role == Some(Role::Tunnel)
            || case
                .node(stop.node())
                .and_then(|n| n.link(&step.iface))
                .is_some_and(|l| &*l.kind == "vxlan");
        if !on_tunnel || !(neighbour || fdb) {
            return None;
        }
        let dst = step.dst.addr;
        let hop = case
            .node(stop.node())
            .map(|n| route::next_hop(n, dst, Some(step.src.addr), None, 0));
        let gateway = hop.as_ref().map_or(dst, |h| h.via);
        let mac = hop.as_ref().and_then(|h| h.mac.clone());
        let missing = hop.as_ref().and_then(|h| h.missing);
        // What the node has, it does not miss, whatever else dropped the packet.
        let wanted = if fdb {
            Missing::Fdb
        } else {
            Missing::Neighbour
        };
        if hop.is_some() && missing != Some(wanted) {
            return None;
        }
        let dev = sentence::word(&step.iface);
        let cause = if fdb {
            let mac = mac.map_or_else(String::new, |m| format!(" for the VTEP {m}"));
            format!(
                "{} has no FDB entry{mac} ({gateway}) on {dev}, so the tunnel does not know where to send it",
                stop.node()
            )
        } else {
            format!(
                "{} has no neighbour entry for the VTEP {gateway} on {dev}, and ARP finds nobody there",
                stop.node()
            )
        };
        commands(tale(case, stop, PAGE.code, &cause), &dev, dst).done()
    }
}

fn commands<'a, 'b>(told: Tale<'a, 'b>, dev: &str, dst: std::net::IpAddr) -> Tale<'a, 'b> {
    told.check(&format!("ip route get {dst}"))
        .check(&format!("ip neigh show dev {dev}"))
        .check(&format!("bridge fdb show dev {dev}"))
}

/// The packet should have gone into the tunnel, and went out as it was or was
/// refused for want of a route.
fn no_route(case: &Case<'_>, stop: &Stop<'_>) -> Option<Found> {
    let last = stop.last?;
    let node = case.node(&last.node)?;
    let dst = stop.place()?.dst.addr;
    let owner = case.owner(dst).filter(|o| *o != *last.node)?;
    let to_node = case.node(&owner).is_some_and(|n| {
        n.links
            .iter()
            .any(|l| l.addrs.iter().any(|a| a.addr == dst))
    });
    let tunnel = tunnel_of(node)?;
    let plain_out =
        last.kind == StepKind::Egress && last.tunnel.is_none() && last.role == Some(Role::Uplink);
    let refused = stop.how == How::Dropped;
    if to_node || !(plain_out || refused) {
        return None;
    }
    let hop = route::lookup(node, dst, None, None, 0);
    let by_default = hop.route.is_none_or(|r| r.prefix == 0);
    let blackhole = !matches!(
        hop.kind,
        route::RouteKind::Unicast | route::RouteKind::NoRoute
    );
    if !by_default || blackhole {
        return None;
    }
    // Nodes that others reach without a tunnel need none here.
    let cause = match hop.route.and_then(|r| r.via).filter(|_| plain_out) {
        Some(gateway) => format!(
            "{} has no route to the block of {dst} on {owner} through {tunnel}; it went to the default gateway {gateway} without the tunnel",
            last.node
        ),
        None => format!(
            "{} has no route to the block of {dst} on {owner} through {tunnel}",
            last.node
        ),
    };
    commands(
        tale(case, stop, PAGE.code, &cause),
        &sentence::word(tunnel),
        dst,
    )
    .done()
}
