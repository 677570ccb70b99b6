//! One step in words.

use std::fmt::Write as _;

use super::paint::Ink;
use super::{address, endpoint};
use crate::rules::names;
use crate::trace::summary::icmp_summary;
use crate::trace::{Endpoint, Field, Role, Step, StepKind, Tunnel};

/// Colour of a kind of step.
pub(super) fn ink(kind: StepKind) -> Ink {
    match kind {
        StepKind::Ingress | StepKind::Egress => Ink::Plain,
        StepKind::Dnat
        | StepKind::Snat
        | StepKind::Masquerade
        | StepKind::UnDnat
        | StepKind::UnSnat => Ink::Rewrite,
        StepKind::Encap | StepKind::Decap => Ink::Tunnel,
        StepKind::ConntrackNew | StepKind::Route | StepKind::Policy | StepKind::Hook => Ink::State,
        StepKind::Drop | StepKind::Reject | StepKind::FragmentNeeded => Ink::Bad,
        StepKind::Deliver => Ink::Good,
    }
}

/// A step; `before` are the packet's earlier ones.
pub(crate) fn step(s: &Step, before: &[Step]) -> String {
    let mut text = match s.kind {
        StepKind::Ingress | StepKind::Egress => interface(s, before),
        StepKind::Encap => format!("encap  {}", tunnel(s)),
        StepKind::Decap => format!("decap  {}", tunnel(s)),
        StepKind::ConntrackNew => conntrack(s),
        StepKind::Dnat => rewrite(s, "dnat"),
        StepKind::Snat => rewrite(s, "snat"),
        StepKind::Masquerade => rewrite(s, "masquerade"),
        StepKind::UnDnat => rewrite(s, "un-dnat"),
        StepKind::UnSnat => rewrite(s, "un-snat"),
        StepKind::Route => route(s),
        StepKind::Policy => return logged(s),
        StepKind::Hook => hook(s),
        StepKind::Drop => ended(s, "✗ DROP"),
        StepKind::Reject => ended(s, "✗ REJECT"),
        StepKind::FragmentNeeded => ended(s, "✗ TOO BIG"),
        StepKind::Deliver => "delivered to a socket".into(),
    };
    if let Some(n) = s.merged {
        let _ = write!(text, "  (one of {n} in one buffer)");
    }
    text
}

/// What a rule logged about the packet.
fn logged(s: &Step) -> String {
    let prefix = s.rule.as_ref().and_then(|r| r.policy.as_deref());
    let prefix = prefix.unwrap_or_default();
    let told = names::logged(prefix).map_or_else(String::new, |l| format!(": {l}"));
    format!("policy  logged {prefix}{told}")
}

/// The rule behind a step: whose chains, who asked for it, why nothing else
/// let it pass.
pub(crate) fn rule(s: &Step) -> Option<String> {
    let r = s.rule.as_deref().filter(|_| s.kind != StepKind::Policy)?;
    let kind = s.kind;
    let mut text = String::from("by ");
    if r.chain.is_none() {
        text.push_str(&r.path.join(" > "));
    }
    let chain = r.chain.as_deref().unwrap_or_default();
    // KUBE-SVC-, KUBE-SVL-: what stands between them and KUBE-SERVICES is not.
    let service = r.path.iter().filter(|c| c.starts_with("KUBE-SV"));
    for above in service.filter(|c| &***c != chain) {
        let _ = write!(text, "{above} > ");
    }
    let denied = matches!(kind, StepKind::Drop | StepKind::Reject | StepKind::Policy);
    if let Some(table) = r.table.as_deref().filter(|_| denied) {
        let _ = write!(text, "{table} ");
    }
    text.push_str(chain);
    if let Some(comment) = r.comment.as_deref().filter(|_| denied) {
        let _ = write!(text, " \"{comment}\"");
    } else if let Some(rule) = r.text.as_deref().filter(|_| denied) {
        let _ = write!(text, ": {rule}");
    }
    if let Some(service) = &r.service {
        let _ = write!(text, ", Service {service}");
    }
    if let Some(policy) = &r.policy {
        let _ = write!(text, ", policy {policy}");
    }
    if let Some(mark) = &r.mark {
        let _ = write!(text, ", mark {:#x} asked for by {}", mark.bits, mark.chain);
        if let Some(comment) = &mark.comment {
            let _ = write!(text, " \"{comment}\"");
        }
    }
    for missed in r.missed.iter().take(1) {
        let _ = write!(text, "; {missed}");
    }
    Some(text)
}

