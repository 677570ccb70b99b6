//! The loop of a live trace.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use aya::maps::{MapData, RingBuf};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::signal::unix::{SignalKind, signal};
use tracer_common::MAX_TAGS;
use tracer_common::config::Counter;
use tracer_common::tuple::proto;

use super::Job;
use super::lost::Teller;
use super::sink::Sink;
use super::state::States;
use super::watcher::Watcher;
use super::work;
use crate::assemble::{Assembler, Limits};
use crate::cli::{Failure, Outcome, say};
use crate::decode::Decoder;
use crate::discover::Names;
use crate::event::{Answer, Body, Event};
use crate::probe::Probes;
use crate::probe::load::Counters;
use crate::time;
use crate::trace::{Header, Losses, Step};

/// How often the buffer is looked at; a quarter full wakes earlier.
const POLL: Duration = Duration::from_millis(10);
/// Events are held back this long, because CPUs write side by side.
const SETTLE_NS: u64 = 3_000_000;
/// How often complete packets are shown.
const SHOW: Duration = Duration::from_millis(50);
/// How often the counters of what was lost are read.
const COUNT: Duration = Duration::from_secs(1);
/// How often namespaces are listed anew.
const RESCAN: Duration = Duration::from_secs(5);
/// A connection without packets for this long has gone quiet.
const QUIET: Duration = Duration::from_secs(5);
/// A connection that ended may still have its last acknowledgement under way.
const LINGER: Duration = Duration::from_millis(300);
/// Events taken in one go, so that signals are heard in a flood.
const BATCH: usize = 65_536;
/// How often at the end: more than the largest buffer holds.
const LAST_BATCHES: usize = 1024;

/// A live trace at work.
pub(super) struct Live {
    job: Job,
    probes: Probes,
    counters: Option<Counters>,
    events: AsyncFd<RingBuf<MapData>>,
    decoder: Decoder,
    watcher: Watcher,
    assembler: Assembler,
    sink: Sink,
    header: Header,
    states: States,
    waiting: Vec<Event>,
    steps: Vec<Step>,
    /// When each flow was last seen, by its number.
    seen: HashMap<u64, Instant>,
}

/// Whether the loop goes on.
enum Next {
    Poll,
    Stop,
}

impl Live {
    #[allow(clippy::too_many_arguments, reason = "the stages, handed over once")]
    pub(super) fn prepare(
        job: Job,
        mut probes: Probes,
        decoder: Decoder,
        watcher: Watcher,
        names: Arc<Names>,
        sink: Sink,
        header: Header,
        states: States,
        before: Vec<Event>,
    ) -> Result<Parts, Failure> {
        let ring = probes
            .take_events()
            .ok_or_else(|| Failure::new("the ring buffer is missing in the eBPF object"))?;
        let mut assembler = Assembler::new(Limits::default(), names);
        let mut steps = Vec::new();
        for event in before {
            assembler.push(event, &mut steps);
        }
        Ok(Parts {
            counters: probes.take_counters(),
            ring,
            job,
            probes,
            decoder,
            watcher,
            assembler,
            sink,
            header,
            states,
            steps,
        })
    }
}

/// A live trace before it runs: the descriptor is registered inside the loop.
pub(super) struct Parts {
    job: Job,
    probes: Probes,
    counters: Option<Counters>,
    ring: RingBuf<MapData>,
    decoder: Decoder,
    watcher: Watcher,
    assembler: Assembler,
    sink: Sink,
    header: Header,
    states: States,
    steps: Vec<Step>,
}

impl Parts {
    /// Runs to the end: a signal, `--duration`, `--count`.
    pub(super) async fn run(self) -> Outcome {
        // SAFETY: the map's descriptor belongs to the ring buffer, which the
        // AsyncFd owns, and stays the same for as long.
        let events = unsafe { AsyncFd::register_with_interest(self.ring, Interest::READABLE) }
            .map_err(|e| Failure::new(format!("cannot watch the ring buffer: {e}")))?;
        let live = Live {
            job: self.job,
            probes: self.probes,
            counters: self.counters,
            events,
            decoder: self.decoder,
            watcher: self.watcher,
            assembler: self.assembler,
            sink: self.sink,
            header: self.header,
            states: self.states,
            waiting: Vec::new(),
            steps: self.steps,
            seen: HashMap::new(),
        };
        live.run().await
    }
}

