//! Scenarios: hand-made events in, timelines out.
#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::net::IpAddr;
use std::sync::Arc;

use super::{Assembler, Limits};
use crate::event::{Answer, Body, CtSource, CtTuple, Event, IPS_CONFIRMED, Namer, Packet};
use crate::trace::{Endpoint, Fold, Node, Outcome, Role, Step, StepKind, Tunnel};

mod bytes;
mod identity;
mod limits;
mod path;
mod repeat;

pub(crate) const CLIENT: &str = "10.244.80.65";
pub(crate) const VIP: &str = "10.98.235.247";
pub(crate) const BACKEND: &str = "10.244.158.65";
pub(crate) const NODE1: &str = "172.31.0.2";
pub(crate) const NODE2: &str = "172.31.0.3";

pub(crate) fn ip(s: &str) -> IpAddr {
    s.parse().unwrap()
}

/// Knows the nodes of the picture.
pub(crate) struct Names;

impl Namer for Names {
    fn endpoint(&self, addr: IpAddr, port: Option<u16>) -> Endpoint {
        let name = [
            (CLIENT, "pod/default/client"),
            (VIP, "svc/default/remote"),
            (BACKEND, "pod/default/remote"),
        ]
        .iter()
        .find(|(a, _)| ip(a) == addr)
        .map(|(_, n)| Arc::from(*n));
        Endpoint { addr, port, name }
    }
    fn is_node(&self, addr: IpAddr) -> bool {
        [NODE1, NODE2, "10.244.80.64"].iter().any(|a| ip(a) == addr)
    }
    fn node_of(&self, addr: IpAddr) -> Option<Arc<str>> {
        match addr.to_string().as_str() {
            NODE1 | "10.244.80.64" | CLIENT => Some("worker".into()),
            NODE2 | BACKEND => Some("worker2".into()),
            _ => None,
        }
    }
}

pub(crate) fn nodes() -> Vec<Node> {
    let node = |name: &str, addrs: &[&str]| Node {
        name: name.into(),
        netns: 1,
        addrs: addrs.iter().map(|a| ip(a)).collect(),
        interfaces: Vec::new(),
    };
    vec![
        node("worker", &[NODE1, "10.244.80.64"]),
        node("worker2", &[NODE2]),
    ]
}

/// A packet from `a:b` to `c:d`.
pub(crate) fn tcp(src: (&str, u16), dst: (&str, u16), flags: u8, seq: u32, ack: u32) -> Packet {
    Packet {
        src: ip(src.0),
        dst: ip(dst.0),
        sport: src.1,
        dport: dst.1,
        proto: 6,
        seq,
        ack,
        payload_len: 0,
        payload_hash: 0,
        ip_id: 0,
        frag_offset: 0,
        more_fragments: false,
        l4_flags: flags,
        ttl: 64,
        quoted: false,
        truncated: false,
    }
}

pub(crate) const S: u8 = 2;
pub(crate) const SA: u8 = 0x12;
pub(crate) const A: u8 = 0x10;
pub(crate) const PA: u8 = 0x18;

pub(crate) fn vxlan(src: &str, dst: &str, sport: u16) -> Tunnel {
    Tunnel {
        kind: "vxlan".into(),
        vni: Some(4096),
        src: ip(src),
        dst: ip(dst),
        sport: (sport > 0).then_some(sport),
        dport: (sport > 0).then_some(4789),
    }
}

/// Pushes events, a microsecond apart.
pub(crate) struct Bench {
    pub(crate) asm: Assembler,
    pub(crate) steps: Vec<Step>,
    pub(crate) now: u64,
    pub(crate) flow: u64,
    pub(crate) skb: u64,
    pub(crate) reply: bool,
}

impl Bench {
    pub(crate) fn new() -> Self {
        Self::with(Limits::default())
    }

    pub(crate) fn with(limits: Limits) -> Self {
        Self {
            asm: Assembler::new(limits, Arc::new(Names)),
            steps: Vec::new(),
            now: 1_000_000_000,
            flow: 77,
            skb: 0xff00,
            reply: false,
        }
    }

    pub(crate) fn body(&mut self, node: &str, iface: &str, body: Body) {
        self.now += 1000;
        let role = match iface {
            "eth0" => Role::Uplink,
            "vxlan.calico" => Role::Tunnel,
            i if i.starts_with("cali") => Role::PodVeth,
            _ => Role::Other,
        };
        let event = Event {
            ts: self.now,
            skb: self.skb,
            flow: self.flow,
            reply: self.reply,
            node: node.into(),
            iface: iface.into(),
            role,
            len: 74,
            mark: 0,
            body,
        };
        self.asm.push(event, &mut self.steps);
    }

