//! What a merged trace knows of its clocks, in words.

use crate::trace::{Merged, Source};

/// A line for each source whose clock is not the first one's.
pub(super) fn lines(merged: &Merged) -> Vec<String> {
    let others = merged.sources.iter().skip(1);
    others.map(|s| line(s, &merged.sources)).collect()
}

fn line(source: &Source, all: &[Source]) -> String {
    let name = |s: &Source| {
        let names: Vec<&str> = s.nodes.iter().map(|n| &**n).collect();
        if names.is_empty() {
            s.files.join(", ")
        } else {
            names.join(", ")
        }
    };
    let first = all.first().map_or_else(String::new, name);
    let (clock, own) = (&source.clock, name(source));
    let packets = |n: u64| format!("{n} {}", if n == 1 { "packet" } else { "packets" });
    if (clock.low, clock.high, clock.offset) == (Some(0), Some(0), 0) {
        return format!("{own} has the clock of {first}: the same kernel");
    }
    let drift = clock.drift.map_or_else(String::new, |d| {
        let way = if d < 0 { "fast" } else { "slow" };
        format!(", running {:.1} ppm {way}", d.unsigned_abs() as f64 / 1e3)
    });
    if let Some(half) = clock.uncertainty() {
        return format!(
            "{own} was {} {first}, give or take {}{drift}: {} left it and {} arrived",
            shift(clock.offset),
            time(half),
            packets(clock.left),
            packets(clock.arrived)
        );
    }
    // What is added is at least `low`, and at most `high`.
    let most = |bound: i64, most: bool| {
        if most == (bound >= 0) {
            "at most"
        } else {
            "at least"
        }
    };
    let bound = match (clock.low, clock.high) {
        (Some(low), _) => format!("{} {}", most(low, false), shift(low)),
        (_, Some(high)) => format!("{} {}", most(high, true), shift(high)),
        (None, None) => {
            return format!(
                "{own} and {first}: no packet is in both recordings; their clocks are taken as they were, and nothing shows how far apart they are"
            );
        }
    };
    format!(
        "{own} was {bound} {first}: packets of one direction are in both recordings, so their time on the way is not known"
    )
}

/// `3.2 ms ahead of`: what was added, the other way round.
fn shift(offset: i64) -> String {
    match offset {
        0 => "level with".into(),
        n if n < 0 => format!("{} ahead of", time(n.unsigned_abs())),
        n => format!("{} behind", time(n.unsigned_abs())),
    }
}

/// Nanoseconds with a unit that fits.
fn time(ns: u64) -> String {
    let ns = ns as f64;
    if ns < 1e6 {
        format!("{:.1} us", ns / 1e3)
    } else if ns < 1e9 {
        format!("{:.3} ms", ns / 1e6)
    } else {
        format!("{:.6} s", ns / 1e9)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::Clock;

    fn told(clock: Clock) -> String {
        let source = |name: &str, clock| Source {
            nodes: vec![name.into()],
            clock,
            ..Source::default()
        };
        let merged = Merged {
            sources: vec![source("a", Clock::default()), source("b", clock)],
            ..Merged::default()
        };
        lines(&merged).remove(0)
    }

    #[test]
    fn clocks_in_words() {
        let known = |offset, half, drift| Clock {
            offset,
            low: Some(offset - half),
            high: Some(offset + half),
            drift,
            left: 1,
            arrived: 6,
        };
        let text = told(known(-137_000_012_000, 4_100, None));
        assert_eq!(
            text,
            "b was 137.000012 s ahead of a, give or take 4.1 us: 1 packet left it and 6 packets arrived"
        );
        let text = told(known(2_000_000, 1_000, Some(-50_000)));
        assert!(
            text.starts_with("b was 2.000 ms behind a, give or take 1.0 us, running 50.0 ppm fast"),
            "{text}"
        );
        assert!(told(known(0, 0, None)).ends_with("the same kernel"));
        let one = |low, high| {
            told(Clock {
                low,
                high,
                ..Clock::default()
            })
        };
        assert!(one(Some(5_000), None).starts_with("b was at least 5.0 us behind a:"));
        assert!(one(Some(-5_000), None).starts_with("b was at most 5.0 us ahead of a:"));
        assert!(one(None, Some(5_000)).starts_with("b was at most 5.0 us behind a:"));
        assert!(one(None, Some(-5_000)).starts_with("b was at least 5.0 us ahead of a:"));
        assert!(one(None, None).contains("no packet is in both"));
    }
}
