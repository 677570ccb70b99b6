//! Which flows of the sources are one: those that share a packet, else those
//! that were seen under the same addresses and ports at the same time.

use std::net::IpAddr;

use rustc_hash::FxHashMap;

use super::clock::Clocks;
use super::identity::Pair;
use super::sets::Union;
use super::source::Source;
use super::visit::Visit;
use crate::trace::Step;

/// Flows under the same tuple are one when not longer apart than this, in
/// nanoseconds: ports are used again.
const APART: u64 = 5_000_000_000;

/// A tuple in one orientation.
type Tuple = (String, (IpAddr, Option<u16>), (IpAddr, Option<u16>));

/// A flow of a source.
#[derive(Clone, Debug)]
struct Of {
    source: usize,
    from: u64,
    to: u64,
    /// How well it knows who is the client.
    sure: u8,
}

/// Flows of all sources, joined.
#[derive(Debug, Default)]
pub(super) struct Flows {
    places: FxHashMap<(usize, u64), usize>,
    roots: Vec<usize>,
    flips: Vec<bool>,
}

impl Flows {
    /// What a flow of a source is in the whole, and whether its direction has
    /// to be turned.
    pub(super) fn of(&self, source: usize, flow: u64) -> (usize, bool) {
        let Some(place) = self.places.get(&(source, flow)).copied() else {
            return (usize::MAX, false);
        };
        let root = self.roots.get(place).copied().unwrap_or(place);
        (root, self.flips.get(place).copied().unwrap_or(false))
    }
}

/// Joins flows; times are those of one clock.
pub(super) fn join(sources: &[Source], visits: &[Visit], pairs: &[Pair], clocks: &Clocks) -> Flows {
    let mut flows = Flows::default();
    let mut list: Vec<Of> = Vec::new();
    let mut tuples: FxHashMap<Tuple, Vec<(usize, bool)>> = FxHashMap::default();
    for (source, s) in sources.iter().enumerate() {
        for step in &s.steps {
            let Some(flow) = step.flow else { continue };
            let place = *flows.places.entry((source, flow)).or_insert_with(|| {
                list.push(Of {
                    source,
                    from: step.ts,
                    to: step.ts,
                    sure: 0,
                });
                list.len() - 1
            });
            let Some(of) = list.get_mut(place) else {
                continue;
            };
            of.from = of.from.min(step.ts);
            of.to = of.to.max(step.ts);
            of.sure = of.sure.max(sure(step));
            if let Some((tuple, turned)) = tuple(step) {
                let known = tuples.entry(tuple).or_default();
                // Flows under one tuple follow each other: the last is the likeliest.
                if !known.iter().rev().any(|k| *k == (place, turned)) {
                    known.push((place, turned));
                }
            }
        }
    }
    let mut joined = Joined {
        union: Union::new(list.len()),
        members: (0..list.len()).map(|i| vec![i]).collect(),
        links: Vec::new(),
        list: &list,
    };
    for pair in pairs {
        if let Some((a, b, turned)) = link(sources, visits, pair, &flows) {
            joined.join(a, b, turned);
        }
    }
    let mut shared: Vec<_> = tuples
        .into_values()
        .filter(|l| l.len() > 1)
        .map(|same| alone(&same, &list))
        .collect();
    shared.sort_unstable();
    for same in shared {
        for (i, (a, a_turned)) in same.iter().enumerate() {
            for (b, b_turned) in same.iter().skip(i + 1) {
                if together(*a, *b, &list, clocks) {
                    joined.join(*a, *b, a_turned != b_turned);
                }
            }
        }
    }
    let flips = joined.flips();
    flows.roots = (0..list.len()).map(|i| joined.union.root(i)).collect();
    flows.flips = flips;
    flows
}

/// The tuple of a step, the smaller end first, and whether it was turned; none
/// for what errors are about and what has no ports to tell it apart.
fn tuple(step: &Step) -> Option<(Tuple, bool)> {
    let echo = step
        .icmp
        .is_none_or(|i| matches!(i.kind, 0 | 8 | 128 | 129));
    if !echo || step.src.port.is_none() && step.icmp.is_none() {
        return None;
    }
    let (client, server) = if step.reply {
        (&step.dst, &step.src)
    } else {
        (&step.src, &step.dst)
    };
    let (client, server) = ((client.addr, client.port), (server.addr, server.port));
    let turned = server < client;
    let ends = if turned {
        (server, client)
    } else {
        (client, server)
    };
    Some(((step.proto.to_string(), ends.0, ends.1), turned))
}

