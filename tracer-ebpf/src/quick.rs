//! The short way out, for the packets that nobody asked about: most of what a
//! busy node sees.
//!
//! Only the plain forms are told here, by direct access to the packet: IPv4
//! without options and fragments, TCP and UDP, bare or in one tunnel. Anything
//! else, and all that might be followed, takes the long way through
//! [`crate::parse`], which alone decides. So this may say "no" only where the
//! long way would, and need never say "yes".

use aya_ebpf::bindings::__sk_buff;
use network_types::{eth::EthHdr, ip::Ipv4Hdr, tcp::TcpHdr, udp::UdpHdr, vxlan::VxlanHdr};
use tracer_common::{
    BLOOM_SLOTS, MAX_FILTER_RULES,
    config::flag as switch,
    tuple::{self, proto},
};

use crate::{
    BLOOM, CONFIG, filter,
    parse::{ETH_P_8021AD, ETH_P_8021Q, ETH_P_IP, ETH_P_IPV6, Scratch, is_vxlan_port},
    probes::conntrack::IP_CT_NEW,
    skb,
};

const ETH: usize = EthHdr::LEN;
const IP: usize = Ipv4Hdr::LEN;
/// What is read of a TCP header: up to the flags.
const TCP_READ: usize = 14;
/// Version 4, five words of header.
const PLAIN: u8 = 0x45;
/// Fragment offset and "more fragments".
const FRAGMENT: u16 = 0x3fff;

const _: () = assert!(TCP_READ <= TcpHdr::LEN);

/// Whether this packet is none that is followed. False where that takes more
/// than a look.
#[inline(always)]
pub(crate) fn is_miss(
    ctx: *mut __sk_buff,
    scratch: &mut Scratch,
    ingress: bool,
    link: bool,
) -> bool {
    // SAFETY: the verifier checks context accesses.
    let (start, end) = unsafe { ((*ctx).data as usize, (*ctx).data_end as usize) };
    let outer = start + if link { ETH } else { 0 };
    if outer + IP + UdpHdr::LEN > end {
        return false;
    }
    if link {
        // SAFETY: before the bound that was just checked.
        match unsafe { be16(outer - 2) } {
            ETH_P_IP => {}
            ETH_P_IPV6 | ETH_P_8021Q | ETH_P_8021AD => return false,
            // ARP and the like.
            _ => return true,
        }
    }
    // SAFETY: header and ports are before the bound.
    if !unsafe { is_plain(outer) } {
        return false;
    }
    // SAFETY: as above.
    let (proto_, dport) = unsafe { (at8(outer + 9), be16(outer + IP + 2)) };
    if proto_ == proto::UDP && is_vxlan_port(dport) {
        let inner = outer + IP + UdpHdr::LEN + VxlanHdr::LEN + ETH;
        if inner + IP + UdpHdr::LEN > end {
            return false;
        }
        // SAFETY: before the bound that was just checked. The flag is the one
        // that makes the VNI valid (RFC 7348 section 5).
        let known =
            unsafe { at8(outer + IP + UdpHdr::LEN) & 0x08 != 0 && be16(inner - 2) == ETH_P_IP };
        return known && is_miss_at(inner, end, ctx, scratch, false);
    }
    if proto_ == proto::IPIP {
        let inner = outer + IP;
        if inner + IP + UdpHdr::LEN > end {
            return false;
        }
        return is_miss_at(inner, end, ctx, scratch, false);
    }
    is_miss_at(outer, end, ctx, scratch, !ingress)
}

