//! `backend-refused`: the pod itself answered with a reset.

use super::tell::tale;
use crate::diagnose::stop::{How, Stop};
use crate::diagnose::{Case, Found, Page, Rule, sentence};
use crate::state::Listener;
use crate::trace::{Direction, Packet, Role, Step, StepKind};

pub(super) struct BackendRefused;

static PAGE: Page = Page {
    code: "backend-refused",
    title: "the pod refused the connection",
    meaning: "The packet came all the way, and nothing in the pod accepts connections on that port: the process is down, listens on another port (a wrong targetPort) or on 127.0.0.1 only. The network is sound.",
    told: "The packet was handed to the pod, which freed it for want of a socket or answered with an RST (for UDP, ICMP port unreachable), made in the pod's own namespace.",
    ruled_out: "A socket of the pod listens on that port on all addresses or on the pod's.",
    next: &[
        "kubectl exec -n NS POD -- ss -lnt",
        "kubectl get service -n NS NAME -o yaml | grep -A4 ports",
        "kubectl logs -n NS POD --tail=50",
    ],
};

impl Rule for BackendRefused {
    fn page(&self) -> &'static Page {
        &PAGE
    }

    fn explain(&self, case: &Case<'_>, stop: &Stop<'_>) -> Option<Found> {
        if stop.packet.direction != Direction::Request || !stop.opens() {
            return None;
        }
        let handed = stop.packet.steps.iter().rev().find(|s| {
            s.kind == StepKind::Egress && s.role == Some(Role::PodVeth)
                || s.kind == StepKind::Ingress && s.role == Some(Role::PodEth0)
        })?;
        let in_pod = match stop.how {
            How::Rejected => {
                let end = stop.end?;
                stop.hook().is_none()
                    && (stop.reason() == Some("NO_SOCKET")
                        || end.role == Some(Role::PodEth0)
                        || stop.function().contains("reset"))
            }
            // Only the answer was seen.
            How::Unanswered => false,
            _ => stop.reason() == Some("NO_SOCKET"),
        };
        (in_pod && !listens(case, stop, handed))
            .then(|| told(case, stop, handed))
            .flatten()
    }

    fn whole(&self, case: &Case<'_>) -> Option<Found> {
        // The request arrived and so counts as delivered; the reset that came
        // back is all there is of the refusal.
        let flow = case.trace.flows.iter().find(|f| {
            f.state == "reset"
                && !case.packets(f).any(|p| p.summary == "SYN-ACK")
                && !case
                    .stops
                    .iter()
                    .any(|s| s.flow.id == f.id && s.packet.summary == "SYN")
        })?;
        let syn = case.packets(flow).find(|p| p.summary == "SYN")?;
        let reset = case
            .packets(flow)
            .find(|p| p.direction == Direction::Reply && p.summary == "RST")?;
        let first = reset.steps.first()?;
        let from_pod = first.kind == StepKind::Ingress && first.role == Some(Role::PodVeth)
            || first.role == Some(Role::PodEth0);
        if !from_pod || !refuses(syn, first) {
            return None;
        }
        let stop = Stop {
            flow,
            packet: syn,
            how: How::Rejected,
            last: sentence::last_seen(syn),
            end: None,
            made_good: false,
        };
        let handed = stop.last.filter(|handed| !listens(case, &stop, handed))?;
        let mut found = told(case, &stop, handed)?;
        found
            .finding
            .evidence
            .push(sentence::evidence(reset, first));
        Some(found)
    }
}

/// Whether the reset refuses this very SYN: sequence number 0, and it
/// acknowledges the SYN (RFC 9293, section 3.10.7.1). A reset in the middle of a
/// connection, whose SYN-ACK went by unseen, does not.
fn refuses(syn: &Packet, reset: &Step) -> bool {
    let seq = |s: &Step| s.tcp.as_ref().map(|t| t.seq);
    let asked = syn.steps.first().and_then(seq);
    let (Some(tcp), Some(asked)) = (&reset.tcp, asked) else {
        return false;
    };
    tcp.seq == 0 && tcp.ack == asked.wrapping_add(1)
}

/// Whether a socket of the pod would have taken it, as far as was read.
pub(super) fn listens(case: &Case<'_>, stop: &Stop<'_>, handed: &Step) -> bool {
    let tcp = stop.flow.proto == "tcp";
    let takes = |l: &Listener| {
        l.tcp == tcp
            && Some(l.port) == handed.dst.port
            && (l.addr.is_unspecified() || l.addr == handed.dst.addr)
    };
    case.pod(handed.dst.addr)
        .is_some_and(|pod| pod.listeners.iter().any(takes))
}

fn told(case: &Case<'_>, stop: &Stop<'_>, handed: &Step) -> Option<Found> {
    let (dst, port) = (&handed.dst, handed.dst.port.unwrap_or(0));
    let who = sentence::who(dst);
    let pod = case.pod(dst.addr);
    let tcp = stop.flow.proto == "tcp";
    let mut others: Vec<u16> = pod
        .iter()
        .flat_map(|p| &p.listeners)
        .filter(|l| l.tcp == tcp && l.port != port && !l.addr.is_loopback())
        .map(|l| l.port)
        .collect();
    others.sort_unstable();
    others.dedup();
    let loopback = pod.is_some_and(|p| {
        p.listeners
            .iter()
            .any(|l| l.tcp == tcp && l.port == port && l.addr.is_loopback())
    });
    let hint = if loopback {
        format!("it listens on {port} on 127.0.0.1 only")
    } else if others.is_empty() {
        format!("nothing listens on {port} there")
    } else {
        let list: Vec<String> = others.iter().take(8).map(ToString::to_string).collect();
        format!(
            "nothing listens on {port} there, it listens on {}",
            list.join(", ")
        )
    };
    let cause = format!("{who} itself refused it, {hint}; the way to it is sound");
    let mut found = tale(case, stop, PAGE.code, &cause).at(handed);
    if let Some((ns, name)) = sentence::named(dst, "pod") {
        let (ns, name) = (sentence::word(ns), sentence::word(name));
        found = found
            .ask(format!("kubectl exec -n {ns} {name} -- ss -lntu"))
            .ask(format!("kubectl logs -n {ns} {name} --tail=50"));
    }
    if let Some((ns, name)) = sentence::named(&stop.flow.server, "svc") {
        found = found.ask(format!(
            "kubectl get service -n {} {} -o yaml | grep -A6 ports:",
            sentence::word(ns),
            sentence::word(name)
        ));
    }
    found.done()
}
