//! `tunnel-peer-refused`: the CNI does not accept tunnel packets of that node.

use super::tell::tale;
use crate::diagnose::netfilter::{Class, judged};
use crate::diagnose::stop::Stop;
use crate::diagnose::{Case, Found, Page, Rule};

pub(super) struct TunnelPeerRefused;

static PAGE: Page = Page {
    code: "tunnel-peer-refused",
    title: "the CNI refuses the other node's tunnel packets",
    meaning: "Calico accepts tunnel packets only from the nodes it knows, kept in an ipset. The sender's outer address is not in it: the node's address changed, the packet came from another address of it, or Felix on the receiver is behind.",
    told: "The outer packet was dropped in a chain of the CNI in INPUT, and walking the rules ends in that rule.",
    ruled_out: "The sender's outer address is a member of the set.",
    next: &[
        "ipset list cali40all-vxlan-net",
        "kubectl get nodes -o wide",
        "kubectl -n calico-system logs ds/calico-node --tail=100",
    ],
};

impl Rule for TunnelPeerRefused {
    fn page(&self) -> &'static Page {
        &PAGE
    }

    fn explain(&self, case: &Case<'_>, stop: &Stop<'_>) -> Option<Found> {
        let judged = judged(case, stop)?;
        if judged.class() != Class::TunnelPeer {
            return None;
        }
        let tunnel = stop.last?.tunnel.as_ref()?;
        let words: Vec<&str> = judged
            .decision
            .failed
            .iter()
            .flat_map(|m| m.rule.text.split_whitespace())
            .collect();
        let set = words
            .iter()
            .position(|w| *w == "--match-set")
            .and_then(|at| words.get(at + 1));
        let missing = set.map_or_else(
            || "is not among the nodes it knows".to_owned(),
            |set| format!("is not in ipset {set}"),
        );
        let cause = format!(
            "{} refuses {} packets from {}, which {missing}",
            judged.place(),
            tunnel.kind,
            tunnel.src
        );
        let mut told = tale(case, stop, PAGE.code, &cause).also(judged.rule_line());
        for line in judged.near_misses() {
            told = told.shows(line);
        }
        let set = set.copied().unwrap_or("cali40all-vxlan-net");
        told.check(&format!("ipset list {set}"))
            .ask("kubectl get nodes -o wide")
            .done()
    }
}
