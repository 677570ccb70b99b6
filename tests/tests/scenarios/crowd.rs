//! Much traffic: none of it confuses the tool, and none is lost.

use std::collections::BTreeMap;
use std::thread;

use tracer_tests::lab::client::{self, Load};
use tracer_tests::lab::witness;

use crate::run::{LIMIT, eventually, follow_service};
use crate::trace::{Packet, Step, coverage, lines};
use crate::world::{CLIENT_END, PORT, REMOTE_END, get, get_with, lab, server_saw, service};

#[test]
fn one_call_among_hundreds() {
    let _lab = lab();
    let run = follow_service("crowd").start();
    let load = |ns| {
        let load = Load {
            count: 200,
            parallel: 100,
            keep_alive: false,
        };
        let options = client::Options::default().timeout(LIMIT);
        let outcomes = client::load(Some(ns), service(), &options, load);
        for outcome in outcomes.expect("the load runs") {
            outcome.unwrap_or_else(|error| panic!("from {ns}: {error:#}"));
        }
    };
    let served = || witness::read("remote").expect("the server's log").len();
    let saw = thread::scope(|scope| {
        let crowds = ["local", "dns"].map(|ns| scope.spawn(move || load(ns)));
        eventually("the crowd is at work", || served() > 20);
        let saw = get("client", service()).saw().expect("saw");
        assert!(
            crowds.iter().any(|crowd| !crowd.is_finished()),
            "the call was made while the crowd was at work"
        );
        for crowd in crowds {
            crowd.join().expect("every call of the crowd succeeds");
        }
        saw
    });
    server_saw("remote", saw);
    let done = run.stop();
    let trace = done.exit(0).trace();
    trace.lossless().verdict("delivered");
    let flow = trace.only_flow(&format!(
        "tcp {saw} > 10.98.235.247:80 = 10.244.158.65:8080"
    ));
    trace.require(flow.state == "closed", "the connection is closed");
    // On a slow machine the end of a connection is sent again to a socket that is gone.
    let said_something = |packet: &&Packet| {
        let tcp = packet.steps.first().and_then(|step| step.tcp.as_ref());
        packet.attempt == 1 && tcp.is_some_and(|tcp| tcp.flags != "." && tcp.flags != "R")
    };
    trace.require(
        trace
            .packets
            .iter()
            .filter(said_something)
            .all(|packet| packet.outcome == "delivered"),
        "every packet is delivered",
    );
    let faults = trace
        .findings
        .iter()
        .filter(|finding| finding["severity"] != "note");
    trace.require(faults.count() == 0, "nothing is held against it");
}

/// Checks that every byte of a stream was seen at every point of its way.
#[track_caller]
fn every_byte(steps: &[&Step], places: &[String], bytes: u64, what: &str) {
    let syn = steps
        .iter()
        .find(|step| {
            step.tcp
                .as_ref()
                .is_some_and(|tcp| tcp.flags.starts_with('S'))
        })
        .unwrap_or_else(|| panic!("{what}: no SYN"));
    let start = syn.tcp.as_ref().expect("a TCP header").seq.wrapping_add(1);
    for place in places {
        let here = steps.iter().copied().filter(|step| step.place() == *place);
        assert_eq!(
            coverage(here, start),
            [(0, bytes)],
            "{what}: bytes seen at {place}"
        );
    }
}

#[test]
fn every_byte_of_a_large_transfer() {
    const BYTES: u64 = 20_000_000;
    let _lab = lab();
    let run = follow_service("large").output("jsonl").start();
    let up = client::Options {
        source_port: Some(PORT),
        timeout: LIMIT,
        ..client::Options::up(BYTES)
    };
    let down = client::Options {
        source_port: Some(PORT + 1),
        timeout: LIMIT,
        ..client::Options::down(BYTES)
    };
    assert_eq!(
        get_with("client", service(), &up).body.trim(),
        format!("got={BYTES}")
    );
    assert_eq!(get_with("client", service(), &down).body_len, BYTES);
    let done = run.stop();
    done.exit(0);
    let closing = done.stdout.lines().last().expect("a closing line");
    let closing: serde_json::Value = serde_json::from_str(closing).expect("JSON");
    assert_eq!(
        closing["losses"],
        serde_json::json!({"ring_buffer": 0, "user_space": 0, "other": 0}),
        "{}",
        done.stderr
    );
    assert_eq!(closing["verdict"]["code"], "delivered", "{closing}");
    let findings = closing["findings"].as_array().expect("findings");
    let severities: Vec<_> = findings.iter().map(|f| &f["severity"]).collect();
    assert!(severities.iter().all(|s| *s == "note"), "{findings:?}");
    let steps = lines(&done.stdout, true);
    let there = [
        format!("ingress {CLIENT_END}@worker"),
        "egress vxlan.calico@worker".to_owned(),
        "egress eth0@worker".to_owned(),
        "ingress eth0@worker2".to_owned(),
        "ingress vxlan.calico@worker2".to_owned(),
        format!("egress {REMOTE_END}@worker2"),
    ];
    let back = [
        format!("ingress {REMOTE_END}@worker2"),
        "egress vxlan.calico@worker2".to_owned(),
        "egress eth0@worker2".to_owned(),
        "ingress eth0@worker".to_owned(),
        "ingress vxlan.calico@worker".to_owned(),
        format!("egress {CLIENT_END}@worker"),
    ];
    for port in [PORT, PORT + 1] {
        let log = server_saw(
            "remote",
            format!("10.244.80.65:{port}").parse().expect("an address"),
        );
        assert!(log.received.max(log.sent) >= BYTES, "{log:?}");
        for (places, from_client, bytes) in [(&there, true, log.received), (&back, false, log.sent)]
        {
            let (mine, what) = if from_client {
                ("client to server", format!("up from {port}"))
            } else {
                ("server to client", format!("down to {port}"))
            };
            let steps: Vec<&Step> = steps
                .iter()
                .filter(|step| {
                    let end = if from_client { &step.src } else { &step.dst };
                    end.port == Some(port)
                })
                .collect();
            assert!(!steps.is_empty(), "no steps {mine}");
            every_byte(
                &steps,
                places,
                bytes,
                &format!("{what}; see {}", done.file.display()),
            );
            let mut packets: BTreeMap<u64, Vec<&Step>> = BTreeMap::new();
            for step in steps {
                packets.entry(step.packet()).or_default().push(step);
            }
            for (id, steps) in packets {
                assert!(
                    steps.iter().any(|step| step.place() == places[0]),
                    "packet {id} was never sent ({what}; see {}): {:#?}",
                    done.file.display(),
                    steps.iter().map(|step| step.describe()).collect::<Vec<_>>()
                );
            }
        }
    }
}
