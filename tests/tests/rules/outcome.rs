//! What was foretold of a packet.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use tracer::rules::{Decision, Hook, Packet};

use crate::counters::Counts;

/// One of the ways that a packet may go.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    pub(crate) probability: f64,
    /// What each rule counts.
    pub(crate) counts: Counts,
    /// Where it ended.
    pub(crate) end: String,
    /// What the evaluator could not tell.
    pub(crate) unknown: Option<String>,
    /// It goes where this does not follow it.
    pub(crate) lost: bool,
    /// The connections that the nodes on the way have then.
    pub(crate) conns: Vec<Conn>,
    /// What was decided, in order.
    told: Vec<String>,
}

/// Source and destination; an ICMP message's id is the source's port.
pub(crate) type Ends = [(IpAddr, Option<u16>); 2];

/// A node's connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Conn {
    pub(crate) node: usize,
    /// As its first packet came.
    pub(crate) original: Ends,
    /// As it left.
    pub(crate) translated: Ends,
    /// Its mark, if anything set one.
    pub(crate) mark: Option<u32>,
}

/// A packet's, in the other direction where asked.
pub(crate) fn ends(packet: &Packet, reply: bool) -> Ends {
    let (src, dst) = ((packet.src, packet.sport), (packet.dst, packet.dport));
    match (reply, packet.proto) {
        (false, _) => [src, dst],
        (true, 1) => [(dst.0, src.1), (src.0, None)],
        (true, _) => [dst, src],
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "  p = {}, ends: {}", self.probability, self.end)?;
        self.told
            .iter()
            .try_for_each(|line| writeln!(f, "    {line}"))
    }
}

impl Outcome {
    /// Of a packet that has not gone anywhere yet.
    pub(crate) fn start() -> Self {
        Self {
            probability: 1.0,
            counts: Counts::new(),
            end: String::new(),
            unknown: None,
            lost: false,
            conns: Vec::new(),
            told: Vec::new(),
        }
    }

    /// Adds what a table decided.
    pub(crate) fn count(&mut self, node: &Arc<str>, hook: Hook, decision: &Decision) {
        let table = &*decision.table;
        let mut add = |line: &str| {
            let key = ((&**node).into(), table.into(), line.into());
            *self.counts.entry(key).or_default() += 1;
        };
        for via in decision
            .path
            .iter()
            .filter_map(|visit| visit.via.as_deref())
        {
            add(via);
        }
        match &decision.rule {
            Some(rule) => add(&rule.text),
            None => add(&format!(":{}", hook.chain())),
        }
        for change in &decision.marks {
            add(&change.rule.text);
        }
        if let Some(rule) = &decision.untracked {
            add(&rule.text);
        }
        let chains: Vec<&str> = decision.path.iter().map(|v| &*v.chain).collect();
        let rule = decision.rule.as_ref().map_or("(policy)", |r| &r.text);
        self.told.push(format!(
            "{node} {hook:?} {table} {}: {:?} by {rule}, mark {:#x}",
            chains.join(" > "),
            decision.verdict,
            decision.mark
        ));
    }
}
