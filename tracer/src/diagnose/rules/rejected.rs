//! `rejected`: someone said no. A REJECT rule, a host without a listener, a
//! router without a route; told by the function that answers, or by the answer
//! itself on its way back.

use std::borrow::Cow;

use crate::diagnose::{Check, Found, Rule, sentence};
use crate::trace::summary::icmp_summary;
use crate::trace::{Direction, Finding, Outcome, Packet, Severity, Step, StepKind, Trace};

pub(super) struct Rejected;

impl Rule for Rejected {
    fn code(&self) -> &'static str {
        "rejected"
    }

    fn check(&self, trace: &Trace, _: Option<u64>) -> Check {
        let answered = trace
            .packets
            .iter()
            .filter(|p| p.outcome == Outcome::Rejected)
            .filter(|p| !sentence::tail(trace, p));
        let first = answered
            .filter_map(|p| Some((p, refusing(p)?)))
            .min_by_key(|(p, s)| (sentence::recovered(trace, p), s.ts));
        if let Some((packet, step)) = first {
            return by_answer(trace, packet, step);
        }
        let refusal = trace.packets.iter().find(|p| is_refusal(trace, p));
        refusal.map_or(Check::Clear, |p| by_refusal(trace, p))
    }
}

/// The step that refused the packet: the answer where it was seen being made,
/// else the packet being freed for want of a socket.
fn refusing(p: &Packet) -> Option<&Step> {
    let steps = || p.steps.iter();
    let freed = || steps().find(|s| s.kind == StepKind::Drop);
    steps().find(|s| s.kind == StepKind::Reject).or_else(freed)
}

/// An RST before the connection stood, or an ICMP error, seen on its way.
fn is_refusal(trace: &Trace, p: &Packet) -> bool {
    let Some(first) = p.steps.first() else {
        return false;
    };
    let Some(flow) = trace.flows.iter().find(|f| f.id == p.flow) else {
        return false;
    };
    if p.direction != Direction::Reply {
        return false;
    }
    let accepted = trace
        .packets
        .iter()
        .any(|q| q.flow == p.flow && q.direction == Direction::Reply && q.summary == "SYN-ACK");
    let reset = p.summary == "RST" && flow.state == "reset" && !accepted && asked(trace, p);
    reset || is_unreachable(first) && first.proto != flow.proto
}

/// Whether the connection's beginning was seen.
fn asked(trace: &Trace, p: &Packet) -> bool {
    trace
        .packets
        .iter()
        .any(|q| q.flow == p.flow && q.summary == "SYN")
}

fn is_unreachable(step: &Step) -> bool {
    step.icmp
        .is_some_and(|i| i.mtu.is_none() && i.kind == if step.proto == "icmpv6" { 1 } else { 3 })
}

fn by_answer(trace: &Trace, packet: &Packet, step: &Step) -> Check {
    let hook = step.drop.as_ref().and_then(|d| d.hook.as_deref());
    let answer = step.icmp.map_or_else(
        || "an RST".into(),
        |i| icmp_summary(i, step.src.addr.is_ipv6()),
    );
    let function = step.drop.as_ref().map_or("", |d| &d.function);
    let by = match hook {
        Some(hook) => format!("rejected by a netfilter rule in {hook} with {answer}"),
        None if step.icmp.is_none() && !function.starts_with("nf_") => {
            format!(
                "refused with {answer}: nothing accepts connections on port {}",
                step.dst.port.unwrap_or(0)
            )
        }
        None => format!("answered with {answer}"),
    };
    let summary = format!(
        "{} {}{}{}",
        sentence::packet(packet),
        sentence::ended(packet, step, &by),
        sentence::on_its_way(step),
        sentence::tried(trace, packet),
    );
    let mut evidence: Vec<String> = sentence::last_seen(packet)
        .map(|s| sentence::evidence(packet, s))
        .into_iter()
        .collect();
    evidence.push(sentence::evidence(packet, step));
    let next = if hook.is_some() {
        vec![sentence::on(
            &step.node,
            "iptables-save -c | grep -e '-j REJECT'",
        )]
    } else {
        listeners(step, step.dst.port)
    };
    let severity = if sentence::recovered(trace, packet) {
        Severity::Warning
    } else {
        Severity::Fault
    };
    found(step, packet.id, severity, summary, evidence, next)
}

fn by_refusal(trace: &Trace, packet: &Packet) -> Check {
    let (Some(first), Some(flow)) = (
        packet.steps.first(),
        trace.flows.iter().find(|f| f.id == packet.flow),
    ) else {
        return Check::Clear;
    };
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
    let evidence = vec![sentence::evidence(packet, first)];
    found(
        first,
        packet.id,
        Severity::Fault,
        summary,
        evidence,
        listeners(first, port),
    )
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

fn found(
    step: &Step,
    packet: u64,
    severity: Severity,
    summary: String,
    evidence: Vec<String>,
    next: Vec<String>,
) -> Check {
    Check::Found(Box::new(Found {
        ts: step.ts,
        node: (!step.node.is_empty()).then(|| step.node.clone()),
        iface: (!step.iface.is_empty()).then(|| step.iface.clone()),
        packet: Some(packet),
        finding: Finding {
            code: Cow::Borrowed("rejected"),
            severity,
            summary,
            evidence,
            next,
        },
    }))
}
