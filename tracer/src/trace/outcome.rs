//! What became of a packet, from its steps and from what the other side said.

use std::net::IpAddr;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::connection::Connection;
use crate::trace::{Node, Outcome, Packet, Role, Step, StepKind};

/// How long a packet on its way to a watched node is waited for.
const LOST_AFTER: u64 = 1_000_000_000;

/// Addresses of the nodes that are watched.
#[derive(Clone, Debug, Default)]
pub struct Watched {
    by_addr: FxHashMap<IpAddr, Arc<str>>,
}

impl Watched {
    /// The addresses of these nodes.
    pub fn new(nodes: &[Node]) -> Self {
        let pairs = nodes
            .iter()
            .flat_map(|n| n.addrs.iter().map(|a| (*a, Arc::clone(&n.name))));
        Self {
            by_addr: pairs.collect(),
        }
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

/// The packet's outcome as of `now`; `ended` where nothing more will come.
pub(super) fn outcome(
    packet: &Packet,
    flow: &Connection,
    watched: &Watched,
    now: u64,
    ended: bool,
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
        && (ended || now.saturating_sub(step.ts) >= LOST_AFTER)
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
    watched.node(tunnel.dst).filter(|peer| **peer != step.node)
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