/// The same of the packet that counts, whose ports are known to lie before the
/// bound.
#[inline(always)]
fn is_miss_at(
    l3: usize,
    end: usize,
    ctx: *mut __sk_buff,
    scratch: &mut Scratch,
    carries: bool,
) -> bool {
    // SAFETY: header and ports are before the bound.
    let (plain, proto_, src, dst, sport, dport) = unsafe {
        (
            is_plain(l3),
            at8(l3 + 9),
            at32(l3 + 12),
            at32(l3 + 16),
            be16(l3 + IP),
            be16(l3 + IP + 2),
        )
    };
    if !plain || (proto_ != proto::TCP && proto_ != proto::UDP) {
        return false;
    }
    let ports = u32::from(sport) << 16 | u32::from(dport);
    if is_wanted(src, dst, ports, u32::from(proto_)) {
        return false;
    }
    let sk_buff = scratch.address(ctx);
    if filter::skb_known(sk_buff) {
        return false;
    }
    if !carries || !skb::has_flag(switch::CT_FROM_TC) {
        return true;
    }
    // An entry is of interest on a connection's first packet. For TCP that is
    // no segment of a connection which came in through an interface: that one
    // was seen there under the addresses that it had.
    if proto_ == proto::TCP {
        if l3 + IP + TCP_READ > end {
            return false;
        }
        // SAFETY: before the bound that was just checked, and the verifier
        // checks context accesses.
        let (flags, from) = unsafe { (at8(l3 + IP + 13), (*ctx).ingress_ifindex) };
        if flags & filter::SYN as u8 == 0 && from != 0 {
            return true;
        }
    }
    skb::conntrack(sk_buff).is_none_or(|(_, info)| info != IP_CT_NEW)
}

/// Whether a tuple may be tagged, or one that the request asks for.
#[inline(never)]
fn is_wanted(src: u32, dst: u32, ports: u32, proto_: u32) -> bool {
    let (sport, dport) = ((ports >> 16) as u16, ports as u16);
    let slot = tuple::bloom_slot_v4(src, dst, sport, dport, proto_);
    let Some(hint) = BLOOM.get(slot & (BLOOM_SLOTS - 1)) else {
        return true;
    };
    if *hint != 0 {
        return true;
    }
    // SAFETY: CONFIG is a static, replaced by user space before load.
    let n = unsafe { core::ptr::read_volatile(&raw const CONFIG.n_glances) };
    for i in 0..MAX_FILTER_RULES {
        if i >= n {
            break;
        }
        // SAFETY: as above; i is within the array.
        let glance = unsafe { core::ptr::read_volatile(&raw const CONFIG.glances[i as usize]) };
        if glance.may_match(src, dst, sport, dport) {
            return true;
        }
    }
    false
}

/// IPv4 without options that is not a fragment.
///
/// # Safety
/// The verifier must know that the header is before the packet's bound.
#[inline(always)]
unsafe fn is_plain(l3: usize) -> bool {
    // SAFETY: as promised by the caller.
    unsafe { at8(l3) == PLAIN && be16(l3 + 6) & FRAGMENT == 0 }
}

/// One byte of the packet.
///
/// # Safety
/// The verifier must know that it is before the packet's bound.
#[inline(always)]
unsafe fn at8(at: usize) -> u8 {
    // SAFETY: as promised by the caller.
    unsafe { (at as *const u8).read() }
}

/// Two bytes, in host order. Every header starts at an even address
/// (`NET_IP_ALIGN`, or an aligned start and headers of even length).
///
/// # Safety
/// As for [`at8`].
#[inline(always)]
unsafe fn be16(at: usize) -> u16 {
    // SAFETY: as promised by the caller.
    u16::from_be(unsafe { (at as *const u16).read() })
}

/// Four bytes, in memory order. Two loads: only even addresses are promised.
///
/// # Safety
/// As for [`at8`].
#[inline(always)]
unsafe fn at32(at: usize) -> u32 {
    // SAFETY: as promised by the caller.
    let (first, second) = unsafe { ((at as *const u16).read(), ((at + 2) as *const u16).read()) };
    if cfg!(target_endian = "little") {
        u32::from(first) | u32::from(second) << 16
    } else {
        u32::from(first) << 16 | u32::from(second)
    }
}
