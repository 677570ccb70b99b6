//! Which rule stopped a packet: the node's rules walked for it, as it was seen.

use std::net::IpAddr;
use std::sync::Arc;

use super::stop::{How, Stop};
use super::{Case, sentence};
use crate::rules::names::{self, Owner};
use crate::rules::native;
use crate::rules::route::{self, RouteKind};
use crate::rules::{CtState, Decision, Hook, Packet, RuleRef, Ruleset, Verdict, Way};
use crate::state::Namespace;
use crate::trace::{Direction, Role, Step, StepKind, Tunnel};

/// What a denial is, by whose rule it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    /// A network policy.
    Policy,
    /// The CNI's own rule against tunnel packets of unknown hosts.
    TunnelPeer,
    /// The CNI's rule against sources that are not the pod's.
    Spoofed,
    /// A Service without endpoints.
    NoEndpoints,
    /// A Service without endpoints on this node, where only those may serve.
    NoLocalEndpoints,
    /// A rule about packets that conntrack does not know.
    Invalid,
    /// The policy of the FORWARD chain.
    ForwardPolicy,
    /// A rule, or chain policy, of the host's own firewall.
    Host,
    /// Another rule of the cluster's own components.
    Component,
}

/// A rule that denies the packet, found by walking.
#[derive(Clone, Debug)]
pub(super) struct Judged {
    /// Where.
    pub(super) hook: Hook,
    /// What decided.
    pub(super) decision: Decision,
    /// It denies the packet only if conntrack calls it INVALID.
    pub(super) invalid: bool,
    /// The packet that was judged is the tunnel's outer one.
    pub(super) outer: bool,
}

impl Judged {
    /// The rule that decided; none for a chain's policy.
    pub(super) fn rule(&self) -> Option<&RuleRef> {
        self.decision.rule.as_ref()
    }

    /// The chain it was decided in.
    pub(super) fn chain(&self) -> &str {
        let last = self.decision.path.last();
        self.rule()
            .map(|r| &*r.chain)
            .or(last.map(|v| &*v.chain))
            .unwrap_or(self.hook.chain())
    }

    /// `filter/FORWARD > cali-FORWARD > cali-tw-…`, the chains it is in.
    pub(super) fn place(&self) -> String {
        let chain = self.chain();
        let hook = self.hook.chain();
        if chain == hook {
            format!("{}/{hook}", self.decision.table)
        } else {
            format!("{}/{hook} > {chain}", self.decision.table)
        }
    }

    /// The rule with its counter, as a line of evidence.
    pub(super) fn rule_line(&self) -> Option<String> {
        let rule = self.rule()?;
        let counted = rule
            .packets
            .map_or_else(String::new, |n| format!(" (counted {n} packets)"));
        Some(format!(
            "rule {} of {} {} in {}: {}{counted}",
            rule.index, rule.table, rule.chain, rule.variant, rule.text
        ))
    }

    /// Whether the chain it was decided in has a rule that logs with this prefix.
    pub(super) fn logs(&self, rules: &Ruleset, prefix: &str) -> bool {
        let prefix = prefix.strip_suffix("...").unwrap_or(prefix);
        let quoted = format!("--nflog-prefix \"{prefix}");
        let bare = format!("--nflog-prefix {prefix}");
        let tables = rules
            .tables()
            .iter()
            .filter(|t| t.name == self.decision.table);
        let chains = tables.filter_map(|t| t.chains.get(self.chain()));
        let mut all = chains.flat_map(|c| &c.rules);
        all.any(|r| r.text.contains(&quoted) || r.text.contains(&bare))
    }

    /// Whether the kernel went through the same chains, as far as that was seen.
    pub(super) fn agrees_with(&self, end: &Step) -> bool {
        let Some(seen) = end.hook.as_ref().filter(|h| !h.chains.is_empty()) else {
            return true;
        };
        let walked = self.decision.path.iter().skip(1).map(|v| &*v.chain);
        walked.eq(seen.chains.iter().map(|c| &**c))
    }

    /// Rules that nearly let it pass, as lines of evidence.
    pub(super) fn near_misses(&self) -> Vec<String> {
        let lines = self.decision.failed.iter().take(5);
        lines
            .map(|m| format!("{} would have let it pass, but {}", m.rule.text, m.why))
            .collect()
    }

    /// Whose denial it is.
    pub(super) fn class(&self) -> Class {
        let Some(rule) = self.rule() else {
            return if self.hook == Hook::Forward {
                Class::ForwardPolicy
            } else {
                Class::Host
            };
        };
        if rule.text.contains("-m rpfilter") {
            return Class::Spoofed;
        }
        if self.invalid {
            return Class::Invalid;
        }
        match names::owner(&rule.chain) {
            Owner::Calico if self.outer => Class::TunnelPeer,
            Owner::Calico | Owner::KubeRouter => Class::Policy,
            Owner::KubeProxy if matches!(self.decision.verdict, Verdict::Reject { .. }) => {
                Class::NoEndpoints
            }
            Owner::KubeProxy if service_chain(&rule.chain) => Class::NoLocalEndpoints,
            Owner::Host | Owner::Docker | Owner::Other => Class::Host,
            _ => Class::Component,
        }
    }
}

