//! Whose rule it was: what the steps say, against the kernel's own counters, logs and chain path.

use std::time::Duration;

use tracer_tests::lab::client;
use tracer_tests::lab::{self, Options, Policy};

use crate::run::{follow, follow_service};
use crate::trace::{Rule, Trace, kprobes};
use crate::world::{REMOTE_END, get, lab, lab_with, options, patient, service, v4};

/// Where kube-proxy's chains for `default/remote` begin (`servicePortPolicyClusterChainName`).
const SVC: &str = "KUBE-SVC-WTUWVVJNNKPUFNHY";

/// The rule behind the first step of a kind at a node.
fn behind(trace: &Trace, place: &str) -> Rule {
    let steps = trace.packets.iter().flat_map(|p| &p.steps);
    let mut found = steps.filter(|s| s.place() == place);
    let Some(step) = found.next() else {
        trace.fail(&format!("no {place}"))
    };
    match &step.rule {
        Some(rule) => rule.clone(),
        None => trace.fail(&format!("{place} names no rule")),
    }
}

/// The rule that was named counted this packet and no other, says the kernel.
#[track_caller]
fn counted(trace: &Trace, node: &str, rule: &Rule, packets: u64) {
    let text = rule.text.as_deref().expect("a rule has a text");
    let table = rule.table.as_deref().expect("a rule is in a table");
    let now = lab::rule_packets(node, table, text).expect("a counter");
    trace.require(
        now == packets,
        &format!("{text} counted {now} and not {packets}"),
    );
}

#[test]
fn core_rules_behind_rewrites_are_named() {
    let _lab = lab();
    let run = follow_service("names-dnat").start();
    get("client", service());
    let done = run.stop();
    let trace = done.exit(0).trace();
    let rule = behind(&trace, "dnat@worker");
    let chain = rule.chain.clone().unwrap_or_default();
    trace.require(chain.starts_with("KUBE-SEP-"), "an endpoint's chain");
    assert_eq!(rule.path, ["PREROUTING", "KUBE-SERVICES", SVC, &chain]);
    assert_eq!(rule.service.as_deref(), Some("default/remote"));
    trace.require(
        rule.inferred && rule.from.is_some(),
        "that it was worked out is said",
    );
    counted(&trace, "worker", &rule, 1);

    let run = follow(
        "names-outgoing",
        &["--pod", "client", "--dst", "172.31.0.5:8080"],
    )
    .start();
    get("client", v4(172, 31, 0, 5, 8080));
    let done = run.stop();
    let trace = done.exit(0).trace();
    let rule = behind(&trace, "masquerade@worker");
    assert_eq!(rule.chain.as_deref(), Some("cali-nat-outgoing"));
    assert_eq!(
        rule.path,
        ["POSTROUTING", "cali-POSTROUTING", "cali-nat-outgoing"]
    );
    assert_eq!(rule.mark, None, "a set asks for it, no mark");
    counted(&trace, "worker", &rule, 1);

    let run = follow(
        "names-node-port",
        &["--src", "172.31.0.5", "--dst", "172.31.0.2:30080"],
    )
    .start();
    get("outside", v4(172, 31, 0, 2, 30080));
    let done = run.stop();
    let trace = done.exit(0).trace();
    let dnat = behind(&trace, "dnat@worker");
    trace.require(
        dnat.path.contains(&"KUBE-NODEPORTS".to_owned()),
        "through KUBE-NODEPORTS",
    );
    counted(&trace, "worker", &dnat, 2);
    let rule = behind(&trace, "masquerade@worker");
    assert_eq!(rule.chain.as_deref(), Some("KUBE-POSTROUTING"));
    let mark = rule.mark.clone().expect("who asked for it");
    assert_eq!(mark.bits, 0x4000);
    trace.require(
        mark.chain.starts_with("KUBE-EXT-"),
        &format!("asked for by {}", mark.chain),
    );
    counted(&trace, "worker", &rule, 1);
}

