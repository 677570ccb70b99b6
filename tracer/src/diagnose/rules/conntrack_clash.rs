//! `conntrack-clash`: two packets of one new flow raced into the table.

use super::conntrack_full::only_nft;
use super::tell::tale;
use crate::diagnose::stop::{How, Stop};
use crate::diagnose::{Case, Found, Page, Rule};

pub(super) struct ConntrackClash;

static PAGE: Page = Page {
    code: "conntrack-clash",
    title: "a first packet's conntrack entry clashed with another",
    meaning: "Two packets of a new flow went through the stack at the same time (typically the A and AAAA query of one socket), each made an entry, and the second could not be inserted and was dropped. The client waits 5 s and asks again. Kernels from 5.9 on resolve most such races. For TCP it is mostly the SNAT that found no free port: too few of them, or one fixed, for so many connections to one server.",
    told: "A packet was dropped when its conntrack entry was to be confirmed (in POSTROUTING or INPUT, by nf_hook_slow, not by a rule), and insert_failed grew.",
    ruled_out: "insert_failed does not grow.",
    next: &[
        "conntrack -S | grep -o 'insert_failed=[0-9]*'",
        "iptables-save -t nat | grep -e SNAT -e to-ports",
        "options single-request-reopen in the pod's resolv.conf, or a node-local DNS cache",
    ],
};

impl Rule for ConntrackClash {
    fn page(&self) -> &'static Page {
        &PAGE
    }

    fn explain(&self, case: &Case<'_>, stop: &Stop<'_>) -> Option<Found> {
        if stop.how != How::Dropped || stop.function() != "nf_hook_slow" || !stop.opens() {
            return None;
        }
        let node = case.node(stop.node())?;
        let late = |h| matches!(h, "POSTROUTING" | "INPUT");
        if !stop.hook().map_or(only_nft(node), late) {
            return None;
        }
        let failed = node.grew("conntrack.insert_failed");
        if failed == 0 {
            return None;
        }
        let how = match &*stop.flow.proto {
            "tcp" => "the translation found no free port for its source",
            _ => {
                "another packet of the same socket made it at the same time, or the translation \
                 found no free port for its source"
            }
        };
        let cause = format!("its conntrack entry clashed with one that was there already: {how}");
        tale(case, stop, PAGE.code, &cause)
            .shows(format!("insert_failed grew by {failed} on {}", stop.node()))
            .check("conntrack -S")
            .done()
    }
}
