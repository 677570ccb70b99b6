//! `rp-filter`: the reverse path filter dropped the packet.

use super::tell::tale;
use crate::diagnose::stop::{How, Stop};
use crate::diagnose::{Case, Found, Page, Rule, sentence};
use crate::rules::route;

pub(super) struct RpFilter;

static PAGE: Page = Page {
    code: "rp-filter",
    title: "dropped by the reverse path filter",
    meaning: "The node dropped the packet because it would send an answer to the packet's source through another interface than the one the packet came in by. With rp_filter=1 (strict) Linux takes such a packet for forged.",
    told: "The kernel freed the packet with reason IP_RPFILTER, or in ip_rcv_finish_core on a kernel without that reason while the node's routes lead back to the source by another interface and rp_filter is 1 there.",
    ruled_out: "rp_filter is 0 or 2 on the interface and for 'all', and TcpExtIPReversePathFilter does not grow.",
    next: &[
        "sysctl net.ipv4.conf.all.rp_filter net.ipv4.conf.IFACE.rp_filter",
        "ip route get SOURCE",
        "nstat -az TcpExtIPReversePathFilter",
    ],
};

impl Rule for RpFilter {
    fn page(&self) -> &'static Page {
        &PAGE
    }

    fn explain(&self, case: &Case<'_>, stop: &Stop<'_>) -> Option<Found> {
        if stop.how != How::Dropped {
            return None;
        }
        let step = stop.end?;
        let (node, src) = (case.node(stop.node()), step.src.addr);
        let iface = stop.last.map_or(&*step.iface, |s| &*s.iface);
        let back = node.and_then(|n| {
            // As `fib_validate_source` looks it up: as if the answer came in by
            // the device that the packet would leave by.
            let there = route::lookup(n, step.dst.addr, Some(src), Some(iface), 0);
            let on = there.kind == route::RouteKind::Unicast;
            let out = there.route.filter(|_| on).and_then(|r| r.dev.clone());
            let answer = route::lookup(n, src, Some(step.dst.addr), out.as_deref(), 0);
            // A source that is the node's own is refused with any setting.
            let away = answer.kind == route::RouteKind::Unicast;
            answer.route.filter(|_| away).and_then(|r| r.dev.clone())
        });
        let strict = node.is_some_and(|n| {
            let of = |dev| n.sysctl(&format!("net.ipv4.conf.{dev}.rp_filter"));
            // The higher of both counts: Documentation/networking/ip-sysctl.rst.
            of(iface).max(of("all")) == Some(1)
        });
        let unnamed = stop.function().starts_with("ip_rcv_finish_core")
            && stop.reason().is_none()
            && strict
            && back.as_deref().is_some_and(|dev| dev != iface);
        if stop.reason() != Some("IP_RPFILTER") && !unnamed {
            return None;
        }
        let way = back
            .filter(|dev| **dev != *iface)
            .map_or_else(String::new, |dev| {
                format!(", because the way back to {src} leads through {dev}")
            });
        let cause =
            format!("the strict reverse path filter (rp_filter=1) refuses it on {iface}{way}");
        tale(case, stop, PAGE.code, &cause)
            .state(|n| {
                let grown = n.grew("TcpExtIPReversePathFilter");
                (grown > 0).then(|| format!("TcpExtIPReversePathFilter grew by {grown}"))
            })
            .check(&format!(
                "sysctl net.ipv4.conf.all.rp_filter net.ipv4.conf.{}.rp_filter",
                sentence::word(iface)
            ))
            .check(&format!("ip route get {src}"))
            .done()
    }
}
