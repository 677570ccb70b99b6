//! Services and what stands behind them.

use super::{Example, addr, freed, near, on, read, route, rules, still, uncounted, with_step};
use crate::state::Listener;
use crate::trace::{Outcome, StepKind};

pub(super) static EXAMPLES: &[Example] = &[
    Example {
        code: "no-endpoints",
        speaks: || read("c01"),
        near: &[
            near(
                "the rule that rejects counted nothing",
                "netfilter-drop",
                |t| {
                    uncounted(t, "worker", "-j REJECT");
                },
            ),
            near("the rule is about another Service", "netfilter-drop", |t| {
                rules(t, "worker", "-d 10.98.235.247/32", "-d 10.98.235.248/32");
            }),
        ],
    },
    Example {
        code: "no-local-endpoints",
        speaks: || read("c07"),
        near: &[
            near(
                "the rule that drops counted nothing",
                "netfilter-drop",
                |t| {
                    uncounted(t, "worker", "no local endpoints");
                },
            ),
            near("the rule is about another port", "netfilter-drop", |t| {
                rules(
                    t,
                    "worker",
                    "--dport 30080 -j DROP",
                    "--dport 30081 -j DROP",
                );
            }),
        ],
    },
    Example {
        code: "service-not-translated",
        speaks: || read("c02"),
        near: &[
            near("it was translated", "no-reply", |t| {
                with_step(t, StepKind::Dnat);
            }),
            near("it was freed before the nat table", "packet-drop", |t| {
                for packet in &mut t.packets {
                    packet.outcome = Outcome::Dropped;
                    packet.steps.truncate(1);
                    let mut end = packet.steps[0].clone();
                    end.kind = StepKind::Drop;
                    packet.steps.push(end);
                }
                freed(t, "ip_rcv_core", "IP_INHDR", None);
            }),
        ],
    },
    Example {
        code: "stale-backend",
        speaks: || read("c03"),
        near: &[near(
            "a pod on the other node has the address",
            "packet-drop",
            |t| {
                let lives = route("10.244.158.99", 32, "cali1b2c3d4e5f6", None);
                on(t, "worker2").routes.push(lives);
            },
        )],
    },
    Example {
        code: "stale-backend",
        speaks: || read("c05"),
        near: &[near(
            "the entry is old, and its pod lives",
            "packet-drop",
            |t| {
                let lives = route("10.244.158.66", 32, "cali3f0e5a7b9c1", None);
                on(t, "worker2").routes.push(lives);
            },
        )],
    },
    Example {
        code: "stale-backend",
        speaks: || read("c10"),
        near: &[near(
            "the pod that it is pinned to lives",
            "packet-drop",
            |t| {
                let lives = route("10.244.158.65", 32, "cali1b2c3d4e5f6", None);
                on(t, "worker2").routes.push(lives);
            },
        )],
    },
    Example {
        code: "hairpin-not-masqueraded",
        speaks: || read("c13"),
        near: &[
            near("it was masqueraded", "packet-drop", |t| {
                with_step(t, StepKind::Masquerade);
            }),
            near("another pod sent it", "packet-drop", |t| {
                for step in super::steps(t) {
                    if step.src.addr == addr("10.244.80.65") {
                        step.src.addr = addr("10.244.80.66");
                    }
                }
            }),
        ],
    },
    Example {
        code: "backend-refused",
        speaks: || read("c09"),
        near: &[
            near("a socket of the pod listens on the port", "rejected", |t| {
                on(t, "pod/default/remote").listeners.push(Listener {
                    tcp: true,
                    addr: addr("::"),
                    port: 8081,
                });
            }),
            near("a rule refused it", "rejected", |t| {
                freed(t, "nft_do_chain", "NETFILTER_DROP", Some("FORWARD"));
                t.packets[0].outcome = Outcome::Rejected;
            }),
        ],
    },
    Example {
        code: "accept-queue-full",
        speaks: || read("c70"),
        near: &[
            near("the counters did not move", "no-reply", |t| {
                for counter in ["TcpExtListenOverflows", "TcpExtListenDrops"] {
                    still(t, "pod/default/remote", counter);
                }
            }),
            near("they were read once only", "no-reply", |t| {
                on(t, "pod/default/remote").counters_before.clear();
            }),
            near("it is another port's queue", "no-reply", |t| {
                on(t, "pod/default/remote")
                    .listeners
                    .retain(|l| l.port != 8082);
            }),
        ],
    },
    Example {
        code: "rejected",
        speaks: || {
            let mut trace = read("c09");
            on(&mut trace, "pod/default/remote")
                .listeners
                .push(Listener {
                    tcp: true,
                    addr: addr("::"),
                    port: 8081,
                });
            trace
        },
        near: &[near("nothing listens in the pod", "backend-refused", |t| {
            on(t, "pod/default/remote")
                .listeners
                .retain(|l| l.port != 8081);
        })],
    },
    Example {
        code: "route-localnet",
        speaks: || read("c55"),
        near: &[
            near(
                "the sysctl of the way out allows it",
                "netfilter-drop",
                |t| {
                    let sysctls = &mut on(t, "worker").sysctls;
                    sysctls.insert(
                        "net.ipv4.conf.vxlan.calico.route_localnet".into(),
                        "1".into(),
                    );
                },
            ),
            near("a rule dropped it", "netfilter-drop", |t| {
                freed(t, "nft_do_chain", "NETFILTER_DROP", Some("OUTPUT"));
            }),
        ],
    },
    Example {
        code: "source-hidden",
        speaks: || read("c11"),
        near: &[near("the server is no pod", "policy-drop", |t| {
            for flow in &mut t.flows {
                flow.server.name = None;
                flow.backend = None;
            }
        })],
    },
];
