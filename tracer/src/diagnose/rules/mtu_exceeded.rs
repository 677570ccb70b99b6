//! `mtu-exceeded`: a packet was too big for the next link, and the sender did
//! not get smaller ones through afterwards.

use std::borrow::Cow;

use crate::diagnose::{Check, Found, Rule, sentence};
use crate::trace::{Finding, Icmp, Outcome, Packet, Severity, Step, StepKind, Trace};

pub(super) struct MtuExceeded;

impl Rule for MtuExceeded {
    fn code(&self) -> &'static str {
        "mtu-exceeded"
    }

    fn check(&self, trace: &Trace, _: Option<u64>) -> Check {
        let told = |p: &Packet| {
            let too_big = |s: &&Step| s.kind == StepKind::FragmentNeeded;
            let error = |s: &&Step| s.icmp.is_some_and(|i| i.mtu.is_some());
            p.steps
                .iter()
                .find(too_big)
                .or_else(|| p.steps.first().filter(error))
                .cloned()
        };
        let Some((packet, step)) = trace.packets.iter().find_map(|p| Some((p, told(p)?))) else {
            return Check::Clear;
        };
        let mtu = step.icmp.and_then(|i: Icmp| i.mtu);
        let limit = mtu.map_or_else(String::new, |m| format!(", which takes {m} bytes"));
        let direct = step.kind == StepKind::FragmentNeeded;
        let reply = if direct { step.reply } else { !step.reply };
        // Path MTU discovery at work: later packets of that direction arrive.
        let adapted = trace.packets.iter().any(|p| {
            p.flow == packet.flow
                && p.id > packet.id
                && p.outcome == Outcome::Delivered
                && p.steps
                    .first()
                    .is_some_and(|s| s.reply == reply && s.payload > 0 && s.icmp.is_none())
        });
        let what = if direct {
            format!(
                "{} ({} B) was too big for the next link{limit}, on {}",
                sentence::packet(packet),
                step.len,
                step.node
            )
        } else {
            format!(
                "{} told that a packet was too big for a link{limit}",
                packet.summary
            )
        };
        let after = if adapted {
            "; smaller ones got through"
        } else {
            "; nothing smaller got through"
        };
        let to = step.dst.addr;
        let next = vec![
            sentence::on(&step.node, &format!("ip route get {to}")),
            sentence::on(&step.node, "ip -d link | grep -E 'mtu|vxlan'"),
        ];
        Check::Found(Box::new(Found {
            ts: step.ts,
            node: (!step.node.is_empty()).then(|| step.node.clone()),
            iface: (!step.iface.is_empty()).then(|| step.iface.clone()),
            packet: Some(packet.id),
            finding: Finding {
                code: Cow::Borrowed(self.code()),
                severity: if adapted {
                    Severity::Warning
                } else {
                    Severity::Fault
                },
                summary: format!("{what}{after}"),
                evidence: vec![sentence::evidence(packet, &step)],
                next,
            },
        }))
    }
}
