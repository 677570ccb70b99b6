//! Which packet that arrived is which that left: by its own headers, as they
//! are on the wire between the nodes. The clock alone never decides; it only
//! tells apart what looks the same.

use std::borrow::Cow;
use std::net::IpAddr;

use rustc_hash::{FxHashMap, FxHashSet};

use super::clock::Clocks;
use super::source::Source;
use super::visit::Visit;
use crate::trace::Step;

/// Packets that look alike are compared with each other up to this many pairs.
const COMPARED: usize = 1 << 16;
/// Time between nodes beyond what packets needed that are certain, in
/// nanoseconds.
const SPARE: i64 = 1_000_000;
/// Packets whose bytes are compared with those of one that arrived.
const NEAR: usize = 256;

/// The headers that do not change on the way.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    proto: Cow<'static, str>,
    src: (IpAddr, Option<u16>),
    dst: (IpAddr, Option<u16>),
    ip_id: u32,
    fragment: (Option<u32>, bool),
    tcp: Option<(u32, u32, Cow<'static, str>)>,
    icmp: Option<(u8, u8)>,
    payload: u32,
}

impl Key {
    fn of(step: &Step) -> Self {
        let ip = step.ip.as_ref();
        Self {
            proto: step.proto.clone(),
            src: (step.src.addr, step.src.port),
            dst: (step.dst.addr, step.dst.port),
            ip_id: ip.map_or(0, |ip| ip.id),
            fragment: ip.map_or((None, false), |ip| (ip.frag_offset, ip.more_fragments)),
            tcp: step.tcp.as_ref().map(|t| (t.seq, t.ack, t.flags.clone())),
            icmp: step.icmp.map(|i| (i.kind, i.code)),
            payload: step.payload,
        }
    }
}

/// A packet that left one node and arrived at another, as places in the visits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pair {
    pub(super) from: usize,
    pub(super) to: usize,
}

/// What was recognised.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) pairs: Vec<Pair>,
    /// Visits that packets left from which may have arrived.
    pub(super) unsure: Vec<usize>,
    /// Groups that look alike, not decided yet.
    alike: Vec<(Vec<usize>, Vec<usize>)>,
    by_order: usize,
    /// Packets that left, and arrived, and cannot be told apart.
    undecided: (usize, usize),
}

impl Found {
    /// What is to be said about packets that look alike.
    pub(super) fn notes(&self, notes: &mut Vec<String>) {
        if self.by_order > 0 {
            notes.push(format!(
                "{} packets look exactly like others; as many arrived as left, so they were paired in their order",
                self.by_order
            ));
        }
        let (left, arrived) = self.undecided;
        if left > 0 {
            notes.push(format!(
                "{left} packets that left look exactly like {arrived} that arrived: which is which cannot be told, so they are shown apart, and none of them is called lost"
            ));
        }
    }
}

struct Matcher<'a> {
    visits: &'a [Visit],
    sources: &'a [Source],
    /// Nodes by their addresses.
    owners: FxHashMap<IpAddr, &'a str>,
}

impl<'a> Matcher<'a> {
    fn new(visits: &'a [Visit], sources: &'a [Source]) -> Self {
        let nodes = sources.iter().flat_map(|s| &s.header.nodes);
        let owners = nodes.flat_map(|n| n.addrs.iter().map(|a| (*a, &*n.name)));
        Self {
            visits,
            sources,
            owners: owners.collect(),
        }
    }

    fn left(&self, visit: usize) -> Option<&'a Step> {
        let visit = self.visits.get(visit)?;
        self.sources.get(visit.source)?.steps.get(visit.departure?)
    }

    fn came(&self, visit: usize) -> Option<&'a Step> {
        let visit = self.visits.get(visit)?;
        self.sources.get(visit.source)?.steps.get(visit.arrival?)
    }

    /// Whether what left here may be what came there, headers apart.
    fn may(&self, from: usize, to: usize) -> bool {
        let (Some(a), Some(b)) = (self.left(from), self.came(to)) else {
            return false;
        };
        let (Some(va), Some(vb)) = (self.visits.get(from), self.visits.get(to)) else {
            return false;
        };
        if va.source == vb.source || va.node == vb.node {
            return false;
        }
        let ttl = |s: &Step| s.ip.as_ref().map_or(0, |ip| ip.ttl);
        let Some(tunnel) = &a.tunnel else {
            return ttl(b) <= ttl(a);
        };
        let peer = self.owners.get(&tunnel.dst);
        // Between the ends of a tunnel nobody touches what is inside.
        ttl(a) == ttl(b) && peer.is_none_or(|p| **p == *vb.node)
    }
}

