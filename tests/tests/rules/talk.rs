//! Packets that are answered: what comes after a connection's first packet.

use tracer::rules::Packet;
use tracer_tests::lab::topology::{PODS, Pod};

use crate::Range;
use crate::generate::Shot;
use crate::outcome::Outcome;
use crate::wire::{Sender, send};

const SYN: u8 = 0x02;
const ECHO: (u8, u8) = (8, 0);

/// Whether the packet comes to a pod, which can answer it.
pub(crate) fn starts(shot: &Shot, way: &Outcome) -> bool {
    let begins = match shot.packet.proto {
        6 => shot.packet.tcp_flags == Some(SYN),
        1 => shot.packet.icmp == Some(ECHO),
        proto => proto == 17,
    };
    let mut conns = way.conns.iter();
    let known = conns.all(|c| shot.packet.proto == 1 || c.translated.iter().all(|e| e.1.is_some()));
    let from_link = matches!(shot.sender, Sender::Link(..));
    begins && known && from_link && way.end.contains("through cali") && server(way).is_some()
}

fn server(way: &Outcome) -> Option<&'static Pod> {
    let at = way.conns.last()?.translated[1].0;
    PODS.iter().find(|pod| at == pod.addr)
}

impl Range {
    /// Sends the first packet, the answer, and one more; each has to count as foretold.
    pub(crate) fn talk(&mut self, shot: &Shot) {
        let ways = self.predict(shot);
        let first = shot.again(self.port);
        let [way] = ways.as_slice() else {
            panic!("one way no longer: {shot:?}");
        };
        let server = server(way).expect("a pod");
        let conns = way.conns.clone();
        self.alone(shot, &ways);

        let last = conns.last().expect("a connection").translated;
        let mut answer = Packet::new(last[1].0, last[0].0, first.proto).arriving(server.host_end);
        answer.sport = if first.proto == 1 {
            first.sport
        } else {
            last[1].1
        };
        answer.dport = last[0].1.filter(|_| first.proto != 1);
        answer.tcp_flags = first.tcp_flags.map(|_| 0x12);
        answer.icmp = first.icmp.map(|_| (0, 0));
        answer.len = first.len;
        let ways = self
            .world
            .talking(&conns, server.node, true, answer.clone());
        let from = Sender::Link(server.name, [0xee; 6]);
        self.one(from, &answer, &ways);
        let conns = ways[0].conns.clone();

        let mut more = first;
        more.tcp_flags = more.tcp_flags.map(|_| 0x10);
        let ways = self.world.talking(&conns, shot.node, false, more.clone());
        self.one(shot.sender, &more, &ways);
    }

    fn one(&mut self, from: Sender, packet: &Packet, ways: &[Outcome]) {
        send(from, std::slice::from_ref(packet)).expect("the packet is sent");
        self.counts_one(packet, ways);
    }
}
