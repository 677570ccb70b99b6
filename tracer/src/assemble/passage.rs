//! What happens to a packet between interfaces: netfilter hooks, routing,
//! delivery, encapsulation, answers and the end.

use std::borrow::Cow;
use std::sync::Arc;

use super::build::{At, answered};
use super::mark;
use super::point::Act;
use super::seen::passed_range;
use super::{Context, build};
use crate::event::{Body, Packet};
use crate::trace::{Drop, Hook, Route, Rule, Step, StepKind, Tunnel};

impl Context<'_> {
    pub(super) fn passage(&mut self, at: &At, body: Body) {
        let Some(packet) = body.packet().copied() else {
            return;
        };
        if let Body::Encap { tunnel, .. } = body {
            self.encapsulated(at, &packet, &tunnel);
            return;
        }
        let parts = self.locate(at, &packet, None);
        let merged = (parts.len() > 1).then_some(parts.len() as u32);
        let node = self.core.points.node(&at.node);
        for part in &parts {
            let Some(open) = part.open else { continue };
            let packet = build::clip(&packet, part.from, part.to);
            self.release_encap(open, None);
            if matches!(body, Body::Route { .. } | Body::Deliver { .. }) {
                self.changed(open, at, &packet, node);
                if let Some(last) = &mut self.flow.open[open].last
                    && last.node == node
                {
                    last.tuple = mark::tuple(&packet);
                }
            }
            let mut step = self.passage_step(open, at, &packet, &body);
            step.merged = merged;
            let ended = step.kind == StepKind::Drop;
            self.emit(open, step);
            let known = &mut self.flow.open[open];
            known.done |= ended || matches!(body, Body::Deliver { .. });
            if ended && known.dropped.is_none() {
                known.dropped = Some(at.ts);
            }
        }
        self.done_with(parts);
    }

    fn passage_step(&mut self, open: usize, at: &At, packet: &Packet, body: &Body) -> Step {
        let mut builder = self.builder();
        match body {
            Body::Drop {
                reason,
                function,
                hook,
                tunnel,
                ..
            } => {
                let mut step = builder.step(at, packet, StepKind::Drop);
                step.tunnel.clone_from(tunnel);
                // An nft rule drops inside its table: the chains up to there.
                let chains = std::mem::take(&mut self.flow.open[open].chains);
                if let Some(hook) = hook.filter(|_| !chains.is_empty()) {
                    step.hook = Some(Box::new(Hook {
                        hook: Cow::Borrowed(hook),
                        table: None,
                        verdict: Cow::Borrowed("DROP"),
                        mark: at.mark,
                        chains,
                    }));
                }
                step.drop = Some(Box::new(Drop {
                    reason: reason.clone(),
                    function: Arc::clone(function),
                    hook: hook.map(Cow::Borrowed),
                }));
                step
            }
            Body::Answer {
                function,
                answer,
                hook,
                tunnel,
                ..
            } => {
                let (kind, icmp) = answered(*answer);
                let mut step = builder.step(at, packet, kind);
                step.tunnel.clone_from(tunnel);
                step.icmp = icmp;
                step.drop = Some(Box::new(Drop {
                    reason: None,
                    function: Arc::from(*function),
                    hook: hook.map(Cow::Borrowed),
                }));
                step
            }
            Body::Hook {
                hook,
                table,
                verdict,
                mark_after,
                ..
            } => {
                let mut step = builder.step(at, packet, StepKind::Hook);
                step.hook = Some(Box::new(Hook {
                    hook: Cow::Borrowed(hook),
                    table: table.clone(),
                    verdict: Cow::Borrowed(verdict),
                    mark: mark_after.unwrap_or(at.mark),
                    chains: std::mem::take(&mut self.flow.open[open].chains),
                }));
                step
            }
            Body::Log { prefix, .. } => {
                let mut step = builder.step(at, packet, StepKind::Policy);
                step.rule = Some(Box::new(Rule {
                    policy: Some(Arc::clone(prefix)),
                    from: Some(Cow::Borrowed("logged by the rule (nf_log_packet)")),
                    ..Rule::default()
                }));
                step
            }
            Body::Route { dev, via, kind, .. } => {
                let mut step = builder.step(at, packet, StepKind::Route);
                step.route = Some(Box::new(Route {
                    dev: Arc::clone(dev),
                    via: *via,
                    table: None,
                    kind: Some(Cow::Borrowed(kind)),
                }));
                step
            }
            _ => builder.step(at, packet, StepKind::Deliver),
        }
    }

    /// An encapsulation; it waits for the next observation if its ports are
    /// not yet chosen.
    fn encapsulated(&mut self, at: &At, packet: &Packet, tunnel: &Tunnel) {
        let (point, node) = self.core.points.get(&at.node, &at.iface, Act::Encap);
        let parts = self.locate(at, packet, Some(point));
        for part in &parts {
            let Some(open) = part.open else { continue };
            let packet = build::clip(packet, part.from, part.to);
            self.changed(open, at, &packet, node);
            self.release_encap(open, None);
            let mut step = self.builder().step(at, &packet, StepKind::Encap);
            step.tunnel = Some(Tunnel {
                sport: tunnel.sport.filter(|p| *p != 0),
                dport: tunnel.dport.filter(|p| *p != 0),
                ..tunnel.clone()
            });
            let whole = tunnel.kind == "ipip" || tunnel.sport.is_some_and(|p| p != 0);
            let known = &mut self.flow.open[open];
            let (from, to) = passed_range(known, &packet);
            known.pass(point, from, to, packet.ttl);
            known.encapped = Some(node);
            if let Some(last) = &mut known.last
                && last.node == node
            {
                last.tuple = mark::tuple(&packet);
            }
            if whole {
                self.emit(open, step);
            } else {
                let id = known.id;
                known.encap = Some(Box::new(step));
                self.core.encaps.push((at.ts, self.slot, id));
            }
        }
        self.done_with(parts);
    }
}