/// Chains where kube-proxy drops what no endpoint of this node may serve.
fn service_chain(chain: &str) -> bool {
    [
        "KUBE-EXTERNAL-SERVICES",
        "KUBE-SERVICES",
        "KUBE-XLB-",
        "KUBE-SVL-",
        "KUBE-EXT-",
    ]
    .iter()
    .any(|prefix| chain.starts_with(prefix))
}

/// Walks the rules of the node where netfilter stopped the packet. None where
/// there are no rules to walk, where something in them is not known, or where
/// they say that the packet passes.
pub(super) fn judged(case: &Case<'_>, stop: &Stop<'_>) -> Option<Judged> {
    if !matches!(stop.how, How::Dropped | How::Rejected) || !stop.may_be_netfilter() {
        return None;
    }
    let name = stop.node();
    let (rules, node) = (case.rules(name)?, case.node(name)?);
    let before = |s: &&Step| stop.end.is_none_or(|end| !std::ptr::eq(*s, end));
    let here = stop.packet.steps.iter().filter(|s| *s.node == *name);
    let last = stop.last.filter(|_| stop.in_tunnel());
    let seen = Seen {
        before: here.filter(before).collect(),
        end: stop.end.or(stop.last)?,
        tunnel: last.and_then(|s| Some((s, s.tunnel.as_ref()?))),
        reply: stop.packet.direction == Direction::Reply,
        opens: stop.opens() || stop.packet.summary == "SYN",
    };
    judge(rules, node, &seen)
}

/// The rule that denied the packet, as it was seen on the node; as [`judged`].
pub(super) fn judge(rules: &Ruleset, node: &Namespace, seen: &Seen<'_>) -> Option<Judged> {
    let walk = Walk {
        rules,
        node,
        only: seen.end.drop.as_ref().and_then(|d| d.hook.as_deref()),
    };
    match seen.tunnel {
        Some((last, tunnel)) => walk.outer(last, tunnel),
        None => walk.inner(seen),
    }
}

/// A packet that ended on a node, as it was seen there.
pub(super) struct Seen<'a> {
    /// Its steps on the node before it ended.
    pub(super) before: Vec<&'a Step>,
    /// The step that ended it.
    pub(super) end: &'a Step,
    /// Where it was in a tunnel, the step that shows so.
    pub(super) tunnel: Option<(&'a Step, &'a Tunnel)>,
    /// It goes to the client.
    pub(super) reply: bool,
    /// It is the flow's first word.
    pub(super) opens: bool,
}

impl<'a> Seen<'a> {
    /// From a packet's steps before its end.
    pub(super) fn of(before: &'a [Step], end: &'a Step) -> Self {
        let here = before.iter().filter(|s| s.node == end.node);
        let interface = |s: &&Step| {
            matches!(
                s.kind,
                StepKind::Ingress | StepKind::Egress | StepKind::Decap | StepKind::Encap
            )
        };
        let last = before.iter().rev().find(interface);
        let outer = last.filter(|s| s.kind != StepKind::Decap);
        Self {
            before: here.collect(),
            end,
            tunnel: outer.and_then(|s| Some((s, s.tunnel.as_ref()?))),
            reply: end.reply,
            opens: !end.reply && end.tcp.as_ref().is_none_or(|t| t.flags == "S"),
        }
    }

    /// The step it came to the node with.
    fn first(&self) -> &'a Step {
        self.before.first().copied().unwrap_or(self.end)
    }
}

/// Where an interface was watched, how the packet came in.
pub(super) fn entered<'a>(here: &[&'a Step]) -> Option<&'a Step> {
    here.iter().copied().find(|s| {
        s.kind == StepKind::Ingress && s.tunnel.is_none() && s.role != Some(Role::PodEth0)
    })
}

/// The rules of a node, to be walked.
pub(super) struct Walk<'a> {
    pub(super) rules: &'a Ruleset,
    pub(super) node: &'a Namespace,
    /// The hook that the kernel's stack told of.
    pub(super) only: Option<&'a str>,
}

