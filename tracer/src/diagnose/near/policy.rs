//! What netfilter and conntrack decide.

use super::{
    Example, freed, freed_by, grown, near, on, read, route, rules, steps, still, uncounted,
};
use crate::trace::Trace;

/// A packet in the middle of a connection, dropped by the rule about INVALID.
fn invalid() -> Trace {
    let mut trace = read("c24");
    for packet in &mut trace.packets {
        packet.summary = "PSH-ACK 10 B".into();
    }
    for tcp in steps(&mut trace).filter_map(|s| s.tcp.as_mut()) {
        tcp.flags = "P.".into();
    }
    trace
}

/// Freed by conntrack as the packet was about to leave.
fn clash() -> Trace {
    let mut trace = read("c19");
    freed(
        &mut trace,
        "nf_hook_slow",
        "NETFILTER_DROP",
        Some("POSTROUTING"),
    );
    grown(&mut trace, "worker", "conntrack.insert_failed");
    trace
}

fn without_state(case: &str) -> Trace {
    let mut trace = read(case);
    trace.closing.state = None;
    trace
}

pub(super) static EXAMPLES: &[Example] = &[
    Example {
        code: "policy-drop",
        speaks: || read("c58"),
        near: &[
            near(
                "the rule that drops counted nothing",
                "netfilter-drop",
                |t| {
                    uncounted(t, "worker2", "-j DROP");
                },
            ),
            near("it was freed outside netfilter", "packet-drop", |t| {
                freed_by(t, "ip_forward", "NOMEM");
            }),
            near("it was freed in another hook", "netfilter-drop", |t| {
                freed(t, "nft_do_chain", "NETFILTER_DROP", Some("POSTROUTING"));
            }),
        ],
    },
    Example {
        code: "policy-drop",
        speaks: || read("c59"),
        near: &[near(
            "the rule that drops counted nothing",
            "netfilter-drop",
            |t| {
                uncounted(t, "worker", "-j DROP");
            },
        )],
    },
    Example {
        code: "forward-policy",
        speaks: || read("c56"),
        near: &[
            near("the policy is ACCEPT", "netfilter-drop", |t| {
                rules(t, "worker2", ":FORWARD DROP", ":FORWARD ACCEPT");
            }),
            near(
                "nothing came to the policy of a legacy table",
                "netfilter-drop",
                |t| {
                    for dump in &mut on(t, "worker2").iptables {
                        dump.variant = "legacy".into();
                    }
                },
            ),
        ],
    },
    Example {
        code: "host-firewall",
        speaks: || read("c25"),
        near: &[
            near("the rule counted nothing", "netfilter-drop", |t| {
                uncounted(t, "worker2", "--dport 4789 -j DROP");
            }),
            near("the rule is about another port", "netfilter-drop", |t| {
                rules(t, "worker2", "--dport 4789 -j DROP", "--dport 4799 -j DROP");
            }),
        ],
    },
    Example {
        code: "host-firewall",
        speaks: || read("c64"),
        near: &[near("a rule before it accepts", "netfilter-drop", |t| {
            rules(
                t,
                "worker",
                "-m tcp --dport 22 -j ACCEPT",
                "-m tcp --dport 6443 -j ACCEPT",
            );
        })],
    },
    Example {
        code: "source-spoofed",
        speaks: || read("c44"),
        near: &[
            near(
                "the node routes the source to that pod",
                "netfilter-drop",
                |t| {
                    let own = route("10.99.0.5", 32, "cali747ff840379", None);
                    on(t, "worker").routes.push(own);
                },
            ),
            near("the rule counted nothing", "netfilter-drop", |t| {
                uncounted(t, "worker", "-m rpfilter");
            }),
        ],
    },
    Example {
        code: "tunnel-peer-refused",
        speaks: || read("c33"),
        near: &[
            near("the sender is in the set", "netfilter-drop", |t| {
                let sets = on(t, "worker2").ipsets.as_mut().unwrap();
                sets.push_str("add cali40all-vxlan-net 172.31.0.2\n");
            }),
            near("the rule counted nothing", "netfilter-drop", |t| {
                uncounted(t, "worker2", "Drop IPv4 VXLAN packets");
            }),
        ],
    },
    Example {
        code: "checksum-fault",
        speaks: || read("c24"),
        near: &[
            near(
                "conntrack counted no invalid packet",
                "netfilter-drop",
                |t| {
                    still(t, "worker2", "conntrack.invalid");
                },
            ),
            near(
                "the rule about INVALID counted nothing",
                "netfilter-drop",
                |t| {
                    uncounted(t, "worker2", "INVALID");
                },
            ),
        ],
    },
    Example {
        code: "conntrack-invalid",
        speaks: invalid,
        near: &[
            near(
                "conntrack counted no invalid packet",
                "netfilter-drop",
                |t| {
                    still(t, "worker2", "conntrack.invalid");
                },
            ),
            near(
                "the rule about INVALID counted nothing",
                "netfilter-drop",
                |t| {
                    uncounted(t, "worker2", "INVALID");
                },
            ),
            near("it is a first packet", "checksum-fault", |t| {
                for packet in &mut t.packets {
                    packet.summary = "SYN".into();
                }
            }),
        ],
    },
    Example {
        code: "conntrack-full",
        speaks: || read("c19"),
        near: &[
            near(
                "conntrack dropped nothing, full as it was",
                "netfilter-drop",
                |t| {
                    still(t, "worker", "conntrack.drop");
                },
            ),
            near("it was freed in a later hook", "netfilter-drop", |t| {
                freed(t, "nf_hook_slow", "NETFILTER_DROP", Some("FORWARD"));
            }),
            near("a legacy rule may have dropped it", "netfilter-drop", |t| {
                freed(t, "nf_hook_slow", "NETFILTER_DROP", None);
                for dump in &mut on(t, "worker").iptables {
                    dump.variant = "legacy".into();
                }
            }),
        ],
    },
    Example {
        code: "conntrack-clash",
        speaks: clash,
        near: &[
            near("no insertion failed", "netfilter-drop", |t| {
                still(t, "worker", "conntrack.insert_failed");
            }),
            near("it is no first packet", "netfilter-drop", |t| {
                for packet in &mut t.packets {
                    packet.summary = "ACK".into();
                }
            }),
            near("its entry had no time to be made", "netfilter-drop", |t| {
                still(t, "worker", "conntrack.drop");
                freed(t, "nf_hook_slow", "NETFILTER_DROP", Some("PREROUTING"));
            }),
        ],
    },
    Example {
        code: "netfilter-drop",
        speaks: || without_state("c58"),
        near: &[near("it was freed outside netfilter", "packet-drop", |t| {
            freed_by(t, "ip_forward", "NOMEM");
        })],
    },
    Example {
        code: "packet-drop",
        speaks: || {
            let mut trace = without_state("c58");
            freed_by(&mut trace, "ip_forward", "NOMEM");
            trace
        },
        near: &[near("it was freed in a hook", "netfilter-drop", |t| {
            freed(t, "nft_do_chain", "NETFILTER_DROP", Some("FORWARD"));
        })],
    },
];
