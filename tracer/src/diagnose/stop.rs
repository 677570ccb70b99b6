//! Where packets stopped: the places that a verdict has to explain.

use std::collections::BTreeMap;

use super::sentence;
use crate::trace::outcome::{UNDER_WAY, Watched, left_for};
use crate::trace::{Direction, Flow, Outcome, Packet, Step, StepKind, Trace};

/// How long an answer, or the next sight of a packet, may take: 1 s in
/// nanoseconds, TCP's first retransmission time-out (RFC 6298 section 2).
const PATIENCE: u64 = 1_000_000_000;

/// How a packet stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum How {
    /// Freed as dropped.
    Dropped,
    /// Answered with an RST or ICMP error.
    Rejected,
    /// Left for a watched node and did not arrive.
    Lost,
    /// Not seen again after its last step.
    Vanished,
    /// Arrived, and nothing came back.
    Unanswered,
}

/// A packet that stopped, the best seen of its tries.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stop<'a> {
    /// Its flow.
    pub(super) flow: &'a Flow,
    /// The packet.
    pub(super) packet: &'a Packet,
    /// In which way.
    pub(super) how: How,
    /// Where it was last seen at an interface.
    pub(super) last: Option<&'a Step>,
    /// The step that ended it: drop or answer.
    pub(super) end: Option<&'a Step>,
    /// A later try of it arrived.
    pub(super) made_good: bool,
}

impl<'a> Stop<'a> {
    /// The step that says most about where it stopped.
    pub(super) fn place(&self) -> Option<&'a Step> {
        self.end.or(self.last).or(self.packet.steps.last())
    }

    /// The node it stopped on; empty where unknown.
    pub(super) fn node(&self) -> &'a str {
        let steps = [self.end, self.last, self.packet.steps.last()];
        let mut nodes = steps.into_iter().flatten().map(|s| &*s.node);
        nodes.find(|n| !n.is_empty()).unwrap_or_default()
    }

    /// The kernel function that freed it.
    pub(super) fn function(&self) -> &'a str {
        let drop = self.drop();
        drop.map_or("", |d| &*d.function)
    }

    /// Drop reason, where one was given that says something.
    pub(super) fn reason(&self) -> Option<&'a str> {
        self.drop()?
            .reason
            .as_deref()
            .filter(|r| *r != "NOT_SPECIFIED")
    }

    /// The netfilter hook it stopped in.
    pub(super) fn hook(&self) -> Option<&'a str> {
        self.drop()?.hook.as_deref()
    }

    /// The drop itself.
    pub(super) fn drop(&self) -> Option<&'a crate::trace::Drop> {
        self.end?.drop.as_deref()
    }

    /// Whether netfilter dropped or rejected it.
    pub(super) fn by_netfilter(&self) -> bool {
        self.hook().is_some() || self.reason() == Some("NETFILTER_DROP")
    }

    /// Whether netfilter may have ended it, for all that is known: nothing that
    /// the kernel said points elsewhere.
    pub(super) fn may_be_netfilter(&self) -> bool {
        self.drop().is_none_or(may_be_netfilter)
    }

    /// Whether it was freed, or refused by the host, where the routing decision
    /// failed: `ip_error`, `ip6_pkt_discard` and their like
    /// (`net/ipv4/route.c`, `net/ipv6/route.c`).
    pub(super) fn unrouted(&self) -> bool {
        const FAILED: &[&str] = &["ip_error", "ip6_pkt_d", "ip6_pkt_prohibit", "dst_discard"];
        if self.by_netfilter() {
            return false;
        }
        let function = self.function();
        FAILED.iter().any(|f| function.starts_with(f))
            || matches!(self.reason(), Some("IP_INNOROUTES" | "IP_OUTNOROUTES"))
            || self.how == How::Rejected && self.refused_as_unreachable()
    }

    /// Answered with "destination unreachable", and not because of its port.
    fn refused_as_unreachable(&self) -> bool {
        let answer = self
            .packet
            .steps
            .iter()
            .find(|s| s.kind == StepKind::Reject);
        let unreachable = |s: &Step| {
            let (kind, port) = if s.src.addr.is_ipv6() { (1, 4) } else { (3, 3) };
            let hooked = s.drop.as_ref().is_some_and(|d| d.hook.is_some());
            !hooked
                && s.icmp
                    .is_some_and(|i| i.kind == kind && i.code != port && i.mtu.is_none())
        };
        answer.is_some_and(unreachable)
    }

    /// Whether that it stopped was seen, so that it holds although events were
    /// lost. What TCP frees is often only a copy, or no news, and a refusal in
    /// the middle of a connection may be its orderly end.
    pub(super) fn was_seen(&self) -> bool {
        match self.how {
            How::Dropped => self.by_netfilter() || !self.function().starts_with("tcp_"),
            How::Rejected => self.by_netfilter() || self.opens(),
            How::Lost | How::Vanished | How::Unanswered => false,
        }
    }

    /// Whether it stopped inside its tunnel: outer headers were the last seen.
    pub(super) fn in_tunnel(&self) -> bool {
        if self.end.is_some_and(|end| end.tunnel.is_some()) {
            return true;
        }
        let last = self.packet.steps.iter().rev().find(|s| {
            matches!(
                s.kind,
                StepKind::Ingress | StepKind::Egress | StepKind::Decap | StepKind::Encap
            )
        });
        last.is_some_and(|s| s.tunnel.is_some() && s.kind != StepKind::Decap)
    }

    /// Whether it is the flow's first word.
    pub(super) fn opens(&self) -> bool {
        self.packet.direction == Direction::Request
            && (self.packet.summary == "SYN" || self.flow.proto != "tcp")
    }
}

