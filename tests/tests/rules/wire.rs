//! Packets as bytes, and how they are sent without a connection behind them.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use anyhow::{Context, Result, bail};
use tracer::rules::Packet;
use tracer_tests::lab::netns;

/// The IP id of all that is sent here: the nodes let nothing else out that they made themselves.
pub(crate) const ID: u16 = 0x7472;
/// Interface index of every namespace's `eth0`.
const ETH0: i32 = 2;
const ETHERTYPE_IP: u16 = 0x0800;

/// Who sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sender {
    /// Through the interface of this namespace, past its stack, to that link-layer address.
    Link(&'static str, [u8; 6]),
    /// A process of this node.
    Node(&'static str),
}

/// Sends each of the packets once.
pub(crate) fn send(sender: Sender, packets: &[Packet]) -> Result<()> {
    let (Sender::Link(ns, _) | Sender::Node(ns)) = sender;
    netns::within(ns, || match sender {
        Sender::Link(_, to) => {
            let socket = socket(libc::AF_PACKET, libc::SOCK_DGRAM, 0)?;
            packets.iter().try_for_each(|p| link(&socket, to, p))
        }
        Sender::Node(_) => {
            let socket = socket(libc::AF_INET, libc::SOCK_RAW, libc::IPPROTO_RAW)?;
            packets.iter().try_for_each(|p| node(&socket, p))
        }
    })
    .with_context(|| format!("sending from {ns}"))
}

fn socket(family: i32, kind: i32, protocol: i32) -> Result<OwnedFd> {
    // SAFETY: plain numbers.
    let fd = unsafe { libc::socket(family, kind | libc::SOCK_CLOEXEC, protocol) };
    if fd < 0 {
        return Err(io::Error::last_os_error()).context("opening a socket");
    }
    // SAFETY: just opened, and nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn link(socket: &OwnedFd, to: [u8; 6], packet: &Packet) -> Result<()> {
    let bytes = bytes(packet)?;
    // SAFETY: plain integers; all zero is a valid value.
    let mut addr: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    addr.sll_family = libc::AF_PACKET as u16;
    addr.sll_protocol = ETHERTYPE_IP.to_be();
    addr.sll_ifindex = ETH0;
    addr.sll_halen = 6;
    addr.sll_addr[..6].copy_from_slice(&to);
    // SAFETY: the buffer and the address are valid for the lengths given.
    let sent = unsafe {
        libc::sendto(
            socket.as_raw_fd(),
            bytes.as_ptr().cast(),
            bytes.len(),
            0,
            (&raw const addr).cast(),
            size_of_val(&addr) as u32,
        )
    };
    if sent < 0 {
        return Err(io::Error::last_os_error()).with_context(|| format!("{packet:?}"));
    }
    Ok(())
}

fn node(socket: &OwnedFd, packet: &Packet) -> Result<()> {
    let bytes = bytes(packet)?;
    let IpAddr::V4(dst) = packet.dst else {
        bail!("only IPv4 is spoken here");
    };
    // SAFETY: the value is read in the call.
    let marked = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_MARK,
            (&raw const packet.mark).cast(),
            size_of_val(&packet.mark) as u32,
        )
    };
    if marked != 0 {
        return Err(io::Error::last_os_error()).context("marking");
    }
    // SAFETY: plain integers; all zero is a valid value.
    let mut addr: libc::sockaddr_in = unsafe { std::mem::zeroed() };
    addr.sin_family = libc::AF_INET as u16;
    addr.sin_addr.s_addr = u32::from_ne_bytes(dst.octets());
    // SAFETY: the buffer and the address are valid for the lengths given.
    let sent = unsafe {
        libc::sendto(
            socket.as_raw_fd(),
            bytes.as_ptr().cast(),
            bytes.len(),
            0,
            (&raw const addr).cast(),
            size_of_val(&addr) as u32,
        )
    };
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        _ if sent >= 0 => Ok(()),
        // Dropped by a rule, without a route, to all: what comes of it is what the counters tell.
        Some(
            libc::EPERM | libc::EACCES | libc::EINVAL | libc::ENETUNREACH | libc::EHOSTUNREACH,
        ) => Ok(()),
        _ => Err(error).with_context(|| format!("{packet:?}")),
    }
}

/// How long a packet of this protocol is here.
pub(crate) fn length(proto: u8) -> u32 {
    20 + match proto {
        6 | 4 => 20,
        _ => 12,
    }
}

/// An ICMP message's id takes the place of the source port.
fn bytes(packet: &Packet) -> Result<Vec<u8>> {
    let (IpAddr::V4(src), IpAddr::V4(dst)) = (packet.src, packet.dst) else {
        bail!("only IPv4 is spoken here");
    };
    let mut body = Vec::new();
    let ports = [packet.sport, packet.dport].map(|p| p.unwrap_or(0).to_be_bytes());
    let mut sum_at = None;
    match packet.proto {
        6 => {
            body.extend(ports.concat());
            // As in one connection: conntrack looks at the numbers.
            let flags = packet.tcp_flags.unwrap_or(0);
            let (seq, ack): (u32, u32) = match flags {
                0x02 => (1000, 0),
                0x12 => (5000, 1001),
                _ => (1001, 5001),
            };
            body.extend(seq.to_be_bytes());
            body.extend(ack.to_be_bytes());
            body.extend([0x50, flags, 0xff, 0xff]);
            body.extend([0; 4]);
            sum_at = Some((16, true));
        }
        17 => {
            body.extend(ports.concat());
            body.extend(12u16.to_be_bytes());
            body.extend([0; 2]);
            body.extend(b"data");
            sum_at = Some((6, true));
        }
        1 => {
            let (kind, code) = packet.icmp.unwrap_or((8, 0));
            body.extend([kind, code, 0, 0]);
            body.extend(ports[0]);
            body.extend([0, 1]);
            body.extend(b"data");
            sum_at = Some((2, false));
        }
        4 => body.extend(header(4, 0, dst, src)),
        _ => body.extend([0; 12]),
    }
    if let Some((at, pseudo)) = sum_at {
        let mut summed = Vec::new();
        if pseudo {
            summed.extend(src.octets());
            summed.extend(dst.octets());
            summed.extend([0, packet.proto]);
            summed.extend((body.len() as u16).to_be_bytes());
        }
        summed.extend(&body);
        body[at..at + 2].copy_from_slice(&checksum(&summed).to_be_bytes());
    }
    let mut bytes = header(packet.proto, body.len(), src, dst);
    bytes.extend(body);
    Ok(bytes)
}

fn header(proto: u8, body: usize, src: Ipv4Addr, dst: Ipv4Addr) -> Vec<u8> {
    let mut header = vec![0x45, 0];
    header.extend((20 + body as u16).to_be_bytes());
    header.extend(ID.to_be_bytes());
    header.extend([0, 0, 64, proto, 0, 0]);
    header.extend(src.octets());
    header.extend(dst.octets());
    let sum = checksum(&header);
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    header
}

fn checksum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2);
    let mut sum: u32 = words
        .map(|w| u32::from(w[0]) << 8 | u32::from(w.get(1).copied().unwrap_or(0)))
        .sum();
    while sum > 0xffff {
        sum = (sum >> 16) + (sum & 0xffff);
    }
    !(sum as u16)
}
