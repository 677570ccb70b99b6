//! A packet's way as places and what was done in between: what the picture
//! shows.

use crate::output::phrase;
use crate::trace::{Endpoint, Outcome, Packet, Role, Step, StepKind};

/// Places in a picture.
const STOPS: usize = 26;
/// Things between two of them.
const MARKS: usize = 5;

/// What a place is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// An end of the way: a pod, a host, a socket.
    Pod,
    /// An interface.
    Iface,
    /// Where it was dropped or rejected.
    Dead,
    /// Where it was not seen any more.
    Gone,
}

/// What encloses places.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Group {
    pub(super) name: String,
    /// A pod, else a node.
    pub(super) is_pod: bool,
}

/// A place.
#[derive(Debug)]
pub(super) struct Stop {
    /// What encloses it, if anything.
    pub(super) group: Option<Group>,
    pub(super) kind: Kind,
    pub(super) title: String,
    /// More about it.
    pub(super) sub: Vec<String>,
    /// The packet was in a tunnel here.
    pub(super) tunnel: bool,
    /// What was done after it.
    pub(super) marks: Vec<Mark>,
    /// Things done that are not shown.
    pub(super) more: usize,
}

/// Something that was done to the packet.
#[derive(Debug)]
pub(super) struct Mark {
    /// `rewrite`, `tunnel` or `state`.
    pub(super) class: &'static str,
    pub(super) title: String,
    pub(super) lines: Vec<String>,
    pub(super) inferred: bool,
}

/// The way of a packet; and how many of its steps no longer fit.
pub(super) fn path(packet: &Packet) -> (Vec<Stop>, usize) {
    let mut stops: Vec<Stop> = Vec::new();
    let Some(first) = packet.steps.first() else {
        return (stops, 0);
    };
    if let Some(start) = start(first) {
        stops.push(start);
    }
    let mut shown = 0;
    for step in &packet.steps {
        if stops.len() >= STOPS {
            break;
        }
        shown += 1;
        match step.kind {
            StepKind::Ingress | StepKind::Egress => stops.push(interface(step)),
            StepKind::Drop | StepKind::Reject | StepKind::FragmentNeeded => stops.push(dead(step)),
            StepKind::Deliver => stops.push(Stop {
                group: Some(group(step)),
                ..pod_end(&step.dst, "socket")
            }),
            _ => {
                if stops.is_empty() {
                    stops.push(Stop {
                        title: "first seen here".to_owned(),
                        ..interface(step)
                    });
                }
                if let Some(last) = stops.last_mut() {
                    add(last, mark(step));
                }
            }
        }
    }
    let left = packet.steps.len() - shown;
    if left == 0
        && let Some(last) = packet.steps.last()
    {
        stops.extend(end(packet, last));
    }
    (stops, left)
}

/// Rewrites and tunnels are always shown; of other things as many as fit.
fn add(stop: &mut Stop, mark: Mark) {
    let (marks, state) = (&mut stop.marks, |m: &Mark| m.class == "state");
    if marks.len() >= MARKS {
        stop.more += 1;
        let Some(at) = marks.iter().rposition(state).filter(|_| !state(&mark)) else {
            return;
        };
        marks.remove(at);
    }
    marks.push(mark);
}

/// Where it came from, if that is no place of ours.
fn start(first: &Step) -> Option<Stop> {
    match (first.kind, first.role) {
        (StepKind::Ingress, Some(Role::PodVeth)) | (StepKind::Egress, Some(Role::PodEth0)) => {
            Some(pod_end(&first.src, "sender"))
        }
        (StepKind::Ingress, _) if first.tunnel.is_none() => Some(Stop {
            group: None,
            ..pod_end(&first.src, "sender")
        }),
        _ => None,
    }
}

/// What comes after the last step.
fn end(packet: &Packet, last: &Step) -> Option<Stop> {
    let gone = |title: &str, sub: String| Stop {
        group: None,
        kind: Kind::Gone,
        title: title.to_owned(),
        sub: vec![sub],
        tunnel: false,
        marks: Vec::new(),
        more: 0,
    };
    let into_pod = matches!(
        (last.kind, last.role),
        (StepKind::Egress, Some(Role::PodVeth)) | (StepKind::Ingress, Some(Role::PodEth0))
    );
    match packet.outcome {
        _ if phrase::is_end(last) => None,
        Outcome::Delivered if last.kind == StepKind::Deliver => None,
        Outcome::Delivered if into_pod => Some(pod_end(&last.dst, "receiver")),
        Outcome::Delivered => Some(Stop {
            group: None,
            ..pod_end(&last.dst, "arrived")
        }),
        Outcome::Lost => Some(gone("LOST", format!("left {}, never arrived", last.iface))),
        Outcome::Pending => Some(gone("not seen again", format!("after {}", last.iface))),
        Outcome::Dropped | Outcome::Rejected => {
            Some(gone("STOPPED", phrase::outcome(packet.outcome).to_owned()))
        }
    }
}

