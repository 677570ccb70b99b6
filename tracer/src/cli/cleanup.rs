//! `tracer cleanup`.

use std::io::{self, Write};

use super::{Failure, Outcome, say};
use crate::probe::leftover;

/// Arguments of `tracer cleanup`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Say nothing when there is nothing to remove.
    #[arg(short, long)]
    quiet: bool,
}

/// Runs `tracer cleanup`.
pub fn run(args: &Args) -> Outcome {
    if let Some(missing) = crate::privilege::missing() {
        return Err(Failure::new(missing));
    }
    let cleaned =
        leftover::clean().map_err(|e| Failure::new(format!("cannot list the interfaces: {e}")))?;
    let mut out = io::stdout();
    for line in cleaned.filters.iter().chain(&cleaned.qdiscs) {
        writeln!(out, "removed {}", crate::output::text::clean(line))?;
    }
    if cleaned.filters.is_empty() && cleaned.qdiscs.is_empty() && !args.quiet {
        writeln!(out, "nothing to remove")?;
    }
    for pid in &cleaned.alive {
        say(&format!("left alone: process {pid} is a tracer at work"));
    }
    if cleaned.failed.is_empty() {
        return Ok(0);
    }
    Err(Failure::new(format!(
        "could not remove: {}",
        cleaned.failed.join("; ")
    )))
}
