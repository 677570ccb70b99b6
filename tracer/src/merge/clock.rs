//! How far clocks are apart. No packet arrives before it left: each that went
//! from A to B says that B's clock, corrected, is not earlier than so much, and
//! each that went back that it is not later. Between the tightest of both lies
//! the offset, as with NTP (RFC 5905 section 8); half the distance is how far
//! it may be off. Where no one offset fits them all, the clocks drift, and a
//! straight line is looked for.

use super::identity::Pair;
use super::source::Source;
use super::visit::Visit;
use crate::trace::Clock;
use crate::trace::run::ASSUMED;

/// Fastest drift that is believed: a clock that NTP corrects changes by at most
/// 500 ppm, on each side.
const FASTEST: f64 = 1e-3;
/// Steps of the search for the drift; each narrows it to two thirds.
const SEARCH: usize = 60;

/// How a source's times become those of the first.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Shift {
    /// Its time from which the drift counts.
    since: u64,
    offset: i64,
    drift: f64,
    low: Option<i64>,
    high: Option<i64>,
    left: u64,
    arrived: u64,
    /// Sources that packets connect have the same number.
    group: usize,
    contradicted: bool,
}

impl Shift {
    /// A time by the first source's clock.
    pub(super) fn apply(&self, ts: u64) -> u64 {
        let since = ts as i64 - self.since as i64;
        let drifted = (since as f64 * self.drift).round() as i64;
        ts.saturating_add_signed(self.offset.saturating_add(drifted))
    }

    /// For the header.
    pub(super) fn told(&self) -> Clock {
        let rooted = self.group == 0;
        Clock {
            offset: self.offset,
            low: self.low.filter(|_| rooted),
            high: self.high.filter(|_| rooted),
            drift: (self.drift != 0.0).then(|| (self.drift * 1e9).round() as i64),
            left: self.left,
            arrived: self.arrived,
        }
    }

    fn margin(&self) -> i64 {
        match (self.low, self.high) {
            (Some(low), Some(high)) => high.saturating_sub(low) / 2 + 1,
            _ => ASSUMED as i64,
        }
    }
}

/// All clocks.
#[derive(Debug, Default)]
pub(super) struct Clocks {
    /// One for each source.
    pub(super) of: Vec<Shift>,
    /// Longest time that a packet took between nodes.
    longest: Option<i64>,
}

impl Clocks {
    /// By how much times of two sources may be apart from each other, and the
    /// longest time that a packet needed; none where nothing is known.
    pub(super) fn between(&self, a: usize, b: usize) -> Option<(i64, i64)> {
        let (a, b) = (self.of.get(a)?, self.of.get(b)?);
        let longest = self.longest.unwrap_or(ASSUMED as i64);
        let margin = a.margin().saturating_add(b.margin());
        (a.group == b.group).then_some((margin, longest))
    }

    /// A source's time by the first one's clock.
    pub(super) fn apply(&self, source: usize, ts: u64) -> i64 {
        self.of.get(source).map_or(ts, |shift| shift.apply(ts)) as i64
    }
}

/// A packet between two machines: when it left by the one's clock and when it
/// arrived by the other's.
struct Seen {
    from: usize,
    to: usize,
    sent: u64,
    got: u64,
}

fn seen(sources: &[Source], visits: &[Visit], pairs: &[Pair]) -> Vec<Seen> {
    let one = |pair: &Pair| {
        let (from, to) = (visits.get(pair.from)?, visits.get(pair.to)?);
        let (a, b) = (sources.get(from.source)?, sources.get(to.source)?);
        Some(Seen {
            from: a.machine,
            to: b.machine,
            sent: a.steps.get(from.departure?)?.ts,
            got: b.steps.get(to.arrival?)?.ts,
        })
    };
    pairs.iter().filter_map(one).collect()
}

/// The clocks that packets in two recordings show.
pub(super) fn estimate(sources: &[Source], visits: &[Visit], pairs: &[Pair]) -> Clocks {
    let seen = seen(sources, visits, pairs);
    let count = sources.iter().map(|s| s.machine + 1).max().unwrap_or(0);
    let begin = |machine: usize| {
        let of_it = sources.iter().filter(|s| s.machine == machine);
        let times = of_it.flat_map(|s| s.steps.iter().map(|s| s.ts).chain(s.began));
        times.min().unwrap_or(0)
    };
    let mut placed: Vec<Option<Shift>> = vec![None; count];
    for group in 0..count {
        let Some(root) = placed.iter().position(Option::is_none) else {
            break;
        };
        let exact = (root == 0).then_some(0);
        let clock = Shift {
            since: begin(root),
            low: exact,
            high: exact,
            group,
            ..Shift::default()
        };
        if let Some(place) = placed.get_mut(root) {
            *place = Some(clock);
        }
        while let Some(machine) = next(&seen, &placed) {
            let shift = place(machine, begin(machine), &seen, &placed, group);
            if let Some(place) = placed.get_mut(machine) {
                *place = Some(shift);
            }
        }
    }
    let of: Vec<Shift> = sources
        .iter()
        .map(|s| placed.get(s.machine).copied().flatten().unwrap_or_default())
        .collect();
    let at = |machine: usize, ts| {
        placed
            .get(machine)
            .copied()
            .flatten()
            .unwrap_or_default()
            .apply(ts) as i64
    };
    let longest = seen
        .iter()
        .map(|s| at(s.to, s.got) - at(s.from, s.sent))
        .max();
    Clocks { of, longest }
}

