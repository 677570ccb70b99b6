//! Where packets came to a node and left it.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::source::Source;
use crate::trace::{Role, Step, StepKind};

/// A packet on one node.
#[derive(Clone, Debug)]
pub(super) struct Visit {
    /// Which source tells of it.
    pub(super) source: usize,
    /// The packet's number there.
    pub(super) packet: u64,
    /// The node.
    pub(super) node: Arc<str>,
    /// Step by which it came from another node: the first one of the packet
    /// there is, at an interface that is not a pod's.
    pub(super) arrival: Option<usize>,
    /// Step by which it left for another node, after which it was not seen.
    pub(super) departure: Option<usize>,
    /// First step at an interface.
    pub(super) first: Option<usize>,
}

/// All visits, by source and in order of their first step.
pub(super) fn all(sources: &[Source]) -> Vec<Visit> {
    let mut visits = Vec::new();
    for (i, source) in sources.iter().enumerate() {
        of(i, &source.steps, &mut visits);
    }
    visits
}

fn of(source: usize, steps: &[Step], visits: &mut Vec<Visit>) {
    let mut latest: FxHashMap<u64, usize> = FxHashMap::default();
    for (at, step) in steps.iter().enumerate() {
        let Some(packet) = step.packet else { continue };
        if step.node.is_empty() {
            continue;
        }
        let known = latest.get(&packet).copied();
        let stays = known.filter(|v| visits.get(*v).is_some_and(|v| v.node == step.node));
        let begins = known.is_none();
        let index = stays.unwrap_or_else(|| {
            if let Some(before) = known.and_then(|v| visits.get_mut(v)) {
                // The source itself knows where it went.
                before.departure = None;
            }
            latest.insert(packet, visits.len());
            visits.push(Visit {
                source,
                packet,
                node: Arc::clone(&step.node),
                arrival: None,
                departure: None,
                first: None,
            });
            visits.len() - 1
        });
        let Some(visit) = visits.get_mut(index) else {
            continue;
        };
        let pod = matches!(step.role, Some(Role::PodVeth | Role::PodEth0));
        match step.kind {
            StepKind::Ingress => {
                if visit.first.is_none() && begins && !pod {
                    visit.arrival = Some(at);
                }
                visit.departure = None;
            }
            StepKind::Egress => visit.departure = (!pod).then_some(at),
            _ => continue,
        }
        visit.first.get_or_insert(at);
    }
}
