//! Headers, from a copy of a packet's first bytes to a tuple and the marks that
//! recognise the packet elsewhere.
//!
//! The copy lies in a per-CPU area that is larger than any offset computed
//! here: offsets are masked to 255, reads are at most 16 bytes wide, so the
//! verifier needs no further proof; what lies beyond the packet's own bytes is
//! told apart by [`Scratch::len`].

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
    tuple::{Tuple, mapped, proto},
};

use crate::{CONFIG, SCRATCH, probes::call::Call, skb};

/// Bytes of a packet that are copied.
const WINDOW: u32 = 224;

/// A copy of a packet's start and what was made of it.
#[repr(C)]
pub(crate) struct Scratch {
    bytes: [u8; 320],
    /// The (inner) packet.
    pub(crate) packet: Packet,
    /// The outer headers, where [`Headers::flags`] says so.
    pub(crate) tunnel: Tunnel,
    /// A kernel pointer on its way from a register to a plain number.
    pub(crate) pointer: u64,
    /// A conntrack entry's tuples, original and reply.
    pub(crate) ct: [Tuple; 2],
    /// The other direction of a tuple that is being tagged.
    pub(crate) inverse: Tuple,
    /// What a call was about, on its way into or out of the map of calls.
    pub(crate) call: Call,
    /// Valid bytes.
    len: u32,
    pad: u32,
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

/// Where the interesting headers start.
#[derive(Clone, Copy)]
pub(crate) struct Headers {
    /// L4 header.
    l4: u32,
    /// Bytes from the L4 header to the end of the IP packet.
    l4_len: u32,
    /// Bits of [`event::flag`].
    pub(crate) flags: u16,
}

/// Ethertypes (IEEE 802 numbers).
const ETH_P_IP: u16 = 0x0800;
const ETH_P_IPV6: u16 = 0x86dd;
const ETH_P_8021Q: u16 = 0x8100;
const ETH_P_8021AD: u16 = 0x88a8;

impl Scratch {
    /// This CPU's area.
    #[inline(always)]
    pub(crate) fn get(context: Context) -> Option<&'static mut Self> {
        let p = SCRATCH.get_ptr_mut(context as u32)?;
        // SAFETY: the map's value, not used by anything that can interrupt
        // this context on this CPU.
        unsafe { p.as_mut() }
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
        if room < Ipv4Hdr::LEN as u32 {
            return false;
        }
        let n = if room > WINDOW { WINDOW } else { room };
        self.len = n;
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

    #[inline(always)]
    fn at<T: Copy>(&self, offset: u32) -> T {
        const { assert!(size_of::<T>() <= 16) };
        let offset = (offset & 0xff) as usize;
        // SAFETY: offset is at most 255, T at most 16 bytes, the area 320.
        unsafe { self.bytes.as_ptr().add(offset).cast::<T>().read_unaligned() }
    }

    #[inline(always)]
    fn be16(&self, offset: u32) -> u16 {
        u16::from_be(self.at(offset))
    }

    #[inline(always)]
    fn be32(&self, offset: u32) -> u32 {
        u32::from_be(self.at(offset))
    }

    /// Skips the link-layer header: the offset of the network header, or `None`
    /// for anything but IP.
    #[inline(always)]
    pub(crate) fn link(&self, offset: u32, flags: &mut u16) -> Option<u32> {
        let mut at = offset + EthHdr::LEN as u32;
        let mut ethertype = self.be16(at - 2);
        for _ in 0..2 {
            if ethertype != ETH_P_8021Q && ethertype != ETH_P_8021AD {
                break;
            }
            *flags |= event::flag::VLAN;
            at += 4;
            ethertype = self.be16(at - 2);
        }
        (ethertype == ETH_P_IP || ethertype == ETH_P_IPV6).then_some(at)
    }

    /// Reads the IP header at `l3` and the ports behind it into
    /// `self.packet.tuple`, and into a tunnel once when there is one. Only what
    /// a miss needs; [`Self::finish`] does the rest.
    #[inline(always)]
    pub(crate) fn ip(&mut self, l3: u32, mut flags: u16) -> Option<Headers> {
        let mut headers = self.one_ip(l3)?;
        let proto_ = self.packet.tuple.proto;
        let inner = if self.packet.frag & 0x1fff != 0 {
            None
        } else if proto_ == proto::UDP && is_vxlan_port(self.be16(headers.l4 + 2)) {
            self.vxlan(headers.l4, &mut flags)
        } else if proto_ == proto::IPIP || proto_ == proto::IPV6 {
            self.outer(0, 0, u32::from(tunnel::IPIP) << 24);
            Some(headers.l4)
        } else {
            None
        };
        if let Some(inner) = inner {
            flags |= event::flag::TUNNEL;
            headers = self.one_ip(inner)?;
        }
        headers.flags |= flags;
        self.ports(&mut headers);
        Some(headers)
    }

