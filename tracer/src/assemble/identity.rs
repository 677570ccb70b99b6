//! Which packet an observation is of.
//!
//! In this order: the packet that this skb was last, if its marks agree; the
//! packet with the very same marks; for TCP, the packets whose bytes these
//! are. A packet passes a point once, so what was already seen there is sent
//! again: a packet of its own (`trace::fold` ties it to the first).

use super::flow::{Flow, Open};
use super::mark::{self, Range};
use super::point::Point;
use crate::event::Packet;

/// How long after its last observation a packet can be recognised by its skb.
const SKB_AGE: u64 = 2_000_000_000;
/// And by its marks.
const MARK_AGE: u64 = 5_000_000_000;
/// A clone of a dropped packet may go on for this long; then it is a retry.
const CLONE_AGE: u64 = 1_000_000;

/// A part of an observation that belongs to one packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    /// The packet, as its place in `Flow::open`; none where it is new.
    pub(super) open: Option<usize>,
    /// First byte, relative to the observation's start.
    pub(super) from: u32,
    /// End.
    pub(super) to: u32,
}

/// An observation to be matched.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sight<'a> {
    pub(super) ts: u64,
    pub(super) reply: bool,
    pub(super) packet: &'a Packet,
    /// Where it can be seen only once; none where it may be seen again.
    pub(super) point: Option<Point>,
    /// The packet that this skb was last.
    pub(super) by_skb: Option<u64>,
}

impl Sight<'_> {
    fn within(&self, open: &Open, age: u64) -> bool {
        open.reply == self.reply
            && self.ts.saturating_sub(open.last_ts) < age
            && open
                .dropped
                .is_none_or(|at| self.ts.saturating_sub(at) < CLONE_AGE)
    }

    /// Whether the packet has passed the point with all of these bytes.
    fn passed(&self, open: &Open, from: u32, to: u32) -> bool {
        self.point
            .is_some_and(|p| open.passed_all(p, from, to, self.packet.ttl))
    }
}

/// Divides an observation among the packets it is of.
pub(super) fn divide(flow: &Flow, sight: &Sight, parts: &mut Vec<Part>) {
    parts.clear();
    let range = mark::range(sight.packet);
    let likely = likely(flow, sight, range);
    if range.len == 0 || likely.is_some_and(|i| covers(&flow.open[i], range)) {
        let open = likely.or_else(|| fragment_of(flow, sight));
        parts.push(Part {
            open,
            from: 0,
            to: range.len,
        });
        return;
    }
    let dir = usize::from(sight.reply);
    let fresh = flow.end[dir].is_none_or(|end| mark::seq_diff(range.start, end) >= 0);
    if fresh && likely.is_none() {
        parts.push(Part {
            open: None,
            from: 0,
            to: range.len,
        });
        return;
    }
    by_bytes(flow, sight, range, likely, parts);
}

fn covers(open: &Open, range: Range) -> bool {
    let off = mark::seq_diff(range.start, open.range.start);
    off >= 0 && off + i64::from(range.len) <= i64::from(open.range.len)
}

/// The packet that skb or marks point at and that has not passed here.
fn likely(flow: &Flow, sight: &Sight, range: Range) -> Option<usize> {
    let by_skb = sight.by_skb.and_then(|id| flow.index(id)).filter(|&i| {
        let open = &flow.open[i];
        sight.within(open, SKB_AGE)
            && mark::agree(&open.first, sight.packet)
            && !sight.passed(
                open,
                at_fragment(sight.packet),
                end(sight.packet, range, open),
            )
    });
    by_skb.or_else(|| {
        let wanted = mark::signature(sight.packet);
        let found = flow.marks.iter().rposition(|m| *m == wanted)?;
        // The rest is newest first as well.
        (0..=found)
            .rev()
            .filter(|&i| flow.marks[i] == wanted)
            .find(|&i| {
                let open = &flow.open[i];
                sight.within(open, MARK_AGE)
                    && !sight.passed(
                        open,
                        at_fragment(sight.packet),
                        end(sight.packet, range, open),
                    )
            })
    })
}

