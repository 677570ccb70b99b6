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
    fold.finish(None);
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
    fold.finish(None);
    told.extend(fold.complete(0));
    told.sort_unstable();
    told.dedup();
    assert_eq!(told.len() as u64 + fold.forgotten(), 1000);
}
