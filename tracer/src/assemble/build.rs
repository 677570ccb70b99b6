//! Events' words turned into a step's.

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;

use super::flow::{Flow, has_ports};
use super::mark::{self, TCP, Tuple};
use crate::event::{Answer, CtTuple, Namer, Packet};
use crate::trace::{
    self, Conntrack, Endpoint, Field, Icmp, Ip, Rewrite, Role, Step, StepKind, Tcp,
};

/// An event without its body.
#[derive(Clone, Debug)]
pub(super) struct At {
    pub(super) ts: u64,
    pub(super) skb: u64,
    pub(super) reply: bool,
    pub(super) node: Arc<str>,
    pub(super) iface: Arc<str>,
    pub(super) role: Role,
    pub(super) len: u32,
    pub(super) mark: u32,
}

/// Name of an IP protocol.
pub(super) fn proto_name(proto: u8) -> Cow<'static, str> {
    match proto {
        1 => Cow::Borrowed("icmp"),
        6 => Cow::Borrowed("tcp"),
        17 => Cow::Borrowed("udp"),
        33 => Cow::Borrowed("dccp"),
        47 => Cow::Borrowed("gre"),
        50 => Cow::Borrowed("esp"),
        58 => Cow::Borrowed("icmpv6"),
        132 => Cow::Borrowed("sctp"),
        136 => Cow::Borrowed("udplite"),
        n => Cow::Owned(n.to_string()),
    }
}

/// TCP flags as tcpdump writes them.
pub(super) fn tcp_flags(flags: u8) -> Cow<'static, str> {
    Cow::Borrowed(match flags {
        0x02 => "S",
        0x12 => "S.",
        0x10 => ".",
        0x18 => "P.",
        0x11 => "F.",
        0x19 => "FP.",
        0x04 => "R",
        0x14 => "R.",
        0xc2 => "SEW",
        0x52 => "S.E",
        0x90 => ".W",
        0x98 => "P.W",
        0 => "none",
        _ => {
            // Order of `tcp_flag_values`, print-tcp.c of tcpdump.
            let letters = [(1, 'F'), (2, 'S'), (4, 'R'), (8, 'P'), (16, '.'), (32, 'U')];
            let ecn = [(64, 'E'), (128, 'W')];
            let set = |(bit, _): &&(u8, char)| flags & bit != 0;
            return letters
                .iter()
                .chain(&ecn)
                .filter(set)
                .map(|(_, c)| *c)
                .collect();
        }
    })
}

/// Makes steps of one flow.
pub(super) struct Builder<'a> {
    pub(super) flow: &'a mut Flow,
    pub(super) namer: &'a dyn Namer,
}

