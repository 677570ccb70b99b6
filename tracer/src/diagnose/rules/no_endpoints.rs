//! `no-endpoints`: nobody stands behind the Service.

use super::tell::tale;
use crate::diagnose::netfilter::{Class, judged};
use crate::diagnose::stop::{How, Stop};
use crate::diagnose::{Case, Found, Page, Rule, sentence};

pub(super) struct NoEndpoints;

static PAGE: Page = Page {
    code: "no-endpoints",
    title: "the Service has no ready endpoint",
    meaning: "kube-proxy found no ready endpoint for the Service, so instead of a translation it wrote a rule that rejects (iptables), or its virtual server has no destination (IPVS). The selector matches no pod, or the pods are not ready.",
    told: "The first packet still carried the Service's address when a REJECT of kube-proxy ended it, or IPVS found no destination with weight; the EndpointSlices of the inventory agree where there are any.",
    ruled_out: "A DNAT step, or a ready endpoint of that port in the EndpointSlices and a rule for it.",
    next: &[
        "kubectl get endpointslices -n NS -l kubernetes.io/service-name=NAME",
        "kubectl get pods -n NS -l SELECTOR -o wide",
        "kubectl describe service -n NS NAME",
    ],
};

impl Rule for NoEndpoints {
    fn page(&self) -> &'static Page {
        &PAGE
    }

    fn explain(&self, case: &Case<'_>, stop: &Stop<'_>) -> Option<Found> {
        if !stop.opens() || !matches!(stop.how, How::Dropped | How::Rejected) {
            return None;
        }
        let judged = judged(case, stop).filter(|j| j.class() == Class::NoEndpoints);
        let ipvs = ipvs_empty(case, stop);
        let native = native_empty(case, stop);
        if judged.is_none() && ipvs.is_none() && native.is_none() {
            return None;
        }
        let step = stop.end?;
        let (addr, port) = (step.dst.addr, step.dst.port.unwrap_or(0));
        let service = case.service(addr, step.dst.port);
        let name = service.map_or_else(
            || format!("the Service at {addr}:{port}"),
            |(s, p)| {
                let port = if p.name.is_empty() {
                    String::new()
                } else {
                    format!(":{}", p.name)
                };
                format!("Service {}{port}", s.full_name())
            },
        );
        let by = match &judged {
            Some(judged) => format!("{} rejects it", judged.place()),
            None if native.is_some() => "kube-proxy's nftables reject it".to_owned(),
            None => "IPVS found no destination".to_owned(),
        };
        let cause = format!("{name} has no ready endpoint, so {by} instead of translating it");
        let mut told = tale(case, stop, PAGE.code, &cause)
            .part(&name)
            .also(
                judged
                    .as_ref()
                    .and_then(super::super::netfilter::Judged::rule_line),
            )
            .also(ipvs)
            .also(native.map(|entry| format!("entry on {}: {entry}", stop.node())));
        if let Some((s, p)) = service {
            let backends = case.backends(s, p);
            let ready = backends.iter().filter(|b| b.ready).count();
            let known = case
                .cluster
                .as_ref()
                .is_some_and(crate::inventory::Inventory::knows_endpoints);
            if known && ready > 0 {
                told = told.shows(format!(
                    "the EndpointSlices list {ready} ready endpoints: kube-proxy on {} is behind",
                    stop.node()
                ));
            } else if known {
                told = told.shows(format!(
                    "the EndpointSlices list {} endpoints, none of them ready",
                    backends.len()
                ));
            }
            let (ns, name) = (sentence::word(&s.namespace), sentence::word(&s.name));
            told = told
                .ask(format!(
                    "kubectl get endpointslices -n {ns} -l kubernetes.io/service-name={name}"
                ))
                .ask(format!("kubectl describe service -n {ns} {name}"));
        }
        told.check("iptables-save -c | grep -e 'has no endpoints'")
            .done()
    }
}

/// The entry of kube-proxy's nftables that rejects it.
fn native_empty<'a>(case: &Case<'a>, stop: &Stop<'_>) -> Option<&'a str> {
    let dst = &stop.end?.dst;
    let proto = if stop.flow.proto == "udp" { 17 } else { 6 };
    let native = case.native(stop.node(), dst.addr.is_ipv6())?;
    let entry = native.no_endpoints(dst.addr, proto, dst.port?)?;
    (stop.by_netfilter() && entry.ends_with("reject-chain")).then_some(entry)
}

/// The virtual server of `/proc/net/ip_vs` for the packet, if none of its
/// destinations has weight (`ip_vs_info_seq_show`,
/// `net/netfilter/ipvs/ip_vs_ctl.c`).
fn ipvs_empty(case: &Case<'_>, stop: &Stop<'_>) -> Option<String> {
    let text = case.node(stop.node())?.ipvs.as_deref()?;
    let step = stop.end?;
    let std::net::IpAddr::V4(addr) = step.dst.addr else {
        return None;
    };
    let wanted = format!("{:08X}:{:04X}", u32::from(addr), step.dst.port?);
    let mut destinations = None;
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            ["TCP" | "UDP" | "SCTP", server, ..] => {
                if destinations.is_some() {
                    break;
                }
                destinations = (*server == wanted).then(Vec::new);
            }
            ["->", destination, _, weight, ..] => {
                if let Some(list) = &mut destinations {
                    list.push((destination.to_string(), weight.to_string()));
                }
            }
            _ => {}
        }
    }
    let destinations = destinations?;
    destinations
        .iter()
        .all(|(_, weight)| weight == "0")
        .then(|| {
            format!(
                "IPVS has {} destinations for it, all of weight 0",
                destinations.len()
            )
        })
}
