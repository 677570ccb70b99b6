//! `tracer show`.

use std::io::{self, BufWriter, Write};
use std::path::PathBuf;

use super::{ColorWhen, Failure, Outcome, Output, say};
use crate::output::{json, jsonl, text};
use crate::{diagnose, recording};

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

/// Runs `tracer show`. The exit code is the verdict's, as `follow` gave it.
pub fn run(args: &Args) -> Outcome {
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
    match args.output {
        Output::Text => text::write(&mut out, &trace, args.color.on_stdout())?,
        Output::Json => json::write(&mut out, &trace)?,
        Output::Jsonl => {
            let mut lines = jsonl::Lines::start(&mut out, &trace.header)?;
            let mut steps: Vec<_> = trace
                .packets
                .iter()
                .flat_map(|p| &p.steps)
                .cloned()
                .collect();
            steps.sort_by_key(|s| s.ts);
            lines.steps(&steps)?;
            lines.finish(&trace.closing)?;
        }
    }
    out.flush()?;
    Ok(diagnose::exit_code(
        &trace.closing.verdict,
        &trace.closing.findings,
    ))
}
