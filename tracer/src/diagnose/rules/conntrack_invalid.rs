//! `conntrack-invalid`: conntrack does not know the connection of a packet.

use super::tell::tale;
use crate::diagnose::netfilter::judged;
use crate::diagnose::stop::{How, Stop};
use crate::diagnose::{Case, Found, Page, Rule, sentence};
use crate::trace::{Direction, Outcome, Packet, Role, StepKind};

pub(super) struct ConntrackInvalid;

static PAGE: Page = Page {
    code: "conntrack-invalid",
    title: "conntrack called the packet INVALID",
    meaning: "A packet of a known connection was out of what conntrack expects (late, out of the window, after a restart), so it was not translated. Either a rule drops it, or it reaches its receiver under the wrong address, who answers with a reset and so ends the real connection.",
    told: "A rule that matches ctstate INVALID dropped a packet that is not the connection's first; or a reply of a translated connection went to the client with the backend's own address, and a reset went back to that address.",
    ruled_out: "Every reply was un-DNATed, and conntrack's invalid counter does not grow.",
    next: &[
        "conntrack -S",
        "sysctl net.netfilter.nf_conntrack_tcp_be_liberal",
        "iptables-save -c | grep INVALID",
    ],
};

impl Rule for ConntrackInvalid {
    fn page(&self) -> &'static Page {
        &PAGE
    }

    fn explain(&self, case: &Case<'_>, stop: &Stop<'_>) -> Option<Found> {
        if stop.how == How::Dropped && stop.by_netfilter() {
            let judged = judged(case, stop)?;
            let node = case.node(stop.node());
            let none_counted =
                node.is_some_and(|n| n.read_twice() && n.grew("conntrack.invalid") == 0);
            if !judged.invalid || none_counted || stop.packet.summary == "SYN" {
                return None;
            }
            let cause = format!(
                "conntrack takes it for INVALID, and {} drops such packets",
                judged.place()
            );
            return tale(case, stop, PAGE.code, &cause)
                .also(judged.rule_line())
                .state(|n| {
                    let grown = n.grew("conntrack.invalid");
                    (grown > 0).then(|| format!("conntrack counted {grown} invalid packets"))
                })
                .check("conntrack -S")
                .check("sysctl net.netfilter.nf_conntrack_tcp_be_liberal")
                .done();
        }
        untranslated(case, stop)
    }
}

/// A reply of an established, translated connection that reached the client as
/// it left the backend.
pub(super) fn bare_reply(p: &Packet, stop: &Stop<'_>) -> bool {
    let Some(backend) = &stop.flow.backend else {
        return false;
    };
    let to_client = |s: &crate::trace::Step| {
        s.kind == StepKind::Egress
            && s.role == Some(Role::PodVeth)
            && s.dst.addr == stop.flow.client.addr
            && s.src.addr == backend.addr
            && stop.flow.server.addr != backend.addr
    };
    p.direction == Direction::Reply && p.steps.iter().any(to_client)
}

fn untranslated(case: &Case<'_>, stop: &Stop<'_>) -> Option<Found> {
    let translated_before = case
        .packets(stop.flow)
        .any(|p| p.steps.iter().any(|s| s.kind == StepKind::UnDnat));
    let packet = stop.packet;
    if !bare_reply(packet, stop) || !translated_before {
        return None;
    }
    let refused = matches!(packet.outcome, Outcome::Rejected | Outcome::Dropped);
    if !refused {
        return None;
    }
    let node = stop.last.map_or("", |s| &*s.node);
    let from = sentence::who(&stop.packet.steps.first()?.src);
    let cause = format!(
        "conntrack on {node} took it for INVALID, so it reached the client from {from} instead of {}, and the client answered with a reset",
        stop.flow.server.addr
    );
    let liberal = "net.netfilter.nf_conntrack_tcp_be_liberal";
    let strict = case.node(node).and_then(|n| n.sysctl(liberal)) == Some(0);
    tale(case, stop, PAGE.code, &cause)
        .also(
            strict.then(|| {
                format!("{liberal} = 0 on {node}, so what is out of the window is INVALID")
            }),
        )
        .check_on(node, "conntrack -S")
        .check_on(node, "sysctl net.netfilter.nf_conntrack_tcp_be_liberal")
        .done()
}
