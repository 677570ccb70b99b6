//! `tracer diagnose`: the findings of a recorded trace.

use std::io::{self, BufWriter, Write};
use std::path::PathBuf;

use serde_json::json;

use super::{ColorWhen, Outcome, load};
use crate::diagnose;
use crate::output::text::Text;

/// The form of the findings on standard output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Form {
    /// For people.
    #[default]
    Text,
    /// One JSON object: verdict, findings, losses.
    Json,
}

/// Arguments of `tracer diagnose`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// A recording made with `follow -w`, or the output of `-o json` or `-o jsonl`
    file: PathBuf,
    /// Form of the result
    #[arg(short, long, value_enum, default_value_t)]
    output: Form,
    /// When to use colour
    #[arg(long, value_enum, default_value_t)]
    color: ColorWhen,
    /// Say nothing about what the file lacks
    #[arg(short, long)]
    quiet: bool,
}

/// Runs `tracer diagnose`: judges anew what was recorded, by this version's
/// rules. The exit code is the verdict's.
pub fn run(args: &Args) -> Outcome {
    let mut trace = load::trace(&args.file, "diagnose", args.quiet)?;
    let (verdict, findings) = diagnose::diagnose(&trace);
    let code = diagnose::exit_code(&verdict, &findings);
    trace.closing.verdict = verdict;
    trace.closing.findings = findings;
    let mut out = BufWriter::new(io::stdout().lock());
    match args.output {
        Form::Text => {
            Text::new(&mut out, args.color.on_stdout()).closing(&trace.closing, &trace.header)?;
        }
        Form::Json => {
            let closing = &trace.closing;
            let object = json!({
                "verdict": closing.verdict,
                "findings": closing.findings,
                "losses": closing.losses,
            });
            writeln!(out, "{object}")?;
        }
    }
    out.flush()?;
    Ok(code)
}
