//! `tracer show`.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{ColorWhen, Failure, Outcome, Output, say};
use crate::output::{json, jsonl, text};
use crate::recording::{ReadError, Reader};
use crate::trace::{Fold, Trace};
use crate::{diagnose, recording, tui};

/// Arguments of `tracer show`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// A recording made with `follow -w`, or the output of `-o json` or `-o jsonl`
    file: PathBuf,
    /// Form of the result [default: tui on a terminal, else text]
    #[arg(short, long, value_enum)]
    output: Option<Output>,
    /// When to use colour
    #[arg(long, value_enum, default_value_t)]
    color: ColorWhen,
    /// Say nothing about what the file lacks
    #[arg(short, long)]
    quiet: bool,
}

/// Runs `tracer show`. The exit code is the verdict's, as `follow` gave it.
pub fn run(args: &Args) -> Outcome {
    let output = Output::chosen(args.output)?;
    if output == Output::Tui {
        return look(args);
    }
    let (mut trace, notices) = recording::read(&args.file)
        .map_err(|e| Failure::new(format!("cannot show {}: {e}", args.file.display())))?;
    if !args.quiet {
        for notice in &notices {
            say(&format!("warning: {}: {notice}", args.file.display()));
        }
    }
    if trace.closing.verdict.code.is_empty() {
        // Cut short before its verdict: judged anew by what was read.
        let (verdict, findings) = diagnose::diagnose(&trace);
        trace.closing.verdict = verdict;
        trace.closing.findings = findings;
    }
    let mut out = BufWriter::new(io::stdout().lock());
    match output {
        Output::Text | Output::Tui => text::write(&mut out, &trace, args.color.on_stdout())?,
        Output::Json => json::write(&mut out, &trace)?,
        Output::Jsonl => jsonl::write(&mut out, &trace)?,
    }
    out.flush()?;
    Ok(diagnose::exit_code(
        &trace.closing.verdict,
        &trace.closing.findings,
    ))
}

/// Steps between two looks at how far reading is.
const STRIDE: u64 = 1024;

/// The trace on the screen; its verdict stays behind on the terminal.
fn look(args: &Args) -> Outcome {
    let file = args.file.clone();
    let color = args.color.on_stdout();
    let seen = tui::show(color, move |progress| {
        let name = file.display();
        load(&file, progress).map_err(|e| format!("cannot show {name}: {e}"))
    });
    for line in tui::kept() {
        say(&line);
    }
    let seen = seen.map_err(Failure::new)?;
    if let tui::Left::Failed(why) = seen.left {
        return Err(Failure::new(why));
    }
    let Some((closing, tool)) = seen.closing else {
        let file = args.file.display();
        return Err(Failure::new(format!("{file} was not read to its end")));
    };
    if seen.left != tui::Left::Gone {
        text::Text::new(io::stdout().lock(), color).closing(&closing, &tool)?;
    }
    Ok(diagnose::exit_code(&closing.verdict, &closing.findings))
}

/// A recording with its verdict, and what is worth telling of it.
fn load(path: &Path, progress: &tui::Progress) -> Result<(Trace, Vec<String>), ReadError> {
    let file = File::open(path)?;
    let total = file.metadata().map_or(0, |m| m.len());
    let read = Arc::new(AtomicU64::new(0));
    let counted = Counted(file, Arc::clone(&read));
    let mut reader = Reader::new(BufReader::new(counted))?;
    let mut fold = Fold::new(&reader.header().nodes);
    let mut steps = 0u64;
    for step in reader.by_ref() {
        fold.push(step?);
        steps += 1;
        if steps.is_multiple_of(STRIDE) {
            progress.at(read.load(Ordering::Relaxed), total);
        }
    }
    fold.finish();
    let losses = reader.closing().map(|c| c.losses).unwrap_or_default();
    let mut trace = fold.trace(reader.header().clone(), losses);
    if let Some(closing) = reader.closing() {
        trace.closing = closing.clone();
    }
    if trace.closing.verdict.code.is_empty() {
        (trace.closing.verdict, trace.closing.findings) = diagnose::diagnose(&trace);
    }
    let notices = reader.notices().iter();
    let notices = notices.map(|n| format!("warning: {}: {n}", path.display()));
    Ok((trace, notices.collect()))
}

/// Counts what is read of the file.
struct Counted(File, Arc<AtomicU64>);

impl Read for Counted {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = self.0.read(buf)?;
        self.1.fetch_add(n as u64, Ordering::Relaxed);
        Ok(n)
    }
}
