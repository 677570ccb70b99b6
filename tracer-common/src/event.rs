//! Records in the ring buffer: a fixed header, then a payload by kind.

use crate::tuple::{Addr, Tuple};

/// What an event's payload is. Explicit ids: recordings of raw events and
/// counters refer to them.
pub mod kind {
    /// [`super::PacketEvent`]: entered the stack at an interface (tc ingress).
    pub const INGRESS: u8 = 1;
    /// [`super::PacketEvent`]: left the stack at an interface (tc egress).
    pub const EGRESS: u8 = 2;
    /// [`super::NatEvent`]: `nf_nat_manip_pkt` is about to rewrite.
    pub const NAT: u8 = 3;
    /// [`super::NatEvent`]: `nf_nat_manip_pkt` has rewritten (`--deep`); `pkt`
    /// is the packet after it.
    pub const NAT_DONE: u8 = 4;
    /// [`super::ConntrackEvent`]: the entry was confirmed.
    pub const CT_CONFIRMED: u8 = 5;
    /// [`super::ConntrackEvent`]: the entry that a packet carried at a tc hook.
    pub const CT_CARRIED: u8 = 6;
    /// [`super::ConntrackEvent`]: the entry is being deleted.
    pub const CT_DESTROYED: u8 = 7;
    /// [`super::NatRangeEvent`]: a rule asked for a translation.
    pub const NAT_RANGE: u8 = 8;
    /// [`super::DropEvent`]: the `kfree_skb` tracepoint.
    pub const DROP: u8 = 9;
    /// [`super::AnswerEvent`]: an RST or ICMP error is about to be sent.
    pub const ANSWER: u8 = 10;
    /// [`super::HookEvent`]: a netfilter hook gave its verdict (`--deep`).
    pub const HOOK: u8 = 11;
    /// [`super::HookEvent`]: one table gave its verdict (`--deep`).
    pub const TABLE: u8 = 12;
    /// [`super::ChainEvent`]: an nft rule's immediate verdict (`--deep`).
    pub const CHAIN: u8 = 13;
    /// [`super::RouteEvent`]: the packet is being forwarded (`--deep`).
    pub const ROUTE: u8 = 14;
    /// [`super::RouteEvent`]: the route says that it must not (`--deep`).
    pub const ROUTE_ERROR: u8 = 15;
    /// [`super::PacketEvent`]: handed to a local socket's protocol (`--deep`).
    pub const DELIVER: u8 = 16;
    /// [`super::PacketEvent`]: about to be put into a tunnel (`--deep`);
    /// `tunnel` holds the outer addresses.
    pub const ENCAP: u8 = 17;
    /// [`super::LogEvent`]: a rule logged the packet.
    pub const LOG: u8 = 18;
}

/// Bits of [`Header::flags`].
pub mod flag {
    /// `tunnel` is filled in.
    pub const TUNNEL: u16 = 1;
    /// The tuple is that of the packet which this ICMP error quotes, as quoted.
    pub const QUOTED: u16 = 1 << 1;
    /// A fragment after the first: ports are those of the first.
    pub const LATER_FRAGMENT: u16 = 1 << 2;
    /// The L4 header could not be read whole.
    pub const TRUNCATED: u16 = 1 << 3;
    /// First sight of this flow by any program.
    pub const FIRST: u16 = 1 << 4;
    /// Recognised by its skb, not by its tuple.
    pub const BY_SKB: u16 = 1 << 5;
    /// The packet carried a VLAN tag.
    pub const VLAN: u16 = 1 << 6;
}

/// Common to all events, 48 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// `bpf_ktime_get_boot_ns`, nanoseconds since boot.
    pub ts_ns: u64,
    /// Address of the `sk_buff`, 0 where there is none.
    pub skb: u64,
    /// Flow id, see [`crate::tuple::Tag::flow`].
    pub flow: u64,
    /// Inode of the network namespace, 0 where unknown.
    pub netns: u32,
    /// Interface index within that namespace, 0 where unknown.
    pub ifindex: u32,
    /// `skb->len` in bytes, at tc with the link-layer header.
    pub skb_len: u32,
    /// `skb->mark`.
    pub mark: u32,
    /// One of [`kind`].
    pub kind: u8,
    /// Direction of the tuple in the flow, see [`crate::tuple::Tag::dir`].
    pub dir: u8,
    /// Bits of [`flag`].
    pub flags: u16,
    /// CPU that ran the program.
    pub cpu: u16,
    /// Segments in a GSO packet, 0 or 1 otherwise (tc only).
    pub gso_segs: u16,
}