fn pod_end(e: &Endpoint, what: &str) -> Stop {
    let named = e.name.as_deref();
    let title = named.map_or_else(|| e.addr.to_string(), |n| short(n).to_owned());
    Stop {
        group: named.map(|n| Group {
            name: n.to_owned(),
            is_pod: true,
        }),
        kind: Kind::Pod,
        title,
        sub: vec![what.to_owned(), phrase::address(e)],
        tunnel: false,
        marks: Vec::new(),
        more: 0,
    }
}

/// The last part of `pod/NS/NAME`.
fn short(name: &str) -> &str {
    name.rsplit('/').next().unwrap_or(name)
}

fn group(step: &Step) -> Group {
    if step.role == Some(Role::PodEth0) {
        let end = if step.kind == StepKind::Ingress {
            &step.dst
        } else {
            &step.src
        };
        if let Some(name) = &end.name {
            return Group {
                name: name.to_string(),
                is_pod: true,
            };
        }
    }
    let name = if step.node.is_empty() {
        "unknown node"
    } else {
        &step.node
    };
    Group {
        name: format!("node {name}"),
        is_pod: false,
    }
}

fn interface(step: &Step) -> Stop {
    let way = match (step.kind, step.role) {
        (StepKind::Ingress, Some(Role::PodVeth)) => "in from the pod",
        (StepKind::Egress, Some(Role::PodVeth)) => "out to the pod",
        (StepKind::Ingress, Some(Role::Tunnel)) => "out of the tunnel",
        (StepKind::Egress, Some(Role::Tunnel)) => "into the tunnel",
        (StepKind::Ingress, _) => "in",
        (StepKind::Egress, _) => "out",
        _ => "",
    };
    let mut sub = vec![way.to_owned()];
    if let Some(t) = &step.tunnel {
        let vni = t.vni.map_or_else(String::new, |v| format!(" vni {v}"));
        sub.push(format!("in {}{vni}", t.kind));
    }
    Stop {
        group: Some(group(step)),
        kind: Kind::Iface,
        title: sure(step, &step.iface),
        sub,
        tunnel: step.tunnel.is_some(),
        marks: Vec::new(),
        more: 0,
    }
}

/// A place that was worked out is marked.
fn sure(step: &Step, title: &str) -> String {
    let sign = if step.inferred { "~ " } else { "" };
    format!("{sign}{title}")
}

fn dead(step: &Step) -> Stop {
    let title = match step.kind {
        StepKind::Reject => "REJECTED",
        StepKind::FragmentNeeded => "TOO BIG",
        _ => "DROPPED",
    };
    let mut sub = Vec::new();
    if let Some(d) = &step.drop {
        sub.extend(d.reason.as_deref().map(str::to_owned));
        sub.extend(d.hook.as_deref().map(|h| format!("in {h}")));
        sub.push(d.function.to_string());
    }
    if let Some(rule) = &step.rule {
        let parts = [&rule.policy, &rule.chain, &rule.comment];
        sub.extend(parts.into_iter().flatten().take(2).map(ToString::to_string));
    }
    if !step.iface.is_empty() {
        sub.push(format!("at {}", step.iface));
    }
    Stop {
        group: Some(group(step)),
        kind: Kind::Dead,
        title: sure(step, title),
        sub,
        tunnel: false,
        marks: Vec::new(),
        more: 0,
    }
}

fn mark(step: &Step) -> Mark {
    let (class, title, lines) = match step.kind {
        StepKind::Dnat
        | StepKind::Snat
        | StepKind::Masquerade
        | StepKind::UnDnat
        | StepKind::UnSnat => {
            let lines = step.rewrite.as_ref().map_or_else(Vec::new, |r| {
                vec![
                    phrase::address(&r.from),
                    format!("→ {}", phrase::address(&r.to)),
                ]
            });
            ("rewrite", phrase::kind(step.kind).to_uppercase(), lines)
        }
        StepKind::Encap | StepKind::Decap => {
            let lines = step.tunnel.as_ref().map_or_else(Vec::new, |t| {
                let vni = t.vni.map_or_else(String::new, |v| format!(" {v}"));
                vec![
                    format!("{}{vni}", t.kind),
                    t.src.to_string(),
                    format!("→ {}", t.dst),
                ]
            });
            ("tunnel", phrase::kind(step.kind).to_uppercase(), lines)
        }
        StepKind::ConntrackNew => (
            "state",
            "conntrack".to_owned(),
            vec!["new entry".to_owned()],
        ),
        StepKind::Route => {
            let lines = step.route.as_ref().map_or_else(Vec::new, |r| {
                let via = r.via.map(|v| format!("via {v}"));
                via.into_iter().chain([format!("dev {}", r.dev)]).collect()
            });
            ("state", "route".to_owned(), lines)
        }
        StepKind::Hook => {
            let lines = step.hook.as_ref().map_or_else(Vec::new, |h| {
                vec![h.hook.to_string(), h.verdict.to_string()]
            });
            ("state", "hook".to_owned(), lines)
        }
        kind => {
            let rule = step.rule.as_ref();
            let chain = rule.and_then(|r| r.policy.as_deref().or(r.chain.as_deref()));
            let lines = chain.map(str::to_owned).into_iter().collect();
            ("state", phrase::kind(kind).to_owned(), lines)
        }
    };
    Mark {
        class,
        title,
        lines,
        inferred: step.inferred,
    }
}
