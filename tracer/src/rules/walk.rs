//! One packet's way through the chains of one table.

use std::cell::Cell;
use std::sync::Arc;

use super::Ruleset;
use super::check::{Answer, Asked};
use super::decision::{
    Alternative, Assumption, ChainVisit, Decision, MarkChange, NearMiss, RuleRef, Verdict,
};
use super::local::Local;
use super::model::{Chain, Condition, Match, Rule, Table, Target};
use super::packet::{CtState, Packet};

/// Rules looked at in one walk, all alternatives together.
const RULES: usize = 2_000_000;
/// Ways that chance and lists may open.
const WAYS: usize = 20_000;
/// Chains within chains, as many as `iptables` allows (`IPT_RECURSION_LIMIT` is
/// no less).
const DEPTH: usize = 512;
/// Choices on one way that fell out true: as deep does a walk call itself.
const CHOICES: u32 = 64;
/// Unknown matches whose both outcomes are tried, one after another.
const TRIES: u32 = 5;
/// Near misses kept.
const NEAR: usize = 64;

/// A walk through one table.
pub(super) struct Walk<'a> {
    pub(super) rules: &'a Ruleset,
    pub(super) table: &'a Table,
    pub(super) local: &'a dyn Local,
    looked_at: Cell<usize>,
    ways: Cell<usize>,
}

/// Where a walk stands.
#[derive(Clone)]
struct State<'a> {
    packet: Packet,
    base: &'a Chain,
    frames: Vec<(&'a Chain, usize)>,
    probability: f64,
    assuming: Vec<Assumption>,
    path: Vec<ChainVisit>,
    marks: Vec<MarkChange>,
    untracked: Option<RuleRef>,
    failed: Vec<NearMiss>,
    choices: u32,
    tries: u32,
}

/// Whether a rule's conditions hold.
enum Holds {
    Yes,
    No,
    Nearly(usize),
    Chance(f64),
    Recent(Arc<str>, Arc<str>),
    Unknown(String),
}

impl<'a> Walk<'a> {
    pub(super) fn new(rules: &'a Ruleset, table: &'a Table, local: &'a dyn Local) -> Self {
        Self {
            rules,
            table,
            local,
            looked_at: Cell::new(0),
            ways: Cell::new(1),
        }
    }

    /// Every way through the table from a built-in chain; their probabilities
    /// sum to 1 for each set of assumptions.
    pub(super) fn ways(
        &self,
        base: &'a Chain,
        packet: Packet,
        assuming: Vec<Assumption>,
    ) -> Vec<Alternative> {
        self.explore(State {
            packet,
            base,
            frames: vec![(base, 0)],
            probability: 1.0,
            assuming,
            path: vec![ChainVisit {
                chain: Arc::clone(&base.name),
                via: None,
            }],
            marks: Vec::new(),
            untracked: None,
            failed: Vec::new(),
            choices: 0,
            tries: 0,
        })
    }

    fn explore(&self, mut state: State<'a>) -> Vec<Alternative> {
        let mut done = Vec::new();
        loop {
            let Some((chain, next)) = state.frames.last_mut() else {
                let verdict = match state.base.policy {
                    Some(policy) => Verdict::Policy(policy),
                    None => unknown("the chain's policy was not read"),
                };
                done.push(self.end(state, verdict, None));
                return done;
            };
            let chain = *chain;
            let Some(rule) = chain.rules.get(*next) else {
                state.frames.pop();
                continue;
            };
            *next += 1;
            let looked_at = self.looked_at.replace(self.looked_at.get() + 1);
            if looked_at > RULES
                || self.ways.get() > WAYS
                || state.frames.len() > DEPTH
                || state.choices > CHOICES
            {
                let rule = self.refer(chain, rule);
                done.push(self.end(state, unknown("there are too many ways"), Some(rule)));
                return done;
            }
            match self.holds(rule, &state) {
                Holds::No => {}
                Holds::Nearly(at) => self.note(chain, rule, at, &mut state),
                Holds::Yes => {
                    if let Some(verdict) = self.apply(chain, rule, &mut state) {
                        let rule = self.refer(chain, rule);
                        done.push(self.end(state, verdict, Some(rule)));
                        return done;
                    }
                }
                Holds::Chance(p) => {
                    let mut hit = state.clone();
                    hit.probability *= p;
                    hit.choices += 1;
                    state.probability *= 1.0 - p;
                    done.extend(self.taken(chain, rule, hit));
                    self.ways.set(self.ways.get() + 1);
                }
                Holds::Recent(list, options) => {
                    // Asked again, with an answer assumed.
                    if let Some((_, next)) = state.frames.last_mut() {
                        *next -= 1;
                    }
                    let assumption = |listed| Assumption {
                        list: Arc::clone(&list),
                        options: Arc::clone(&options),
                        listed,
                    };
                    let mut hit = state.clone();
                    hit.assuming.push(assumption(true));
                    hit.choices += 1;
                    state.assuming.push(assumption(false));
                    done.extend(self.explore(hit));
                    self.ways.set(self.ways.get() + 1);
                }
                // It makes no difference.
                Holds::Unknown(_) if matches!(rule.target, Target::None | Target::Continue(_)) => {}
                Holds::Unknown(what) => {
                    done.extend(self.either(chain, rule, state, &what));
                    return done;
                }
            }
        }
    }

