//! `pcapng`, read by tshark.

use std::fs;
use std::process::Command;

use tracer::trace::{Step, StepKind, Trace};

use crate::samples::{empty, export, hostile, recordings, scratch};

const FIELDS: [&str; 18] = [
    "frame.interface_name",
    "frame.interface_description",
    "frame.time_epoch",
    "frame.len",
    "frame.packet_id",
    "frame.comment",
    "ip.src",
    "ip.dst",
    "tcp.srcport",
    "tcp.dstport",
    "udp.srcport",
    "vxlan.vni",
    "ip.checksum.status",
    "tcp.checksum.status",
    "ip.ttl",
    "tcp.seq_raw",
    "_ws.expert.severity",
    "_ws.malformed",
];
/// `PI_ERROR` of Wireshark's `epan/proto.h`.
const ERROR: &str = "8388608";

/// Each packet's fields, and what tshark said.
fn read(name: &str, trace: &Trace) -> Vec<Vec<String>> {
    let file = scratch(&format!("{name}.pcapng"));
    fs::write(&file, export(trace, "pcapng")).unwrap();
    let mut tshark = Command::new("tshark");
    tshark.arg("-r").arg(&file).args([
        "-n",
        "-T",
        "fields",
        "-E",
        "separator=/t",
        "-E",
        "aggregator=\u{1f}",
    ]);
    for check in ["ip", "tcp", "udp"] {
        tshark.args(["-o", &format!("{check}.check_checksum:TRUE")]);
    }
    // Its analysis takes the same packet at the next interface for one sent again.
    tshark.args(["-o", "tcp.analyze_sequence_numbers:FALSE"]);
    for field in FIELDS {
        tshark.args(["-e", field]);
    }
    let done = tshark.output().unwrap_or_else(|e| {
        panic!("cannot run tshark: {e}; cargo xtask setup --exports installs it")
    });
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{name}: {said}");
    let quiet = said
        .lines()
        .all(|l| l.is_empty() || l.starts_with("Running as user"));
    assert!(quiet, "{name}: {said}");
    let text = String::from_utf8(done.stdout).unwrap();
    let row = |l: &str| l.split('\t').map(str::to_owned).collect();
    text.lines().map(row).collect()
}

fn field<'a>(row: &'a [String], name: &str) -> &'a str {
    &row[FIELDS.iter().position(|f| *f == name).unwrap()]
}

/// The innermost of a field's values.
fn last<'a>(row: &'a [String], name: &str) -> &'a str {
    field(row, name).rsplit(',').next().unwrap()
}

fn steps(trace: &Trace) -> Vec<(u64, &Step)> {
    let all = trace
        .packets
        .iter()
        .flat_map(|p| p.steps.iter().map(|s| (p.id, s)));
    let mut all: Vec<(u64, &Step)> = all.collect();
    all.sort_by_key(|(_, s)| s.ts);
    all
}

#[test]
fn every_recording_reads_without_an_error_and_with_what_was_seen() {
    for (name, trace) in recordings() {
        let rows = read(&name, &trace);
        let steps = steps(&trace);
        assert_eq!(rows.len(), steps.len(), "{name}: nothing is lost");
        for (row, (packet, step)) in rows.iter().zip(steps) {
            let at = format!("{name}: {row:?}");
            assert_eq!(field(row, "_ws.malformed"), "", "{at}");
            let severities: Vec<&str> = field(row, "_ws.expert.severity")
                .split(['\u{1f}', ','])
                .collect();
            assert!(!severities.contains(&ERROR), "{at}");
            for sums in ["ip.checksum.status", "tcp.checksum.status"] {
                // 0 is "bad".
                assert!(
                    !field(row, sums).split(['\u{1f}', ',']).any(|s| s == "0"),
                    "{sums} {at}"
                );
            }
            let point = field(row, "frame.interface_name");
            let node = if step.node.is_empty() {
                "unknown node"
            } else {
                &step.node
            };
            let wanted = match step.kind {
                _ if step.inferred => format!("{node}: worked out"),
                StepKind::Ingress => format!("{node}: {} in", step.iface),
                StepKind::Egress => format!("{node}: {} out", step.iface),
                _ => format!("{node}: kernel"),
            };
            assert_eq!(point, wanted, "{at}");
            let comment = field(row, "frame.comment");
            assert_eq!(
                comment.contains("worked out, not observed"),
                step.inferred,
                "{at}"
            );
            assert!(comment.contains(&format!("packet #{packet} ")), "{at}");
            let time = format!("{}.{:09}", step.ts / 1_000_000_000, step.ts % 1_000_000_000);
            assert_eq!(field(row, "frame.time_epoch"), time, "{at}");
            if step.src.addr.is_ipv4() {
                let (src, dst) = (step.src.addr.to_string(), step.dst.addr.to_string());
                let values = |name| {
                    field(row, name)
                        .split(['\u{1f}', ','])
                        .next_back()
                        .unwrap()
                        .to_owned()
                };
                assert_eq!((values("ip.src"), values("ip.dst")), (src, dst), "{at}");
            }
            if let Some(tcp) = &step.tcp {
                assert_eq!(
                    last(row, "tcp.srcport"),
                    step.src.port.unwrap().to_string(),
                    "{at}"
                );
                assert_eq!(
                    last(row, "tcp.dstport"),
                    step.dst.port.unwrap().to_string(),
                    "{at}"
                );
                assert_eq!(last(row, "tcp.seq_raw"), tcp.seq.to_string(), "{at}");
            }
            if let Some(drop) = &step.drop {
                assert!(
                    comment.contains(drop.reason.as_deref().unwrap_or(&drop.function)),
                    "{at}"
                );
            }
            if let Some(rewrite) = &step.rewrite {
                assert!(comment.contains(&rewrite.to.addr.to_string()), "{at}");
            }
            if matches!(step.kind, StepKind::Ingress | StepKind::Egress) && step.merged.is_none() {
                assert_eq!(field(row, "frame.len"), step.len.to_string(), "{at}");
            }
            let outer = step
                .tunnel
                .as_ref()
                .filter(|_| step.kind != StepKind::Decap);
            let vni = outer
                .and_then(|t| t.vni)
                .map_or(String::new(), |v| v.to_string());
            assert_eq!(field(row, "vxlan.vni"), vni, "{at}");
        }
    }
}

#[test]
fn an_enemys_recording_and_an_empty_one_are_read_too() {
    let rows = read("hostile", &hostile());
    assert!(!rows.is_empty());
    assert!(rows.iter().flatten().all(|f| !f.contains('\x1b')));
    assert!(read("empty", &empty()).is_empty());
}
