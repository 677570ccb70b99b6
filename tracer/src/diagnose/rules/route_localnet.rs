//! `route-localnet`: a node port called on 127.0.0.1.

use super::tell::tale;
use crate::diagnose::stop::{How, Stop};
use crate::diagnose::{Case, Found, Page, Rule};
use crate::rules::route;

pub(super) struct RouteLocalnet;

static PAGE: Page = Page {
    code: "route-localnet",
    title: "a loopback source cannot leave the node",
    meaning: "A process on the node called a NodePort on 127.0.0.1. After DNAT to a pod the packet still has a loopback source, and Linux does not route such packets off the loopback unless net.ipv4.conf.*.route_localnet is 1. kube-proxy sets it in iptables mode only, and not where it is told to leave localhost NodePorts alone.",
    told: "A packet with a loopback source was dropped where it is routed after its destination had become another host's, and route_localnet is 0 or was not read.",
    ruled_out: "net.ipv4.conf.all.route_localnet is 1, or that of the way out; or a rule dropped it.",
    next: &[
        "sysctl net.ipv4.conf.all.route_localnet",
        "call the NodePort on the node's own address instead of 127.0.0.1",
    ],
};

impl Rule for RouteLocalnet {
    fn page(&self) -> &'static Page {
        &PAGE
    }

    fn explain(&self, case: &Case<'_>, stop: &Stop<'_>) -> Option<Found> {
        if !matches!(stop.how, How::Dropped | How::Vanished) {
            return None;
        }
        let step = stop.place()?;
        let (src, dst) = (step.src.addr, step.dst.addr);
        if !src.is_loopback() || !stop.opens() {
            return None;
        }
        let node = case.node(stop.node());
        let sysctl = node.and_then(|n| n.sysctl("net.ipv4.conf.all.route_localnet"));
        let out = node.and_then(|n| route::lookup(n, dst, None, None, 0).route?.dev.clone());
        // Either of both allows it (`IN_DEV_NET_ROUTE_LOCALNET`).
        let own = out
            .as_ref()
            .zip(node)
            .and_then(|(dev, n)| n.sysctl(&format!("net.ipv4.conf.{dev}.route_localnet")));
        // Routed anew after the DNAT, and refused; or a martian of a router's.
        let at_routing = stop.how == How::Vanished
            || stop.unrouted()
            || stop.function().starts_with("nf_hook_slow")
            || stop.function().starts_with("ip_rcv_finish_core");
        if sysctl == Some(1)
            || own == Some(1)
            || !at_routing
            || dst.is_loopback() && stop.how != How::Dropped
        {
            return None;
        }
        let to = if dst.is_loopback() {
            String::new()
        } else {
            format!(" to {dst} after the DNAT")
        };
        let port = case.trace.header.request["port"].as_u64();
        let port = port.map_or_else(String::new, |p| format!(":{p}"));
        let cause = format!(
            "a packet from {src} may not be routed{to} off the loopback (route_localnet is 0), so a NodePort cannot be called on 127.0.0.1{port}"
        );
        tale(case, stop, PAGE.code, &cause)
            .also(sysctl.map(|v| format!("net.ipv4.conf.all.route_localnet = {v}")))
            .check("sysctl net.ipv4.conf.all.route_localnet")
            .done()
    }
}
