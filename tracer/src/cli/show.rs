//! `tracer show`.

use std::io::{self, BufWriter, Write};
use std::path::PathBuf;

use super::{ColorWhen, Failure, Outcome, Output, load};
use crate::diagnose;
use crate::output::text::Text;
use crate::output::{json, jsonl};
use crate::trace::{Fold, Trace};

/// Arguments of `tracer show`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// A recording made with `follow -w`, or the output of `-o json` or `-o jsonl`
    file: PathBuf,
    /// Form of the result
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
    /// When to use colour
    #[arg(long, value_enum, default_value_t)]
    color: ColorWhen,
    /// Say nothing about what the file lacks
    #[arg(short, long)]
    quiet: bool,
}

/// Packets from which on text is printed while the file is still being read.
const LONG: u64 = 5_000;

/// Runs `tracer show`. The exit code is the verdict's, as `follow` gave it.
pub fn run(args: &Args) -> Outcome {
    let mut out = BufWriter::new(io::stdout().lock());
    let trace = match args.output {
        Output::Text => show_text(args, &mut out)?,
        _ => load::trace(&args.file, "show", args.quiet)?,
    };
    match args.output {
        Output::Text => {}
        Output::Json => json::write(&mut out, &trace)?,
        Output::Jsonl => write_lines(&mut out, &trace)?,
    }
    out.flush()?;
    Ok(diagnose::exit_code(
        &trace.closing.verdict,
        &trace.closing.findings,
    ))
}

/// A short recording packet by packet, in order of first sight; a long one at
/// once, as `follow` would have shown it.
fn show_text(args: &Args, out: &mut dyn Write) -> Result<Trace, Failure> {
    let color = args.color.on_stdout();
    let mut text = Text::new(out, color);
    let mut long = false;
    let mut loaded = load::load(&args.file, "show", args.quiet, |fold, progress| {
        if !long && fold.packet_count() < LONG {
            return Ok(());
        }
        long = true;
        progress.hush();
        complete(&mut text, fold)
    })?;
    if long {
        complete(&mut text, &mut loaded.fold)?;
        let trace = load::judged(loaded);
        text.closing(&trace.closing, &trace.header)?;
        return Ok(trace);
    }
    let trace = load::judged(loaded);
    text.trace(&trace)?;
    Ok(trace)
}

fn complete(text: &mut Text<&mut dyn Write>, fold: &mut Fold) -> io::Result<()> {
    for id in fold.complete(0) {
        if let Some(packet) = fold.packet(id) {
            text.packet(packet, None)?;
        }
    }
    text.flush()
}

/// A trace as lines, in order of time.
pub(super) fn write_lines(out: &mut dyn Write, trace: &Trace) -> io::Result<()> {
    let mut lines = jsonl::Lines::start(out, &trace.header)?;
    let mut steps: Vec<_> = trace.packets.iter().flat_map(|p| &p.steps).collect();
    steps.sort_by_key(|s| s.ts);
    lines.steps(steps)?;
    lines.finish(&trace.closing)?;
    Ok(())
}
