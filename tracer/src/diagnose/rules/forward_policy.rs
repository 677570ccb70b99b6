//! `forward-policy`: the FORWARD chain's default policy dropped the packet.

use super::tell::tale;
use crate::diagnose::netfilter::{Class, judged};
use crate::diagnose::stop::Stop;
use crate::diagnose::{Case, Found, Page, Rule};

pub(super) struct ForwardPolicy;

static PAGE: Page = Page {
    code: "forward-policy",
    title: "the FORWARD chain's default policy is DROP",
    meaning: "No rule accepted the packet, and the chain's policy drops what is left over. Docker sets this policy; with a CNI that adds no accept rule of its own, pods lose all traffic that is routed through the node.",
    told: "Netfilter dropped the packet in FORWARD, and walking the node's real rules for it reaches the end of filter/FORWARD, whose policy is DROP.",
    ruled_out: "`iptables -S FORWARD` begins with -P FORWARD ACCEPT.",
    next: &[
        "iptables -S FORWARD | head -1",
        "iptables -P FORWARD ACCEPT",
    ],
};

impl Rule for ForwardPolicy {
    fn page(&self) -> &'static Page {
        &PAGE
    }

    fn explain(&self, case: &Case<'_>, stop: &Stop<'_>) -> Option<Found> {
        let judged = judged(case, stop)?;
        if judged.class() != Class::ForwardPolicy {
            return None;
        }
        let cause = format!(
            "no rule accepted it, and the default is policy DROP of {}/FORWARD",
            judged.decision.table
        );
        let mut told = tale(case, stop, PAGE.code, &cause);
        for line in judged.near_misses() {
            told = told.shows(line);
        }
        told.check("iptables -S FORWARD | head -1").done()
    }
}