/// Pairs that no other packet could be part of.
pub(super) fn certain(visits: &[Visit], sources: &[Source]) -> Found {
    let matcher = Matcher::new(visits, sources);
    let mut groups: FxHashMap<Key, (Vec<usize>, Vec<usize>)> = FxHashMap::default();
    for i in 0..visits.len() {
        if let Some(step) = matcher.left(i) {
            groups.entry(Key::of(step)).or_default().0.push(i);
        }
        if let Some(step) = matcher.came(i) {
            groups.entry(Key::of(step)).or_default().1.push(i);
        }
    }
    let mut found = Found::default();
    let mut groups: Vec<_> = groups.into_values().collect();
    groups.sort_unstable();
    for (left, came) in groups {
        if left.is_empty() || came.is_empty() {
            continue;
        }
        if left.len() * came.len() > COMPARED {
            found.alike.push((left, came));
            continue;
        }
        let (pairs, rest) = decide(&left, &came, |a, b| matcher.may(a, b));
        found.pairs.extend(pairs);
        found.alike.extend(rest);
    }
    segments(&matcher, &mut found);
    found
}

/// Splits what may belong together into pairs that are the only way, and
/// groups in which there are several.
#[allow(clippy::type_complexity, reason = "two lists of the same places")]
fn decide(
    left: &[usize],
    came: &[usize],
    may: impl Fn(usize, usize) -> bool,
) -> (Vec<Pair>, Vec<(Vec<usize>, Vec<usize>)>) {
    let mut waiting: Vec<usize> = left.to_vec();
    let (mut pairs, mut groups) = (Vec::new(), Vec::new());
    while let Some(first) = waiting.pop() {
        // All that hang together with this one.
        let (mut from, mut to, mut look) = (vec![first], Vec::new(), vec![first]);
        while let Some(a) = look.pop() {
            for &b in came.iter().filter(|b| may(a, **b)) {
                if to.contains(&b) {
                    continue;
                }
                to.push(b);
                let (more, rest): (Vec<usize>, Vec<usize>) =
                    waiting.iter().partition(|a| may(**a, b));
                waiting = rest;
                look.extend(&more);
                from.extend(more);
            }
        }
        match (from.as_slice(), to.as_slice()) {
            (_, []) => {}
            ([from], [to]) => pairs.push(Pair {
                from: *from,
                to: *to,
            }),
            _ => {
                from.sort_unstable();
                to.sort_unstable();
                groups.push((from, to));
            }
        }
    }
    (pairs, groups)
}

/// Decides about packets that look alike, by what the clocks allow.
pub(super) fn alike(found: &mut Found, visits: &[Visit], sources: &[Source], clocks: &Clocks) {
    let matcher = Matcher::new(visits, sources);
    for (left, came) in std::mem::take(&mut found.alike) {
        let near = |a: usize, b: usize| {
            if !matcher.may(a, b) {
                return false;
            }
            let (Some(va), Some(vb)) = (visits.get(a), visits.get(b)) else {
                return false;
            };
            let (Some(sent), Some(got)) = (matcher.left(a), matcher.came(b)) else {
                return false;
            };
            let Some((margin, longest)) = clocks.between(va.source, vb.source) else {
                return true;
            };
            let took = clocks.apply(vb.source, got.ts) - clocks.apply(va.source, sent.ts);
            let latest = longest
                .saturating_mul(2)
                .saturating_add(margin.saturating_add(SPARE));
            (-margin..=latest).contains(&took)
        };
        if left.len() * came.len() > COMPARED {
            found.settle(left, came, visits);
            continue;
        }
        let (pairs, groups) = decide(&left, &came, near);
        found.pairs.extend(pairs);
        for (left, came) in groups {
            found.settle(left, came, visits);
        }
    }
}

