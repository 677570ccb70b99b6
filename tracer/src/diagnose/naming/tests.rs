#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::path::Path;

use super::*;
use crate::recording;

fn read(case: &str) -> Trace {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/recordings");
    let file = folder.join(format!("{case}.jsonl.zst"));
    recording::read(&file).unwrap().0
}

fn step(trace: &mut Trace, kind: StepKind) -> &mut Step {
    let mut steps = trace.packets.iter_mut().flat_map(|p| &mut p.steps);
    steps.find(|s| s.kind == kind).unwrap()
}

fn rule(trace: &mut Trace, kind: StepKind) -> Option<Rule> {
    step(trace, kind).rule.as_deref().cloned()
}

/// Named anew after a change.
fn again(case: &str, kind: StepKind, change: impl FnOnce(&mut Trace)) -> Option<Rule> {
    let mut trace = read(case);
    for packet in &mut trace.packets {
        for step in &mut packet.steps {
            step.rule = None;
        }
    }
    change(&mut trace);
    name(&mut trace);
    rule(&mut trace, kind)
}

fn logged(end: &Step, prefix: &str) -> Step {
    Step {
        kind: StepKind::Policy,
        drop: None,
        rule: Some(Box::new(Rule {
            policy: Some(prefix.into()),
            ..Rule::default()
        })),
        ..end.clone()
    }
}

/// Puts a log before the drop, and the rule that wrote it into the node's rules.
fn log(trace: &mut Trace, prefix: &str, with_rule: bool) {
    let packet = &mut trace.packets[0];
    let at = packet
        .steps
        .iter()
        .position(|s| s.kind == StepKind::Drop)
        .unwrap();
    let step = logged(&packet.steps[at], prefix);
    packet.steps.insert(at, step);
    let state = trace.closing.state.as_deref_mut().unwrap();
    let node = state
        .namespaces
        .iter_mut()
        .find(|n| &*n.name == "worker2")
        .unwrap();
    for dump in node.iptables.iter_mut().filter(|_| with_rule) {
        let drop = dump.text.find("-A cali-tw-cali1b2c3d4e5f6 ").unwrap();
        let line = dump.text[..drop].rfind('\n').unwrap() + 1;
        let rule = format!(
            "[1:60] -A cali-tw-cali1b2c3d4e5f6 -j NFLOG --nflog-prefix \"{prefix}\" --nflog-group 1\n"
        );
        dump.text.insert_str(line, &rule);
    }
}

#[test]
fn chains_of_a_service_and_who_asked_to_masquerade() {
    let mut trace = read("c11");
    let dnat = rule(&mut trace, StepKind::Dnat).unwrap();
    assert_eq!(dnat.service.as_deref(), Some("default/remote"));
    let path: Vec<&str> = dnat.path.iter().map(|c| &**c).collect();
    let expected = [
        "PREROUTING",
        "KUBE-SERVICES",
        "KUBE-NODEPORTS",
        "KUBE-EXT-WTUWVVJNNKPUFNHY",
        "KUBE-SVC-WTUWVVJNNKPUFNHY",
        "KUBE-SEP-XAMWAWZM6Q3EZXW4",
    ];
    assert_eq!(path, expected);
    assert!(dnat.inferred && dnat.mark.is_none());
    let masquerade = rule(&mut trace, StepKind::Masquerade).unwrap();
    assert_eq!(masquerade.chain.as_deref(), Some("KUBE-POSTROUTING"));
    let mark = masquerade.mark.unwrap();
    assert_eq!(
        (mark.bits, &*mark.chain),
        (0x4000, "KUBE-EXT-WTUWVVJNNKPUFNHY")
    );
}