/// A packet's own headers, 64 bytes; of the inner packet inside a tunnel.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Packet {
    /// Five-tuple.
    pub tuple: Tuple,
    /// TCP sequence number; SCTP verification tag; ICMP echo sequence number.
    pub seq: u32,
    /// TCP acknowledgement number; SCTP first TSN.
    pub ack: u32,
    /// Bytes behind the L4 header, from the IP header's length; behind the IP
    /// header in later fragments.
    pub payload_len: u32,
    /// FNV-1a over the first 16 payload bytes (fewer where there are fewer).
    pub payload_hash: u32,
    /// IPv4 identification, or the IPv6 fragment header's; 0 where none.
    pub ip_id: u32,
    /// Fragment offset in units of 8 bytes, bit 15 set where more follow.
    pub frag: u16,
    /// TCP flags, ICMP type, or the SCTP type of the first chunk.
    pub l4_flags: u8,
    /// Time to live, hop limit.
    pub ttl: u8,
}

/// Bits of [`Packet::frag`] that hold the offset.
pub const FRAG_OFFSET: u16 = 0x1fff;
/// Bit of [`Packet::frag`] that says "more fragments follow".
pub const FRAG_MORE: u16 = 0x8000;

impl Packet {
    /// Whether this is a fragment after the first.
    #[inline(always)]
    #[must_use]
    pub const fn is_later_fragment(&self) -> bool {
        (self.frag & FRAG_OFFSET) > 0
    }
}

/// The outer headers of a tunnelled packet, 40 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tunnel {
    /// Outer source, IPv4-mapped.
    pub src: Addr,
    /// Outer destination, IPv4-mapped.
    pub dst: Addr,
    /// Outer UDP source port, 0 for IP-in-IP.
    pub sport: u16,
    /// Outer UDP destination port, 0 for IP-in-IP.
    pub dport: u16,
    /// VNI in the low 24 bits, [`tunnel`] kind in the high 8.
    pub vni_kind: u32,
}

/// The outer headers of a packet that ended in its tunnel, 16 bytes: IPv4 only,
/// zeros where the underlay is IPv6.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outer {
    /// Outer source, network order.
    pub src: u32,
    /// Outer destination, network order.
    pub dst: u32,
    /// As [`Tunnel::sport`].
    pub sport: u16,
    /// As [`Tunnel::dport`].
    pub dport: u16,
    /// As [`Tunnel::vni_kind`].
    pub vni_kind: u32,
}

impl Outer {
    /// Of a tunnel's headers.
    #[inline(always)]
    #[must_use]
    pub const fn of(tunnel: &Tunnel) -> Self {
        Self {
            src: tail(&tunnel.src),
            dst: tail(&tunnel.dst),
            sport: tunnel.sport,
            dport: tunnel.dport,
            vni_kind: tunnel.vni_kind,
        }
    }

    /// The whole form, if it was kept.
    #[must_use]
    pub fn tunnel(&self) -> Option<Tunnel> {
        (self.src != 0 || self.dst != 0).then(|| Tunnel {
            src: crate::tuple::mapped(self.src),
            dst: crate::tuple::mapped(self.dst),
            sport: self.sport,
            dport: self.dport,
            vni_kind: self.vni_kind,
        })
    }
}

/// The address in an IPv4-mapped one, zero for any other.
#[inline(always)]
const fn tail(a: &Addr) -> u32 {
    match crate::tuple::unmapped(a) {
        Some(v4) => v4,
        None => 0,
    }
}

/// Values of the high byte of [`Tunnel::vni_kind`].
pub mod tunnel {
    /// VXLAN, RFC 7348.
    pub const VXLAN: u8 = 1;
    /// IPv4 or IPv6 in IP, RFC 2003 and RFC 4213.
    pub const IPIP: u8 = 2;
}