impl Walk<'_> {
    /// The outer packet of a tunnel that came in.
    fn outer(&self, last: &Step, tunnel: &Tunnel) -> Option<Judged> {
        let mut packet = Packet::new(
            tunnel.src,
            tunnel.dst,
            if tunnel.dport.is_some() { 17 } else { 4 },
        );
        packet.sport = tunnel.sport;
        packet.dport = tunnel.dport;
        packet.ct.state = Some(CtState::New);
        let hooks = if last.kind == StepKind::Ingress {
            packet.iif = Some(Arc::clone(&last.iface));
            [Hook::Prerouting, Hook::Input]
        } else {
            packet.oif = Some(Arc::clone(&last.iface));
            [Hook::Output, Hook::Postrouting]
        };
        let mut packet = Some(packet);
        for hook in hooks {
            let way = self.at(hook, &packet.take()?)?;
            if let Some(judged) = self.denied(hook, &way, true, false) {
                return Some(judged);
            }
            packet = Some(way.packet);
        }
        None
    }

    fn inner(&self, seen: &Seen<'_>) -> Option<Judged> {
        let (first, end) = (seen.first(), seen.end);
        let mut packet = as_packet(first, end);
        // Where no interface was watched on the way in, the drop itself names it.
        let hook = end.drop.as_ref().and_then(|d| d.hook.as_deref());
        let by_hook = matches!(hook, Some("PREROUTING" | "INPUT" | "FORWARD"));
        let iif = entered(&seen.before)
            .map(|s| &s.iface)
            .or(Some(&end.iface).filter(|i| by_hook && !i.is_empty()));
        packet.iif = Some(iif.map_or_else(|| "".into(), Arc::clone));
        let known = if seen.opens {
            CtState::New
        } else {
            CtState::Established
        };
        packet.ct.reply = Some(seen.reply);
        if known == CtState::Established {
            packet.ct.seen_reply = Some(true);
            packet.ct.confirmed = Some(true);
        }
        // Where nftables may have dropped it, that iptables would if it were
        // INVALID says nothing.
        let native = |hook| native::may_deny(self.node.nft.as_deref(), hook);
        let all = ["PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"];
        let others = self.only.map_or(all.into_iter().any(native), native);
        let states = [known, CtState::Invalid];
        let states = states.into_iter().take(if others { 1 } else { 2 });
        states.into_iter().find_map(|state| {
            let mut packet = packet.clone();
            packet.ct.state = Some(state);
            self.through(
                &packet,
                iif.is_some(),
                (end, first),
                state == CtState::Invalid,
            )
        })
    }

    /// Through all hooks, with the translation that was seen.
    fn through(
        &self,
        packet: &Packet,
        from_outside: bool,
        (end, first): (&Step, &Step),
        invalid: bool,
    ) -> Option<Judged> {
        let begin = if from_outside {
            Hook::Prerouting
        } else {
            Hook::Output
        };
        let way = self.at(begin, packet)?;
        if let Some(judged) = self.denied(begin, &way, false, invalid) {
            return Some(judged);
        }
        let mut packet = way.packet;
        // What was seen counts, not what was foretold.
        packet.dst = end.dst.addr;
        packet.dport = end.dst.port;
        packet.ct.dnat = Some(end.dst != first.dst);
        let out = self.output(&packet);
        let hooks: &[Hook] = match (from_outside, out) {
            (true, Some((dev, false))) => {
                packet.oif = Some(dev);
                &[Hook::Forward, Hook::Postrouting]
            }
            (true, _) => &[Hook::Input],
            (false, Some((dev, _))) => {
                packet.oif = Some(dev);
                &[Hook::Postrouting]
            }
            (false, None) => &[],
        };
        for hook in hooks {
            let way = self.at(*hook, &packet)?;
            if let Some(judged) = self.denied(*hook, &way, false, invalid) {
                return Some(judged);
            }
            packet = way.packet;
        }
        None
    }

    /// The device it is routed to, and whether it is for this host.
    pub(super) fn output(&self, packet: &Packet) -> Option<(Arc<str>, bool)> {
        let answer = route::lookup(
            self.node,
            packet.dst,
            Some(packet.src),
            packet.iif.as_deref().filter(|i| !i.is_empty()),
            packet.mark,
        );
        let dev = answer.route.and_then(|r| r.dev.clone())?;
        Some((dev, answer.kind == RouteKind::Local))
    }

    /// The way through a hook; of several, one that ends there.
    fn at(&self, hook: Hook, packet: &Packet) -> Option<Way> {
        let mut ways = self.rules.traverse(hook, packet, self.node).ways;
        let denied = ways.iter().position(|w| w.verdict.denies()).unwrap_or(0);
        if denied < ways.len() {
            Some(ways.swap_remove(denied))
        } else {
            None
        }
    }

    /// Packets that came to the policy of the chain that decided. Only legacy
    /// tables count them: a base chain of nftables has no counter.
    fn policy_counted(&self, decision: &Decision, ipv6: bool) -> Option<u64> {
        if &*decision.variant != "legacy" {
            return None;
        }
        let chain = &decision.path.last()?.chain;
        let tables = self.rules.tables().iter();
        let of_it = |t: &&crate::rules::Table| {
            (&t.name, &t.variant, t.ipv6) == (&decision.table, &decision.variant, ipv6)
        };
        let chain = tables.filter(of_it).find_map(|t| t.chains.get(chain))?;
        chain.counters.map(|(packets, _)| packets)
    }

    fn denied(&self, hook: Hook, way: &Way, outer: bool, invalid: bool) -> Option<Judged> {
        let decision = way.end().filter(|_| way.verdict.denies())?;
        if self.only.is_some_and(|only| only != hook.chain()) {
            return None;
        }
        // The kernel counts: a rule that dropped a packet has counted it.
        let counted = match &decision.rule {
            Some(rule) => rule.packets,
            None => self.policy_counted(decision, way.packet.dst.is_ipv6()),
        };
        if counted == Some(0) {
            return None;
        }
        Some(Judged {
            hook,
            decision: decision.clone(),
            invalid,
            outer,
        })
    }
}

