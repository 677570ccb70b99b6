//! Which packets of the sources are one, and their new numbers.

use std::collections::BTreeSet;

use rustc_hash::FxHashMap;

use super::flow::Flows;
use super::identity::Pair;
use super::order::Ordered;
use super::overlap::Twice;
use super::source::Source;
use super::visit::Visit;
use crate::trace::Step;

/// Sets of things that are the same.
#[derive(Clone, Debug)]
pub(super) struct Union {
    parent: Vec<usize>,
}

impl Union {
    /// Each by itself.
    pub(super) fn new(count: usize) -> Self {
        Self {
            parent: (0..count).collect(),
        }
    }

    /// The one that stands for its set.
    pub(super) fn root(&mut self, mut of: usize) -> usize {
        while let Some(&parent) = self.parent.get(of).filter(|p| **p != of) {
            let above = self.parent.get(parent).copied().unwrap_or(parent);
            if let Some(entry) = self.parent.get_mut(of) {
                *entry = above;
            }
            of = parent;
        }
        of
    }

    /// Makes two the same.
    pub(super) fn join(&mut self, a: usize, b: usize) {
        let (a, b) = (self.root(a), self.root(b));
        if let Some(entry) = self.parent.get_mut(a.max(b)) {
            *entry = a.min(b);
        }
    }
}

/// Packets of all sources.
pub(super) struct Sets {
    places: FxHashMap<(usize, u64), usize>,
    union: Union,
}

/// The merged timeline.
#[derive(Debug, Default)]
pub(super) struct Numbered {
    pub(super) steps: Vec<Step>,
    pub(super) unsure: BTreeSet<u64>,
}

impl Sets {
    pub(super) fn new(sources: &[Source], visits: &[Visit], pairs: &[Pair], twice: &Twice) -> Self {
        let mut places = FxHashMap::default();
        for (i, source) in sources.iter().enumerate() {
            for packet in source.steps.iter().filter_map(|s| s.packet) {
                let next = places.len();
                places.entry((i, packet)).or_insert(next);
            }
        }
        let mut union = Union::new(places.len());
        let of_visits = pairs.iter().filter_map(|p| {
            let (a, b) = (visits.get(p.from)?, visits.get(p.to)?);
            Some(((a.source, a.packet), (b.source, b.packet)))
        });
        for (a, b) in of_visits.chain(twice.packets.iter().copied()) {
            if let (Some(a), Some(b)) = (places.get(&a), places.get(&b)) {
                union.join(*a, *b);
            }
        }
        Self { places, union }
    }

    /// Takes the steps in their order and numbers packets and flows by first
    /// sight. A packet has the flow of its first step.
    pub(super) fn number(
        mut self,
        sources: &mut [Source],
        ordered: &Ordered,
        flows: &Flows,
        unsure: impl Iterator<Item = (usize, u64)>,
    ) -> Numbered {
        let mut packets: FxHashMap<usize, (u64, u64)> = FxHashMap::default();
        let mut numbers: FxHashMap<usize, u64> = FxHashMap::default();
        let mut taken: Vec<Vec<Option<Step>>> = sources
            .iter_mut()
            .map(|s| std::mem::take(&mut s.steps).into_iter().map(Some).collect())
            .collect();
        let mut steps = Vec::with_capacity(ordered.steps.len());
        for &(source, at) in &ordered.steps {
            let slot = taken.get_mut(source).and_then(|s| s.get_mut(at));
            let Some(mut step) = slot.and_then(Option::take) else {
                continue;
            };
            let (Some(packet), Some(flow)) = (step.packet, step.flow) else {
                continue;
            };
            let Some(place) = self.places.get(&(source, packet)).copied() else {
                continue;
            };
            let (flow, flip) = flows.of(source, flow);
            let root = self.union.root(place);
            let next = packets.len() as u64 + 1;
            let (packet, flow) = *packets.entry(root).or_insert_with(|| {
                let next_flow = numbers.len() as u64 + 1;
                (next, *numbers.entry(flow).or_insert(next_flow))
            });
            step.packet = Some(packet);
            step.flow = Some(flow);
            step.reply ^= flip;
            steps.push(step);
        }
        let unsure = unsure.filter_map(|of| {
            let root = self.union.root(*self.places.get(&of)?);
            packets.get(&root).map(|(id, _)| *id)
        });
        Numbered {
            unsure: unsure.collect(),
            steps,
        }
    }
}
