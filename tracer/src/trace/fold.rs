//! Steps folded into flows and packets. From steps alone, so that a recording
//! gives what the live run gave.

use std::collections::{BTreeMap, BTreeSet};

use super::connection::Connection;
use super::outcome::{LOST_AFTER, UNDER_WAY, Watched, outcome};
use super::summary::summary;
use crate::trace::{Closing, Direction, Flow, Header, Losses, Node, Outcome, Packet, Step, Trace};

/// Quiet time after which a packet is taken for complete.
const QUIET: u64 = 300_000_000;
/// Steps that a packet may have: none has a tenth of it, but a file may say so.
const STEPS: usize = 4096;
/// And after which one that ended is: later steps of it are close behind.
const SETTLED: u64 = 20_000_000;

/// Builds flows and packets.
#[derive(Debug)]
pub struct Fold {
    watched: Watched,
    limit: usize,
    flows: BTreeMap<u64, Connection>,
    packets: BTreeMap<u64, Packet>,
    /// Packets not yet handed out as complete.
    waiting: BTreeSet<u64>,
    now: u64,
    ended: bool,
    /// How long a packet on its way to a watched node is waited for.
    patience: u64,
    forgotten: u64,
    seen: u64,
}

impl Fold {
    /// A fold that keeps everything.
    pub fn new(nodes: &[Node]) -> Self {
        Self::bounded(nodes, usize::MAX)
    }

    /// A fold of a whole trace, which may have been merged, that keeps at most
    /// so many packets.
    pub fn of(header: &Header, packets: usize) -> Self {
        Self {
            watched: Watched::of(header),
            ..Self::bounded(&[], packets)
        }
    }

    /// A fold that keeps at most so many packets: the oldest that are complete
    /// and were delivered go first.
    pub fn bounded(nodes: &[Node], packets: usize) -> Self {
        Self {
            watched: Watched::new(nodes),
            limit: packets.max(1),
            flows: BTreeMap::new(),
            packets: BTreeMap::new(),
            waiting: BTreeSet::new(),
            now: 0,
            ended: false,
            patience: LOST_AFTER,
            forgotten: 0,
            seen: 0,
        }
    }

    /// Takes the next step.
    pub fn push(&mut self, step: Step) {
        self.now = self.now.max(step.ts);
        let (Some(id), Some(flow)) = (step.packet, step.flow) else {
            self.forgotten += 1;
            return;
        };
        let connection = self
            .flows
            .entry(flow)
            .or_insert_with(|| Connection::new(flow, &step));
        let packet = self.packets.entry(id).or_insert_with(|| {
            let (attempt, retransmits) = connection.packet(id, &step);
            self.waiting.insert(id);
            self.seen += 1;
            connection.kept += 1;
            Packet {
                id,
                flow,
                direction: if step.reply {
                    Direction::Reply
                } else {
                    Direction::Request
                },
                summary: summary(&step),
                outcome: Outcome::Pending,
                attempt,
                retransmits,
                steps: Vec::with_capacity(8),
            }
        });
        connection.step(&step);
        if packet.steps.len() < STEPS {
            // Doubling would leave a third of all memory unused.
            if packet.steps.len() == packet.steps.capacity() {
                packet.steps.reserve_exact(packet.steps.len().max(16) / 4);
            }
            packet.steps.push(step);
        } else {
            self.forgotten += 1;
        }
        if self.packets.len() > self.limit {
            self.make_room();
        }
    }

    fn make_room(&mut self) {
        let delivered = |(id, p): (&u64, &Packet)| {
            let done = !self.waiting.contains(id) && p.outcome == Outcome::Delivered;
            done.then_some(*id)
        };
        // A look at the oldest few is enough: most packets are delivered.
        let oldest = self.packets.iter().take(64).find_map(delivered);
        let Some(id) = oldest.or_else(|| self.packets.keys().next().copied()) else {
            return;
        };
        self.forgotten += u64::from(self.waiting.remove(&id));
        let Some(packet) = self.packets.remove(&id) else {
            return;
        };
        let Some(flow) = self.flows.get_mut(&packet.flow) else {
            return;
        };
        flow.kept -= 1;
        if flow.kept == 0 && self.flows.len() > self.limit {
            self.flows.remove(&packet.flow);
        }
    }

