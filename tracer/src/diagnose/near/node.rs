//! The nodes' routes and settings.

use super::{Example, addr, another, freed_by, near, on, read, route, steps, with_step};
use crate::assemble::tests::{Bench, S, plain};
use crate::diagnose::tests::header;
use crate::event::Answer;
use crate::trace::{Losses, Outcome, StepKind, Trace};

/// Freed by a router with so much time to live left.
fn with_ttl(ttl: u8) -> Trace {
    let mut b = Bench::new();
    let mut packet = plain(S, 1, 0, 0);
    packet.ttl = ttl;
    b.seen("worker < cali747ff840379", packet);
    b.freed("worker cali747ff840379", packet, "ip_forward", "IP_INHDR");
    b.fold().trace(header(), Losses::default())
}

/// Answered with this ICMP message.
fn answered(kind: u8, code: u8) -> Trace {
    let mut b = Bench::new();
    b.seen("worker < cali747ff840379", plain(S, 1, 0, 0));
    let answer = Answer::Icmp {
        kind,
        code,
        info: 0,
        v6: false,
    };
    b.answer("worker", plain(S, 1, 0, 0), answer);
    b.fold().trace(header(), Losses::default())
}

/// A SYN that left the node when the trace ended.
fn just_sent() -> Trace {
    let mut b = Bench::new();
    b.seen("worker < cali747ff840379", plain(S, 1, 0, 0));
    b.seen("worker > eth0", plain(S, 1, 0, 0));
    let mut trace = b.fold().trace(header(), Losses::default());
    trace.closing.ended = Some(b.now + 50_000_000);
    trace
}

pub(super) static EXAMPLES: &[Example] = &[
    Example {
        code: "address-not-assigned",
        speaks: || read("c47"),
        near: &[
            near("a more particular route wins", "packet-drop", |t| {
                let there = route("10.244.80.100", 32, "vxlan.calico", Some("10.244.158.64"));
                on(t, "worker").routes.push(there);
            }),
            near(
                "it was freed elsewhere than at its route",
                "packet-drop",
                |t| {
                    freed_by(t, "ip_rcv_core", "IP_INHDR");
                },
            ),
        ],
    },
    Example {
        code: "forwarding-off",
        speaks: || read("c41"),
        near: &[
            near("the interface itself may forward", "packet-drop", |t| {
                let sysctls = &mut on(t, "worker").sysctls;
                sysctls.insert(
                    "net.ipv4.conf.cali747ff840379.forwarding".into(),
                    "1".into(),
                );
            }),
            near(
                "it was freed elsewhere than at its route",
                "packet-drop",
                |t| {
                    freed_by(t, "ip_rcv_core", "IP_INHDR");
                },
            ),
        ],
    },
    Example {
        code: "rp-filter",
        speaks: || {
            let mut trace = read("c43");
            freed_by(
                &mut trace,
                "ip_rcv_finish_core.constprop.0",
                "NOT_SPECIFIED",
            );
            trace
        },
        near: &[
            near("the way back is the way it came", "packet-drop", |t| {
                let routes = &mut on(t, "worker2").routes;
                routes.retain(|r| r.dst != addr("10.244.80.64"));
                routes.push(route(
                    "10.244.80.64",
                    26,
                    "vxlan.calico",
                    Some("10.244.80.64"),
                ));
            }),
            near("the filter is loose", "packet-drop", |t| {
                for (name, value) in &mut on(t, "worker2").sysctls {
                    if name.ends_with(".rp_filter") {
                        *value = "2".into();
                    }
                }
            }),
            near("the source is the node's own", "packet-drop", |t| {
                let mut own = route("10.244.80.65", 32, "eth0", None);
                (own.kind, own.table) = ("local".into(), 255);
                on(t, "worker2").routes.push(own);
            }),
        ],
    },
    Example {
        code: "ttl-exceeded",
        speaks: || with_ttl(1),
        near: &[near("its time had not run out", "packet-drop", |t| {
            *t = with_ttl(64);
        })],
    },
    Example {
        code: "ttl-exceeded",
        speaks: || answered(11, 0),
        near: &[near(
            "it was fragments that came too late",
            "rejected",
            |t| {
                *t = answered(11, 1);
            },
        )],
    },
    Example {
        code: "masquerade-missing",
        speaks: || read("c65"),
        near: &[
            near("it was masqueraded", "no-reply", |t| {
                with_step(t, StepKind::Masquerade);
            }),
            near(
                "the node routes it to another node's block",
                "no-reply",
                |t| {
                    let block = route("172.31.0.5", 32, "eth0", Some("172.31.0.3"));
                    on(t, "worker").routes.push(block);
                },
            ),
            near("it is no pod's address", "no-reply", |t| {
                for step in steps(t) {
                    if step.src.addr == addr("10.244.80.65") {
                        step.src.addr = addr("10.9.9.9");
                    }
                }
            }),
        ],
    },
    Example {
        code: "pod-gateway-unreachable",
        speaks: || read("c45"),
        near: &[near(
            "it was freed for another reason",
            "packet-drop",
            |t| {
                freed_by(t, "dev_hard_start_xmit", "NOMEM");
            },
        )],
    },
    Example {
        code: "no-reply",
        speaks: || read("c40"),
        near: &[near("an answer came", "delivered", |t| {
            another(t, true);
        })],
    },
    Example {
        code: "no-traffic",
        speaks: || Bench::new().fold().trace(header(), Losses::default()),
        near: &[near("one packet was seen", "rejected", |t| {
            *t = answered(3, 1);
        })],
    },
    Example {
        code: "undecided",
        speaks: just_sent,
        near: &[near(
            "it was sent a second before the end",
            "no-reply",
            |t| {
                t.closing.ended = steps(t).last().map(|s| s.ts + 1_000_000_000);
            },
        )],
    },
    Example {
        code: "delivered",
        speaks: || read("c20"),
        near: &[near(
            "a packet was dropped for good",
            "netfilter-drop",
            |t| {
                t.closing.state = None;
                let packet = &mut t.packets[0];
                packet.outcome = Outcome::Dropped;
                let mut end = packet.steps.last().unwrap().clone();
                end.kind = StepKind::Drop;
                packet.steps.push(end);
                super::freed(t, "nft_do_chain", "NETFILTER_DROP", Some("FORWARD"));
            },
        )],
    },
];
