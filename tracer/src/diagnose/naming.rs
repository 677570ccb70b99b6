//! Which rules stand behind what was seen: the chains of a DNAT and whose
//! Service and endpoint they are, who asked for a masquerade, what dropped a
//! packet. The rules are walked for the packet; only a rule that leads to what
//! was seen is named, and only where nothing on the way is unknown.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use super::netfilter::{self, Seen, Walk};
use super::stop::may_be_netfilter;
use crate::inventory::Inventory;
use crate::rules::names::{self, LoggedAction};
use crate::rules::{CtState, Decision, Hook, Packet, RuleRef, Ruleset, Verdict, Way};
use crate::state::{Namespace, NamespaceKind};
use crate::trace::{Endpoint, MarkedBy, Rewrite, Rule, Step, StepKind, Trace};

/// How it was told, in [`Rule::from`].
const WALKED: &str = "the node's rules, walked for this packet";

/// The same, and the kernel's own path was seen to be the same (`--deep`).
const CONFIRMED: &str = "the node's rules, walked for this packet, as the kernel went through them";
/// The same, and a rule of the chain was seen to log it.
const LOGGED: &str =
    "the node's rules, walked for this packet, and the log of the chain's own rule";
/// Not worked out.
const SEEN: &str = "what the kernel logged and which chains it went through";

/// Near misses told of a denial.
const MISSED: usize = 3;
/// Connections whose rules are remembered.
const REMEMBERED: usize = 4096;
/// Ways through the hooks that are followed to the end.
const WAYS: usize = 64;

/// What rules depend on, as far as a step shows it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    node: Arc<str>,
    iface: Arc<str>,
    kind: StepKind,
    proto: u8,
    src: IpAddr,
    dst: (IpAddr, Option<u16>),
    /// The new address; the new port only of a destination.
    to: (IpAddr, Option<u16>),
}

/// Names rules from what was read on the nodes.
pub struct Namer {
    /// Of nodes with their rules.
    namespaces: Vec<(Namespace, Option<Ruleset>)>,
    cluster: Option<Arc<Inventory>>,
    /// Rewrites of connections that differ in the client's port only are alike.
    known: Mutex<HashMap<Key, Option<Rule>>>,
}

impl Namer {
    /// From what was read, and the cluster's objects.
    pub fn new(namespaces: Vec<Namespace>, cluster: Option<Arc<Inventory>>) -> Self {
        let read = |n: Namespace| {
            let rules = (n.kind == NamespaceKind::Node && !n.iptables.is_empty())
                .then(|| Ruleset::parse(&n.iptables, n.ipsets.as_deref()).0);
            (n, rules)
        };
        Self {
            namespaces: namespaces.into_iter().map(read).collect(),
            cluster,
            known: Mutex::default(),
        }
    }

    /// Whether a step may have a rule behind it that is not named yet: drops by
    /// netfilter, and rewrites of packets that open a connection. Later ones are
    /// rewritten as the first was; no rule is asked about them.
    pub fn asks(step: &Step) -> bool {
        let opens = || !step.reply && step.tcp.as_ref().is_none_or(|t| t.flags == "S");
        step.rule.is_none()
            && match step.kind {
                StepKind::Dnat | StepKind::Snat | StepKind::Masquerade => opens(),
                StepKind::Drop | StepKind::Reject => {
                    step.drop.as_deref().is_some_and(may_be_netfilter)
                }
                _ => false,
            }
    }

    /// Names the rule behind a step, if it has none yet; `before` are the
    /// packet's earlier steps.
    pub fn name(&self, before: &[Step], step: &mut Step) {
        if !Self::asks(step) {
            return;
        }
        let rule = match step.kind {
            StepKind::Dnat | StepKind::Snat | StepKind::Masquerade => self.rewrite(before, step),
            _ => self.denial(before, step),
        };
        step.rule = rule.map(Box::new);
    }

    fn node(&self, name: &str) -> Option<(&Ruleset, &Namespace)> {
        let found = self.namespaces.iter().find(|(n, _)| *n.name == *name)?;
        Some((found.1.as_ref()?, &found.0))
    }