    /// A VXLAN header behind the UDP header at `l4`: the inner network header.
    #[inline(always)]
    fn vxlan(&mut self, l4: u32, flags: &mut u16) -> Option<u32> {
        let vxlan = l4 + UdpHdr::LEN as u32;
        // RFC 7348 section 5: the I flag must be set for a valid VNI.
        if self.at::<u8>(vxlan) & 0x08 == 0 {
            return None;
        }
        let vni = self.be32(vxlan + 4) >> 8;
        let inner = self.link(vxlan + VxlanHdr::LEN as u32, flags)?;
        self.outer(
            self.be16(l4),
            self.be16(l4 + 2),
            (u32::from(tunnel::VXLAN) << 24) | vni,
        );
        Some(inner)
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
    #[inline(always)]
    fn one_ip(&mut self, l3: u32) -> Option<Headers> {
        let version = self.at::<u8>(l3) >> 4;
        self.packet.frag = 0;
        self.packet.ip_id = 0;
        self.packet.tuple.sport = 0;
        self.packet.tuple.dport = 0;
        self.packet.tuple.pad = [0; 3];
        if version == 4 {
            let ihl = u32::from(self.at::<u8>(l3) & 0xf) * 4;
            if ihl < Ipv4Hdr::LEN as u32 {
                return None;
            }
            let total = u32::from(self.be16(l3 + 2));
            let frag = self.be16(l3 + 6);
            self.packet.ip_id = u32::from(self.be16(l3 + 4));
            // DF is of no interest here; bit 15 says "more fragments".
            self.packet.frag = (frag & 0x1fff) | ((frag & 0x2000) << 2);
            self.packet.ttl = self.at(l3 + 8);
            self.packet.tuple.proto = self.at(l3 + 9);
            self.packet.tuple.src = mapped(self.at(l3 + 12));
            self.packet.tuple.dst = mapped(self.at(l3 + 16));
            Some(Headers {
                l4: l3 + ihl,
                l4_len: total.saturating_sub(ihl),
                flags: 0,
            })
        } else if version == 6 {
            self.packet.ttl = self.at(l3 + 7);
            self.packet.tuple.src = self.at(l3 + 8);
            self.packet.tuple.dst = self.at(l3 + 24);
            let mut next: u8 = self.at(l3 + 6);
            let mut l4 = Ipv6Hdr::LEN as u32;
            // RFC 8200 section 4: hop-by-hop, routing, destination options,
            // fragment, authentication.
            for _ in 0..4 {
                let at = l3 + l4;
                match next {
                    0 | 43 | 60 => l4 += (u32::from(self.at::<u8>(at + 1)) + 1) * 8,
                    44 => {
                        let frag = self.be16(at + 2);
                        self.packet.frag = (frag >> 3) | ((frag & 1) << 15);
                        self.packet.ip_id = self.be32(at + 4);
                        l4 += 8;
                    }
                    51 => l4 += (u32::from(self.at::<u8>(at + 1)) + 2) * 4,
                    _ => break,
                }
                l4 &= 0xff;
                next = self.at(at);
            }
            self.packet.tuple.proto = next;
            let payload = u32::from(self.be16(l3 + 4));
            Some(Headers {
                l4: l3 + l4,
                l4_len: payload.saturating_sub(l4 - Ipv6Hdr::LEN as u32),
                flags: 0,
            })
        } else {
            None
        }
    }

    /// The ports, or what stands for them.
    #[inline(always)]
    fn ports(&mut self, headers: &mut Headers) {
        if self.packet.frag & 0x1fff != 0 {
            headers.flags |= event::flag::LATER_FRAGMENT;
            return;
        }
        let l4 = headers.l4;
        match self.packet.tuple.proto {
            proto::TCP | proto::UDP | proto::SCTP => {
                self.packet.tuple.sport = self.be16(l4);
                self.packet.tuple.dport = self.be16(l4 + 2);
            }
            proto::ICMP => match self.at::<u8>(l4) {
                // RFC 792: unreachable, quench, redirect, time exceeded,
                // parameter problem quote the packet they are about.
                3 | 4 | 5 | 11 | 12 => self.quoted(l4 + 8, headers),
                _ => self.echo_id(l4),
            },
            proto::ICMPV6 => match self.at::<u8>(l4) {
                // RFC 4443 section 2.1: types below 128 are errors.
                1..=4 => self.quoted(l4 + 8, headers),
                _ => self.echo_id(l4),
            },
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
    fn quoted(&mut self, l3: u32, headers: &mut Headers) {
        headers.flags |= event::flag::QUOTED;
        let (proto_, l4) = if self.at::<u8>(l3) >> 4 == 4 {
            let ihl = u32::from(self.at::<u8>(l3) & 0xf) * 4;
            self.packet.tuple.src = mapped(self.at(l3 + 12));
            self.packet.tuple.dst = mapped(self.at(l3 + 16));
            (self.at::<u8>(l3 + 9), l3 + ihl)
        } else {
            self.packet.tuple.src = self.at(l3 + 8);
            self.packet.tuple.dst = self.at(l3 + 24);
            (self.at::<u8>(l3 + 6), l3 + Ipv6Hdr::LEN as u32)
        };
        self.packet.tuple.proto = proto_;
        if proto_ == proto::ICMP || proto_ == proto::ICMPV6 {
            self.echo_id(l4);
        } else {
            self.packet.tuple.sport = self.be16(l4);
            self.packet.tuple.dport = self.be16(l4 + 2);
        }
    }

    /// Fills in what only a match needs: sequence numbers, flags, lengths,
    /// payload hash.
    #[inline(always)]
    pub(crate) fn finish(&mut self, headers: &mut Headers) {
        let l4 = headers.l4;
        self.packet.seq = 0;
        self.packet.ack = 0;
        self.packet.l4_flags = 0;
        self.packet.payload_hash = 0;
        self.packet.payload_len = headers.l4_len;
        if headers.flags & event::flag::LATER_FRAGMENT != 0 {
            return;
        }
        if headers.flags & event::flag::QUOTED != 0 {
            self.packet.l4_flags = self.at(l4);
            self.packet.seq = u32::from(self.at::<u8>(l4 + 1));
            self.packet.ack = u32::from(self.be16(l4 + 6));
            return;
        }
        let mut header = 0;
        match self.packet.tuple.proto {
            proto::TCP => {
                self.packet.seq = self.be32(l4 + 4);
                self.packet.ack = self.be32(l4 + 8);
                header = u32::from(self.at::<u8>(l4 + 12) >> 4) * 4;
                self.packet.l4_flags = self.at(l4 + 13);
                if l4 + TcpHdr::LEN as u32 > self.len {
                    headers.flags |= event::flag::TRUNCATED;
                }
            }
            proto::UDP => header = UdpHdr::LEN as u32,
            proto::SCTP => {
                self.packet.seq = self.be32(l4 + 4);
                self.packet.ack = self.be32(l4 + 16);
                self.packet.l4_flags = self.at(l4 + 12);
                header = 12;
            }
            proto::ICMP | proto::ICMPV6 => {
                self.packet.l4_flags = self.at(l4);
                self.packet.seq = u32::from(self.be16(l4 + 6));
                header = 8;
            }
            _ => {}
        }
        self.packet.payload_len = headers.l4_len.saturating_sub(header);
        if self.packet.tuple.proto != proto::TCP {
            let n = if self.packet.payload_len < 16 { self.packet.payload_len } else { 16 };
            let mut hash: u32 = 0x811c_9dc5;
            for i in 0..16 {
                if i < n {
                    hash ^= u32::from(self.at::<u8>(l4 + header + i));
                    hash = hash.wrapping_mul(0x0100_0193);
                }
            }
            self.packet.payload_hash = hash;
        }
    }

    /// TCP flags, before [`Self::finish`] has run.
    #[inline(always)]
    pub(crate) fn tcp_flags(&self, headers: &Headers) -> u8 {
        self.at(headers.l4 + 13)
    }
}

#[inline(always)]
fn is_vxlan_port(port: u16) -> bool {
    for i in 0..8 {
        // SAFETY: CONFIG is a static, i is within the array.
        if port == unsafe { core::ptr::read_volatile(&raw const CONFIG.vxlan_ports[i]) } {
            return true;
        }
    }
    false
}
