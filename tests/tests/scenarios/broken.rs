//! Calls that fail, and where they do.

use std::collections::BTreeSet;

use tracer_tests::lab::client;
use tracer_tests::lab::{self, Options, Policy};

use crate::run::{LIMIT, eventually, follow, follow_service};
use crate::trace::kprobes;
use crate::world::{CLIENT_END, REMOTE_END, lab_with, options, patient, service, v4};

const C: &str = "10.244.80.65:45266";
const S: &str = "10.98.235.247:80";
const B: &str = "10.244.158.65:8080";

#[test]
fn core_policy_drop_is_three_tries_of_one_call() {
    let _lab = lab_with(&Options {
        policy: Policy::On,
        ..options()
    });
    lab::label("client", None).expect("the label goes");
    let run = follow_service("policy").start();
    let before = lab::policy_drops(REMOTE_END).expect("a counter");
    // The kernel sends the SYN again after one and after three seconds; the client gives up
    // when its third one has been dropped.
    let dropped = || lab::policy_drops(REMOTE_END).expect("a counter") - before;
    std::thread::scope(|scope| {
        let options = patient().timeout(std::time::Duration::from_secs(6));
        let call = scope.spawn(move || client::get(Some("client"), service(), &options));
        eventually("three drops", || dropped() >= 3);
        let refused = call
            .join()
            .expect("no panic")
            .expect_err("the policy drops it");
        assert!(format!("{refused:#}").contains("timed out"), "{refused:#}");
    });
    let counted = dropped();
    let done = run.stop();
    let trace = done.exit(3).trace();
    trace.lossless();
    let flow = trace.only_flow(&format!("tcp {C} > {S} = {B}"));
    trace.require(flow.state == "dropped", "the flow's state is dropped");
    let tries = trace.packets_of(flow, "request");
    trace.require(
        tries.len() as u64 == counted && tries.len() == trace.packets.len(),
        &format!("{counted} tries as the rule counted, and nothing else"),
    );
    let first = tries[0].id;
    for (packet, attempt) in tries.iter().zip(1..) {
        packet.require(packet.summary == "SYN", "a SYN");
        packet.require(packet.attempt == attempt, &format!("try {attempt}"));
        let of = (attempt > 1).then_some(first);
        packet.require(
            packet.retransmits == of,
            "the first try is the one repeated",
        );
        let way = [
            &format!("ingress {CLIENT_END}@worker: {C} > {S}"),
            &format!("dnat@worker: {C} > {B}"),
            "?conntrack-new@worker",
            &format!("egress vxlan.calico@worker: {C} > {B}"),
            &format!("encap@worker: {C} > {B} [172.31.0.2 > 172.31.0.3]"),
            &format!("egress eth0@worker: {C} > {B} [172.31.0.2 > 172.31.0.3]"),
            &format!("ingress eth0@worker2: {C} > {B} [172.31.0.2 > 172.31.0.3]"),
            &format!("decap@worker2: {C} > {B} [172.31.0.2 > 172.31.0.3]"),
            &format!("ingress vxlan.calico@worker2: {C} > {B}"),
            &format!("drop@worker2: {C} > {B}"),
        ];
        packet.path(&way).outcome("dropped");
        let drop = packet.at("drop@worker2").drop.clone().expect("why");
        packet.require(!drop.function.is_empty(), "the function that dropped it");
        if let Some(reason) = &drop.reason {
            packet.require(reason == "NETFILTER_DROP", "the reason");
        }
        if kprobes() {
            packet.require(drop.hook.as_deref() == Some("FORWARD"), "the hook FORWARD");
        }
    }
    let news: BTreeSet<u64> = trace
        .packets
        .iter()
        .filter(|packet| packet.steps.iter().any(|step| step.kind == "conntrack-new"))
        .map(|packet| packet.id)
        .collect();
    trace.require(
        news == BTreeSet::from([first]),
        "one entry, made by the first try",
    );
    trace.verdict("policy-drop");
    trace.require(
        trace.verdict.node.as_deref() == Some("worker2")
            && trace.verdict.summary.contains("worker2"),
        "the verdict names worker2",
    );
}

#[test]
fn closed_port_answers_with_a_reset() {
    let _lab = lab_with(&options());
    let b = "10.244.158.65:9999";
    let run = follow("closed-port", &["--pod", "client", "--dst", b]).start();
    let refused = client::get(
        Some("client"),
        v4(10, 244, 158, 65, 9999),
        &patient().timeout(LIMIT),
    )
    .expect_err("nobody listens");
    assert!(format!("{refused:#}").contains("refused"), "{refused:#}");
    let done = run.stop();
    let trace = done.exit(3).trace();
    trace.lossless();
    let flow = trace.only_flow(&format!("tcp {C} > {b}"));
    trace.require(flow.state == "reset", "the flow's state is reset");
    trace.require(trace.packets.len() == 2, "a SYN and a RST");
    let (syn, rst) = (trace.packet(flow, "SYN"), trace.packet(flow, "RST"));
    let may = if kprobes() { "" } else { "?" };
    syn.path(&[
        &format!("ingress {CLIENT_END}@worker: {C} > {b}"),
        "?conntrack-new@worker",
        &format!("egress vxlan.calico@worker: {C} > {b}"),
        &format!("encap@worker: {C} > {b} [172.31.0.2 > 172.31.0.3]"),
        &format!("egress eth0@worker: {C} > {b} [172.31.0.2 > 172.31.0.3]"),
        &format!("ingress eth0@worker2: {C} > {b} [172.31.0.2 > 172.31.0.3]"),
        &format!("decap@worker2: {C} > {b} [172.31.0.2 > 172.31.0.3]"),
        &format!("ingress vxlan.calico@worker2: {C} > {b}"),
        "?conntrack-new@worker2",
        &format!("egress {REMOTE_END}@worker2: {C} > {b}"),
        &format!("{may}reject@worker2: {C} > {b}"),
        &format!("?drop@worker2: {C} > {b}"),
    ]);
    syn.outcome("rejected");
    rst.outcome("delivered").path(&[
        &format!("ingress {REMOTE_END}@worker2: {b} > {C}"),
        &format!("egress vxlan.calico@worker2: {b} > {C}"),
        &format!("encap@worker2: {b} > {C} [172.31.0.3 > 172.31.0.2]"),
        &format!("egress eth0@worker2: {b} > {C} [172.31.0.3 > 172.31.0.2]"),
        &format!("ingress eth0@worker: {b} > {C} [172.31.0.3 > 172.31.0.2]"),
        &format!("decap@worker: {b} > {C} [172.31.0.3 > 172.31.0.2]"),
        &format!("ingress vxlan.calico@worker: {b} > {C}"),
        &format!("egress {CLIENT_END}@worker: {b} > {C}"),
    ]);
    trace.require(rst.direction == "reply", "the RST is the answer");
    trace.verdict("backend-refused");
}
