//! Where steps go: the recording, and standard output in the form asked for.

use std::io::{self, BufWriter, Stdout};
use std::path::Path;

use crate::cli::{Failure, Output};
use crate::diagnose::naming::Namer;
use crate::output::{json, jsonl::Lines, text::Text};
use crate::recording::{Rotation, Writer};
use crate::state::State;
use crate::trace::probe::Report;
use crate::trace::{Fold, Header, Losses, Step};

use super::Job;
use super::state::Learnt;

/// Packets that `-o json` and the verdict can refer to; beyond that the oldest
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
    /// Text tells each packet, not the results alone.
    timeline: bool,
    /// The nodes' rules, as soon as they were read.
    learnt: Learnt,
}

enum Out {
    Text(Box<Text<BufWriter<Stdout>>>),
    Lines(Option<Lines<BufWriter<Stdout>>>),
    Json,
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
        };
        let keeps_all = job.output == Output::Json;
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
            timeline: job.probe.is_none(),
            learnt,
        })
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
        for step in steps.drain(..) {
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

    /// Ends all outputs; the verdict's exit code.
    pub(super) fn finish(
        mut self,
        header: Header,
        losses: Losses,
        state: State,
        probe: Option<Report>,
    ) -> Result<u8, Failure> {
        self.fold.finish();
        self.tick(self.fold.now())?;
        let mut trace = self.fold.trace(header, losses);
        trace.closing.state = Some(Box::new(state));
        trace.closing.probe = probe.map(Box::new);
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
        }
        Ok(crate::diagnose::exit_code(
            &trace.closing.verdict,
            &trace.closing.findings,
        ))
    }
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
