//! Runs: files that one run wrote are one source, the same file given twice is
//! read once, and sources of one kernel share their clock.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::clock::Shift;
use super::{Input, listed};
use crate::trace::{self, Closing, Header, Losses, Step};

/// One run.
#[derive(Clone, Debug)]
pub(super) struct Source {
    pub(super) files: Vec<String>,
    pub(super) header: Header,
    pub(super) steps: Vec<Step>,
    pub(super) closing: Closing,
    pub(super) began: Option<u64>,
    pub(super) ended: Option<u64>,
    /// Sources with the same number have the same clock.
    pub(super) machine: usize,
    /// Order in which its parts were written; absent for a file by itself.
    part: Option<u32>,
}

/// No clock is later than this, in the year 2116: differences of times have room
/// in 64 bits.
const LATEST: u64 = (1 << 62) - 1;

impl Source {
    fn new(mut input: Input) -> Self {
        for step in &mut input.steps {
            step.ts = step.ts.min(LATEST);
        }
        let times = || input.steps.iter().map(|s| s.ts);
        let closing = input.closing.unwrap_or_default();
        let read = closing.state.iter().flat_map(|s| &s.namespaces);
        let last = read.map(|n| n.read_at).chain(times()).max();
        let began = input.header.run.as_ref().map(|r| r.began);
        Self {
            began: began
                .filter(|ts| *ts > 0)
                .or_else(|| times().min())
                .map(|ts| ts.min(LATEST)),
            ended: closing.ended.or(last).map(|ts| ts.min(LATEST)),
            files: vec![input.name],
            part: input.header.run.as_ref().and_then(|r| r.part),
            header: input.header,
            steps: input.steps,
            closing,
            machine: 0,
        }
    }

    /// Names of its nodes.
    pub(super) fn nodes(&self) -> Vec<Arc<str>> {
        let nodes = self.header.nodes.iter();
        nodes.map(|n| Arc::clone(&n.name)).collect()
    }

    /// For a sentence: its nodes, or its file where it knows none.
    pub(super) fn name(&self) -> String {
        let nodes = self.nodes();
        if nodes.is_empty() {
            self.files.join(", ")
        } else {
            listed(&nodes)
        }
    }

    /// Moves all times to the clock of the first source.
    pub(super) fn shift(&mut self, by: &Shift) {
        for step in &mut self.steps {
            step.ts = by.apply(step.ts);
        }
        self.began = self.began.map(|ts| by.apply(ts));
        self.ended = self.ended.map(|ts| by.apply(ts));
        for namespace in self
            .closing
            .state
            .iter_mut()
            .flat_map(|s| &mut s.namespaces)
        {
            namespace.read_at = by.apply(namespace.read_at.min(LATEST));
        }
    }

    /// What the merged header says of it.
    pub(super) fn told(&self, by: &Shift) -> trace::Source {
        trace::Source {
            files: self.files.clone(),
            nodes: self.nodes(),
            began: self.began,
            ended: self.ended,
            clock: by.told(),
        }
    }

    /// Takes the next part of the same run.
    fn append(&mut self, next: Self) {
        self.files.extend(next.files);
        self.steps.extend(next.steps);
        for node in next.header.nodes {
            if !self.header.nodes.iter().any(|n| n.name == node.name) {
                self.header.nodes.push(node);
            }
        }
        let losses = add(self.closing.losses, next.closing.losses);
        // Only the last part has a state and a report.
        self.closing = next.closing;
        self.closing.losses = losses;
        self.ended = next.ended.or(self.ended);
        self.part = next.part;
    }

    fn same_run(&self, other: &Self) -> bool {
        let (Some(a), Some(b)) = (&self.header.run, &other.header.run) else {
            return false;
        };
        (&a.boot, a.began) == (&b.boot, b.began) && !a.boot.is_empty()
    }

    fn same_kernel(&self, other: &Self) -> bool {
        let boot = |s: &Self| {
            let run = s.header.run.as_ref();
            run.map(|r| Arc::clone(&r.boot)).filter(|b| !b.is_empty())
        };
        if let (Some(a), Some(b)) = (boot(self), boot(other)) {
            return a == b;
        }
        // Without it: the same namespace under the same name is no accident.
        self.header.tool.kernel == other.header.tool.kernel
            && self.header.nodes.iter().any(|a| {
                let nodes = other.header.nodes.iter();
                a.netns != 0
                    && nodes
                        .clone()
                        .any(|b| (&a.name, a.netns) == (&b.name, b.netns))
            })
    }
}

