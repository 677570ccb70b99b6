//! All tables of a hook, in the kernel's order.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use super::Ruleset;
use super::decision::{Alternative, Assumption, ChainVisit, Decision, Translation, Verdict};
use super::local::Local;
use super::packet::{Ct, CtState, Packet};
use super::walk::{Walk, unknown};

/// A hook of netfilter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hook {
    /// Before routing.
    Prerouting,
    /// To a local process.
    Input,
    /// Through the host.
    Forward,
    /// From a local process.
    Output,
    /// After routing.
    Postrouting,
}

impl Hook {
    /// The built-in chain at this hook.
    pub fn chain(self) -> &'static str {
        match self {
            Self::Prerouting => "PREROUTING",
            Self::Input => "INPUT",
            Self::Forward => "FORWARD",
            Self::Output => "OUTPUT",
            Self::Postrouting => "POSTROUTING",
        }
    }

    /// Tables at this hook, in the order of their priorities
    /// (`include/uapi/linux/netfilter_ipv4.h`).
    pub fn tables(self) -> &'static [&'static str] {
        match self {
            Self::Prerouting => &["raw", "mangle", "nat"],
            Self::Input => &["mangle", "filter", "security", "nat"],
            Self::Forward => &["mangle", "filter", "security"],
            Self::Output => &["raw", "mangle", "nat", "filter", "security"],
            Self::Postrouting => &["mangle", "nat"],
        }
    }

    /// The packet as it comes to this hook: where there is no interface, there
    /// is none to be known, and of a connection that begins here all is known.
    fn prepare(self, mut packet: Packet) -> Packet {
        match self {
            Self::Prerouting | Self::Input => packet.oif = Some("".into()),
            Self::Output => packet.iif = Some("".into()),
            Self::Forward | Self::Postrouting => {}
        }
        let begins = matches!(self, Self::Prerouting | Self::Output);
        if begins && packet.ct.state == Some(CtState::New) {
            let Packet {
                src,
                dst,
                sport,
                dport,
                ..
            } = packet;
            let ct = &mut packet.ct;
            for bit in [
                &mut ct.snat,
                &mut ct.dnat,
                &mut ct.confirmed,
                &mut ct.seen_reply,
                &mut ct.assured,
                &mut ct.reply,
            ] {
                bit.get_or_insert(false);
            }
            ct.original_src.get_or_insert((src, sport));
            ct.original_dst.get_or_insert((dst, dport));
        }
        packet
    }
}

/// What all tables of a hook do with a packet.
#[derive(Clone, Debug, PartialEq)]
pub struct Traversal {
    /// One for each way that chance, or a list that is not known, may choose.
    pub ways: Vec<Way>,
}

/// One way through a hook.
#[derive(Clone, Debug, PartialEq)]
pub struct Way {
    /// Its probability among those with the same assumptions; they sum to 1.
    pub probability: f64,
    /// What has to be so for it.
    pub assuming: Vec<Assumption>,
    /// What each table decided, in order; tables without rules there are left out.
    pub steps: Vec<Decision>,
    /// What becomes of the packet: [`Verdict::Accept`] if it goes on, else the
    /// last step's verdict. A translation is in its step.
    pub verdict: Verdict,
    /// The packet as it leaves the hook. Where a source's translation does not
    /// say the address, it still has the old one.
    pub packet: Packet,
}

impl Traversal {
    /// What becomes of the packet, if that is the same on every way.
    pub fn verdict(&self) -> Option<&Verdict> {
        let first = &self.ways.first()?.verdict;
        self.ways
            .iter()
            .all(|w| w.verdict == *first)
            .then_some(first)
    }
}

impl Way {
    /// The step that ended the packet, or that left it unknown.
    pub fn end(&self) -> Option<&Decision> {
        self.steps
            .last()
            .filter(|_| self.verdict != Verdict::Accept)
    }

    /// The step that translated.
    pub fn translation(&self) -> Option<&Decision> {
        self.steps.iter().find(|s| s.verdict.translates().is_some())
    }
}

