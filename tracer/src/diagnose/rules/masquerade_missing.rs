//! `masquerade-missing`: a pod's address left the cluster.

use super::tell::tale;
use crate::diagnose::stop::{How, Stop};
use crate::diagnose::{Case, Found, Page, Rule};
use crate::rules::{Hook, Packet, Verdict, native, route};
use crate::trace::{Direction, Role, Step, StepKind};

pub(super) struct MasqueradeMissing;

static PAGE: Page = Page {
    code: "masquerade-missing",
    title: "a pod's address left the cluster untranslated",
    meaning: "The packet went out to a host outside with the pod's own address as source. Unless the network routes the pods' range back to this node, the answer cannot come: natOutgoing is off for the pool, the pool is not in the masquerade set, or the nat rules are gone.",
    told: "A request to an address outside the cluster left by the uplink with a pod's source and without a masquerade or SNAT step, and was not answered.",
    ruled_out: "A masquerade step, an answer, or a route of the node's own to a router behind which the address is.",
    next: &[
        "iptables-save -t nat -c | grep -e MASQUERADE",
        "ipset list cali40masq-ipam-pools",
        "kubectl get ippools -o yaml | grep natOutgoing",
    ],
};

/// Whether the node has a route of its own to a router behind which the
/// destination is: another node's block without a tunnel, or a network that
/// knows the pods' range perhaps.
fn routed_inside(case: &Case<'_>, last: &Step) -> bool {
    let route = case
        .node(&last.node)
        .and_then(|n| route::lookup(n, last.dst.addr, Some(last.src.addr), None, 0).route);
    route.is_some_and(|r| r.prefix > 0 && r.via.is_some())
}

impl Rule for MasqueradeMissing {
    fn page(&self) -> &'static Page {
        &PAGE
    }

    fn explain(&self, case: &Case<'_>, stop: &Stop<'_>) -> Option<Found> {
        if stop.packet.direction != Direction::Request
            || !stop.opens()
            || !matches!(stop.how, How::Vanished | How::Unanswered | How::Rejected)
        {
            return None;
        }
        let last = stop.last.filter(|s| {
            s.kind == StepKind::Egress && s.role == Some(Role::Uplink) && s.tunnel.is_none()
        })?;
        let (src, dst) = (last.src.addr, last.dst.addr);
        let translated = stop
            .packet
            .steps
            .iter()
            .any(|s| matches!(s.kind, StepKind::Masquerade | StepKind::Snat));
        let service = case.service(dst, None).is_some();
        let inside = case.owner(dst).is_some() || service || routed_inside(case, last);
        if translated || inside || case.is_pod(src) != Some(true) {
            return None;
        }
        let node = case.node(&last.node);
        let mut why = Vec::new();
        if let (Some(node), Some(rules)) = (node, case.rules(&last.node)) {
            let proto = if stop.flow.proto == "udp" { 17 } else { 6 };
            let mut packet = Packet::new(src, dst, proto);
            packet.sport = last.src.port;
            packet.dport = last.dst.port;
            packet.oif = Some(last.iface.clone());
            packet.iif = stop
                .packet
                .steps
                .iter()
                .find(|s| s.node == last.node && s.kind == StepKind::Ingress)
                .map(|s| s.iface.clone());
            packet.ct.state = Some(crate::rules::CtState::New);
            if let Some(decision) = rules.evaluate(Hook::Postrouting, "nat", &packet, node) {
                why.extend(
                    decision
                        .failed
                        .iter()
                        .filter(|m| m.rule.text.contains("MASQUERADE"))
                        .map(|m| format!("{} did not match: {}", m.rule.text, m.why)),
                );
                if matches!(decision.verdict, Verdict::Masquerade(_) | Verdict::Snat(_)) {
                    why.push("the rules as read would translate it; they may have changed".into());
                }
            }
            let any = rules
                .tables()
                .iter()
                .filter(|t| &*t.name == "nat")
                .flat_map(|t| t.chains.values())
                .flat_map(|c| &c.rules)
                .any(|r| r.text.contains("MASQUERADE"));
            if !any && !native::translates(node.nft.as_deref(), "POSTROUTING") {
                why.push(format!(
                    "the nat table of {} has no MASQUERADE rule",
                    last.node
                ));
            }
        }
        let cause = format!(
            "it left with the pod's own address {src} for {dst} outside the cluster, without masquerade, so no answer finds the way back"
        );
        let mut told = tale(case, stop, PAGE.code, &cause).at(last).unsure();
        for line in why {
            told = told.shows(line);
        }
        told.check("iptables-save -t nat -c | grep -e MASQUERADE")
            .check("ipset list cali40masq-ipam-pools")
            .done()
    }
}