    fn rewrite(&self, before: &[Step], step: &Step) -> Option<Rule> {
        let rewrite = step.rewrite.as_deref()?;
        let (rules, node) = self.node(&step.node)?;
        let here: Vec<&Step> = before.iter().filter(|s| s.node == step.node).collect();
        let way = Arrival::of(&here, step, rewrite);
        let to_port = rewrite.to.port.filter(|_| step.kind == StepKind::Dnat);
        let key = Key {
            node: Arc::clone(&step.node),
            iface: way.packet.iif.clone().unwrap_or_default(),
            kind: step.kind,
            proto: way.packet.proto,
            src: way.packet.src,
            dst: (way.packet.dst, way.packet.dport),
            to: (rewrite.to.addr, to_port),
        };
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(rule) = known.get(&key) {
            return rule.clone();
        }
        let walk = Walk {
            rules,
            node,
            only: None,
        };
        let rule = way.rule(&walk, step.kind, rewrite);
        if known.len() >= REMEMBERED {
            known.clear();
        }
        known.insert(key, rule.clone());
        rule
    }

    fn denial(&self, before: &[Step], step: &Step) -> Option<Rule> {
        let heard = heard(before, step);
        let known = self.node(&step.node);
        let judged = known.and_then(|(rules, node)| {
            let judged = netfilter::judge(rules, node, &Seen::of(before, step))?;
            let logs = heard.is_none_or(|prefix| judged.logs(rules, prefix));
            (logs && judged.agrees_with(step)).then_some(judged)
        });
        let Some(judged) = judged else {
            return witnessed(step, heard);
        };
        let rule = judged.rule();
        let policies = self
            .cluster
            .as_deref()
            .map_or_else(Vec::new, |c| netfilter::policies_of(&c.policies, &judged));
        let policy = || format!("-P {} DROP", judged.hook.chain()).into();
        let missed = judged.decision.failed.iter().take(MISSED);
        let named = (!policies.is_empty()).then(|| policies.join(", ").into());
        let from = match (heard, &step.hook) {
            (Some(_), _) => LOGGED,
            (None, Some(_)) => CONFIRMED,
            (None, None) => WALKED,
        };
        Some(Rule {
            table: Some(Arc::clone(&judged.decision.table)),
            chain: Some(judged.chain().into()),
            text: Some(rule.map_or_else(policy, |r| Arc::clone(&r.text))),
            comment: rule.and_then(|r| r.comment.clone()),
            policy: named.or_else(|| heard.map(Arc::from)),
            path: stack(&judged.decision),
            missed: missed.map(|m| Arc::clone(&m.why)).collect(),
            inferred: true,
            from: Some(from.into()),
            ..Rule::default()
        })
    }
}

/// The denial that a rule logged on this node just before.
fn heard<'a>(before: &'a [Step], end: &Step) -> Option<&'a str> {
    let logs = before
        .iter()
        .rev()
        .filter(|s| s.kind == StepKind::Policy && s.node == end.node);
    let prefixes = logs.filter_map(|s| s.rule.as_ref()?.policy.as_deref());
    let denied = |p: &&str| names::logged(p).is_some_and(|l| l.action == LoggedAction::Deny);
    prefixes.into_iter().next().filter(denied)
}

/// What was seen alone says, where the rules that were read say nothing, or
/// something else.
fn witnessed(step: &Step, heard: Option<&str>) -> Option<Rule> {
    let chains = step.hook.as_ref().map(|h| h.chains.clone());
    if heard.is_none() && chains.is_none() {
        return None;
    }
    Some(Rule {
        policy: heard.map(Arc::from),
        path: chains.unwrap_or_default(),
        from: Some(SEEN.into()),
        ..Rule::default()
    })
}

/// Names the rules behind all steps of a trace that have none yet.
pub fn name(trace: &mut Trace) {
    let Some(state) = trace.closing.state.as_deref_mut() else {
        return;
    };
    let cluster = super::case::cluster(state).map(Arc::new);
    let namer = Namer::new(std::mem::take(&mut state.namespaces), cluster);
    for packet in &mut trace.packets {
        for i in 0..packet.steps.len() {
            let (before, rest) = packet.steps.split_at_mut(i);
            namer.name(before, &mut rest[0]);
        }
    }
    let namespaces = namer.namespaces.into_iter().map(|(n, _)| n);
    if let Some(state) = trace.closing.state.as_deref_mut() {
        state.namespaces = namespaces.collect();
    }
}

