//! A flow as its steps show it: who talks to whom, and how far it got.

use std::borrow::Cow;
use std::collections::VecDeque;

use crate::trace::{Endpoint, Field, Flow, FlowTuple, Step, StepKind};

/// Ranges remembered to recognise what is sent again.
const REMEMBERED: usize = 1024;
/// Five-tuples remembered.
const TUPLES: usize = 64;

/// How well the ends are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Known {
    Nothing,
    /// From a packet of the reply direction.
    Reply,
    /// From a packet of the request direction.
    Request,
    /// From a rewrite or a conntrack entry.
    Translation,
}

#[derive(Clone, Copy, Debug)]
struct Sent {
    reply: bool,
    syn: bool,
    rst: bool,
    start: u32,
    len: u32,
    packet: u64,
    attempt: u32,
}

/// One flow.
#[derive(Clone, Debug)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "independent facts, not a state machine"
)]
pub(super) struct Connection {
    pub(super) flow: Flow,
    /// Packets of it that the fold keeps.
    pub(super) kept: usize,
    known: Known,
    /// Packets by direction.
    packets: [u64; 2],
    /// First sight of the newest packet, by direction.
    newest: [u64; 2],
    /// Highest acknowledgement sent, by direction of the sender.
    acked: [Option<u32>; 2],
    /// End of the highest range sent.
    end: [Option<u32>; 2],
    sent: VecDeque<Sent>,
    syn_ack: bool,
    confirmed: bool,
    fin: [bool; 2],
    rst: bool,
    dropped: bool,
    rejected: bool,
}

impl Connection {
    pub(super) fn new(id: u64, step: &Step) -> Self {
        let (client, server) = if step.reply {
            (&step.dst, &step.src)
        } else {
            (&step.src, &step.dst)
        };
        Self {
            flow: Flow {
                id,
                proto: step.proto.clone(),
                client: client.clone(),
                server: server.clone(),
                backend: None,
                tuples: Vec::new(),
                state: Cow::Borrowed("unanswered"),
            },
            kept: 0,
            known: Known::Nothing,
            packets: [0; 2],
            newest: [0; 2],
            acked: [None; 2],
            end: [None; 2],
            sent: VecDeque::new(),
            syn_ack: false,
            confirmed: false,
            fin: [false; 2],
            rst: false,
            dropped: false,
            rejected: false,
        }
    }

    /// Takes a new packet's first step; answers with which try it is and of
    /// which packet.
    pub(super) fn packet(&mut self, id: u64, step: &Step) -> (u32, Option<u64>) {
        let error = self.is_error(step);
        let dir = usize::from(step.reply);
        if !error {
            self.packets[dir] += 1;
            self.newest[dir] = self.newest[dir].max(step.ts);
        }
        let Some(tcp) = &step.tcp else {
            return (1, None);
        };
        let has = |c| tcp.flags.contains(c);
        let (syn, fin, rst, ack) = (has('S'), has('F'), has('R'), has('.'));
        self.rst |= rst;
        self.fin[dir] |= fin;
        self.syn_ack |= syn && ack;
        self.confirmed |= !syn && !rst && ack && self.packets[1 - dir] > 0;
        if ack && self.acked[dir].is_none_or(|a| after(tcp.ack, a) > 0) {
            self.acked[dir] = Some(tcp.ack);
        }
        let len = step.payload + u32::from(syn) + u32::from(fin);
        if len == 0 {
            return (1, None);
        }
        self.tried(Sent {
            reply: step.reply,
            syn,
            rst,
            start: tcp.seq,
            len,
            packet: id,
            attempt: 1,
        })
    }

    fn tried(&mut self, mut sent: Sent) -> (u32, Option<u64>) {
        let dir = usize::from(sent.reply);
        let end = sent.start.wrapping_add(sent.len);
        let highest = self.end[dir];
        let mut root = None;
        if highest.is_some_and(|h| after(sent.start, h) < 0) {
            let earlier = self.sent.iter().rev().find(|e| {
                let off = after(sent.start, e.start);
                (e.reply, e.syn, e.rst) == (sent.reply, sent.syn, sent.rst)
                    && off >= 0
                    && off < i64::from(e.len)
            });
            if let Some(earlier) = earlier {
                root = Some(earlier.packet);
                sent.attempt = earlier.attempt + 1;
                sent.packet = earlier.packet;
            }
        }
        if highest.is_none_or(|h| after(end, h) > 0) {
            self.end[dir] = Some(end);
        }
        if self.sent.len() == REMEMBERED {
            self.sent.pop_front();
        }
        self.sent.push_back(sent);
        (sent.attempt, root)
    }

