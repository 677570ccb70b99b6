//! What is remembered of a flow and of its packets that are still about.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;

use super::mark::{self, Range, Tuple};
use super::point::{NodeId, Point};
use crate::event::{Namer, Packet};
use crate::trace::{Conntrack, Endpoint, Role, Step, Tunnel};

/// Endpoints remembered per flow, and conntrack entries.
const REMEMBERED: usize = 16;

/// A range that was seen at a point, relative to the packet's start.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pass {
    pub(super) point: Point,
    pub(super) from: u32,
    pub(super) to: u32,
    pub(super) ttl: u8,
}

/// Where a packet was last.
#[derive(Clone, Debug)]
pub(super) struct Last {
    pub(super) node: NodeId,
    pub(super) iface: Arc<str>,
    /// Left the stack there.
    pub(super) egress: bool,
    /// Where exactly, if at an interface.
    pub(super) point: Option<Point>,
    /// The tunnel that it was in.
    pub(super) tunnel: Option<Tunnel>,
    pub(super) role: Role,
    /// Addresses as they should look at the next hook.
    pub(super) tuple: Tuple,
}

/// A packet that more may be seen of.
#[derive(Debug)]
pub(super) struct Open {
    pub(super) id: u64,
    /// Headers at first sight.
    pub(super) first: Packet,
    pub(super) range: Range,
    pub(super) reply: bool,
    pub(super) last_ts: u64,
    pub(super) passes: Vec<Pass>,
    pub(super) last: Option<Last>,
    pub(super) dropped: Option<u64>,
    /// Reached a pod, or ended otherwise.
    pub(super) done: bool,
    pub(super) steps: u32,
    /// The announced rewrite that is to be confirmed: source or not, to what.
    pub(super) announced: Option<(bool, IpAddr, u16)>,
    /// Chains entered since the last netfilter hook.
    pub(super) chains: Vec<Arc<str>>,
    /// An observed encapsulation that still lacks its ports.
    pub(super) encap: Option<Box<Step>>,
    /// Node whose encapsulation was observed.
    pub(super) encapped: Option<NodeId>,
}

impl Open {
    /// Whether anything was seen at the point.
    pub(super) fn passed(&self, point: Point) -> bool {
        self.passes.iter().any(|p| p.point == point)
    }

    /// Whether all of `from..to` was seen at the point, with no lower TTL now:
    /// a packet that comes by again with a lower one is caught in a loop, one
    /// with the same is sent again.
    pub(super) fn passed_all(&self, point: Point, from: u32, to: u32, ttl: u8) -> bool {
        let mut at = from;
        for p in self.passes.iter().filter(|p| p.point == point) {
            if from == to || (p.from <= at && p.to > at) {
                if ttl < p.ttl {
                    return false;
                }
                if from == to {
                    return true;
                }
                at = p.to;
            }
        }
        from < to && at >= to
    }

    /// Remembers that `from..to` was seen at the point.
    pub(super) fn pass(&mut self, point: Point, from: u32, to: u32, ttl: u8) {
        for p in self.passes.iter_mut().filter(|p| p.point == point) {
            if p.from <= to && from <= p.to {
                p.from = p.from.min(from);
                p.to = p.to.max(to);
                p.ttl = ttl;
                return;
            }
        }
        let at = self
            .passes
            .partition_point(|p| (p.point, p.from) <= (point, from));
        self.passes.insert(
            at,
            Pass {
                point,
                from,
                to,
                ttl,
            },
        );
    }
}

/// A conntrack entry of the flow.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) node: NodeId,
    pub(super) ct: u64,
    pub(super) original: Tuple,
    /// The request as it looks after translation.
    pub(super) translated: Tuple,
    pub(super) masquerade: bool,
    /// Its `conntrack-new` step was made.
    pub(super) told: bool,
}