/// Seen at an interface or handed to a socket, 152 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacketEvent {
    /// Common part.
    pub header: Header,
    /// The (inner) packet.
    pub packet: Packet,
    /// Outer headers where [`flag::TUNNEL`] is set.
    pub tunnel: Tunnel,
}

/// A rewrite by `nf_nat_manip_pkt` (`net/netfilter/nf_nat_core.c`), 144 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NatEvent {
    /// Common part.
    pub header: Header,
    /// Before the rewrite; after it in `NAT_DONE`.
    pub packet: Packet,
    /// Address that the conntrack entry says to write, IPv4-mapped.
    pub to_addr: Addr,
    /// Conntrack entry.
    pub ct: u64,
    /// Port that the entry says to write.
    pub to_port: u16,
    /// `enum nf_nat_manip_type`: 0 source, 1 destination.
    pub manip: u8,
    /// `enum ip_conntrack_dir`: 0 original, 1 reply.
    pub ct_dir: u8,
    /// 1 where `nf_nat_masquerade_ipv4` or `_ipv6` chose the translation.
    pub masquerade: u32,
}

/// A conntrack entry, 152 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConntrackEvent {
    /// Common part.
    pub header: Header,
    /// Original tuple, before any rewrite.
    pub original: Tuple,
    /// Reply tuple, as answers will look on the wire.
    pub reply: Tuple,
    /// Address of the entry.
    pub ct: u64,
    /// `IPS_*` bits, `include/uapi/linux/netfilter/nf_conntrack_common.h`.
    pub status: u32,
    /// `ct->mark`.
    pub mark: u32,
    /// Conntrack zone.
    pub zone: u16,
    /// 1 where `nf_nat_masquerade_ipv4` or `_ipv6` chose the translation.
    pub masquerade: u16,
    /// Always zero.
    pub pad: u32,
}

/// What `nf_nat_setup_info` was asked to do, 120 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NatRangeEvent {
    /// Common part.
    pub header: Header,
    /// The connection's original tuple.
    pub original: Tuple,
    /// `nf_nat_range2.min_addr`, IPv4-mapped.
    pub min_addr: Addr,
    /// Address of the conntrack entry.
    pub ct: u64,
    /// `NF_NAT_RANGE_*` bits, `include/uapi/linux/netfilter/nf_nat.h`.
    pub range_flags: u32,
    /// `nf_nat_range2.min_proto`, host order.
    pub min_port: u16,
    /// `enum nf_nat_manip_type`: 0 source, 1 destination.
    pub manip: u8,
    /// 1 where a MASQUERADE target asked.
    pub masquerade: u8,
}

/// A dropped packet, 144 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DropEvent {
    /// Common part.
    pub header: Header,
    /// The packet, as far as it could be read.
    pub packet: Packet,
    /// The tracepoint's `location`: where it was freed.
    pub location: u64,
    /// `enum skb_drop_reason`, 0 where the kernel has none.
    pub reason: u32,
    /// Id in the stack map, negative where it could not be stored.
    pub stack: i32,
    /// Outer headers where [`flag::TUNNEL`] is set.
    pub outer: Outer,
}

/// Values of [`AnswerEvent::what`].
pub mod answer {
    /// `tcp_v4_send_reset`, `tcp_v6_send_reset`: the TCP stack refuses.
    pub const TCP_RESET: u8 = 1;
    /// `nf_send_reset`, `nf_send_reset6`: a REJECT rule with tcp-reset.
    pub const NF_RESET: u8 = 2;
    /// `__icmp_send`.
    pub const ICMP: u8 = 3;
    /// `icmp6_send`.
    pub const ICMPV6: u8 = 4;
}

/// A packet about to be answered with an RST or ICMP error, 144 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AnswerEvent {
    /// Common part.
    pub header: Header,
    /// The packet that is answered.
    pub packet: Packet,
    /// The ICMP error's info word in host order (the MTU for "fragmentation
    /// needed" and "packet too big").
    pub info: u32,
    /// One of [`answer`].
    pub what: u8,
    /// ICMP type.
    pub icmp_type: u8,
    /// ICMP code.
    pub icmp_code: u8,
    /// 1 where a TCP reset was sent on behalf of a known socket.
    pub has_socket: u8,
    /// Id in the stack map, negative where it could not be stored.
    pub stack: i32,
    /// Always zero.
    pub pad: u32,
    /// Outer headers where [`flag::TUNNEL`] is set.
    pub outer: Outer,
}

