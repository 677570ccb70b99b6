//! Headers, from a copy of a packet's first bytes to a tuple and the marks that
//! recognise the packet elsewhere.
//!
//! The copy lies in a per-CPU area that is larger than any offset computed
//! here: offsets are masked to 255, reads are at most two bytes wide, so the
//! verifier needs no further proof; what lies beyond the packet's own bytes is
//! told apart by [`Scratch::len`].
//!
//! The stages are functions of their own (`inline(never)`): the verifier looks
//! for known states after each call, and with everything inlined 6.1 walks
//! half a million instructions where thousands will do.

use aya_ebpf::helpers::generated::{bpf_probe_read_kernel, bpf_skb_load_bytes};
use network_types::{
    eth::EthHdr,
    ip::{Ipv4Hdr, Ipv6Hdr},
    tcp::TcpHdr,
    udp::UdpHdr,
    vxlan::VxlanHdr,
};
use tracer_common::{
    event::{self, Packet, Tunnel, tunnel},
    tuple::{Addr, Tuple, mapped, proto},
};

use crate::{CONFIG, SCRATCH, probes::call::Call, skb};

/// Bytes of a packet that are copied.
const WINDOW: u32 = 224;

/// A copy of a packet's start and what was made of it.
#[repr(C, align(8))]
pub(crate) struct Scratch {
    /// 320 bytes, in pairs.
    bytes: [u16; 160],
    /// The (inner) packet.
    pub(crate) packet: Packet,
    /// The outer headers, where [`event::flag::TUNNEL`] is set.
    pub(crate) tunnel: Tunnel,
    /// A kernel pointer on its way from a register to a plain number.
    pointer: u64,
    /// A conntrack entry's tuples, original and reply.
    pub(crate) ct: [Tuple; 2],
    /// The other direction of a tuple that is being tagged.
    pub(crate) inverse: Tuple,
    /// What a call was about, on its way into or out of the map of calls.
    pub(crate) call: Call,
    headers: Headers,
    /// Valid bytes.
    len: u32,
}

/// Contexts that may interrupt each other have a scratch area each.
#[derive(Clone, Copy)]
pub(crate) enum Context {
    /// tc programs: run with softirqs off.
    Tc = 0,
    /// kprobes: never nested on one CPU (`bpf_prog_active`).
    Kprobe = 1,
    /// The drop tracepoint, which may fire inside either.
    Tracepoint = 2,
}

/// Where the interesting headers start. Kept in the scratch area and accessed
/// volatile: the verifier then knows nothing of the values, so the many ways
/// through the parser end in one state instead of multiplying.
#[repr(C)]
struct Headers {
    /// Network header.
    l3: u32,
    /// L4 header.
    l4: u32,
    /// Bytes from the L4 header to the end of the IP packet.
    l4_len: u32,
    /// Bits of [`event::flag`].
    flags: u32,
    /// IPv6 next header while the chain is walked.
    next: u32,
}

macro_rules! kept {
    ($get:ident, $set:ident) => {
        #[inline(always)]
        fn $get(&self) -> u32 {
            // SAFETY: a field of the scratch area.
            unsafe { core::ptr::read_volatile(&raw const self.headers.$get) }
        }

        #[inline(always)]
        fn $set(&mut self, value: u32) {
            // SAFETY: a field of the scratch area.
            unsafe { core::ptr::write_volatile(&raw mut self.headers.$get, value) }
        }
    };
}

/// Ethertypes (IEEE 802 numbers).
pub(crate) const ETH_P_IP: u16 = 0x0800;
pub(crate) const ETH_P_IPV6: u16 = 0x86dd;
pub(crate) const ETH_P_8021Q: u16 = 0x8100;
pub(crate) const ETH_P_8021AD: u16 = 0x88a8;

