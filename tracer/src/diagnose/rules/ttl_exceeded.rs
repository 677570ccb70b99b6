//! `ttl-exceeded`: the packet's time to live ran out.

use super::tell::tale;
use crate::diagnose::stop::{How, Stop};
use crate::diagnose::{Case, Found, Page, Rule};
use crate::trace::Step;

pub(super) struct TtlExceeded;

static PAGE: Page = Page {
    code: "ttl-exceeded",
    title: "time to live ran out",
    meaning: "Each router takes one from the packet's time to live (hop limit), and it reached zero: the packet was sent with too small a value, or it goes round in a routing loop.",
    told: "The packet was answered with ICMP time exceeded, or freed in ip_forward or ip6_forward with a time to live of 1 or less.",
    ruled_out: "The time to live at the place of the drop is above 1.",
    next: &["ip route get DESTINATION", "traceroute -n DESTINATION"],
};

impl Rule for TtlExceeded {
    fn page(&self) -> &'static Page {
        &PAGE
    }

    fn explain(&self, case: &Case<'_>, stop: &Stop<'_>) -> Option<Found> {
        let step = stop.end?;
        let exceeded = |s: &&Step| {
            s.icmp
                .is_some_and(|i| i.kind == if s.src.addr.is_ipv6() { 3 } else { 11 })
        };
        let ttl = step.ip.as_ref().map_or(64, |ip| ip.ttl);
        let freed = stop.how == How::Dropped
            && matches!(stop.function(), "ip_forward" | "ip6_forward")
            && ttl <= 1;
        let answered = stop.packet.steps.iter().find(exceeded);
        if answered.is_none() && !freed {
            return None;
        }
        let seen = stop.packet.steps.first().and_then(|s| s.ip.as_ref());
        let from = seen.map_or_else(String::new, |ip| {
            format!(", it was first seen with {}", ip.ttl)
        });
        let again = stop
            .packet
            .steps
            .iter()
            .filter(|s| {
                s.node == step.node
                    && s.iface == step.iface
                    && s.kind == crate::trace::StepKind::Ingress
            })
            .count();
        let looped = if again > 1 {
            format!("; it came through here {again} times, which is a loop")
        } else {
            String::new()
        };
        let cause = format!("its time to live ran out{from}{looped}");
        tale(case, stop, PAGE.code, &cause)
            .check(&format!("ip route get {}", step.dst.addr))
            .done()
    }
}
