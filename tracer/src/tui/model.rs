//! What is known of the trace: flows and packets, bounded, and which of them
//! the filter lets through.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::query::{Query, is_fault};
use crate::trace::outcome::Watched;
use crate::trace::{Closing, Flow, Header, Outcome, Packet, Trace};

/// Packets that a live view keeps; beyond that the oldest that arrived go.
pub(crate) const LIVE_PACKETS: usize = 10_000;

/// A flow and its packets.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) flow: Flow,
    /// Ids in ascending order.
    packets: Vec<u64>,
    /// Those that the filter lets through.
    pub(crate) shown: Vec<u64>,
    /// How many ended badly.
    pub(crate) faults: usize,
}

/// Flows and packets.
#[derive(Debug)]
pub(crate) struct Model {
    pub(crate) header: Header,
    pub(crate) watched: Watched,
    pub(crate) closing: Arc<Closing>,
    limit: usize,
    packets: BTreeMap<u64, Arc<Packet>>,
    flows: BTreeMap<u64, Entry>,
    /// Flows with packets that are shown, in ascending order.
    pub(crate) visible: Vec<u64>,
    filter: Query,
    only_faults: bool,
    /// Packets that the trace has had, those that are not kept included.
    pub(crate) seen: u64,
    /// Packets looked at since the model was made: the work that was done.
    pub(crate) touched: u64,
}

/// A copy that costs little, to be made into a trace elsewhere.
#[derive(Debug)]
pub(crate) struct Snapshot {
    header: Header,
    flows: Vec<Flow>,
    packets: Vec<Arc<Packet>>,
    closing: Arc<Closing>,
}

impl Snapshot {
    /// The whole as a trace.
    pub(crate) fn into_trace(self) -> Trace {
        Trace {
            header: self.header,
            flows: self.flows,
            packets: self.packets.iter().map(|p| Packet::clone(p)).collect(),
            closing: Closing::clone(&self.closing),
        }
    }
}

fn insert(list: &mut Vec<u64>, id: u64) -> bool {
    match list.binary_search(&id) {
        Ok(_) => false,
        Err(at) => {
            list.insert(at, id);
            true
        }
    }
}

fn remove(list: &mut Vec<u64>, id: u64) {
    if let Ok(at) = list.binary_search(&id) {
        list.remove(at);
    }
}

impl Model {
    /// An empty one that keeps at most so many packets.
    pub(crate) fn new(header: Header, limit: usize) -> Self {
        Self {
            watched: Watched::of(&header),
            header,
            closing: Arc::default(),
            limit: limit.max(1),
            packets: BTreeMap::new(),
            flows: BTreeMap::new(),
            visible: Vec::new(),
            filter: Query::default(),
            only_faults: false,
            seen: 0,
            touched: 0,
        }
    }

    /// Takes a whole trace; what is known beyond it stays.
    pub(crate) fn load(&mut self, trace: Trace) {
        self.header = trace.header;
        self.watched = Watched::new(&self.header.nodes);
        self.closing = Arc::new(trace.closing);
        for flow in trace.flows {
            self.flow_seen(flow);
        }
        for packet in trace.packets {
            self.packet_seen(Arc::new(packet));
        }
        self.make_room();
    }

    /// Takes a flow, new or changed.
    pub(crate) fn flow_seen(&mut self, flow: Flow) {
        match self.flows.get_mut(&flow.id) {
            Some(entry) => entry.flow = flow,
            None => {
                self.flows.insert(
                    flow.id,
                    Entry {
                        flow,
                        packets: Vec::new(),
                        shown: Vec::new(),
                        faults: 0,
                    },
                );
            }
        }
    }

