//! Words that several forms share. None of them is cleaned: each form does that
//! in its own way.

use crate::trace::probe::Way;
use crate::trace::{Direction, Losses, Outcome, Packet, Role, Severity, Step, StepKind, Trace};

pub(super) use super::text::words::step;
pub(super) use super::text::{address, endpoint, milliseconds};

/// What an interface is.
pub(super) fn role(role: Role) -> &'static str {
    match role {
        Role::PodVeth => "the host end of a pod's veth",
        Role::PodEth0 => "a pod's own interface",
        Role::Tunnel => "a tunnel",
        Role::Uplink => "an uplink",
        Role::Bridge => "a bridge",
        Role::Other => "another interface",
    }
}

/// A step's kind, as the public form has it.
pub(super) fn kind(kind: StepKind) -> &'static str {
    match kind {
        StepKind::Ingress => "ingress",
        StepKind::Egress => "egress",
        StepKind::ConntrackNew => "conntrack-new",
        StepKind::Dnat => "dnat",
        StepKind::Snat => "snat",
        StepKind::Masquerade => "masquerade",
        StepKind::UnDnat => "un-dnat",
        StepKind::UnSnat => "un-snat",
        StepKind::Route => "route",
        StepKind::Encap => "encap",
        StepKind::Decap => "decap",
        StepKind::Policy => "policy",
        StepKind::Hook => "hook",
        StepKind::Drop => "drop",
        StepKind::Reject => "reject",
        StepKind::FragmentNeeded => "fragment-needed",
        StepKind::Deliver => "deliver",
    }
}

/// What is lost, in a sentence.
pub(super) fn losses(l: Losses) -> String {
    format!(
        "lost: {} events in the ring buffer, {} in user space, {} otherwise; what is missing may have happened",
        l.ring_buffer, l.user_space, l.other
    )
}

/// Whose packet it is.
pub(super) fn direction(direction: Direction) -> &'static str {
    match direction {
        Direction::Request => "request",
        Direction::Reply => "reply",
    }
}

/// What became of a packet.
pub(super) fn outcome(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Delivered => "delivered",
        Outcome::Dropped => "dropped",
        Outcome::Rejected => "rejected",
        Outcome::Lost => "lost",
        Outcome::Pending => "not seen again",
    }
}

/// Whether it certainly did not get through.
pub(super) fn is_bad(packet: &Packet) -> bool {
    matches!(
        packet.outcome,
        Outcome::Dropped | Outcome::Rejected | Outcome::Lost
    )
}

/// Whether something is at fault.
pub(super) fn is_fault(trace: &Trace) -> bool {
    let mut findings = trace.closing.findings.iter();
    findings.any(|f| f.severity == Severity::Fault)
}

/// The step that ended the packet, where one did.
pub(super) fn is_end(step: &Step) -> bool {
    matches!(
        step.kind,
        StepKind::Drop | StepKind::Reject | StepKind::FragmentNeeded
    )
}

/// The packets that tell the story, most telling first: the verdict's, the first
/// that did not get through, the first that did, the first answer that did.
pub(super) fn chosen(trace: &Trace) -> Vec<&Packet> {
    let packets = || trace.packets.iter().filter(|p| !p.steps.is_empty());
    let good = |direction: Direction| {
        packets().find(move |p| p.outcome == Outcome::Delivered && p.direction == direction)
    };
    let told = trace.closing.verdict.packet;
    let candidates = [
        told.and_then(|id| packets().find(|p| p.id == id)),
        packets().find(|p| is_bad(p)),
        good(Direction::Request),
        good(Direction::Reply),
        packets().next(),
    ];
    let mut chosen: Vec<&Packet> = Vec::new();
    for packet in candidates.into_iter().flatten() {
        if !chosen.iter().any(|c| c.id == packet.id) {
            chosen.push(packet);
        }
    }
    chosen
}

/// How a server was addressed.
pub(super) fn way(way: Way) -> &'static str {
    match way {
        Way::Name => "name",
        Way::ClusterIp => "ClusterIP",
        Way::Address => "address",
        Way::Backend => "backend",
        Way::Pod => "pod",
    }
}

/// A time as `2026-12-01 04:36:25 UTC`.
pub(super) fn utc(ns: u64) -> String {
    let seconds = ns / 1_000_000_000;
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    // Days since 1 March of year 0, in cycles of 400 years (146,097 days).
    let shifted = days + 719_468;
    let (cycle, day) = (shifted / 146_097, shifted % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let date = day - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 {
        (month + 3, 0)
    } else {
        (month - 9, 1)
    };
    format!(
        "{:04}-{month:02}-{date:02} {:02}:{:02}:{:02} UTC",
        cycle * 400 + year + next,
        rest / 3600,
        rest / 60 % 60,
        rest % 60
    )
}

#[cfg(test)]
mod tests {
    use super::utc;

    #[test]
    fn times_are_those_of_the_calendar() {
        let second = 1_000_000_000;
        assert_eq!(utc(0), "1970-01-01 00:00:00 UTC");
        assert_eq!(utc(951_782_400 * second), "2000-02-29 00:00:00 UTC");
        assert_eq!(utc(1_796_087_789 * second), "2026-12-01 01:16:29 UTC");
        assert_eq!(utc(u64::MAX), "2554-07-21 23:34:33 UTC");
    }
}
