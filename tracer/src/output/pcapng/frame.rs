//! A step's packet as bytes: the headers that are known, built anew. What was
//! not kept is filled in as [`FILLED`] says, and payload is left out: the frame
//! is shorter than the packet was, and says so.

use std::net::IpAddr;

use crate::trace::{Endpoint, Step, Tunnel};

/// What stands in a frame for what a trace does not hold.
pub(super) const FILLED: &str = "Headers are rebuilt from the trace. Not recorded, and filled in: link-layer addresses (zero), \
TCP options (end-of-list bytes) and window (65535), IP flags and traffic class (zero), outer IP identification (zero) and TTL (64), \
ICMP beyond type, code, identifier and MTU (zero), SCTP verification tags (zero), the UDP length of a first fragment (the fragment's). Payload is not there; checksums over payload \
are zero, all others are right for the bytes shown.";

/// Link type of an interface: `LINKTYPE_ETHERNET`, `LINKTYPE_RAW`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Link {
    Ethernet = 1,
    Raw = 101,
}

/// Bytes, and the length that the packet had.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) bytes: Vec<u8>,
    pub(super) len: u32,
}

const ETHERNET: u32 = 14;
const UDP: u8 = 17;
/// Ethernet's type of each family.
fn ethertype(v6: bool) -> [u8; 2] {
    if v6 { [0x86, 0xdd] } else { [0x08, 0x00] }
}

fn ip_header(addr: IpAddr) -> u32 {
    if addr.is_ipv6() { 40 } else { 20 }
}

/// IP protocol number by the name that steps have.
fn number(proto: &str) -> u8 {
    match proto {
        "icmp" => 1,
        "tcp" => 6,
        "udp" => UDP,
        "dccp" => 33,
        "gre" => 47,
        "esp" => 50,
        "icmpv6" => 58,
        "sctp" => 132,
        "udplite" => 136,
        other => other.parse().unwrap_or(255),
    }
}

/// Bytes that a tunnel adds inside the outer link-layer header.
fn overhead(tunnel: &Tunnel) -> u32 {
    let inner = if tunnel.kind == "vxlan" {
        8 + 8 + ETHERNET
    } else {
        0
    };
    ip_header(tunnel.src) + inner
}

/// Whether the frame of a step at an interface had an Ethernet header, by its
/// length: IP headers and those behind them are multiples of four bytes long,
/// Ethernet's (with VLAN tags or without) are not.
pub(super) fn link(step: &Step) -> Link {
    let tunnel = step.tunnel.as_ref().map_or(0, overhead);
    let headers = step.len.wrapping_sub(step.payload).wrapping_sub(tunnel);
    let known = matches!(&*step.proto, "tcp" | "udp" | "icmp" | "icmpv6");
    if known && step.merged.is_none() && headers.is_multiple_of(4) {
        Link::Raw
    } else {
        Link::Ethernet
    }
}

/// The packet of a step, on a link of this kind; without its outer headers
/// where `inner`.
pub(super) fn frame(step: &Step, on: Link, inner: bool) -> Frame {
    let tunnel = step.tunnel.as_ref().filter(|_| !inner);
    let l4 = transport(step, l4_room(step));
    let l4_len = payload(step).saturating_add(l4.len() as u32);
    let ip = step.ip.as_ref();
    let outer_ip = Ip {
        src: step.src.addr,
        dst: step.dst.addr,
        proto: number(&step.proto),
        ttl: ip.map_or(64, |ip| ip.ttl),
        id: ip.map_or(0, |ip| ip.id),
        frag_offset: ip.and_then(|ip| ip.frag_offset).unwrap_or(0),
        more: ip.is_some_and(|ip| ip.more_fragments),
    };
    let mut bytes = outer_ip.header(l4_len);
    let mut len = l4_len.saturating_add(bytes.len() as u32);
    bytes.extend(l4);
    let mut v6 = step.src.addr.is_ipv6();
    if let Some(t) = tunnel {
        (bytes, len) = wrap(t, &bytes, len, v6);
        v6 = t.src.is_ipv6();
    }
    if on == Link::Ethernet {
        let mut whole = vec![0; 12];
        whole.extend(ethertype(v6));
        whole.append(&mut bytes);
        bytes = whole;
        len = len.saturating_add(ETHERNET);
    }
    Frame { bytes, len }
}

