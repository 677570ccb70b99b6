//! Events of realistic connections, for benchmarks and load tests: a pod asks
//! a `ClusterIP` whose backend runs on the other node, through VXLAN.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use crate::event::{Body, CtSource, CtTuple, Event, IPS_CONFIRMED, Packet};
use crate::trace::{Role, Tunnel};

/// Connections that are open at the same time.
const AT_ONCE: u64 = 64;

const VIP: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 98, 235, 247));
const BACKEND: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 244, 158, 65));
const NODES: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(172, 31, 0, 2)),
    IpAddr::V4(Ipv4Addr::new(172, 31, 0, 3)),
];

/// Names, made once, as the enriching stage hands them out.
struct Names {
    nodes: [Arc<str>; 2],
    pods: [Arc<str>; 2],
    tunnel: Arc<str>,
    uplink: Arc<str>,
    none: Arc<str>,
}

/// The packets of one connection: from the server, TCP flags, payload.
const TALK: [(bool, u8, u32); 10] = [
    (false, 0x02, 0),
    (true, 0x12, 0),
    (false, 0x10, 0),
    (false, 0x18, 77),
    (true, 0x10, 0),
    (true, 0x18, 1340),
    (false, 0x10, 0),
    (false, 0x11, 0),
    (true, 0x11, 0),
    (false, 0x10, 0),
];

/// The events of so many connections, in order of time, 64 at a time.
pub fn events(n_connections: u64) -> impl Iterator<Item = Event> {
    let names = Arc::new(Names {
        nodes: ["worker".into(), "worker2".into()],
        pods: ["cali747ff840379".into(), "cali1b2c3d4e5f6".into()],
        tunnel: "vxlan.calico".into(),
        uplink: "eth0".into(),
        none: "".into(),
    });
    let batches = n_connections.div_ceil(AT_ONCE);
    let mut ts = 1_700_000_000_000_000_000;
    let talk = move |batch: u64| {
        let names = Arc::clone(&names);
        let mut seqs = vec![[1000_u32, 5000]; AT_ONCE as usize];
        (0..TALK.len() * AT_ONCE as usize).flat_map(move |i| {
            let (turn, lane) = (i / AT_ONCE as usize, i % AT_ONCE as usize);
            let number = batch * AT_ONCE + lane as u64;
            if number >= n_connections {
                return Vec::new();
            }
            Sender { number, turn }.send(&names, &mut seqs[lane])
        })
    };
    (0..batches).flat_map(talk).map(move |mut event| {
        ts += 1000;
        event.ts = ts;
        event
    })
}

struct Sender {
    number: u64,
    turn: usize,
}

impl Sender {
    /// All events of one packet's way.
    fn send(&self, names: &Names, seqs: &mut [u32; 2]) -> Vec<Event> {
        let (reply, flags, payload) = TALK[self.turn];
        let (near, far) = (usize::from(reply), usize::from(!reply));
        let numbers = (seqs[near], seqs[far]);
        seqs[near] += payload + u32::from(flags & 0x02 != 0) + u32::from(flags & 0x01 != 0);
        let asked = self.packet(VIP, 80, numbers);
        let real = self.packet(BACKEND, 8080, numbers);
        let outer = Tunnel {
            kind: "vxlan".into(),
            vni: Some(4096),
            src: NODES[near],
            dst: NODES[far],
            sport: Some(self.port()),
            dport: Some(4789),
        };
        let (first, last) = if reply { (real, asked) } else { (asked, real) };
        let pod = |n: usize| (n, &names.pods[n], Role::PodVeth);
        let tunnel = |n: usize| (n, &names.tunnel, Role::Tunnel);
        let uplink = |n: usize| (n, &names.uplink, Role::Uplink);
        let inside = |n: usize| (n, &names.none, Role::Other);
        let mut way = Vec::with_capacity(10);
        let mut go = |place, body| way.push(self.event(names, place, body));
        go(pod(near), seen(true, first, None));
        if !reply {
            go(inside(near), nat(asked, (BACKEND, 8080), reply));
        }
        if self.turn == 0 {
            go(inside(near), confirmed(&asked, &real));
        }
        go(tunnel(near), seen(false, real, None));
        go(uplink(near), seen(false, real, Some(outer.clone())));
        go(uplink(far), seen(true, real, Some(outer)));
        go(tunnel(far), seen(true, real, None));
        if reply {
            go(inside(far), nat(real, (VIP, 80), reply));
        }
        if self.turn == 0 {
            go(inside(far), confirmed(&real, &real));
        }
        go(pod(far), seen(false, last, None));
        way
    }

    fn port(&self) -> u16 {
        10_000 + (self.number % 50_000) as u16
    }

    /// This turn's packet, with the server under the given address.
    fn packet(&self, server: IpAddr, server_port: u16, (seq, ack): (u32, u32)) -> Packet {
        let (reply, flags, payload) = TALK[self.turn];
        let last = (self.number / 50_000 % 200) as u8;
        let client = IpAddr::V4(Ipv4Addr::new(10, 244, 80, last));
        let mut ends = [(client, self.port()), (server, server_port)];
        if reply {
            ends.reverse();
        }
        let [(src, sport), (dst, dport)] = ends;
        Packet {
            src,
            dst,
            sport,
            dport,
            proto: 6,
            seq,
            ack: if flags == 2 { 0 } else { ack },
            payload_len: payload,
            payload_hash: payload,
            ip_id: (self.number * 16 + self.turn as u64) as u32 & 0xffff,
            frag_offset: 0,
            more_fragments: false,
            l4_flags: flags,
            ttl: 63,
            quoted: false,
            truncated: false,
        }
    }

    fn event(
        &self,
        names: &Names,
        (node, iface, role): (usize, &Arc<str>, Role),
        body: Body,
    ) -> Event {
        let (lane, turn) = (self.number % AT_ONCE, self.turn as u64 % 4);
        Event {
            ts: 0,
            skb: 0xffff_8880_0000_0000 + (lane << 12) + (turn << 8),
            flow: self.number + 1,
            reply: TALK[self.turn].0,
            node: Arc::clone(&names.nodes[node]),
            iface: Arc::clone(iface),
            role,
            len: 66 + TALK[self.turn].2,
            mark: 0,
            body,
        }
    }
}

fn seen(ingress: bool, packet: Packet, tunnel: Option<Tunnel>) -> Body {
    Body::Seen {
        ingress,
        packet,
        tunnel,
        gso_segs: 1,
    }
}

fn nat(packet: Packet, to: (IpAddr, u16), reply: bool) -> Body {
    let (ct, masquerade, done) = (1, false, false);
    Body::Nat {
        packet,
        to,
        source: reply,
        reply,
        ct,
        masquerade,
        done,
    }
}

fn confirmed(asked: &Packet, real: &Packet) -> Body {
    let tuple = |src, sport, dst, dport| CtTuple {
        src,
        sport,
        dst,
        dport,
        proto: 6,
    };
    Body::Conntrack {
        how: CtSource::Confirmed,
        original: tuple(asked.src, asked.sport, asked.dst, asked.dport),
        reply: tuple(real.dst, real.dport, real.src, real.sport),
        ct: 1,
        status: IPS_CONFIRMED,
        mark: 0,
        zone: 0,
        masquerade: false,
    }
}
