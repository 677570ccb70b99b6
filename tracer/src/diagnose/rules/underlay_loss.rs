//! `underlay-loss`: tunnelled packets leave one node and never arrive at the
//! other, which is watched. Only told when it is certain: no events were lost,
//! and not one packet of that way through arrived.

use std::borrow::Cow;

use crate::diagnose::{Check, Found, Rule, sentence};
use crate::trace::outcome::{Watched, left_for};
use crate::trace::{Finding, Outcome, Packet, Severity, Step, Trace};

pub(super) struct UnderlayLoss;

impl Rule for UnderlayLoss {
    fn code(&self) -> &'static str {
        "underlay-loss"
    }

    fn check(&self, trace: &Trace, _: Option<u64>) -> Check {
        let watched = Watched::new(&trace.header.nodes);
        let lost = trace.packets.iter().filter(|p| p.outcome == Outcome::Lost);
        let mut unsure = false;
        for packet in lost {
            let Some(step) = sentence::last_seen(packet) else {
                continue;
            };
            let Some(peer) = left_for(step, &watched) else {
                continue;
            };
            if trace.closing.losses.any() || arrived_any(trace, packet, step, peer) {
                unsure = true;
                continue;
            }
            return found(trace, self.code(), packet, step, peer);
        }
        if unsure { Check::NotYet } else { Check::Clear }
    }
}

/// Whether any packet of that direction was seen on the other node.
fn arrived_any(trace: &Trace, lost: &Packet, step: &Step, peer: &str) -> bool {
    trace.packets.iter().any(|p| {
        let way = |s: &Step| s.reply == step.reply && *s.node == *peer;
        p.flow == lost.flow && p.steps.iter().any(way)
    })
}

fn found(trace: &Trace, code: &'static str, packet: &Packet, step: &Step, peer: &str) -> Check {
    let Some(tunnel) = &step.tunnel else {
        return Check::Clear;
    };
    let summary = format!(
        "{} left {} through {} in {} to {} ({peer}) and never arrived there{}",
        sentence::packet(packet),
        step.node,
        step.iface,
        tunnel.kind,
        tunnel.dst,
        sentence::tried(trace, packet),
    );
    let port = tunnel
        .dport
        .map_or_else(String::new, |p| format!(" and udp port {p}"));
    let next = vec![
        sentence::on(
            &peer.into(),
            &format!("tcpdump -ni any 'host {}{port}'", tunnel.src),
        ),
        sentence::on(
            &step.node,
            &format!(
                "ping -c 3 -I {} {}",
                sentence::word(&step.iface),
                tunnel.dst
            ),
        ),
    ];
    Check::Found(Box::new(Found {
        ts: step.ts,
        node: Some(step.node.clone()),
        iface: Some(step.iface.clone()),
        packet: Some(packet.id),
        finding: Finding {
            code: Cow::Borrowed(code),
            severity: Severity::Fault,
            summary,
            evidence: vec![
                sentence::evidence(packet, step),
                format!("{peer} is watched, and no packet of this direction was seen there"),
            ],
            next,
        },
    }))
}
