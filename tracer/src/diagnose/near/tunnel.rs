//! The way between the nodes.

use super::{Example, addr, another, freed_by, near, on, read, route, steps};
use crate::assemble::tests::{BACKEND, Bench, CLIENT, NODE1, NODE2, S, SA, plain, tcp, vxlan};
use crate::diagnose::tests::header;
use crate::state::{Fdb, Neighbour};
use crate::trace::{Losses, Role, StepKind, Trace};

/// The request comes through the tunnel, the answer leaves without.
fn other_way() -> Trace {
    let mut b = Bench::new();
    b.seen("worker < cali747ff840379", plain(S, 1, 0, 0));
    let there = Some(vxlan(NODE1, NODE2, 7));
    b.seen_in("worker > eth0", plain(S, 1, 0, 0), there.clone());
    b.seen_in("worker2 < eth0", plain(S, 1, 0, 0), there);
    b.seen("worker2 < vxlan.calico", plain(S, 1, 0, 0));
    b.seen("worker2 > cali1b2c3d4e5f6", plain(S, 1, 0, 0));
    for _ in 0..2 {
        b.now += 1_000_000_000;
        b.skb += 0x100;
        b.reply = true;
        let answer = tcp((BACKEND, 8080), (CLIENT, 45266), SA, 9, 2);
        b.seen("worker2 < cali1b2c3d4e5f6", answer);
        b.seen("worker2 > eth0", answer);
    }
    b.fold().trace(header(), Losses::default())
}