/// The packet as it came to the node, with the headers it had when it ended.
pub(super) fn as_packet(first: &Step, end: &Step) -> Packet {
    let proto = match &*first.proto {
        "tcp" => 6,
        "udp" => 17,
        "icmp" => 1,
        "icmpv6" => 58,
        "sctp" => 132,
        other => other.parse().unwrap_or(0),
    };
    let mut packet = Packet::new(first.src.addr, first.dst.addr, proto);
    packet.sport = first.src.port;
    packet.dport = first.dst.port;
    packet.icmp = first.icmp.map(|i| (i.kind, i.code));
    packet.tcp_flags = first.tcp.as_ref().map(|t| flags(&t.flags));
    packet.fragment = end.ip.as_ref().is_some_and(|ip| ip.frag_offset.is_some());
    packet
}

/// TCP flags from tcpdump's letters.
fn flags(letters: &str) -> u8 {
    let bit = |c| match c {
        'F' => 0x01,
        'S' => 0x02,
        'R' => 0x04,
        'P' => 0x08,
        '.' => 0x10,
        'U' => 0x20,
        'E' => 0x40,
        'W' => 0x80,
        _ => 0,
    };
    letters.chars().map(bit).fold(0, |all, bit| all | bit)
}

/// The network policy behind a chain, by the names that Felix gives them.
pub(super) fn policy_of(case: &Case<'_>, judged: &Judged) -> Vec<String> {
    let cluster = case.cluster.as_ref();
    cluster.map_or_else(Vec::new, |c| policies_of(&c.policies, judged))
}

/// Of these policies, `NAMESPACE/NAME` of those whose chains were gone through.
pub(super) fn policies_of(policies: &[serde_json::Value], judged: &Judged) -> Vec<String> {
    let visited: Vec<&str> = judged
        .decision
        .path
        .iter()
        .map(|v| &*v.chain)
        .chain(judged.decision.failed.iter().map(|m| &*m.rule.chain))
        .collect();
    let mut found = Vec::new();
    for policy in policies {
        let field = |name: &str| policy["metadata"][name].as_str().unwrap_or_default();
        let (ns, name) = (field("namespace"), field("name"));
        let chains = names::policy_chain_candidates(ns, name);
        if chains.iter().any(|c| visited.contains(&c.as_str())) {
            found.push(format!("{ns}/{name}"));
        }
    }
    found
}

/// Network policies of the inventory that select the pod with this address,
/// for the direction asked: the suspects where chain names tell nothing.
pub(super) fn policies_for(case: &Case<'_>, pod: IpAddr, ingress: bool) -> Vec<String> {
    let Some((cluster, pod)) = case
        .cluster
        .as_ref()
        .and_then(|c| Some((c, c.pod_at(pod)?)))
    else {
        return Vec::new();
    };
    let wanted = if ingress { "Ingress" } else { "Egress" };
    let selects = |policy: &&serde_json::Value| {
        let spec = &policy["spec"];
        let same = policy["metadata"]["namespace"].as_str() == Some(&pod.namespace);
        let types = spec["policyTypes"].as_array();
        let typed = types.map_or(ingress || spec.get("egress").is_some(), |t| {
            t.iter().any(|t| t.as_str() == Some(wanted))
        });
        let labels = spec["podSelector"]["matchLabels"].as_object();
        let plain = spec["podSelector"].get("matchExpressions").is_none();
        let fits = labels.is_none_or(|l| {
            l.iter()
                .all(|(k, v)| pod.labels.get(k).map(String::as_str) == v.as_str())
        });
        same && typed && plain && fits
    };
    cluster
        .policies
        .iter()
        .filter(selects)
        .map(|p| {
            format!(
                "{}/{}",
                pod.namespace,
                sentence::word(p["metadata"]["name"].as_str().unwrap_or("?"))
            )
        })
        .collect()
}