/// Whether nothing that is known of a drop points elsewhere than to netfilter.
/// Kernels before 5.17 give no reason, and a return probe on `nf_hook_slow`
/// hides the hook from the stack.
pub(super) fn may_be_netfilter(drop: &crate::trace::Drop) -> bool {
    const OF_NETFILTER: &[&str] = &[
        "__nf_",
        "nf_",
        "nft_",
        "ipt_",
        "ip6t_",
        "xt_",
        "br_nf_",
        "ip_vs_",
        "reject_tg",
    ];
    let reason = drop.reason.as_deref().filter(|r| *r != "NOT_SPECIFIED");
    let function = &*drop.function;
    drop.hook.is_some()
        || reason == Some("NETFILTER_DROP")
        || reason.is_none()
            && (function.is_empty() || OF_NETFILTER.iter().any(|p| function.starts_with(p)))
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

/// Why TCP frees a bare acknowledgement that a later one has overtaken on its
/// way, as packets do that two CPUs handle side by side: the timestamps of what
/// came first are newer (RFC 7323 section 5.3). Where everything that was sent
/// is refused so, nothing was overtaken.
const OVERTAKEN: &[&str] = &[
    "TCP_RFC7323_PAWS",
    "TCP_RFC7323_PAWS_ACK",
    "TCP_RFC7323_TW_PAWS",
    "TCP_TOO_OLD_ACK",
];

/// Whether the packet reached its socket and was freed there because it told
/// nothing new: data received before, a bare acknowledgement that came late, or
/// a reset for a connection that is gone. Kernels before 5.18 give no reason for
/// these. `later`: a later packet of its direction was delivered.
fn no_news(packet: &Packet, tries: &[&Packet], step: &Step, later: bool) -> bool {
    let Some(drop) = &step.drop else { return false };
    if drop.hook.is_some() || !drop.function.starts_with("tcp_") {
        return false;
    }
    let reason = drop.reason.as_deref();
    if reason.is_some_and(|r| NOTHING_NEW.contains(&r)) {
        return true;
    }
    if reason.is_some_and(|r| OVERTAKEN.contains(&r)) {
        return later && packet.summary == "ACK";
    }
    let unnamed = reason.is_none_or(|r| r == "NOT_SPECIFIED");
    // The other side's FIN is answered and freed here when the socket was closed
    // before it came (`TCP_TW_ACK` in `tcp_v4_rcv`).
    let by_time_wait = matches!(&*drop.function, "tcp_v4_rcv" | "tcp_v6_rcv");
    let bare = step.payload == 0
        && step.tcp.as_ref().is_some_and(|tcp| {
            !tcp.flags.contains('S') && (by_time_wait || !tcp.flags.contains('F'))
        });
    unnamed && (bare || tries.iter().any(|q| q.outcome == Outcome::Delivered))
}

/// All stops of a trace, in order of time.
pub(super) fn stops(trace: &Trace, now: Option<u64>) -> Vec<Stop<'_>> {
    let watched = Watched::of(&trace.header);
    let mut packets: BTreeMap<u64, Vec<&Packet>> = BTreeMap::new();
    for packet in &trace.packets {
        packets.entry(packet.flow).or_default().push(packet);
    }
    let due = match (now, trace.closing.ended, &trace.closing.continues) {
        (Some(now), ..) => Some(now.saturating_sub(PATIENCE)),
        (None, Some(ended), None) => Some(ended.saturating_sub(UNDER_WAY)),
        // The answer may be in the next file.
        (None, Some(ended), Some(_)) => Some(ended.saturating_sub(PATIENCE)),
        (None, None, _) => None,
    };
    let mut found: Vec<Stop<'_>> = Vec::new();
    for flow in &trace.flows {
        let Some(of_it) = packets.get(&flow.id) else {
            continue;
        };
        // What a packet retransmits may have been let go, so it is a root by name only.
        let mut tries: BTreeMap<u64, Vec<&Packet>> = BTreeMap::new();
        for packet in of_it {
            let root = packet.retransmits.unwrap_or(packet.id);
            tries.entry(root).or_default().push(packet);
        }
        let of = Of {
            flow,
            through: [Direction::Request, Direction::Reply].map(|direction| {
                let through =
                    |p: &&&Packet| p.direction == direction && p.outcome == Outcome::Delivered;
                of_it.iter().filter(through).map(|p| p.id).max()
            }),
            answers: of_it
                .iter()
                .copied()
                .filter(|p| p.direction == Direction::Reply)
                .collect(),
            watched: &watched,
            due,
        };
        found.extend(tries.values().flat_map(|tries| of.stops(tries)));
    }
    found.sort_by_key(|s| s.place().map_or(0, |p| p.ts));
    found
}