#[test]
fn what_the_rules_do_not_lead_to_is_not_named() {
    // An entry older than the rules sends to a backend that none of them knows.
    let elsewhere = again("c58", StepKind::Dnat, |trace| {
        let step = step(trace, StepKind::Dnat);
        step.rewrite.as_deref_mut().unwrap().to.addr = "10.244.158.99".parse().unwrap();
    });
    assert_eq!(elsewhere, None);
    let later = again("c58", StepKind::Dnat, |trace| {
        step(trace, StepKind::Dnat).tcp.as_mut().unwrap().flags = ".".into();
    });
    assert_eq!(
        later, None,
        "no rule is asked about a connection that is known"
    );
    let unread = again("c58", StepKind::Dnat, |trace| trace.closing.state = None);
    assert_eq!(unread, None);
    let strange = again("c58", StepKind::Dnat, |trace| {
        let state = trace.closing.state.as_deref_mut().unwrap();
        for node in &mut state.namespaces {
            for dump in &mut node.iptables {
                dump.text = dump.text.replacen(
                    "-A KUBE-SERVICES ",
                    "-A KUBE-SERVICES -m bpf --bytecode \"1,6 0 0 0\" ",
                    100,
                );
            }
        }
    });
    assert_eq!(
        strange, None,
        "a match that is not known is no ground for a name"
    );
}

#[test]
fn a_denial_has_its_chain_its_comment_and_what_it_missed() {
    let mut trace = read("c33");
    let rule = rule(&mut trace, StepKind::Drop).unwrap();
    assert_eq!(rule.chain.as_deref(), Some("cali-INPUT"));
    let comment = rule.comment.unwrap();
    assert_eq!(&*comment, "Drop IPv4 VXLAN packets from non-allowed hosts");
    assert_eq!(
        &*rule.missed[0],
        "set cali40all-vxlan-net src does not contain 172.31.0.2"
    );
}

#[test]
fn log_and_rules_agree_or_the_rules_are_not_believed() {
    let agreed = again("c58", StepKind::Drop, |t| log(t, "DPI|default", true)).unwrap();
    assert_eq!(agreed.chain.as_deref(), Some("cali-tw-cali1b2c3d4e5f6"));
    assert_eq!(agreed.policy.as_deref(), Some("DPI|default"));
    assert_eq!(agreed.from.as_deref(), Some(LOGGED));
    let other = again("c58", StepKind::Drop, |t| log(t, "DPI0|gnp/deny", false)).unwrap();
    assert_eq!(other.policy.as_deref(), Some("DPI0|gnp/deny"));
    assert!(other.chain.is_none() && !other.inferred, "{other:?}");
    // That a policy let it in does not say who dropped it then.
    let allowed = again("c58", StepKind::Drop, |t| log(t, "API0|knp/a/b", false)).unwrap();
    assert_eq!(allowed.from.as_deref(), Some(WALKED));
}

#[test]
fn the_kernels_own_path_confirms_or_forbids() {
    let hook = |chains: &[&str]| {
        Some(Box::new(crate::trace::Hook {
            hook: "FORWARD".into(),
            table: None,
            verdict: "DROP".into(),
            mark: 0,
            chains: chains.iter().map(|c| Arc::from(*c)).collect(),
        }))
    };
    let mut taken = Vec::new();
    let path = again("c58", StepKind::Drop, |trace| {
        let state = trace.closing.state.as_deref().unwrap();
        let node = state.node("worker2").unwrap();
        let (rules, _) = Ruleset::parse(&node.iptables, node.ipsets.as_deref());
        let steps = &trace.packets[0].steps;
        let at = steps.iter().position(|s| s.kind == StepKind::Drop).unwrap();
        let seen = Seen::of(&steps[..at], &steps[at]);
        let judged = netfilter::judge(&rules, node, &seen).unwrap();
        let chains = judged.decision.path.iter().skip(1);
        taken = chains.map(|v| v.chain.to_string()).collect();
        let chains: Vec<&str> = taken.iter().map(|c| &**c).collect();
        step(trace, StepKind::Drop).hook = hook(&chains);
    });
    assert_eq!(path.unwrap().from.as_deref(), Some(CONFIRMED));
    let strange = again("c58", StepKind::Drop, |trace| {
        step(trace, StepKind::Drop).hook = hook(&["cali-FORWARD", "MY-CHAIN"]);
    });
    let strange = strange.unwrap();
    assert_eq!(strange.from.as_deref(), Some(SEEN));
    assert_eq!(strange.path.len(), 2);
    assert!(strange.text.is_none() && !strange.inferred);
}