    /// Nothing more will come. `at`: when it ended, nanoseconds since the Unix
    /// epoch. Where that is known, what had just left is taken to be under way.
    pub fn finish(&mut self, at: Option<u64>) {
        self.ended = true;
        self.patience = if at.is_some() { UNDER_WAY } else { 0 };
        self.now = self.now.max(at.unwrap_or(0));
        for id in self.packets.keys().copied().collect::<Vec<_>>() {
            self.settle(id);
        }
    }

    /// Packets that became complete by `now_ns`, in order of first sight;
    /// each is told once. After [`Self::finish`], all that are left.
    pub fn complete(&mut self, now_ns: u64) -> Vec<u64> {
        let now = self.now.max(now_ns);
        self.now = now;
        let mut done = Vec::new();
        for id in self.waiting.iter().copied().collect::<Vec<_>>() {
            self.settle(id);
            let Some(packet) = self.packets.get(&id) else {
                continue;
            };
            let quiet = now.saturating_sub(packet.steps.last().map_or(0, |s| s.ts));
            let ended = packet.outcome != Outcome::Pending && quiet >= SETTLED;
            if self.ended || ended || quiet >= QUIET {
                done.push(id);
            }
        }
        for id in &done {
            self.waiting.remove(id);
        }
        done
    }

    fn settle(&mut self, id: u64) {
        let Some(packet) = self.packets.get_mut(&id) else {
            return;
        };
        let Some(flow) = self.flows.get(&packet.flow) else {
            return;
        };
        packet.outcome = outcome(packet, flow, &self.watched, self.now, self.patience);
    }

    /// A packet, with its outcome as of the last [`Self::complete`].
    pub fn packet(&self, id: u64) -> Option<&Packet> {
        self.packets.get(&id)
    }

    /// A flow.
    pub fn flow(&self, id: u64) -> Option<Flow> {
        self.flows.get(&id).map(Connection::flow)
    }

    /// Flows seen so far.
    pub fn flow_count(&self) -> usize {
        self.flows.len()
    }

    /// Packets seen so far, those that were let go included.
    pub fn packet_count(&self) -> u64 {
        self.seen
    }

    /// Packets and steps that a bound cost.
    pub fn forgotten(&self) -> u64 {
        self.forgotten
    }

    /// Addresses of the watched nodes.
    pub fn watched(&self) -> &Watched {
        &self.watched
    }

    /// All flows, in order of first sight.
    pub fn flows(&self) -> impl Iterator<Item = Flow> {
        self.flows.values().map(Connection::flow)
    }

    /// Newest time seen.
    pub fn now(&self) -> u64 {
        self.now
    }

    /// All of it as a trace, without verdict and findings.
    pub fn trace(&self, header: Header, losses: Losses) -> Trace {
        let packets = self.packets.values().cloned().collect();
        self.with(packets, header, losses)
    }

    /// The same, without keeping anything: half the memory.
    pub fn into_trace(mut self, header: Header, losses: Losses) -> Trace {
        let packets = std::mem::take(&mut self.packets).into_values().collect();
        self.with(packets, header, losses)
    }

    fn with(&self, mut packets: Vec<Packet>, header: Header, losses: Losses) -> Trace {
        for packet in &mut packets {
            if let Some(flow) = self.flows.get(&packet.flow) {
                packet.outcome = outcome(packet, flow, &self.watched, self.now, self.patience);
            }
        }
        Trace {
            header,
            flows: self.flows().collect(),
            packets,
            closing: Closing {
                losses,
                ..Closing::default()
            },
        }
    }
}
