//! Packets that look alike, segments, and flows whose direction one node
//! mistook.

use super::*;
use crate::trace::Tunnel;

const MS: u64 = 1_000_000;

/// A datagram that leaves worker at `sent` and, unless none, arrives at
/// worker2 at `got`; identification 0, so that all look the same.
fn datagram(id: u64, sent: u64, got: Option<u64>, reply: bool) -> Vec<Step> {
    let template = whole("c20")
        .steps
        .into_iter()
        .find(|s| s.tunnel.is_some() && s.kind == StepKind::Egress)
        .unwrap();
    let (here, there) = if reply {
        ("worker2", "worker")
    } else {
        ("worker", "worker2")
    };
    let mut left = Step {
        ts: sent,
        node: here.into(),
        packet: Some(id),
        flow: Some(1),
        reply,
        ..template
    };
    left.ip.as_mut().unwrap().id = 0;
    if reply {
        std::mem::swap(&mut left.src, &mut left.dst);
        let tunnel = left.tunnel.as_mut().unwrap();
        std::mem::swap(&mut tunnel.src, &mut tunnel.dst);
    }
    let came = got.map(|ts| Step {
        ts,
        node: there.into(),
        kind: StepKind::Ingress,
        ..left.clone()
    });
    [left].into_iter().chain(came).collect()
}

fn recording(mut steps: Vec<Step>) -> Input {
    steps.sort_by_key(|s| s.ts);
    renumber(&mut steps);
    Input {
        steps,
        ..whole("c20")
    }
}

const T: u64 = 1_700_000_000_000_000_000;

#[test]
fn as_many_that_look_alike_are_paired_in_order() {
    let steps =
        (0..10).flat_map(|i| datagram(i + 1, T + i * 1000, Some(T + 50_000 + i * 1000), false));
    let whole = recording(steps.collect());
    let output = merged(split(&whole, Off::of(3_000_000_000)));
    let notes = &output.header.merged.as_ref().unwrap().notes;
    assert!(
        notes
            .iter()
            .any(|n| n.starts_with("10 packets look exactly like others")),
        "{notes:?}"
    );
    compare("alike", &judged(&output), &unsplit(&whole));
}

#[test]
fn one_lost_among_others_that_look_alike_is_not_guessed() {
    let steps = (0..10).flat_map(|i| {
        datagram(
            i + 1,
            T + i * 1000,
            (i != 4).then_some(T + 50_000 + i * 1000),
            false,
        )
    });
    let output = merged(split(&recording(steps.collect()), Off::of(3_000_000_000)));
    let about = output.header.merged.as_ref().unwrap();
    assert!(
        about
            .notes
            .iter()
            .any(|n| n.starts_with("10 packets that left look exactly like 9 that arrived")),
        "{:?}",
        about.notes
    );
    let trace = judged(&output);
    assert_eq!((trace.packets.len(), about.unsure.len()), (19, 10));
    assert!(trace.packets.iter().all(|p| p.outcome != Outcome::Lost));
    assert_ne!(trace.closing.verdict.code, "underlay-loss");
}

#[test]
fn known_clocks_tell_apart_what_looks_alike() {
    // One of them lost, far apart in time; others with a name of their own.
    let mut steps = Vec::new();
    for i in 0..6_u64 {
        let at = T + i * 500 * MS;
        steps.extend(datagram(i + 1, at, (i != 3).then_some(at + 60_000), false));
        for (id, reply) in [(i + 20, false), (i + 40, true)] {
            let mut own = datagram(id, at + MS, Some(at + MS + 50_000), reply);
            for step in &mut own {
                step.ip.as_mut().unwrap().id = id as u32;
            }
            steps.extend(own);
        }
    }
    let whole = recording(steps);
    let output = merged(split(&whole, Off::of(-8_000_000_000)));
    let about = output.header.merged.as_ref().unwrap();
    assert!(
        about.notes.is_empty() && about.unsure.is_empty(),
        "{about:?}"
    );
    let trace = judged(&output);
    compare("told apart", &trace, &unsplit(&whole));
    let short = trace.packets.iter().filter(|p| p.steps.len() == 1);
    assert_eq!(short.count(), 1);
}