impl Ruleset {
    /// What one table does with a packet at a hook; `None` where no variant has
    /// rules there. Of nft and legacy, which run at the same priority in an
    /// order that depends on which was there first, the stricter one decides.
    pub fn evaluate(
        &self,
        hook: Hook,
        table: &str,
        packet: &Packet,
        local: &dyn Local,
    ) -> Option<Decision> {
        let packet = hook.prepare(packet.clone());
        join(self.table(hook, table, &packet, &[], local))
    }

    /// What all tables of a hook do with a packet, with conntrack between raw and
    /// mangle. The nat table is asked for new connections only; marks and
    /// rewritten addresses are carried on.
    pub fn traverse(&self, hook: Hook, packet: &Packet, local: &dyn Local) -> Traversal {
        let mut ways = vec![Way {
            probability: 1.0,
            assuming: Vec::new(),
            steps: Vec::new(),
            verdict: Verdict::Accept,
            packet: hook.prepare(packet.clone()),
        }];
        for table in hook.tables() {
            let through = |way| self.through(hook, table, way, local);
            ways = ways.into_iter().flat_map(through).collect();
        }
        Traversal { ways }
    }

    fn through(&self, hook: Hook, table: &str, way: Way, local: &dyn Local) -> Vec<Way> {
        if way.verdict != Verdict::Accept {
            return vec![way];
        }
        let first = way.packet.ct.state;
        if table == "nat" && !matches!(first, Some(CtState::New) | None) {
            return vec![way];
        }
        let found = self.table(hook, table, &way.packet, &way.assuming, local);
        if found.is_empty() {
            return vec![way];
        }
        let next = |found: Alternative| {
            let mut way = way.clone();
            way.probability *= found.probability;
            way.assuming = found.assuming;
            let mut decision = found.decision;
            if table == "nat" && first.is_none() && decision.verdict != POLICY_ACCEPT {
                decision.verdict = unknown("the packet's connection state, which is not known");
            }
            way.take(hook, decision, local);
            way
        };
        found.into_iter().map(next).collect()
    }

    /// Every way through one table, in all its variants.
    fn table(
        &self,
        hook: Hook,
        name: &str,
        packet: &Packet,
        assuming: &[Assumption],
        local: &dyn Local,
    ) -> Vec<Alternative> {
        let mut ways: Vec<Alternative> = Vec::new();
        for table in &self.tables {
            if *table.name != *name || table.ipv6 != packet.dst.is_ipv6() {
                continue;
            }
            let start = |packet: &Packet, assuming: &[Assumption]| {
                if let Some(why) = &table.opaque {
                    let mut way = nowhere(&table.name, &table.variant, packet, assuming);
                    way.decision.verdict = unknown(&format!("table {name}: {why}"));
                    return vec![way];
                }
                table.chains.get(hook.chain()).map_or(Vec::new(), |base| {
                    Walk::new(self, table, local).ways(base, packet.clone(), assuming.to_vec())
                })
            };
            if ways.is_empty() {
                ways = start(packet, assuming);
                continue;
            }
            let mut both = Vec::new();
            for before in ways {
                let mut packet = packet.clone();
                packet.mark = before.decision.mark;
                packet.ct.mark = before.decision.connmark;
                let after = start(&packet, &before.assuming);
                if after.is_empty() {
                    both.push(before);
                } else {
                    both.extend(after.into_iter().map(|after| stricter(&before, after)));
                }
            }
            ways = both;
        }
        ways
    }
}

const POLICY_ACCEPT: Verdict = Verdict::Policy(super::Policy::Accept);

impl Way {
    fn take(&mut self, hook: Hook, decision: Decision, local: &dyn Local) {
        self.packet.mark = decision.mark;
        self.packet.ct.mark = decision.connmark;
        if decision.untracked.is_some() {
            self.packet.ct = Ct {
                state: Some(CtState::Untracked),
                ..Ct::default()
            };
        }
        if !decision.verdict.passes() {
            self.verdict = decision.verdict.clone();
        } else if let Err(what) = translate(&mut self.packet, hook, &decision.verdict, local) {
            self.verdict = unknown(&what);
        }
        self.steps.push(decision);
    }
}

