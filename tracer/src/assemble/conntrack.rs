//! Conntrack entries: attached to the packet that made them.

use std::borrow::Cow;
use std::sync::Arc;

use super::build::At;
use super::flow::Entry;
use super::mark;
use super::point::NodeId;
use super::{Context, SKB_AGE, with_tuple};
use crate::event::{CtSource, CtTuple, IPS_CONFIRMED, Packet};
use crate::trace::StepKind;

/// Chains remembered between two netfilter hooks.
const LONGEST_PATH: usize = 64;

/// A conntrack event; it may wait for the observation that it came with.
#[derive(Clone, Debug)]
pub(super) struct Held {
    pub(super) at: At,
    pub(super) how: CtSource,
    pub(super) original: CtTuple,
    pub(super) reply: CtTuple,
    pub(super) ct: u64,
    pub(super) status: u32,
    pub(super) mark: u32,
    pub(super) zone: u16,
    pub(super) masquerade: bool,
}

impl Context<'_> {
    pub(super) fn conntrack(&mut self, held: Held) {
        if held.how == CtSource::Destroyed {
            return;
        }
        let node = self.core.points.node(&held.at.node);
        self.flow.learn(Entry {
            node,
            ct: held.ct,
            original: held.original,
            translated: mark::inverted(&held.reply),
            masquerade: held.masquerade,
            told: false,
        });
        match held.how {
            CtSource::Destroyed => {}
            CtSource::Dumped => {
                let Held {
                    original,
                    reply,
                    zone,
                    mark,
                    ..
                } = held;
                let told = self.builder().conntrack(&original, &reply, zone, mark);
                // The first node's entry knows the addresses the client used.
                if self.flow.untold.is_none() || told.original.dst != told.reply.src {
                    self.flow.untold = Some(Box::new(told));
                }
            }
            CtSource::Confirmed => match self.confirmed_packet(&held, node) {
                Some((open, packet)) => self.entry_of(open, &held, &packet),
                None => self.hold(held),
            },
            CtSource::Carried => self.hold(held),
        }
    }

    /// A rule asked for a translation: only MASQUERADE is worth knowing, the
    /// rest is in the entry.
    pub(super) fn asked(&mut self, at: &At, original: &CtTuple, ct: u64, masquerade: bool) {
        let node = self.core.points.node(&at.node);
        if masquerade {
            self.flow.learn(Entry {
                node,
                ct,
                original: *original,
                translated: *original,
                masquerade,
                told: false,
            });
        }
    }

    /// The packet that this skb is, if it is still inside the node.
    fn confirmed_packet(&self, held: &Held, node: NodeId) -> Option<(usize, Packet)> {
        let used = self
            .core
            .skbs
            .get(&held.at.skb)
            .filter(|u| u.slot == self.slot)?;
        if held.at.skb == 0 || held.at.ts.saturating_sub(used.ts) > SKB_AGE {
            return None;
        }
        let open = self.flow.index(used.packet)?;
        let packet = &self.flow.open[open];
        let last = packet.last.as_ref()?;
        let inside = last.node == node && !last.egress && packet.dropped.is_none();
        inside.then(|| (open, with_tuple(&packet.first, &last.tuple)))
    }

    fn hold(&mut self, held: Held) {
        let waiting = self.core.held.entry(held.at.skb).or_default();
        waiting.retain(|h| h.at.node != held.at.node);
        waiting.push(held);
    }

    /// The entry that waited for this observation.
    pub(super) fn held(&mut self, at: &At, node: NodeId) -> Option<Held> {
        if self.core.held.is_empty() {
            return None;
        }
        let waiting = self.core.held.remove(&at.skb)?;
        let now = at.ts;
        let mut held = waiting.into_iter().find(|h| {
            self.core.points.node(&h.at.node) == node && now.saturating_sub(h.at.ts) < SKB_AGE
        })?;
        // Read off this observation, and shown with what else follows from it.
        held.at.ts = now;
        Some(held)
    }

    /// Makes the `conntrack-new` step, once per node.
    pub(super) fn entry_of(&mut self, open: usize, held: &Held, packet: &Packet) {
        let node = self.core.points.node(&held.at.node);
        let carried = held.how == CtSource::Carried;
        if carried && held.status & IPS_CONFIRMED == 0 {
            return;
        }
        let same = |e: &&mut Entry| e.node == node && e.original == held.original;
        if let Some(entry) = self.flow.entries.iter_mut().find(same) {
            if carried && entry.told {
                return;
            }
            entry.told = true;
        }
        let mut builder = self.builder();
        let mut step = builder.step(&held.at, packet, StepKind::ConntrackNew);
        step.conntrack = Some(Box::new(builder.conntrack(
            &held.original,
            &held.reply,
            held.zone,
            held.mark,
        )));
        if carried {
            step.inferred = true;
            step.from = Some(Cow::Borrowed(
                "confirmed conntrack entry carried by the packet",
            ));
        }
        self.emit(open, step);
    }

    /// A chain was entered: told by the netfilter hook's step.
    pub(super) fn chain(&mut self, at: &At, chain: Arc<str>) {
        let used = self.core.skbs.get(&at.skb).filter(|u| u.slot == self.slot);
        let open = used.and_then(|u| self.flow.index(u.packet));
        let Some(open) = open else {
            self.core.losses.other += 1;
            return;
        };
        let chains = &mut self.flow.open[open].chains;
        if !chain.is_empty() && chains.len() < LONGEST_PATH {
            chains.push(chain);
        }
    }
}