impl Builder<'_> {
    pub(super) fn endpoint(&mut self, addr: IpAddr, port: u16, proto: u8) -> Endpoint {
        self.flow.endpoint(self.namer, addr, port, proto)
    }

    /// A step with all that the headers tell.
    pub(super) fn step(&mut self, at: &At, packet: &Packet, kind: StepKind) -> Step {
        let mut src = self.endpoint(packet.src, packet.sport, packet.proto);
        let mut dst = self.endpoint(packet.dst, packet.dport, packet.proto);
        let v6 = packet.src.is_ipv6();
        let mut proto = packet.proto;
        let mut icmp = None;
        if packet.quoted {
            // The error goes to the sender of the packet that it quotes.
            std::mem::swap(&mut src, &mut dst);
            proto = if v6 { 58 } else { 1 };
            icmp = Some(icmp_error(
                packet.l4_flags,
                packet.seq as u8,
                packet.ack,
                v6,
            ));
        } else if (proto == 1 || proto == 58) && !packet.truncated && packet.frag_offset == 0 {
            icmp = Some(Icmp {
                kind: packet.l4_flags,
                code: 0,
                mtu: None,
            });
        }
        let headers = !packet.quoted && packet.frag_offset == 0 && !packet.truncated;
        Step {
            packet: None,
            flow: self.flow.number,
            ts: at.ts,
            node: Arc::clone(&at.node),
            iface: Arc::clone(&at.iface),
            role: (!at.iface.is_empty()).then_some(at.role),
            kind,
            reply: at.reply,
            src,
            dst,
            proto: proto_name(proto),
            len: at.len,
            payload: packet.payload_len,
            tcp: (headers && proto == TCP).then(|| Tcp {
                flags: tcp_flags(packet.l4_flags),
                seq: packet.seq,
                ack: packet.ack,
            }),
            ip: Some(Ip {
                id: packet.ip_id,
                ttl: packet.ttl,
                frag_offset: (packet.frag_offset > 0).then_some(packet.frag_offset),
                more_fragments: packet.more_fragments,
            }),
            icmp,
            tunnel: None,
            rewrite: None,
            rule: None,
            drop: None,
            conntrack: None,
            route: None,
            hook: None,
            merged: None,
            inferred: false,
            from: None,
        }
    }

    /// A rewrite; `before` is the packet's tuple before it.
    pub(super) fn rewrite(
        &mut self,
        at: &At,
        packet: &Packet,
        before: &Tuple,
        kind: StepKind,
        to: (IpAddr, u16),
    ) -> Step {
        let mut now = *packet;
        (now.src, now.sport, now.dst, now.dport) =
            (before.src, before.sport, before.dst, before.dport);
        let mut step = self.step(at, &now, kind);
        let to = self.endpoint(to.0, to.1, packet.proto);
        let side = match kind {
            StepKind::Dnat | StepKind::UnSnat => Field::Dst,
            _ => Field::Src,
        };
        let field = if side == Field::Dst {
            &mut step.dst
        } else {
            &mut step.src
        };
        let from = std::mem::replace(field, to.clone());
        step.rewrite = Some(Box::new(Rewrite {
            field: side,
            from,
            to,
        }));
        step
    }

    /// A conntrack entry.
    pub(super) fn conntrack(
        &mut self,
        original: &CtTuple,
        reply: &CtTuple,
        zone: u16,
        mark: u32,
    ) -> Conntrack {
        let mut both = |t: &CtTuple| trace::CtTuple {
            src: self.endpoint(t.src, t.sport, t.proto),
            dst: self.endpoint(t.dst, t.dport, t.proto),
        };
        Conntrack {
            original: both(original),
            reply: both(reply),
            zone,
            mark,
        }
    }
}

/// A step's `icmp` for an error.
fn icmp_error(kind: u8, code: u8, info: u32, v6: bool) -> Icmp {
    // RFC 1191 section 4: type 3 code 4; RFC 4443 section 3.2: type 2.
    let too_big = if v6 {
        kind == 2
    } else {
        kind == 3 && code == 4
    };
    Icmp {
        kind,
        code,
        mtu: (too_big && info > 0).then_some(info),
    }
}

/// The step that an answer makes, with the ICMP error that is sent.
pub(super) fn answered(answer: Answer) -> (StepKind, Option<Icmp>) {
    match answer {
        Answer::TcpReset { .. } | Answer::RuleReset => (StepKind::Reject, None),
        Answer::Icmp {
            kind,
            code,
            info,
            v6,
        } => {
            let too_big = if v6 {
                kind == 2
            } else {
                kind == 3 && code == 4
            };
            let step = if too_big {
                StepKind::FragmentNeeded
            } else {
                StepKind::Reject
            };
            (step, Some(icmp_error(kind, code, info, v6)))
        }
    }
}

/// The kind of a rewrite.
pub(super) fn rewrite_kind(source: bool, reply: bool, masquerade: bool) -> StepKind {
    match (source, reply) {
        (false, false) => StepKind::Dnat,
        (true, false) if masquerade => StepKind::Masquerade,
        (true, false) => StepKind::Snat,
        (true, true) => StepKind::UnDnat,
        (false, true) => StepKind::UnSnat,
    }
}

/// The part of a segment that belongs to one packet.
pub(super) fn clip(packet: &Packet, from: u32, to: u32) -> Packet {
    let whole = mark::range(packet);
    if whole.len == 0 || (from == 0 && to == whole.len) {
        return *packet;
    }
    let syn = u32::from(packet.l4_flags & mark::SYN != 0);
    let fin = u32::from(packet.l4_flags & mark::FIN != 0);
    let last = to == whole.len;
    let first = from == 0;
    let mut part = *packet;
    part.seq = packet.seq.wrapping_add(from);
    let virtual_bytes = if first { syn } else { 0 } + if last { fin } else { 0 };
    part.payload_len = (to - from).saturating_sub(virtual_bytes);
    if !last {
        part.l4_flags &= !mark::FIN;
    }
    if !first {
        part.l4_flags &= !mark::SYN;
    }
    part
}

/// Whether the protocol of a flow's packets can carry a translation of ports.
pub(super) fn same_place(a: (IpAddr, u16), b: (IpAddr, u16), proto: u8) -> bool {
    a.0 == b.0 && (a.1 == b.1 || !has_ports(proto))
}
