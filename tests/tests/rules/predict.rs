//! Where a packet goes through both nodes, by tracer's evaluation of their rules, and what each rule has to count.
//!
//! Routing, the source check and the tunnel are done here, as the kernel does them in between.

use std::net::IpAddr;

use tracer::rules::route::{RouteKind, lookup, next_hop};
use tracer::rules::{Ct, CtState, Hook, Local, Packet, RouteBack, Ruleset, Verdict, Way};
use tracer::state::Namespace;

use crate::outcome::{Conn, Outcome, ends};

const TUNNEL: &str = "vxlan.calico";
const VXLAN: u16 = 4789;
/// Ethernet, VXLAN, UDP and IP.
const TUNNEL_HEADERS: u32 = 14 + 8 + 8 + 20;
const CHECK: &str = "the kernel's own checks of addresses and routes";

/// A node as it was read.
pub(crate) struct Node {
    pub(crate) ns: Namespace,
    pub(crate) rules: Ruleset,
}

/// Both nodes.
pub(crate) struct World {
    pub(crate) nodes: Vec<Node>,
}

impl World {
    /// Every way of a packet that comes in through an interface of a node.
    pub(crate) fn arriving(&self, node: &str, packet: Packet) -> Vec<Outcome> {
        self.from(&[], |walk, start| {
            walk.prerouting(self.index(node), packet, None, &start);
        })
    }

    /// The same of a packet of these connections.
    pub(crate) fn talking(
        &self,
        conns: &[Conn],
        node: &str,
        reply: bool,
        mut packet: Packet,
    ) -> Vec<Outcome> {
        packet.ct = Ct {
            state: Some(CtState::Established),
            confirmed: Some(true),
            seen_reply: Some(true),
            reply: Some(reply),
            ..Ct::default()
        };
        self.from(conns, |walk, start| {
            walk.prerouting(self.index(node), packet, None, &start);
        })
    }

    /// Every way of a packet that a process on a node sends.
    pub(crate) fn leaving(&self, node: &str, packet: Packet) -> Vec<Outcome> {
        self.from(&[], |walk, start| {
            walk.output(self.index(node), packet, None, &start);
        })
    }

    fn from(&self, conns: &[Conn], go: impl FnOnce(&mut Walk<'_>, Outcome)) -> Vec<Outcome> {
        let mut walk = Walk {
            world: self,
            conns,
            ended: Vec::new(),
        };
        let start = Outcome::start();
        go(&mut walk, start);
        walk.ended
    }

    fn index(&self, name: &str) -> usize {
        let found = self.nodes.iter().position(|n| &*n.ns.name == name);
        found.expect("a node of that name")
    }

    fn with_address(&self, addr: IpAddr) -> Option<usize> {
        let has = |n: &Node| {
            n.ns.links
                .iter()
                .any(|l| l.addrs.iter().any(|a| a.addr == addr))
        };
        self.nodes.iter().position(has)
    }
}

struct Walk<'a> {
    world: &'a World,
    /// Of which the packet is, where it is no first one.
    conns: &'a [Conn],
    ended: Vec<Outcome>,
}

