//! What became of a packet, from its steps and from what the other side said.

use std::net::IpAddr;
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use super::connection::Connection;
use crate::trace::run::ASSUMED;
use crate::trace::{Header, Node, Outcome, Packet, Role, Source, Step, StepKind};

/// How long a packet on its way to a watched node is waited for.
pub const LOST_AFTER: u64 = 1_000_000_000;

/// How long before its end a recording must have been sent what it misses: a
/// packet may still be on its way.
pub const UNDER_WAY: u64 = 200_000_000;

/// Addresses of the nodes that are watched.
#[derive(Clone, Debug, Default)]
pub struct Watched {
    by_addr: FxHashMap<IpAddr, Arc<str>>,
    /// Of a merged trace.
    apart: Option<Apart>,
}

/// Nodes whose recordings began and ended at times of their own.
#[derive(Clone, Debug, Default)]
struct Apart {
    /// From when to when each was certainly recording.
    spans: FxHashMap<Arc<str>, Vec<(u64, u64)>>,
    /// Packets that may have been seen again.
    unsure: FxHashSet<u64>,
}

impl Apart {
    fn new(header: &Header) -> Option<Self> {
        let merged = header.merged.as_deref()?;
        let mut spans: FxHashMap<Arc<str>, Vec<(u64, u64)>> = FxHashMap::default();
        for source in &merged.sources {
            let Some(span) = certain(source) else {
                continue;
            };
            // A packet between nodes arrives at an uplink or nowhere.
            let of_it = header.nodes.iter().filter(|n| {
                source.nodes.contains(&n.name)
                    && n.interfaces.iter().any(|i| i.role == Role::Uplink)
            });
            for node in of_it {
                spans.entry(Arc::clone(&node.name)).or_default().push(span);
            }
        }
        Some(Self {
            spans,
            unsure: merged.unsure.iter().copied().collect(),
        })
    }
}

/// When a source was recording, wherever within its bounds its clock is.
fn certain(source: &Source) -> Option<(u64, u64)> {
    let margin = source.clock.uncertainty().unwrap_or(ASSUMED);
    let began = source.began?.saturating_add(margin);
    let ended = source
        .ended?
        .saturating_sub(margin.saturating_add(UNDER_WAY));
    (began <= ended).then_some((began, ended))
}

impl Watched {
    /// The addresses of these nodes.
    pub fn new(nodes: &[Node]) -> Self {
        let pairs = nodes
            .iter()
            .flat_map(|n| n.addrs.iter().map(|a| (*a, Arc::clone(&n.name))));
        Self {
            by_addr: pairs.collect(),
            apart: None,
        }
    }

    /// Those of a trace, which may have been merged.
    pub fn of(header: &Header) -> Self {
        Self {
            apart: Apart::new(header),
            ..Self::new(&header.nodes)
        }
    }

    /// Whether a node would have been seen to get what was sent to it then.
    fn looking(&self, node: &str, ts: u64) -> bool {
        self.apart.as_ref().is_none_or(|apart| {
            let spans = apart.spans.get(node);
            spans.is_some_and(|s| s.iter().any(|(from, to)| (*from..=*to).contains(&ts)))
        })
    }

    /// Whether a packet may be among others that look the same.
    fn unsure(&self, packet: u64) -> bool {
        self.apart
            .as_ref()
            .is_some_and(|a| a.unsure.contains(&packet))
    }

    /// The watched node that has this address.
    pub fn node(&self, addr: IpAddr) -> Option<&Arc<str>> {
        self.by_addr.get(&addr)
    }
}

/// No socket wanted the packet: the kernel answers with an RST or an ICMP port
/// unreachable and frees it, which is a refusal and no loss.
fn refused(step: &Step) -> bool {
    let reason = step.drop.as_ref().and_then(|d| d.reason.as_deref());
    reason == Some("NO_SOCKET")
}

