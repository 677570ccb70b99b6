//! What the rules about drops share.

use std::borrow::Cow;

use crate::diagnose::sentence;
use crate::diagnose::{Check, Found};
use crate::trace::{Finding, Outcome, Packet, Severity, Step, StepKind, Trace};

/// The first drop that counts: one that a later try did not make good comes
/// before one that it did.
pub(super) fn first(trace: &Trace, wanted: impl Fn(&Step) -> bool) -> Option<(&Packet, &Step)> {
    let drops = trace
        .packets
        .iter()
        .filter(|p| p.outcome == Outcome::Dropped)
        .filter(|p| !sentence::tail(trace, p))
        .filter_map(|p| {
            let step = p.steps.iter().rev().find(|s| s.kind == StepKind::Drop)?;
            (wanted(step) && !no_news(trace, p, step)).then_some((p, step))
        });
    drops.min_by_key(|(p, s)| (forgiven(trace, p), s.ts))
}

/// Why TCP frees what it has already, or has no use for: `enum
/// skb_drop_reason` in `include/net/dropreason-core.h`, from 5.18.
const NOTHING_NEW: &[&str] = &[
    "TCP_OLD_DATA",
    "TCP_OLD_SEQUENCE",
    "TCP_OLD_ACK",
    "TCP_OFOMERGE",
    "TCP_CLOSE",
    "TCP_FLAGS",
];

/// Whether the packet reached its socket and was freed there because it told
/// nothing new: data received before, a bare acknowledgement or a reset for a
/// connection that is gone. Kernels before 5.18 give no reason for these.
fn no_news(trace: &Trace, p: &Packet, step: &Step) -> bool {
    let Some(drop) = &step.drop else { return false };
    if drop.hook.is_some() || !drop.function.starts_with("tcp_") {
        return false;
    }
    let reason = drop.reason.as_deref();
    if reason.is_some_and(|r| NOTHING_NEW.contains(&r)) {
        return true;
    }
    let unnamed = reason.is_none_or(|r| r == "NOT_SPECIFIED");
    let bare = step.payload == 0
        && step
            .tcp
            .as_ref()
            .is_some_and(|tcp| !tcp.flags.contains(['S', 'F']));
    unnamed
        && (bare
            || sentence::tries(trace, p)
                .iter()
                .any(|q| q.outcome == Outcome::Delivered))
}

/// Whether the drop did no harm: the bytes got there later, or the connection
/// was over.
fn forgiven(trace: &Trace, p: &Packet) -> bool {
    let over = trace
        .flows
        .iter()
        .any(|f| f.id == p.flow && f.state == "closed");
    over || sentence::recovered(trace, p)
}

/// Whether netfilter dropped it.
pub(super) fn by_netfilter(step: &Step) -> bool {
    step.drop
        .as_ref()
        .is_some_and(|d| d.hook.is_some() || d.reason.as_deref() == Some("NETFILTER_DROP"))
}

/// The finding about a drop.
pub(super) fn found(
    trace: &Trace,
    code: &'static str,
    (packet, step): (&Packet, &Step),
    how: &str,
    next: Vec<String>,
) -> Check {
    let harmless = forgiven(trace, packet);
    let after = if harmless {
        "; the connection went on"
    } else {
        ""
    };
    let summary = format!(
        "{} {}{}{}{after}",
        sentence::packet(packet),
        sentence::ended(packet, step, how),
        sentence::on_its_way(step),
        sentence::tried(trace, packet),
    );
    let mut evidence = Vec::new();
    if let Some(seen) = sentence::last_seen(packet) {
        evidence.push(sentence::evidence(packet, seen));
    }
    evidence.push(sentence::evidence(packet, step));
    Check::Found(Box::new(Found {
        ts: step.ts,
        node: (!step.node.is_empty()).then(|| step.node.clone()),
        iface: (!step.iface.is_empty()).then(|| step.iface.clone()),
        packet: Some(packet.id),
        finding: Finding {
            code: Cow::Borrowed(code),
            severity: if harmless {
                Severity::Warning
            } else {
                Severity::Fault
            },
            summary,
            evidence,
            next,
        },
    }))
}
