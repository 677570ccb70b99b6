//! What only `tracer probe` finds.

use super::{Example, near};
use crate::assemble::tests::{Bench, VIP};
use crate::diagnose::rules::probed::tests::{attempt, looked_up, query, trace};
use crate::trace::Trace;
use crate::trace::probe::{Outcome, Reply, Way};

fn answered(trace: &mut Trace) {
    let lookup = trace.closing.probe.as_mut().unwrap().lookup.as_mut();
    let lookup = lookup.unwrap();
    lookup.queries.push(query(Reply::Addresses, VIP));
    lookup.addrs = vec![VIP.parse().unwrap()];
}

pub(super) static EXAMPLES: &[Example] = &[
    Example {
        code: "dns-resolver-unreachable",
        speaks: || looked_up(vec![query(Reply::NoAnswer, "no answer in 3.0 s")], &[]),
        near: &[
            near("the second server answered", "delivered", answered),
            near(
                "it answered that there is no such name",
                "dns-name-wrong",
                |t| {
                    let lookup = t.closing.probe.as_mut().unwrap().lookup.as_mut();
                    lookup
                        .unwrap()
                        .queries
                        .push(query(Reply::NoSuchName, "NXDOMAIN"));
                },
            ),
        ],
    },
    Example {
        code: "dns-name-wrong",
        speaks: || looked_up(vec![query(Reply::NoSuchName, "NXDOMAIN")], &[]),
        near: &[near(
            "a name of the search list exists",
            "delivered",
            answered,
        )],
    },
    Example {
        code: "dns-server-failed",
        speaks: || looked_up(vec![query(Reply::Error, "SERVFAIL")], &[]),
        near: &[near("the second server answered", "delivered", answered)],
    },
    Example {
        code: "dns-answer-mismatch",
        speaks: || looked_up(vec![query(Reply::Addresses, "10.9.9.9")], &["10.9.9.9"]),
        near: &[
            near("it is the Service's address", "delivered", |t| {
                *t = looked_up(vec![query(Reply::Addresses, VIP)], &[VIP]);
            }),
            near("no Service of that name is known", "delivered", |t| {
                let lookup = t.closing.probe.as_mut().unwrap().lookup.as_mut();
                lookup.unwrap().expected.clear();
            }),
        ],
    },
    Example {
        code: "dns-search-detour",
        speaks: || {
            let queries = vec![
                query(Reply::NoSuchName, "NXDOMAIN"),
                query(Reply::Addresses, VIP),
            ];
            looked_up(queries, &[VIP])
        },
        near: &[near("the first query was answered", "delivered", |t| {
            let lookup = t.closing.probe.as_mut().unwrap().lookup.as_mut();
            lookup.unwrap().queries.remove(0);
        })],
    },
    Example {
        code: "probe-failed",
        speaks: || {
            let failed = vec![attempt(Way::ClusterIp, Outcome::TimedOut)];
            trace(&Bench::new(), Vec::new(), &[], failed)
        },
        near: &[
            near("it connected", "no-traffic", |t| {
                let report = t.closing.probe.as_mut().unwrap();
                report.attempts[0].result = Outcome::Connected;
            }),
            near(
                "the backend is not ready, and nobody is sent there",
                "no-traffic",
                |t| {
                    let report = t.closing.probe.as_mut().unwrap();
                    report.attempts[0].unready = true;
                },
            ),
        ],
    },
];
