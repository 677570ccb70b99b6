//! The laboratory's recordings, split and merged again.

use proptest::prelude::*;

use super::*;

/// All kept recordings.
const CASES: &[&str] = &[
    "c01", "c02", "c03", "c05", "c07", "c09", "c10", "c11", "c13", "c15", "c19", "c20", "c22",
    "c24", "c25", "c26", "c27", "c29", "c30", "c31", "c33", "c36", "c38", "c40", "c40b", "c41",
    "c43", "c44", "c45", "c47", "c55", "c56", "c58", "c59", "c60", "c62", "c63", "c64", "c65",
    "c68", "c70",
];

/// Seconds in nanoseconds.
const S: i64 = 1_000_000_000;

#[test]
fn what_was_split_is_whole_again() {
    for case in CASES {
        let whole = whole(case);
        let want = unsplit(&whole);
        for off in [
            Off::of(0),
            Off::of(137 * S + 1),
            Off {
                by: -93 * S,
                ppb: 80_000,
            },
        ] {
            let output = merged(split(&whole, off));
            let got = judged(&output);
            let about = output.header.merged.as_ref().unwrap();
            let clock = about.sources[1].clock;
            if off.by != 0 && !clock.known() {
                // No packet of both: nothing is said about times between them.
                assert!(
                    about.notes.iter().any(|n| n.contains("no packet is both")),
                    "{case}"
                );
                assert!(
                    got.packets.iter().all(|p| p.outcome != Outcome::Lost),
                    "{case}"
                );
                continue;
            }
            compare(&format!("{case} {off:?}"), &got, &want);
            assert!(in_causal_order(&got), "{case} {off:?}");
        }
    }
}

#[test]
fn the_true_offset_lies_within_the_bounds() {
    for case in ["c20", "c22", "c38", "c68"] {
        for off in [0, 1, -1, 59 * S, -600 * S] {
            let output = merged(split(&whole(case), Off::of(off)));
            let clock = output.header.merged.unwrap().sources[1].clock;
            let (low, high) = (clock.low.unwrap(), clock.high.unwrap());
            assert!(low <= -off && -off <= high, "{case} {off}: {clock:?}");
            assert!(
                low <= clock.offset && clock.offset <= high,
                "{case} {off}: {clock:?}"
            );
            // Two namespaces of one machine: packets take well under 1 ms.
            assert!(
                clock.uncertainty().unwrap() < 1_000_000,
                "{case} {off}: {clock:?}"
            );
            assert_eq!(clock.drift, None, "{case} {off}: {clock:?}");
        }
    }
}

#[test]
fn loss_between_two_nodes_shows_in_both_recordings_only() {
    let whole = whole("c26");
    let parts = split(&whole, Off::default());
    for part in &parts {
        let alone = judged(&merged(vec![part.clone()]));
        assert_ne!(alone.closing.verdict.code, "underlay-loss");
    }
    let both = judged(&merged(parts.clone()));
    assert_eq!(both.closing.verdict.code, "underlay-loss");
    let evidence = &both.closing.findings[0].evidence;
    assert!(
        evidence
            .iter()
            .any(|e| e.starts_with("assumed: worker2's clock")),
        "{evidence:?}"
    );
    // Whoever was not recording then, or not at the interface, says nothing.
    let mut late = parts.clone();
    late[1].header.run.as_mut().unwrap().began += 60 * S as u64;
    *ended(&mut late[1]).as_mut().unwrap() += 60 * S as u64;
    let mut early = parts.clone();
    *ended(&mut early[1]) = Some(whole.steps[0].ts);
    let mut blind = parts.clone();
    blind[1].header.nodes[0]
        .interfaces
        .retain(|i| &*i.name != "eth0");
    let mut unknown = parts;
    unknown[1].header.run = None;
    for (parts, why) in [
        (late, "late"),
        (early, "early"),
        (blind, "blind"),
        (unknown, "unknown"),
    ] {
        let trace = judged(&merged(parts));
        assert_ne!(trace.closing.verdict.code, "underlay-loss", "{why}");
        assert!(
            trace.packets.iter().all(|p| p.outcome != Outcome::Lost),
            "{why}"
        );
    }
}

