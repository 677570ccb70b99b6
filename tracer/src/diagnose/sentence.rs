//! Words for people: who, what, where, which commands.

use std::fmt::Write as _;
use std::sync::Arc;

use crate::output::text::{address, endpoint};
use crate::trace::{Endpoint, Flow, Outcome, Packet, Role, Step, StepKind, Trace};

/// An endpoint without its port, by name where it has one.
pub(super) fn who(e: &Endpoint) -> String {
    e.name
        .as_ref()
        .map_or_else(|| e.addr.to_string(), ToString::to_string)
}

/// `pod/default/client's SYN to 10.98.235.247:80`, as the sender sees it.
pub(super) fn packet(p: &Packet) -> String {
    let Some(first) = p.steps.first() else {
        return format!("packet {}", p.id);
    };
    format!(
        "{}'s {} to {}",
        who(&first.src),
        p.summary,
        address(&first.dst)
    )
}

/// The flow in a few words.
pub(super) fn flow(f: &Flow) -> String {
    format!(
        "{} from {} to {}",
        f.proto,
        who(&f.client),
        endpoint(&f.server)
    )
}

/// Tries of a packet, itself included.
pub(super) fn tries<'a>(trace: &'a Trace, p: &Packet) -> Vec<&'a Packet> {
    let root = p.retransmits.unwrap_or(p.id);
    trace
        .packets
        .iter()
        .filter(|q| q.retransmits.unwrap_or(q.id) == root)
        .collect()
}

/// `; 3 tries, none answered`, or nothing for a single try.
pub(super) fn tried(trace: &Trace, p: &Packet) -> String {
    let all = tries(trace, p);
    if all.len() < 2 {
        return String::new();
    }
    let through = all
        .iter()
        .filter(|q| q.outcome == Outcome::Delivered)
        .count();
    match through {
        0 => format!("; {} tries, none got through", all.len()),
        n => format!("; {} tries, {n} got through", all.len()),
    }
}

/// Whether the packet came when both sides had said all they had to say: a
/// FIN or acknowledgement sent again after its receiver had closed, and the
/// reset that answers it.
pub(super) fn tail(flow: &Flow, tries: &[&Packet], p: &Packet) -> bool {
    let Some(first) = p.steps.first().filter(|_| flow.state == "closed") else {
        return false;
    };
    let Some(tcp) = &first.tcp else { return false };
    let nothing_said = first.payload == 0 && !tcp.flags.contains('S');
    let again = p.attempt > 1 || !tcp.flags.contains('F');
    let arrived = tries.iter().any(|q| q.outcome == Outcome::Delivered);
    nothing_said && again || p.attempt > 1 && arrived
}

/// Where a packet was last seen at an interface.
pub(super) fn last_seen(p: &Packet) -> Option<&Step> {
    p.steps
        .iter()
        .rev()
        .find(|s| matches!(s.kind, StepKind::Ingress | StepKind::Egress))
}

/// One line of evidence about a step.
pub(super) fn evidence(p: &Packet, s: &Step) -> String {
    let place = match (s.node.is_empty(), s.iface.is_empty()) {
        (true, _) => String::new(),
        (false, true) => format!(" on {}", s.node),
        (false, false) => format!(" on {} at {}", s.node, s.iface),
    };
    let what = match s.kind {
        StepKind::Ingress if s.role == Some(Role::PodVeth) => "came from the pod",
        StepKind::Egress if s.role == Some(Role::PodVeth) => "was handed to the pod",
        StepKind::Ingress => "came in",
        StepKind::Egress => "went out",
        StepKind::Drop => "was dropped",
        StepKind::Reject | StepKind::FragmentNeeded => "was answered instead of going on",
        _ => "was seen",
    };
    let (src, dst) = (address(&s.src), address(&s.dst));
    let mut text = format!(
        "packet {} ({}) {what}{place}, {src} > {dst}",
        p.id, p.summary
    );
    if let Some(tunnel) = &s.tunnel {
        let port = |p: Option<u16>| p.map_or_else(String::new, |p| format!(":{p}"));
        let _ = write!(
            text,
            ", in {} {}{} > {}{}",
            tunnel.kind,
            tunnel.src,
            port(tunnel.sport),
            tunnel.dst,
            port(tunnel.dport)
        );
    }
    if let Some(drop) = &s.drop {
        if let Some(reason) = &drop.reason {
            let _ = write!(text, ", reason {reason}");
        }
        if let Some(hook) = &drop.hook {
            let _ = write!(text, ", in {hook}");
        }
        let _ = write!(text, ", by {}", drop.function);
    }
    text
}

/// A command, with a note where to run it.
pub(super) fn on(node: &Arc<str>, command: &str) -> String {
    let node: String = node.chars().filter(|c| !c.is_control()).collect();
    if node.is_empty() {
        command.to_owned()
    } else {
        format!("{command}  # on {node}")
    }
}

/// A word for a shell.
pub(super) fn word(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._:/@%+=-".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

/// Namespace and name of a pod or Service.
pub(super) fn named<'a>(e: &'a Endpoint, kind: &str) -> Option<(&'a str, &'a str)> {
    e.name
        .as_deref()?
        .strip_prefix(kind)?
        .strip_prefix('/')?
        .split_once('/')
}
