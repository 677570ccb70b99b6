//! `forwarding-off`: the node does not forward packets.

use super::tell::tale;
use crate::diagnose::stop::{How, Stop};
use crate::diagnose::{Case, Found, Page, Rule};
use crate::rules::route;
use crate::state::Namespace;

pub(super) struct ForwardingOff;

static PAGE: Page = Page {
    code: "forwarding-off",
    title: "the node does not forward",
    meaning: "The node is told not to route packets for others (net.ipv4.ip_forward=0, or forwarding=0 on the interface the packet came in by), so nothing from its pods gets further. The node's own traffic is not concerned.",
    told: "The packet was freed where the routing decision fails (ip_error, ip6_forward), where the node has a way to send it on, and the sysctl of the interface that it came in by (for IPv6, of all) is 0 in the state of the node; or the kernel gave reason IP_INADDRERRORS there.",
    ruled_out: "net.ipv4.conf.IFACE.forwarding is 1, whatever net.ipv4.ip_forward says; or the best route is no unicast route.",
    next: &[
        "sysctl net.ipv4.ip_forward net.ipv6.conf.all.forwarding",
        "sysctl -a 2>/dev/null | grep '\\.forwarding = 0'",
    ],
};

/// The sysctl that forbids forwarding from this interface, if one does. IPv4
/// asks the interface that the packet came in by, which `ip_forward` only sets
/// (`ip_route_input_slow`); IPv6 asks the one for all (`ip6_forward`).
fn off(node: &Namespace, iface: &str, ipv6: bool) -> Option<String> {
    let is = |name: &str| node.sysctl(name);
    if ipv6 {
        let all = "net.ipv6.conf.all.forwarding";
        return (is(all) == Some(0)).then(|| all.to_owned());
    }
    let own = format!("net.ipv4.conf.{iface}.forwarding");
    let all = "net.ipv4.ip_forward";
    match (is(&own), is(all)) {
        (Some(0) | None, Some(0)) => Some(all.to_owned()),
        (Some(0), _) => Some(own),
        _ => None,
    }
}

impl Rule for ForwardingOff {
    fn page(&self) -> &'static Page {
        &PAGE
    }

    fn explain(&self, case: &Case<'_>, stop: &Stop<'_>) -> Option<Found> {
        if !matches!(stop.how, How::Dropped | How::Vanished) {
            return None;
        }
        let step = stop.place()?;
        let iface = stop.last.map_or(&*step.iface, |s| &*s.iface);
        let ipv6 = step.dst.addr.is_ipv6();
        let node = case.node(stop.node());
        let off = node.and_then(|n| off(n, iface, ipv6));
        let here = node.is_some_and(|n| {
            let answer = route::lookup(n, step.dst.addr, None, None, 0);
            // Before the setting is asked, the route is.
            answer.kind != route::RouteKind::Unicast
        });
        let failed = ["ip_error", "ip6_forward", "ip6_pkt_d"]
            .iter()
            .any(|f| stop.function().starts_with(f));
        let told = match node {
            Some(_) => {
                off.is_some()
                    && !here
                    && (failed
                        || stop.how == How::Vanished
                            && stop.last?.kind == crate::trace::StepKind::Ingress)
            }
            None => failed && stop.reason() == Some("IP_INADDRERRORS"),
        };
        if !told {
            return None;
        }
        let name = off.unwrap_or_else(|| "net.ipv4.ip_forward".into());
        let cause = format!("{} does not forward packets, {name} is 0", stop.node());
        tale(case, stop, PAGE.code, &cause)
            .also(node.map(|_| format!("{name} = 0 in the state of {}", stop.node())))
            .check(&format!("sysctl {name}"))
            .check(&format!("sysctl -w {name}=1"))
            .done()
    }
}