pub(super) static EXAMPLES: &[Example] = &[
    Example {
        code: "underlay-loss",
        speaks: || read("c26"),
        near: &[
            near("events were lost", "no-reply", |t| {
                t.closing.losses.ring_buffer = 1;
            }),
            near("one of that direction arrived", "no-reply", |t| {
                for step in &mut another(t, false).steps {
                    step.node = "worker2".into();
                    step.iface = "vxlan.calico".into();
                    step.role = Some(Role::Tunnel);
                    step.kind = StepKind::Ingress;
                    step.tunnel = None;
                }
                t.packets.last_mut().unwrap().outcome = crate::trace::Outcome::Pending;
            }),
            near("the other node's uplink is not watched", "no-reply", |t| {
                let peer = t.header.nodes.iter_mut().find(|n| &*n.name == "worker2");
                peer.unwrap().interfaces.retain(|i| i.role != Role::Uplink);
            }),
        ],
    },
    Example {
        code: "tunnel-port-mismatch",
        speaks: || read("c27"),
        near: &[
            near("the device there has the port", "rejected", |t| {
                for link in &mut on(t, "worker2").links {
                    link.vxlan_port = link.vxlan_port.and(Some(4789));
                }
            }),
            near("the socket had no room", "packet-drop", |t| {
                freed_by(t, "__udp4_lib_rcv", "SOCKET_RCVBUFF");
            }),
        ],
    },
    Example {
        code: "tunnel-peer-missing",
        speaks: || read("c29"),
        near: &[near("the FDB has the address", "packet-drop", |t| {
            on(t, "worker").fdb.push(Fdb {
                mac: "66:b0:94:1d:fb:92".into(),
                dev: "vxlan.calico".into(),
                dst: Some(addr("172.31.0.3")),
            });
        })],
    },
    Example {
        code: "tunnel-peer-missing",
        speaks: || read("c31"),
        near: &[near("the neighbour is known", "packet-drop", |t| {
            let neighbours = &mut on(t, "worker").neighbours;
            neighbours.retain(|n| n.addr != addr("10.244.158.64"));
            neighbours.push(Neighbour {
                addr: addr("10.244.158.64"),
                dev: "vxlan.calico".into(),
                mac: Some("66:b0:94:1d:fb:92".into()),
                state: "permanent".into(),
            });
        })],
    },
    Example {
        code: "tunnel-peer-missing",
        speaks: || read("c36"),
        near: &[
            near("the block is routed without a tunnel", "no-reply", |t| {
                let native = route("10.244.158.64", 26, "eth0", Some("172.31.0.3"));
                on(t, "worker").routes.push(native);
            }),
            near("the node has no tunnel", "no-reply", |t| {
                on(t, "worker").links.retain(|l| &*l.kind != "vxlan");
            }),
        ],
    },
    Example {
        code: "tunnel-peer-wrong",
        speaks: || read("c30"),
        near: &[
            near("the node has that address, too", "packet-drop", |t| {
                let mut nodes = t.header.nodes.iter_mut();
                let peer = nodes.find(|n| &*n.name == "worker2").unwrap();
                peer.addrs.push(addr("172.31.0.9"));
            }),
            near(
                "the node is not watched, and the address answers",
                "packet-drop",
                |t| {
                    t.header.nodes.retain(|n| &*n.name != "worker2");
                    let state = t.closing.state.as_mut().unwrap();
                    state.namespaces.retain(|n| &*n.name != "worker2");
                    freed_by(t, "dev_hard_start_xmit", "NOMEM");
                },
            ),
        ],
    },
    Example {
        code: "asymmetric-path",
        speaks: other_way,
        near: &[
            near(
                "the answer goes back into the tunnel",
                "underlay-loss",
                |t| {
                    for step in steps(t).filter(|s| s.reply && s.kind == StepKind::Egress) {
                        step.tunnel = Some(vxlan(NODE2, NODE1, 7));
                    }
                    for packet in &mut t.packets {
                        if packet.direction == crate::trace::Direction::Reply {
                            packet.outcome = crate::trace::Outcome::Lost;
                        }
                    }
                },
            ),
            near("the request came without a tunnel", "no-reply", |t| {
                for step in steps(t).filter(|s| !s.reply) {
                    step.tunnel = None;
                }
            }),
            near("events were lost", "delivered", |t| {
                t.closing.losses.ring_buffer = 1;
                t.packets.retain(|p| p.summary == "SYN");
                t.packets[0].outcome = crate::trace::Outcome::Delivered;
            }),
        ],
    },
    Example {
        code: "asymmetric-path",
        speaks: || read("c15"),
        near: &[
            near("frames on the bridge pass netfilter", "rejected", |t| {
                let sysctls = &mut on(t, "worker").sysctls;
                sysctls.insert("net.bridge.bridge-nf-call-iptables".into(), "1".into());
            }),
            near("the pods are on no bridge", "rejected", |t| {
                for link in &mut on(t, "worker").links {
                    link.master = None;
                }
            }),
            near("an answer was translated back", "conntrack-invalid", |t| {
                let step = another(t, true).steps.last_mut().unwrap();
                step.kind = StepKind::UnDnat;
            }),
        ],
    },
    Example {
        code: "mtu-exceeded",
        speaks: || read("c38"),
        near: &[near(
            "it was freed for another reason, and no message told a size",
            "packet-drop",
            |t| {
                t.packets
                    .retain(|p| p.steps.iter().all(|s| s.icmp.is_none()));
                freed_by(t, "ip_forward", "NOMEM");
            },
        )],
    },
    Example {
        code: "fragments-lost",
        speaks: || read("c40b"),
        near: &[near("all fragments were there", "no-reply", |t| {
            for packet in &mut t.packets {
                let first = packet
                    .steps
                    .iter()
                    .rev()
                    .find(|s| s.ip.as_ref().is_some_and(|ip| ip.more_fragments));
                let Some(first) = first.cloned() else {
                    continue;
                };
                let size = first.payload + 8;
                for (at, more) in [(size, true), (2 * size, false)] {
                    let mut step = first.clone();
                    let ip = step.ip.as_mut().unwrap();
                    (ip.frag_offset, ip.more_fragments) = (Some(at), more);
                    packet.steps.push(step);
                }
            }
        })],
    },
];
