//! `policy-drop`: a network policy denied the packet.

use super::tell::tale;
use crate::diagnose::netfilter::{Class, Judged, judged, policies_for, policy_of};
use crate::diagnose::stop::Stop;
use crate::diagnose::{Case, Found, Page, Rule, sentence};
use crate::rules::names;
use crate::trace::StepKind;

pub(super) struct PolicyDrop;

static PAGE: Page = Page {
    code: "policy-drop",
    title: "a network policy denied it",
    meaning: "A NetworkPolicy selects the pod, and none of its rules allows this packet. Policies are judged after DNAT, on the pod's own node, with the addresses the packet has there: the pod's port and not the Service's, and a node's address where the source was masqueraded or the client is on the host network.",
    told: "Netfilter dropped the packet, and walking the node's real rules for it ends in a chain of the policy engine (cali-tw-, cali-fw-, KUBE-POD-FW-) whose deciding rule has counted packets.",
    ruled_out: "The walk passes all policy chains, or the deciding rule's counter is zero.",
    next: &[
        "kubectl get networkpolicy -n NAMESPACE -o yaml",
        "kubectl get pod -n NAMESPACE --show-labels",
        "iptables-save -c | grep -e CHAIN",
        "ipset list SET",
    ],
};

impl Rule for PolicyDrop {
    fn page(&self) -> &'static Page {
        &PAGE
    }

    fn explain(&self, case: &Case<'_>, stop: &Stop<'_>) -> Option<Found> {
        let judged = judged(case, stop)?;
        if judged.class() != Class::Policy {
            return None;
        }
        Some(found(case, stop, &judged))
    }
}

/// Whether the chain guards what goes to a pod, else what comes from one.
fn ingress(judged: &Judged) -> bool {
    let to = ["cali-tw-", "cali-pi-", "cali-pri-"];
    let from = ["cali-fw-", "cali-po-", "cali-pro-"];
    let visited = judged.decision.path.iter().rev();
    let sides = visited.filter_map(|v| {
        let begins = |all: &[&str]| all.iter().any(|p| v.chain.starts_with(p));
        if begins(&to) {
            Some(true)
        } else if begins(&from) {
            Some(false)
        } else {
            None
        }
    });
    sides.into_iter().next().unwrap_or(true)
}

fn found(case: &Case<'_>, stop: &Stop<'_>, judged: &Judged) -> Found {
    let step = stop.end.or(stop.last).unwrap_or(&stop.packet.steps[0]);
    let (src, dst) = (&step.src, &step.dst);
    let ingress = ingress(judged);
    let pod = if ingress { dst } else { src };
    let side = if ingress { "ingress" } else { "egress" };
    let named = policy_of(case, judged);
    let suspects = policies_for(case, pod.addr, ingress);
    let policies = if named.is_empty() { &suspects } else { &named };
    let dns = step.dst.port == Some(53);
    let what = if dns { "the DNS query" } else { "it" };
    let of = if policies.is_empty() {
        format!("{side} policy")
    } else {
        format!("{side} policy {}", policies.join(", "))
    };
    let port = dst.port.map_or_else(String::new, |p| format!(" port {p}"));
    let cause = format!(
        "{of} of {} allows nothing that matches {what} ({} to {}{port}); {} decided",
        sentence::who(pod),
        src.addr,
        dst.addr,
        judged.place()
    );
    let mut told = tale(case, stop, PAGE.code, &cause)
        .part(judged.chain())
        .also(judged.rule_line());
    for line in judged.near_misses() {
        told = told.shows(line);
    }
    let source = |kind: StepKind| stop.packet.steps.iter().find(|s| s.kind == kind);
    // Seen as a rewrite, or only by the headers at the end.
    let asked = &stop.packet.steps[0].dst;
    if !ingress && !dns && (asked.addr, asked.port) != (dst.addr, dst.port) {
        told = told.shows(format!(
            "the policy saw the packet after DNAT, as {}:{}, not as {}:{}; policies have to name the pod's port",
            dst.addr,
            dst.port.unwrap_or(0),
            asked.addr,
            asked.port.unwrap_or(0)
        ));
    }
    let translated = source(StepKind::Masquerade).or(source(StepKind::Snat));
    if let Some(rewrite) = translated
        .and_then(|s| s.rewrite.as_ref())
        .filter(|_| ingress)
    {
        told = told.shows(format!(
            "the source was {} and had become {} on {} before the policy saw it",
            rewrite.from.addr,
            rewrite.to.addr,
            translated.map_or("", |s| &*s.node)
        ));
    } else if ingress && case.is_pod(src.addr) == Some(false) && case.owner(src.addr).is_some() {
        told = told.shows(format!(
            "{} is an address of node {}, as host-network processes have; no podSelector matches it",
            src.addr,
            case.owner(src.addr).unwrap_or_default()
        ));
    }
    if !named.is_empty() {
        told = told.shows(format!("the chain belongs to policy {}", named.join(", ")));
    } else if !suspects.is_empty() {
        told = told.shows(format!(
            "worked out: {} selects the pod",
            suspects.join(", ")
        ));
    }
    let logged =
        stop.packet.steps.iter().filter(|s| {
            s.kind == StepKind::Policy && Some(&s.node) == stop.end.map(|end| &end.node)
        });
    for prefix in logged.filter_map(|s| s.rule.as_ref()?.policy.as_deref()) {
        let told_by = names::logged(prefix).map_or_else(String::new, |l| format!(": {l}"));
        told = told.shows(format!("a rule logged it as {prefix}{told_by}"));
    }
    if let Some((ns, name)) = sentence::named(pod, "pod") {
        let (ns, name) = (sentence::word(ns), sentence::word(name));
        told = told
            .ask(format!("kubectl get networkpolicy -n {ns} -o yaml"))
            .ask(format!("kubectl get pod -n {ns} {name} --show-labels"));
    }
    told.check(&format!(
        "iptables-save -c | grep -e {}",
        sentence::word(judged.chain())
    ))
    .finding()
}
