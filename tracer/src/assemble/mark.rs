//! The marks that tell one packet from another, and sequence arithmetic.

use std::hash::Hasher;

use rustc_hash::FxHasher;

use crate::event::{CtTuple, Packet};

/// `IPPROTO_TCP`.
pub(super) const TCP: u8 = 6;

pub(super) const FIN: u8 = 1;
pub(super) const SYN: u8 = 1 << 1;
pub(super) const RST: u8 = 1 << 2;

/// The addresses and ports that an observation showed.
pub(super) type Tuple = CtTuple;

/// The tuple in a packet's headers.
pub(super) fn tuple(packet: &Packet) -> Tuple {
    Tuple {
        src: packet.src,
        sport: packet.sport,
        dst: packet.dst,
        dport: packet.dport,
        proto: packet.proto,
    }
}

/// The tuple of the other direction.
pub(super) fn inverted(t: &Tuple) -> Tuple {
    Tuple {
        src: t.dst,
        sport: t.dport,
        dst: t.src,
        dport: t.sport,
        proto: t.proto,
    }
}

/// Whether this is a TCP segment with its header in sight.
pub(super) fn is_tcp(packet: &Packet) -> bool {
    packet.proto == TCP && !packet.quoted && !packet.truncated && !is_fragment(packet)
}

/// Whether this is a fragment of a datagram.
pub(super) fn is_fragment(packet: &Packet) -> bool {
    packet.frag_offset != 0 || packet.more_fragments
}

/// A half-open range of sequence space, or of a datagram's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Range {
    /// First byte.
    pub(super) start: u32,
    /// Length; SYN and FIN count as a byte each (RFC 9293 section 3.4).
    pub(super) len: u32,
}

/// The range that a packet takes up; of length 0 where it takes none.
pub(super) fn range(packet: &Packet) -> Range {
    if is_tcp(packet) {
        let ends = u32::from(packet.l4_flags & SYN != 0) + u32::from(packet.l4_flags & FIN != 0);
        Range {
            start: packet.seq,
            len: packet.payload_len + ends,
        }
    } else {
        Range { start: 0, len: 0 }
    }
}

/// `a - b` in sequence space: negative where `a` comes before `b`
/// (RFC 9293 section 3.4: compare modulo 2^32).
pub(super) fn seq_diff(a: u32, b: u32) -> i64 {
    i64::from(a.wrapping_sub(b) as i32)
}

/// Hash over all that stays the same from hook to hook. Addresses and ports
/// do not (NAT), nor does the TTL.
pub(super) fn signature(p: &Packet) -> u64 {
    let mut h = FxHasher::default();
    h.write_u64(u64::from(p.seq) << 32 | u64::from(p.ack));
    h.write_u64(u64::from(p.payload_len) << 32 | u64::from(p.payload_hash));
    let small = u64::from(p.proto) << 16 | u64::from(p.l4_flags) << 8 | u64::from(p.quoted);
    h.write_u64(u64::from(p.ip_id) << 32 | small);
    h.write_u64(u64::from(p.frag_offset) << 1 | u64::from(p.more_fragments));
    h.finish()
}

/// Whether two observations can be of the same segment or datagram, where
/// something else (the skb) says that they may be.
pub(super) fn agree(first: &Packet, now: &Packet) -> bool {
    if first.proto != now.proto || first.quoted != now.quoted {
        return false;
    }
    if is_fragment(first) || is_fragment(now) {
        return first.ip_id == now.ip_id;
    }
    if is_tcp(first) && is_tcp(now) {
        let (a, b) = (range(first), range(now));
        return kin(first, now)
            && a.start == b.start
            && (a.len == 0) == (b.len == 0)
            && (a.len > 0 || first.ack == now.ack);
    }
    if first.truncated || now.truncated {
        return true;
    }
    first.ip_id == now.ip_id
        && first.payload_len == now.payload_len
        && first.payload_hash == now.payload_hash
        && first.l4_flags == now.l4_flags
        && first.seq == now.seq
}

/// Whether two TCP segments can be parts of each other: SYN and RST never
/// merge with anything else (`tcp_gro_receive`, `net/ipv4/tcp_offload.c`).
pub(super) fn kin(a: &Packet, b: &Packet) -> bool {
    (a.l4_flags ^ b.l4_flags) & (SYN | RST) == 0
}
