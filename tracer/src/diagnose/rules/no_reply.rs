//! `no-reply`: the request went its way, and nothing came back. Silent where a
//! drop, a reject or a loss explains it.

use std::borrow::Cow;

use crate::diagnose::{Check, Found, Rule, sentence};
use crate::trace::{Direction, Finding, Flow, Outcome, Packet, Severity, Trace};

/// How long an answer may take.
const PATIENCE: u64 = 1_000_000_000;

pub(super) struct NoReply;

impl Rule for NoReply {
    fn code(&self) -> &'static str {
        "no-reply"
    }

    fn check(&self, trace: &Trace, now: Option<u64>) -> Check {
        let lost = matches!(
            super::underlay_loss::UnderlayLoss.check(trace, now),
            Check::Found(_)
        );
        let mut soon = false;
        for flow in trace.flows.iter().filter(|f| f.state == "unanswered") {
            let of_it: Vec<&Packet> = trace.packets.iter().filter(|p| p.flow == flow.id).collect();
            let explained = |p: &&Packet| match p.outcome {
                Outcome::Delivered | Outcome::Pending => p.direction == Direction::Reply,
                Outcome::Lost => lost,
                Outcome::Dropped | Outcome::Rejected => true,
            };
            let Some(first) = of_it.first() else { continue };
            if of_it.iter().any(explained) {
                continue;
            }
            let sent = first.steps.first().map_or(0, |s| s.ts);
            if now.is_some_and(|now| now.saturating_sub(sent) < PATIENCE) {
                soon = true;
                continue;
            }
            return found(trace, flow, first);
        }
        if soon { Check::NotYet } else { Check::Clear }
    }
}

fn found(trace: &Trace, flow: &Flow, first: &Packet) -> Check {
    let end = sentence::last_seen(first);
    let delivered = first.outcome == Outcome::Delivered;
    let place = end.map_or_else(String::new, |s| match (delivered, s.node.is_empty()) {
        (true, _) => format!(" was handed to {} on {}", sentence::who(&s.dst), s.node),
        (false, false) => format!(" was last seen leaving {} at {}", s.node, s.iface),
        (false, true) => " was seen".into(),
    });
    let summary = format!(
        "{}{place}, and no answer was seen{}",
        sentence::packet(first),
        sentence::tried(trace, first),
    );
    // Many a UDP protocol does not answer; DNS does.
    let may_be_silent = flow.proto == "udp" && flow.server.port != Some(53) && delivered;
    let server = flow.backend.as_ref().unwrap_or(&flow.server);
    let mut next = Vec::new();
    if let Some((ns, name)) = sentence::named(server, "pod") {
        let (ns, name) = (sentence::word(ns), sentence::word(name));
        next.push(format!("kubectl logs -n {ns} {name} --tail=50"));
        next.push(format!(
            "kubectl exec -n {ns} {name} -- ip route get {}",
            flow.client.addr
        ));
    } else if let Some(s) = end {
        next.push(sentence::on(
            &s.node,
            &format!("ip route get {}", server.addr),
        ));
    }
    Check::Found(Box::new(Found {
        ts: first.steps.first().map_or(0, |s| s.ts),
        node: end.map(|s| s.node.clone()).filter(|n| !n.is_empty()),
        iface: end.map(|s| s.iface.clone()).filter(|n| !n.is_empty()),
        packet: Some(first.id),
        finding: Finding {
            code: Cow::Borrowed("no-reply"),
            severity: if may_be_silent {
                Severity::Warning
            } else {
                Severity::Fault
            },
            summary,
            evidence: end
                .map(|s| sentence::evidence(first, s))
                .into_iter()
                .collect(),
            next,
        },
    }))
}
