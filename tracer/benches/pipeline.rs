//! How many events a second the user-space stages take, and how much memory: `cargo bench --bench pipeline -- EVENTS`.
//!
//! The events are made outside the clock, in batches, so that they take the same memory however long the run is.

use std::error::Error;
use std::fs::{self, File};
use std::hint::black_box;
use std::io::BufWriter;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tracer::assemble::{Assembler, Limits, synthetic};
use tracer::decode::{Decoder, Place};
use tracer::event::{Event, Namer};
use tracer::kallsyms::Kallsyms;
use tracer::output::text::Text;
use tracer::recording::{self, Writer};
use tracer::trace::{Closing, Endpoint, Fold, Header, Role, Step, Tool};
use tracer_common::event as raw;
use tracer_common::tuple::{Tuple, mapped, proto};

/// Events without an argument.
const EVENTS: u64 = 1_000_000;
/// Events of one synthetic connection.
const PER_CONNECTION: u64 = 72;
/// Events between two looks at what is complete, as `follow` takes them from the ring buffer.
const BATCH: usize = 16_384;
/// Packets that `follow` keeps with its text output.
const PACKETS: usize = 5_000;
/// Of each stage's runs the fastest counts: the others were disturbed.
const ROUNDS: u32 = 3;

/// A cluster without names.
struct Nameless;

impl Namer for Nameless {
    fn endpoint(&self, addr: IpAddr, port: Option<u16>) -> Endpoint {
        Endpoint {
            addr,
            port,
            name: None,
        }
    }

    fn is_node(&self, addr: IpAddr) -> bool {
        matches!(addr, IpAddr::V4(v4) if v4.octets()[..3] == [172, 31, 0])
    }

    fn node_of(&self, _: IpAddr) -> Option<Arc<str>> {
        None
    }
}

/// What is done with the steps.
enum Then {
    /// Nothing.
    Forget,
    /// Packets and flows.
    Fold,
    /// And the timeline as text.
    Text,
    /// And a recording instead.
    Record(Box<Writer>),
}

fn main() -> Result<(), Box<dyn Error>> {
    let events = std::env::args()
        .skip(1)
        .find_map(|word| word.parse().ok())
        .unwrap_or(EVENTS);
    if std::env::args().any(|word| word == "open") {
        return open(events);
    }
    memory(events)?;
    report("decode", events, || Ok(decode(events)))?;
    report("assemble", events, || {
        run(events, Then::Forget, &mut |_| {})
    })?;
    report("assemble, fold", events, || {
        run(events, Then::Fold, &mut |_| {})
    })?;
    report("assemble, fold, text", events, || {
        run(events, Then::Text, &mut |_| {})
    })?;
    let recording = std::env::temp_dir().join(format!("tracer-bench-{}.jsonl", std::process::id()));
    let result = report("assemble, fold, record", events, || {
        let writer = Writer::create(&recording, &header())?;
        run(events, Then::Record(Box::new(writer)), &mut |_| {})
    });
    let size = fs::metadata(&recording).map_or(0, |found| found.len());
    fs::remove_file(&recording)?;
    result?;
    println!("recording                {:>7} MB", size / 1_000_000);
    open(events)
}

