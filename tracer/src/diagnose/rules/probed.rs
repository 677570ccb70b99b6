//! The findings about what `tracer probe` did itself. Tracing records no
//! payload, so what a resolver said is known only to who asked.

use std::borrow::Cow;

use crate::diagnose::sentence::word;
use crate::diagnose::{Case, Found, Page, probed};
use crate::output::text::endpoint;
use crate::trace::probe::{Attempt, Lookup, Outcome, Query, Reply, Report, Way};
use crate::trace::{Finding, Severity};

/// In the order in which a look-up fails.
pub(in crate::diagnose) static PAGES: &[Page] = &[
    Page {
        code: "dns-resolver-unreachable",
        title: "the pod's resolver does not answer",
        meaning: "Queries to the nameserver of the pod's resolv.conf got no answer in time. The name was never the problem; the way to the DNS Service or its pods is.",
        told: "No query of the probe was answered by any nameserver that the pod is set up with.",
        ruled_out: "Any answer, even 'no such name'.",
        next: &[
            "kubectl -n kube-system get pods -l k8s-app=kube-dns -o wide",
            "tracer follow --pod POD --dst svc/kube-system/kube-dns:53 --proto udp",
        ],
    },
    Page {
        code: "dns-name-wrong",
        title: "the name does not exist",
        meaning: "The resolver answered that there is no such name, for every name that the search list makes of it: a typing error, another namespace, or a Service that does not exist.",
        told: "Every query was answered with NXDOMAIN or without addresses.",
        ruled_out: "An answer with an address.",
        next: &[
            "kubectl get services -A | grep NAME",
            "use NAME.NAMESPACE.svc.cluster.local",
        ],
    },
    Page {
        code: "dns-answer-mismatch",
        title: "the answer is not the Service's address",
        meaning: "The name was resolved to an address that is neither the Service's ClusterIP nor, for a headless Service, one of its endpoints: an old record in a cache, a stub domain, or another cluster's DNS.",
        told: "The inventory knows a Service of that name, and the answer is none of its addresses.",
        ruled_out: "The answer is the ClusterIP.",
        next: &[
            "kubectl get service -n NS NAME -o jsonpath='{.spec.clusterIPs}'",
            "kubectl -n kube-system get configmap coredns -o yaml",
        ],
    },
    Page {
        code: "dns-search-detour",
        title: "the name was found on a detour",
        meaning: "With ndots:5 a name with fewer than five dots is first tried with every entry of the search list. Each detour costs two queries. Harmless, but slow where the resolver is far or races.",
        told: "The name was answered, after other queries for it were answered with NXDOMAIN.",
        ruled_out: "The first query was answered.",
        next: &["write the name with a final dot, or set dnsConfig.options ndots in the pod"],
    },
    Page {
        code: "dns-server-failed",
        title: "the resolver answers that it failed",
        meaning: "The resolver was reached and answered SERVFAIL, REFUSED or the like: it could not ask its upstream server or the API server, or it is not set up for this name.",
        told: "Queries were answered, none with addresses, at least one with an error code other than NXDOMAIN.",
        ruled_out: "An answer with an address.",
        next: &[
            "kubectl -n kube-system logs -l k8s-app=kube-dns --tail=50",
            "kubectl -n kube-system get configmap coredns -o yaml",
        ],
    },
    Page {
        code: "probe-failed",
        title: "a connection of the probe failed",
        meaning: "The probe could not connect, and what was seen of its packets does not tell why: they were not seen at all, events were lost, or the client's own system refused to send.",
        told: "A connection failed, and there is no other fault among the findings.",
        ruled_out: "Any finding that is a fault.",
        next: &["tracer probe --deep ... -w FILE", "tracer doctor"],
    },
];

