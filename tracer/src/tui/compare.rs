//! Two packets step by step: which steps correspond, and where they first
//! differ.

use crate::output::text::{address, clean, words};
use crate::trace::{Packet, Step};

/// Longest path that is aligned; what is beyond follows unaligned.
const MOST: usize = 256;

/// Two steps, or one that the other packet has not.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Pair {
    pub(crate) left: Option<usize>,
    pub(crate) right: Option<usize>,
    /// In which way they differ; empty where they do not.
    pub(crate) differs: Vec<&'static str>,
}

/// The place of a step, the same for every packet that passes there.
fn same_place(a: &Step, b: &Step) -> bool {
    a.kind == b.kind && a.node == b.node && a.iface == b.iface
}

/// What two steps at one place have that is not the same. Ports of clients,
/// sequence numbers and times differ between any two packets.
fn differences(a: &Step, b: &Step) -> Vec<&'static str> {
    let mut out = Vec::new();
    let mut differ = |differs: bool, what| {
        if differs {
            out.push(what);
        }
    };
    differ(a.src.addr != b.src.addr, "source");
    differ(a.dst.addr != b.dst.addr, "destination");
    let new = |s: &Step| s.rewrite.as_ref().map(|r| (r.field, r.to.addr));
    differ(new(a) != new(b), "rewrite");
    let outer = |s: &Step| s.tunnel.as_ref().map(|t| (t.src, t.dst, t.vni));
    differ(outer(a) != outer(b), "tunnel");
    let hop = |s: &Step| s.route.as_ref().map(|r| (r.dev.clone(), r.via));
    differ(hop(a) != hop(b), "route");
    differ(a.rule != b.rule, "rule");
    differ(a.drop != b.drop, "drop");
    out
}

/// The steps of both, those at the same place beside each other: the longest
/// common way.
pub(crate) fn align(left: &Packet, right: &Packet) -> Vec<Pair> {
    let a = &left.steps[..left.steps.len().min(MOST)];
    let b = &right.steps[..right.steps.len().min(MOST)];
    // common[i][j]: steps in common from i and j on.
    let mut common = vec![vec![0u16; b.len() + 1]; a.len() + 1];
    for i in (0..a.len()).rev() {
        for j in (0..b.len()).rev() {
            common[i][j] = if same_place(&a[i], &b[j]) {
                common[i + 1][j + 1] + 1
            } else {
                common[i + 1][j].max(common[i][j + 1])
            };
        }
    }
    let mut out = Vec::new();
    let (mut i, mut j) = (0, 0);
    while i < left.steps.len() || j < right.steps.len() {
        let both = i < a.len() && j < b.len();
        if both && same_place(&a[i], &b[j]) {
            out.push(Pair {
                left: Some(i),
                right: Some(j),
                differs: differences(&a[i], &b[j]),
            });
            i += 1;
            j += 1;
        } else if i < left.steps.len() && (!both || common[i + 1][j] >= common[i][j + 1]) {
            out.push(Pair {
                left: Some(i),
                right: None,
                differs: vec!["only in A"],
            });
            i += 1;
        } else {
            out.push(Pair {
                left: None,
                right: Some(j),
                differs: vec!["only in B"],
            });
            j += 1;
        }
    }
    out
}

/// The first pair that differs.
pub(crate) fn first_difference(pairs: &[Pair]) -> Option<usize> {
    pairs.iter().position(|p| !p.differs.is_empty())
}

/// A step in one cell.
pub(crate) fn cell(packet: &Packet, at: usize) -> String {
    let Some(step) = packet.steps.get(at) else {
        return String::new();
    };
    let mark = if step.inferred { "~" } else { " " };
    let words = words::step(step, &packet.steps[..at]);
    clean(&format!("{mark}{} {words}", step.node))
}

/// Source and destination of a packet's first step.
pub(crate) fn ends(packet: &Packet) -> String {
    packet.steps.first().map_or_else(String::new, |s| {
        clean(&format!("{} -> {}", address(&s.src), address(&s.dst)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::Outcome;
    use crate::tui::samples;

    #[test]
    fn a_packet_is_like_itself() {
        let trace = samples::recording("c20");
        for packet in &trace.packets {
            let pairs = align(packet, packet);
            assert_eq!(pairs.len(), packet.steps.len());
            assert_eq!(first_difference(&pairs), None);
        }
    }

    #[test]
    fn every_step_is_there_once() {
        let trace = samples::recording("c38");
        for a in &trace.packets {
            for b in &trace.packets {
                let pairs = align(a, b);
                let left: Vec<_> = pairs.iter().filter_map(|p| p.left).collect();
                let right: Vec<_> = pairs.iter().filter_map(|p| p.right).collect();
                assert_eq!(left, (0..a.steps.len()).collect::<Vec<_>>());
                assert_eq!(right, (0..b.steps.len()).collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn the_drop_is_the_first_difference() {
        let good = samples::recording("c38");
        let good = good
            .packets
            .iter()
            .find(|p| p.outcome == Outcome::Delivered && p.summary == "SYN" && p.steps.len() > 4);
        let good = good.unwrap();
        let mut bad = good.clone();
        bad.steps.truncate(4);
        let last = bad.steps.last_mut().unwrap();
        last.kind = crate::trace::StepKind::Drop;
        let pairs = align(good, &bad);
        let first = first_difference(&pairs).unwrap();
        assert_eq!(first, 3);
    }
}
