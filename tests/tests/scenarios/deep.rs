//! `--deep`: what the kernel itself says of a drop agrees with what the rules, read and walked, say of it.

use serde_json::Value;
use tracer_tests::lab::client;
use tracer_tests::lab::{fault, inventory};

use crate::run::{Done, Tool, follow_service};
use crate::trace::kprobes;
use crate::world::{REMOTE_END, lab, patient, service};

/// The chain that ends with the policy's drop.
fn chain() -> String {
    format!("cali-tw-{REMOTE_END}")
}

fn deny() {
    let fault = fault::named("ingress-denied").expect("a fault of that name");
    fault.apply().expect("the fault is made");
}

/// Every hook step with the verdict DROP: node, hook, and the chains entered, where they were seen.
fn drops(done: &Done) -> Vec<(String, String, Vec<String>)> {
    let whole: Value = serde_json::from_str(&done.stdout).expect("JSON");
    let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
    let packets = whole["packets"].as_array().expect("packets");
    let steps = packets
        .iter()
        .flat_map(|p| p["steps"].as_array().into_iter().flatten());
    steps
        .filter(|step| step["hook"]["verdict"] == "DROP")
        .map(|step| {
            let hook = &step["hook"];
            let chains = hook["chains"].as_array().into_iter().flatten();
            (
                text(&step["node"]),
                text(&hook["hook"]),
                chains.map(text).collect(),
            )
        })
        .collect()
}

/// The verdict names the chain by the rules; the kernel must have left it at the same place.
#[track_caller]
fn agrees(done: &Done) {
    done.exit(3).trace().verdict("policy-drop").lossless();
    let whole: Value = serde_json::from_str(&done.stdout).expect("JSON");
    let said = whole["verdict"].to_string();
    for word in ["FORWARD", &chain(), "default-deny"] {
        assert!(said.contains(word), "no {word:?} in {said}");
    }
    if !kprobes() {
        eprintln!("this kernel has no kprobes: nothing is deep");
        return;
    }
    let drops = drops(done);
    println!("{drops:?}");
    assert!(!drops.is_empty(), "no hook dropped it: {said}");
    for (node, hook, chains) in &drops {
        assert_eq!((node.as_str(), hook.as_str()), ("worker2", "FORWARD"));
        assert!(
            chains.is_empty() || chains.contains(&chain()),
            "the kernel was in {chains:?}"
        );
    }
}

#[test]
fn deep_follow_agrees_with_the_rules_about_a_policy() {
    let _lab = lab();
    deny();
    let run = follow_service("deep-policy").args(&["--deep"]).start();
    let options = patient().timeout(std::time::Duration::from_secs(2));
    let outcome = client::get(Some("client"), service(), &options);
    assert!(outcome.is_err(), "the policy lets it through");
    agrees(&run.stop());
}

#[test]
fn deep_probe_agrees_with_the_rules_about_a_policy() {
    let _lab = lab();
    deny();
    let done = Tool::new(
        "deep-probe",
        &["probe", "--no-kube", "--deep", "-o", "json"],
    )
    .args(&["--pod", "client", "--dst", "svc/default/remote:80"])
    .args(&["--timeout", "2s", "--inventory"])
    .arg(inventory::path())
    .run();
    agrees(&done);
}
