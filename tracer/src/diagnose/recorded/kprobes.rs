//! Recordings of the same broken laboratories on kernel 6.1 with kprobes, where
//! they show more: the hook that dropped, who sent an error, drop reasons; and
//! IPVS, which the other kernel has not.

use super::read;
use crate::diagnose::diagnose;

/// Recording, the verdict's code and node, and a line of evidence that only this kernel gave.
const CASES: &[(&str, &str, &str, &str)] = &[
    ("c01", "no-endpoints", "worker", "in FORWARD"),
    ("c16", "no-endpoints", "worker", "IPVS has 1 destinations"),
    (
        "c19",
        "conntrack-full",
        "worker",
        "in PREROUTING, by nf_hook_slow",
    ),
    ("c22", "conntrack-invalid", "worker", "NO_SOCKET"),
    ("c44", "source-spoofed", "worker", "in PREROUTING"),
    (
        "c55",
        "route-localnet",
        "worker",
        "in OUTPUT, by nf_hook_slow",
    ),
    ("c58", "policy-drop", "worker2", "in FORWARD"),
];

#[test]
fn every_recording_with_kprobes_is_judged_as_it_was_live() {
    for (case, code, node, evidence) in CASES {
        let trace = read(&format!("6.1/{case}"));
        let (verdict, findings) = diagnose(&trace);
        assert_eq!(verdict.code, *code, "{case}: {}", verdict.summary);
        assert_eq!(verdict.node.as_deref(), Some(*node), "{case}");
        assert_eq!(trace.closing.verdict.code, verdict.code, "{case}");
        let of_it = findings.iter().filter(|f| f.code == verdict.code);
        let lines: Vec<&String> = of_it.flat_map(|f| &f.evidence).collect();
        assert!(
            lines.iter().any(|line| line.contains(evidence)),
            "{case}: no {evidence:?} in {lines:?}"
        );
    }
}
