//! Rewrites: observed as the kernel announces them, or worked out from a
//! packet that looks different at the next hook.

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;

use super::build::{rewrite_kind, same_place};
use super::flow::Last;
use super::mark::{self, Tuple};
use super::point::{Act, NodeId};
use super::seen::passed_range;
use super::{At, Context, build, with_tuple};
use crate::event::Packet;
use crate::trace::Role;

/// What a NAT event says beside the packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Nat {
    pub(super) to: (IpAddr, u16),
    pub(super) source: bool,
    pub(super) ct: u64,
    pub(super) masquerade: bool,
}

const CHANGED: &str = "tuple change between two hooks";
const CARRIED: &str = "conntrack entry carried by the packet";
const KNOWN: &str = "conntrack entry of the flow";

impl Context<'_> {
    /// A rewrite is about to happen.
    pub(super) fn rewrite(&mut self, at: &At, packet: &Packet, nat: Nat) {
        let act = Act::Nat { source: nat.source };
        let (point, node) = self.core.points.get(&at.node, &at.iface, act);
        let parts = self.locate(at, packet, Some(point));
        for part in &parts {
            let Some(open) = part.open else { continue };
            let packet = build::clip(packet, part.from, part.to);
            self.changed(open, at, &packet, node);
            let before = mark::tuple(&packet);
            let (is, field) = sides(&before, nat.source);
            // The kernel makes "null bindings" that change nothing, and the
            // addresses that an ICMP error quotes are not its own.
            let real = !packet.quoted && !same_place(is, nat.to, packet.proto);
            let mut after = before;
            if real {
                let masquerade = nat.masquerade || self.flow.masquerades(node, nat.ct);
                let kind = rewrite_kind(nat.source, at.reply, masquerade);
                let step = self.builder().rewrite(at, &packet, &before, kind, nat.to);
                self.emit(open, step);
                set(&mut after, field, nat.to);
            }
            let known = &mut self.flow.open[open];
            known.announced = real.then_some((nat.source, nat.to.0, nat.to.1));
            let (from, to) = passed_range(known, &packet);
            known.pass(point, from, to, packet.ttl);
            let same = known.last.as_ref().filter(|l| l.node == node);
            let iface = same.map_or_else(|| Arc::clone(&at.iface), |l| Arc::clone(&l.iface));
            known.last = Some(Last {
                node,
                iface,
                egress: false,
                point: same.and_then(|l| l.point),
                tunnel: None,
                role: same.map_or(at.role, |l| l.role),
                tuple: after,
            });
        }
        self.done_with(parts);
    }

    /// A rewrite has happened: it only confirms what was announced.
    pub(super) fn rewritten(&mut self, at: &At, packet: &Packet, nat: Nat) {
        let parts = self.locate(at, packet, None);
        let now = mark::tuple(packet);
        for open in parts.iter().filter_map(|p| p.open) {
            let known = &mut self.flow.open[open];
            let announced = known.announced.take();
            let before = known.last.as_ref().map(|l| l.tuple);
            if let Some(last) = &mut known.last {
                last.tuple = now;
            }
            let (is, _) = sides(&now, nat.source);
            let differs = announced.is_some_and(|(source, addr, port)| {
                source == nat.source && !same_place(is, (addr, port), packet.proto)
            });
            if let Some(before) = before.filter(|_| differs) {
                let masquerade = nat.masquerade;
                let kind = rewrite_kind(nat.source, at.reply, masquerade);
                let mut step = self.builder().rewrite(at, packet, &before, kind, is);
                step.from = Some(Cow::Borrowed(
                    "header after the rewrite, which was announced otherwise",
                ));
                self.emit(open, step);
            }
        }
        self.done_with(parts);
    }

    /// Works out the rewrites between the last hook and this one on the same
    /// node, if the addresses differ and nothing said why.
    pub(super) fn changed(&mut self, open: usize, at: &At, packet: &Packet, node: NodeId) -> bool {
        if packet.quoted || packet.truncated || mark::is_fragment(packet) {
            return false;
        }
        let Some(last) = &self.flow.open[open].last else {
            return false;
        };
        let (before, now) = (last.tuple, mark::tuple(packet));
        if last.node != node || before == now {
            return last.node == node;
        }
        let input = (Arc::clone(&last.iface), last.role);
        self.infer(open, at, packet, node, (before, input), CHANGED);
        true
    }

    /// Works out the rewrites of a packet that was translated before it was
    /// first seen on this node, from the conntrack entry.
    pub(super) fn translated(
        &mut self,
        open: usize,
        at: &At,
        packet: &Packet,
        node: NodeId,
        carried: bool,
    ) {
        let now = mark::tuple(packet);
        if at.reply || mark::is_fragment(packet) {
            return;
        }
        let entry = self
            .flow
            .entries
            .iter()
            .find(|e| e.node == node && e.translated == now && e.original != now);
        let Some(entry) = entry else { return };
        // Seen before under those addresses: the change was on another node.
        let before = entry.original;
        let from = if carried { CARRIED } else { KNOWN };
        let input = (Arc::clone(&at.iface), at.role);
        self.infer(open, at, packet, node, (before, input), from);
    }

    fn infer(
        &mut self,
        open: usize,
        at: &At,
        packet: &Packet,
        node: NodeId,
        (mut before, input): (Tuple, (Arc<str>, Role)),
        from: &'static str,
    ) {
        let now = mark::tuple(packet);
        let reply = at.reply;
        // PREROUTING and OUTPUT rewrite the destination, POSTROUTING and INPUT
        // the source: in either direction the destination comes first.
        for source in [false, true] {
            let (was, field) = sides(&before, source);
            let (is, _) = sides(&now, source);
            if same_place(was, is, packet.proto) {
                continue;
            }
            let masquerade =
                source && !reply && (self.flow.masquerades(node, 0) || self.owns(&at.node, is.0));
            let kind = rewrite_kind(source, reply, masquerade);
            let mut place = at.clone();
            if !source {
                (place.iface, place.role) = input.clone();
            }
            let shown = with_tuple(packet, &before);
            let mut step = self.builder().rewrite(&place, &shown, &before, kind, is);
            step.inferred = true;
            step.from = Some(Cow::Borrowed(from));
            self.emit(open, step);
            set(&mut before, field, is);
        }
    }
}

/// Address and port of one side, and which side it is.
fn sides(t: &Tuple, source: bool) -> ((IpAddr, u16), bool) {
    if source {
        ((t.src, t.sport), true)
    } else {
        ((t.dst, t.dport), false)
    }
}

/// A packet's addresses after a rewrite.
pub(super) fn after(packet: &Packet, source: bool, to: (IpAddr, u16)) -> Tuple {
    let mut tuple = mark::tuple(packet);
    set(&mut tuple, source, to);
    tuple
}

fn set(t: &mut Tuple, source: bool, to: (IpAddr, u16)) {
    if source {
        (t.src, t.sport) = to;
    } else {
        (t.dst, t.dport) = to;
    }
}
