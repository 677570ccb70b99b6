//! A segment that comes far too late: what makes conntrack call a packet of a good connection invalid.

use std::io::Read;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use socket2::{Domain, Protocol, Socket, Type};

use crate::lab::netns;
use crate::lab::topology::POD_PORT;

/// How far outside the window the segment is.
const DISTANCE: u32 = 1_500_000_000;
const IPV4_HEADER: usize = 20;
const TCP_HEADER: usize = 20;
const SYN_ACK: u8 = 0x12;
const ACK: u8 = 0x10;

/// Somebody in a server's namespace who waits for a connection to it and then sends such a segment to the client.
#[derive(Debug)]
pub struct Stray(JoinHandle<Result<()>>);

impl Stray {
    /// Listens in the server's namespace from now on, for so long.
    pub fn wait_in(ns: &str, limit: Duration) -> Result<Self> {
        let socket = netns::within(ns, || {
            let every = Protocol::from(i32::from((libc::ETH_P_ALL as u16).to_be()));
            let socket = Socket::new(Domain::from(libc::AF_PACKET), Type::DGRAM, Some(every))
                .context("opening a packet socket")?;
            socket.set_read_timeout(Some(Duration::from_millis(500)))?;
            Ok(socket)
        })?;
        let raw = netns::within(ns, || {
            Socket::new(
                Domain::IPV4,
                Type::from(libc::SOCK_RAW),
                Some(Protocol::from(libc::IPPROTO_RAW)),
            )
            .context("opening a raw socket")
        })?;
        Ok(Self(thread::spawn(move || {
            let answer = Answer::wait(socket, limit)?;
            // After the handshake's end.
            thread::sleep(Duration::from_millis(300));
            let segment = answer.late_segment();
            raw.send_to(&segment, &SocketAddr::V4(answer.client).into())
                .context("sending the segment")?;
            Ok(())
        })))
    }

    /// Waits until the segment is sent.
    pub fn sent(self) -> Result<()> {
        match self.0.join() {
            Ok(result) => result,
            Err(_) => bail!("the thread that sends the segment panicked"),
        }
    }
}

/// The SYN-ACK of a server.
struct Answer {
    server: SocketAddrV4,
    client: SocketAddrV4,
    seq: u32,
    ack: u32,
}

impl Answer {
    fn wait(mut socket: Socket, limit: Duration) -> Result<Self> {
        let deadline = Instant::now() + limit;
        let mut packet = [0; 2048];
        while Instant::now() < deadline {
            // An error is the time-out.
            let length = socket.read(&mut packet).unwrap_or(0);
            if let Some(answer) = Self::parse(&packet[..length]) {
                return Ok(answer);
            }
        }
        bail!("nobody connected to the server");
    }

    fn parse(packet: &[u8]) -> Option<Self> {
        let tcp = packet.get(IPV4_HEADER..IPV4_HEADER + TCP_HEADER)?;
        let half = |from: &[u8], at: usize| u16::from_be_bytes([from[at], from[at + 1]]);
        let word = |from: &[u8], at: usize| {
            u32::from_be_bytes([from[at], from[at + 1], from[at + 2], from[at + 3]])
        };
        let wanted = packet[0] == 0x45
            && i32::from(packet[9]) == libc::IPPROTO_TCP
            && half(tcp, 0) == POD_PORT
            && tcp[13] == SYN_ACK;
        wanted.then(|| Self {
            server: SocketAddrV4::new(Ipv4Addr::from(word(packet, 12)), half(tcp, 0)),
            client: SocketAddrV4::new(Ipv4Addr::from(word(packet, 16)), half(tcp, 2)),
            seq: word(tcp, 4),
            ack: word(tcp, 8),
        })
    }

    /// A segment of the server with data that is far ahead of what it has sent.
    fn late_segment(&self) -> Vec<u8> {
        let data = b"late";
        let length = (TCP_HEADER + data.len()) as u16;
        let (from, to) = (self.server.ip().octets(), self.client.ip().octets());
        let mut tcp = Vec::new();
        tcp.extend(self.server.port().to_be_bytes());
        tcp.extend(self.client.port().to_be_bytes());
        tcp.extend(self.seq.wrapping_add(1 + DISTANCE).to_be_bytes());
        tcp.extend(self.ack.to_be_bytes());
        // Header length, flags, window, checksum, urgent pointer.
        tcp.extend([0x50, ACK, 0x01, 0xf4, 0, 0, 0, 0]);
        tcp.extend(data);
        let mut pseudo = [from, to].concat();
        pseudo.extend([0, libc::IPPROTO_TCP as u8]);
        pseudo.extend(length.to_be_bytes());
        pseudo.extend(&tcp);
        tcp[16..18].copy_from_slice(&checksum(&pseudo).to_be_bytes());

        // The kernel fills in the header's checksum.
        let mut packet = vec![0x45, 0];
        packet.extend((IPV4_HEADER as u16 + length).to_be_bytes());
        packet.extend([0x10, 0x92, 0x40, 0, 64, libc::IPPROTO_TCP as u8, 0, 0]);
        packet.extend(from);
        packet.extend(to);
        packet.extend(tcp);
        packet
    }
}

/// The Internet checksum.
fn checksum(bytes: &[u8]) -> u16 {
    let sum: u32 = bytes
        .chunks(2)
        .map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0)))
        .sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    !((folded & 0xffff) + (folded >> 16)) as u16
}

#[cfg(test)]
mod tests {
    use super::{Answer, checksum};

    #[test]
    fn checksum_of_what_has_its_checksum_is_zero() {
        let header = [
            0x45, 0, 0, 0x54, 0, 0, 0x40, 0, 0x40, 1, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2,
        ];
        let mut whole = header;
        whole[10..12].copy_from_slice(&checksum(&header).to_be_bytes());
        assert_eq!(checksum(&whole), 0);
    }

    #[test]
    fn only_a_syn_ack_of_the_server_is_an_answer() {
        let mut packet = [0; 40];
        packet[0] = 0x45;
        packet[9] = 6;
        packet[20..22].copy_from_slice(&8080_u16.to_be_bytes());
        packet[33] = 0x12;
        assert!(Answer::parse(&packet).is_some());
        packet[33] = 0x10;
        assert!(Answer::parse(&packet).is_none());
        assert!(Answer::parse(&packet[..30]).is_none());
    }
}
