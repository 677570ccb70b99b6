//! A tool per node, and what their recordings say together.

use std::fs;
use std::path::{Path, PathBuf};

use tracer_tests::lab::netns;

use crate::run::{Running, Tool, evidence, follow};
use crate::trace::{Packet, Step, Trace, kprobes};
use crate::world::{PORT, get, lab, server_saw, service};

const SERVICE: &str = "10.98.235.247:80";
const BACKEND: &str = "10.244.158.65:8080";

/// The tool on one node, which sees nothing of the other.
fn on(node: &str, file: &Path) -> Running {
    let _ = fs::remove_file(file);
    let netns = format!("{node}={}", netns::path(node).display());
    let args = ["--pod", "client", "--dst", SERVICE, "--netns", &netns];
    follow(&format!("apart-{node}"), &args)
        .arg("-w")
        .arg(file)
        .start()
}

/// A packet's way without what the tool cannot know on one node alone.
fn way(packet: &Packet) -> Vec<String> {
    packet.steps.iter().map(Step::place).collect()
}

#[test]
fn recordings_of_two_nodes_together_are_the_whole_way() {
    let folder = evidence();
    let files: [PathBuf; 2] =
        ["worker", "worker2"].map(|n| folder.join(format!("apart-{n}.jsonl")));
    let both = folder.join("apart-both.jsonl");
    let _ = fs::remove_file(&both);
    let _lab = lab();
    let whole = follow("apart-whole", &["--pod", "client", "--dst", SERVICE]).start();
    let runs = [on("worker", &files[0]), on("worker2", &files[1])];
    let saw = get("client", service()).saw().expect("saw");
    server_saw("remote", saw);
    for run in runs {
        run.stop().exit(0);
    }
    let whole = whole.stop();
    let whole = whole.exit(0).trace();
    let merge = Tool::new("apart-merged", &["merge", "-o", "json"])
        .arg(&files[0])
        .arg(&files[1])
        .arg("-w")
        .arg(&both);
    let merged = merge.run();
    let merged = merged.exit(0).trace();
    merged.lossless().healthy();
    let line = format!("tcp 10.244.80.65:{PORT} > {SERVICE} = {BACKEND}");
    let (flow, seen) = (merged.only_flow(&line), whole.only_flow(&line));
    for direction in ["request", "reply"] {
        let ways = |trace: &Trace, flow| -> Vec<Vec<String>> {
            let of = trace.packets_of(flow, direction);
            of.iter().map(|packet| way(packet)).collect()
        };
        assert_eq!(
            ways(&merged, flow),
            ways(&whole, seen),
            "kprobes: {}",
            kprobes()
        );
    }
    let shown = Tool::new("apart-show", &["show", "-o", "json"])
        .arg(&both)
        .run();
    assert_eq!(shown.exit(0).trace().content(), merged.content());
}
