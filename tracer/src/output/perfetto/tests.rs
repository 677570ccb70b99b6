use std::collections::{HashMap, HashSet};

use serde_json::Value;

use super::write;
use crate::output::samples;
use crate::trace::Trace;

fn events(trace: &Trace) -> Vec<Value> {
    let mut out = Vec::new();
    write(&mut out, trace).unwrap();
    let whole: Value = serde_json::from_slice(&out).unwrap();
    whole["traceEvents"].as_array().unwrap().clone()
}

fn nanoseconds(event: &Value, member: &str) -> u64 {
    (event[member].as_f64().unwrap() * 1000.0).round() as u64
}

/// What the format's description asks for, and what Perfetto's importer drops
/// when it is not so.
fn check(name: &str, trace: &Trace) {
    let events = events(trace);
    let (mut processes, mut threads) = (HashMap::new(), HashMap::new());
    let mut slices: HashMap<(u64, u64), Vec<(u64, u64)>> = HashMap::new();
    let mut arrows: HashMap<u64, Vec<(String, u64)>> = HashMap::new();
    let mut last = 0;
    let mut n_slices = 0;
    for event in &events {
        let (pid, tid) = (
            event["pid"].as_u64().unwrap(),
            event["tid"].as_u64().unwrap(),
        );
        let phase = event["ph"].as_str().unwrap();
        if phase == "M" {
            let value = event["args"]["name"].as_str().unwrap_or("").to_owned();
            match event["name"].as_str().unwrap() {
                "process_name" => drop(processes.insert(pid, value)),
                "thread_name" => drop(threads.insert((pid, tid), value)),
                "process_sort_index" | "thread_sort_index" => {}
                other => panic!("{name}: metadata {other}"),
            }
            continue;
        }
        assert!(
            processes.contains_key(&pid),
            "{name}: process {pid} has no name"
        );
        assert!(
            threads.contains_key(&(pid, tid)),
            "{name}: thread {tid} has no name"
        );
        let ts = nanoseconds(event, "ts");
        assert!(ts >= last, "{name}: {ts} after {last}");
        last = ts;
        match phase {
            "X" => {
                let end = ts + nanoseconds(event, "dur");
                assert!(end > ts, "{name}: a slice of no width");
                slices.entry((pid, tid)).or_default().push((ts, end));
                n_slices += 1;
            }
            "s" | "t" | "f" => {
                if phase != "s" {
                    assert_eq!(event["bp"], "e");
                }
                let track = slices.get(&(pid, tid)).and_then(|s| s.last());
                assert_eq!(track.map(|s| s.0), Some(ts), "{name}: an arrow at no slice");
                let id = event["id"].as_u64().unwrap();
                arrows.entry(id).or_default().push((phase.to_owned(), ts));
            }
            other => panic!("{name}: phase {other}"),
        }
    }
    for (track, slices) in &slices {
        for pair in slices.windows(2) {
            assert!(
                pair[0].1 <= pair[1].0,
                "{name}: overlap on {track:?}: {pair:?}"
            );
        }
    }
    for (id, arrow) in &arrows {
        let phases: String = arrow.iter().map(|(p, _)| p.as_str()).collect();
        let middle = phases.trim_start_matches('s').trim_end_matches('f');
        let whole =
            phases.starts_with('s') && phases.ends_with('f') && phases.len() - middle.len() == 2;
        assert!(
            whole && middle.chars().all(|c| c == 't'),
            "{name}: arrow {id}: {phases}"
        );
    }
    let steps: usize = trace.packets.iter().map(|p| p.steps.len()).sum();
    assert_eq!(n_slices, steps, "{name}: nothing is lost");
}

#[test]
fn every_recording_keeps_to_the_format() {
    for (name, trace) in samples::recordings() {
        check(&name, &trace);
    }
    check("synthetic", &samples::synthetic(300));
    check("empty", &samples::empty());
}

#[test]
fn nodes_and_interfaces_are_named_and_conclusions_are_apart() {
    let trace = samples::recording("c26");
    let events = events(&trace);
    let names: HashSet<&str> = events
        .iter()
        .filter_map(|e| e["args"]["name"].as_str())
        .collect();
    for name in [
        "node worker",
        "cali747ff840379",
        "vxlan.calico",
        "eth0",
        super::WORKED_OUT,
    ] {
        assert!(names.contains(name), "{name} in {names:?}");
    }
    let worked_out = events
        .iter()
        .find(|e| e["args"]["name"] == super::WORKED_OUT)
        .unwrap();
    let of = |e: &&Value| e["ph"] == "X" && e["cat"] == "worked-out";
    assert!(
        events
            .iter()
            .filter(of)
            .all(|e| e["tid"] == worked_out["tid"])
    );
    let again = |e: &&Value| e["name"] == "sent again" && e["ph"] == "s";
    assert_eq!(
        events.iter().filter(again).count(),
        2,
        "two tries after the first"
    );
}
