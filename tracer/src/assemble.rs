//! Events become steps: which packet of which flow each event is of, and what
//! must have happened between two of them.
//!
//! A pure stage: no I/O and no clock. Time comes with the events and with
//! [`Assembler::tick`]. Memory is bounded by [`Limits`]; what a bound costs is
//! counted in [`Assembler::losses`].

use std::collections::VecDeque;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::event::{Body, CtTuple, Event, Namer, Packet};
use crate::trace::{Losses, Step};

use build::At;
use flow::{Flow, Open};
use identity::{Part, Sight};
use point::{Point, Points};
use table::{Slot, Table};

mod build;
mod conntrack;
mod flow;
mod identity;
mod mark;
mod passage;
mod point;
mod rewrite;
mod seen;
pub mod synthetic;
mod table;
#[cfg(test)]
pub(crate) mod tests;

/// How long an observed encapsulation waits for its ports.
const ENCAP_WAIT: u64 = 300_000_000;
/// How long an skb, or a conntrack entry that waits for its packet, is kept.
const SKB_AGE: u64 = 2_000_000_000;

/// Bounds on memory.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Flows remembered at a time.
    pub flows: usize,
    /// Packets per flow that more may be seen of.
    pub open_packets: usize,
    /// The same of all flows together.
    pub all_open: usize,
    /// Steps of one packet.
    pub steps: u32,
    /// Quiet time after which a flow is forgotten, in nanoseconds.
    pub idle: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            flows: 16_384,
            open_packets: 512,
            all_open: 32_768,
            steps: 512,
            idle: 180_000_000_000,
        }
    }
}

/// The stage.
pub struct Assembler {
    table: Table,
    core: Core,
    swept: u64,
}

/// All but the flows.
struct Core {
    limits: Limits,
    namer: Arc<dyn Namer + Send + Sync>,
    points: Points,
    /// The packet that each skb was last.
    skbs: FxHashMap<u64, SkbUse>,
    /// Conntrack entries that wait for the observation they came with.
    held: FxHashMap<u64, Vec<conntrack::Held>>,
    /// Encapsulations that wait for their ports.
    encaps: Vec<(u64, Slot, u64)>,
    /// Packets in order of opening, those let go meanwhile included.
    opened: VecDeque<(Slot, u64)>,
    packets: u64,
    flows: u64,
    losses: Losses,
    parts: Vec<Part>,
}

