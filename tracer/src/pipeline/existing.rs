//! Connections that were there before the tool: found in the nodes' conntrack
//! tables, tagged under all their tuples, told to the assembler.

use std::collections::HashMap;
use std::sync::Arc;

use tracer_common::tuple::{DIR_REPLY, DIR_REQUEST, Tag, Tuple};

use crate::conntrack::{self, Entry};
use crate::discover::Discovery;
use crate::event::{Body, CtSource, CtTuple, Event};
use crate::target::{Request, to_addr};
use crate::time;
use crate::trace::Role;

/// Connections beyond this are left to be found by their packets.
const MOST: usize = 2048;

/// What was found.
#[derive(Default)]
pub(super) struct Existing {
    /// Tuples to tag.
    pub(super) tags: Vec<(Tuple, Tag)>,
    /// `Dumped` events for the assembler.
    pub(super) events: Vec<Event>,
    /// Sentences about tables that could not be read.
    pub(super) missing: Vec<String>,
}

fn tuple(t: &CtTuple) -> Tuple {
    Tuple {
        src: to_addr(t.src),
        dst: to_addr(t.dst),
        sport: t.sport,
        dport: t.dport,
        proto: u32::from(t.proto),
    }
}

/// Entries of connections that are over say nothing about the next one with
/// the same ports.
fn is_over(entry: &Entry) -> bool {
    matches!(entry.tcp_state, Some("TIME_WAIT" | "CLOSE" | "NONE"))
}

/// Reads the nodes' tables.
pub(super) fn find(discovery: &Discovery, request: &Request) -> Existing {
    let mut existing = Existing::default();
    let mut tables = Vec::new();
    for node in &discovery.nodes {
        match conntrack::dump(&node.ns, |e| !is_over(e)) {
            Ok(dump) => tables.push((node, dump.entries)),
            Err(e) => existing.missing.push(format!(
                "the conntrack table of {} cannot be read ({e}): translations of connections that are already there are not known",
                node.name
            )),
        }
    }
    // Original tuples of followed connections: as asked for first, then as one
    // node's translation hands them to the next.
    let mut flows: HashMap<Tuple, u64> = HashMap::new();
    let now = time::boot_now_ns();
    for round in 0..3 {
        let mut found = Vec::new();
        for (node, entries) in &tables {
            for entry in entries {
                let original = tuple(&entry.original);
                let known = flows.get(&original).copied();
                let flow = match (round, known) {
                    (0, None) if request.is_met_by(&entry.original) && flows.len() < MOST => {
                        ((now + flows.len() as u64) << 6) | 1 << 63
                    }
                    (1.., Some(flow)) => flow,
                    _ => continue,
                };
                if round == 0 {
                    flows.insert(original, flow);
                }
                found.push((*node, *entry, flow));
            }
        }
        for (node, entry, flow) in found {
            let translated = tuple(&entry.reply).inverse();
            flows.entry(translated).or_insert(flow);
            if round == 2 {
                existing.add(&node.name, &entry, flow, now);
            }
        }
    }
    existing
}

impl Existing {
    fn add(&mut self, node: &Arc<str>, entry: &Entry, flow: u64, now: u64) {
        let tag = |dir| Tag { flow, dir };
        self.tags.push((tuple(&entry.original), tag(DIR_REQUEST)));
        self.tags.push((tuple(&entry.reply), tag(DIR_REPLY)));
        self.events.push(Event {
            ts: now.wrapping_add_signed(time::boot_to_epoch_ns()),
            skb: 0,
            flow,
            reply: false,
            node: node.clone(),
            iface: Arc::from(""),
            role: Role::Other,
            len: 0,
            mark: 0,
            body: Body::Conntrack {
                how: CtSource::Dumped,
                original: entry.original,
                reply: entry.reply,
                ct: 0,
                status: entry.status,
                mark: entry.mark,
                zone: entry.zone,
                masquerade: false,
            },
        });
    }
}
