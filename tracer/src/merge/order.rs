//! One order for the steps of all sources: by time, each source's own order
//! kept, and nothing arrives before it left.

use rustc_hash::FxHashMap;

use super::identity::Pair;
use super::overlap::Twice;
use super::source::Source;
use super::visit::Visit;

/// Steps as places in their sources.
#[derive(Debug, Default)]
pub(super) struct Ordered {
    pub(super) steps: Vec<(usize, usize)>,
    /// Packets that arrived before they left, by the clocks.
    pub(super) contradictions: u64,
}

/// Puts the steps of sources, whose times are those of one clock, in order.
pub(super) fn order(
    sources: &[Source],
    visits: &[Visit],
    pairs: &[Pair],
    twice: &Twice,
) -> Ordered {
    // What each arrival waits for.
    let mut waits: FxHashMap<(usize, usize), (usize, usize)> = FxHashMap::default();
    let ts = |(source, at): (usize, usize)| {
        sources
            .get(source)
            .and_then(|s| s.steps.get(at))
            .map_or(0, |s| s.ts)
    };
    let mut ordered = Ordered::default();
    for pair in pairs {
        let (Some(from), Some(to)) = (visits.get(pair.from), visits.get(pair.to)) else {
            continue;
        };
        if let (Some(left), Some(came)) = (from.departure, to.arrival) {
            let (left, came) = ((from.source, left), (to.source, came));
            ordered.contradictions += u64::from(ts(came) < ts(left));
            waits.insert(came, left);
        }
    }
    let mut next = vec![0_usize; sources.len()];
    ordered
        .steps
        .reserve(sources.iter().map(|s| s.steps.len()).sum());
    loop {
        let (mut best, mut any) = (None, None);
        for (source, at) in next.iter().copied().enumerate() {
            if sources.get(source).is_none_or(|s| at >= s.steps.len()) {
                continue;
            }
            let candidate = (ts((source, at)), source);
            let earlier = |than: Option<(u64, usize)>| than.is_none_or(|than| candidate < than);
            let waiting = waits
                .get(&(source, at))
                .is_some_and(|(other, left)| next.get(*other).is_some_and(|n| n <= left));
            if earlier(any) {
                any = Some(candidate);
            }
            if !waiting && earlier(best) {
                best = Some(candidate);
            }
        }
        // All wait for each other: the pairs contradict themselves.
        let Some((_, source)) = best.or(any) else {
            break;
        };
        let Some(at) = next.get_mut(source) else {
            break;
        };
        if !twice.steps.contains(&(source, *at)) {
            ordered.steps.push((source, *at));
        }
        *at += 1;
    }
    ordered
}
