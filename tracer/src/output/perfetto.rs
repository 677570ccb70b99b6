//! `perfetto`: Chrome trace JSON, for <https://ui.perfetto.dev>. Nodes are
//! processes, interfaces are their threads; a step is a slice on one, with
//! everything known about it as arguments. Arrows follow each packet, and lead
//! from a packet to the next of its connection.
//!
//! Form: "Trace Event Format", as Perfetto's importer reads it. Times are
//! microseconds since the trace's first step, so that nanoseconds survive in
//! the reader's double-precision numbers; `ts_ns` has the whole number.

use std::collections::HashMap;
use std::io::{self, Write};

use serde_json::{Map, Value, json};

use super::order::{Placed, by_time};
use super::phrase;
use super::text::clean;
use crate::trace::{Step, StepKind, Trace};

/// Longest slice in nanoseconds: a step is a moment, and has to be seen.
const WIDE: u64 = 1_000;
/// Threads for what is no interface's.
const KERNEL: &str = "kernel (observed by hooks)";
const WORKED_OUT: &str = "worked out, not observed";

/// A place on the screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Track {
    pid: usize,
    tid: usize,
}

/// Processes and threads by their names, numbered from 1.
#[derive(Default)]
struct Tracks<'a> {
    nodes: HashMap<&'a str, usize>,
    threads: HashMap<(usize, &'a str), Track>,
    names: Vec<(Track, &'a str)>,
    processes: Vec<&'a str>,
}

impl<'a> Tracks<'a> {
    fn of(&mut self, step: &'a Step) -> Track {
        let next = self.processes.len() + 1;
        let pid = *self.nodes.entry(&step.node).or_insert(next);
        if pid == next {
            self.processes.push(&step.node);
        }
        let thread = match step.kind {
            _ if step.inferred => WORKED_OUT,
            StepKind::Ingress | StepKind::Egress => &step.iface,
            _ => KERNEL,
        };
        let tid = self.threads.len() + 1;
        let track = *self
            .threads
            .entry((pid, thread))
            .or_insert(Track { pid, tid });
        if track.tid == tid {
            self.names.push((track, thread));
        }
        track
    }
}

/// A slice, with its times in nanoseconds since the trace's begin.
struct Slice<'a> {
    placed: Placed<'a>,
    track: Track,
    start: u64,
    end: u64,
}

/// Slices of all steps. Those of one track never overlap, and those of a packet
/// never go back in time: steps of one moment are drawn a nanosecond apart.
fn slices<'a>(steps: &[Placed<'a>], tracks: &mut Tracks<'a>) -> Vec<Slice<'a>> {
    let base = steps.first().map_or(0, |p| p.step().ts);
    let mut ends: HashMap<Track, usize> = HashMap::new();
    let mut packets: HashMap<u64, u64> = HashMap::new();
    let mut slices: Vec<Slice<'a>> = Vec::with_capacity(steps.len());
    for placed in steps {
        let track = tracks.of(placed.step());
        let mut start = placed.step().ts.saturating_sub(base);
        if let Some(before) = packets.get(&placed.packet.id) {
            start = start.max(before.saturating_add(1));
        }
        if let Some(last) = ends.get(&track).and_then(|i| slices.get_mut(*i)) {
            start = start.max(last.start.saturating_add(1));
            last.end = last.end.min(start);
        }
        packets.insert(placed.packet.id, start);
        ends.insert(track, slices.len());
        slices.push(Slice {
            placed: *placed,
            track,
            start,
            end: start.saturating_add(WIDE),
        });
    }
    slices
}

/// Writes events, a line each.
struct Events<'a> {
    out: &'a mut dyn Write,
    first: bool,
}

impl Events<'_> {
    fn event(&mut self, event: &Value) -> io::Result<()> {
        self.out
            .write_all(if self.first { b"\n" } else { b",\n" })?;
        self.first = false;
        serde_json::to_writer(&mut *self.out, event)?;
        Ok(())
    }

    fn name(&mut self, what: &str, track: Track, args: &Value) -> io::Result<()> {
        self.event(
            &json!({"ph": "M", "name": what, "pid": track.pid, "tid": track.tid, "ts": 0, "args": args}),
        )
    }
}