/// A packet as it came to a node, or was sent there, before it was rewritten.
struct Arrival {
    packet: Packet,
    hook: Hook,
    /// Its destination when its source was rewritten.
    bound_for: (IpAddr, Option<u16>),
}

impl Arrival {
    fn of(here: &[&Step], step: &Step, rewrite: &Rewrite) -> Self {
        let first = here.first().copied().unwrap_or(step);
        let entered = netfilter::entered(here);
        let mut packet = netfilter::as_packet(first, step).state(CtState::New);
        packet.ct.reply = Some(false);
        packet.iif = Some(entered.map_or_else(|| "".into(), |s| Arc::clone(&s.iface)));
        let earlier = here.iter().find(|s| s.kind == StepKind::Dnat);
        let asked = earlier.and_then(|s| s.rewrite.as_deref()).map(|r| &r.from);
        let (src, dst) = if step.kind == StepKind::Dnat {
            (&step.src, &rewrite.from)
        } else {
            (&rewrite.from, asked.unwrap_or(&step.dst))
        };
        (packet.src, packet.sport) = (src.addr, src.port);
        (packet.dst, packet.dport) = (dst.addr, dst.port);
        Self {
            packet,
            hook: if entered.is_some() {
                Hook::Prerouting
            } else {
                Hook::Output
            },
            bound_for: (step.dst.addr, step.dst.port),
        }
    }

    /// The rule that made the rewrite, if only one can have.
    fn rule(&self, walk: &Walk<'_>, kind: StepKind, rewrite: &Rewrite) -> Option<Rule> {
        let ways = walk.rules.traverse(self.hook, &self.packet, walk.node).ways;
        if kind == StepKind::Dnat {
            let ends = ways.iter().map(|w| (w, w.translation(), &[][..]));
            return only(ends, |way| leads_to(way, &rewrite.to)).map(|(d, _)| told(walk, d, None));
        }
        let ways = ways.into_iter().take(WAYS);
        let mut after: Vec<(Vec<Decision>, Way)> = Vec::new();
        for way in ways.filter(|w| (w.packet.dst, w.packet.dport) == self.bound_for) {
            let mut done = way.steps.clone();
            let mut packet = way.packet.clone();
            let (dev, local) = walk.output(&packet)?;
            packet.oif = Some(dev);
            if !way.verdict.passes() || local {
                return None;
            }
            if self.hook == Hook::Prerouting {
                let mut forward = walk.rules.traverse(Hook::Forward, &packet, walk.node).ways;
                let passed = forward
                    .pop()
                    .filter(|w| forward.is_empty() && w.verdict.passes())?;
                done.extend(passed.steps);
                packet = passed.packet;
            }
            let last = walk
                .rules
                .traverse(Hook::Postrouting, &packet, walk.node)
                .ways;
            after.extend(last.into_iter().map(|w| (done.clone(), w)));
        }
        let ends = after
            .iter()
            .map(|(done, w)| (w, w.translation(), &done[..]));
        let (decision, done) = only(ends, |way| {
            // Which address the kernel lends is known only where there is one.
            way.packet.src == rewrite.to.addr || way.packet.src == rewrite.from.addr
        })?;
        Some(told(walk, decision, Some(done)))
    }
}

/// The translation of the ways that agree with what was seen, if it is one
/// rule's and no way is unknown before it.
fn only<'a>(
    ways: impl Iterator<Item = (&'a Way, Option<&'a Decision>, &'a [Decision])>,
    agrees: impl Fn(&Way) -> bool,
) -> Option<(&'a Decision, &'a [Decision])> {
    let mut found: Option<(&Decision, &[Decision])> = None;
    for (way, translation, done) in ways {
        let Some(decision) = translation else {
            if matches!(way.verdict, Verdict::Unknown { .. }) {
                return None;
            }
            continue;
        };
        if !agrees(way) {
            continue;
        }
        match found {
            Some((other, _)) if place(other) != place(decision) => return None,
            Some(_) => {}
            None => found = Some((decision, done)),
        }
    }
    found
}