/// A time-wait socket took what it was sent: `tcp_v4_rcv` frees the last FIN
/// and acknowledgements of a connection as if they were dropped, without a
/// reason (`do_time_wait`, `net/ipv4/tcp_ipv4.c`, 5.10 to 6.12).
fn taken_at_the_end(step: &Step) -> bool {
    let Some(drop) = &step.drop else { return false };
    let unnamed = drop.reason.as_deref().is_none_or(|r| r == "NOT_SPECIFIED");
    let last_words = step
        .tcp
        .as_ref()
        .is_some_and(|tcp| !tcp.flags.contains('S'))
        && step.payload == 0;
    unnamed
        && last_words
        && drop.hook.is_none()
        && matches!(&*drop.function, "tcp_v4_rcv" | "tcp_v6_rcv")
}

/// The packet's outcome as of `now`, where one that is on its way to a watched
/// node is waited for as long as `patience`, both in nanoseconds.
pub(super) fn outcome(
    packet: &Packet,
    flow: &Connection,
    watched: &Watched,
    now: u64,
    patience: u64,
) -> Outcome {
    let steps = &packet.steps;
    if steps
        .iter()
        .any(|s| matches!(s.kind, StepKind::Reject | StepKind::FragmentNeeded))
    {
        return Outcome::Rejected;
    }
    let on_the_way = |s: &Step| {
        matches!(
            s.kind,
            StepKind::Ingress | StepKind::Egress | StepKind::Deliver
        )
    };
    let last = steps.iter().rposition(on_the_way);
    // A drop that the packet outlived was one of a copy of it.
    let drop = steps.iter().rposition(|s| s.kind == StepKind::Drop);
    if drop > last && drop.is_some_and(|at| taken_at_the_end(&steps[at])) {
        return Outcome::Delivered;
    }
    if drop.is_some() && drop > last {
        return if drop.is_some_and(|at| refused(&steps[at])) {
            Outcome::Rejected
        } else {
            Outcome::Dropped
        };
    }
    let Some(at) = last else {
        return answered(packet, flow);
    };
    let step = &steps[at];
    if arrived(step, steps.get(at + 1..).unwrap_or(&[]), watched) {
        return Outcome::Delivered;
    }
    let known = answered(packet, flow);
    if known == Outcome::Pending
        && now.saturating_sub(step.ts) >= patience
        && !watched.unsure(packet.id)
        && left_for(step, watched).is_some()
    {
        return Outcome::Lost;
    }
    known
}

/// The watched node that a packet was sent to through a tunnel in this step.
pub fn left_for<'a>(step: &Step, watched: &'a Watched) -> Option<&'a Arc<str>> {
    let tunnel = step
        .tunnel
        .as_ref()
        .filter(|_| step.kind == StepKind::Egress)?;
    watched
        .node(tunnel.dst)
        .filter(|peer| **peer != step.node && watched.looking(peer, step.ts))
}

/// Whether this is the end of the path, as far as it can be seen.
fn arrived(step: &Step, after: &[Step], watched: &Watched) -> bool {
    let rewritten = after.iter().any(|s| s.rewrite.is_some());
    match (step.kind, step.role) {
        (StepKind::Deliver, _)
        | (StepKind::Egress, Some(Role::PodVeth))
        | (StepKind::Ingress, Some(Role::PodEth0)) => true,
        (StepKind::Ingress, _) => {
            // A part of a datagram is put together first, if the rest comes.
            let part = step
                .ip
                .as_ref()
                .is_some_and(|ip| ip.more_fragments || ip.frag_offset.is_some());
            step.tunnel.is_none()
                && !part
                && !rewritten
                && watched.node(step.dst.addr).is_some_and(|n| *n == step.node)
        }
        _ => false,
    }
}

/// Delivered, if the other side said so.
fn answered(packet: &Packet, flow: &Connection) -> Outcome {
    let Some(first) = packet.steps.first() else {
        return Outcome::Pending;
    };
    if flow.answers(first) {
        Outcome::Delivered
    } else {
        Outcome::Pending
    }
}