    /// Takes a packet, new or changed. Its flow has to be known.
    pub(crate) fn packet_seen(&mut self, packet: Arc<Packet>) {
        self.touched += 1;
        let id = packet.id;
        if !self.flows.contains_key(&packet.flow) {
            return;
        }
        if self.packet(id).is_some_and(|p| p.flow != packet.flow) {
            self.forget(id);
        }
        let Some(entry) = self.flows.get_mut(&packet.flow) else {
            return;
        };
        let shown = Self::lets(&self.filter, self.only_faults, &packet);
        let bad = is_fault(&packet);
        let flow = packet.flow;
        let before = self.packets.insert(id, packet);
        let was_bad = before.is_some_and(|p| is_fault(&p));
        entry.faults = entry.faults + usize::from(bad) - usize::from(was_bad);
        if insert(&mut entry.packets, id) {
            self.seen = self.seen.max(self.packets.len() as u64);
        }
        if shown {
            insert(&mut entry.shown, id);
            insert(&mut self.visible, flow);
        } else {
            remove(&mut entry.shown, id);
            if entry.shown.is_empty() {
                remove(&mut self.visible, flow);
            }
        }
    }

    /// Takes a packet out.
    fn forget(&mut self, id: u64) {
        let Some(packet) = self.packets.remove(&id) else {
            return;
        };
        let Some(entry) = self.flows.get_mut(&packet.flow) else {
            return;
        };
        entry.faults -= usize::from(is_fault(&packet));
        remove(&mut entry.packets, id);
        remove(&mut entry.shown, id);
        if entry.shown.is_empty() {
            remove(&mut self.visible, packet.flow);
        }
    }

    fn lets(filter: &Query, only_faults: bool, packet: &Packet) -> bool {
        (!only_faults || is_fault(packet)) && filter.matches(packet)
    }

    /// Lets go of the oldest, those that arrived first. A tenth at once, so
    /// that it is done rarely.
    pub(crate) fn make_room(&mut self) {
        if self.packets.len() <= self.limit {
            return;
        }
        let mut surplus = self.packets.len() - self.limit + self.limit / 10;
        let mut gone = Vec::with_capacity(surplus);
        for delivered in [true, false] {
            for (id, packet) in &self.packets {
                if surplus > 0 && (packet.outcome == Outcome::Delivered) == delivered {
                    gone.push(*id);
                    surplus -= 1;
                }
            }
        }
        self.touched += self.packets.len() as u64;
        let mut flows = Vec::new();
        for id in &gone {
            if let Some(packet) = self.packets.remove(id) {
                flows.push(packet.flow);
                if is_fault(&packet)
                    && let Some(entry) = self.flows.get_mut(&packet.flow)
                {
                    entry.faults -= 1;
                }
            }
        }
        flows.sort_unstable();
        flows.dedup();
        for flow in flows {
            let packets = &self.packets;
            let Some(entry) = self.flows.get_mut(&flow) else {
                continue;
            };
            entry.packets.retain(|id| packets.contains_key(id));
            entry.shown.retain(|id| packets.contains_key(id));
            if entry.shown.is_empty() {
                remove(&mut self.visible, flow);
            }
            if entry.packets.is_empty() {
                self.flows.remove(&flow);
            }
        }
    }

    /// Shows only what matches.
    pub(crate) fn set_filter(&mut self, filter: Query, only_faults: bool) {
        self.filter = filter;
        self.only_faults = only_faults;
        self.visible.clear();
        for (id, entry) in &mut self.flows {
            let (packets, filter) = (&self.packets, &self.filter);
            entry.shown = entry
                .packets
                .iter()
                .copied()
                .filter(|id| {
                    packets
                        .get(id)
                        .is_some_and(|p| Self::lets(filter, only_faults, p))
                })
                .collect();
            if !entry.shown.is_empty() {
                self.visible.push(*id);
            }
        }
        self.touched += self.packets.len() as u64;
    }

    /// The filter.
    pub(crate) fn filter(&self) -> &Query {
        &self.filter
    }

    /// Whether only what ended badly is shown.
    pub(crate) fn only_faults(&self) -> bool {
        self.only_faults
    }

    /// Whether anything is hidden by the filter.
    pub(crate) fn filtered(&self) -> bool {
        self.only_faults || !self.filter.is_empty()
    }