/// Which rule it was; copies of a way differ in other things.
fn place(decision: &Decision) -> Option<(&str, &str, usize)> {
    let rule = decision.rule.as_ref()?;
    Some((&*rule.variant, &*rule.chain, rule.index))
}

fn leads_to(way: &Way, to: &Endpoint) -> bool {
    way.packet.dst == to.addr && (way.packet.dport.is_none() || way.packet.dport == to.port)
}

/// The rule in the form of the trace; `done` are the decisions before it, where
/// a mark may have been set.
fn told(walk: &Walk<'_>, decision: &Decision, done: Option<&[Decision]>) -> Rule {
    let path = stack(decision);
    let service = path
        .iter()
        .rev()
        .find_map(|chain| names::service_of_chain(walk.rules, chain))
        .map(|s| {
            let port = if s.port.is_empty() { "" } else { ":" };
            format!("{}/{}{port}{}", s.namespace, s.name, s.port).into()
        });
    let rule = decision.rule.as_ref();
    let by_mark = rule.is_some_and(|r| asks_for_mark(walk, r));
    Rule {
        table: Some(Arc::clone(&decision.table)),
        chain: rule.map(|r| Arc::clone(&r.chain)),
        text: rule.map(|r| Arc::clone(&r.text)),
        comment: rule.and_then(|r| r.comment.clone()),
        path,
        service,
        mark: done.filter(|_| by_mark).and_then(marked_by),
        inferred: true,
        from: Some(WALKED.into()),
        ..Rule::default()
    }
}

/// Whether the rule, or one before it in its chain, looks at the mark.
fn asks_for_mark(walk: &Walk<'_>, rule: &RuleRef) -> bool {
    let tables = walk.rules.tables().iter();
    let chain = tables
        .filter(|t| t.name == rule.table && t.variant == rule.variant && t.ipv6 == rule.ipv6)
        .find_map(|t| t.chains.get(&rule.chain));
    chain.is_some_and(|c| {
        let up_to = c.rules.iter().take(rule.index);
        up_to.into_iter().any(|r| r.text.contains("-m mark"))
    })
}

/// The last mark that a rule of nat's set, and the rule that called its chain.
fn marked_by(done: &[Decision]) -> Option<MarkedBy> {
    let nat = done.iter().rev().filter(|d| &*d.table == "nat");
    let (decision, change) = nat
        .flat_map(|d| d.marks.iter().rev().map(move |m| (d, m)))
        .find(|(_, m)| m.after & !m.before != 0)?;
    let mut visits = decision.path.iter().rev();
    let via = visits.find(|v| v.chain == change.rule.chain)?.via.as_ref();
    let text = via.unwrap_or(&change.rule.text);
    Some(MarkedBy {
        bits: change.after & !change.before,
        chain: caller(text).unwrap_or(&change.rule.chain).into(),
        text: Arc::clone(text),
        comment: comment(text),
    })
}

/// The chain that a rule, as it was written, is in.
fn caller(text: &str) -> Option<&str> {
    text.strip_prefix("-A ")?.split(' ').next()
}

/// The comment in a rule's text that says most: Felix adds a hash of its own.
fn comment(text: &str) -> Option<Arc<str>> {
    let quoted = text.split("--comment \"").skip(1);
    let told = quoted.filter_map(|rest| rest.split('"').next());
    told.filter(|c| !c.starts_with("cali:"))
        .last()
        .map(Arc::from)
}

/// The chains that called one another down to where it was decided; those that
/// were left again are not among them.
fn stack(decision: &Decision) -> Vec<Arc<str>> {
    let mut visits = decision.path.iter().rev();
    let mut chains = Vec::new();
    let mut wanted: Option<Arc<str>> = decision.rule.as_ref().map(|r| Arc::clone(&r.chain));
    while let Some(visit) = visits.find(|v| wanted.as_ref().is_none_or(|w| *w == v.chain)) {
        chains.push(Arc::clone(&visit.chain));
        let Some(from) = visit.via.as_deref().and_then(caller) else {
            break;
        };
        wanted = Some(from.into());
    }
    chains.reverse();
    chains
}

#[cfg(test)]
mod tests;