/// The machine not placed yet that packets tie best to those that are: those
/// of both directions before many of one.
fn next(seen: &[Seen], placed: &[Option<Shift>]) -> Option<usize> {
    let done = |machine: usize| placed.get(machine).is_some_and(Option::is_some);
    let mut counts = vec![(0_usize, 0_usize); placed.len()];
    for s in seen {
        match (done(s.from), done(s.to)) {
            (true, false) => counts.get_mut(s.to)?.0 += 1,
            (false, true) => counts.get_mut(s.from)?.1 += 1,
            _ => {}
        }
    }
    let tied = counts.iter().enumerate().filter(|(_, (a, b))| a + b > 0);
    tied.max_by_key(|(_, (a, b))| (*a.min(b), a + b))
        .map(|(machine, _)| machine)
}

/// A bound on the offset at a time of the machine, as seconds are too coarse in
/// nanoseconds: relative to `base`.
type Bound = (f64, f64);

fn place(
    machine: usize,
    since: u64,
    seen: &[Seen],
    placed: &[Option<Shift>],
    group: usize,
) -> Shift {
    let clock = |other: usize| placed.get(other).copied().flatten();
    let (mut lows, mut highs) = (Vec::new(), Vec::new());
    let mut margin = 0;
    for s in seen {
        if s.to == machine
            && let Some(from) = clock(s.from)
        {
            lows.push((s.got, from.apply(s.sent) as i64 - s.got as i64));
            margin = margin.max(exactness(&from));
        } else if s.from == machine
            && let Some(to) = clock(s.to)
        {
            highs.push((s.sent, to.apply(s.got) as i64 - s.sent as i64));
            margin = margin.max(exactness(&to));
        }
    }
    let base = lows.first().or(highs.first()).map_or(0, |(_, v)| *v);
    let near = |list: &[(u64, i64)]| -> Vec<Bound> {
        let relative = |(t, v): &(u64, i64)| {
            (
                (*t as i64 - since as i64) as f64,
                v.saturating_sub(base) as f64,
            )
        };
        list.iter().map(relative).collect()
    };
    let (low_points, high_points) = (near(&lows), near(&highs));
    let drift = drift(&low_points, &high_points);
    let low = highest(&low_points, drift).map(|v| base.saturating_add(v.ceil() as i64));
    let high = lowest(&high_points, drift).map(|v| base.saturating_add(v.floor() as i64));
    let (offset, contradicted) = match (low, high) {
        (Some(low), Some(high)) => (low.saturating_add(high.saturating_sub(low) / 2), low > high),
        (one, other) => (one.or(other).unwrap_or(0), false),
    };
    let (low, high) = if contradicted {
        (high, low)
    } else {
        (low, high)
    };
    Shift {
        since,
        offset,
        drift,
        low: low.map(|v| v.saturating_sub(margin)),
        high: high.map(|v| v.saturating_add(margin)),
        left: highs.len() as u64,
        arrived: lows.len() as u64,
        group,
        contradicted,
    }
}

/// How far off the clock that another is measured by may be itself.
fn exactness(shift: &Shift) -> i64 {
    match (shift.low, shift.high) {
        (Some(low), Some(high)) => high.saturating_sub(low) / 2 + 1,
        _ => 0,
    }
}

/// The tightest lower bound at the beginning, for a given drift.
fn highest(points: &[Bound], drift: f64) -> Option<f64> {
    points
        .iter()
        .map(|(t, v)| v - drift * t)
        .max_by(f64::total_cmp)
}

fn lowest(points: &[Bound], drift: f64) -> Option<f64> {
    points
        .iter()
        .map(|(t, v)| v - drift * t)
        .min_by(f64::total_cmp)
}

/// No drift where no drift fits; else that which leaves most room between the
/// bounds. The room is a concave function of the drift, so that a search from
/// both sides finds its top.
fn drift(lows: &[Bound], highs: &[Bound]) -> f64 {
    let room = |drift: f64| match (lowest(highs, drift), highest(lows, drift)) {
        (Some(high), Some(low)) => high - low,
        _ => f64::INFINITY,
    };
    if room(0.0) >= 0.0 {
        return 0.0;
    }
    let (mut from, mut to) = (-FASTEST, FASTEST);
    for _ in 0..SEARCH {
        let third = (to - from) / 3.0;
        let (a, b) = (from + third, to - third);
        if room(a) < room(b) {
            from = a;
        } else {
            to = b;
        }
    }
    let best = f64::midpoint(from, to);
    // What no line fits is no drift.
    if room(best) >= -1.0 { best } else { 0.0 }
}

/// What is to be said about clocks that are not known well.
pub(super) fn notes(clocks: &Clocks, sources: &[Source], notes: &mut Vec<String>) {
    let mut told = Vec::new();
    for (source, clock) in sources.iter().zip(&clocks.of).skip(1) {
        if source.machine == 0 || told.contains(&source.machine) {
            continue;
        }
        told.push(source.machine);
        let name = source.name();
        let first = sources.first().map_or_else(String::new, Source::name);
        let of_one = |way: &str| {
            format!(
                "packets between {name} and the others are in two recordings only on their way {way} it: its clock is placed so that the fastest took no time, and times between nodes are not to be trusted"
            )
        };
        match (clock.low, clock.high) {
            _ if clock.contradicted => notes.push(format!(
                "no offset and no steady drift of {name}'s clock fits all packets: it was set during the recording, or packets were mistaken for others"
            )),
            (Some(_), Some(_)) if clock.group == 0 => {}
            (None, None) => notes.push(format!(
                "no packet is both in the recording of {name} and in that of {first}: their clocks are taken as they are; if they are apart, so is the timeline"
            )),
            _ if clock.group != 0 => notes.push(format!(
                "nothing ties the clock of {name} to that of {first}; it is only known against other recordings"
            )),
            (Some(_), _) => notes.push(of_one("to")),
            (None, Some(_)) => notes.push(of_one("from")),
        }
    }
}
