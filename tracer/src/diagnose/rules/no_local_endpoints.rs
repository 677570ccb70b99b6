//! `no-local-endpoints`: the traffic policy is Local, and no endpoint is here.

use super::tell::tale;
use crate::diagnose::netfilter::{Class, judged};
use crate::diagnose::stop::{How, Stop};
use crate::diagnose::{Case, Found, Page, Rule, sentence};

pub(super) struct NoLocalEndpoints;

static PAGE: Page = Page {
    code: "no-local-endpoints",
    title: "the traffic policy is Local and this node has no endpoint",
    meaning: "With externalTrafficPolicy (or internalTrafficPolicy) Local a node serves only its own endpoints, and kube-proxy drops what comes for the Service to a node without any. Load balancers are meant to learn that from the health check node port.",
    told: "The first packet still carried the node's or the Service's address when a DROP of kube-proxy for that port ended it.",
    ruled_out: "A DNAT step, or an endpoint of the Service on this node.",
    next: &[
        "kubectl get service -n NS NAME -o jsonpath='{.spec.externalTrafficPolicy}'",
        "kubectl get endpointslices -n NS -l kubernetes.io/service-name=NAME -o wide",
    ],
};

impl Rule for NoLocalEndpoints {
    fn page(&self) -> &'static Page {
        &PAGE
    }

    fn explain(&self, case: &Case<'_>, stop: &Stop<'_>) -> Option<Found> {
        if !stop.opens() || stop.how != How::Dropped {
            return None;
        }
        let judged = judged(case, stop)?;
        if judged.class() != Class::NoLocalEndpoints {
            return None;
        }
        let step = stop.end?;
        let port = step.dst.port.unwrap_or(0);
        let service = case.service(step.dst.addr, step.dst.port);
        let name = service.map_or_else(
            || format!("the Service at {}:{port}", step.dst.addr),
            |(s, _)| format!("Service {}", s.full_name()),
        );
        let cause = format!(
            "{name} is to be served by endpoints of this node only (traffic policy Local), and {} has none; {} drops it",
            stop.node(),
            judged.place()
        );
        let mut told = tale(case, stop, PAGE.code, &cause)
            .part(&name)
            .also(judged.rule_line());
        if let Some((s, p)) = service {
            let elsewhere: Vec<String> = case
                .backends(s, p)
                .iter()
                .filter_map(|b| b.node.as_ref().map(ToString::to_string))
                .collect();
            if !elsewhere.is_empty() {
                told = told.shows(format!("its endpoints run on {}", elsewhere.join(", ")));
            }
            let (ns, name) = (sentence::word(&s.namespace), sentence::word(&s.name));
            told = told.ask(format!(
                "kubectl get service -n {ns} {name} -o yaml | grep TrafficPolicy"
            ));
        }
        told.done()
    }
}
