//! `service-not-translated`: a Service's address went out as it was.

use std::net::IpAddr;

use super::tell::tale;
use crate::diagnose::stop::{How, Stop};
use crate::diagnose::{Case, Found, Page, Rule, sentence};
use crate::rules::{Ruleset, native};
use crate::trace::{Direction, Role, StepKind};

pub(super) struct ServiceNotTranslated;

static PAGE: Page = Page {
    code: "service-not-translated",
    title: "no DNAT for a Service's address",
    meaning: "A Service's address exists only in the nodes' translation rules. The packet kept it: no rule translated it, and the network outside knows no such address. Either the rules are gone (a firewall reload flushed the nat table), or kube-proxy has not written them yet, or the Service has no such port, or a rule is there and was not reached.",
    told: "The packet left the node, or was refused by it, still addressed to the Service, and no DNAT step was seen. Which of the causes it is comes from the node's real rules.",
    ruled_out: "A DNAT step.",
    next: &[
        "iptables-save -t nat -c | grep SERVICE",
        "kubectl -n kube-system get pods -l k8s-app=kube-proxy -o wide",
        "kubectl get service -A | grep SERVICE",
    ],
};

impl Rule for ServiceNotTranslated {
    fn page(&self) -> &'static Page {
        &PAGE
    }

    fn explain(&self, case: &Case<'_>, stop: &Stop<'_>) -> Option<Found> {
        let steps = &stop.packet.steps;
        let translated = steps.iter().any(|s| s.kind == StepKind::Dnat);
        if stop.packet.direction != Direction::Request
            || !stop.opens()
            || translated
            || stop.how == How::Unanswered && stop.last?.role == Some(Role::PodVeth)
            || stop.by_netfilter() && stop.how != How::Rejected
            || !beyond_translation(stop)
        {
            return None;
        }
        let step = stop.place()?;
        let (addr, port) = (step.dst.addr, step.dst.port);
        let cluster = case.cluster.as_ref()?;
        let service = cluster.services_at(addr, None).into_iter().next()?.0;
        let node = stop.last.map_or(stop.node(), |s| &*s.node).to_owned();
        let known_port = cluster.services_at(addr, port);
        let (why, lines) = if known_port.is_empty() {
            let ports: Vec<String> = service.ports.iter().map(|p| p.port.to_string()).collect();
            (
                format!(
                    "Service {} has no port {}, only {}",
                    service.full_name(),
                    port.unwrap_or(0),
                    ports.join(", ")
                ),
                Vec::new(),
            )
        } else {
            let proto = if stop.flow.proto == "udp" { 17 } else { 6 };
            by_others(case, &node, addr, (proto, port.unwrap_or(0)))
                .unwrap_or_else(|| why(case.rules(&node), &node, addr))
        };
        let left = stop.last.filter(|s| s.kind == StepKind::Egress);
        let out = left.map_or_else(String::new, |s| format!(", and it went out by {}", s.iface));
        let cause = format!(
            "it still carries the address of Service {}{out}: {why}",
            service.full_name()
        );
        let mut told = tale(case, stop, PAGE.code, &cause)
            .part(&format!("{addr}:{}", port.unwrap_or(0)))
            .unsure();
        for line in lines {
            told = told.shows(line);
        }
        if let Some(last) = stop.last {
            told = told.at(last);
        }
        told.check(&format!("iptables-save -t nat -c | grep -w {addr}"))
            .ask("kubectl -n kube-system get pods -l k8s-app=kube-proxy -o wide")
            .ask(format!(
                "kubectl get service -n {} {}",
                sentence::word(&service.namespace),
                sentence::word(&service.name)
            ))
            .done()
    }
}

/// Whether it got past the place where it should have been translated: sent
/// on, refused, or without a way because it still had the Service's address.
fn beyond_translation(stop: &Stop<'_>) -> bool {
    match stop.how {
        How::Dropped => stop.unrouted() || stop.last.is_some_and(|s| s.kind == StepKind::Egress),
        How::Vanished => stop.last.is_some_and(|s| s.kind == StepKind::Egress),
        How::Rejected | How::Unanswered | How::Lost => true,
    }
}

/// The same where kube-proxy uses nftables or IPVS, or where others may: what
/// iptables lack is no sign then.
fn by_others(
    case: &Case<'_>,
    node: &str,
    addr: IpAddr,
    (proto, port): (u8, u16),
) -> Option<(String, Vec<String>)> {
    if let Some(native) = case.native(node, addr.is_ipv6()) {
        return Some(match native.service(addr, proto, port) {
            Some(entry) => (
                format!(
                    "kube-proxy's nftables on {node} have an entry for {addr} that was not hit"
                ),
                vec![format!("entry on {node}: {entry}")],
            ),
            None => (
                format!(
                    "kube-proxy's nftables on {node} have no entry for {addr}:{port} (not synced)"
                ),
                Vec::new(),
            ),
        });
    }
    let read = case.node(node)?;
    let server = |line: &str| line.starts_with("TCP ") || line.starts_with("UDP ");
    let ipvs = read.ipvs.as_deref().is_some_and(|t| t.lines().any(server));
    let hooks = ["PREROUTING", "OUTPUT"];
    let others = hooks.map(|hook| native::translates(read.nft.as_deref(), hook));
    let whose = if ipvs {
        "IPVS"
    } else if others.contains(&true) {
        "rules of nftables"
    } else {
        return None;
    };
    Some((
        format!("no DNAT was seen on {node}, where {whose} may translate, which are not evaluated"),
        Vec::new(),
    ))
}

/// Why the node's rules did not translate, with the rules that speak of it.
fn why(rules: Option<&Ruleset>, node: &str, addr: IpAddr) -> (String, Vec<String>) {
    let Some(rules) = rules else {
        return (
            format!("no DNAT was seen on {node}, whose rules were not read"),
            Vec::new(),
        );
    };
    let nat = rules.tables().iter().filter(|t| &*t.name == "nat");
    let mut services = false;
    let mut reached = false;
    let mut lines = Vec::new();
    for chain in nat.flat_map(|t| t.chains.values()) {
        services |= &*chain.name == "KUBE-SERVICES" && !chain.rules.is_empty();
        let built_in = matches!(&*chain.name, "PREROUTING" | "OUTPUT");
        for rule in &chain.rules {
            reached |= built_in && rule.text.contains("KUBE-SERVICES");
            let words: Vec<&str> = rule.text.split_whitespace().collect();
            let wanted = [
                format!("{addr}/32"),
                format!("{addr}/128"),
                addr.to_string(),
            ];
            let names = words
                .windows(2)
                .any(|w| w[0] == "-d" && wanted.iter().any(|a| a == w[1]));
            if names {
                let hits = rule
                    .counters
                    .map_or_else(String::new, |(n, _)| format!(" (counted {n} packets)"));
                lines.push(format!("rule on {node}: {}{hits}", rule.text));
            }
        }
    }
    let text = if !services {
        format!(
            "the nat table of {node} has no rules of kube-proxy (flushed, or kube-proxy does not run)"
        )
    } else if !reached {
        format!("nothing in PREROUTING of {node}'s nat table leads to kube-proxy's rules")
    } else if lines.is_empty() {
        format!("kube-proxy on {node} has no rule for {addr} (not synced)")
    } else {
        format!("{node} has a rule for {addr} that was not hit")
    };
    lines.truncate(4);
    (text, lines)
}