impl Scratch {
    /// This CPU's area.
    #[inline(always)]
    pub(crate) fn get(context: Context) -> Option<&'static mut Self> {
        let p = SCRATCH.get_ptr_mut(context as u32)?;
        // SAFETY: the map's value, not used by anything that can interrupt
        // this context on this CPU.
        unsafe { p.as_mut() }
    }

    /// The context of a tc program is the kernel's `sk_buff` itself. Its address
    /// as a plain number has to pass through memory, for the verifier allows no
    /// arithmetic on a context pointer.
    #[inline(always)]
    pub(crate) fn address(&mut self, ctx: *mut aya_ebpf::bindings::__sk_buff) -> u64 {
        // SAFETY: a field of our scratch area; volatile, so that the compiler
        // does not shortcut the round trip.
        unsafe {
            core::ptr::write_volatile((&raw mut self.pointer).cast(), ctx);
            core::ptr::read_volatile(&raw const self.pointer)
        }
    }

    /// Copies a packet's start as tc sees it, link-layer header included.
    #[inline(always)]
    pub(crate) fn load_skb(&mut self, ctx: *mut aya_ebpf::bindings::__sk_buff, len: u32) -> bool {
        if len < Ipv4Hdr::LEN as u32 {
            return false;
        }
        let n = if len > WINDOW { WINDOW } else { len };
        self.len = n;
        // SAFETY: n is at most WINDOW, which the area holds.
        unsafe { bpf_skb_load_bytes(ctx.cast(), 0, self.bytes.as_mut_ptr().cast(), n) == 0 }
    }

    /// Copies a packet's start from kernel memory, network header first.
    #[inline(always)]
    pub(crate) fn load_network(&mut self, sk_buff: u64) -> bool {
        let Some((start, room)) = skb::network_header(sk_buff) else {
            return false;
        };
        // Through memory: a size that comes from the stack, where a helper put
        // it, makes the verifier of 6.1 hold every number for significant
        // (mark_all_scalars_precise), and no two states are alike any more.
        // SAFETY: a field of the scratch area.
        let n = unsafe {
            core::ptr::write_volatile(&raw mut self.len, if room > WINDOW { WINDOW } else { room });
            core::ptr::read_volatile(&raw const self.len)
        };
        if n < Ipv4Hdr::LEN as u32 || n > WINDOW {
            return false;
        }
        // SAFETY: n is at most WINDOW, which the area holds; the helper checks
        // the source.
        unsafe {
            bpf_probe_read_kernel(
                self.bytes.as_mut_ptr().cast(),
                n,
                start as *const core::ffi::c_void,
            ) == 0
        }
    }

    /// One byte of the copy.
    #[inline(always)]
    fn at8(&self, offset: u32) -> u8 {
        let offset = (offset & 0xff) as usize;
        // SAFETY: offset is at most 255, the area 320.
        unsafe { self.bytes.as_ptr().cast::<u8>().add(offset).read() }
    }

    /// Two bytes, in memory order. Every header starts at an even offset, so
    /// that two bytes are one load and not two.
    #[inline(always)]
    fn at16(&self, offset: u32) -> u16 {
        let offset = (offset & 0xfe) as usize;
        // SAFETY: offset is even and at most 254, the area 320.
        unsafe { self.bytes.as_ptr().add(offset / 2).read() }
    }

    /// Four bytes, in memory order.
    #[inline(always)]
    fn at32(&self, offset: u32) -> u32 {
        let (first, second) = (self.at16(offset), self.at16(offset + 2));
        if cfg!(target_endian = "little") {
            u32::from(first) | u32::from(second) << 16
        } else {
            u32::from(first) << 16 | u32::from(second)
        }
    }

    /// An IPv6 address.
    #[inline(always)]
    fn at_v6(&self, offset: u32) -> Addr {
        let word = |offset| {
            let (first, second) = (
                u64::from(self.at32(offset)),
                u64::from(self.at32(offset + 4)),
            );
            if cfg!(target_endian = "little") {
                first | second << 32
            } else {
                first << 32 | second
            }
        };
        [word(offset), word(offset + 8)]
    }

    #[inline(always)]
    fn be16(&self, offset: u32) -> u16 {
        u16::from_be(self.at16(offset))
    }

    #[inline(always)]
    fn be32(&self, offset: u32) -> u32 {
        u32::from_be(self.at32(offset))
    }

    kept!(l3, set_l3);
    kept!(l4, set_l4);
    kept!(l4_len, set_l4_len);
    kept!(flags, set_flag_word);
    kept!(next, set_next);

    /// Whether bits of [`event::flag`] are set.
    #[inline(always)]
    pub(crate) fn has(&self, bits: u16) -> bool {
        self.flags() & u32::from(bits) != 0
    }

    /// Sets bits of [`event::flag`].
    #[inline(always)]
    pub(crate) fn set_flags(&mut self, bits: u16) {
        self.set_flag_word(self.flags() | u32::from(bits));
    }

    /// All bits of [`event::flag`].
    #[inline(always)]
    pub(crate) fn all_flags(&self) -> u16 {
        self.flags() as u16
    }

    /// Starts a packet whose copy begins with a link-layer header (`link`) or
    /// with the network header. False for anything but IP.
    #[inline(always)]
    pub(crate) fn parse(&mut self, link: bool) -> bool {
        self.set_flag_word(0);
        self.set_l3(0);
        if link && !self.link(0) {
            return false;
        }
        self.ip()
    }

    /// Skips the link-layer header at `offset`. False for anything but IP.
    #[inline(never)]
    fn link(&mut self, offset: u32) -> bool {
        self.set_l3(offset + EthHdr::LEN as u32);
        for _ in 0..2 {
            let ethertype = self.be16(self.l3().wrapping_sub(2));
            if ethertype != ETH_P_8021Q && ethertype != ETH_P_8021AD {
                break;
            }
            self.set_flags(event::flag::VLAN);
            self.set_l3(self.l3() + 4);
        }
        let ethertype = self.be16(self.l3().wrapping_sub(2));
        ethertype == ETH_P_IP || ethertype == ETH_P_IPV6
    }

    /// Reads the IP header and the ports behind it into `self.packet.tuple`,
    /// and those inside a tunnel when there is one. Only what a miss needs;
    /// [`Self::finish`] does the rest.
    #[inline(always)]
    fn ip(&mut self) -> bool {
        if !self.one_ip() {
            return false;
        }
        let proto_ = self.packet.tuple.proto as u8;
        if !self.packet.is_later_fragment() {
            let inner = if proto_ == proto::UDP {
                is_vxlan_port(self.be16(self.l4() + 2)) && self.vxlan()
            } else if proto_ == proto::IPIP || proto_ == proto::IPV6 {
                self.outer(0, 0, u32::from(tunnel::IPIP) << 24);
                self.set_l3(self.l4());
                true
            } else {
                false
            };
            if inner {
                self.set_flags(event::flag::TUNNEL);
                if !self.one_ip() {
                    return false;
                }
            }
        }
        self.ports();
        true
    }

    /// A VXLAN header behind the UDP header; moves on to the inner packet.
    #[inline(never)]
    fn vxlan(&mut self) -> bool {
        let l4 = self.l4();
        let vxlan = l4 + UdpHdr::LEN as u32;
        // RFC 7348 section 5: the I flag must be set for a valid VNI.
        if self.at8(vxlan) & 0x08 == 0 {
            return false;
        }
        let vni = self.be32(vxlan + 4) >> 8;
        self.outer(
            self.be16(l4),
            self.be16(l4 + 2),
            (u32::from(tunnel::VXLAN) << 24) | vni,
        );
        self.link(vxlan + VxlanHdr::LEN as u32)
    }

    #[inline(always)]
    fn outer(&mut self, sport: u16, dport: u16, vni_kind: u32) {
        self.tunnel.src = self.packet.tuple.src;
        self.tunnel.dst = self.packet.tuple.dst;
        self.tunnel.sport = sport;
        self.tunnel.dport = dport;
        self.tunnel.vni_kind = vni_kind;
    }

    /// One IP header: addresses, protocol, fragment, id, TTL.
    #[inline(never)]
    fn one_ip(&mut self) -> bool {
        let l3 = self.l3();
        let version = self.at8(l3) >> 4;
        self.packet.frag = 0;
        self.packet.ip_id = 0;
        self.packet.tuple.sport = 0;
        self.packet.tuple.dport = 0;
        if version == 4 {
            let ihl = u32::from(self.at8(l3) & 0xf) * 4;
            if ihl < Ipv4Hdr::LEN as u32 {
                return false;
            }
            let total = u32::from(self.be16(l3 + 2));
            let frag = self.be16(l3 + 6);
            self.packet.ip_id = u32::from(self.be16(l3 + 4));
            // DF is of no interest here; bit 15 says "more fragments".
            self.packet.frag = (frag & 0x1fff) | ((frag & 0x2000) << 2);
            self.packet.ttl = self.at8(l3 + 8);
            self.packet.tuple.proto = u32::from(self.at8(l3 + 9));
            self.packet.tuple.src = mapped(self.at32(l3 + 12));
            self.packet.tuple.dst = mapped(self.at32(l3 + 16));
            self.set_l4(l3 + ihl);
            self.set_l4_len(total.wrapping_sub(ihl));
            true
        } else if version == 6 {
            self.one_ipv6(l3);
            true
        } else {
            false
        }
    }

    #[inline(never)]
    fn one_ipv6(&mut self, l3: u32) {
        self.packet.ttl = self.at8(l3 + 7);
        self.packet.tuple.src = self.at_v6(l3 + 8);
        self.packet.tuple.dst = self.at_v6(l3 + 24);
        self.set_next(u32::from(self.at8(l3 + 6)));
        self.set_l4(l3 + Ipv6Hdr::LEN as u32);
        // RFC 8200 section 4: hop-by-hop, routing, destination options,
        // fragment, authentication.
        for _ in 0..3 {
            let at = self.l4();
            let len = match self.next() {
                0 | 43 | 60 => (u32::from(self.at8(at + 1)) + 1) * 8,
                44 => {
                    let frag = self.be16(at + 2);
                    self.packet.frag = (frag >> 3) | ((frag & 1) << 15);
                    self.packet.ip_id = self.be32(at + 4);
                    8
                }
                51 => (u32::from(self.at8(at + 1)) + 2) * 4,
                _ => break,
            };
            self.set_next(u32::from(self.at8(at)));
            self.set_l4(at + len);
        }
        self.packet.tuple.proto = self.next() & 0xff;
        let payload = u32::from(self.be16(l3 + 4));
        let headers = self.l4().wrapping_sub(l3).wrapping_sub(Ipv6Hdr::LEN as u32);
        self.set_l4_len(payload.wrapping_sub(headers));
    }

    /// The ports, or what stands for them.
    #[inline(never)]
    fn ports(&mut self) {
        if self.packet.is_later_fragment() {
            self.set_flags(event::flag::LATER_FRAGMENT);
            return;
        }
        let l4 = self.l4();
        let kind = self.at8(l4);
        match self.packet.tuple.proto as u8 {
            proto::TCP | proto::UDP | proto::SCTP => {
                self.packet.tuple.sport = self.be16(l4);
                self.packet.tuple.dport = self.be16(l4 + 2);
            }
            // RFC 792: unreachable, quench, redirect, time exceeded, parameter
            // problem quote the packet they are about.
            proto::ICMP if matches!(kind, 3 | 4 | 5 | 11 | 12) => self.quoted(l4 + 8),
            // RFC 4443 section 2.1: types below 128 are errors.
            proto::ICMPV6 if matches!(kind, 1..=4) => self.quoted(l4 + 8),
            proto::ICMP | proto::ICMPV6 => self.echo_id(l4),
            _ => {}
        }
    }

    #[inline(always)]
    fn echo_id(&mut self, l4: u32) {
        let id = self.be16(l4 + 4);
        self.packet.tuple.sport = id;
        self.packet.tuple.dport = id;
    }

    /// The tuple of the packet that an ICMP error quotes.
    #[inline(always)]
    fn quoted(&mut self, l3: u32) {
        self.set_flags(event::flag::QUOTED);
        let (proto_, l4) = if self.at8(l3) >> 4 == 4 {
            let ihl = u32::from(self.at8(l3) & 0xf) * 4;
            self.packet.tuple.src = mapped(self.at32(l3 + 12));
            self.packet.tuple.dst = mapped(self.at32(l3 + 16));
            (self.at8(l3 + 9), l3 + ihl)
        } else {
            self.packet.tuple.src = self.at_v6(l3 + 8);
            self.packet.tuple.dst = self.at_v6(l3 + 24);
            (self.at8(l3 + 6), l3 + Ipv6Hdr::LEN as u32)
        };
        self.packet.tuple.proto = u32::from(proto_);
        if proto_ == proto::ICMP || proto_ == proto::ICMPV6 {
            self.echo_id(l4);
        } else {
            self.packet.tuple.sport = self.be16(l4);
            self.packet.tuple.dport = self.be16(l4 + 2);
        }
    }

    /// Fills in what only a match needs: sequence numbers, flags, lengths,
    /// payload hash.
    #[inline(never)]
    pub(crate) fn finish(&mut self) {
        let l4 = self.l4();
        let l4_len = self.l4_len();
        self.packet.seq = 0;
        self.packet.ack = 0;
        self.packet.l4_flags = 0;
        self.packet.payload_hash = 0;
        self.packet.payload_len = l4_len;
        if self.has(event::flag::LATER_FRAGMENT) {
            return;
        }
        if self.has(event::flag::QUOTED) {
            self.packet.l4_flags = self.at8(l4);
            self.packet.seq = u32::from(self.at8(l4 + 1));
            self.packet.ack = u32::from(self.be16(l4 + 6));
            return;
        }
        if self.packet.tuple.proto == u32::from(proto::TCP) {
            self.packet.seq = self.be32(l4 + 4);
            self.packet.ack = self.be32(l4 + 8);
            self.packet.l4_flags = self.at8(l4 + 13);
            let header = u32::from(self.at8(l4 + 12) >> 4) * 4;
            self.packet.payload_len = l4_len.wrapping_sub(header);
            if l4 + TcpHdr::LEN as u32 > self.len {
                self.set_flags(event::flag::TRUNCATED);
            }
            return;
        }
        // UDP's header, ICMP's and SCTP's common ones are told apart by what
        // they hold; all but SCTP's (12) are 8 bytes.
        self.set_next(8);
        match self.packet.tuple.proto as u8 {
            proto::SCTP => {
                self.packet.seq = self.be32(l4 + 4);
                self.packet.ack = self.be32(l4 + 16);
                self.packet.l4_flags = self.at8(l4 + 12);
                self.set_next(12);
            }
            proto::ICMP | proto::ICMPV6 => {
                self.packet.l4_flags = self.at8(l4);
                self.packet.seq = u32::from(self.be16(l4 + 6));
            }
            proto::UDP => {}
            _ => self.set_next(0),
        }
        let header = self.next();
        let n = l4_len.wrapping_sub(header);
        self.packet.payload_len = n;
        self.packet.payload_hash = self.hash(l4 + header, n);
    }

    /// FNV-1a over 16 bytes, those from `n` on taken as zero. Free of branches,
    /// which would be as many states for the verifier.
    #[inline(never)]
    fn hash(&self, at: u32, n: u32) -> u32 {
        let n = if n > 16 { 16 } else { n as i32 };
        let mut hash: u32 = 0x811c_9dc5;
        for i in 0..16 {
            // All ones where i < n.
            let keep = ((i - n) >> 31) as u32;
            hash ^= u32::from(self.at8(at + i as u32)) & keep;
            hash = hash.wrapping_mul(0x0100_0193);
        }
        hash
    }

    /// TCP flags, before [`Self::finish`] has run.
    #[inline(always)]
    pub(crate) fn tcp_flags(&self) -> u8 {
        self.at8(self.l4() + 13)
    }
}

#[inline(always)]
pub(crate) fn is_vxlan_port(port: u16) -> bool {
    for i in 0..8 {
        // SAFETY: CONFIG is a static, i is within the array.
        if port == unsafe { core::ptr::read_volatile(&raw const CONFIG.vxlan_ports[i]) } {
            return true;
        }
    }
    false
}