#[test]
fn segments_belong_to_the_packet_they_were_cut_from() {
    let call = whole("c03");
    let template = call
        .steps
        .iter()
        .find(|s| s.kind == StepKind::Egress && s.tunnel.is_some())
        .unwrap();
    let segment = |packet, ts, node: &str, kind, seq, payload, id| {
        let mut step = Step {
            packet: Some(packet),
            ts,
            node: node.into(),
            kind,
            payload,
            ..template.clone()
        };
        let tcp = step.tcp.as_mut().unwrap();
        (tcp.seq, tcp.flags) = (seq, ".".into());
        step.ip.as_mut().unwrap().id = id;
        step
    };
    let mut parts = split(&call, Off::default());
    parts[0].steps = vec![segment(1, T, "worker", StepKind::Egress, 1000, 3000, 5)];
    parts[1].steps = (0..3)
        .map(|i| {
            segment(
                1 + i,
                T + 1000 + i,
                "worker2",
                StepKind::Ingress,
                1000 + 1000 * i as u32,
                1000,
                5 + i as u32,
            )
        })
        .collect();
    // The first has the mark of the whole but not its length.
    let trace = judged(&merged(parts));
    assert_eq!(trace.packets.len(), 1);
    assert_eq!(trace.packets[0].steps.len(), 4);
}

#[test]
fn a_direction_that_one_node_mistook_is_turned() {
    let whole = whole("c03");
    let mut parts = split(&whole, Off::of(1_000_000));
    // It saw the answer first, and took the server for the client.
    parts[1].steps.iter_mut().for_each(|s| s.reply = !s.reply);
    compare("turned", &judged(&merged(parts)), &unsplit(&whole));
}

#[test]
fn three_nodes_hold_together() {
    // A packet from worker to worker2 and one back; and the same once more, as
    // if worker2 and a third node talked.
    let talk = |ids: [u64; 2], at: u64, rename: bool| {
        let mut steps = datagram(ids[0], at, Some(at + 40_000), false);
        steps.extend(datagram(ids[1], at + MS, Some(at + MS + 40_000), true));
        for step in &mut steps {
            step.ip.as_mut().unwrap().id = step.packet.unwrap() as u32;
            if rename {
                let third = "172.31.0.4".parse().unwrap();
                let Tunnel { src, dst, .. } = step.tunnel.as_mut().unwrap();
                for end in [src, dst] {
                    if *end == "172.31.0.2".parse::<std::net::IpAddr>().unwrap() {
                        *end = third;
                    }
                }
                if &*step.node == "worker" {
                    step.node = "worker3".into();
                }
            }
        }
        steps
    };
    let mut whole = recording([talk([1, 2], T, false), talk([3, 4], T + 5 * MS, true)].concat());
    let mut third = whole.header.nodes[0].clone();
    third.name = "worker3".into();
    third.addrs = vec!["172.31.0.4".parse().unwrap()];
    whole.header.nodes.push(third);
    let parts = vec![
        of_node(&whole, "worker", Off::default()),
        of_node(&whole, "worker3", Off::of(-4_000_000_000)),
        of_node(&whole, "worker2", Off::of(9_000_000_000)),
    ];
    let output = merged(parts);
    let clocks: Vec<_> = output
        .header
        .merged
        .as_ref()
        .unwrap()
        .sources
        .iter()
        .map(|s| s.clock)
        .collect();
    assert!(
        (clocks[1].offset - 4_000_000_000).unsigned_abs() <= clocks[1].uncertainty().unwrap(),
        "{clocks:?}"
    );
    assert!(
        (clocks[2].offset + 9_000_000_000).unsigned_abs() <= clocks[2].uncertainty().unwrap(),
        "{clocks:?}"
    );
    // The third is measured by the second: as uncertain as both together.
    assert!(
        clocks[1].uncertainty() > clocks[2].uncertainty(),
        "{clocks:?}"
    );
    compare("three", &judged(&output), &unsplit(&whole));
}