/// Prints how long it takes to open a recording of as many steps, as `show` does, and the memory for it.
fn open(steps: u64) -> Result<(), Box<dyn Error>> {
    for kind in ["jsonl", "jsonl.zst"] {
        let name = format!("tracer-bench-{}.{kind}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let written = write_steps(&path, steps);
        let size = fs::metadata(&path).map_or(0, |found| found.len());
        // The kernel counts the peak anew from here.
        let _ = fs::write("/proc/self/clear_refs", "5");
        let (since, cpu) = (Instant::now(), cpu_time());
        let opened = recording::read(&path).map(|(trace, _)| trace.packets.len());
        let (wall, cpu) = (since.elapsed(), cpu_time().saturating_sub(cpu));
        fs::remove_file(&path)?;
        written?;
        println!(
            "open {kind:<9} {steps} steps, {} packets, {} MB: {:.2} s ({:.2} s of CPU time), peak {:.0} MiB",
            opened?,
            size / 1_000_000,
            wall.as_secs_f64(),
            cpu.as_secs_f64(),
            peak_kib() as f64 / 1024.0
        );
    }
    Ok(())
}

/// Records so many steps of synthetic connections.
fn write_steps(path: &Path, wanted: u64) -> Result<(), Box<dyn Error>> {
    let mut writer = Writer::create(path, &header())?;
    let mut assembler = Assembler::new(Limits::default(), Arc::new(Nameless));
    let (mut steps, mut left) = (Vec::new(), wanted as usize);
    for event in synthetic::events(u64::MAX / PER_CONNECTION) {
        assembler.push(event, &mut steps);
        steps.truncate(left);
        left -= steps.len();
        writer.steps(&steps)?;
        steps.clear();
        if left == 0 {
            break;
        }
    }
    Ok(writer.finish(&Closing::default())?)
}

/// Prints the most memory that was in use after so many events. It grows until the bounds on flows and packets are
/// reached, at about one million of these events, and hardly after a third of a million.
fn memory(events: u64) -> Result<(), Box<dyn Error>> {
    let marks = [events / 4, events / 2, events, events * 2, events * 4];
    let mut next = 0;
    let mut peaks = Vec::new();
    run(events * 4, Then::Text, &mut |done| {
        if marks.get(next).is_some_and(|mark| done >= *mark) {
            peaks.push((marks[next], peak_kib()));
            next += 1;
        }
    })?;
    for (mark, peak) in peaks {
        println!(
            "peak memory after {mark:>7} events {:>7.1} MiB",
            peak as f64 / 1024.0
        );
    }
    Ok(())
}

/// Prints how many events a second a stage took.
fn report(
    name: &str,
    events: u64,
    mut stage: impl FnMut() -> Result<Duration, Box<dyn Error>>,
) -> Result<(), Box<dyn Error>> {
    let mut best = Duration::MAX;
    for _ in 0..ROUNDS {
        best = best.min(stage()?);
    }
    let rate = events as f64 / best.as_secs_f64();
    println!("{name:<24} {:>7.2} million events/s", rate / 1e6);
    Ok(())
}

/// Runs synthetic events through the stages; the time that these took.
fn run(
    events: u64,
    mut then: Then,
    after_batch: &mut dyn FnMut(u64),
) -> Result<Duration, Box<dyn Error>> {
    let mut source = synthetic::events(events.div_ceil(PER_CONNECTION)).take(events as usize);
    let mut assembler = Assembler::new(Limits::default(), Arc::new(Nameless));
    let mut fold = Fold::bounded(&[], PACKETS);
    let mut text = Text::new(BufWriter::new(File::create("/dev/null")?), false);
    let mut batch: Vec<Event> = Vec::with_capacity(BATCH);
    let mut steps: Vec<Step> = Vec::new();
    let (mut done, mut spent) = (0, Duration::ZERO);
    loop {
        batch.extend(source.by_ref().take(BATCH));
        let Some(last) = batch.last() else { break };
        let now = last.ts;
        done += batch.len() as u64;
        let since = cpu_time();
        for event in batch.drain(..) {
            assembler.push(event, &mut steps);
        }
        assembler.tick(now, &mut steps);
        if let Then::Record(writer) = &mut then {
            writer.steps(&steps)?;
            writer.tick(now)?;
        }
        if matches!(then, Then::Forget) {
            black_box(&steps);
            steps.clear();
        }
        for step in steps.drain(..) {
            fold.push(step);
        }
        for id in fold.complete(now) {
            if let (Then::Text, Some(packet)) = (&then, fold.packet(id)) {
                text.packet(packet, None)?;
            }
        }
        spent += cpu_time().saturating_sub(since);
        after_batch(done);
    }
    if let Then::Record(writer) = then {
        let since = cpu_time();
        writer.finish(&Closing::default())?;
        spent += cpu_time().saturating_sub(since);
    }
    black_box(fold.packet_count());
    Ok(spent)
}

/// Decodes records as the tc programs write them.
fn decode(events: u64) -> Duration {
    let mut decoder = Decoder::new(
        Arc::new(Kallsyms::default()),
        std::collections::HashMap::new(),
        Box::new(|_| Vec::new()),
        0,
    );
    let records: Vec<raw::PacketEvent> = (0..64).map(record).collect();
    for ifindex in 1..=4 {
        decoder.set_place(
            1,
            ifindex,
            Place {
                node: "worker".into(),
                iface: "cali747ff840379".into(),
                role: Role::PodVeth,
            },
        );
    }
    let since = cpu_time();
    for i in 0..events {
        black_box(decoder.decode(bytes(&records[i as usize % records.len()])));
    }
    cpu_time().saturating_sub(since)
}

/// A record of a TCP packet inside VXLAN.
fn record(i: u32) -> raw::PacketEvent {
    let mut event = raw::PacketEvent::default();
    event.header.kind = raw::kind::INGRESS;
    event.header.flags = raw::flag::TUNNEL;
    event.header.netns = 1;
    event.header.ifindex = i % 4 + 1;
    event.header.ts_ns = u64::from(i);
    event.header.flow = u64::from(i) + 1;
    event.packet.tuple = Tuple {
        src: mapped(u32::from_ne_bytes([10, 244, 80, 65])),
        dst: mapped(u32::from_ne_bytes([10, 244, 158, 65])),
        sport: 40_000 + i as u16,
        dport: 8080,
        proto: proto::TCP.into(),
    };
    event.packet.l4_flags = 0x10;
    event.tunnel.src = mapped(u32::from_ne_bytes([172, 31, 0, 2]));
    event.tunnel.dst = mapped(u32::from_ne_bytes([172, 31, 0, 3]));
    event.tunnel.vni_kind = u32::from(raw::tunnel::VXLAN) << 24 | 4096;
    event
}

/// The record as it lies in the ring buffer.
fn bytes(record: &raw::PacketEvent) -> &[u8] {
    let pointer: *const raw::PacketEvent = record;
    // SAFETY: a repr(C) structure of integers without padding (tracer-common pins its layout), read as long as it lives.
    unsafe { std::slice::from_raw_parts(pointer.cast(), size_of::<raw::PacketEvent>()) }
}

/// CPU time of this process: other work on the machine must not count.
fn cpu_time() -> Duration {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: it writes the structure that it is given.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// The most memory that this process ever had, in KiB.
fn peak_kib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .and_then(|rest| rest.split_whitespace().next()?.parse().ok())
        .unwrap_or(0)
}

fn header() -> Header {
    Header {
        schema: tracer::trace::SCHEMA.into(),
        tool: Tool::default(),
        request: serde_json::Value::Null,
        ..Header::default()
    }
}