/// The evaluator, the policy engine's log and the kernel's chain path speak of one drop.
#[test]
fn core_policy_drop_is_named_alike_by_all_who_saw_it() {
    let _lab = lab_with(&Options {
        policy: Policy::On,
        ..options()
    });
    lab::label("client", None).expect("the label goes");
    let call = || {
        let options = patient().timeout(Duration::from_millis(700));
        client::get(Some("client"), service(), &options).expect_err("the policy drops it");
    };
    let named = |trace: &Trace, packets| {
        let rule = behind(trace, "drop@worker2");
        let end = format!("cali-tw-{REMOTE_END}");
        assert_eq!(rule.chain.as_deref(), Some(end.as_str()));
        assert_eq!(
            rule.path,
            [
                "FORWARD",
                "cali-FORWARD",
                "cali-to-wl-dispatch",
                end.as_str()
            ]
        );
        let comment = rule.comment.as_deref().unwrap_or_default();
        trace.require(comment.contains("no policies passed packet"), comment);
        let why = rule
            .missed
            .iter()
            .any(|m| m.contains("does not contain 10.244.80.65"));
        trace.require(
            why,
            &format!("the set the source is not in: {:?}", rule.missed),
        );
        counted(trace, "worker2", &rule, packets);
        rule
    };
    // By the rules alone.
    let run = follow_service("names-drop").start();
    call();
    let done = run.stop();
    let trace = done.exit(3).trace();
    let rule = named(&trace, 1);
    trace.require(rule.inferred, "worked out");
    assert_eq!(rule.policy.as_deref(), Some("default/remote-allow"));

    // By the log, and by the chains.
    lab::log_policy(REMOTE_END).expect("rules that log");
    for (name, deep) in [("names-log", false), ("names-deep", true)] {
        let mut tool = follow_service(name);
        if deep {
            tool = tool.args(&["--deep"]);
        }
        let run = tool.start();
        call();
        let done = run.stop();
        let trace = done.exit(3).trace();
        let rule = named(&trace, if deep { 3 } else { 2 });
        let logged = trace.packets.iter().flat_map(|p| &p.steps);
        let logged = logged.filter(|s| s.kind == "policy").collect::<Vec<_>>();
        if !kprobes() {
            trace.require(logged.is_empty(), "no log is seen without kprobes");
            continue;
        }
        trace.require(logged.len() == 1, "the denial was logged once");
        let prefix = logged[0].rule.as_ref().and_then(|r| r.policy.as_deref());
        trace.require(prefix == Some("DPI|default"), &format!("{prefix:?}"));
        trace.require(
            logged[0].node == "worker2" && !logged[0].inferred,
            "where it was",
        );
        let from = rule.from.clone().unwrap_or_default();
        trace.require(from.contains("log of the chain"), &from);
        let drop = trace
            .packets
            .iter()
            .flat_map(|p| &p.steps)
            .find(|s| s.kind == "drop");
        let chains = drop.and_then(|s| s.hook.as_ref()).map(|h| h.chains.clone());
        // Kernels before 5.17 tell neither reasons nor, for want of the modules' BTF, chains.
        if deep && drop.is_some_and(|s| s.drop.as_ref().is_some_and(|d| d.reason.is_some())) {
            let chains = chains.unwrap_or_default();
            let end = format!("cali-tw-{REMOTE_END}");
            trace.require(
                chains.contains(&end),
                &format!("the kernel's way: {chains:?}"),
            );
        }
    }

    // What is let in is logged as well, by its policy's name.
    lab::label("client", Some("true")).expect("the label comes");
    let run = follow_service("names-allowed").start();
    get("client", service());
    let done = run.stop();
    let trace = done.exit(0).trace();
    if kprobes() {
        let rule = behind(&trace, "policy@worker2");
        assert_eq!(
            rule.policy.as_deref(),
            Some("API0|knp/default/remote-allow")
        );
    }
}
