//! Packets by chance, the same ones on every run.

use std::net::{IpAddr, Ipv4Addr};

use tracer::rules::{CtState, Packet};
use tracer_tests::lab::topology::{NODES, OUTSIDE, PODS, pod};

use crate::wire::{Sender, length};

/// `splitmix64`.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Less than `below`.
    pub(crate) fn below(&mut self, below: usize) -> usize {
        (self.next() % below as u64) as usize
    }

    /// In so many of a hundred cases.
    pub(crate) fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    pub(crate) fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }
}

/// One packet to send, perhaps several times from different ports.
#[derive(Clone, Debug)]
pub(crate) struct Shot {
    pub(crate) sender: Sender,
    /// The node that has it first.
    pub(crate) node: &'static str,
    pub(crate) packet: Packet,
}

/// Services of the rules that are loaded, with what they listen on.
const SERVICES: [([u8; 4], u8, u16); 16] = [
    ([10, 98, 235, 247], 6, 80),
    ([10, 96, 0, 10], 17, 53),
    ([10, 96, 0, 10], 6, 53),
    ([10, 96, 0, 10], 6, 9153),
    ([10, 96, 0, 1], 6, 443),
    ([10, 101, 7, 7], 6, 80),
    ([10, 102, 8, 8], 6, 80),
    // No endpoints.
    ([10, 103, 9, 9], 6, 80),
    // Session affinity.
    ([10, 104, 1, 1], 6, 80),
    ([10, 105, 1, 1], 6, 80),
    ([10, 105, 1, 2], 6, 80),
    ([10, 106, 1, 1], 6, 80),
    ([10, 107, 1, 1], 6, 80),
    // Load balancer's and external addresses.
    ([192, 0, 2, 10], 6, 80),
    ([192, 0, 2, 10], 6, 80),
    ([192, 0, 2, 20], 6, 80),
];
const PORTS: [u16; 14] = [
    80, 8080, 53, 443, 4789, 30080, 30081, 30082, 30083, 30084, 6443, 9153, 22, 65535,
];
/// Neither a pod's nor a node's: in no block, in blocks but nobody's, outside.
const NOBODYS: [[u8; 4]; 8] = [
    [10, 244, 80, 100],
    [10, 244, 158, 120],
    [10, 244, 9, 9],
    [10, 98, 0, 1],
    [172, 31, 0, 99],
    [172, 31, 0, 255],
    [8, 8, 8, 8],
    [203, 0, 113, 7],
];
const MARKS: [u32; 6] = [0x4000, 0x10000, 0x14000, 0x80000, 0x20000, 0x1];

fn v4(addr: [u8; 4]) -> IpAddr {
    Ipv4Addr::from(addr).into()
}

/// A packet of any kind from anywhere to anywhere. `macs` are those of the nodes' `eth0`.
pub(crate) fn shot(random: &mut Random, macs: [[u8; 6]; 2]) -> Shot {
    let from = random.below(9);
    let (sender, node, own, dev) = match from {
        0..=4 => {
            let pod = pod(random.of(&["client", "client", "local", "remote", "dns"]));
            let pod = pod.expect("a pod of that name");
            let sender = Sender::Link(pod.name, [0xee; 6]);
            (sender, pod.node, pod.addr.into(), pod.host_end)
        }
        5 | 6 => {
            let at = random.below(2);
            let sender = Sender::Link(OUTSIDE.name, macs[at]);
            (sender, NODES[at].name, OUTSIDE.addr.into(), "eth0")
        }
        _ => {
            let node = &NODES[random.below(2)];
            let own = if random.chance(70) {
                node.addr
            } else {
                node.vtep
            };
            (Sender::Node(node.name), node.name, own.into(), "")
        }
    };
    let is_node = matches!(sender, Sender::Node(_));
    let mut src = own;
    if !is_node && random.chance(20) {
        src = somebody(random);
    }
    let (dst, proto, port) = destination(random, dev.starts_with("cali"));
    let mut packet = Packet::new(src, dst, proto).arriving(dev);
    if proto == 1 {
        let kind = random.of(&[8, 8, 8, 13, 0]);
        packet.icmp = Some((kind, 0));
        let begins = kind != 0;
        packet = packet.state(if begins {
            CtState::New
        } else {
            CtState::Invalid
        });
    } else {
        packet = packet.state(CtState::New);
    }
    if proto == 6 {
        // A SYN; a segment of a connection that nobody knows, which conntrack takes up; an answer, an end.
        let flags = random.of(&[0x02, 0x02, 0x02, 0x02, 0x02, 0x02, 0x10, 0x12, 0x04, 0x11]);
        packet.tcp_flags = Some(flags);
        if !matches!(flags, 0x02 | 0x10) {
            packet = packet.state(CtState::Invalid);
        }
    }
    if matches!(proto, 6 | 17) {
        packet.dport = Some(port);
    }
    if is_node && random.chance(30) {
        packet.mark = random.of(&MARKS);
    }
    packet.len = Some(length(proto));
    Shot {
        sender,
        node,
        packet,
    }
}

fn somebody(random: &mut Random) -> IpAddr {
    match random.below(3) {
        0 => PODS[random.below(PODS.len())].addr.into(),
        1 => v4(random.of(&[
            [172, 31, 0, 9],
            [203, 0, 113, 7],
            [10, 99, 0, 5],
            [8, 8, 4, 4],
        ])),
        _ => v4(random.of(&NOBODYS[..3])),
    }
}

fn destination(random: &mut Random, is_pod: bool) -> (IpAddr, u8, u16) {
    let proto = random.of(&[6, 6, 6, 17, 17, 1]);
    let port = random.of(&PORTS);
    match random.below(10) {
        0..=3 => {
            let (addr, own, listens) = random.of(&SERVICES);
            if random.chance(80) {
                (v4(addr), own, listens)
            } else {
                (v4(addr), proto, port)
            }
        }
        4 | 5 => {
            let pod = &PODS[random.below(PODS.len())];
            (
                pod.addr.into(),
                proto,
                if random.chance(50) { 8080 } else { port },
            )
        }
        6 | 7 => {
            let node = &NODES[random.below(2)];
            let addr = if random.chance(80) {
                node.addr
            } else {
                node.vtep
            };
            (addr.into(), proto, port)
        }
        8 => (v4(random.of(&NOBODYS)), proto, port),
        // Other protocols share one connection between two hosts, so only where none is made: pods may not do this.
        _ if is_pod && random.chance(30) => (PODS[random.below(PODS.len())].addr.into(), 4, 0),
        _ => (OUTSIDE.addr.into(), proto, port),
    }
}

impl Shot {
    /// The packet as it is sent for the so many-th time: of another connection.
    pub(crate) fn again(&self, port: u16) -> Packet {
        let mut packet = self.packet.clone();
        packet.sport = Some(port);
        packet
    }
}