/// Sum of losses.
pub(super) fn add(a: Losses, b: Losses) -> Losses {
    Losses {
        ring_buffer: a.ring_buffer.saturating_add(b.ring_buffer),
        user_space: a.user_space.saturating_add(b.user_space),
        other: a.other.saturating_add(b.other),
    }
}

/// The runs, in the order of their first file.
pub(super) fn group(inputs: Vec<Input>, notes: &mut Vec<String>) -> Vec<Source> {
    let mut sources: Vec<Source> = Vec::new();
    for mut part in in_order(inputs) {
        let same = |s: &&Source| s.header == part.header && s.steps == part.steps;
        if let Some(twin) = sources.iter().find(same) {
            notes.push(format!(
                "{} holds the same as {} and was left out",
                part.files.join(", "),
                twin.files.join(", ")
            ));
            continue;
        }
        let before = sources
            .iter_mut()
            .find(|s| s.part.is_some() && s.same_run(&part));
        match (before, part.part) {
            (Some(before), Some(number)) if before.part == Some(number) => notes.push(format!(
                "{} is part {number} of a run that was given already, and was left out",
                part.files.join(", ")
            )),
            (Some(before), Some(number)) => {
                if before.part.is_some_and(|n| n + 1 != number) {
                    notes.push(format!(
                        "between {} and {} at least one file of the same run is missing; what was lost with it is not counted",
                        before.files.last().map_or("", String::as_str),
                        part.files.join(", ")
                    ));
                    part.closing.losses.other = part.closing.losses.other.saturating_add(1);
                    // Nobody knows what was recorded in between.
                    before.began = part.began.max(part.steps.iter().map(|s| s.ts).min());
                }
                before.append(part);
            }
            _ => sources.push(part),
        }
    }
    assign_machines(&mut sources);
    tell_twice(&sources, notes);
    sources
}

/// Parts of one run one after the other, in place of the first of them that
/// was given.
fn in_order(inputs: Vec<Input>) -> Vec<Source> {
    let mut sources: Vec<Source> = inputs.into_iter().map(Source::new).collect();
    let mut first: BTreeMap<(String, u64), usize> = BTreeMap::new();
    let mut places = Vec::new();
    for (i, source) in sources.iter().enumerate() {
        let place = match (&source.header.run, source.part) {
            (Some(run), Some(_)) => *first.entry((run.boot.to_string(), run.began)).or_insert(i),
            _ => i,
        };
        places.push((place, source.part, i));
    }
    places.sort_unstable();
    let mut slots: Vec<Option<Source>> = sources.drain(..).map(Some).collect();
    let taken = places
        .into_iter()
        .filter_map(|(_, _, i)| slots.get_mut(i)?.take());
    taken.collect()
}

fn assign_machines(sources: &mut [Source]) {
    for i in 0..sources.len() {
        let (before, rest) = sources.split_at_mut(i);
        let Some(source) = rest.first_mut() else {
            return;
        };
        let known = before.iter().find(|s| s.same_kernel(source));
        let next = before.iter().map(|s| s.machine + 1).max().unwrap_or(0);
        source.machine = known.map_or(next, |s| s.machine);
    }
}

/// Says when a node is in several sources, which is seldom what was meant.
fn tell_twice(sources: &[Source], notes: &mut Vec<String>) {
    for (i, a) in sources.iter().enumerate() {
        for b in sources.iter().skip(i + 1) {
            let names = a.nodes();
            let both: Vec<Arc<str>> = b
                .nodes()
                .into_iter()
                .filter(|n| names.contains(n))
                .collect();
            if both.is_empty() {
                continue;
            }
            let (a_files, b_files) = (a.files.join(", "), b.files.join(", "));
            let both = listed(&both);
            notes.push(if a.machine == b.machine {
                format!("{a_files} and {b_files} are both of {both}: packets that both hold are shown once")
            } else {
                format!(
                    "{a_files} and {b_files} are both of {both}, but of different kernels: taken for two nodes of the same name, or one that was started anew"
                )
            });
        }
    }
}
