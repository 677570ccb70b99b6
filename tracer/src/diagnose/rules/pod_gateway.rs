//! `pod-gateway-unreachable`: no ARP between the pod and its node.

use super::tell::tale;
use crate::diagnose::stop::{How, Stop};
use crate::diagnose::{Case, Found, Page, Rule, sentence};
use crate::rules::route;
use crate::trace::{Role, Step};

pub(super) struct PodGateway;

static PAGE: Page = Page {
    code: "pod-gateway-unreachable",
    title: "the pod's link does not answer ARP",
    meaning: "Pod and node could not resolve each other's link-layer address on the pod's veth. With Calico the pod's gateway 169.254.1.1 exists nowhere: the node answers for it because proxy_arp is 1 on the veth. The other way round, the pod itself does not answer: its interface is down or has another address.",
    told: "The packet was freed because its next hop could not be resolved (NEIGH_FAILED, or in the neighbour code), on the pod's interface or on the node's end of its veth.",
    ruled_out: "proxy_arp is 1 on the veth and the neighbour is reachable.",
    next: &[
        "sysctl net.ipv4.conf.CALI.proxy_arp",
        "kubectl exec POD -- ip neigh",
        "tcpdump -ni CALI arp",
    ],
};

impl Rule for PodGateway {
    fn page(&self) -> &'static Page {
        &PAGE
    }

    fn explain(&self, case: &Case<'_>, stop: &Stop<'_>) -> Option<Found> {
        if !matches!(stop.how, How::Dropped | How::Rejected) {
            return None;
        }
        let step = stop.end?;
        let unresolved = stop.reason() == Some("NEIGH_FAILED")
            || matches!(
                stop.function(),
                "neigh_invalidate"
                    | "arp_error_report"
                    | "neigh_timer_handler"
                    | "__neigh_event_send"
                    | "ndisc_error_report"
            );
        if !unresolved {
            return None;
        }
        match step.role {
            Some(Role::PodVeth) => to_pod(case, stop, step),
            Some(Role::PodEth0) => from_pod(case, stop, step),
            _ if stop.last.is_none() && case.pod(step.src.addr).is_some() => {
                from_pod(case, stop, step)
            }
            _ => None,
        }
    }
}

fn from_pod(case: &Case<'_>, stop: &Stop<'_>, step: &Step) -> Option<Found> {
    let src = step.src.addr;
    let pod = case.pod(src);
    let gateway = pod
        .and_then(|p| route::lookup(p, step.dst.addr, None, None, 0).route)
        .and_then(|r| r.via);
    let owner = case
        .owner(src)
        .or_else(|| pod.and_then(|p| p.node.as_ref().map(ToString::to_string)))
        .unwrap_or_else(|| stop.node().to_owned());
    let node = case.node(&owner);
    let veth = node.and_then(|n| route::lookup(n, src, None, None, 0).route?.dev.clone());
    let family = if src.is_ipv6() { "ipv6" } else { "ipv4" };
    let knob = if src.is_ipv6() {
        "proxy_ndp"
    } else {
        "proxy_arp"
    };
    let sysctl = veth
        .as_ref()
        .map(|dev| format!("net.{family}.conf.{dev}.{knob}"));
    let off = sysctl
        .as_ref()
        .zip(node)
        .is_some_and(|(name, n)| n.sysctl(name) == Some(0));
    let who = sentence::who(&step.src);
    let gateway = gateway.map_or_else(|| "its gateway".to_owned(), |g| format!("its gateway {g}"));
    let why = match (&sysctl, off) {
        (Some(name), true) => format!(": {name} is 0 on {owner}"),
        _ => String::new(),
    };
    let cause = format!("{who} gets no ARP answer for {gateway}{why}");
    let mut told = tale(case, stop, PAGE.code, &cause).on(&owner, veth.as_deref());
    if let Some(name) = &sysctl {
        told = told.check(&format!("sysctl {name}"));
    }
    if let Some(dev) = &veth {
        told = told.check(&format!("tcpdump -c 5 -ni {} arp", sentence::word(dev)));
    }
    told.done()
}

fn to_pod(case: &Case<'_>, stop: &Stop<'_>, step: &Step) -> Option<Found> {
    let dev = sentence::word(&step.iface);
    let cause = format!(
        "{} on {dev} does not answer ARP, so the node cannot hand it over",
        sentence::who(&step.dst)
    );
    tale(case, stop, PAGE.code, &cause)
        .check(&format!("ip neigh show dev {dev}"))
        .check(&format!("tcpdump -c 5 -ni {dev} arp"))
        .done()
}