#[test]
fn a_packet_missing_on_one_node_is_lost_if_that_was_looking() {
    let mut lost = 0;
    for case in ["c20", "c22", "c38", "c68"] {
        let whole = whole(case);
        let all = unsplit(&whole);
        let on = |p: &crate::trace::Packet, node: &str| p.steps.iter().any(|s| *s.node == *node);
        let crossed = all
            .packets
            .iter()
            .filter(|p| on(p, "worker") && on(p, "worker2"));
        let gone: BTreeMap<u64, String> = crossed
            .step_by(3)
            .map(|p| (p.id, p.steps[0].node.to_string()))
            .collect();
        assert!(gone.len() > 1, "{case}");
        // What was not seen where it arrived, under one kernel and two.
        let mut without = whole.clone();
        without.steps.retain(|s| {
            gone.get(&s.packet.unwrap())
                .is_none_or(|first| *s.node == **first)
        });
        let want = unsplit(&without);
        let got = judged(&merged(split(&without, Off::of(59 * S))));
        compare(case, &got, &want);
        lost += got
            .packets
            .iter()
            .filter(|p| p.outcome == Outcome::Lost)
            .count();
        // And the other had stopped by then.
        let mut parts = split(&without, Off::of(59 * S));
        for part in &mut parts {
            *ended(part) = Some(0);
        }
        let got = judged(&merged(parts));
        assert!(
            got.packets.iter().all(|p| p.outcome != Outcome::Lost),
            "{case}"
        );
    }
    assert!(lost > 5, "{lost}");
}

#[test]
fn drift_is_found_in_a_long_run() {
    // The same call again every ten seconds, for ten minutes.
    let call = whole("c22");
    let mut long = call.clone();
    long.steps.clear();
    for round in 0..60_u64 {
        for step in &call.steps {
            let mut step = step.clone();
            step.ts += round * 10 * S as u64;
            step.packet = step.packet.map(|p| p + round * 1000);
            step.flow = step.flow.map(|f| f + round * 1000);
            step.ip.as_mut().unwrap().id ^= round as u32;
            for end in [&mut step.src, &mut step.dst] {
                if end.port.is_some_and(|p| p > 30_000) {
                    end.port = end.port.map(|p| p.wrapping_add(round as u16));
                }
            }
            if let Some(ct) = &mut step.conntrack {
                ct.original.src.port = None;
                ct.reply.dst.port = None;
            }
            long.steps.push(step);
        }
    }
    renumber(&mut long.steps);
    let want = unsplit(&long);
    let output = merged(split(
        &long,
        Off {
            by: 7 * S,
            ppb: 50_000,
        },
    ));
    let about = output.header.merged.as_ref().unwrap();
    let clock = about.sources[1].clock;
    let drift = clock.drift.unwrap();
    assert!((drift + 50_000).abs() < 500, "{clock:?}");
    assert_eq!(about.notes, [""; 0]);
    let got = judged(&output);
    assert!(in_causal_order(&got));
    compare("drift", &got, &want);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn any_offset_and_drift_gives_the_same(
        by in -900 * S..900 * S,
        ppb in -100_000_i64..100_000,
        case in prop::sample::select(&["c03", "c09", "c22", "c38", "c70"][..]),
        turned: bool,
    ) {
        let whole = whole(case);
        let mut parts = split(&whole, Off { by, ppb });
        if turned {
            parts.reverse();
        }
        let got = judged(&merged(parts));
        let want = unsplit(&whole);
        prop_assert!(in_causal_order(&got));
        compare(case, &got, &want);
    }

    #[test]
    fn whatever_is_missing_nothing_is_invented(
        by in -900 * S..900 * S,
        gone in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
        case in prop::sample::select(&["c03", "c09", "c22", "c38", "c70"][..]),
    ) {
        let whole = whole(case);
        let mut parts = split(&whole, Off::of(by));
        for (i, index) in gone.iter().enumerate() {
            let steps = &mut parts[i % 2].steps;
            let packet = steps[index.index(steps.len())].packet;
            if steps.iter().any(|s| s.packet != packet) {
                steps.retain(|s| s.packet != packet);
            }
        }
        let kept: usize = parts.iter().map(|p| p.steps.len()).sum();
        let output = merged(parts);
        // Every step is there once, whatever it was joined with.
        prop_assert_eq!(output.steps.len(), kept);
        let trace = judged(&output);
        for packet in &trace.packets {
            let visits: Vec<&str> = packet.steps.iter().map(|s| &*s.node).filter(|n| !n.is_empty()).collect();
            let changes = visits.windows(2).filter(|w| w[0] != w[1]).count();
            prop_assert!(changes <= 1, "packet {}: {:?}", packet.id, visits);
        }
    }
}