impl Found {
    fn settle(&mut self, left: Vec<usize>, came: Vec<usize>, visits: &[Visit]) {
        let one = |list: &[usize]| {
            let mut places = list
                .iter()
                .filter_map(|i| visits.get(*i))
                .map(|v| (v.source, &v.node));
            let first = places.next();
            places.all(|p| Some(p) == first)
        };
        // A network that keeps their order and loses none: the same to anyone.
        if left.len() == came.len() && one(&left) && one(&came) {
            self.by_order += left.len();
            let pairs = left.into_iter().zip(came);
            self.pairs.extend(pairs.map(|(from, to)| Pair { from, to }));
        } else {
            self.undecided.0 += left.len();
            self.undecided.1 += came.len();
            self.unsure.extend(left);
        }
    }
}

/// TCP segments that were cut or put together between the nodes (GSO, GRO):
/// what arrived lies wholly within what left, or the other way round.
fn segments(matcher: &Matcher<'_>, found: &mut Found) {
    type Way = ((IpAddr, Option<u16>), (IpAddr, Option<u16>));
    let way = |s: &Step| ((s.src.addr, s.src.port), (s.dst.addr, s.dst.port));
    let data = |s: &&Step| s.payload > 0 && s.tcp.is_some();
    let mut left: FxHashMap<Way, Vec<(u32, u32, usize)>> = FxHashMap::default();
    let used: FxHashSet<usize> = found.pairs.iter().map(|p| p.from).collect();
    let arrived: FxHashSet<usize> = found.pairs.iter().map(|p| p.to).collect();
    let alike: FxHashSet<usize> = found
        .alike
        .iter()
        .flat_map(|(a, b)| a.iter().chain(b).copied())
        .collect();
    for i in (0..matcher.visits.len()).filter(|i| !used.contains(i) && !alike.contains(i)) {
        if let Some((step, tcp)) = matcher
            .left(i)
            .filter(data)
            .and_then(|s| Some((s, s.tcp.as_ref()?)))
        {
            left.entry(way(step))
                .or_default()
                .push((tcp.seq, step.payload, i));
        }
    }
    for of_way in left.values_mut() {
        of_way.sort_unstable();
    }
    for to in (0..matcher.visits.len()).filter(|i| !arrived.contains(i) && !alike.contains(i)) {
        let Some((step, tcp)) = matcher
            .came(to)
            .filter(data)
            .and_then(|s| Some((s, s.tcp.as_ref()?)))
        else {
            continue;
        };
        let Some(of_way) = left.get(&way(step)) else {
            continue;
        };
        // Packets of 64 KiB at most: those that begin not far from here.
        let low = of_way.partition_point(|(seq, _, _)| *seq < tcp.seq.saturating_sub(1 << 17));
        let near = of_way
            .iter()
            .skip(low)
            .take_while(|(seq, _, _)| *seq <= tcp.seq.saturating_add(step.payload))
            .take(NEAR);
        let inside = |a: (u32, u32), b: (u32, u32)| {
            let off = a.0.wrapping_sub(b.0);
            off <= b.1 && off.saturating_add(a.1) <= b.1
        };
        let mine = (tcp.seq, step.payload);
        let (mut whole, mut parts) = (Vec::new(), Vec::new());
        for &(seq, len, from) in near {
            if !matcher.may(from, to) {
                continue;
            }
            if inside(mine, (seq, len)) {
                whole.push(from);
            } else if inside((seq, len), mine) {
                parts.push(from);
            }
        }
        match (whole.as_slice(), parts.as_slice()) {
            ([from], []) => found.pairs.push(Pair { from: *from, to }),
            // The first is where it began; the bytes of the others came, too.
            ([], [from, rest @ ..]) => {
                found.pairs.push(Pair { from: *from, to });
                found.unsure.extend(rest);
            }
            ([], []) => {}
            (whole, parts) => found.unsure.extend(whole.iter().chain(parts)),
        }
    }
}
