//! `ttl-exceeded`: the packet's time to live ran out.

use std::borrow::Cow;

use super::tell::tale;
use crate::diagnose::stop::{How, Stop};
use crate::diagnose::{Case, Found, Page, Rule, sentence};
use crate::trace::{Finding, Packet, Severity, Step, StepKind};

pub(super) struct TtlExceeded;

static PAGE: Page = Page {
    code: "ttl-exceeded",
    title: "time to live ran out",
    meaning: "Each router takes one from the packet's time to live (hop limit), and it reached zero: the packet was sent with too small a value, or it goes round in a routing loop.",
    told: "The packet was answered with ICMP time exceeded, or freed in ip_forward or ip6_forward with a time to live of 1 or less; or such a message of a router came in, and the flow was never answered.",
    ruled_out: "The time to live at the place of the drop is above 1; or the message is about fragments that came too late (code 1).",
    next: &["ip route get DESTINATION", "traceroute -n DESTINATION"],
};

impl Rule for TtlExceeded {
    fn page(&self) -> &'static Page {
        &PAGE
    }

    fn explain(&self, case: &Case<'_>, stop: &Stop<'_>) -> Option<Found> {
        let step = stop.end?;
        let ttl = step.ip.as_ref().map_or(64, |ip| ip.ttl);
        let freed = stop.how == How::Dropped
            && matches!(stop.function(), "ip_forward" | "ip6_forward")
            && ttl <= 1;
        let answered = stop
            .packet
            .steps
            .iter()
            .any(|s| s.kind == StepKind::Reject && exceeded(s));
        if !answered && !freed {
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
            .filter(|s| s.node == step.node && s.iface == step.iface && s.kind == StepKind::Ingress)
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

    fn whole(&self, case: &Case<'_>) -> Option<Found> {
        // Told by a router out of sight: only its message is seen.
        let told = |p: &&Packet| {
            let first = p.steps.first();
            first.is_some_and(|s| s.kind == StepKind::Ingress && exceeded(s))
        };
        let message = case.trace.packets.iter().find(told)?;
        let (first, flow) = (
            message.steps.first()?,
            case.trace.flows.iter().find(|f| f.id == message.flow)?,
        );
        let told_here = |s: &Stop<'_>| s.flow.id == flow.id && self.explain(case, s).is_some();
        // A traceroute asks for these messages, and gets its answer in the end.
        let answered = !matches!(&*flow.state, "unanswered" | "dropped" | "rejected");
        if answered || case.stops.iter().any(told_here) {
            return None;
        }
        let summary = format!(
            "the {} did not arrive: {} says that its time to live ran out",
            sentence::flow(flow),
            sentence::who(&first.src)
        );
        Some(Found {
            ts: first.ts,
            node: (!first.node.is_empty()).then(|| first.node.clone()),
            iface: (!first.iface.is_empty()).then(|| first.iface.clone()),
            packet: Some(message.id),
            part: String::new(),
            unsure: true,
            finding: Finding {
                code: Cow::Borrowed(PAGE.code),
                severity: Severity::Fault,
                summary,
                evidence: vec![sentence::evidence(message, first)],
                next: vec![format!("traceroute -n {}", flow.server.addr)],
            },
        })
    }
}

/// An ICMP message that a time to live ran out in transit; code 1 is about the
/// reassembly of fragments (RFC 792, RFC 4443 section 3.3).
fn exceeded(s: &Step) -> bool {
    let kind = if s.src.addr.is_ipv6() { 3 } else { 11 };
    s.icmp.is_some_and(|i| (i.kind, i.code) == (kind, 0))
}