    /// A packet.
    pub(crate) fn packet(&self, id: u64) -> Option<&Arc<Packet>> {
        self.packets.get(&id)
    }

    /// A flow with its packets.
    pub(crate) fn flow(&self, id: u64) -> Option<&Entry> {
        self.flows.get(&id)
    }

    /// Packets of a flow that are shown.
    pub(crate) fn shown(&self, flow: Option<u64>) -> &[u64] {
        flow.and_then(|id| self.flows.get(&id))
            .map_or(&[], |entry| &entry.shown)
    }

    /// All packets that are kept, in order of first sight.
    pub(crate) fn packets(&self) -> impl DoubleEndedIterator<Item = &Arc<Packet>> {
        self.packets.values()
    }

    /// How many packets are kept.
    pub(crate) fn kept(&self) -> usize {
        self.packets.len()
    }

    /// How many flows are kept.
    pub(crate) fn flow_count(&self) -> usize {
        self.flows.len()
    }

    /// How many of the kept packets are shown.
    pub(crate) fn shown_count(&self) -> usize {
        self.flows.values().map(|e| e.shown.len()).sum()
    }

    /// Whether the filter lets this packet through.
    pub(crate) fn is_shown(&self, packet: &Packet) -> bool {
        Self::lets(&self.filter, self.only_faults, packet)
    }

    /// A copy to work on elsewhere.
    pub(crate) fn snapshot(&self) -> Snapshot {
        Snapshot {
            header: self.header.clone(),
            flows: self.flows.values().map(|e| e.flow.clone()).collect(),
            packets: self.packets.values().map(Arc::clone).collect(),
            closing: Arc::clone(&self.closing),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tui::samples;

    #[test]
    fn a_trace_comes_out_as_it_went_in() {
        let trace = samples::recording("c11");
        let mut model = Model::new(trace.header.clone(), usize::MAX);
        model.load(trace.clone());
        assert_eq!(model.snapshot().into_trace(), trace);
    }

    #[test]
    fn the_filter_holds_for_what_comes_later() {
        let trace = samples::recording("c38");
        let mut model = Model::new(trace.header.clone(), usize::MAX);
        model.set_filter(Query::parse("request").unwrap(), true);
        model.load(trace);
        let later: Vec<u64> = model.visible.clone();
        let shown: Vec<Vec<u64>> = later
            .iter()
            .map(|f| model.shown(Some(*f)).to_vec())
            .collect();
        model.set_filter(Query::default(), false);
        model.set_filter(Query::parse("request").unwrap(), true);
        assert_eq!(model.visible, later);
        for (flow, shown) in later.iter().zip(shown) {
            assert_eq!(model.shown(Some(*flow)), shown);
        }
        assert!(model.shown_count() > 0);
        assert!(model.shown_count() < model.kept());
    }

    #[test]
    fn a_packet_is_in_one_flow_whatever_a_file_says() {
        let mut model = Model::new(samples::header(), 100);
        model.flow_seen(samples::flow(1));
        model.flow_seen(samples::flow(2));
        model.packet_seen(Arc::new(samples::packet(7, 1, true)));
        model.packet_seen(Arc::new(samples::packet(7, 2, true)));
        assert_eq!(model.visible, [2]);
        assert_eq!(model.flow(1).unwrap().faults, 0);
        assert_eq!(model.shown(Some(2)), [7]);
        assert_eq!(model.kept(), 1);
    }

    #[test]
    fn memory_is_bounded_and_faults_stay_longest() {
        let mut model = Model::new(samples::header(), 100);
        model.flow_seen(samples::flow(1));
        for id in 1..=10_000 {
            model.packet_seen(Arc::new(samples::packet(id, 1, id % 500 == 0)));
            model.make_room();
        }
        assert!(model.kept() <= 100);
        let faults = model.packets().filter(|p| is_fault(p)).count();
        assert_eq!(faults, 20);
        assert_eq!(model.flow(1).unwrap().faults, 20);
        assert_eq!(model.shown(Some(1)).len(), model.kept());
    }
}