    pub(crate) fn seen(&mut self, place: &str, packet: Packet) {
        self.seen_in(place, packet, None);
    }

    /// `place`: `worker < eth0` is ingress, `worker > eth0` egress.
    pub(crate) fn seen_in(&mut self, place: &str, packet: Packet, tunnel: Option<Tunnel>) {
        let words: Vec<&str> = place.split(' ').collect();
        let body = Body::Seen {
            ingress: words[1] == "<",
            packet,
            tunnel,
            gso_segs: 0,
        };
        self.body(words[0], words[2], body);
    }

    pub(crate) fn nat(&mut self, node: &str, packet: Packet, source: bool, to: (&str, u16)) {
        let to = (ip(to.0), to.1);
        let reply = self.reply;
        let body = Body::Nat {
            packet,
            to,
            source,
            reply,
            ct: 9,
            masquerade: false,
            done: false,
        };
        self.body(node, "", body);
    }

    pub(crate) fn ct(&mut self, node: &str, how: CtSource, original: &Packet, reply: &Packet) {
        let t = |p: &Packet| CtTuple {
            src: p.src,
            sport: p.sport,
            dst: p.dst,
            dport: p.dport,
            proto: 6,
        };
        let body = Body::Conntrack {
            how,
            original: t(original),
            reply: t(reply),
            ct: 9,
            status: IPS_CONFIRMED,
            mark: 0,
            zone: 0,
            masquerade: false,
        };
        self.body(node, "", body);
    }

    pub(crate) fn drop(&mut self, node: &str, packet: Packet, hook: Option<&'static str>) {
        let body = Body::Drop {
            packet,
            reason: Some(Arc::from("NETFILTER_DROP")),
            function: "nft_do_chain".into(),
            hook,
            tunnel: None,
        };
        self.body(node, "", body);
    }

    /// Freed by `function` at an interface: `worker2 eth0`.
    pub(crate) fn freed(&mut self, place: &str, packet: Packet, function: &str, reason: &str) {
        let (node, iface) = place.split_once(' ').unwrap();
        let body = Body::Drop {
            packet,
            reason: Some(reason.into()),
            function: function.into(),
            hook: None,
            tunnel: None,
        };
        self.body(node, iface, body);
    }

    pub(crate) fn answer(&mut self, node: &str, packet: Packet, answer: Answer) {
        self.body(
            node,
            "",
            Body::Answer {
                packet,
                function: "icmp_send",
                answer,
                hook: Some("FORWARD"),
                tunnel: None,
            },
        );
    }

    /// One line per step: packet, kind, place, tuple.
    pub(crate) fn lines(&self) -> Vec<String> {
        self.steps.iter().map(line).collect()
    }

    pub(crate) fn kinds(&self, packet: u64) -> Vec<String> {
        self.steps
            .iter()
            .filter(|s| s.packet == Some(packet))
            .map(short)
            .collect()
    }

    pub(crate) fn fold(&self) -> Fold {
        let mut fold = Fold::new(&nodes());
        self.steps.iter().cloned().for_each(|s| fold.push(s));
        fold.finish(None);
        fold
    }

    pub(crate) fn outcome(&self, packet: u64) -> Outcome {
        self.fold().packet(packet).unwrap().outcome
    }
}

pub(crate) fn kind(step: &Step) -> String {
    serde_json::to_value(step.kind)
        .unwrap()
        .as_str()
        .unwrap()
        .to_owned()
}

pub(crate) fn short(s: &Step) -> String {
    let mark = if s.inferred { "~" } else { "" };
    let at = matches!(
        s.kind,
        StepKind::Ingress | StepKind::Egress | StepKind::Encap | StepKind::Decap
    );
    if at {
        format!("{mark}{} {}", kind(s), s.iface)
    } else {
        format!("{mark}{}", kind(s))
    }
}

pub(crate) fn line(s: &Step) -> String {
    let end = |e: &Endpoint| format!("{}:{}", e.addr, e.port.unwrap_or(0));
    format!(
        "#{} {} {} {} > {}",
        s.packet.unwrap(),
        s.node,
        short(s),
        end(&s.src),
        end(&s.dst)
    )
}

/// Two TCP ends without translation.
pub(crate) fn plain(flags: u8, seq: u32, ack: u32, len: u32) -> Packet {
    let mut p = tcp((CLIENT, 45266), (BACKEND, 8080), flags, seq, ack);
    p.payload_len = len;
    p
}
