//! Recordings of several nodes into one timeline.
//!
//! First the runs: files that one run wrote are put together (`source`). Then
//! the packets: one that left a node and one that arrived at another are the
//! same if their own headers agree (`visit`, `identity`). From the times of
//! those comes how far the clocks are apart (`clock`), which tells apart what
//! looks alike; then steps are put in the order that causality allows, and
//! numbered anew (`order`, `flow`). Pure: no I/O, no clock.

use std::sync::Arc;

use thiserror::Error;

use crate::trace::{Closing, Header, Merged, Step};

mod clock;
mod flow;
mod header;
mod identity;
mod order;
mod overlap;
mod sets;
mod source;
mod visit;

/// A recording that was read.
#[derive(Clone, Debug, Default)]
pub struct Input {
    /// Its file's name, without folders.
    pub name: String,
    /// First line.
    pub header: Header,
    /// Steps as they were written.
    pub steps: Vec<Step>,
    /// Closing line, where there is one.
    pub closing: Option<Closing>,
}

/// What was made of them.
#[derive(Clone, Debug, Default)]
pub struct Output {
    /// Nodes, tools and hooks of all, and how they were merged.
    pub header: Header,
    /// The timeline.
    pub steps: Vec<Step>,
    /// State and losses of all; without a verdict.
    pub closing: Closing,
}

/// Why recordings cannot be merged.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum MergeError {
    /// None was given.
    #[error("there is nothing to merge; give the recordings of two nodes or more")]
    Nothing,
    /// One was merged before, and holds no clock of its own any more.
    #[error("{0} is a merged recording; give the recordings that it was made of")]
    Merged(String),
}

/// How many stages there are, for who says how far it is.
pub const STAGES: u64 = 6;

/// Merges. The clock of the first recording is kept. `stage` is told how many
/// of the [`STAGES`] are done.
pub fn merge(inputs: Vec<Input>, stage: &mut dyn FnMut(u64)) -> Result<Output, MergeError> {
    if inputs.is_empty() {
        return Err(MergeError::Nothing);
    }
    if let Some(input) = inputs.iter().find(|i| i.header.merged.is_some()) {
        return Err(MergeError::Merged(input.name.clone()));
    }
    let mut notes = Vec::new();
    let mut sources = source::group(inputs, &mut notes);
    if let [only] = sources.as_slice() {
        notes.push(format!(
            "there is only one recording, of {}; it is shown as it is",
            only.name()
        ));
    }
    let visits = visit::all(&sources);
    stage(1);
    let twice = overlap::find(&sources, &visits);
    let mut found = identity::certain(&visits, &sources);
    stage(2);
    let rough = clock::estimate(&sources, &visits, &found.pairs);
    identity::alike(&mut found, &visits, &sources, &rough);
    let clocks = clock::estimate(&sources, &visits, &found.pairs);
    stage(3);
    clock::notes(&clocks, &sources, &mut notes);
    found.notes(&mut notes);
    let sets = sets::Sets::new(&sources, &visits, &found.pairs, &twice);
    for (source, clock) in sources.iter_mut().zip(&clocks.of) {
        source.shift(clock);
    }
    let flows = flow::join(&sources, &visits, &found.pairs, &clocks);
    stage(4);
    let ordered = order::order(&sources, &visits, &found.pairs, &twice);
    stage(5);
    if ordered.contradictions > 0 {
        notes.push(format!(
            "{} packets arrived before they left by any clock that fits the others: the order of steps on different nodes is uncertain",
            ordered.contradictions
        ));
    }
    let unsure = found.unsure.iter().filter_map(|v| visits.get(*v));
    let unsure = unsure.map(|v| (v.source, v.packet));
    let numbered = sets.number(&mut sources, &ordered, &flows, unsure);
    let mut header = header::header(&sources, &mut notes);
    header.merged = Some(Box::new(Merged {
        sources: sources
            .iter()
            .zip(&clocks.of)
            .map(|(s, c)| s.told(c))
            .collect(),
        unsure: numbered.unsure.into_iter().collect(),
        notes,
    }));
    stage(STAGES);
    Ok(Output {
        closing: header::closing(&mut sources),
        header,
        steps: numbered.steps,
    })
}

/// Names, for a sentence.
fn listed(names: &[Arc<str>]) -> String {
    names.join(", ")
}

#[cfg(test)]
mod tests;
