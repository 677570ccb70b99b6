//! What the tool leaves behind, however it ends, and what the machine tells about itself.

use std::fmt::Write as _;
use std::fs;
use std::thread;

use tracer_tests::lab::client::{self, Load};
use tracer_tests::lab::topology::NODES;
use tracer_tests::lab::{netns, program, witness};

use crate::run::{LIMIT, Tool, eventually, follow_service};
use crate::world::{CLIENT_END, REMOTE_END, exec, get_with, has, lab, service, tcx};

/// All that is attached to the interfaces of the nodes, in the words of others' tools.
fn attached() -> String {
    let mut text = String::new();
    for node in &NODES {
        let end = if node.name == "worker" {
            CLIENT_END
        } else {
            REMOTE_END
        };
        for iface in ["eth0", "vxlan.calico", end] {
            text += &exec(node.name, "tc", &["qdisc", "show", "dev", iface]);
            for way in ["ingress", "egress"] {
                // Fails where there is no qdisc to ask.
                let shown = netns::within(node.name, || {
                    program::run("tc", &["filter", "show", "dev", iface, way], "")
                });
                text += &shown.unwrap_or_default();
            }
            // Writing to a String cannot fail.
            let _ = writeln!(
                text,
                "{iface}@{} tcx {:?}",
                node.name,
                tcx(node.name, iface)
            );
        }
        if has("bpftool") {
            text += &exec(node.name, "bpftool", &["net"]);
        }
    }
    if let Ok(pins) = fs::read_dir("/sys/fs/bpf") {
        let mut pins: Vec<_> = pins.flatten().map(|entry| entry.path()).collect();
        pins.sort();
        let _ = writeln!(text, "{pins:?}");
    }
    text
}

#[test]
fn core_killed_in_the_middle_of_traffic() {
    const REQUESTS: u32 = 2000;
    let _lab = lab();
    // What TCX holds goes with the process that attached it.
    let has_tcx = tcx("worker", "eth0").is_some();
    // Somebody else's filter, which matches nothing and so lets everything go on to the next one.
    exec("worker", "tc", &["qdisc", "add", "dev", "eth0", "clsact"]);
    let mut filter = vec!["filter", "add", "dev", "eth0", "ingress", "prio", "7"];
    filter.extend([
        "protocol",
        "ip",
        "bpf",
        "bytecode",
        "1,6 0 0 0",
        "flowid",
        "1:7",
    ]);
    exec("worker", "tc", &filter);
    let foreign = || {
        exec(
            "worker",
            "tc",
            &["filter", "show", "dev", "eth0", "ingress"],
        )
    };
    let before = attached();
    assert!(foreign().contains("bytecode"), "{}", foreign());

    let run = follow_service("killed").start();
    assert_ne!(attached(), before, "the tool is attached");
    let served = || witness::read("remote").expect("the server's log").len();
    thread::scope(|scope| {
        let load = scope.spawn(|| {
            let load = Load {
                count: REQUESTS,
                parallel: 4,
                keep_alive: false,
            };
            let options = client::Options::default().timeout(LIMIT);
            client::load(Some("client"), service(), &options, load).expect("the load runs")
        });
        eventually("some requests", || served() > 100);
        run.kill();
        assert!(!load.is_finished(), "killed in the middle");
        let outcomes = load.join().expect("no panic");
        assert_eq!(outcomes.len(), REQUESTS as usize);
        for outcome in outcomes {
            outcome.unwrap_or_else(|error| panic!("a request failed: {error:#}"));
        }
    });
    if has_tcx {
        eventually("nothing attached any more", || attached() == before);
    }
    let done = Tool::new("cleanup", &["cleanup"]).run();
    done.exit(0);
    let removed = done.stdout.contains("removed ");
    assert_eq!(removed, !has_tcx, "{}", done.stdout);
    if !removed {
        assert!(
            !done.stdout.trim().is_empty(),
            "says that there was nothing"
        );
    }
    assert_eq!(attached(), before, "after cleanup: {}", done.stdout);
    assert!(foreign().contains("bytecode"), "{}", foreign());
    get_with(
        "client",
        service(),
        &client::Options::default().timeout(LIMIT),
    );
}

#[test]
fn nothing_stays_after_an_orderly_end() {
    let _lab = lab();
    let before = attached();
    let run = follow_service("orderly").start();
    assert_ne!(attached(), before, "the tool is attached");
    let done = run.stop();
    done.exit(4);
    assert_eq!(attached(), before);
}

#[test]
fn core_doctor() {
    let _lab = lab();
    let done = Tool::new("doctor", &["doctor"]).run();
    done.exit(0);
    for word in ["worker", "worker2", "vxlan.calico"] {
        assert!(done.stdout.contains(word), "no {word} in\n{}", done.stdout);
    }
}