impl<'a> Walk<'a> {
    fn node(&self, node: usize) -> &'a Node {
        &self.world.nodes[node]
    }

    /// Goes through a hook; the ways on which the packet goes on.
    fn hook(
        &mut self,
        node: usize,
        hook: Hook,
        packet: &Packet,
        so_far: &Outcome,
    ) -> Vec<(Way, Outcome)> {
        let Node { ns, rules } = self.node(node);
        let mut on = Vec::new();
        for way in rules.traverse(hook, packet, ns).ways {
            let mut outcome = so_far.clone();
            outcome.probability *= way.probability;
            for step in &way.steps {
                outcome.count(&ns.name, hook, step);
            }
            match &way.verdict {
                Verdict::Accept => on.push((way, outcome)),
                Verdict::Unknown { what } => {
                    // The kernel's own choice: a masqueraded source's, a tunnel's.
                    outcome.lost |= packet.sport.is_none() && what.contains("the packet's port");
                    outcome.unknown = Some(what.to_string());
                    self.end(outcome, "unknown");
                }
                verdict => self.end(outcome, &format!("{verdict:?} at {hook:?} of {}", ns.name)),
            }
        }
        on
    }

    /// The node's connection that the packet is of, if it is no first one.
    fn conn(&self, node: usize, packet: &Packet) -> Option<&'a Conn> {
        (packet.ct.state == Some(CtState::Established)).then(|| {
            let of_node = self.conns.iter().find(|c| c.node == node);
            of_node.expect("a connection on every node of the way")
        })
    }

    fn end(&mut self, mut outcome: Outcome, how: &str) {
        how.clone_into(&mut outcome.end);
        self.ended.push(outcome);
    }

    fn prerouting(
        &mut self,
        node: usize,
        mut packet: Packet,
        inner: Option<&Packet>,
        so_far: &Outcome,
    ) {
        let conn = self.conn(node, &packet);
        let reply = packet.ct.reply == Some(true);
        if let Some(Conn {
            original,
            translated,
            mark,
            ..
        }) = conn
        {
            packet.ct.mark = Some(mark.unwrap_or(0));
            let came = if reply { translated } else { original };
            assert_eq!(ends(&packet, reply), *came, "it is of this connection");
            packet.ct.dnat = Some(original[1] != translated[1]);
            packet.ct.snat = Some(original[0] != translated[0]);
            packet.ct.original_src = Some(original[0]);
            packet.ct.original_dst = Some(original[1]);
        }
        for (way, outcome) in self.hook(node, Hook::Prerouting, &packet, so_far) {
            let mut packet = way.packet;
            // What the connection's translation does to every packet, conntrack does without rules.
            if let Some(Conn {
                original,
                translated,
                ..
            }) = conn
            {
                let to = if reply { original[0] } else { translated[1] };
                packet.dst = to.0;
                packet.dport = to.1.filter(|_| packet.proto != 1);
            }
            let ns = &self.node(node).ns;
            let route = lookup(
                ns,
                packet.dst,
                Some(packet.src),
                packet.iif.as_deref(),
                packet.mark,
            );
            match route.kind {
                RouteKind::Local | RouteKind::Broadcast if accepts_source(ns, &packet) => {
                    self.input(node, &packet, inner, &outcome);
                }
                RouteKind::Unicast if accepts_source(ns, &packet) => {
                    packet.oif = route.route.and_then(|r| r.dev.clone());
                    for (way, outcome) in self.hook(node, Hook::Forward, &packet, &outcome) {
                        self.postrouting(node, &way.packet, inner, &outcome);
                    }
                }
                _ => self.end(outcome, CHECK),
            }
        }
    }

    fn input(&mut self, node: usize, packet: &Packet, inner: Option<&Packet>, so_far: &Outcome) {
        for (way, outcome) in self.hook(node, Hook::Input, packet, so_far) {
            match inner {
                // The device gives the packet on with the outer one's mark (`skb_scrub_packet`).
                Some(inner) => {
                    let mut inner = inner.clone();
                    inner.mark = way.packet.mark;
                    self.prerouting(node, afresh(inner, TUNNEL), None, &outcome);
                }
                None => self.end(outcome, "delivered on the node"),
            }
        }
    }

    fn output(
        &mut self,
        node: usize,
        mut packet: Packet,
        inner: Option<&Packet>,
        so_far: &Outcome,
    ) {
        let ns = &self.node(node).ns;
        let route = lookup(ns, packet.dst, Some(packet.src), None, packet.mark);
        if route.kind != RouteKind::Unicast {
            // To itself it would go twice through the hooks.
            let mut outcome = so_far.clone();
            outcome.lost = route.kind == RouteKind::Local;
            self.end(outcome, CHECK);
            return;
        }
        packet.oif = route.route.and_then(|r| r.dev.clone());
        for (way, mut outcome) in self.hook(node, Hook::Output, &packet, so_far) {
            let mut packet = way.packet;
            // Asked again for the translated address (`ip_route_me_harder`).
            let route = lookup(ns, packet.dst, Some(packet.src), None, packet.mark);
            outcome.lost |= route.kind == RouteKind::Local;
            if route.kind != RouteKind::Unicast {
                self.end(outcome, CHECK);
                continue;
            }
            packet.oif = route.route.and_then(|r| r.dev.clone());
            self.postrouting(node, &packet, inner, &outcome);
        }
    }

    fn postrouting(
        &mut self,
        node: usize,
        packet: &Packet,
        inner: Option<&Packet>,
        so_far: &Outcome,
    ) {
        for (way, outcome) in self.hook(node, Hook::Postrouting, packet, so_far) {
            let (mut packet, mut outcome) = (way.packet, outcome);
            let reply = packet.ct.reply == Some(true);
            if let Some(conn) = self.conn(node, &packet) {
                let (original, translated) = (conn.original, conn.translated);
                let from = if reply { original[1] } else { translated[0] };
                packet.src = from.0;
                packet.sport = from.1.filter(|_| packet.proto != 1).or(packet.sport);
                outcome.conns.push(Conn {
                    mark: packet.ct.mark,
                    ..*conn
                });
            }
            let begun = packet.ct.original_src.zip(packet.ct.original_dst);
            if let Some((src, dst)) = begun.filter(|_| packet.ct.state == Some(CtState::New)) {
                outcome.conns.push(Conn {
                    node,
                    original: [src, dst],
                    translated: ends(&packet, false),
                    mark: packet.ct.mark,
                });
            }
            let ns = &self.node(node).ns;
            let dev = packet.oif.as_deref().unwrap_or_default();
            if dev == TUNNEL {
                let hop = next_hop(ns, packet.dst, None, None, packet.mark);
                let own = ns.link(TUNNEL).and_then(|l| l.local);
                let (Some(peer), Some(own)) = (hop.vtep, own) else {
                    self.end(outcome, "no tunnel peer");
                    continue;
                };
                let mut outer = Packet::new(own, peer, 17).marked(packet.mark);
                outer.dport = Some(VXLAN);
                outer.len = packet.len.map(|len| len + TUNNEL_HEADERS);
                outer.ct.state = Some(CtState::New);
                self.output(node, outer, Some(&packet), &outcome);
            } else if let Some(peer) = self
                .world
                .with_address(packet.dst)
                .filter(|_| dev == "eth0")
            {
                let mut packet = afresh(packet, "eth0");
                packet.mark = 0;
                self.prerouting(peer, packet, inner, &outcome);
            } else {
                self.end(outcome, &format!("left {} through {dev}", ns.name));
            }
        }
    }
}

/// The packet as it is seen by another connection tracking.
fn afresh(packet: Packet, iif: &str) -> Packet {
    let before = packet.ct.clone();
    let mut packet = packet.arriving(iif);
    packet.oif = None;
    packet.ct = Ct {
        state: before.state,
        ..Ct::default()
    };
    if before.state == Some(CtState::Established) {
        packet.ct = before;
    }
    if packet.ct.state == Some(CtState::Untracked) {
        packet.ct.state = Some(CtState::New);
    }
    packet
}

/// `fib_validate_source`.
fn accepts_source(ns: &Namespace, packet: &Packet) -> bool {
    let iif = packet.iif.as_deref().unwrap_or_default();
    let setting = |dev: &str| ns.sysctl(&format!("net.ipv4.conf.{dev}.rp_filter"));
    let strict = setting("all").zip(setting(iif));
    let strict = strict
        .map(|(all, own)| all.max(own))
        .expect("rp_filter was read")
        == 1;
    match ns.route_back(packet.src, packet.dst, 0) {
        Some(RouteBack::Devices(devs)) => !strict || devs.iter().any(|d| &**d == iif),
        Some(RouteBack::None) => !strict,
        _ => false,
    }
}