/// Nobody is sent to a backend that is not ready, so what is wrong there is no
/// fault of the Service.
pub(in crate::diagnose) fn excuse(case: &Case<'_>, found: &mut [Found]) {
    let Some(report) = case.trace.closing.probe.as_deref() else {
        return;
    };
    let unready = report.attempts.iter().filter(|a| a.unready);
    let flows: Vec<u64> = unready.filter_map(|a| a.flow).collect();
    let packets = case.trace.packets.iter();
    let is_theirs = |id: u64| {
        packets
            .clone()
            .any(|p| p.id == id && flows.contains(&p.flow))
    };
    for f in found {
        if f.finding.severity == Severity::Fault && f.packet.is_some_and(is_theirs) {
            f.finding.severity = Severity::Warning;
        }
    }
}

/// What the probe's own results say. `found` is what the trace says: a fault in
/// it that stopped a query is the cause, and the silence only its effect.
pub(in crate::diagnose) fn probed(case: &Case<'_>, found: &[Found]) -> Vec<Found> {
    let Some(report) = case.trace.closing.probe.as_deref() else {
        return Vec::new();
    };
    let mut told: Vec<Found> = Vec::new();
    if let Some(lookup) = &report.lookup {
        told.extend(name(case, report, lookup, found));
    }
    let fault = |f: &Found| f.finding.severity == Severity::Fault;
    if !found.iter().chain(&told).any(fault) {
        told.extend(failed(report));
    }
    told
}

fn name(case: &Case<'_>, report: &Report, lookup: &Lookup, found: &[Found]) -> Option<Found> {
    let first = lookup.queries.first()?;
    let answered = || lookup.queries.iter().filter(|q| q.reply.is_answer());
    if lookup.is_wrong() {
        return Some(mismatch(lookup, first));
    }
    if !lookup.addrs.is_empty() {
        return detour(lookup, first);
    }
    // The run ended before anything was known.
    if report
        .attempts
        .iter()
        .any(|a| a.way == Way::Name && a.result == Outcome::NotTried)
    {
        return None;
    }
    if answered().next().is_none() {
        let mut told = unreachable(case, lookup, first, found);
        if let Some(("pod", pod)) = report
            .client
            .name
            .as_deref()
            .and_then(|n| n.split_once('/'))
        {
            let pod = word(pod);
            for next in &mut told.finding.next {
                *next = next.replace(" POD ", &format!(" {pod} "));
            }
        }
        return Some(told);
    }
    let name = word(&lookup.name);
    if let Some(error) = answered().find(|q| q.reply == Reply::Error) {
        let summary = format!(
            "{} answers {} to {name}",
            endpoint(&error.server),
            error.detail
        );
        return Some(tell(
            "dns-server-failed",
            Severity::Fault,
            first,
            summary,
            evidence(lookup),
        ));
    }
    let says = if answered().any(|q| q.reply == Reply::NoAddress) {
        "has no address"
    } else {
        "does not exist (NXDOMAIN)"
    };
    let tried = answered().count();
    let queries = if tried == 1 { "query" } else { "queries" };
    let summary = format!(
        "the name {name} {says}, says {} to {tried} {queries} for it",
        endpoint(&first.server)
    );
    let mut told = tell(
        "dns-name-wrong",
        Severity::Fault,
        first,
        summary,
        evidence(lookup),
    );
    let head = name.split('.').next().unwrap_or_default().to_owned();
    told.finding.next = vec![
        format!("kubectl get services -A | grep {head}"),
        format!("kubectl get pods -A | grep {head}"),
    ];
    Some(told)
}

fn mismatch(lookup: &Lookup, first: &Query) -> Found {
    let list = |all: &[std::net::IpAddr]| {
        let all: Vec<String> = all.iter().map(ToString::to_string).collect();
        all.join(", ")
    };
    let summary = format!(
        "the name {} was resolved to {}, but its Service has {}",
        word(&lookup.name),
        list(&lookup.addrs),
        list(&lookup.expected)
    );
    tell(
        "dns-answer-mismatch",
        Severity::Fault,
        first,
        summary,
        evidence(lookup),
    )
}