/// Microseconds, exact to the nanosecond.
fn micro(ns: u64) -> Value {
    // 53 bits of nanoseconds are 104 days; only hostile times are longer.
    json!(ns as f64 / 1000.0)
}

/// Writes the trace as Chrome trace JSON.
pub fn write(out: &mut dyn Write, trace: &Trace) -> io::Result<()> {
    let steps = by_time(trace);
    let mut tracks = Tracks::default();
    let slices = slices(&steps, &mut tracks);
    out.write_all(b"{\"displayTimeUnit\":\"ns\",\"otherData\":")?;
    serde_json::to_writer(&mut *out, &about(trace, &steps))?;
    out.write_all(b",\"traceEvents\":[")?;
    let mut events = Events { out, first: true };
    for (i, node) in tracks.processes.iter().enumerate() {
        let track = Track { pid: i + 1, tid: 0 };
        let name = if node.is_empty() {
            "unknown node"
        } else {
            node
        };
        events.name(
            "process_name",
            track,
            &json!({"name": format!("node {}", clean(name))}),
        )?;
        events.name("process_sort_index", track, &json!({"sort_index": i}))?;
    }
    for (i, (track, name)) in tracks.names.iter().enumerate() {
        let name = if name.is_empty() {
            "no interface"
        } else {
            name
        };
        events.name("thread_name", *track, &json!({"name": clean(name)}))?;
        events.name("thread_sort_index", *track, &json!({"sort_index": i}))?;
    }
    let mut arrows = Arrows::new(trace, &slices);
    // A track's slices are shifted only past each other, so this is nearly sorted.
    let mut order: Vec<usize> = (0..slices.len()).collect();
    order.sort_by_key(|i| slices[*i].start);
    for i in order {
        let slice = &slices[i];
        events.event(&slice_event(slice))?;
        arrows.at(slice, &mut events)?;
    }
    let Events { out, .. } = events;
    out.write_all(b"\n]}\n")?;
    out.flush()
}

