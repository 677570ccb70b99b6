//! Where steps go: the recording, and standard output in the form asked for.

use std::collections::BTreeSet;
use std::io::{self, BufWriter, Stdout};
use std::path::Path;

use crate::cli::export::Export;
use crate::cli::{Failure, Output, say};
use crate::diagnose::naming::Namer;
use crate::output::{json, jsonl::Lines, text::Text};
use crate::recording::{Rotation, Writer};
use crate::state::State;
use crate::trace::probe::Report;
use crate::trace::{Closing, Fold, Header, Losses, Step, Trace};
use crate::tui;

use super::Job;
use super::state::Learnt;

/// Packets that `-o json`, exports and the verdict can refer to; beyond that the oldest
/// are forgotten, and counted.
const JSON_PACKETS: usize = 250_000;
/// Packets that text output keeps for the verdict. Those that were delivered go
/// first, so what went wrong long ago is still known.
const TEXT_PACKETS: usize = 5_000;

/// The outputs of one run.
pub(super) struct Sink {
    record: Option<Writer>,
    out: Out,
    /// Flows and packets so far.
    pub(super) fold: Fold,
    keeps_all: bool,
    exports: Vec<Export>,
    quiet: bool,
    /// Text tells each packet, not the results alone.
    timeline: bool,
    /// The nodes' rules, as soon as they were read.
    learnt: Learnt,
}

enum Out {
    Text(Box<Text<BufWriter<Stdout>>>),
    Lines(Option<Lines<BufWriter<Stdout>>>),
    Json,
    Tui(Option<View>),
}

/// The screen, and what it has not been told yet.
struct View {
    screen: tui::Live,
    /// Packets with new steps, or a new outcome.
    changed: BTreeSet<u64>,
    color: bool,
}

impl Sink {
    pub(super) fn new(job: &Job, header: &Header, learnt: Learnt) -> Result<Self, Failure> {
        let record =
            match &job.record {
                Some(path) => Some(create(path, header, job.rotation).map_err(|e| {
                    Failure::new(format!("cannot record to {}: {e}", path.display()))
                })?),
                None => None,
            };
        let stdout = || BufWriter::new(io::stdout());
        let out = match job.output {
            Output::Text => Out::Text(Box::new(Text::new(stdout(), job.color))),
            Output::Jsonl => Out::Lines(Some(Lines::start(stdout(), header)?)),
            Output::Json => Out::Json,
            // The screen opens when all is attached: see `open_screen`.
            Output::Tui => Out::Tui(None),
        };
        let keeps_all = job.output == Output::Json || !job.exports.is_empty();
        let packets = if keeps_all {
            JSON_PACKETS
        } else {
            TEXT_PACKETS
        };
        Ok(Self {
            record,
            out,
            fold: Fold::bounded(&header.nodes, packets),
            keeps_all,
            exports: job.exports.clone(),
            quiet: job.quiet,
            timeline: job.probe.is_none(),
            learnt,
        })
    }

    /// Takes the terminal, where that is the form asked for.
    pub(super) fn open_screen(&mut self, job: &Job, header: &Header) -> Result<(), Failure> {
        if let Out::Tui(view) = &mut self.out {
            let screen = tui::Live::start(header, job.color)
                .map_err(|e| Failure::new(format!("cannot start the screen's thread: {e}")))?;
            *view = Some(View {
                screen,
                changed: BTreeSet::new(),
                color: job.color,
            });
        }
        Ok(())
    }

    /// Whether there is a screen.
    pub(super) fn has_screen(&self) -> bool {
        matches!(self.out, Out::Tui(Some(_)))
    }

    /// Waits until the user of the screen wants the trace to end; for ever
    /// without a screen.
    pub(super) async fn quit(&self) {
        match &self.out {
            Out::Tui(Some(view)) => view.screen.quit().await,
            _ => std::future::pending().await,
        }
    }

    /// Tells the screen that the trace is being ended.
    pub(super) fn finishing(&self) {
        if let Out::Tui(Some(view)) = &self.out {
            view.screen.finishing();
        }
    }

    /// Hands what changed to the screen, if there is one.
    pub(super) fn publish(&mut self, header: &Header, losses: Losses) {
        let Out::Tui(Some(view)) = &mut self.out else {
            return;
        };
        view.publish(&self.fold, losses);
        let fold = &self.fold;
        view.screen
            .snapshot(fold.now(), || fold.trace(header.clone(), losses));
    }

    /// Takes a batch of steps.
    pub(super) fn steps(&mut self, steps: &mut Vec<Step>) -> Result<(), Failure> {
        if let Some(namer) = self.learnt.namer() {
            self.name(namer, steps);
        }
        if let Some(record) = &mut self.record {
            record.steps(steps).map_err(|e| recording(&e))?;
        }
        if let Out::Lines(Some(lines)) = &mut self.out
            && !steps.is_empty()
        {
            lines.steps(&*steps)?;
        }
        let mut view = match &mut self.out {
            Out::Tui(view) => view.as_mut(),
            _ => None,
        };
        for step in steps.drain(..) {
            if let (Some(view), Some(id)) = (&mut view, step.packet) {
                view.changed.insert(id);
            }
            self.fold.push(step);
        }
        Ok(())
    }

    /// Names rules behind the steps of a batch; a packet's earlier steps are in
    /// the batch or folded.
    fn name(&self, namer: &Namer, steps: &mut [Step]) {
        for i in 0..steps.len() {
            if !Namer::asks(&steps[i]) {
                continue;
            }
            let (earlier, rest) = steps.split_at_mut(i);
            let step = &mut rest[0];
            let folded = step.packet.and_then(|id| self.fold.packet(id));
            let mut before = folded.map_or_else(Vec::new, |p| p.steps.clone());
            before.extend(earlier.iter().filter(|s| s.packet == step.packet).cloned());
            namer.name(&before, step);
        }
    }