/// Those flows under a tuple that are the only one of their source: of several
/// nobody knows which is which.
fn alone(same: &[(usize, bool)], list: &[Of]) -> Vec<(usize, bool)> {
    let source = |i: usize| list.get(i).map(|f| f.source);
    let mut counts: FxHashMap<_, usize> = FxHashMap::default();
    for (flow, _) in same {
        *counts.entry(source(*flow)).or_default() += 1;
    }
    let only = |(flow, _): &&(usize, bool)| counts.get(&source(*flow)) == Some(&1);
    same.iter().filter(only).copied().collect()
}

fn together(a: usize, b: usize, list: &[Of], clocks: &Clocks) -> bool {
    let (Some(a), Some(b)) = (list.get(a), list.get(b)) else {
        return false;
    };
    if clocks.between(a.source, b.source).is_none() {
        return true;
    }
    a.from.saturating_sub(APART) <= b.to && b.from.saturating_sub(APART) <= a.to
}

/// Who opened a connection is certain from its first packet, and likely from a
/// translation.
fn sure(step: &Step) -> u8 {
    if step.tcp.as_ref().is_some_and(|t| t.flags.contains('S')) {
        2
    } else {
        u8::from(step.rewrite.is_some() || step.conntrack.is_some())
    }
}

fn link(
    sources: &[Source],
    visits: &[Visit],
    pair: &Pair,
    flows: &Flows,
) -> Option<(usize, usize, bool)> {
    let (from, to) = (visits.get(pair.from)?, visits.get(pair.to)?);
    let left = sources.get(from.source)?.steps.get(from.departure?)?;
    let came = sources.get(to.source)?.steps.get(to.arrival?)?;
    let a = *flows.places.get(&(from.source, left.flow?))?;
    let b = *flows.places.get(&(to.source, came.flow?))?;
    Some((a, b, left.reply != came.reply))
}

struct Joined<'a> {
    union: Union,
    members: Vec<Vec<usize>>,
    /// Two flows that are one, and whether their directions differ.
    links: Vec<(usize, usize, bool)>,
    list: &'a [Of],
}

impl Joined<'_> {
    /// Makes two flows one, unless a source says that they are two.
    fn join(&mut self, a: usize, b: usize, turned: bool) {
        let (one, other) = (self.union.root(a), self.union.root(b));
        if one == other {
            return;
        }
        let source = |i: &usize| self.list.get(*i).map(|f| f.source);
        let of = |root: usize| self.members.get(root).map_or(&[][..], Vec::as_slice);
        if of(one)
            .iter()
            .any(|a| of(other).iter().any(|b| source(a) == source(b)))
        {
            return;
        }
        self.union.join(one, other);
        self.links.push((a, b, turned));
        let (keep, gone) = (one.min(other), one.max(other));
        let moved = self
            .members
            .get_mut(gone)
            .map(std::mem::take)
            .unwrap_or_default();
        if let Some(members) = self.members.get_mut(keep) {
            members.extend(moved);
        }
    }

    /// Which flows have to be turned to agree with the surest of their set.
    fn flips(&self) -> Vec<bool> {
        let mut near: FxHashMap<usize, Vec<(usize, bool)>> = FxHashMap::default();
        for (a, b, turned) in &self.links {
            near.entry(*a).or_default().push((*b, *turned));
            near.entry(*b).or_default().push((*a, *turned));
        }
        let mut flips = vec![false; self.list.len()];
        for members in self.members.iter().filter(|m| m.len() > 1) {
            let sure = |i: &&usize| {
                (
                    self.list.get(**i).map_or(0, |f| f.sure),
                    std::cmp::Reverse(**i),
                )
            };
            let Some(best) = members.iter().max_by_key(sure) else {
                continue;
            };
            let (mut seen, mut look) = (vec![*best], vec![*best]);
            while let Some(at) = look.pop() {
                let turned = flips.get(at).copied().unwrap_or(false);
                for (other, differs) in near.get(&at).into_iter().flatten() {
                    if seen.contains(other) {
                        continue;
                    }
                    if let Some(flip) = flips.get_mut(*other) {
                        *flip = turned ^ differs;
                    }
                    seen.push(*other);
                    look.push(*other);
                }
            }
        }
        flips
    }
}
