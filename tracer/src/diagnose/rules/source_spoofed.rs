//! `source-spoofed`: the CNI does not let the pod send from that address.

use super::tell::tale;
use crate::diagnose::netfilter::{Class, judged};
use crate::diagnose::stop::Stop;
use crate::diagnose::{Case, Found, Page, Rule};

pub(super) struct SourceSpoofed;

static PAGE: Page = Page {
    code: "source-spoofed",
    title: "the pod sent from an address that is not its own",
    meaning: "The CNI drops packets of a pod whose source is not routed back to the pod's interface, before conntrack sees them. VPN gateways and routers in pods, extra addresses and left-over sockets of an old address run into it.",
    told: "The packet was dropped in PREROUTING, and walking the rules ends in one with the rpfilter match; or the source is no address of the pod and the drop was in the raw table.",
    ruled_out: "The node has a route for the source through the pod's interface.",
    next: &[
        "ip route get SOURCE",
        "kubectl exec POD -- ip address",
        "annotation cni.projectcalico.org/allowedSourcePrefixes of the pod",
    ],
};

impl Rule for SourceSpoofed {
    fn page(&self) -> &'static Page {
        &PAGE
    }

    fn explain(&self, case: &Case<'_>, stop: &Stop<'_>) -> Option<Found> {
        let judged = judged(case, stop)?;
        if judged.class() != Class::Spoofed {
            return None;
        }
        let step = stop.end?;
        let iface = stop.last.map_or("", |s| &*s.iface);
        let src = step.src.addr;
        let cause = format!(
            "{src} is not an address of the pod behind {iface}, and {} drops what is not routed back there",
            judged.place()
        );
        tale(case, stop, PAGE.code, &cause)
            .also(judged.rule_line())
            .check(&format!("ip route get {src}"))
            .done()
    }
}
