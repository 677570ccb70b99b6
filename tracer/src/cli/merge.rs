//! `tracer merge`.

use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::{ColorWhen, Failure, Outcome, Output, load, say};
use crate::diagnose;
use crate::file::{self, Draft};
use crate::merge::{self, Input};
use crate::output::{json, jsonl, text::Text};
use crate::progress::Progress;
use crate::recording::{ReadError, Reader};
use crate::trace::{Fold, Header, Trace};

/// Steps that are merged at once; each takes about half a kilobyte.
const STEPS: usize = 10_000_000;
/// Steps between two looks at the progress line.
const STRIDE: usize = 4096;

/// Arguments of `tracer merge`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Recordings of several nodes, or the files that one run wrote with --rotate-size
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Write the whole to this recording, compressed when its name ends in .zst
    #[arg(short, value_name = "OUT")]
    write: Option<PathBuf>,
    /// Form of the result on standard output [default: text; with -w only the verdict]
    #[arg(short, long, value_enum)]
    output: Option<Output>,
    /// When to use colour
    #[arg(long, value_enum, default_value_t)]
    color: ColorWhen,
    /// Say nothing about what the files lack
    #[arg(short, long)]
    quiet: bool,
}

const EXAMPLES: &str = "Examples:
  tracer merge worker.jsonl.zst worker2.jsonl.zst -w both.jsonl.zst
  tracer merge trace.*.jsonl.zst -o json

The clock of the first file is kept; those of the others are corrected by the packets that are in
both. The exit code is the verdict's.";

/// Runs `tracer merge`.
pub fn run(args: &Args) -> Outcome {
    if let Some(path) = &args.write {
        file::check(path)?;
    }
    let mut room = STEPS;
    let mut inputs = Vec::new();
    for path in &args.files {
        inputs.push(read(path, &mut room, args.quiet)?);
    }
    let mut progress = Progress::new("merging", Some(merge::STAGES), args.quiet);
    let merged = merge::merge(inputs, &mut |done| progress.at(done))
        .map_err(|e| Failure::usage(format!("cannot merge: {e}")))?;
    drop(progress);
    let mut recording = match &args.write {
        Some(path) => Some(Recording::create(path, &merged.header)?),
        None => None,
    };
    let count = merged.steps.len() as u64;
    let mut progress = Progress::new("writing", Some(count), args.quiet);
    let mut fold = Fold::of(&merged.header, usize::MAX);
    for (i, step) in merged.steps.into_iter().enumerate() {
        if let Some(recording) = &mut recording {
            recording.line(&step)?;
        }
        fold.push(step);
        if i.is_multiple_of(STRIDE) {
            progress.at(i as u64);
        }
    }
    drop(progress);
    fold.finish(merged.closing.ended);
    let mut trace = fold.into_trace(merged.header, merged.closing.losses);
    trace.closing = merged.closing;
    diagnose::naming::name(&mut trace);
    diagnose::locate(&mut trace);
    let (verdict, findings) = diagnose::diagnose(&trace);
    let code = diagnose::exit_code(&verdict, &findings);
    trace.closing.verdict = verdict;
    trace.closing.findings = findings;
    if let Some(mut recording) = recording {
        recording.line(&trace.closing)?;
        recording.finish()?;
    }
    print(args, &trace)?;
    Ok(code)
}

fn read(path: &Path, room: &mut usize, quiet: bool) -> Result<Input, Failure> {
    let failed = |e: ReadError| Failure::new(format!("cannot merge {}: {e}", path.display()));
    let mut reader = Reader::open(path).map_err(failed)?;
    let name = path
        .file_name()
        .unwrap_or(path.as_os_str())
        .to_string_lossy();
    let what = format!("reading {name}");
    let mut progress = Progress::new(&what, reader.position().1, quiet);
    let mut steps = Vec::new();
    while let Some(step) = reader.next() {
        steps.push(step.map_err(failed)?);
        if steps.len() > *room {
            return Err(Failure::new(format!(
                "cannot merge: the files hold more than {STEPS} steps; merge those of a shorter time"
            )));
        }
        if steps.len().is_multiple_of(STRIDE) {
            progress.at(reader.position().0);
        }
    }
    drop(progress);
    *room -= steps.len();
    let skipped = reader.skipped();
    let (header, closing, notices) = reader.into_ends();
    if !quiet {
        load::tell(path, &notices);
    }
    let closing = match (closing, skipped) {
        (closing, 0) => closing,
        (closing, skipped) => {
            let mut closing = closing.unwrap_or_default();
            closing.losses.other += skipped;
            Some(closing)
        }
    };
    Ok(Input {
        name: name.into_owned(),
        header,
        steps,
        closing,
    })
}

/// The merged recording in the making; whole or not at all.
struct Recording<'a> {
    path: &'a Path,
    out: Out,
}

enum Out {
    Plain(Draft),
    Zstd(BufWriter<zstd::Encoder<'static, Draft>>),
}

impl<'a> Recording<'a> {
    fn create(path: &'a Path, header: &Header) -> Result<Self, Failure> {
        let draft = Draft::create(path)?;
        let out = if path.extension().is_some_and(|e| e == "zst") {
            let encoder = zstd::Encoder::new(draft, 3).map_err(|e| failed(path, &e))?;
            Out::Zstd(BufWriter::with_capacity(1 << 16, encoder))
        } else {
            Out::Plain(draft)
        };
        let mut recording = Self { path, out };
        recording.line(header)?;
        Ok(recording)
    }

    fn line(&mut self, value: &impl Serialize) -> Result<(), Failure> {
        let out: &mut dyn Write = match &mut self.out {
            Out::Plain(draft) => draft,
            Out::Zstd(encoder) => encoder,
        };
        jsonl::line(out, value).map_err(|e| failed(self.path, &e))
    }

    fn finish(self) -> Result<(), Failure> {
        let failed = |e: &io::Error| failed(self.path, e);
        let draft = match self.out {
            Out::Plain(draft) => draft,
            Out::Zstd(buffered) => {
                let encoder = buffered.into_inner().map_err(|e| failed(e.error()))?;
                encoder.finish().map_err(|e| failed(&e))?
            }
        };
        draft.finish()?;
        Ok(())
    }
}

fn failed(path: &Path, e: &io::Error) -> Failure {
    Failure::new(format!("cannot write to {}: {e}", path.display()))
}

fn print(args: &Args, trace: &Trace) -> Result<(), Failure> {
    let mut out = BufWriter::new(io::stdout().lock());
    let color = args.color.on_stdout();
    let notes = trace.header.merged.iter().flat_map(|m| &m.notes);
    match args.output {
        None if args.write.is_some() => {
            Text::new(&mut out, color).closing(&trace.closing, &trace.header)?;
        }
        None | Some(Output::Text) => Text::new(&mut out, color).trace(trace)?,
        Some(form) => {
            if !args.quiet {
                notes.for_each(|note| say(&format!("note: {note}")));
            }
            if form == Output::Json {
                json::write(&mut out, trace)?;
            } else {
                jsonl::write(&mut out, trace)?;
            }
        }
    }
    out.flush()?;
    Ok(())
}
