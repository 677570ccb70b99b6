//! `stale-backend`: translated to an address that no endpoint has any more.

use std::net::IpAddr;

use super::tell::tale;
use crate::diagnose::case::has_pod;
use crate::diagnose::stop::{How, Stop};
use crate::diagnose::{Case, Found, Page, Rule, sentence};
use crate::rules::native;
use crate::rules::route::{self, RouteKind};
use crate::trace::{Direction, Flow, StepKind};

pub(super) struct StaleBackend;

static PAGE: Page = Page {
    code: "stale-backend",
    title: "translated to a pod that is gone",
    meaning: "The Service's DNAT leads to an address that belongs to no pod, or to none of the Service's endpoints. Either kube-proxy's rules on the node are old, or an old conntrack entry keeps a flow (often UDP from a fixed port) on a translation that new flows would not get, or session affinity pins the client to it.",
    told: "The request was DNATed to an address that the EndpointSlices do not list, or that the node which owns its block has no pod for, and it went unanswered there. An address that some pod has is blamed only if the packet came there.",
    ruled_out: "The EndpointSlices list the address, ready or not, or a pod has it and the packet ended on the way.",
    next: &[
        "kubectl get endpointslices -n NS -l kubernetes.io/service-name=NAME",
        "conntrack -L -d SERVICE",
        "conntrack -D -d SERVICE -p udp",
        "kubectl -n kube-system logs -l k8s-app=kube-proxy --tail=100",
    ],
};

impl Rule for StaleBackend {
    fn page(&self) -> &'static Page {
        &PAGE
    }

    fn explain(&self, case: &Case<'_>, stop: &Stop<'_>) -> Option<Found> {
        if stop.packet.direction != Direction::Request || stop.by_netfilter() {
            return None;
        }
        let backend = stop.flow.backend.as_ref()?;
        let (addr, port) = (backend.addr, backend.port?);
        let listed = listed(case, stop.flow, addr, port);
        let gone = gone(case, addr);
        // A pod that is there and refuses is another story.
        let in_vain = stop.how != How::Rejected
            || stop
                .last
                .is_none_or(|s| s.tunnel.is_some() || s.kind == StepKind::Ingress);
        // One that lives cannot be why the packet ended on the way to it.
        let arrived = stop.how == How::Unanswered || stop.how == How::Rejected && !in_vain;
        let unlisted = listed == Some(false) && (arrived || !alive(case, addr));
        if !(unlisted || gone.is_some() && in_vain) {
            return None;
        }
        Some(told(case, stop, (addr, port), listed, gone.as_deref()))
    }
}

/// Whether the cluster lists the address as an endpoint; none where it is not
/// known, and where it lists it as not ready: those are served when there are no
/// others, and while they end.
fn listed(case: &Case<'_>, flow: &Flow, addr: IpAddr, port: u16) -> Option<bool> {
    let (service, service_port) = case.service(flow.server.addr, flow.server.port)?;
    if !case.cluster.as_ref()?.knows_endpoints() {
        return None;
    }
    let backends = case.backends(service, service_port);
    let this = backends.iter().find(|b| b.addr == addr && b.port == port);
    match this {
        Some(backend) => backend.ready.then_some(true),
        None => Some(false),
    }
}

/// Whether some node has a pod with this address behind one of its interfaces,
/// or the cluster says that a pod has it.
fn alive(case: &Case<'_>, addr: IpAddr) -> bool {
    case.nodes().any(|n| has_pod(n, addr)) || case.is_pod(addr) == Some(true)
}

/// Why nobody has the address, if nobody has.
fn gone(case: &Case<'_>, addr: IpAddr) -> Option<String> {
    if alive(case, addr) {
        return None;
    }
    let blackhole = case
        .nodes()
        .find(|n| route::lookup(n, addr, None, None, 0).kind == RouteKind::Blackhole);
    if let Some(node) = blackhole {
        return Some(format!(
            "{} owns the block of {addr} and has no pod with it (blackhole route)",
            node.name
        ));
    }
    (case.is_pod(addr) == Some(false) && case.owner(addr).is_none())
        .then(|| format!("no pod has {addr}"))
}

