//! Odd sets of files: each has its sentence.

use super::super::{MergeError, merge};
use super::*;

fn notes(inputs: Vec<Input>) -> Vec<String> {
    merged(inputs).header.merged.unwrap().notes
}

#[test]
fn nothing_and_what_was_merged_before_are_refused() {
    assert_eq!(
        merge(Vec::new(), &mut |_| {}).unwrap_err(),
        MergeError::Nothing
    );
    let output = merged(split(&whole("c03"), Off::default()));
    let again = Input {
        name: "both.jsonl".into(),
        header: output.header,
        ..Input::default()
    };
    let error = merge(vec![again], &mut |_| {}).unwrap_err().to_string();
    assert!(
        error.starts_with("both.jsonl is a merged recording"),
        "{error}"
    );
}

#[test]
fn one_recording_stays_as_it_is() {
    let whole = whole("c20");
    let output = merged(vec![whole.clone()]);
    assert_eq!(output.steps, whole.steps);
    assert_eq!(output.header.nodes, whole.header.nodes);
    compare("one", &judged(&output), &unsplit(&whole));
    let notes = output.header.merged.unwrap().notes;
    assert!(notes[0].contains("only one recording"), "{notes:?}");
}

#[test]
fn the_same_file_twice_is_read_once() {
    let whole = whole("c22");
    let [a, b] = split(&whole, Off::default()).try_into().unwrap();
    let again = Input {
        name: "copy.jsonl".into(),
        ..b.clone()
    };
    let output = merged(vec![a, b, again]);
    compare("twice", &judged(&output), &unsplit(&whole));
    let notes = output.header.merged.unwrap().notes;
    assert_eq!(notes.len(), 1);
    assert!(
        notes[0].starts_with("copy.jsonl holds the same as worker2.jsonl"),
        "{notes:?}"
    );
}

#[test]
fn parts_of_one_run_are_put_together_in_their_order() {
    let whole = whole("c20");
    let part = |number: u32, range: std::ops::Range<usize>| {
        let mut part = whole.clone();
        part.name = format!("trace.{number:04}.jsonl");
        part.header.run = Some(Run {
            boot: "b".into(),
            began: whole.steps[0].ts,
            part: Some(number),
        });
        part.steps = whole.steps[range].to_vec();
        if number < 3 {
            part.closing = Some(Closing::default());
        }
        part
    };
    let end = whole.steps.len();
    let parts = [part(1, 0..300), part(2, 300..600), part(3, 600..end)];
    let [one, two, three] = parts;
    let output = merged(vec![three.clone(), one.clone(), two]);
    assert_eq!(output.steps, whole.steps);
    assert_eq!(output.header.merged.as_ref().unwrap().sources.len(), 1);
    compare("parts", &judged(&output), &unsplit(&whole));
    let notes = notes(vec![one, three]);
    assert!(
        notes
            .iter()
            .any(|n| n.contains("at least one file of the same run is missing")),
        "{notes:?}"
    );
}

/// Two runs on one node, one of which began later and saw the rest only.
#[test]
fn what_two_recordings_of_a_node_hold_is_shown_once() {
    let whole = whole("c20");
    let boot = |input: &mut Input| {
        input.header.run = Some(Run {
            boot: "b".into(),
            began: 1,
            part: None,
        });
    };
    let mut first = whole.clone();
    boot(&mut first);
    let mut second = whole.clone();
    second.name = "second".into();
    second.header.run = Some(Run {
        boot: "b".into(),
        began: 2,
        part: None,
    });
    second.steps.drain(..400);
    for step in &mut second.steps {
        // Its program runs after the other's.
        step.ts += 700;
    }
    renumber(&mut second.steps);
    let output = merged(vec![first, second]);
    let notes = &output.header.merged.as_ref().unwrap().notes;
    assert!(
        notes[0].contains("are both of worker, worker2: packets that both hold"),
        "{notes:?}"
    );
    assert_eq!(output.steps.len(), whole.steps.len());
    compare("overlap", &judged(&output), &unsplit(&whole));
}

#[test]
fn different_requests_are_told() {
    let mut parts = split(&whole("c03"), Off::default());
    parts[1].header.request = serde_json::json!({"dst": "elsewhere"});
    let notes = notes(parts);
    assert!(
        notes
            .iter()
            .any(|n| n.contains("were asked to follow different things")),
        "{notes:?}"
    );
}

#[test]
fn one_node_under_two_kernels_is_told() {
    let whole = whole("c03");
    let a = of_node(&whole, "worker", Off::default());
    let mut b = a.clone();
    b.name = "other.jsonl".into();
    b.header.run.as_mut().unwrap().boot = "another".into();
    b.steps.truncate(5);
    let notes = notes(vec![a, b]);
    assert!(
        notes.iter().any(|n| n.contains("but of different kernels")),
        "{notes:?}"
    );
}

#[test]
fn recordings_without_a_common_packet_are_told() {
    let a = of_node(&whole("c03"), "worker", Off::default());
    let b = of_node(&whole("c20"), "worker2", Off::default());
    let notes = notes(vec![a, b]);
    assert!(
        notes.iter().any(|n| n.contains("no packet is both in")),
        "{notes:?}"
    );
}

#[test]
fn one_direction_bounds_a_clock_on_one_side() {
    let whole = whole("c03");
    let mut parts = split(&whole, Off::of(5_000_000_000));
    // The answers are missing on the client's node.
    parts[0].steps.retain(|s| !s.reply);
    let output = merged(parts);
    let about = output.header.merged.as_ref().unwrap();
    let clock = about.sources[1].clock;
    assert!(clock.low.is_some() && clock.high.is_none(), "{clock:?}");
    assert!(
        about
            .notes
            .iter()
            .any(|n| n.contains("only on their way to it")),
        "{:?}",
        about.notes
    );
    assert!(in_causal_order(&judged(&output)));
}

#[test]
fn header_names_who_lacks_what() {
    let mut parts = split(&whole("c03"), Off::default());
    parts[1].header.tool.kernel = "6.1.0".into();
    parts[1].header.tool.hooks.push("nf_confirm".into());
    parts[1].header.tool.degraded = vec!["no drop reasons".into()];
    let tool = merged(parts).header.tool;
    assert!(tool.kernel.starts_with("worker: 6.18") && tool.kernel.ends_with(", worker2: 6.1.0"));
    assert_eq!(tool.hooks, ["tc (tcx)", "kfree_skb", "worker2: nf_confirm"]);
    assert!(tool.degraded[0].starts_with("worker: this kernel has no kprobes"));
    assert_eq!(tool.degraded[1], "worker2: no drop reasons");
}

#[test]
fn losses_are_summed() {
    let mut parts = split(&whole("c03"), Off::default());
    for (i, part) in parts.iter_mut().enumerate() {
        part.closing.as_mut().unwrap().losses.ring_buffer = 2 + i as u64;
    }
    assert_eq!(merged(parts).closing.losses.ring_buffer, 5);
}
