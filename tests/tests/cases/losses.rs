//! Events are lost on purpose: a ring buffer of one page, and a reader that is halted meanwhile.

use tracer_tests::lab::fault;

use crate::case::{Told, recordings};
use crate::run::{Running, Tool, follow_service};
use crate::traffic::{self, Outcome};
use crate::world::lab;

/// Follows the Service with the smallest ring there is, and records.
fn follow_with_a_tiny_ring(name: &str) -> (Running, std::path::PathBuf) {
    let file = recordings().join(format!("{name}.jsonl"));
    let run = follow_service(name)
        .args(&["--ring-buffer", "4", "-w"])
        .arg(&file)
        .start();
    (run, file)
}

#[test]
fn losses_make_a_healthy_verdict_uncertain() {
    let _lab = lab();
    let (run, file) = follow_with_a_tiny_ring("losses-healthy");
    run.pause();
    // Some tens of records fit, a call makes more than a hundred.
    let calls: Vec<Outcome> = (0..10).map(|_| traffic::service_works()).collect();
    run.go_on();
    assert!(calls.iter().all(|c| *c == Outcome::Answered), "{calls:?}");
    // And one that is seen to its end, but for those that the ring has no room for.
    traffic::service_works();
    let done = run.stop();
    let told = Told::of(&done);
    let said = told.describe();
    assert!(told.losses["ring_buffer"] > 0, "{:?}\n{said}", told.losses);
    assert!(told.verdict.summary.contains("uncertain"), "{said}");
    assert!(
        told.findings.iter().all(|f| f.severity != "fault"),
        "a fault made of holes\n{said}"
    );
    done.exit(0);

    // People are told, too.
    let shown = Tool::new("losses-shown", &["show"]).arg(&file).run();
    shown.exit(0);
    assert!(shown.stdout.contains("uncertain"), "{}", shown.stdout);
}

#[test]
fn losses_do_not_hide_a_drop_that_was_seen() {
    let _lab = lab();
    let fault = fault::named("ingress-denied").expect("a fault of the laboratory");
    fault.apply().expect("the fault is made");
    let (run, _) = follow_with_a_tiny_ring("losses-broken");
    let first = traffic::call_service();
    run.pause();
    let others: Vec<Outcome> = (0..3).map(|_| traffic::call_service()).collect();
    run.go_on();
    assert!(
        others.iter().all(|c| *c == Outcome::TimedOut) && first == Outcome::TimedOut,
        "{first:?} {others:?}"
    );
    let done = run.stop();
    let told = Told::of(&done);
    let said = told.describe();
    assert!(told.losses["ring_buffer"] > 0, "{:?}\n{said}", told.losses);
    assert_eq!(told.verdict.code, "policy-drop", "{said}");
    assert!(told.verdict.summary.contains("uncertain"), "{said}");
    let faults = told.findings.iter().filter(|f| f.severity == "fault");
    assert!(faults.clone().all(|f| f.code == "policy-drop"), "{said}");
    done.exit(3);
}
