//! Queues and other people's programs.

use super::{Example, freed_by, near, read};

pub(super) static EXAMPLES: &[Example] = &[
    Example {
        code: "bpf-drop",
        speaks: || read("c63"),
        near: &[
            near("a queue dropped it", "rate-limited", |t| {
                freed_by(t, "__dev_queue_xmit", "QDISC_DROP");
            }),
            near("the device dropped it", "packet-drop", |t| {
                freed_by(t, "dev_hard_start_xmit", "NOT_SPECIFIED");
            }),
            near("a socket's own filter dropped it", "packet-drop", |t| {
                freed_by(t, "sk_filter_trim_cap", "SOCKET_FILTER");
            }),
        ],
    },
    Example {
        code: "rate-limited",
        speaks: || read("c68"),
        near: &[
            near(
                "the device is down, and so has no queue",
                "delivered",
                |t| {
                    freed_by(t, "noop_enqueue", "NOT_SPECIFIED");
                },
            ),
            near("a program dropped it", "delivered", |t| {
                freed_by(t, "__dev_queue_xmit", "TC_EGRESS");
            }),
        ],
    },
];
