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
        .filter_map(|p| {
            let step = p.steps.iter().rev().find(|s| s.kind == StepKind::Drop)?;
            wanted(step).then_some((p, step))
        });
    drops.min_by_key(|(p, s)| (forgiven(trace, p), s.ts))
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