    /// What follows from a rule that holds.
    fn taken(&self, chain: &'a Chain, rule: &'a Rule, mut state: State<'a>) -> Vec<Alternative> {
        match self.apply(chain, rule, &mut state) {
            None => self.explore(state),
            Some(verdict) => {
                let rule = self.refer(chain, rule);
                vec![self.end(state, verdict, Some(rule))]
            }
        }
    }

    /// A rule that nobody knows whether it holds: if all comes out the same, it
    /// does not matter.
    fn either(
        &self,
        chain: &'a Chain,
        rule: &'a Rule,
        mut state: State<'a>,
        what: &str,
    ) -> Vec<Alternative> {
        let undecided = |state| {
            let rule = self.refer(chain, rule);
            vec![self.end(state, unknown(what), Some(rule))]
        };
        if state.tries == TRIES {
            return undecided(state);
        }
        state.tries += 1;
        let hit = self.taken(chain, rule, state.clone());
        let missed = self.explore(state.clone());
        if hit.len() == missed.len() && hit.iter().zip(&missed).all(|(a, b)| same(a, b)) {
            missed
        } else {
            undecided(state)
        }
    }

    fn asked<'s>(&'s self, state: &'s State<'_>) -> Asked<'s> {
        Asked {
            sets: &self.rules.sets,
            packet: &state.packet,
            local: self.local,
            assuming: &state.assuming,
        }
    }

    fn holds(&self, rule: &Rule, state: &State<'_>) -> Holds {
        let asked = self.asked(state);
        let mut chance = 1.0;
        let mut failed = None;
        let mut open = None;
        for (at, condition) in rule.conditions.iter().enumerate() {
            match asked.check(condition, &rule.conditions) {
                Answer::Is(true) => {}
                Answer::Is(false) if failed.is_some() => return Holds::No,
                Answer::Is(false) => failed = Some(at),
                Answer::Chance(p) => chance *= p,
                Answer::Recent { list, options } => open = Some(Holds::Recent(list, options)),
                Answer::Unknown(what) => open = open.or(Some(Holds::Unknown(what))),
            }
        }
        match (failed, open) {
            (Some(at), None) => Holds::Nearly(at),
            (Some(_), Some(_)) => Holds::No,
            (None, Some(open)) => open,
            (None, None) if chance >= 1.0 => Holds::Yes,
            (None, None) if chance <= 0.0 => Holds::No,
            (None, None) => Holds::Chance(chance),
        }
    }

    /// Keeps a rule that failed by one match, if it would have let the packet pass.
    fn note(&self, chain: &Chain, rule: &Rule, at: usize, state: &mut State<'_>) {
        let passes = match rule.target {
            Target::Accept => true,
            // A mark by which a later rule accepts.
            Target::Mark(op) => op.clear & op.xor != 0,
            _ => false,
        };
        let Some(failed) = rule.conditions.get(at) else {
            return;
        };
        if passes && state.failed.len() < NEAR && is_telling(failed, rule.conditions.len()) {
            let why = self.asked(state).why(failed).into();
            let rule = self.refer(chain, rule);
            state.failed.push(NearMiss { rule, why });
        }
    }

    /// Does what the rule's target says; a verdict ends the walk.
    fn apply(&self, chain: &'a Chain, rule: &'a Rule, state: &mut State<'a>) -> Option<Verdict> {
        match &rule.target {
            Target::None | Target::Continue(_) => {}
            Target::Accept => return Some(Verdict::Accept),
            Target::Drop => return Some(Verdict::Drop),
            Target::Reject(with) => {
                return Some(Verdict::Reject {
                    with: Arc::clone(with),
                });
            }
            Target::Return => {
                state.frames.pop();
            }
            Target::Jump(to) | Target::Goto(to) => {
                let Some(to) = self.table.chains.get(to) else {
                    return Some(unknown(&format!("chain {to} is not there")));
                };
                if matches!(rule.target, Target::Goto(_)) {
                    state.frames.pop();
                }
                state.frames.push((to, 0));
                state.path.push(ChainVisit {
                    chain: Arc::clone(&to.name),
                    via: Some(Arc::clone(&rule.text)),
                });
            }
            Target::Mark(op) => self.mark(chain, rule, state, op.apply(state.packet.mark)),
            Target::SetConnMark(op) => {
                if let Some(mark) = state.packet.connmark() {
                    state.packet.ct.mark = Some(op.apply(mark));
                }
            }
            Target::SaveMark { nf, ct } => {
                // All bits of the connection's mark may be replaced without knowing it.
                let old = match state.packet.connmark() {
                    None if *ct == u32::MAX => Some(0),
                    old => old,
                };
                let saved = state.packet.mark & nf;
                state.packet.ct.mark = old.map(|old| (old & !ct) ^ saved);
            }
            Target::RestoreMark { nf, ct } => match state.packet.connmark() {
                Some(mark) => {
                    let mark = (state.packet.mark & !nf) ^ (mark & ct);
                    self.mark(chain, rule, state, mark);
                }
                None if !tracked(&state.packet) => {}
                None => return Some(unknown("the packet's connection mark, which is not known")),
            },
            Target::NoTrack => {
                if state.untracked.is_none() {
                    state.untracked = Some(self.refer(chain, rule));
                }
            }
            Target::Dnat(to) => return Some(Verdict::Dnat(*to)),
            Target::Snat(to) => return Some(Verdict::Snat(*to)),
            Target::Masquerade(to) => return Some(Verdict::Masquerade(*to)),
            Target::Redirect(to) => return Some(Verdict::Redirect(*to)),
            Target::Queue => return Some(Verdict::Queue),
            Target::Unknown { name, args } => {
                return Some(unknown(format!("target {name} {args}").trim_end()));
            }
        }
        None
    }

    fn mark(&self, chain: &Chain, rule: &Rule, state: &mut State<'_>, mark: u32) {
        let before = std::mem::replace(&mut state.packet.mark, mark);
        if before != mark {
            state.marks.push(MarkChange {
                rule: self.refer(chain, rule),
                before,
                after: mark,
            });
        }
    }

    fn end(&self, state: State<'_>, verdict: Verdict, rule: Option<RuleRef>) -> Alternative {
        let failed = if verdict.denies() {
            state.failed
        } else {
            Vec::new()
        };
        Alternative {
            probability: state.probability,
            assuming: state.assuming,
            decision: Decision {
                table: Arc::clone(&self.table.name),
                variant: Arc::clone(&self.table.variant),
                verdict,
                rule,
                path: state.path,
                marks: state.marks,
                mark: state.packet.mark,
                connmark: state.packet.connmark(),
                untracked: state.untracked,
                failed,
                alternatives: Vec::new(),
            },
        }
    }

    fn refer(&self, chain: &Chain, rule: &Rule) -> RuleRef {
        RuleRef {
            ipv6: self.table.ipv6,
            variant: Arc::clone(&self.table.variant),
            table: Arc::clone(&self.table.name),
            chain: Arc::clone(&chain.name),
            index: rule.index,
            text: Arc::clone(&rule.text),
            comment: rule.comment(),
            packets: rule.counters.map(|c| c.0),
            bytes: rule.counters.map(|c| c.1),
        }
    }
}

pub(super) fn unknown(what: &str) -> Verdict {
    Verdict::Unknown { what: what.into() }
}

fn tracked(packet: &Packet) -> bool {
    !matches!(packet.ct.state, Some(CtState::Invalid | CtState::Untracked))
}

/// The same outcome, whatever the way.
fn same(a: &Alternative, b: &Alternative) -> bool {
    let (d, e) = (&a.decision, &b.decision);
    a.assuming == b.assuming
        && (a.probability - b.probability).abs() < 1e-9
        && (&d.verdict, &d.rule, d.mark, d.connmark) == (&e.verdict, &e.rule, e.mark, e.connmark)
        && d.untracked.is_some() == e.untracked.is_some()
}

/// Whether it says something that a rule failed by this match alone. Marks and
/// conntrack's states follow from other rules; a rule with but one match is near
/// only to packets of certain addresses or ports.
fn is_telling(failed: &Condition, of: usize) -> bool {
    match failed.test {
        Match::Mark(..) | Match::ConnMark(..) | Match::Ct(_) => false,
        Match::Source(_)
        | Match::Destination(_)
        | Match::SourcePort(_)
        | Match::DestinationPort(_)
        | Match::Set { .. } => true,
        _ => of > 1,
    }
}