/// One flow.
#[derive(Debug)]
pub(super) struct Flow {
    /// Which flow of the table's this is, from 1.
    pub(super) made: u64,
    /// From 1, given at the first packet.
    pub(super) number: Option<u64>,
    /// The kernel side's ids for it.
    pub(super) ids: Vec<u64>,
    /// The request's addresses at first sight.
    pub(super) tuple: Option<Tuple>,
    pub(super) last_ts: u64,
    /// The client's initial sequence number (TCP, once its SYN was seen).
    pub(super) isn: Option<u32>,
    /// In order of first sight.
    pub(super) open: VecDeque<Open>,
    /// Their signatures, apart so that a scan stays in few cache lines.
    pub(super) marks: VecDeque<u64>,
    /// End of the highest range seen, by direction.
    pub(super) end: [Option<u32>; 2],
    pub(super) fragments: bool,
    pub(super) entries: Vec<Entry>,
    /// A dumped entry that the next step is to tell.
    pub(super) untold: Option<Box<Conntrack>>,
    endpoints: Vec<(u16, Endpoint)>,
}

impl Flow {
    pub(super) fn new() -> Self {
        Self {
            made: 0,
            number: None,
            ids: Vec::new(),
            tuple: None,
            last_ts: 0,
            isn: None,
            open: VecDeque::new(),
            marks: VecDeque::new(),
            end: [None; 2],
            fragments: false,
            entries: Vec::new(),
            untold: None,
            endpoints: Vec::new(),
        }
    }

    /// Place of a packet in `open`.
    pub(super) fn index(&self, id: u64) -> Option<usize> {
        self.open.binary_search_by_key(&id, |p| p.id).ok()
    }

    /// The endpoint with its name, remembered.
    pub(super) fn endpoint(
        &mut self,
        namer: &dyn Namer,
        addr: IpAddr,
        port: u16,
        proto: u8,
    ) -> Endpoint {
        if let Some((_, e)) = self
            .endpoints
            .iter()
            .find(|(p, e)| *p == port && e.addr == addr)
        {
            return e.clone();
        }
        let endpoint = namer.endpoint(addr, has_ports(proto).then_some(port));
        if self.endpoints.len() == REMEMBERED {
            self.endpoints.remove(0);
        }
        self.endpoints.push((port, endpoint.clone()));
        endpoint
    }

    /// Remembers a conntrack entry.
    pub(super) fn learn(&mut self, entry: Entry) -> &mut Entry {
        let known = self
            .entries
            .iter()
            .position(|e| e.node == entry.node && e.original == entry.original);
        let at = if let Some(at) = known {
            let e = &mut self.entries[at];
            e.translated = entry.translated;
            e.masquerade |= entry.masquerade;
            e.ct = entry.ct;
            at
        } else {
            if self.entries.len() == REMEMBERED {
                self.entries.remove(0);
            }
            self.entries.push(entry);
            self.entries.len() - 1
        };
        &mut self.entries[at]
    }

    /// Whether a masquerade of this flow is known on the node.
    pub(super) fn masquerades(&self, node: NodeId, ct: u64) -> bool {
        self.entries
            .iter()
            .any(|e| e.masquerade && (e.node == node || (ct != 0 && e.ct == ct)))
    }

    /// Opens a packet.
    pub(super) fn open(&mut self, open: Open) -> usize {
        self.marks.push_back(mark::signature(&open.first));
        let dir = usize::from(open.reply);
        let end = open.range.start.wrapping_add(open.range.len);
        if mark::is_tcp(&open.first) && self.end[dir].is_none_or(|e| mark::seq_diff(end, e) > 0) {
            self.end[dir] = Some(end);
        }
        self.fragments |= mark::is_fragment(&open.first);
        self.open.push_back(open);
        self.open.len() - 1
    }

    /// Forgets the oldest packet.
    pub(super) fn forget_oldest(&mut self) -> Option<Open> {
        self.marks.pop_front();
        let oldest = self.open.pop_front();
        if self.open.is_empty() {
            // A quiet flow may stay for long; its room for packets need not.
            self.open = VecDeque::new();
            self.marks = VecDeque::new();
        }
        oldest
    }
}

/// Whether the protocol has ports.
pub(super) fn has_ports(proto: u8) -> bool {
    // TCP, UDP, DCCP, SCTP, UDP-Lite.
    matches!(proto, 6 | 17 | 33 | 132 | 136)
}