/// Bytes behind the L4 header. Of ICMP errors steps count all behind the IP
/// header.
fn payload(step: &Step) -> u32 {
    let v6 = step.proto == "icmpv6";
    match step.icmp {
        Some(icmp) if matches!(&*step.proto, "icmp" | "icmpv6") && !is_echo(icmp.kind, v6) => {
            step.payload.saturating_sub(8)
        }
        _ => step.payload,
    }
}

/// Puts an IP packet into its tunnel.
fn wrap(t: &Tunnel, packet: &[u8], len: u32, v6: bool) -> (Vec<u8>, u32) {
    let vxlan = t.kind == "vxlan";
    let mut body = Vec::new();
    let mut body_len = len;
    if vxlan {
        body_len = body_len.saturating_add(8 + 8 + ETHERNET);
        body.extend(t.sport.unwrap_or(0).to_be_bytes());
        body.extend(t.dport.unwrap_or(4789).to_be_bytes());
        body.extend(short(body_len));
        // RFC 7348 section 4.1: sent as zero over IPv4.
        body.extend([0, 0]);
        body.extend([8, 0, 0, 0]);
        body.extend((t.vni.unwrap_or(0) << 8).to_be_bytes());
        body.extend([0; 12]);
        body.extend(ethertype(v6));
    }
    body.extend(packet);
    let ip = Ip {
        src: t.src,
        dst: t.dst,
        proto: match (vxlan, v6) {
            (true, _) => UDP,
            (false, true) => 41,
            (false, false) => 4,
        },
        ttl: 64,
        id: 0,
        frag_offset: 0,
        more: false,
    };
    let mut bytes = ip.header(body_len);
    let whole = body_len.saturating_add(bytes.len() as u32);
    bytes.extend(body);
    (bytes, whole)
}

/// A length field; what does not fit is zero, as the kernel writes it for
/// packets that are cut up later.
fn short(len: u32) -> [u8; 2] {
    u16::try_from(len).unwrap_or(0).to_be_bytes()
}

/// How long the L4 header is, by the packet's length; 0 where that tells nothing.
fn l4_room(step: &Step) -> u32 {
    if step.merged.is_some() {
        return 0;
    }
    let mut room = step
        .len
        .saturating_sub(step.payload)
        .saturating_sub(ip_header(step.src.addr));
    let outer = step.tunnel.as_ref().map_or(0, overhead);
    if room >= outer + 20 {
        room -= outer;
    }
    if room % 4 == ETHERNET % 4 {
        room = room.saturating_sub(ETHERNET);
    }
    room
}

struct Ip {
    src: IpAddr,
    dst: IpAddr,
    proto: u8,
    ttl: u8,
    id: u32,
    frag_offset: u32,
    more: bool,
}

impl Ip {
    fn header(&self, payload: u32) -> Vec<u8> {
        match (self.src, self.dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                let mut h = vec![0x45, 0];
                h.extend(short(payload.saturating_add(20)));
                h.extend((self.id as u16).to_be_bytes());
                let more = if self.more { 0x2000 } else { 0 };
                h.extend((more | (self.frag_offset / 8) as u16 & 0x1fff).to_be_bytes());
                h.extend([self.ttl, self.proto, 0, 0]);
                h.extend(src.octets());
                h.extend(dst.octets());
                let sum = checksum(&[&h]);
                h[10..12].copy_from_slice(&sum.to_be_bytes());
                h
            }
            (src, dst) => {
                let fragment = self.more || self.frag_offset > 0;
                let mut h = vec![0x60, 0, 0, 0];
                h.extend(short(payload.saturating_add(if fragment { 8 } else { 0 })));
                h.extend([if fragment { 44 } else { self.proto }, self.ttl]);
                h.extend(v6(src));
                h.extend(v6(dst));
                if fragment {
                    h.extend([self.proto, 0]);
                    let offset = (self.frag_offset as u16) & 0xfff8;
                    h.extend((offset | u16::from(self.more)).to_be_bytes());
                    h.extend(self.id.to_be_bytes());
                }
                h
            }
        }
    }
}

fn v6(addr: IpAddr) -> [u8; 16] {
    match addr {
        IpAddr::V4(a) => a.to_ipv6_mapped().octets(),
        IpAddr::V6(a) => a.octets(),
    }
}