fn told(
    case: &Case<'_>,
    stop: &Stop<'_>,
    (addr, port): (IpAddr, u16),
    listed: Option<bool>,
    gone: Option<&str>,
) -> Found {
    let server = &stop.flow.server;
    let name = sentence::who(server);
    let translated = case
        .packets(stop.flow)
        .flat_map(|p| &p.steps)
        .find(|s| s.kind == StepKind::Dnat);
    let node = translated.map_or("", |s| &*s.node);
    let fresh = case
        .packets(stop.flow)
        .flat_map(|p| &p.steps)
        .any(|s| s.kind == StepKind::ConntrackNew);
    let rules = case.rules(node);
    let mut now: Vec<String> = rules.map_or_else(Vec::new, |r| targets(r, addr, port));
    let native = case.native(node, addr.is_ipv6());
    now.extend(
        native
            .and_then(|n| n.to_endpoint(addr, port))
            .map(String::from),
    );
    let others = case.node(node).and_then(|n| n.nft.as_deref());
    let known = native.is_some() || rules.is_some() && !native::translates(others, "PREROUTING");
    let pinned = rules.is_some_and(|r| pinned(r, addr, port));
    // Only a rule makes a new entry; where the rules know nothing of the
    // address, the entry is older than they are.
    let by = if pinned {
        "by a session-affinity rule (recent)"
    } else if now.is_empty() && known || !fresh && stop.flow.proto != "tcp" {
        "by an old conntrack entry"
    } else {
        "by kube-proxy's rules"
    };
    let why = match gone {
        Some(gone) => gone.to_owned(),
        None => format!("the Service has no endpoint {addr}:{port}"),
    };
    let cause = format!("{node} sends {name} to {addr}:{port} {by}, but {why}");
    let mut out = tale(case, stop, PAGE.code, &cause);
    for line in now.iter().take(3) {
        out = out.shows(format!("rule on {node}: {line}"));
    }
    if listed == Some(false) {
        out = out.shows(format!(
            "the EndpointSlices do not list {addr}:{port} as ready"
        ));
    }
    if let Some((service, service_port)) = case.service(server.addr, server.port) {
        let others: Vec<String> = case
            .backends(service, service_port)
            .iter()
            .filter(|b| b.ready)
            .map(|b| format!("{}:{}", b.addr, b.port))
            .collect();
        if !others.is_empty() {
            out = out.shows(format!("ready endpoints: {}", others.join(", ")));
        }
        out = out.ask(format!(
            "kubectl get endpointslices -n {} -l kubernetes.io/service-name={}",
            sentence::word(&service.namespace),
            sentence::word(&service.name)
        ));
    }
    out.part(&format!("{addr}:{port}"))
        .check_on(node, &format!("conntrack -L -d {}", server.addr))
        .check_on(node, &format!("iptables-save -t nat | grep {addr}"))
        .finding()
}

/// The node's nat rules that translate to this endpoint.
fn targets(rules: &crate::rules::Ruleset, addr: IpAddr, port: u16) -> Vec<String> {
    let wanted = format!("{}", std::net::SocketAddr::new(addr, port));
    rules
        .tables()
        .iter()
        .filter(|t| &*t.name == "nat")
        .flat_map(|t| t.chains.values())
        .flat_map(|c| &c.rules)
        .filter(|r| matches!(&r.target, crate::rules::Target::Dnat(t) if t.to_string() == wanted))
        .map(|r| r.text.to_string())
        .collect()
}

/// Whether a rule of the `recent` match leads to the chain of this endpoint.
fn pinned(rules: &crate::rules::Ruleset, addr: IpAddr, port: u16) -> bool {
    let nat = || rules.tables().iter().filter(|t| &*t.name == "nat");
    let wanted = format!("{}", std::net::SocketAddr::new(addr, port));
    let leads = |r: &crate::rules::Rule| matches!(&r.target, crate::rules::Target::Dnat(t) if t.to_string() == wanted);
    let chains: Vec<&str> = nat()
        .flat_map(|t| t.chains.values())
        .filter(|c| c.rules.iter().any(leads))
        .map(|c| &*c.name)
        .collect();
    nat()
        .flat_map(|t| t.chains.values())
        .flat_map(|c| &c.rules)
        .any(|r| r.text.contains("--rcheck") && chains.iter().any(|c| r.text.ends_with(c)))
}
