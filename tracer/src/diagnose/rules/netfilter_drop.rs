//! `netfilter-drop`: a netfilter rule dropped the packet, and which one is not
//! known. Told by the drop reason, or by the hook found on the kernel's stack.

use super::tell::tale;
use crate::diagnose::netfilter::judged;
use crate::diagnose::stop::{How, Stop};
use crate::diagnose::{Case, Found, Page, Rule, sentence};

pub(super) struct NetfilterDrop;

static PAGE: Page = Page {
    code: "netfilter-drop",
    title: "netfilter dropped it",
    meaning: "A rule of iptables or nftables, conntrack, NAT or IPVS dropped the packet. Which one could not be told: the rules were not read, or have matches that are not known to tracer, or walking them ends otherwise than the kernel did.",
    told: "The drop reason is NETFILTER_DROP, or a netfilter hook was on the kernel's stack when the packet was freed.",
    ruled_out: "A more particular finding about the same packet.",
    next: &[
        "iptables-save -c | grep -E -- '-j (DROP|REJECT)'",
        "nft list ruleset | grep -E 'drop|reject'",
        "tracer follow --deep ...  # shows the chains",
    ],
};

impl Rule for NetfilterDrop {
    fn page(&self) -> &'static Page {
        &PAGE
    }

    fn explain(&self, case: &Case<'_>, stop: &Stop<'_>) -> Option<Found> {
        if stop.how != How::Dropped || !stop.by_netfilter() {
            return None;
        }
        let step = stop.end?;
        let hook = stop.hook().map_or_else(String::new, |h| format!(" in {h}"));
        let known = judged(case, stop);
        let (by, line) = match &known {
            Some(judged) => (format!(", by {}", judged.place()), judged.rule_line()),
            None => (", by a rule that is not known".into(), None),
        };
        let cause = format!("netfilter dropped it{hook}{by}");
        let to = sentence::word(&step.dst.addr.to_string());
        let mut told = tale(case, stop, PAGE.code, &cause)
            .part(&format!("{hook}{by}"))
            .also(line);
        if let Some((ns, _)) = sentence::named(&step.dst, "pod") {
            told = told.ask(format!(
                "kubectl get networkpolicy -n {} -o yaml",
                sentence::word(ns)
            ));
        }
        told.check("iptables-save -c | grep -E -- '-j (DROP|REJECT)'")
            .check(&format!("conntrack -L -d {to}"))
            .done()
    }
}