/// The L4 header; nothing in later fragments and where the protocol is none
/// of ours.
fn transport(step: &Step, room: u32) -> Vec<u8> {
    let later = step.ip.as_ref().and_then(|ip| ip.frag_offset).is_some();
    if later {
        return Vec::new();
    }
    let port = |e: &Endpoint| e.port.unwrap_or(0).to_be_bytes();
    let mut h = Vec::new();
    let sum_at = match &*step.proto {
        "tcp" => {
            let Some(tcp) = &step.tcp else {
                return Vec::new();
            };
            h.extend(port(&step.src));
            h.extend(port(&step.dst));
            h.extend(tcp.seq.to_be_bytes());
            h.extend(tcp.ack.to_be_bytes());
            let room = if (20..=60).contains(&room) {
                room & !3
            } else {
                20
            };
            h.extend([(room << 2) as u8, flags(&tcp.flags)]);
            h.extend([0xff, 0xff, 0, 0, 0, 0]);
            h.resize(room as usize, 0);
            16
        }
        "udp" => {
            h.extend(port(&step.src));
            h.extend(port(&step.dst));
            let len = step.payload.saturating_add(8);
            // Zero would mean a jumbogram.
            h.extend(u16::try_from(len).unwrap_or(u16::MAX).to_be_bytes());
            h.extend([0, 0]);
            6
        }
        "icmp" | "icmpv6" => {
            let Some(icmp) = step.icmp else {
                return Vec::new();
            };
            h.extend([icmp.kind, icmp.code, 0, 0]);
            let v6 = step.proto == "icmpv6";
            match icmp.mtu {
                Some(mtu) if v6 => h.extend(mtu.to_be_bytes()),
                Some(mtu) => {
                    h.extend([0, 0]);
                    h.extend(short(mtu));
                }
                None if is_echo(icmp.kind, v6) => {
                    h.extend(port(&step.src));
                    h.extend([0, 0]);
                }
                None => h.extend([0; 4]),
            }
            2
        }
        "sctp" => {
            h.extend(port(&step.src));
            h.extend(port(&step.dst));
            h.extend([0; 8]);
            return h;
        }
        _ => return Vec::new(),
    };
    if payload(step) == 0 {
        let (src, dst) = (step.src.addr, step.dst.addr);
        let pseudo = pseudo_header(src, dst, number(&step.proto), h.len() as u32);
        let pseudo = if step.proto == "icmp" {
            &[][..]
        } else {
            &pseudo[..]
        };
        let mut sum = checksum(&[pseudo, &h]);
        if sum == 0 && step.proto == "udp" {
            sum = 0xffff;
        }
        h[sum_at..sum_at + 2].copy_from_slice(&sum.to_be_bytes());
    }
    h
}

fn is_echo(kind: u8, v6: bool) -> bool {
    if v6 {
        matches!(kind, 128 | 129)
    } else {
        matches!(kind, 0 | 8)
    }
}

/// TCP's flags, from tcpdump's letters.
fn flags(letters: &str) -> u8 {
    let bit = |c| match c {
        'F' => 1,
        'S' => 2,
        'R' => 4,
        'P' => 8,
        '.' => 16,
        'U' => 32,
        'E' => 64,
        'W' => 128,
        _ => 0,
    };
    letters.chars().map(bit).fold(0, |all, bit| all | bit)
}

fn pseudo_header(src: IpAddr, dst: IpAddr, proto: u8, len: u32) -> Vec<u8> {
    let mut h = match (src, dst) {
        (IpAddr::V4(a), IpAddr::V4(b)) => [a.octets(), b.octets()].concat(),
        (a, b) => [v6(a), v6(b)].concat(),
    };
    h.extend(len.to_be_bytes());
    h.extend(u32::from(proto).to_be_bytes());
    h
}

/// RFC 1071. Each part but the last has an even length.
fn checksum(parts: &[&[u8]]) -> u16 {
    let mut sum = 0_u32;
    for pair in parts.iter().flat_map(|p| p.chunks(2)) {
        sum += u32::from(pair[0]) << 8 | pair.get(1).map_or(0, |b| u32::from(*b));
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

#[cfg(test)]
mod tests;
