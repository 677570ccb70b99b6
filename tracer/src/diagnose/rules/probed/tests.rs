//! Findings about names, from made-up reports.
#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

use super::*;
use crate::assemble::tests::{Bench, S, SA, VIP, tcp};
use crate::diagnose::tests::header;
use crate::diagnose::{diagnose, exit_code, locate};
use crate::trace::probe::{Kind, Layer, LayerCode};
use crate::trace::{Endpoint, Losses, Trace};

const CLIENT: &str = crate::assemble::tests::CLIENT;

fn end(addr: &str, port: u16) -> Endpoint {
    Endpoint {
        addr: addr.parse().unwrap(),
        port: Some(port),
        name: None,
    }
}

pub(in crate::diagnose) fn query(reply: Reply, detail: &str) -> Query {
    Query {
        ts: 1,
        name: "remote.default.svc.cluster.local.".to_owned(),
        kind: Kind::A,
        server: end("10.96.0.10", 53),
        client: Some(end(CLIENT, 40000)),
        reply,
        detail: detail.to_owned(),
        addrs: Vec::new(),
        took: 1_000_000,
    }
}

pub(in crate::diagnose) fn attempt(way: Way, result: Outcome) -> Attempt {
    Attempt {
        ts: 2,
        way,
        name: None,
        client: Some(end(CLIENT, 45266)),
        server: Some(end(VIP, 80)),
        unready: false,
        result,
        detail: "as it is".to_owned(),
        took: 1,
        flow: None,
        stopped: None,
    }
}

/// The trace of a bench with a report: queries, answered addresses, attempts.
pub(in crate::diagnose) fn trace(
    b: &Bench,
    queries: Vec<Query>,
    addrs: &[&str],
    attempts: Vec<Attempt>,
) -> Trace {
    let mut trace = b.fold().trace(header(), Losses::default());
    trace.closing.probe = Some(Box::new(Report {
        client: end(CLIENT, 0),
        resolver: None,
        lookup: (!queries.is_empty()).then(|| Lookup {
            name: "remote".to_owned(),
            addrs: addrs.iter().map(|a| a.parse().unwrap()).collect(),
            expected: vec![VIP.parse().unwrap()],
            queries,
        }),
        attempts,
        notes: Vec::new(),
        layer: Layer {
            code: LayerCode::None,
            summary: String::new(),
        },
    }));
    locate(&mut trace);
    trace
}

/// A trace in which a packet of the traffic was seen, with these queries.
pub(in crate::diagnose) fn looked_up(queries: Vec<Query>, addrs: &[&str]) -> Trace {
    let mut b = Bench::new();
    let syn = tcp((CLIENT, 45266), (VIP, 80), S, 1, 0);
    b.seen("worker < cali747ff840379", syn);
    b.seen("worker2 > cali1b2c3d4e5f6", syn);
    b.reply = true;
    let answer = tcp((VIP, 80), (CLIENT, 45266), SA, 9, 2);
    b.seen("worker > cali747ff840379", answer);
    trace(&b, queries, addrs, Vec::new())
}

/// Findings about names, and the exit code.
fn told(queries: Vec<Query>, addrs: &[&str]) -> (Vec<(String, Severity)>, u8) {
    let (verdict, findings) = diagnose(&looked_up(queries, addrs));
    let code = exit_code(&verdict, &findings);
    let all = findings.iter().map(|f| (f.code.to_string(), f.severity));
    let all = all.filter(|(code, _)| code.starts_with("dns-"));
    (all.collect(), code)
}

#[test]
fn each_way_in_which_a_lookup_fails() {
    let fault = |code: &str| vec![(code.to_owned(), Severity::Fault)];
    let no_name = || query(Reply::NoSuchName, "NXDOMAIN");
    assert_eq!(
        told(vec![no_name(), no_name()], &[]).0,
        fault("dns-name-wrong")
    );
    let silent = || query(Reply::NoAnswer, "no answer in 3.0 s");
    assert_eq!(
        told(vec![silent()], &[]).0,
        fault("dns-resolver-unreachable")
    );
    let broken = query(Reply::Error, "SERVFAIL");
    assert_eq!(
        told(vec![no_name(), broken], &[]).0,
        fault("dns-server-failed")
    );
    let good = || query(Reply::Addresses, VIP);
    assert_eq!(
        told(vec![good()], &["10.9.9.9"]).0,
        fault("dns-answer-mismatch")
    );
    assert_eq!(
        told(vec![no_name(), good()], &[VIP]).0,
        [("dns-search-detour".to_owned(), Severity::Note)]
    );
    assert_eq!(told(vec![good()], &[VIP]).0, []);
    // Dead first, answered by the second.
    assert_eq!(told(vec![silent(), good()], &[VIP]).0, []);
}

#[test]
fn a_failure_that_nothing_explains_is_a_fault() {
    let b = Bench::new();
    let failed = vec![attempt(Way::ClusterIp, Outcome::TimedOut)];
    let (_, findings) = diagnose(&trace(&b, Vec::new(), &[], failed));
    assert!(
        findings.iter().any(|f| f.code == "probe-failed"),
        "{findings:#?}"
    );
    let mut unready = attempt(Way::Backend, Outcome::TimedOut);
    unready.unready = true;
    let (_, findings) = diagnose(&trace(&b, Vec::new(), &[], vec![unready]));
    assert!(findings.iter().all(|f| f.code != "probe-failed"));
}

#[test]
fn a_failure_is_a_fault_whatever_was_lost() {
    let mut b = Bench::new();
    let syn = tcp((CLIENT, 45266), (VIP, 80), S, 1, 0);
    b.seen("worker < cali747ff840379", syn);
    let failed = vec![attempt(Way::ClusterIp, Outcome::TimedOut)];
    let mut trace = trace(&b, Vec::new(), &[], failed);
    trace.closing.losses.ring_buffer = 1;
    let (verdict, findings) = diagnose(&trace);
    assert_eq!(exit_code(&verdict, &findings), 3, "{findings:#?}");
}

#[test]
fn an_attempt_is_told_where_it_stopped() {
    let mut b = Bench::new();
    let syn = || tcp((CLIENT, 45266), (VIP, 80), S, 1, 0);
    b.seen("worker < cali747ff840379", syn());
    b.drop("worker", syn(), Some("FORWARD"));
    let failed = vec![attempt(Way::ClusterIp, Outcome::TimedOut)];
    let trace = trace(&b, Vec::new(), &[], failed);
    let attempt = &trace.closing.probe.as_ref().unwrap().attempts[0];
    assert_eq!(attempt.flow, Some(1));
    let place = attempt.stopped.as_ref().unwrap();
    assert_eq!((&*place.node, &*place.how), ("worker", "dropped"));
    let (verdict, findings) = diagnose(&trace);
    assert_eq!(exit_code(&verdict, &findings), 3);
    assert!(
        findings.iter().all(|f| f.code != "probe-failed"),
        "{findings:#?}"
    );
    // The same of a backend that is not ready.
    let mut trace = trace;
    trace.closing.probe.as_mut().unwrap().attempts[0].unready = true;
    let (verdict, findings) = diagnose(&trace);
    assert_eq!(exit_code(&verdict, &findings), 0, "{findings:#?}");
}
