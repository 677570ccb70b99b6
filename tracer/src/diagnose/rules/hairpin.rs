//! `hairpin-not-masqueraded`: a packet came back to its sender with its own
//! address as source.

use super::tell::tale;
use crate::diagnose::stop::{How, Stop};
use crate::diagnose::{Case, Found, Page, Rule};
use crate::trace::{Outcome, Packet, StepKind};

pub(super) struct Hairpin;

static PAGE: Page = Page {
    code: "hairpin-not-masqueraded",
    title: "a pod called itself through its Service, without masquerade",
    meaning: "The Service's DNAT led back to the pod that called. Its source must then be rewritten on the node, or the pod sees a packet from its own address and drops it as a martian. The rule that marks such packets for masquerade (KUBE-SEP: source is the endpoint itself) is missing or was not reached.",
    told: "A request went back to the veth it had come from with source and destination address equal, and was freed there or not answered.",
    ruled_out: "A masquerade step between the DNAT and the pod.",
    next: &[
        "iptables-save -t nat -c | grep -A3 KUBE-SEP",
        "sysctl net.bridge.bridge-nf-call-iptables",
    ],
};

fn own_source(p: &Packet) -> bool {
    let back = |s: &crate::trace::Step| s.kind == StepKind::Egress && s.src.addr == s.dst.addr;
    p.steps.iter().any(back) && p.steps.iter().any(|s| s.kind == StepKind::Dnat)
}

impl Rule for Hairpin {
    fn page(&self) -> &'static Page {
        &PAGE
    }

    fn explain(&self, case: &Case<'_>, stop: &Stop<'_>) -> Option<Found> {
        let step = stop.place()?;
        let same = step.src.addr == step.dst.addr || own_source(stop.packet);
        let masqueraded = stop
            .packet
            .steps
            .iter()
            .any(|s| matches!(s.kind, StepKind::Masquerade | StepKind::Snat));
        let stopped = stop.how != How::Rejected && stop.packet.outcome != Outcome::Rejected;
        if !same || masqueraded || !stopped || !stop.opens() || step.src.addr.is_loopback() {
            return None;
        }
        let addr = step.dst.addr;
        let node = stop.last.map_or("", |s| &*s.node).to_owned();
        let cause = format!(
            "it came back to its sender {addr} with that same address as source, a martian; the masquerade of hairpin traffic is missing"
        );
        let told = tale(case, stop, PAGE.code, &cause);
        let told = match stop.last {
            Some(last) => told.at(last),
            None => told,
        };
        told.check_on(
            &node,
            &format!("iptables-save -t nat -c | grep -e '-s {addr}/32'"),
        )
        .done()
    }
}