    /// An ICMP error about the flow, sent by someone on the way.
    fn is_error(&self, step: &Step) -> bool {
        step.proto != self.flow.proto && step.icmp.is_some()
            || step.icmp.is_some_and(|i| match &*step.proto {
                "icmp" => !matches!(i.kind, 0 | 8 | 13..=18),
                "icmpv6" => i.kind < 128,
                _ => false,
            })
    }

    /// Takes any step.
    pub(super) fn step(&mut self, step: &Step) {
        match step.kind {
            StepKind::Drop => self.dropped = true,
            StepKind::Reject | StepKind::FragmentNeeded => self.rejected = true,
            _ => {}
        }
        if self.is_error(step) && step.tcp.is_none() {
            return;
        }
        if self.flow.proto != step.proto {
            // The first step was of an ICMP error about this flow.
            self.flow.proto.clone_from(&step.proto);
            self.known = Known::Nothing;
        }
        self.ends(step);
        if !step.reply {
            let (src, dst) = (&step.src, &step.dst);
            let seen = |t: &FlowTuple| t.src == *src && t.dst == *dst;
            if self.flow.tuples.len() < TUPLES && !self.flow.tuples.iter().any(seen) {
                self.flow.tuples.push(FlowTuple {
                    src: src.clone(),
                    dst: dst.clone(),
                });
            }
        }
    }

    /// Client, server and backend.
    fn ends(&mut self, step: &Step) {
        if let Some(ct) = &step.conntrack {
            let translated = ct.original.dst != ct.reply.src;
            if translated && self.known < Known::Translation {
                self.know(Known::Translation, &ct.original.src, &ct.original.dst);
                self.flow.backend = Some(ct.reply.src.clone());
            }
        }
        if let Some(rewrite) = &step.rewrite {
            let (server, backend) = match (step.kind, rewrite.field) {
                (StepKind::Dnat, Field::Dst) => (&rewrite.from, &rewrite.to),
                (StepKind::UnDnat, Field::Src) => (&rewrite.to, &rewrite.from),
                _ => return,
            };
            if self.known < Known::Translation {
                let client = if step.reply { &step.dst } else { &step.src };
                let client = if self.known == Known::Request {
                    self.flow.client.clone()
                } else {
                    client.clone()
                };
                self.know(Known::Translation, &client, server);
            }
            // Of several translations the last is where the server runs.
            self.flow.backend = Some(backend.clone());
            return;
        }
        if step.reply && self.known < Known::Reply {
            self.know(Known::Reply, &step.dst, &step.src);
        } else if !step.reply && self.known < Known::Request {
            self.know(Known::Request, &step.src, &step.dst);
        }
    }

    fn know(&mut self, how: Known, client: &Endpoint, server: &Endpoint) {
        self.known = how;
        self.flow.client = client.clone();
        self.flow.server = server.clone();
    }

    /// Whether the other side answered the packet that begins with this step.
    pub(super) fn answers(&self, first: &Step) -> bool {
        let other = usize::from(!first.reply);
        if self.newest[other] <= first.ts || self.is_error(first) {
            return false;
        }
        let Some(tcp) = &first.tcp else { return true };
        let has = |c| tcp.flags.contains(c);
        let end = tcp
            .seq
            .wrapping_add(first.payload)
            .wrapping_add(u32::from(has('S')) + u32::from(has('F')));
        self.acked[other].is_some_and(|a| after(a, end) >= 0)
    }

    /// The flow with its state.
    pub(super) fn flow(&self) -> Flow {
        let both = self.packets[0] > 0 && self.packets[1] > 0;
        let tcp = self.flow.proto == "tcp";
        let open = tcp && both && self.confirmed;
        let state = if open && self.fin[0] && self.fin[1] {
            "closed"
        } else if self.rst {
            "reset"
        } else if self.rejected && !open {
            "rejected"
        } else if open {
            "established"
        } else if both && (!tcp || self.syn_ack) && !self.dropped {
            "answered"
        } else if self.dropped {
            "dropped"
        } else if both {
            "answered"
        } else {
            "unanswered"
        };
        Flow {
            state: Cow::Borrowed(state),
            ..self.flow.clone()
        }
    }
}

/// `a - b` in sequence space (RFC 9293 section 3.4).
fn after(a: u32, b: u32) -> i64 {
    i64::from(a.wrapping_sub(b) as i32)
}