fn interface(s: &Step, before: &[Step]) -> String {
    let ingress = s.kind == StepKind::Ingress;
    let place = match (s.role.unwrap_or_default(), ingress) {
        (Role::PodVeth, true) => format!("from pod {}", pod(&s.src)),
        (Role::PodVeth, false) => format!("to pod {}", pod(&s.dst)),
        (Role::PodEth0, true) => format!("into pod {}", pod(&s.dst)),
        (Role::PodEth0, false) => format!("out of pod {}", pod(&s.src)),
        (Role::Tunnel, true) => "out of tunnel".into(),
        (Role::Tunnel, false) => "into tunnel".into(),
        (_, true) => "in".into(),
        (_, false) => "out".into(),
    };
    let mut text = format!("{} {}", place.trim_end(), s.iface);
    // The outer header was told where it was put on.
    let told = before.iter().any(|b| b.tunnel == s.tunnel);
    if s.tunnel.is_some() && !told {
        text.push_str("  in ");
        text.push_str(&tunnel(s));
    }
    if let Some(offset) = s.ip.as_ref().and_then(|ip| ip.frag_offset) {
        let _ = write!(text, "  fragment at {offset}");
    } else if s.ip.as_ref().is_some_and(|ip| ip.more_fragments) {
        text.push_str("  first fragment");
    }
    text
}

/// The pod's own name.
fn pod(e: &Endpoint) -> &str {
    let name = e.name.as_deref().and_then(|n| n.strip_prefix("pod/"));
    name.map_or("", |n| n.rsplit('/').next().unwrap_or(n))
}

fn tunnel(s: &Step) -> String {
    let Some(t) = &s.tunnel else {
        return String::new();
    };
    let Tunnel {
        kind,
        vni,
        src,
        dst,
        sport,
        dport,
    } = t;
    let end = |addr: &std::net::IpAddr, port: &Option<u16>| {
        address(&Endpoint {
            addr: *addr,
            port: *port,
            name: None,
        })
    };
    let vni = vni.map_or_else(String::new, |v| format!(" vni {v}"));
    format!("{kind}{vni}  {} -> {}", end(src, sport), end(dst, dport))
}

fn rewrite(s: &Step, name: &str) -> String {
    let Some(r) = &s.rewrite else {
        return name.into();
    };
    let side = match r.field {
        Field::Dst => "dst",
        Field::Src => "src",
        Field::Both => "src and dst",
    };
    let who =
        r.to.name
            .as_ref()
            .map_or_else(String::new, |n| format!(" ({n})"));
    format!(
        "{name}  {side} {} -> {}{who}",
        address(&r.from),
        address(&r.to)
    )
}

fn conntrack(s: &Step) -> String {
    let Some(ct) = &s.conntrack else {
        return "new conntrack entry".into();
    };
    format!(
        "new conntrack entry  answers {} -> {}",
        address(&ct.reply.src),
        address(&ct.reply.dst)
    )
}

fn route(s: &Step) -> String {
    let Some(r) = &s.route else {
        return "route".into();
    };
    let via = r.via.map_or_else(String::new, |v| format!(" via {v}"));
    let kind = r
        .kind
        .as_deref()
        .filter(|k| *k != "unicast")
        .unwrap_or_default();
    let dev = if r.dev.is_empty() {
        String::new()
    } else {
        format!(" dev {}", r.dev)
    };
    format!(
        "route {kind}{}{via}{dev}",
        if kind.is_empty() { "" } else { " " }
    )
    .replace("  ", " ")
}

fn hook(s: &Step) -> String {
    let Some(h) = &s.hook else {
        return "hook".into();
    };
    let table = h
        .table
        .as_ref()
        .map_or_else(String::new, |t| format!(" {t}"));
    let mark = if h.mark == 0 {
        String::new()
    } else {
        format!("  mark {:#x}", h.mark)
    };
    let chains = if h.chains.is_empty() {
        String::new()
    } else {
        format!("  chains {}", h.chains.join(" "))
    };
    format!("hook {}{table}  {}{mark}{chains}", h.hook, h.verdict)
}

fn ended(s: &Step, what: &str) -> String {
    let mut text = what.to_owned();
    if s.kind != StepKind::Drop {
        let answer = s
            .icmp
            .map_or_else(|| "RST".into(), |i| icmp_summary(i, s.src.addr.is_ipv6()));
        let _ = write!(text, "  answered with {answer}");
    }
    if let Some(d) = &s.drop {
        if let Some(reason) = &d.reason {
            let _ = write!(text, "  {reason}");
        }
        if let Some(hook) = &d.hook {
            let _ = write!(text, "  in {hook}");
        }
        let _ = write!(text, "  ({})", d.function);
    }
    if !s.iface.is_empty() {
        let _ = write!(text, "  at {}", s.iface);
    }
    let _ = write!(text, "  {} -> {}", endpoint(&s.src), endpoint(&s.dst));
    text
}
