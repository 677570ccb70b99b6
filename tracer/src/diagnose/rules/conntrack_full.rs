//! `conntrack-full`: the connection table has no room.

use super::tell::tale;
use crate::diagnose::stop::{How, Stop};
use crate::diagnose::{Case, Found, Page, Rule};
use crate::state::Namespace;

pub(super) struct ConntrackFull;

static PAGE: Page = Page {
    code: "conntrack-full",
    title: "the conntrack table is full",
    meaning: "The node tracks as many connections as it may (nf_conntrack_max), and drops the first packet of every further one before any rule sees it. Existing connections go on, which makes it look random. The kernel's log says 'table full, dropping packet'.",
    told: "A first packet was dropped by conntrack itself (freed in nf_hook_slow, not in a rule's function), and conntrack's drop counter grew during the run (or, where it was read once only, the table was at its limit).",
    ruled_out: "conntrack's drop counter does not grow and the count is well below the limit.",
    next: &[
        "sysctl net.netfilter.nf_conntrack_count net.netfilter.nf_conntrack_max",
        "conntrack -S",
        "dmesg | grep 'table full'",
    ],
};

/// Whether all rules of the node are nftables', whose drops are freed in
/// `nft_do_chain` and so told apart from conntrack's own.
pub(super) fn only_nft(node: &Namespace) -> bool {
    let mut dumps = node.iptables.iter().peekable();
    dumps.peek().is_some() && dumps.all(|d| &*d.variant == "nft")
}

impl Rule for ConntrackFull {
    fn page(&self) -> &'static Page {
        &PAGE
    }

    fn explain(&self, case: &Case<'_>, stop: &Stop<'_>) -> Option<Found> {
        if stop.how != How::Dropped || !stop.opens() {
            return None;
        }
        let node = case.node(stop.node())?;
        let at = |h| matches!(h, "PREROUTING" | "OUTPUT");
        // iptables-legacy's own DROP is freed there, too.
        let by_conntrack = stop.hook().map_or(only_nft(node), at);
        if stop.function() != "nf_hook_slow" || !by_conntrack {
            return None;
        }
        let max = node.sysctl("net.netfilter.nf_conntrack_max").unwrap_or(0);
        let count = node.counters.get("conntrack.count").copied().unwrap_or(0);
        let dropped = node.grew("conntrack.drop");
        let at_limit = max > 0 && count.cast_signed() * 100 >= max * 95;
        // Each packet that finds no room is counted.
        let full = dropped > 0 || at_limit && !node.read_twice();
        if !full {
            return None;
        }
        let cause = format!(
            "the conntrack table of {} is full ({count} entries, nf_conntrack_max is {max}), so no new connection gets through",
            stop.node()
        );
        tale(case, stop, PAGE.code, &cause)
            .also(
                (dropped > 0)
                    .then(|| format!("conntrack dropped {dropped} packets for want of room")),
            )
            .check("sysctl net.netfilter.nf_conntrack_count net.netfilter.nf_conntrack_max")
            .check("conntrack -S")
            .done()
    }
}