fn about(trace: &Trace, steps: &[Placed<'_>]) -> Value {
    let closing = &trace.closing;
    json!({
        "tool": clean(&format!("tracer {}", trace.header.tool.version)),
        "kernel": clean(&trace.header.tool.kernel),
        "degraded": trace.header.tool.degraded.iter().map(|d| clean(d)).collect::<Vec<_>>(),
        "begin_ns": steps.first().map(|p| p.step().ts.to_string()),
        "verdict": clean(&format!("{}: {}", closing.verdict.code, closing.verdict.summary)),
        "losses": closing.losses,
    })
}

fn slice_event(slice: &Slice<'_>) -> Value {
    let (packet, step) = (slice.placed.packet, slice.placed.step());
    let category = if step.inferred {
        "worked-out"
    } else {
        "observed"
    };
    let mut args = match serde_json::to_value(step) {
        Ok(Value::Object(args)) => args,
        _ => Map::new(),
    };
    // A double in the reader would round it.
    args.remove("ts");
    let mut told = Map::new();
    told.insert(
        "what".into(),
        phrase::step(step, slice.placed.before()).into(),
    );
    told.insert("ts_ns".into(), step.ts.to_string().into());
    told.insert("packet".into(), packet.id.to_string().into());
    told.insert("flow".into(), packet.flow.to_string().into());
    told.insert("summary".into(), packet.summary.clone().into());
    told.insert("outcome".into(), phrase::outcome(packet.outcome).into());
    for (name, value) in args {
        told.entry(name).or_insert(value);
    }
    let mut event = json!({
        "ph": "X",
        "name": clean(&format!("#{} {}  {}", packet.id, packet.summary, phrase::kind(step.kind))),
        "cat": category,
        "pid": slice.track.pid,
        "tid": slice.track.tid,
        "ts": micro(slice.start),
        "dur": micro(slice.end - slice.start),
        "args": cleaned(Value::Object(told)),
    });
    // Reserved names of the format's palette.
    let colour = match step.kind {
        StepKind::Drop | StepKind::Reject | StepKind::FragmentNeeded => Some("terrible"),
        StepKind::Deliver => Some("good"),
        _ if step.inferred => Some("grey"),
        _ => None,
    };
    if let Some(colour) = colour {
        event["cname"] = colour.into();
    }
    event
}

/// The same without what could play tricks on a screen.
fn cleaned(value: Value) -> Value {
    match value {
        Value::String(s) => clean(&s).into(),
        Value::Array(all) => all.into_iter().map(cleaned).collect(),
        Value::Object(all) => {
            let all = all.into_iter().map(|(k, v)| (clean(&k), cleaned(v)));
            Value::Object(all.collect())
        }
        other => other,
    }
}

/// An arrow between the last step of one packet and the first of another.
struct Link {
    id: usize,
    name: &'static str,
}

/// Which arrows begin, pass and end where.
struct Arrows {
    /// Packets with more than one step, and the number of their arrow.
    ways: HashMap<u64, usize>,
    leaving: HashMap<u64, Vec<Link>>,
    arriving: HashMap<u64, Link>,
}

impl Arrows {
    fn new(trace: &Trace, slices: &[Slice<'_>]) -> Self {
        let mut ways = HashMap::new();
        let mut spans: HashMap<u64, (u64, u64)> = HashMap::new();
        for slice in slices {
            let span = spans
                .entry(slice.placed.packet.id)
                .or_insert((slice.start, slice.start));
            span.1 = slice.start;
        }
        let mut arrows = Self {
            ways: HashMap::new(),
            leaving: HashMap::new(),
            arriving: HashMap::new(),
        };
        let mut next = 1;
        // By flow: packets whose last step is behind us, in order of that step.
        let mut ended: HashMap<u64, Vec<(u64, u64)>> = HashMap::new();
        for packet in &trace.packets {
            let Some((start, end)) = spans.get(&packet.id).copied() else {
                continue;
            };
            if packet.steps.len() > 1 {
                ways.insert(packet.id, next);
                next += 1;
            }
            let earlier = ended.entry(packet.flow).or_default();
            let again = packet
                .retransmits
                .filter(|id| spans.get(id).is_some_and(|(_, other)| *other < start));
            let before = earlier.iter().filter(|(at, _)| *at < start).max();
            let link = match (again, before) {
                (Some(original), _) => Some((original, "sent again")),
                (None, Some((_, id))) => Some((*id, "next packet")),
                (None, None) => None,
            };
            if let Some((from, name)) = link {
                let of = arrows.leaving.entry(from).or_default();
                of.push(Link { id: next, name });
                arrows.arriving.insert(packet.id, Link { id: next, name });
                next += 1;
            }
            earlier.push((end, packet.id));
            // Only the latest matter; a connection may have a million packets.
            if earlier.len() > 64 {
                earlier.drain(..32);
            }
        }
        arrows.ways = ways;
        arrows
    }

    fn at(&mut self, slice: &Slice<'_>, events: &mut Events<'_>) -> io::Result<()> {
        let (packet, index) = (slice.placed.packet, slice.placed.index);
        let (first, last) = (index == 0, index + 1 == packet.steps.len());
        let mut arrow = |phase: &str, id: usize, name: &str| {
            let mut event = json!({
                "ph": phase, "id": id, "name": name, "cat": "way",
                "pid": slice.track.pid, "tid": slice.track.tid, "ts": micro(slice.start),
            });
            if phase != "s" {
                // Binds to the slice that it is in, not to the next one.
                event["bp"] = "e".into();
            }
            events.event(&event)
        };
        if first && let Some(link) = self.arriving.get(&packet.id) {
            arrow("f", link.id, link.name)?;
        }
        if let Some(id) = self.ways.get(&packet.id) {
            let phase = if first {
                "s"
            } else if last {
                "f"
            } else {
                "t"
            };
            arrow(phase, *id, "packet")?;
        }
        if last {
            for link in self.leaving.get(&packet.id).into_iter().flatten() {
                arrow("s", link.id, link.name)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