    /// Shows what is complete by `now` (nanoseconds since the epoch).
    pub(super) fn tick(&mut self, now: u64) -> Result<(), Failure> {
        if let Some(record) = &mut self.record {
            record.tick(now).map_err(|e| recording(&e))?;
        }
        if let Out::Text(text) = &mut self.out {
            for id in self.fold.complete(now) {
                if let Some(packet) = self.fold.packet(id).filter(|_| self.timeline) {
                    text.packet(packet, None)?;
                }
            }
            text.flush()?;
        }
        if let Out::Tui(Some(view)) = &mut self.out {
            view.changed.extend(self.fold.complete(now));
        }
        Ok(())
    }

    /// Tells what was lost so far.
    pub(super) fn lost(&mut self, losses: Losses) {
        if let Some(record) = &mut self.record {
            record.lost(losses);
        }
    }

    /// Packets that were forgotten although the output needed them.
    pub(super) fn forgotten(&self) -> u64 {
        if self.keeps_all {
            self.fold.forgotten()
        } else {
            0
        }
    }

    /// Ends all outputs of a run that ended then, in nanoseconds since the epoch;
    /// the verdict's exit code.
    pub(super) fn finish(
        mut self,
        header: Header,
        losses: Losses,
        state: State,
        probe: Option<Report>,
        ended: u64,
    ) -> Result<u8, Failure> {
        self.fold.finish(Some(ended));
        self.tick(ended)?;
        let mut trace = self.fold.trace(header, losses);
        trace.closing.state = Some(Box::new(state));
        trace.closing.probe = probe.map(Box::new);
        trace.closing.ended = Some(ended);
        crate::diagnose::naming::name(&mut trace);
        crate::diagnose::locate(&mut trace);
        let (verdict, findings) = crate::diagnose::diagnose(&trace);
        trace.closing.verdict = verdict;
        trace.closing.findings = findings;
        if let Some(record) = self.record.take() {
            record.finish(&trace.closing).map_err(|e| recording(&e))?;
        }
        match &mut self.out {
            Out::Text(text) => text.closing(&trace.closing, &trace.header)?,
            Out::Lines(lines) => {
                if let Some(lines) = lines.take() {
                    lines.finish(&trace.closing)?;
                }
            }
            Out::Json => json::write(&mut BufWriter::new(io::stdout()), &trace)?,
            Out::Tui(view) => {
                let view = view.take();
                let exported = self.export(&trace);
                let code = leave(view, trace);
                exported?;
                return code;
            }
        }
        self.export(&trace)?;
        Ok(crate::diagnose::exit_code(
            &trace.closing.verdict,
            &trace.closing.findings,
        ))
    }
}

impl Sink {
    /// Writes what else was asked for; one that fails does not take the others
    /// along.
    fn export(&self, trace: &Trace) -> Result<(), Failure> {
        let mut failed = None;
        for export in &self.exports {
            match export.write(trace, self.quiet) {
                Ok(None) => {}
                Ok(Some(note)) if self.quiet => drop(note),
                Ok(Some(note)) => say(&note),
                Err(failure) => {
                    if let Some(earlier) = failed.replace(failure) {
                        say(&format!("error: {earlier}"));
                    }
                }
            }
        }
        failed.map_or(Ok(()), Err)
    }
}

impl View {
    /// What changed, bounded: those that ended badly first, then the newest.
    /// The others are told when they change again, or never; the screen says
    /// how many it has of how many there were.
    fn publish(&mut self, fold: &Fold, losses: Losses) {
        let mut update = tui::Update {
            losses,
            seen: fold.packet_count(),
            ..tui::Update::default()
        };
        let mut chosen: Vec<u64> = Vec::new();
        let bad = |id: &u64| fold.packet(*id).is_some_and(|p| p.outcome.is_bad());
        let all = self.changed.iter().rev().copied();
        if self.changed.len() > tui::UPDATE_PACKETS {
            chosen.extend(all.clone().filter(bad).take(tui::UPDATE_PACKETS));
        }
        let room = tui::UPDATE_PACKETS - chosen.len();
        chosen.extend(all.take(room));
        for id in chosen {
            let Some(packet) = fold.packet(id) else {
                continue;
            };
            if let Some(flow) = fold.flow(packet.flow) {
                update.flows.insert(flow.id, flow);
            }
            update.packets.insert(id, packet.clone());
        }
        self.changed.clear();
        self.screen.publish(update);
    }
}

/// Shows the end, gives the terminal back, and leaves the verdict behind on it.
fn leave(view: Option<View>, trace: Trace) -> Result<u8, Failure> {
    let Some(mut view) = view else { return Ok(0) };
    let closing = Closing {
        verdict: trace.closing.verdict.clone(),
        findings: trace.closing.findings.clone(),
        losses: trace.closing.losses,
        ..Closing::default()
    };
    let header = trace.header.clone();
    let code = crate::diagnose::exit_code(&closing.verdict, &closing.findings);
    let left = view.screen.end(trace);
    for line in tui::kept() {
        crate::cli::say(&line);
    }
    if !matches!(left, Ok(tui::Left::Gone)) {
        Text::new(BufWriter::new(io::stdout()), view.color).closing(&closing, &header)?;
    }
    left.map(|_| code).map_err(Failure::new)
}

fn create(path: &Path, header: &Header, rotation: Option<Rotation>) -> io::Result<Writer> {
    match rotation {
        Some(rotation) => Writer::rotating(path, header, rotation),
        None => Writer::create(path, header),
    }
}

fn recording(e: &io::Error) -> Failure {
    Failure::new(format!("cannot write the recording: {e}"))
}
