//! The flows that are followed, by the kernel side's id.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

use super::flow::Flow;
use super::mark::{self, Tuple};
use crate::event::{Body, Event};

/// A conntrack entry ties two kernel flows together only while it is young:
/// later the same addresses can be another connection.
const TIE_AGE: u64 = 2_000_000_000;

/// Place of a flow.
pub(super) type Slot = u32;

/// What conntrack says of addresses.
#[derive(Clone, Copy, Debug)]
struct Tie {
    slot: Slot,
    /// The flow that was there: another may be by now.
    made: u64,
    since: u64,
}

/// All flows.
#[derive(Debug)]
pub(super) struct Table {
    limit: usize,
    by_id: FxHashMap<u64, Slot>,
    slots: Vec<Flow>,
    free: Vec<Slot>,
    /// In order of making.
    order: VecDeque<Slot>,
    made: u64,
    /// Addresses that conntrack says belong to a flow, and since when.
    ties: FxHashMap<Tuple, Tie>,
}

impl Table {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            limit: limit.max(1),
            by_id: FxHashMap::default(),
            slots: Vec::new(),
            free: Vec::new(),
            order: VecDeque::new(),
            made: 0,
            ties: FxHashMap::default(),
        }
    }

    pub(super) fn get(&mut self, slot: Slot) -> &mut Flow {
        &mut self.slots[slot as usize]
    }

    /// The flow of an event, made where it is new. `evicted` is counted up
    /// where a live flow had to go for it.
    pub(super) fn find(&mut self, event: &Event, evicted: &mut u64) -> Slot {
        if let Some(slot) = self.by_id.get(&event.flow).copied() {
            return self.renew(slot, event, evicted);
        }
        let tuple = request_tuple(event);
        let tied = tuple.and_then(|t| self.ties.get(&t)).filter(|tie| {
            let flow = &self.slots[tie.slot as usize];
            event.ts.saturating_sub(tie.since) < TIE_AGE
                && flow.made == tie.made
                && flow.tuple != tuple
        });
        let slot = if let Some(tie) = tied {
            tie.slot
        } else {
            self.make(tuple, evicted)
        };
        self.slots[slot as usize].ids.push(event.flow);
        self.by_id.insert(event.flow, slot);
        self.renew(slot, event, evicted)
    }

    /// The same addresses and ports can be one connection after another; the
    /// kernel side tags them alike. A SYN with another initial sequence number
    /// is another connection (RFC 9293 section 3.4.1), a retransmitted one
    /// keeps its number.
    fn renew(&mut self, slot: Slot, event: &Event, evicted: &mut u64) -> Slot {
        let Some(seq) = opening(event) else {
            return slot;
        };
        let flow = &mut self.slots[slot as usize];
        if *flow.isn.get_or_insert(seq) == seq {
            return slot;
        }
        flow.ids.retain(|id| *id != event.flow);
        let slot = self.make(request_tuple(event), evicted);
        let flow = &mut self.slots[slot as usize];
        flow.isn = Some(seq);
        flow.ids.push(event.flow);
        self.by_id.insert(event.flow, slot);
        slot
    }

    fn make(&mut self, tuple: Option<Tuple>, evicted: &mut u64) -> Slot {
        if self.order.len() >= self.limit
            && let Some(oldest) = self.oldest()
        {
            let slot = self.order.remove(oldest);
            self.clear(slot);
            *evicted += 1;
        }
        let mut flow = Flow::new();
        self.made += 1;
        flow.made = self.made;
        flow.tuple = tuple;
        let slot = self.free.pop().unwrap_or(self.slots.len() as Slot);
        if slot as usize == self.slots.len() {
            self.slots.push(flow);
        } else {
            self.slots[slot as usize] = flow;
        }
        self.order.push_back(slot);
        slot
    }

    /// Place in `order` of the flow that was quiet for longest among the oldest
    /// few.
    fn oldest(&self) -> Option<usize> {
        let few = self.order.iter().take(16).enumerate();
        few.min_by_key(|(_, s)| self.slots[**s as usize].last_ts)
            .map(|(at, _)| at)
    }

    /// Frees the slot of a flow that is no longer in `order`.
    fn clear(&mut self, slot: Option<Slot>) {
        let Some(slot) = slot else { return };
        let flow = std::mem::replace(&mut self.slots[slot as usize], Flow::new());
        for id in flow.ids {
            self.by_id.remove(&id);
        }
        self.free.push(slot);
    }

    /// Notes that conntrack gives these addresses to the flow.
    pub(super) fn tie(&mut self, slot: Slot, tuples: &[Tuple], ts: u64) {
        let tie = Tie {
            slot,
            made: self.slots[slot as usize].made,
            since: ts,
        };
        for t in tuples {
            self.ties.insert(*t, tie);
        }
    }

    /// Forgets flows that were quiet for `idle`, and ties that are too old.
    pub(super) fn sweep(&mut self, now: u64, idle: u64) {
        self.ties
            .retain(|_, tie| now.saturating_sub(tie.since) < TIE_AGE);
        let quiet = |s: &Slot| now.saturating_sub(self.slots[*s as usize].last_ts) > idle;
        let old: Vec<Slot> = self.order.iter().copied().filter(quiet).collect();
        if !old.is_empty() {
            let slots = &self.slots;
            self.order
                .retain(|s| now.saturating_sub(slots[*s as usize].last_ts) <= idle);
        }
        for slot in old {
            self.clear(Some(slot));
        }
    }
}

/// The initial sequence number, where the event is of a client's SYN.
fn opening(event: &Event) -> Option<u32> {
    const SYN: u8 = 0x02;
    const ACK: u8 = 0x10;
    let packet = event.body.packet()?;
    let syn = packet.proto == mark::TCP && packet.l4_flags & (SYN | ACK) == SYN;
    (syn && !event.reply && !packet.quoted && !packet.truncated).then_some(packet.seq)
}

/// The addresses of the flow's request direction in an event.
fn request_tuple(event: &Event) -> Option<Tuple> {
    let packet = match &event.body {
        Body::Conntrack { original, .. } | Body::NatRange { original, .. } => {
            return Some(*original);
        }
        body => body.packet()?,
    };
    let tuple = mark::tuple(packet);
    Some(if event.reply {
        mark::inverted(&tuple)
    } else {
        tuple
    })
}
