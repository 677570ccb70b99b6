//! `mtu-exceeded`: a packet was too big for the next link, and the sender did
//! not get smaller ones through afterwards.

use std::borrow::Cow;

use crate::diagnose::stop::Stop;
use crate::diagnose::{Case, Found, Page, Rule, sentence};
use crate::rules::route;
use crate::trace::{Finding, Icmp, Outcome, Packet, Severity, Step, StepKind};

pub(super) struct MtuExceeded;

static PAGE: Page = Page {
    code: "mtu-exceeded",
    title: "too big for a link on the path",
    meaning: "A packet with 'do not fragment' was larger than the next link takes, as the tunnel's MTU is smaller than the pod's. The sender must be told (ICMP fragmentation needed) and send smaller ones; where that message is filtered, small requests work and large ones hang.",
    told: "The kernel freed the packet with reason PKT_TOO_BIG, or was seen answering it with fragmentation needed, or such an answer was seen on its way. A fault unless smaller packets of that direction arrived afterwards.",
    ruled_out: "Large packets of that direction arrive.",
    next: &[
        "ip -d link | grep -E 'mtu|vxlan'",
        "ping -M do -s 1422 DESTINATION",
        "iptables-save -c | grep -i icmp",
    ],
};

impl Rule for MtuExceeded {
    fn page(&self) -> &'static Page {
        &PAGE
    }

    fn explain(&self, case: &Case<'_>, stop: &Stop<'_>) -> Option<Found> {
        let step = stop.end?;
        let told = stop.reason() == Some("PKT_TOO_BIG")
            || stop
                .packet
                .steps
                .iter()
                .any(|s| s.kind == StepKind::FragmentNeeded)
            || is_error(stop.packet);
        let longer = matches!(
            stop.function(),
            "__dev_forward_skb2" | "br_dev_queue_push_xmit"
        ) && case
            .node(&step.node)
            .and_then(|n| n.link(&step.iface))
            .is_some_and(|l| step.len > l.mtu + 14);
        if !told && !longer {
            return None;
        }
        // Of the packet and the message about it, the packet is told.
        let of_flow = case.stops.iter().filter(|s| s.flow.id == stop.flow.id);
        let too_big = of_flow
            .filter(|s| s.reason() == Some("PKT_TOO_BIG") && !is_error(s.packet))
            .find(|_| is_error(stop.packet));
        match too_big.and_then(|s| Some((s.packet, s.end?))) {
            Some((packet, end)) => Some(found(case, packet, end)),
            None => Some(found(case, stop.packet, step)),
        }
    }

    fn whole(&self, case: &Case<'_>) -> Option<Found> {
        let error = case.trace.packets.iter().find(|p| is_error(p))?;
        let known = |s: &Stop<'_>| {
            s.flow.id == error.flow
                && (s.packet.id == error.id || s.reason() == Some("PKT_TOO_BIG"))
                || s.packet
                    .steps
                    .iter()
                    .any(|s| s.kind == StepKind::FragmentNeeded)
        };
        if case.stops.iter().any(known) {
            return None;
        }
        Some(found(case, error, error.steps.first()?))
    }
}

/// An ICMP error that tells an MTU.
fn is_error(p: &Packet) -> bool {
    let first = p.steps.first().and_then(|s| s.icmp);
    first.is_some_and(|i| i.mtu.is_some())
}

fn found(case: &Case<'_>, packet: &Packet, step: &Step) -> Found {
    let trace = case.trace;
    let mtu = packet
        .steps
        .iter()
        .find_map(|s| s.icmp.and_then(|i: Icmp| i.mtu));
    let direct = !is_error(packet);
    let link = case.node(&step.node).filter(|_| direct).and_then(|n| {
        let dev = route::lookup(n, step.dst.addr, Some(step.src.addr), None, 0)
            .route?
            .dev
            .clone()?;
        n.link(&dev)
    });
    let mtu = mtu.or(link.map(|l| l.mtu));
    let dev = link.map_or_else(String::new, |l| format!(" {}", l.name));
    let limit = mtu.map_or_else(String::new, |m| format!("{dev}, which takes {m} bytes"));
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
    // The message that should tell the sender, and what became of it.
    let told = trace
        .packets
        .iter()
        .find(|p| p.flow == packet.flow && is_error(p));
    let message = match told.map(|p| p.outcome) {
        Some(Outcome::Dropped) => {
            "; the message that tells the sender (fragmentation needed) was dropped"
        }
        Some(Outcome::Delivered) => "; the sender was told (fragmentation needed)",
        None if direct => "; the message that tells the sender was not seen",
        _ => "",
    };
    let after = if adapted {
        "; smaller ones got through"
    } else {
        "; nothing smaller got through"
    };
    let mut evidence = vec![sentence::evidence(packet, step)];
    if let Some(dropped) = told.filter(|p| p.outcome == Outcome::Dropped)
        && let Some(end) = dropped.steps.iter().rev().find(|s| s.drop.is_some())
    {
        evidence.push(sentence::evidence(dropped, end));
    }
    let to = step.dst.addr;
    let next = vec![
        sentence::on(&step.node, &format!("ip route get {to}")),
        sentence::on(&step.node, "ip -d link | grep -E 'mtu|vxlan'"),
    ];
    Found {
        ts: step.ts,
        node: (!step.node.is_empty()).then(|| step.node.clone()),
        iface: (!step.iface.is_empty()).then(|| step.iface.clone()),
        packet: Some(packet.id),
        part: String::new(),
        unsure: true,
        finding: Finding {
            code: Cow::Borrowed(PAGE.code),
            severity: if adapted {
                Severity::Warning
            } else {
                Severity::Fault
            },
            summary: format!("{what}{message}{after}"),
            evidence,
            next,
        },
    }
}