/// A verdict of a netfilter hook or of one table, 152 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HookEvent {
    /// Common part.
    pub header: Header,
    /// The packet at entry.
    pub packet: Packet,
    /// Name of the table (`TABLE`), NUL-padded.
    pub table: [u64; 2],
    /// What the function returned.
    pub verdict: i32,
    /// Input interface, 0 where none.
    pub in_ifindex: u32,
    /// Output interface, 0 where none.
    pub out_ifindex: u32,
    /// `enum nf_inet_hooks`.
    pub hook: u8,
    /// `NFPROTO_*`.
    pub pf: u8,
    /// 1 where the mark at return could be read into `mark_after`.
    pub has_mark_after: u8,
    /// Always zero.
    pub pad: u8,
    /// `skb->mark` at return.
    pub mark_after: u32,
    /// Always zero.
    pub pad4: u32,
}

/// An immediate verdict of an nft rule: jump, goto, accept, drop, 96 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChainEvent {
    /// Common part.
    pub header: Header,
    /// Target chain of a jump or goto, NUL-padded.
    pub chain: [u64; 4],
    /// The rule's expression.
    pub expr: u64,
    /// Verdict code: `NF_*`, or `NFT_JUMP` (-3), `NFT_GOTO` (-4), ...
    pub code: i32,
    /// Always zero.
    pub pad: u32,
}

/// The route that a packet was given, 144 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RouteEvent {
    /// Common part.
    pub header: Header,
    /// The packet.
    pub packet: Packet,
    /// Next hop, zero where the destination is on the link.
    pub gateway: Addr,
    /// Output interface.
    pub out_ifindex: u32,
    /// `RTN_*`, `include/uapi/linux/rtnetlink.h`; 0 where unknown.
    pub rt_type: u32,
    /// Always zero.
    pub pad: u64,
}

/// A packet that a rule logged (NFLOG, nft's `log`), 160 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogEvent {
    /// Common part.
    pub header: Header,
    /// The packet.
    pub packet: Packet,
    /// The rule's prefix, NUL-padded; full where there was more of it.
    pub prefix: [u64; 6],
}

const _: () = assert!(MAX_EVENT <= 160, "records are small by design");

/// The largest record.
pub const MAX_EVENT: usize = size_of::<LogEvent>();

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layout_is_pinned() {
        assert_eq!(size_of::<Header>(), 48);
        assert_eq!(size_of::<Packet>(), 64);
        assert_eq!(size_of::<Tunnel>(), 40);
        assert_eq!(size_of::<PacketEvent>(), 152);
        assert_eq!(size_of::<NatEvent>(), 144);
        assert_eq!(size_of::<ConntrackEvent>(), 152);
        assert_eq!(size_of::<NatRangeEvent>(), 120);
        assert_eq!(size_of::<Outer>(), 16);
        assert_eq!(size_of::<DropEvent>(), 144);
        assert_eq!(size_of::<AnswerEvent>(), 144);
        assert_eq!(size_of::<HookEvent>(), 152);
        assert_eq!(size_of::<ChainEvent>(), 96);
        assert_eq!(size_of::<RouteEvent>(), 144);
        assert_eq!(size_of::<LogEvent>(), 160);
    }

    #[test]
    fn outer_headers_come_back_and_ipv6_ones_do_not() {
        let tunnel = Tunnel {
            src: crate::tuple::mapped(u32::from_ne_bytes([172, 31, 0, 2])),
            dst: crate::tuple::mapped(u32::from_ne_bytes([172, 31, 0, 3])),
            sport: 40_000,
            dport: 4789,
            vni_kind: u32::from(tunnel::VXLAN) << 24 | 4096,
        };
        assert_eq!(Outer::of(&tunnel).tunnel(), Some(tunnel));
        let v6 = Tunnel {
            src: [0xfd, 1],
            dst: [0xfd, 2],
            ..tunnel
        };
        assert_eq!(Outer::of(&v6).tunnel(), None);
    }
}