/// A flow whose packets are looked at.
struct Of<'a, 'b> {
    flow: &'a Flow,
    /// The last packet of each direction that was delivered: request, reply.
    through: [Option<u64>; 2],
    answers: Vec<&'a Packet>,
    watched: &'b Watched,
    /// What was sent later than this may still be answered.
    due: Option<u64>,
}

impl<'a> Of<'a, '_> {
    /// The stop of a packet that was tried so often, if it did stop: the one
    /// that says most, and those of other tries that were seen to end elsewhere.
    fn stops(&self, tries: &[&'a Packet]) -> Vec<Stop<'a>> {
        let mut all: Vec<Stop<'a>> = tries.iter().filter_map(|p| self.ended(p, tries)).collect();
        all.sort_by_key(|s| (s.made_good, s.how, s.packet.id));
        let mut told: Vec<Stop<'a>> = Vec::new();
        for stop in all {
            let same = |t: &Stop<'_>| {
                (t.node(), t.function(), t.hook()) == (stop.node(), stop.function(), stop.hook())
            };
            if told.is_empty() || stop.how <= How::Rejected && !told.iter().any(same) {
                told.push(stop);
            }
        }
        told
    }

    fn ended(&self, packet: &'a Packet, tries: &[&'a Packet]) -> Option<Stop<'a>> {
        if packet.outcome == Outcome::Delivered && !self.unanswered(packet)
            || sentence::tail(self.flow, tries, packet)
            || is_redirect(packet)
        {
            return None;
        }
        let steps = || packet.steps.iter();
        let freed = steps().rev().find(|s| s.kind == StepKind::Drop);
        let answer =
            steps().find(|s| matches!(s.kind, StepKind::Reject | StepKind::FragmentNeeded));
        let last = sentence::last_seen(packet);
        let (how, end) = match packet.outcome {
            Outcome::Dropped
                if freed.is_some_and(|s| no_news(packet, tries, s, self.later_arrived(packet))) =>
            {
                return None;
            }
            Outcome::Dropped => (How::Dropped, freed),
            // The drop that goes with the answer often says more.
            Outcome::Rejected => {
                let named = |s: &&Step| s.drop.as_ref().is_some_and(|d| d.hook.is_some());
                let end = freed.filter(named).or(answer.filter(named));
                (How::Rejected, end.or(freed).or(answer))
            }
            Outcome::Lost if last.is_some_and(|s| left_for(s, self.watched).is_some()) => {
                (How::Lost, None)
            }
            Outcome::Pending if self.missed(packet, tries) => (How::Vanished, None),
            Outcome::Delivered => (How::Unanswered, None),
            Outcome::Lost | Outcome::Pending => return None,
        };
        let later = |q: &Packet| q.id > packet.id && q.outcome == Outcome::Delivered;
        Some(Stop {
            flow: self.flow,
            packet,
            how,
            last,
            end,
            made_good: how != How::Unanswered && tries.iter().any(|q| later(q)),
        })
    }

    /// Whether a later packet of its direction was delivered.
    fn later_arrived(&self, packet: &Packet) -> bool {
        let [request, reply] = self.through;
        let through = match packet.direction {
            Direction::Request => request,
            Direction::Reply => reply,
        };
        through.is_some_and(|last| last > packet.id)
    }

    fn waited(&self, packet: &Packet) -> bool {
        let sent = packet.steps.last().map_or(0, |s| s.ts);
        self.due.is_none_or(|due| sent <= due)
    }

    /// Whether a packet that was not seen to arrive should have been by now.
    fn missed(&self, packet: &Packet, tries: &[&Packet]) -> bool {
        let Some(first) = packet.steps.first() else {
            return false;
        };
        let error = first.icmp.is_some() && first.proto != self.flow.proto;
        if error || !self.waited(packet) {
            return false;
        }
        let open = matches!(&*self.flow.state, "established" | "closed" | "reset");
        let lost = |p: &Packet| matches!(p.outcome, Outcome::Dropped | Outcome::Lost);
        match &first.tcp {
            Some(tcp) if tcp.flags.contains('S') => !open,
            Some(_) => first.payload > 0 && tries.len() > 1,
            None if is_fragment(packet) => {
                !self.answers.iter().any(|p| p.outcome == Outcome::Delivered)
            }
            None => packet.direction == Direction::Request && self.answers.iter().all(|p| lost(p)),
        }
    }

    /// Whether a request that arrived should have been answered by now.
    fn unanswered(&self, packet: &Packet) -> bool {
        let Some(first) = packet.steps.first() else {
            return false;
        };
        let opens = first.tcp.as_ref().is_none_or(|tcp| tcp.flags == "S");
        packet.direction == Direction::Request
            && opens
            && self.flow.state == "unanswered"
            && self.waited(packet)
            && self.answers.is_empty()
    }
}

/// Whether it is a part of a datagram, by its first step.
pub(super) fn is_fragment(p: &Packet) -> bool {
    let first = p.steps.first().and_then(|s| s.ip.as_ref());
    first.is_some_and(|ip| ip.more_fragments || ip.frag_offset.is_some())
}

/// A redirect that the node sends and its NAT then drops is no packet of ours.
fn is_redirect(packet: &Packet) -> bool {
    let first = packet.steps.first();
    first.is_some_and(|s| {
        s.icmp
            .is_some_and(|i| i.kind == if s.proto == "icmpv6" { 137 } else { 5 })
    })
}