impl Core {
    /// Forgets a flow's oldest packet.
    fn let_go(&mut self, flow: &mut Flow, now: u64) {
        // A young packet that did not end may still be on its way.
        const YOUNG: u64 = 10_000_000;
        if let Some(old) = flow.forget_oldest()
            && !old.done
            && now.saturating_sub(old.last_ts) < YOUNG
        {
            self.losses.user_space += 1;
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct SkbUse {
    slot: Slot,
    packet: u64,
    ts: u64,
}

impl Assembler {
    /// An assembler that has seen nothing.
    pub fn new(limits: Limits, namer: Arc<dyn Namer + Send + Sync>) -> Self {
        Self {
            table: Table::new(limits.flows),
            core: Core {
                limits,
                namer,
                points: Points::default(),
                skbs: FxHashMap::default(),
                held: FxHashMap::default(),
                encaps: Vec::new(),
                opened: VecDeque::new(),
                packets: 0,
                flows: 0,
                losses: Losses::default(),
                parts: Vec::new(),
            },
            swept: 0,
        }
    }

    /// What the bounds cost so far.
    pub fn losses(&self) -> Losses {
        self.core.losses
    }

    /// Packets made so far.
    pub fn packets(&self) -> u64 {
        self.core.packets
    }

    /// Takes the next event, in order of time, and adds the steps it makes.
    pub fn push(&mut self, event: Event, out: &mut Vec<Step>) {
        let slot = if event.flow == 0 {
            // Recognised by its skb alone, or not at all.
            let Some(used) = self.core.skbs.get(&event.skb) else {
                self.core.losses.other += 1;
                return;
            };
            used.slot
        } else {
            self.table.find(&event, &mut self.core.losses.user_space)
        };
        let Event {
            ts,
            skb,
            reply,
            node,
            iface,
            role,
            len,
            mark,
            body,
            ..
        } = event;
        let at = At {
            ts,
            skb,
            reply,
            node,
            iface,
            role,
            len,
            mark,
        };
        if let Body::Conntrack {
            original, reply, ..
        } = &body
            && (original.src != reply.dst || original.dst != reply.src)
        {
            self.table
                .tie(slot, &[*original, mark::inverted(reply)], ts);
        }
        // A packet may be dropped before its entry is confirmed.
        if let Body::Nat {
            packet,
            to,
            source,
            done: false,
            ..
        } = &body
            && !(reply || packet.quoted)
        {
            let after = rewrite::after(packet, *source, *to);
            self.table.tie(slot, &[after], ts);
        }
        let flow = self.table.get(slot);
        flow.last_ts = flow.last_ts.max(ts);
        let ctx = &mut Context {
            core: &mut self.core,
            flow,
            slot,
            out,
        };
        ctx.take(&at, body);
        while self.core.opened.len() > self.core.limits.all_open.max(1) {
            let Some((slot, id)) = self.core.opened.pop_front() else {
                break;
            };
            let flow = self.table.get(slot);
            // The slot may be another flow's by now; ids are never used again.
            if flow.open.front().is_some_and(|open| open.id == id) {
                self.core.let_go(flow, ts);
            }
        }
    }

    /// Tells that it is `now_ns`: what waited in vain is let go.
    pub fn tick(&mut self, now_ns: u64, out: &mut Vec<Step>) {
        self.flush_encaps(now_ns, ENCAP_WAIT, out);
        if now_ns.saturating_sub(self.swept) < 1_000_000_000 {
            return;
        }
        self.swept = now_ns;
        self.table.sweep(now_ns, self.core.limits.idle);
        let young = |ts: u64| now_ns.saturating_sub(ts) < SKB_AGE;
        self.core.skbs.retain(|_, used| young(used.ts));
        self.core
            .held
            .retain(|_, held| held.iter().any(|h| young(h.at.ts)));
    }

    /// Nothing more will come.
    pub fn finish(&mut self, out: &mut Vec<Step>) {
        self.flush_encaps(u64::MAX, 0, out);
    }

    fn flush_encaps(&mut self, now: u64, wait: u64, out: &mut Vec<Step>) {
        let waiting = std::mem::take(&mut self.core.encaps);
        for (ts, slot, id) in waiting {
            if now.saturating_sub(ts) < wait {
                self.core.encaps.push((ts, slot, id));
                continue;
            }
            let flow = self.table.get(slot);
            if let Some(i) = flow.index(id) {
                let mut ctx = Context {
                    core: &mut self.core,
                    flow,
                    slot,
                    out,
                };
                ctx.release_encap(i, None);
            }
        }
    }
}

/// One event's surroundings.
struct Context<'a> {
    core: &'a mut Core,
    flow: &'a mut Flow,
    slot: Slot,
    out: &'a mut Vec<Step>,
}

impl Context<'_> {
    fn take(&mut self, at: &At, body: Body) {
        match body {
            Body::Seen {
                ingress,
                packet,
                tunnel,
                ..
            } => {
                self.seen(at, &packet, ingress, tunnel.as_ref());
            }
            Body::Nat {
                packet,
                to,
                source,
                ct,
                masquerade,
                done,
                ..
            } => {
                let nat = rewrite::Nat {
                    to,
                    source,
                    ct,
                    masquerade,
                };
                if done {
                    self.rewritten(at, &packet, nat);
                } else {
                    self.rewrite(at, &packet, nat);
                }
            }
            Body::Conntrack {
                how,
                original,
                reply,
                ct,
                status,
                mark,
                zone,
                masquerade,
            } => {
                let entry = conntrack::Held {
                    at: at.clone(),
                    how,
                    original,
                    reply,
                    ct,
                    status,
                    mark,
                    zone,
                    masquerade,
                };
                self.conntrack(entry);
            }
            Body::NatRange {
                original,
                ct,
                source,
                masquerade,
                ..
            } => {
                self.asked(at, &original, ct, source && masquerade);
            }
            Body::Chain { chain, .. } => self.chain(at, chain),
            body => self.passage(at, body),
        }
    }

    /// Finds the packets that an observation is of, and makes those that are
    /// new. The answer's `open` is always filled in; hand it back with
    /// [`Self::done_with`].
    fn locate(&mut self, at: &At, packet: &Packet, point: Option<Point>) -> Vec<Part> {
        self.make_room(at.ts);
        let by_skb = self
            .core
            .skbs
            .get(&at.skb)
            .filter(|u| at.skb != 0 && u.slot == self.slot);
        let sight = Sight {
            ts: at.ts,
            reply: at.reply,
            packet,
            point,
            by_skb: by_skb.map(|u| u.packet),
        };
        let mut parts = std::mem::take(&mut self.core.parts);
        identity::divide(self.flow, &sight, &mut parts);
        for part in &mut parts {
            let open = match part.open {
                Some(open) => open,
                None => self.open(at.ts, at.reply, &build::clip(packet, part.from, part.to)),
            };
            part.open = Some(open);
            let open = &mut self.flow.open[open];
            open.last_ts = open.last_ts.max(at.ts);
        }
        if at.skb != 0
            && let Some(open) = parts.first().and_then(|p| p.open)
        {
            let packet = self.flow.open[open].id;
            self.core.skbs.insert(
                at.skb,
                SkbUse {
                    slot: self.slot,
                    packet,
                    ts: at.ts,
                },
            );
        }
        parts
    }

    fn done_with(&mut self, parts: Vec<Part>) {
        self.core.parts = parts;
    }

    fn open(&mut self, ts: u64, reply: bool, packet: &Packet) -> usize {
        if self.flow.number.is_none() {
            self.core.flows += 1;
            self.flow.number = Some(self.core.flows);
        }
        self.core.packets += 1;
        let id = self.core.packets;
        self.core.opened.push_back((self.slot, id));
        self.flow.open(Open {
            id,
            first: *packet,
            range: mark::range(packet),
            reply,
            last_ts: ts,
            passes: Vec::with_capacity(8),
            last: None,
            dropped: None,
            done: false,
            steps: 0,
            announced: None,
            chains: Vec::new(),
            encap: None,
            encapped: None,
        })
    }

    fn make_room(&mut self, now: u64) {
        while self.flow.open.len() >= self.core.limits.open_packets.max(1) {
            self.core.let_go(self.flow, now);
        }
        if self.core.skbs.len() > self.core.limits.flows.max(1024) * 4 {
            self.core
                .skbs
                .retain(|_, used| now.saturating_sub(used.ts) < 10_000_000);
        }
    }

    /// Hands out a step of the packet at `open`.
    fn emit(&mut self, open: usize, mut step: Step) {
        let packet = &mut self.flow.open[open];
        packet.steps += 1;
        if packet.steps > self.core.limits.steps {
            self.core.losses.user_space += 1;
            return;
        }
        step.packet = Some(packet.id);
        step.flow = self.flow.number;
        if step.conntrack.is_none()
            && let Some(told) = self.flow.untold.take()
        {
            step.conntrack = Some(told);
        }
        self.out.push(step);
    }

    fn builder(&mut self) -> build::Builder<'_> {
        build::Builder {
            flow: self.flow,
            namer: &*self.core.namer,
        }
    }

    /// Whether an address is the node's own.
    fn owns(&self, node: &Arc<str>, addr: std::net::IpAddr) -> bool {
        match self.core.namer.node_of(addr) {
            Some(owner) => owner == *node && self.core.namer.is_node(addr),
            None => self.core.namer.is_node(addr),
        }
    }
}

/// A packet with other addresses.
fn with_tuple(packet: &Packet, t: &CtTuple) -> Packet {
    Packet {
        src: t.src,
        sport: t.sport,
        dst: t.dst,
        dport: t.dport,
        ..*packet
    }
}
