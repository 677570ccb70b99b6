//! `host-firewall`: a rule of the host, not of the cluster, denied the packet.

use super::tell::tale;
use crate::diagnose::netfilter::{Class, judged};
use crate::diagnose::stop::Stop;
use crate::diagnose::{Case, Found, Page, Rule, sentence};

pub(super) struct HostFirewall;

static PAGE: Page = Page {
    code: "host-firewall",
    title: "the host's own firewall denied it",
    meaning: "A rule that neither the CNI nor kube-proxy wrote, from the distribution's firewall, a hardening job or an administrator, drops or rejects the packet; or, for a wrapped packet, the tunnel's own port. Traffic to a Service that leads to the node itself (the API server) passes INPUT like any other.",
    told: "Netfilter ended the packet, and walking the node's real rules for it ends in a rule outside the chains of the cluster's own components, or in the policy of INPUT or OUTPUT.",
    ruled_out: "The walk passes, or the deciding rule's counter is zero.",
    next: &[
        "iptables-save -c | grep -E -e '-j (DROP|REJECT)'",
        "firewall-cmd --list-all; ufw status",
    ],
};

impl Rule for HostFirewall {
    fn page(&self) -> &'static Page {
        &PAGE
    }

    fn explain(&self, case: &Case<'_>, stop: &Stop<'_>) -> Option<Found> {
        let judged = judged(case, stop)?;
        if judged.class() != Class::Host {
            return None;
        }
        let what = match judged.rule() {
            Some(rule) => format!("rule {} of {}", rule.index, judged.place()),
            None => format!("the default policy of {}", judged.place()),
        };
        let tunnel = stop
            .last
            .and_then(|s| s.tunnel.as_ref())
            .filter(|_| judged.outer);
        let port = tunnel
            .and_then(|t| t.dport)
            .map_or_else(String::new, |p| format!(", UDP {p}"));
        let subject = if judged.outer {
            format!("the host firewall stops the tunnel packet itself{port}, by {what}")
        } else {
            format!("the host firewall stops it, by {what}")
        };
        let mut told = tale(case, stop, PAGE.code, &subject)
            .part(&what)
            .also(judged.rule_line());
        if let Some(tunnel) = tunnel {
            told = told.shows(format!(
                "the outer packet was {} to {}{port}",
                tunnel.src, tunnel.dst
            ));
        }
        told.check(&format!(
            "iptables -t {} -nvL {} --line-numbers",
            sentence::word(&judged.decision.table),
            sentence::word(judged.chain())
        ))
        .done()
    }
}
