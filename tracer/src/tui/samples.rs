//! What tests show: recordings, and traces made up.

use std::path::Path;
use std::sync::OnceLock;

use crate::assemble::tests::{Bench, S, plain};
use crate::trace::{Flow, Header, Outcome, Packet, Trace};
use crate::{diagnose, recording};

/// A recording of the test data, judged.
pub(super) fn recording(case: &str) -> Trace {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/recordings");
    let file = folder.join(format!("{case}.jsonl.zst"));
    let (mut trace, _) = recording::read(&file).unwrap();
    if trace.closing.verdict.code.is_empty() {
        (trace.closing.verdict, trace.closing.findings) = diagnose::diagnose(&trace);
    }
    trace
}

/// A header.
pub(super) fn header() -> Header {
    crate::diagnose::tests::header()
}

/// A flow made up.
pub(super) fn flow(id: u64) -> Flow {
    static MADE: OnceLock<Flow> = OnceLock::new();
    let made = MADE.get_or_init(|| recording("c20").flows.swap_remove(0));
    let mut flow = made.clone();
    flow.id = id;
    flow
}

/// A packet made up: delivered, or dropped.
pub(super) fn packet(id: u64, flow: u64, bad: bool) -> Packet {
    static MADE: OnceLock<Packet> = OnceLock::new();
    let made = MADE.get_or_init(|| {
        let mut b = Bench::new();
        b.seen("worker < cali747ff840379", plain(S, 1, 0, 0));
        b.seen("worker > eth0", plain(S, 1, 0, 0));
        let trace = b.fold().trace(header(), crate::trace::Losses::default());
        trace.packets.into_iter().next().unwrap()
    });
    let mut packet = made.clone();
    packet.id = id;
    packet.flow = flow;
    packet.outcome = if bad {
        Outcome::Dropped
    } else {
        Outcome::Delivered
    };
    packet
}