/// Rewrites the packet; fails where the new destination cannot be told.
fn translate(
    packet: &mut Packet,
    hook: Hook,
    verdict: &Verdict,
    local: &dyn Local,
) -> Result<(), String> {
    let ipv6 = packet.dst.is_ipv6();
    match verdict {
        Verdict::Dnat(to) => {
            if to.addrs.is_some() {
                packet.dst = to
                    .addr()
                    .ok_or_else(|| format!("which of {to} is chosen"))?;
            }
            packet.dport = port(to, packet.dport);
            packet.ct.dnat = Some(true);
        }
        Verdict::Redirect(to) => {
            packet.dst = match (hook, packet.iif.as_deref()) {
                (Hook::Output, _) if ipv6 => Ipv6Addr::LOCALHOST.into(),
                (Hook::Output, _) => Ipv4Addr::LOCALHOST.into(),
                (_, iif) => iif
                    .and_then(|dev| local.address(dev, ipv6))
                    .ok_or("the address of the input interface")?,
            };
            packet.dport = port(to, packet.dport);
            packet.ct.dnat = Some(true);
        }
        Verdict::Snat(to) | Verdict::Masquerade(to) => {
            let lent = || local.address(packet.oif.as_deref()?, ipv6);
            let addr: Option<IpAddr> = match verdict {
                Verdict::Masquerade(_) => lent(),
                _ => to.addr(),
            };
            packet.src = addr.unwrap_or(packet.src);
            packet.sport = port(to, packet.sport);
            packet.ct.snat = Some(true);
        }
        _ => {}
    }
    Ok(())
}

fn port(to: &Translation, old: Option<u16>) -> Option<u16> {
    if to.random {
        None
    } else if to.ports.is_some() {
        to.port()
    } else {
        old
    }
}

/// A way that has not begun.
fn nowhere(
    table: &Arc<str>,
    variant: &Arc<str>,
    packet: &Packet,
    assuming: &[Assumption],
) -> Alternative {
    Alternative {
        probability: 1.0,
        assuming: assuming.to_vec(),
        decision: Decision {
            table: Arc::clone(table),
            variant: Arc::clone(variant),
            verdict: POLICY_ACCEPT,
            rule: None,
            path: Vec::new(),
            marks: Vec::new(),
            mark: packet.mark,
            connmark: packet.connmark(),
            untracked: None,
            failed: Vec::new(),
            alternatives: Vec::new(),
        },
    }
}

/// Of two variants' decisions about one packet, the stricter one. Two different
/// translations exclude each other, and which comes first is not known.
fn stricter(before: &Alternative, mut after: Alternative) -> Alternative {
    after.probability *= before.probability;
    let first = &before.decision;
    let second = &mut after.decision;
    let both = first.verdict.translates().is_some() && second.verdict.translates().is_some();
    let mut marks = first.marks.clone();
    marks.append(&mut second.marks);
    second.marks = marks;
    second.untracked = second.untracked.take().or_else(|| first.untracked.clone());
    if both && first.verdict != second.verdict {
        second.verdict = unknown("which of iptables' two variants comes first");
    } else if first.verdict.weight() > second.verdict.weight() {
        *second = Decision {
            marks: std::mem::take(&mut second.marks),
            mark: second.mark,
            connmark: second.connmark,
            untracked: second.untracked.take(),
            ..first.clone()
        };
    }
    after
}

/// One decision out of all ways.
fn join(mut ways: Vec<Alternative>) -> Option<Decision> {
    if ways.len() == 1 {
        return ways.pop().map(|way| way.decision);
    }
    let first = ways.first()?;
    let mut decision = first.decision.clone();
    for way in &ways[1..] {
        let other = &way.decision;
        if other.verdict != decision.verdict {
            decision.verdict = Verdict::Depends;
        }
        if other.rule != decision.rule {
            decision.rule = None;
        }
        decision.path = common(&decision.path, &other.path);
        decision.marks.retain(|m| other.marks.contains(m));
        decision.failed.retain(|m| other.failed.contains(m));
        if other.untracked != decision.untracked {
            decision.untracked = None;
        }
        if other.connmark != decision.connmark {
            decision.connmark = None;
        }
    }
    decision.alternatives = ways;
    Some(decision)
}

fn common(a: &[ChainVisit], b: &[ChainVisit]) -> Vec<ChainVisit> {
    let same = a.iter().zip(b).take_while(|(a, b)| a == b);
    same.map(|(a, _)| a.clone()).collect()
}
