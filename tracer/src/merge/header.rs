//! The merged header and closing line.

use std::collections::BTreeMap;

use super::source::{Source, add};
use crate::state::{NamespaceKind, State};
use crate::trace::{Closing, Header, SCHEMA, Tool};

/// Nodes, tools and hooks of all; what is missing with the nodes it is missing on.
pub(super) fn header(sources: &[Source], notes: &mut Vec<String>) -> Header {
    let Some(first) = sources.first() else {
        return Header::default();
    };
    let other = sources
        .iter()
        .find(|s| s.header.request != first.header.request);
    if let Some(other) = other {
        notes.push(format!(
            "{} and {} were asked to follow different things: what only one of them followed is missing on the nodes of the other",
            first.files.join(", "),
            other.files.join(", ")
        ));
    }
    let mut nodes = Vec::new();
    let mut known: Vec<(usize, _)> = Vec::new();
    for source in sources {
        for node in &source.header.nodes {
            let key = (source.machine, node.name.clone());
            if known.contains(&key) {
                continue;
            }
            known.push(key);
            nodes.push(node.clone());
        }
    }
    let tool = Tool {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        kernel: by_source(sources, |t| vec![t.kernel.clone()]).join(", "),
        hooks: by_source(sources, |t| t.hooks.clone()),
        degraded: named(sources, |t| t.degraded.clone(), false),
    };
    Header {
        schema: SCHEMA.into(),
        tool,
        request: first.header.request.clone(),
        nodes,
        ..Header::default()
    }
}

/// Entries of all tools: those that all have as they are, others with the
/// nodes that have them.
fn by_source(sources: &[Source], of: impl Fn(&Tool) -> Vec<String>) -> Vec<String> {
    named(sources, of, true)
}

fn named(sources: &[Source], of: impl Fn(&Tool) -> Vec<String>, plain: bool) -> Vec<String> {
    let mut order: Vec<String> = Vec::new();
    let mut owners: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (i, source) in sources.iter().enumerate() {
        for entry in of(&source.header.tool) {
            let owners = owners.entry(entry.clone()).or_insert_with(|| {
                order.push(entry);
                Vec::new()
            });
            owners.push(i);
        }
    }
    let told = |entry: String| {
        let owners = owners.get(&entry).map_or(&[][..], Vec::as_slice);
        if plain && owners.len() == sources.len() {
            return entry;
        }
        let mut names: Vec<String> = Vec::new();
        for name in owners
            .iter()
            .filter_map(|i| sources.get(*i))
            .map(Source::name)
        {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        format!("{}: {entry}", names.join(", "))
    };
    order.into_iter().map(told).collect()
}

/// State and losses of all. Of a node that is in several the last reading.
pub(super) fn closing(sources: &mut [Source]) -> Closing {
    let mut closing = Closing::default();
    let mut state = State::default();
    let mut any = false;
    let mut of_machine = Vec::new();
    for source in &mut *sources {
        closing.losses = add(closing.losses, source.closing.losses);
        if closing.probe.is_none() {
            closing.probe = source.closing.probe.take();
        }
        let Some(read) = source.closing.state.take() else {
            continue;
        };
        any = true;
        state.cluster = state.cluster.or(read.cluster);
        for namespace in read.namespaces {
            let key = (source.machine, namespace.netns);
            let known = of_machine.iter().position(|k| *k == key);
            match known.and_then(|i| state.namespaces.get_mut(i)) {
                Some(before) if before.read_at < namespace.read_at => *before = namespace,
                Some(_) => {}
                None => {
                    of_machine.push(key);
                    state.namespaces.push(namespace);
                }
            }
        }
    }
    // Nodes first, as in every recording.
    state
        .namespaces
        .sort_by_key(|n| n.kind == NamespaceKind::Pod);
    closing.state = any.then(|| Box::new(state));
    closing.ended = sources.iter().filter_map(|s| s.ended).max();
    closing
}
