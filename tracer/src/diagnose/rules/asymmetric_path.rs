//! `asymmetric-path`: the answer takes another way than the request.

use super::conntrack_invalid::bare_reply;
use super::tell::tale;
use crate::diagnose::stop::{How, Stop};
use crate::diagnose::{Case, Found, Page, Rule};
use crate::trace::{Direction, Role, StepKind};

pub(super) struct AsymmetricPath;

static PAGE: Page = Page {
    code: "asymmetric-path",
    title: "the answer takes another way",
    meaning: "The request was translated on one way, and the answer does not pass the place where that is undone. On a bridge with bridge-nf-call-iptables=0 the answer goes from port to port without netfilter; with several interfaces or nodes it leaves by another one. The client gets an answer from an address it never called, and resets it, or gets none.",
    told: "A reply reached the client's interface with the backend's address although the request was DNATed, and no reply of the connection was ever un-DNATed; or the reply left the backend's node by another device than the request came in by and was not seen again.",
    ruled_out: "An un-DNAT step for the reply.",
    next: &[
        "sysctl net.bridge.bridge-nf-call-iptables",
        "ip route get CLIENT  # on the backend's node",
    ],
};

impl Rule for AsymmetricPath {
    fn page(&self) -> &'static Page {
        &PAGE
    }

    fn explain(&self, case: &Case<'_>, stop: &Stop<'_>) -> Option<Found> {
        let undone = case
            .packets(stop.flow)
            .any(|p| p.steps.iter().any(|s| s.kind == StepKind::UnDnat));
        if !undone && bare_reply(stop.packet, stop) {
            return bridged(case, stop);
        }
        other_device(case, stop)
    }
}

fn bridged(case: &Case<'_>, stop: &Stop<'_>) -> Option<Found> {
    let last = stop.last?;
    let node = case.node(&last.node);
    let sysctl = node.and_then(|n| n.sysctl("net.bridge.bridge-nf-call-iptables"));
    let bridge = node.and_then(|n| {
        let master = n.link(&last.iface)?.master?;
        n.links.iter().find(|l| l.ifindex == master)
    });
    // Routed, or with the setting on, it did pass netfilter, which then did not
    // know it: that is another story.
    let bridge = bridge.filter(|_| matches!(sysctl, Some(0) | None));
    let how = match bridge {
        Some(bridge) => format!(
            "it crossed the bridge {} on {} without passing netfilter (bridge-nf-call-iptables is 0)",
            bridge.name, last.node
        ),
        None if node.is_some() => return None,
        None => format!("it did not pass netfilter on {}", last.node),
    };
    let cause = format!(
        "{how}, so it was not translated back to {} and the client does not know it",
        stop.flow.server.addr
    );
    tale(case, stop, PAGE.code, &cause)
        .unsure()
        .at(last)
        .check_on(&last.node, "sysctl net.bridge.bridge-nf-call-iptables")
        .done()
}

/// The reply left the node that the request had come in on by another device.
fn other_device(case: &Case<'_>, stop: &Stop<'_>) -> Option<Found> {
    let last = stop.last?;
    let reply = stop.packet.direction == Direction::Reply;
    let gone = stop.how == How::Vanished && last.kind == StepKind::Egress;
    if !reply || !gone || last.role != Some(Role::Uplink) || last.tunnel.is_some() {
        return None;
    }
    let came_by = case
        .packets(stop.flow)
        .filter(|p| p.direction == Direction::Request)
        .flat_map(|p| &p.steps)
        .find(|s| s.node == last.node && s.kind == StepKind::Ingress && s.tunnel.is_some())?;
    let tunnel = came_by.tunnel.as_ref()?;
    let cause = format!(
        "the request came through the {} tunnel from {}, the answer left by {} without it and does not come back the same way",
        tunnel.kind, tunnel.src, last.iface
    );
    tale(case, stop, PAGE.code, &cause)
        .check_on(&last.node, &format!("ip route get {}", last.dst.addr))
        .done()
}
