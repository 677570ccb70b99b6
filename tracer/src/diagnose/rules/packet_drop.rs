//! `packet-drop`: the kernel dropped the packet, and not netfilter.

use super::tell::tale;
use crate::diagnose::stop::{How, Stop};
use crate::diagnose::{Case, Found, Page, Rule, sentence};

pub(super) struct PacketDrop;

static PAGE: Page = Page {
    code: "packet-drop",
    title: "the kernel dropped it",
    meaning: "The kernel freed the packet as dropped, and not by a netfilter rule. The function and the drop reason say in which layer; no more particular cause was recognised.",
    told: "The kfree_skb tracepoint fired for the packet, outside netfilter.",
    ruled_out: "A more particular finding about the same packet.",
    next: &[
        "ip route get DESTINATION",
        "nstat -az | grep -iE 'drop|discard|noroute|filter'",
        "ip -s link show dev IFACE",
    ],
};

impl Rule for PacketDrop {
    fn page(&self) -> &'static Page {
        &PAGE
    }

    fn explain(&self, case: &Case<'_>, stop: &Stop<'_>) -> Option<Found> {
        if stop.how != How::Dropped {
            return None;
        }
        let step = stop.end?;
        let why = stop
            .reason()
            .map_or_else(String::new, |r| format!(" with reason {r}"));
        let cause = format!("the kernel dropped it in {}{why}", stop.function());
        let mut told = tale(case, stop, PAGE.code, &cause)
            .part(stop.function())
            .check(&format!("ip route get {}", step.dst.addr))
            .check("nstat -az | grep -iE 'drop|discard|noroute|filter'");
        if !step.iface.is_empty() {
            told = told.check(&format!(
                "ip -s link show dev {}",
                sentence::word(&step.iface)
            ));
        }
        told.done()
    }
}