impl Live {
    async fn run(mut self) -> Outcome {
        let hear =
            |kind| signal(kind).map_err(|e| Failure::new(format!("cannot handle signals: {e}")));
        let mut interrupt = hear(SignalKind::interrupt())?;
        let mut terminate = hear(SignalKind::terminate())?;
        let mut hangup = hear(SignalKind::hangup())?;
        crate::privilege::hold_signals(false);
        let mut poll = tokio::time::interval(POLL);
        poll.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        self.sink.open_screen(&self.job, &self.header)?;
        let started = Instant::now();
        let mut shown = Instant::now();
        let mut scanned = Instant::now();
        let mut counted = Instant::now();
        let mut teller = Teller::default();
        say(&format!(
            "ready: {} hooks on {} interfaces in {} nodes",
            self.probes.hooks.len() + 2 * self.probes.interfaces(),
            self.probes.interfaces(),
            self.header.nodes.len()
        ));
        let mut work = self.job.probe.as_ref().map(work::begin).transpose()?;
        let mut over: Option<Instant> = None;
        loop {
            let next = tokio::select! {
                biased;
                _ = interrupt.recv() => Next::Stop,
                _ = terminate.recv() => Next::Stop,
                _ = hangup.recv() => Next::Stop,
                () = self.sink.quit() => Next::Stop,
                ready = self.events.readable() => {
                    if let Ok(mut ready) = ready {
                        ready.clear_ready();
                    }
                    Next::Poll
                }
                Some(entered) = work::ended(&mut work) => {
                    entered.map_err(|e| {
                        Failure::new(format!("cannot enter the pod's network namespace: {e}"))
                    })?;
                    over = Some(Instant::now());
                    Next::Poll
                }
                _ = poll.tick() => Next::Poll,
            };
            if matches!(next, Next::Stop) {
                break;
            }
            self.drain();
            self.settle(false)?;
            if shown.elapsed() >= SHOW {
                shown = Instant::now();
                let now = self.decoder.epoch(time::boot_now_ns());
                self.assembler.tick(now, &mut self.steps);
                self.forward()?;
                self.sink.tick(now)?;
                self.publish();
                if self.enough() {
                    break;
                }
            }
            if counted.elapsed() >= COUNT {
                counted = Instant::now();
                let losses = self.losses();
                self.sink.lost(losses);
                if let Some(line) = teller.tell(losses, started.elapsed())
                    && !self.job.quiet
                {
                    say(&line);
                }
            }
            self.watcher.listen(&mut self.probes);
            let forced = scanned.elapsed() >= RESCAN;
            if forced {
                scanned = Instant::now();
            }
            self.watcher
                .refresh(&mut self.probes, &mut self.decoder, forced);
            if self.job.duration.is_some_and(|d| started.elapsed() >= d)
                || over.is_some_and(|t| t.elapsed() >= LINGER)
            {
                break;
            }
        }
        self.finish()
    }

    /// Takes events out of the buffer; whether there may be more.
    fn drain(&mut self) -> bool {
        let ring = self.events.get_mut();
        for _ in 0..BATCH {
            let Some(item) = ring.next() else {
                return false;
            };
            if let Some(event) = self.decoder.decode(&item)
                && wanted(&event, &self.watcher, self.decoder.last_netns())
            {
                self.waiting.push(event);
            }
        }
        true
    }

    /// Takes what was written into the buffer until then, however much it is.
    fn drain_until(&mut self, ended: u64) {
        for _ in 0..LAST_BATCHES {
            if !self.drain() || self.waiting.last().is_some_and(|e| e.ts > ended) {
                break;
            }
        }
        self.waiting.retain(|e| e.ts <= ended);
    }

