//! Recordings of the laboratory, which is one kernel, are split as if each node
//! had been recorded by itself, with a clock of its own; what is merged again
//! has to equal the whole.
#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::collections::BTreeMap;
use std::path::Path;

use super::{Input, Output, merge};
use crate::diagnose::{self, exit_code};
use crate::recording::Reader;
use crate::trace::{Closing, Finding, Fold, Outcome, Run, Step, StepKind, Trace, Verdict};

mod apart;
mod bad;
mod synthetic;

/// A clock that is off by so many nanoseconds, and so many more a second.
#[derive(Clone, Copy, Debug, Default)]
struct Off {
    by: i64,
    ppb: i64,
}

impl Off {
    fn of(by: i64) -> Self {
        Self { by, ppb: 0 }
    }

    fn shift(self, ts: u64, since: u64) -> u64 {
        let drift = (i128::from(ts) - i128::from(since)) * i128::from(self.ppb) / 1_000_000_000;
        ts.strict_add_signed(self.by)
            .strict_add_signed(drift as i64)
    }
}

/// A recording of the laboratory.
fn whole(case: &str) -> Input {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/recordings");
    let mut reader = Reader::open(&folder.join(format!("{case}.jsonl.zst"))).unwrap();
    let steps: Vec<Step> = reader.by_ref().map(Result::unwrap).collect();
    let (header, closing, _) = reader.into_ends();
    Input {
        name: case.into(),
        header,
        steps,
        closing,
    }
}

/// What a run on this node alone would have recorded.
fn of_node(whole: &Input, node: &str, off: Off) -> Input {
    let times = || whole.steps.iter().map(|s| s.ts);
    let (first, last) = (times().min().unwrap(), times().max().unwrap());
    let mut header = whole.header.clone();
    header.nodes.retain(|n| *n.name == *node);
    header.run = Some(Run {
        boot: format!("boot of {node}").into(),
        began: off.shift(first - 3_000_000_000, first),
        part: None,
    });
    let mut steps = Vec::new();
    let mut place = BTreeMap::new();
    for step in &whole.steps {
        // Some drops name no node; they happened where the packet was.
        let known = place.get(&step.packet);
        let on = known.filter(|_| step.node.is_empty()).unwrap_or(&step.node);
        if **on == *node {
            steps.push(step.clone());
        }
        place.insert(step.packet, on.clone());
    }
    for step in &mut steps {
        step.ts = off.shift(step.ts, first);
    }
    renumber(&mut steps);
    let closing = whole.closing.as_ref().map(|c| {
        let mut state = c.state.clone();
        if let Some(state) = &mut state {
            state
                .namespaces
                .retain(|n| *n.name == *node || n.node.as_ref().is_some_and(|n| **n == *node));
        }
        Closing {
            losses: c.losses,
            state,
            ..Closing::default()
        }
    });
    Input {
        name: format!("{node}.jsonl"),
        header,
        steps,
        closing: Some(Closing {
            ended: Some(off.shift(last + 3_000_000_000, first)),
            ..closing.unwrap_or_default()
        }),
    }
}

/// Numbers packets and flows by first sight, as a run of its own does.
fn renumber(steps: &mut [Step]) {
    let (mut packets, mut flows) = (BTreeMap::new(), BTreeMap::new());
    let number = |known: &mut BTreeMap<u64, u64>, id: Option<u64>| {
        let next = known.len() as u64 + 1;
        id.map(|id| *known.entry(id).or_insert(next))
    };
    for step in steps {
        step.packet = number(&mut packets, step.packet);
        step.flow = number(&mut flows, step.flow);
    }
}

/// When a recording says that it ended.
fn ended(input: &mut Input) -> &mut Option<u64> {
    &mut input.closing.get_or_insert_default().ended
}

/// Both nodes apart, the second with a clock of its own.
fn split(whole: &Input, off: Off) -> Vec<Input> {
    let first = of_node(whole, "worker", Off::default());
    vec![first, of_node(whole, "worker2", off)]
}

fn merged(inputs: Vec<Input>) -> Output {
    merge(inputs, &mut |_| {}).unwrap()
}

/// Folded and judged.
fn judged(output: &Output) -> Trace {
    let mut fold = Fold::of(&output.header, usize::MAX);
    output.steps.iter().cloned().for_each(|s| fold.push(s));
    fold.finish(output.closing.ended);
    let mut trace = fold.into_trace(output.header.clone(), output.closing.losses);
    trace.closing = output.closing.clone();
    let (verdict, findings) = diagnose::diagnose(&trace);
    trace.closing.verdict = verdict;
    trace.closing.findings = findings;
    trace
}

/// The unsplit recording, judged in the same way.
fn unsplit(whole: &Input) -> Trace {
    judged(&Output {
        header: whole.header.clone(),
        steps: whole.steps.clone(),
        closing: Closing {
            probe: None,
            ..whole.closing.clone().unwrap()
        },
    })
}

/// What is compared: everything but the times and the order of nodes.
type Seen = (Vec<Shown>, Verdict, Vec<Finding>, u8, Vec<String>);
/// A packet: its way, its summary and try, its outcome, its steps.
type Shown = (String, u64, Outcome, Vec<String>);

fn seen(trace: &Trace) -> Seen {
    let line = |s: &Step| {
        let timeless = Step {
            ts: 0,
            packet: None,
            flow: None,
            ..s.clone()
        };
        serde_json::to_string(&timeless).unwrap()
    };
    let packets = trace.packets.iter().map(|p| {
        let way = format!("{} {:?} {} {}", p.flow, p.direction, p.summary, p.attempt);
        let steps = p.steps.iter().map(line).collect();
        (way, p.retransmits.unwrap_or(0), p.outcome, steps)
    });
    let flows = trace
        .flows
        .iter()
        .map(|f| serde_json::to_string(f).unwrap());
    let (verdict, mut findings) = (&trace.closing.verdict, trace.closing.findings.clone());
    for finding in &mut findings {
        // Said beside the same finding where no packet ties the clocks.
        finding.evidence.retain(|e| !e.starts_with("assumed: "));
    }
    (
        packets.collect(),
        verdict.clone(),
        findings.clone(),
        exit_code(verdict, &findings),
        flows.collect(),
    )
}

/// Says where two traces differ first.
fn compare(case: &str, got: &Trace, want: &Trace) {
    let (got, want) = (seen(got), seen(want));
    assert_eq!(got.0.len(), want.0.len(), "{case}: packets");
    for (i, (got, want)) in got.0.iter().zip(&want.0).enumerate() {
        assert_eq!(
            (&got.0, got.1, got.2),
            (&want.0, want.1, want.2),
            "{case}: packet {}",
            i + 1
        );
        for (got, want) in got.3.iter().zip(&want.3) {
            assert_eq!(got, want, "{case}: a step of packet {}", i + 1);
        }
        assert_eq!(
            got.3.len(),
            want.3.len(),
            "{case}: steps of packet {}",
            i + 1
        );
    }
    assert_eq!(got.4, want.4, "{case}: flows");
    assert_eq!(got.1, want.1, "{case}: verdict");
    assert_eq!(got.2, want.2, "{case}: findings");
    assert_eq!(got.3, want.3, "{case}: exit code");
}

/// Steps at which a packet left one node and arrived at another, and whether
/// they are in this order.
fn in_causal_order(trace: &Trace) -> bool {
    trace.packets.iter().all(|p| {
        p.steps
            .windows(2)
            .all(|w| w[0].node == w[1].node || w[0].kind == StepKind::Egress && w[0].ts <= w[1].ts)
    })
}