/// Fragments stand in a packet's passes by their offset.
fn at_fragment(packet: &Packet) -> u32 {
    packet.frag_offset
}

fn end(packet: &Packet, range: Range, open: &Open) -> u32 {
    if packet.frag_offset > 0 || packet.more_fragments {
        packet.frag_offset + 1
    } else {
        range.len.min(open.range.len)
    }
}

/// The datagram that a fragment is of, or that is whole again.
fn fragment_of(flow: &Flow, sight: &Sight) -> Option<usize> {
    let packet = sight.packet;
    let fragment = mark::is_fragment(packet);
    if packet.ip_id == 0 || !(fragment || flow.fragments) {
        return None;
    }
    (0..flow.open.len()).rev().find(|&i| {
        let open = &flow.open[i];
        open.first.ip_id == packet.ip_id
            && open.first.proto == packet.proto
            && open.first.quoted == packet.quoted
            && (fragment || mark::is_fragment(&open.first))
            && sight.within(open, MARK_AGE)
            && !sight.passed(
                open,
                packet.frag_offset,
                if fragment { packet.frag_offset + 1 } else { 0 },
            )
    })
}

/// Gives every byte to the newest packet that has it and has not passed here
/// with it; bytes that no packet has become new packets.
fn by_bytes(
    flow: &Flow,
    sight: &Sight,
    range: Range,
    likely: Option<usize>,
    parts: &mut Vec<Part>,
) {
    let mut left = vec![(0, range.len)];
    let mut unknown = vec![(0, range.len)];
    let order = likely
        .into_iter()
        .chain((0..flow.open.len()).rev().filter(|i| Some(*i) != likely));
    for i in order {
        if left.is_empty() {
            break;
        }
        let open = &flow.open[i];
        if open.range.len == 0 || !mark::kin(&open.first, sight.packet) {
            continue;
        }
        let off = mark::seq_diff(open.range.start, range.start);
        let (lo, hi) = (
            off.max(0),
            (off + i64::from(open.range.len)).min(range.len.into()),
        );
        if lo >= hi || !sight.within(open, MARK_AGE) {
            continue;
        }
        let (lo, hi) = (lo as u32, hi as u32);
        subtract(&mut unknown, lo, hi);
        let mut mine = overlap(&left, lo, hi);
        if let Some(point) = sight.point {
            for pass in open.passes.iter().filter(|p| p.point == point) {
                let from = (off + i64::from(pass.from)).max(0);
                let to = (off + i64::from(pass.to)).max(0);
                subtract(&mut mine, from as u32, to as u32);
            }
        }
        for (from, to) in mine {
            subtract(&mut left, from, to);
            parts.push(Part {
                open: Some(i),
                from,
                to,
            });
        }
    }
    if parts.is_empty() {
        parts.push(Part {
            open: None,
            from: 0,
            to: range.len,
        });
        return;
    }
    for (lo, hi) in left {
        for (from, to) in overlap(&unknown, lo, hi) {
            parts.push(Part {
                open: None,
                from,
                to,
            });
        }
    }
    parts.sort_unstable_by_key(|p| p.from);
}

fn overlap(ranges: &[(u32, u32)], lo: u32, hi: u32) -> Vec<(u32, u32)> {
    ranges
        .iter()
        .map(|&(a, b)| (a.max(lo), b.min(hi)))
        .filter(|(a, b)| a < b)
        .collect()
}

fn subtract(ranges: &mut Vec<(u32, u32)>, lo: u32, hi: u32) {
    if lo >= hi || ranges.iter().all(|&(a, b)| hi <= a || b <= lo) {
        return;
    }
    *ranges = ranges
        .iter()
        .flat_map(|&(a, b)| [(a, b.min(lo)), (a.max(hi), b)])
        .filter(|(a, b)| a < b)
        .collect();
}