    /// Hands over, in order of time, what is old enough (or all).
    fn settle(&mut self, all: bool) -> Result<(), Failure> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        // Stable: records of one moment keep the order they were written in.
        self.waiting.sort_by_key(|e| e.ts);
        let until = if all {
            u64::MAX
        } else {
            self.decoder
                .epoch(time::boot_now_ns())
                .saturating_sub(SETTLE_NS)
        };
        let n = self.waiting.partition_point(|e| e.ts <= until);
        for event in self.waiting.drain(..n) {
            self.assembler.push(event, &mut self.steps);
        }
        self.forward()
    }

    fn forward(&mut self) -> Result<(), Failure> {
        let now = Instant::now();
        for step in &self.steps {
            if let Some(flow) = step.flow {
                self.seen.insert(flow, now);
            }
        }
        self.sink.steps(&mut self.steps)
    }

    /// Whether `--count` connections have ended or gone quiet.
    fn enough(&mut self) -> bool {
        let Some(count) = self.job.count else {
            return false;
        };
        let done = self
            .seen
            .iter()
            .filter(|(id, last)| {
                let ended = self
                    .sink
                    .fold
                    .flow(**id)
                    .is_some_and(|f| matches!(&*f.state, "closed" | "reset"));
                last.elapsed() >= if ended { LINGER } else { QUIET }
            })
            .count();
        done as u64 >= count
    }

    /// Hands what changed to the screen, if there is one.
    fn publish(&mut self) {
        if self.sink.has_screen() {
            let losses = self.losses();
            self.sink.publish(&self.header, losses);
        }
    }

    fn losses(&self) -> Losses {
        let counted = |c| self.counters.as_ref().map_or(0, |k| k.get(c));
        let assembler = self.assembler.losses();
        // Two tags a call; what does not fit pushes out the oldest.
        let evicted = (counted(Counter::Tags) * 2).saturating_sub(u64::from(MAX_TAGS));
        Losses {
            ring_buffer: counted(Counter::RingFull),
            user_space: assembler.user_space + self.sink.forgotten(),
            other: assembler.other
                + self.decoder.undecoded
                + counted(Counter::TagFailed)
                + counted(Counter::CallLost)
                + counted(Counter::Truncated)
                + evicted,
        }
    }

    fn finish(mut self) -> Outcome {
        self.sink.finishing();
        let probe = self.job.probe.take().map(|prober| {
            prober.stop();
            prober.report()
        });
        let ended = self.decoder.epoch(time::boot_now_ns());
        self.drain_until(ended);
        self.settle(true)?;
        self.assembler.finish(&mut self.steps);
        self.forward()?;
        let losses = self.losses();
        self.sink.lost(losses);
        self.header.nodes = self.watcher.nodes();
        let flows: Vec<_> = self.sink.fold.flows().collect();
        let state = self.watcher.end(self.states, &flows);
        // Detach before the result is written: a slow reader must not keep
        // hooks in place.
        drop(self.probes);
        self.sink
            .finish(self.header, losses, state.finish(), probe, ended)
    }
}

/// Whether an event is part of the packet's way on the traced nodes. What
/// happens in namespaces that are neither node nor pod is not: kernel functions
/// are seen wherever they run, another tool's node among them. Nor are drops that
/// are no end of a packet's way: copies that a bridge flooded to hosts they are
/// not for, what a socket still held when it was closed, an echo reply that no
/// ping socket wanted.
fn wanted(event: &Event, watcher: &Watcher, netns: u32) -> bool {
    if netns != 0 && !watcher.knows(netns) {
        return false;
    }
    let Body::Drop {
        packet,
        reason,
        function,
        ..
    } = &event.body
    else {
        return !is_redirect(&event.body);
    };
    // An echo reply that no ping socket wanted: raw sockets have had theirs.
    let icmp = packet.proto == proto::ICMP || packet.proto == proto::ICMPV6;
    if icmp && !packet.quoted && reason.as_deref() == Some("NO_SOCKET") {
        return false;
    }
    if matches!(
        reason.as_deref(),
        Some("OTHERHOST" | "QUEUE_PURGE" | "CONSUMED")
    ) {
        return false;
    }
    !matches!(
        &**function,
        "sk_stream_kill_queues"
            | "ping_rcv"
            // Fragments, freed with the datagram they were put together to.
            | "skb_release_data"
            | "skb_queue_purge"
            | "skb_queue_purge_reason"
            | "skb_rbtree_purge"
            | "tcp_write_queue_purge"
            | "__sk_destruct"
            | "inet_sock_destruct"
    )
}

/// An ICMP redirect advises the sender of a better way; the packet it is about
/// goes on (RFC 792; RFC 4861 section 8).
fn is_redirect(body: &Body) -> bool {
    matches!(
        body,
        Body::Answer {
            answer: Answer::Icmp {
                kind: 5,
                v6: false,
                ..
            } | Answer::Icmp {
                kind: 137,
                v6: true,
                ..
            },
            ..
        }
    )
}
