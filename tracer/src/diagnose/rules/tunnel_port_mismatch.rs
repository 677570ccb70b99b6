//! `tunnel-port-mismatch`: the other node has no tunnel socket on that port.

use super::tell::tale;
use crate::diagnose::stop::{How, Stop};
use crate::diagnose::{Case, Found, Page, Rule};

pub(super) struct TunnelPortMismatch;

static PAGE: Page = Page {
    code: "tunnel-port-mismatch",
    title: "the other node does not listen on the tunnel's port",
    meaning: "The wrapped packet reached the other node, and no VXLAN device there receives on its UDP port: the nodes' VXLAN ports differ (half-applied change), the tunnel device is gone, or another program holds the port.",
    told: "The outer packet was freed by UDP for want of a socket (NO_SOCKET, or udp_rcv), having come in with tunnel headers.",
    ruled_out: "`ip -d link show type vxlan` shows that port (dstport) on the receiver.",
    next: &[
        "ip -d link show type vxlan",
        "ss -lun",
        "nstat -az UdpNoPorts",
    ],
};

impl Rule for TunnelPortMismatch {
    fn page(&self) -> &'static Page {
        &PAGE
    }

    fn explain(&self, case: &Case<'_>, stop: &Stop<'_>) -> Option<Found> {
        if !matches!(stop.how, How::Dropped | How::Rejected | How::Vanished) || !stop.in_tunnel() {
            return None;
        }
        let last = stop
            .last
            .filter(|s| s.kind == crate::trace::StepKind::Ingress)?;
        let port = last.tunnel.as_ref()?.dport?;
        let node = case.node(&last.node);
        let ports: Vec<u16> = node
            .iter()
            .flat_map(|n| n.links.iter().filter_map(|l| l.vxlan_port))
            .collect();
        // Before 5.17 there are no reasons.
        let at_socket = ["__udp4_lib_rcv", "__udp6_lib_rcv", "udp_rcv", "udpv6_rcv"]
            .iter()
            .any(|f| stop.function().starts_with(f));
        let no_socket = stop.reason() == Some("NO_SOCKET")
            || at_socket && stop.reason().is_none() && stop.hook().is_none()
            || stop.how == How::Vanished && node.is_some();
        // A device that has the port has a socket on it.
        if !no_socket || ports.contains(&port) {
            return None;
        }
        let there = match ports.first() {
            Some(other) if *other != port => format!("; its VXLAN device uses {other}"),
            _ if node.is_some() => "; it has no VXLAN device on that port".into(),
            _ => String::new(),
        };
        let cause = format!("{} has no VXLAN socket on UDP {port}{there}", last.node);
        tale(case, stop, PAGE.code, &cause)
            .state(|n| {
                let grown = n.grew("UdpNoPorts");
                (grown > 0).then(|| format!("UdpNoPorts grew by {grown}"))
            })
            .check("ip -d link show type vxlan")
            .check(&format!("ss -lunp 'sport = :{port}'"))
            .done()
    }
}
