//! Recordings of broken laboratories, judged anew: what they show needs no root.
//!
//! Made by the tests of `tests/tests/cases` on kernel 6.18 without kprobes.
#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

mod kprobes;
mod native;

use std::path::Path;

use super::{diagnose, exit_code};
use crate::recording;
use crate::trace::{Finding, Severity, Trace};

/// Recording, and the verdict's code.
const CASES: &[(&str, &str)] = &[
    ("c01", "no-endpoints"),
    ("c02", "service-not-translated"),
    ("c03", "stale-backend"),
    ("c05", "stale-backend"),
    ("c07", "no-local-endpoints"),
    ("c10", "stale-backend"),
    ("c13", "hairpin-not-masqueraded"),
    ("c20", "delivered"),
    ("c09", "backend-refused"),
    ("c70", "accept-queue-full"),
    ("c11", "policy-drop"),
    ("c58", "policy-drop"),
    ("c59", "policy-drop"),
    ("c60", "policy-drop"),
    ("c62", "policy-drop"),
    ("c25", "host-firewall"),
    ("c26", "underlay-loss"),
    ("c27", "tunnel-port-mismatch"),
    ("c29", "tunnel-peer-missing"),
    ("c30", "tunnel-peer-wrong"),
    ("c31", "tunnel-peer-missing"),
    ("c33", "tunnel-peer-refused"),
    ("c36", "tunnel-peer-missing"),
    ("c43", "rp-filter"),
    ("c47", "address-not-assigned"),
    ("c19", "conntrack-full"),
    ("c22", "conntrack-invalid"),
    ("c41", "forwarding-off"),
    ("c44", "source-spoofed"),
    ("c45", "pod-gateway-unreachable"),
    ("c55", "route-localnet"),
    ("c56", "forward-policy"),
    ("c64", "host-firewall"),
    ("c65", "masquerade-missing"),
    ("c15", "asymmetric-path"),
    ("c24", "checksum-fault"),
    ("c38", "mtu-exceeded"),
    ("c40", "no-reply"),
    ("c40b", "fragments-lost"),
    ("c63", "bpf-drop"),
    ("c68", "rate-limited"),
    ("c80", "asymmetric-path"),
    ("c81", "ttl-exceeded"),
    ("c82", "conntrack-clash"),
    ("c84", "delivered"),
    ("c85", "ttl-exceeded"),
];

/// Two faults at once: the verdict's code, and the other's.
const PAIRS: &[(&str, &str, &str)] = &[
    ("p01", "masquerade-missing", "policy-drop"),
    ("p02", "stale-backend", "underlay-loss"),
    ("p03", "host-firewall", "policy-drop"),
    ("p04", "policy-drop", "backend-refused"),
];

/// Every path of the laboratory with nothing broken.
const HEALTHY: &[&str] = &[
    "same-node",
    "pod-address",
    "cluster-ip",
    "outside",
    "node-port",
    "hairpin",
    "host-process",
    "name-then-service",
    "ipv6",
    "large-transfer",
    "large-datagram",
];

pub(super) fn read(case: &str) -> Trace {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/recordings");
    let file = folder.join(format!("{case}.jsonl.zst"));
    recording::read(&file).unwrap().0
}

#[test]
fn every_recording_is_judged_as_it_was_live() {
    for (case, code) in CASES {
        let trace = read(case);
        let (verdict, findings) = diagnose(&trace);
        assert_eq!(verdict.code, *code, "{case}: {}", verdict.summary);
        assert_eq!(verdict.code, trace.closing.verdict.code, "{case}");
        assert_eq!(verdict.node, trace.closing.verdict.node, "{case}");
        let healthy = matches!(*code, "delivered" | "rate-limited");
        let exit = exit_code(&verdict, &findings);
        let wanted = if healthy { 0 } else { 3 };
        assert_eq!(exit, wanted, "{case}: {findings:#?}");
    }
}

#[test]
fn the_first_of_two_faults_is_the_verdict_and_the_other_is_listed() {
    for (case, first, second) in PAIRS {
        let (verdict, findings) = diagnose(&read(case));
        assert_eq!(verdict.code, *first, "{case}: {}", verdict.summary);
        let faults = findings.iter().filter(|f| f.severity == Severity::Fault);
        let codes: Vec<&str> = faults.map(|f| &*f.code).collect();
        assert_eq!(codes, [*first, *second], "{case}: {findings:#?}");
        assert_eq!(exit_code(&verdict, &findings), 3, "{case}");
    }
}

#[test]
fn nothing_is_complained_of_where_nothing_is_broken() {
    for path in HEALTHY {
        let (verdict, findings) = diagnose(&read(&format!("healthy-{path}")));
        assert_eq!(verdict.code, "delivered", "{path}: {}", verdict.summary);
        let note = |f: &Finding| f.severity == Severity::Note;
        assert!(findings.iter().all(note), "{path}: {findings:#?}");
        assert_eq!(exit_code(&verdict, &findings), 0, "{path}");
    }
}

/// A ring of one page overflowed while the tool was halted.
#[test]
fn what_was_seen_between_the_holes_is_told_and_nothing_is_made_of_them() {
    for (case, code, faults) in [
        ("losses-healthy", "delivered", 0),
        ("losses-broken", "policy-drop", 1),
    ] {
        let trace = read(case);
        assert!(trace.closing.losses.ring_buffer > 0, "{case}");
        let (verdict, findings) = diagnose(&trace);
        assert_eq!(verdict.code, code, "{case}: {}", verdict.summary);
        assert!(
            verdict.summary.contains("uncertain"),
            "{case}: {}",
            verdict.summary
        );
        let told = findings.iter().filter(|f| f.severity == Severity::Fault);
        assert_eq!(told.count(), faults, "{case}: {findings:#?}");
    }
}

/// What rests on something not having been seen is no fault where events were lost.
#[test]
fn lost_events_make_silence_uncertain() {
    for case in ["c02", "c26", "c65"] {
        let mut trace = read(case);
        trace.closing.losses.ring_buffer = 3;
        let (verdict, findings) = diagnose(&trace);
        assert!(verdict.summary.contains("uncertain"), "{case}");
        assert_eq!(exit_code(&verdict, &findings), 0, "{case}: {findings:#?}");
    }
}

/// Without the state nothing particular is claimed that only the state shows.
#[test]
fn without_state_nobody_is_accused_by_name() {
    let by_state = [
        "policy-drop",
        "host-firewall",
        "forward-policy",
        "conntrack-full",
        "accept-queue-full",
        "service-not-translated",
        "masquerade-missing",
        "address-not-assigned",
    ];
    for (case, _) in CASES {
        let mut trace = read(case);
        trace.closing.state = None;
        let (verdict, _) = diagnose(&trace);
        assert!(
            !by_state.contains(&&*verdict.code),
            "{case}: {}",
            verdict.summary
        );
    }
}
