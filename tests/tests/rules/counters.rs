//! What the kernel counted, by rule.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use tracer_tests::lab::{Iptables, netns, program};

/// A rule of a node: node, table, the line that `iptables-save` writes; for a policy `:CHAIN`.
pub(crate) type Key = (Box<str>, Box<str>, Box<str>);
/// Packets by rule; where a line is there twice, of both.
pub(crate) type Counts = BTreeMap<Key, u64>;

/// Reads the counters of a node.
pub(crate) fn read(node: &str, iptables: Iptables) -> Result<Counts> {
    let text = netns::within(node, || program::run(iptables.save(), &["-c"], ""))?;
    let mut counts = Counts::new();
    let mut table = "";
    for line in text.lines() {
        if let Some(name) = line.strip_prefix('*') {
            table = name;
        }
        let (what, count) = if let Some(policy) = line.strip_prefix(':') {
            let mut words = policy.split(' ');
            let (name, policy) = (words.next(), words.next());
            if policy == Some("-") {
                continue;
            }
            let packets = words.next().and_then(|c| packets(c.get(1..)?));
            (format!(":{}", name.unwrap_or_default()), packets)
        } else if let Some((counters, rule)) =
            line.strip_prefix('[').and_then(|l| l.split_once("] "))
        {
            (rule.to_owned(), packets(counters))
        } else {
            continue;
        };
        let count = count.with_context(|| format!("no counters in {line:?}"))?;
        *counts
            .entry((node.into(), table.into(), what.into()))
            .or_default() += count;
    }
    Ok(counts)
}

fn packets(counters: &str) -> Option<u64> {
    counters.split_once(':')?.0.parse().ok()
}

/// What has grown, by how much.
pub(crate) fn grown(before: &Counts, after: &Counts) -> Counts {
    let grew = |(key, count): (&Key, &u64)| {
        let by = count - before.get(key).copied().unwrap_or(0);
        (by > 0).then(|| (key.clone(), by))
    };
    after.iter().filter_map(grew).collect()
}

/// Whether the rule ends the chain or leads to another one; else it goes on or back, and may note something.
pub(crate) fn decides(rule: &str) -> bool {
    const GO_ON: [&str; 8] = [
        "MARK", "CONNMARK", "RETURN", "LOG", "NFLOG", "NOTRACK", "CT", "TCPMSS",
    ];
    let mut words = rule.split(' ');
    let target = words
        .find(|w| matches!(*w, "-j" | "-g"))
        .and_then(|_| words.next());
    rule.starts_with(':') || target.is_some_and(|t| !GO_ON.contains(&t))
}
