//! `rejected`: someone said no. A REJECT rule, a host without a listener, a
//! router without a route; told by the function that answers, or by the answer
//! itself on its way back.

use std::borrow::Cow;

use super::backend_refused::{BackendRefused, listens};
use super::tell::tale;
use crate::diagnose::stop::{How, Stop};
use crate::diagnose::{Case, Found, Page, Rule, sentence};
use crate::trace::summary::icmp_summary;
use crate::trace::{Direction, Finding, Packet, Severity, Step, StepKind, Trace};

pub(super) struct Rejected;

static PAGE: Page = Page {
    code: "rejected",
    title: "refused with an RST or ICMP error",
    meaning: "Somebody on the way answered the packet with a refusal: a REJECT rule, a host where nothing listens, or a router that knows no way. The client sees 'connection refused' or 'no route to host' at once.",
    told: "The kernel function that sends resets or ICMP errors was seen answering the packet, or such an answer was seen on its way back.",
    ruled_out: "A more particular finding about the same packet.",
    next: &[
        "ss -lntup 'sport = :PORT'",
        "iptables-save -c | grep -e '-j REJECT'",
        "ip route get DESTINATION",
    ],
};

impl Rule for Rejected {
    fn page(&self) -> &'static Page {
        &PAGE
    }

    fn explain(&self, case: &Case<'_>, stop: &Stop<'_>) -> Option<Found> {
        if stop.how != How::Rejected {
            return None;
        }
        let step = stop.end?;
        let answer = stop
            .packet
            .steps
            .iter()
            .find(|s| s.kind == StepKind::Reject)
            .unwrap_or(step);
        let what = answer.icmp.map_or_else(
            || "an RST".into(),
            |i| icmp_summary(i, answer.src.addr.is_ipv6()),
        );
        let hook = answer
            .drop
            .as_ref()
            .and_then(|d| d.hook.as_deref())
            .or(stop.hook());
        let port = step.dst.port.unwrap_or(0);
        let cause = match hook {
            Some(hook) => format!("a netfilter rule in {hook} rejected it with {what}"),
            None if answer.icmp.is_none() && listens(case, stop, step) => format!(
                "answered with {what}, though a socket listens on port {port} now: it may have come later, \
                 or a rule inside the pod refuses"
            ),
            None if answer.icmp.is_none() => {
                format!("answered with {what}, nothing accepts connections on port {port}")
            }
            None => format!("answered with {what}"),
        };
        let told = tale(case, stop, PAGE.code, &cause);
        if hook.is_some() {
            return told.check("iptables-save -c | grep -e '-j REJECT'").done();
        }
        let mut found = told.finding();
        found.finding.next.extend(listeners(step, step.dst.port));
        Some(found)
    }

    fn whole(&self, case: &Case<'_>) -> Option<Found> {
        let trace = case.trace;
        let explained = |p: &&Packet| {
            case.stops
                .iter()
                .any(|s| s.flow.id == p.flow && s.how != How::Unanswered && !s.made_good)
        };
        let refusal = trace
            .packets
            .iter()
            .filter(|p| is_refusal(trace, p))
            .find(|p| !explained(p))?;
        if BackendRefused.whole(case).is_some() {
            return None;
        }
        by_refusal(trace, refusal)
    }
}

/// An RST before the connection stood, or an ICMP error, seen on its way.
fn is_refusal(trace: &Trace, p: &Packet) -> bool {
    let (Some(first), Some(flow)) = (p.steps.first(), trace.flows.iter().find(|f| f.id == p.flow))
    else {
        return false;
    };
    if p.direction != Direction::Reply {
        return false;
    }
    let seen = |summary: &str| {
        trace
            .packets
            .iter()
            .any(|q| q.flow == p.flow && q.summary == summary)
    };
    let reset = p.summary == "RST" && flow.state == "reset" && !seen("SYN-ACK") && seen("SYN");
    reset || is_unreachable(first) && first.proto != flow.proto
}

fn is_unreachable(step: &Step) -> bool {
    step.icmp
        .is_some_and(|i| i.mtu.is_none() && i.kind == if step.proto == "icmpv6" { 1 } else { 3 })
}

fn by_refusal(trace: &Trace, packet: &Packet) -> Option<Found> {
    let first = packet.steps.first()?;
    let flow = trace.flows.iter().find(|f| f.id == packet.flow)?;
    let place = if first.node.is_empty() {
        String::new()
    } else {
        format!(", first seen on {}", first.node)
    };
    let summary = format!(
        "the {} was refused: {} came back{place}",
        sentence::flow(flow),
        if packet.summary == "RST" {
            "an RST"
        } else {
            &packet.summary
        },
    );
    let port = flow.backend.as_ref().unwrap_or(&flow.server).port;
    Some(Found {
        ts: first.ts,
        node: (!first.node.is_empty()).then(|| first.node.clone()),
        iface: (!first.iface.is_empty()).then(|| first.iface.clone()),
        packet: Some(packet.id),
        part: String::new(),
        unsure: true,
        finding: Finding {
            code: Cow::Borrowed(PAGE.code),
            severity: Severity::Fault,
            summary,
            evidence: vec![sentence::evidence(packet, first)],
            next: listeners(first, port),
        },
    })
}

/// How to see what listens at the server.
fn listeners(step: &Step, port: Option<u16>) -> Vec<String> {
    let server = if step.reply { &step.src } else { &step.dst };
    let port = port.unwrap_or(0);
    match sentence::named(server, "pod") {
        Some((ns, name)) => {
            let (ns, name) = (sentence::word(ns), sentence::word(name));
            vec![
                format!("kubectl get pod -n {ns} {name} -o wide"),
                format!("kubectl exec -n {ns} {name} -- ss -lntu 'sport = :{port}'"),
            ]
        }
        None => vec![sentence::on(
            &step.node,
            &format!("ss -lntup 'sport = :{port}'"),
        )],
    }
}
