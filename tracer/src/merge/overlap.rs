//! Sources of one node under one kernel that were recorded at the same time
//! hold the same packets. Their clock is the same, so that a packet with the
//! same headers at the same place and moment is the same; what both saw of it
//! is shown once.

use rustc_hash::{FxHashMap, FxHashSet};

use super::source::Source;
use super::visit::Visit;
use crate::trace::Step;

/// Two looks at one passage are this close, in nanoseconds: programs of two
/// runs at one hook come one after the other.
const CLOSE: u64 = 5_000_000;
/// Packets with the same headers that are looked at for one.
const COMPARED: usize = 1024;

/// What is in two sources.
#[derive(Debug, Default)]
pub(super) struct Twice {
    /// Packets, each with the one in an earlier source that it is.
    pub(super) packets: Vec<((usize, u64), (usize, u64))>,
    /// Steps that an earlier source has as well.
    pub(super) steps: FxHashSet<(usize, usize)>,
}

/// Where a step is, and of what packet: equal for two looks at one passage.
fn same(a: &Step, b: &Step) -> bool {
    (&a.node, &a.iface, a.kind) == (&b.node, &b.iface, b.kind)
        && (a.src.addr, a.src.port, a.dst.addr, a.dst.port)
            == (b.src.addr, b.src.port, b.dst.addr, b.dst.port)
        && (&a.proto, &a.tcp, &a.ip, a.payload, a.tunnel.is_some())
            == (&b.proto, &b.tcp, &b.ip, b.payload, b.tunnel.is_some())
        && a.ts.abs_diff(b.ts) <= CLOSE
}

/// Looks through sources that share a node.
pub(super) fn find(sources: &[Source], visits: &[Visit]) -> Twice {
    let mut twice = Twice::default();
    for later in 1..sources.len() {
        for earlier in 0..later {
            let (Some(a), Some(b)) = (sources.get(earlier), sources.get(later)) else {
                continue;
            };
            let nodes = a.nodes();
            if a.machine == b.machine && b.nodes().iter().any(|n| nodes.contains(n)) {
                between(sources, visits, earlier, later, &mut twice);
            }
        }
    }
    twice
}

fn between(sources: &[Source], visits: &[Visit], earlier: usize, later: usize, twice: &mut Twice) {
    let steps = |source: usize| sources.get(source).map_or(&[][..], |s| s.steps.as_slice());
    let key = |s: &Step| {
        (
            s.src.addr,
            s.src.port,
            s.dst.addr,
            s.dst.port,
            s.ip.as_ref().map(|ip| ip.id),
            s.tcp.as_ref().map(|t| (t.seq, t.ack)),
            s.payload,
        )
    };
    let firsts = visits.iter().filter(|v| v.source == later);
    let firsts = firsts.filter_map(|v| Some((v.packet, steps(later).get(v.first?)?)));
    let mut known: FxHashMap<_, Vec<(u64, &Step)>> = FxHashMap::default();
    for step in steps(earlier) {
        if let Some(packet) = step.packet {
            known.entry(key(step)).or_default().push((packet, step));
        }
    }
    let mut same_packet: FxHashMap<u64, u64> = FxHashMap::default();
    for (packet, step) in firsts {
        let candidates = known.get(&key(step)).into_iter().flatten().take(COMPARED);
        let mut twins = candidates.filter(|(_, other)| same(other, step));
        if let (Some((twin, _)), None) = (twins.next(), twins.next()) {
            same_packet.entry(packet).or_insert(*twin);
        }
    }
    let mut of_packet: FxHashMap<u64, Vec<&Step>> = FxHashMap::default();
    for step in steps(earlier) {
        if let Some(packet) = step.packet {
            of_packet.entry(packet).or_default().push(step);
        }
    }
    for (at, step) in steps(later).iter().enumerate() {
        let Some(twin) = step.packet.and_then(|p| same_packet.get(&p)) else {
            continue;
        };
        let has = of_packet
            .get(twin)
            .is_some_and(|s| s.iter().any(|other| same(other, step)));
        if has {
            twice.steps.insert((later, at));
        }
    }
    let joined = same_packet
        .into_iter()
        .map(|(p, twin)| ((later, p), (earlier, twin)));
    twice.packets.extend(joined);
    twice.packets.sort_unstable();
}