fn detour(lookup: &Lookup, first: &Query) -> Option<Found> {
    let missed = lookup
        .queries
        .iter()
        .filter(|q| q.reply == Reply::NoSuchName);
    let missed = missed.count();
    if missed == 0 {
        return None;
    }
    let queries = if missed == 1 { "query" } else { "queries" };
    let summary = format!(
        "{missed} {queries} for {} were answered with NXDOMAIN before one had an address",
        word(&lookup.name)
    );
    let summary = if missed == 1 {
        summary.replace(" were ", " was ")
    } else {
        summary
    };
    Some(tell(
        "dns-search-detour",
        Severity::Note,
        first,
        summary,
        evidence(lookup),
    ))
}

fn unreachable(case: &Case<'_>, lookup: &Lookup, first: &Query, found: &[Found]) -> Found {
    let mut servers: Vec<String> = lookup.queries.iter().map(|q| endpoint(&q.server)).collect();
    servers.dedup();
    servers.truncate(3);
    let summary = format!(
        "no answer from {} to the look-up of {} ({})",
        servers.join(", "),
        word(&lookup.name),
        first.detail
    );
    let flows: Vec<u64> = lookup
        .queries
        .iter()
        .filter_map(|q| probed::flow(&case.trace.flows, q.client.as_ref(), Some(&q.server)))
        .map(|f| f.id)
        .collect();
    let of_query = |packet: Option<u64>| {
        let mut packets = case.trace.packets.iter();
        packets.any(|p| Some(p.id) == packet && flows.contains(&p.flow))
    };
    // That nothing came back is what this says already.
    let explained = found.iter().any(|f| {
        f.finding.severity == Severity::Fault && f.finding.code != "no-reply" && of_query(f.packet)
    });
    let severity = if explained {
        Severity::Warning
    } else {
        Severity::Fault
    };
    tell(
        "dns-resolver-unreachable",
        severity,
        first,
        summary,
        evidence(lookup),
    )
}

fn evidence(lookup: &Lookup) -> Vec<String> {
    let each = lookup.queries.iter().map(|q| {
        let ms = q.took as f64 / 1e6;
        format!(
            "{} {} at {}: {} ({ms:.1} ms)",
            q.kind, q.name, q.server.addr, q.detail
        )
    });
    each.take(8).collect()
}

fn tell(
    code: &'static str,
    severity: Severity,
    first: &Query,
    summary: String,
    evidence: Vec<String>,
) -> Found {
    let page = PAGES.iter().find(|p| p.code == code);
    let next = page.map_or(&[][..], |p| p.next);
    Found {
        // The look-up comes first on the path.
        ts: first.ts,
        node: None,
        iface: None,
        packet: None,
        part: String::new(),
        unsure: false,
        finding: Finding {
            code: Cow::Borrowed(code),
            severity,
            summary,
            evidence,
            next: next.iter().map(ToString::to_string).collect(),
        },
    }
}

/// A failure that nothing else explains is a fault all the same.
fn failed(report: &Report) -> Option<Found> {
    let bad = |a: &&Attempt| a.result.is_bad() && !a.unready;
    let first = report.attempts.iter().find(bad)?;
    let to = first
        .server
        .as_ref()
        .map_or_else(|| first.name.clone().unwrap_or_default(), endpoint);
    let failed = report.attempts.iter().filter(bad);
    Some(Found {
        ts: first.ts,
        node: None,
        iface: None,
        packet: None,
        part: String::new(),
        unsure: false,
        finding: Finding {
            code: Cow::Borrowed("probe-failed"),
            severity: Severity::Fault,
            summary: format!(
                "the connection to {to} failed ({}), and the trace does not tell why",
                first.detail
            ),
            evidence: failed
                .filter_map(|a| Some(format!("{}: {}", endpoint(a.server.as_ref()?), a.detail)))
                .collect(),
            next: vec!["tracer doctor".to_owned()],
        },
    })
}

#[cfg(test)]
pub(in crate::diagnose) mod tests;
