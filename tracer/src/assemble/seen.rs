//! Observations at interfaces, and what must have happened before them.

use std::borrow::Cow;
use std::sync::Arc;

use super::flow::{Last, Open};
use super::point::{Act, NodeId, Point};
use super::{At, Context, build, mark};
use crate::event::Packet;
use crate::trace::{Role, Step, StepKind, Tunnel};

/// An observation at an interface, for one of the packets it is of.
struct View<'a> {
    at: &'a At,
    packet: Packet,
    ingress: bool,
    tunnel: Option<&'a Tunnel>,
    point: Point,
    node: NodeId,
}

impl Context<'_> {
    pub(super) fn seen(
        &mut self,
        at: &At,
        packet: &Packet,
        ingress: bool,
        tunnel: Option<&Tunnel>,
    ) {
        let act = Act::Seen {
            ingress,
            tunnelled: tunnel.is_some(),
        };
        let (point, node) = self.core.points.get(&at.node, &at.iface, act);
        let parts = self.locate(at, packet, Some(point));
        let merged = (parts.len() > 1).then_some(parts.len() as u32);
        for part in &parts {
            let Some(open) = part.open else { continue };
            let packet = build::clip(packet, part.from, part.to);
            let view = View {
                at,
                packet,
                ingress,
                tunnel,
                point,
                node,
            };
            self.seen_part(open, &view, merged);
        }
        self.done_with(parts);
    }

    fn seen_part(&mut self, open: usize, view: &View, merged: Option<u32>) {
        // Only the first part of a packet that passes tells what happened
        // before: the rest of it comes by while the first is further on.
        let first = !self.flow.open[open].passed(view.point);
        if first {
            self.before(open, view);
        }
        let kind = if view.ingress {
            StepKind::Ingress
        } else {
            StepKind::Egress
        };
        let mut step = self.builder().step(view.at, &view.packet, kind);
        step.tunnel = view.tunnel.cloned();
        step.merged = merged;
        self.emit(open, step);
        let packet = &mut self.flow.open[open];
        let (from, to) = passed_range(packet, &view.packet);
        packet.pass(view.point, from, to, view.packet.ttl);
        if first {
            packet.last = Some(Last {
                node: view.node,
                iface: Arc::clone(&view.at.iface),
                egress: !view.ingress,
                point: Some(view.point),
                tunnel: view.tunnel.cloned(),
                role: view.at.role,
                tuple: mark::tuple(&view.packet),
            });
        }
        packet.done |= matches!(
            (view.at.role, view.ingress),
            (Role::PodVeth, false) | (Role::PodEth0, true)
        );
    }

    /// What must have happened since the last observation, in its order:
    /// out of the tunnel, rewrites, conntrack entry, into the tunnel.
    fn before(&mut self, open: usize, view: &View) {
        if let Some(step) = self.decap(open, view) {
            self.emit(open, step);
        }
        let held = self.held(view.at, view.node);
        if !view.packet.quoted {
            if !self.changed(open, view.at, &view.packet, view.node) && !view.ingress {
                self.translated(open, view.at, &view.packet, view.node, held.is_some());
            }
            if let Some(held) = held {
                self.entry_of(open, &held, &view.packet);
            }
        }
        if self.flow.open[open].encap.is_some() {
            self.release_encap(open, view.tunnel);
        } else if let Some(step) = self.encap(open, view) {
            self.emit(open, step);
        }
    }

    fn encap(&mut self, open: usize, view: &View) -> Option<Step> {
        let tunnel = view.tunnel.filter(|_| !view.ingress)?;
        let packet = &self.flow.open[open];
        let last = packet.last.as_ref()?;
        if last.node != view.node || last.tunnel.is_some() || packet.encapped == Some(view.node) {
            return None;
        }
        let (iface, role) = if last.role == Role::Tunnel {
            (Arc::clone(&last.iface), Role::Tunnel)
        } else {
            (Arc::from(""), Role::Other)
        };
        let from = self.core.points.phrase(None, view.point, || {
            format!("outer header first seen at egress {}", view.at.iface)
        });
        Some(self.through(view, StepKind::Encap, (iface, role), tunnel.clone(), from))
    }

    fn decap(&mut self, open: usize, view: &View) -> Option<Step> {
        let last = self.flow.open[open].last.as_ref()?;
        if view.tunnel.is_some() || last.egress || last.node != view.node {
            return None;
        }
        let tunnel = last.tunnel.clone()?;
        let place = if view.at.role == Role::Tunnel {
            (Arc::clone(&view.at.iface), Role::Tunnel)
        } else {
            (Arc::from(""), Role::Other)
        };
        let from = self.core.points.phrase(last.point, view.point, || {
            let way = if view.ingress { "ingress" } else { "egress" };
            let (was, is) = (&last.iface, &view.at.iface);
            format!("outer header gone between ingress {was} and {way} {is}")
        });
        Some(self.through(view, StepKind::Decap, place, tunnel, from))
    }

    fn through(
        &mut self,
        view: &View,
        kind: StepKind,
        (iface, role): (Arc<str>, Role),
        tunnel: Tunnel,
        from: &'static str,
    ) -> Step {
        let at = At {
            iface,
            role,
            ..view.at.clone()
        };
        let mut step = self.builder().step(&at, &view.packet, kind);
        step.tunnel = Some(tunnel);
        step.inferred = true;
        step.from = Some(Cow::Borrowed(from));
        step
    }

    /// Hands out an observed encapsulation, with the ports that the next
    /// observation shows.
    pub(super) fn release_encap(&mut self, open: usize, tunnel: Option<&Tunnel>) {
        let Some(mut step) = self.flow.open[open].encap.take() else {
            return;
        };
        if let (Some(mine), Some(seen)) = (&mut step.tunnel, tunnel) {
            mine.sport = mine.sport.filter(|p| *p != 0).or(seen.sport);
            mine.dport = mine.dport.filter(|p| *p != 0).or(seen.dport);
            mine.vni = mine.vni.or(seen.vni);
        }
        self.emit(open, *step);
    }
}

/// The packet's bytes that an observation of a part of it shows.
pub(super) fn passed_range(open: &Open, packet: &Packet) -> (u32, u32) {
    if mark::is_fragment(packet) {
        return (packet.frag_offset, packet.frag_offset + 1);
    }
    let range = mark::range(packet);
    let from = mark::seq_diff(range.start, open.range.start).max(0) as u32;
    if range.len == 0 {
        (0, 0)
    } else {
        (from, from + range.len)
    }
}
