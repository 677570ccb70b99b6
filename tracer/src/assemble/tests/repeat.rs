//! The same in, the same out; and a recording gives what live gave.

use std::sync::Arc;

use super::{Names, nodes};
use crate::assemble::{Assembler, Limits, synthetic};
use crate::trace::{Fold, Outcome, Step};

fn run() -> Vec<Step> {
    let mut asm = Assembler::new(Limits::default(), Arc::new(Names));
    let mut out = Vec::new();
    synthetic::events(100).for_each(|e| asm.push(e, &mut out));
    assert_eq!(asm.losses(), crate::trace::Losses::default());
    out
}

fn fold(steps: impl IntoIterator<Item = Step>) -> Fold {
    let mut fold = Fold::new(&nodes());
    for step in steps {
        fold.push(step);
    }
    fold.finish();
    fold
}

#[test]
fn synthetic_connections_are_all_delivered() {
    let steps = run();
    assert_eq!(steps, run());
    let fold = fold(steps);
    assert_eq!((fold.flow_count(), fold.packet_count()), (100, 1000));
    for id in 1..=1000 {
        let p = fold.packet(id).unwrap();
        assert_eq!((p.outcome, p.attempt), (Outcome::Delivered, 1), "{p:#?}");
    }
    assert!((1..=100).all(|n| fold.flow(n).unwrap().state == "closed"));
}

#[test]
fn replay_equals_live() {
    let steps = run();
    let lines: Vec<String> = steps
        .iter()
        .map(|s| serde_json::to_string(s).unwrap())
        .collect();
    let again = lines
        .iter()
        .map(|l| serde_json::from_str::<Step>(l).unwrap());
    let (live, replay) = (fold(steps), fold(again));
    for id in 1..=1000 {
        assert_eq!(live.packet(id), replay.packet(id));
    }
    for id in 1..=100 {
        assert_eq!(live.flow(id), replay.flow(id));
    }
}

#[test]
fn bounded_fold_hands_out_every_packet_once() {
    let mut fold = Fold::bounded(&nodes(), 700);
    let mut told = Vec::new();
    for (n, step) in run().into_iter().enumerate() {
        fold.push(step);
        if n % 100 == 0 {
            told.extend(fold.complete(0));
        }
    }
    fold.finish();
    told.extend(fold.complete(0));
    told.sort_unstable();
    told.dedup();
    assert_eq!(told.len() as u64 + fold.forgotten(), 1000);
}

/// Not a test of anything but speed: `cargo test --release -- --ignored rate`.
#[test]
#[ignore = "a benchmark"]
fn rate() {
    let events: Vec<_> = synthetic::events(16_000).collect();
    let n = events.len();
    let mut asm = Assembler::new(Limits::default(), Arc::new(Names));
    let mut out = Vec::with_capacity(4096);
    let mut steps = 0;
    let start = std::time::Instant::now();
    for event in events {
        let ts = event.ts;
        asm.push(event, &mut out);
        if out.len() > 2000 {
            asm.tick(ts, &mut out);
            steps += out.len();
            out.clear();
        }
    }
    let took = start.elapsed();
    let rate = n as f64 / took.as_secs_f64();
    assert!(steps > n / 2);
    assert_eq!(asm.losses().user_space, 0, "{rate:.0} events/s");
    eprintln!("{n} events, {steps} steps, {took:?}, {rate:.0} events/s");
}
