//! `bpf-drop`: somebody else's eBPF program or tc filter dropped the packet.

use super::tell::tale;
use crate::diagnose::stop::{How, Stop};
use crate::diagnose::{Case, Found, Page, Rule, sentence};

pub(super) struct BpfDrop;

static PAGE: Page = Page {
    code: "bpf-drop",
    title: "dropped by a tc filter or eBPF program",
    meaning: "A classifier on an interface, another agent's eBPF program (CNI, security agent, left-over of an uninstall) or a tc filter, dropped the packet. Netfilter has nothing to do with it, and its counters show the packet as accepted.",
    told: "The kernel freed the packet with reason TC_INGRESS, TC_EGRESS, XDP or BPF_CGROUP_EGRESS, or in a function of those hooks.",
    ruled_out: "The interface has no filter and no program besides tracer's own.",
    next: &[
        "tc filter show dev IFACE ingress; tc filter show dev IFACE egress",
        "bpftool net show dev IFACE",
    ],
};

impl Rule for BpfDrop {
    fn page(&self) -> &'static Page {
        &PAGE
    }

    fn explain(&self, case: &Case<'_>, stop: &Stop<'_>) -> Option<Found> {
        if stop.how != How::Dropped {
            return None;
        }
        let step = stop.end?;
        let by_reason = matches!(
            stop.reason(),
            Some("TC_INGRESS" | "TC_EGRESS" | "XDP" | "BPF_CGROUP_EGRESS")
        );
        let by_place = matches!(
            stop.function(),
            "sch_handle_egress"
                | "sch_handle_ingress"
                | "tcf_classify"
                | "tcx_run"
                | "do_xdp_generic"
        );
        if !by_reason && !by_place {
            return None;
        }
        let iface = if step.iface.is_empty() {
            stop.last.map_or("", |s| &*s.iface)
        } else {
            &*step.iface
        };
        let side = match stop.reason() {
            Some("TC_INGRESS") => "ingress",
            Some("TC_EGRESS") => "egress",
            Some("XDP") => "xdp",
            _ if stop.function().contains("ingress") => "ingress",
            _ => "egress",
        };
        let node = case.node(stop.node());
        let part = format!("{iface} {side}");
        let others: Vec<String> = node
            .iter()
            .flat_map(|n| &n.qdiscs)
            .filter(|q| *q.dev == *iface && !matches!(&*q.at, "root"))
            .map(|q| format!("{} at {} of {}: {}", q.kind, q.at, q.dev, q.detail))
            .collect();
        let cause =
            format!("a tc filter or eBPF program on {iface} ({side}) dropped it, not netfilter");
        let mut told = tale(case, stop, PAGE.code, &cause).part(&part);
        for other in others {
            told = told.shows(other);
        }
        let dev = sentence::word(iface);
        told.check(&format!("tc filter show dev {dev} {side}"))
            .check(&format!("bpftool net show dev {dev}"))
            .done()
    }
}
