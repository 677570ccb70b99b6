//! `tracer show`.

use std::io::{self, BufWriter, Write};
use std::path::PathBuf;

use super::{ColorWhen, Failure, Outcome, Output, load, say};
use crate::output::text::Text;
use crate::output::{json, jsonl};
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

/// Packets from which on text is printed while the file is still being read.
const LONG: u64 = 5_000;

/// Runs `tracer show`. The exit code is the verdict's, as `follow` gave it.
pub fn run(args: &Args) -> Outcome {
    let output = Output::chosen(args.output)?;
    if output == Output::Tui {
        return look(args);
    }
    let mut out = BufWriter::new(io::stdout().lock());
    let trace = match output {
        Output::Text => show_text(args, &mut out)?,
        _ => load::trace(&args.file, "show", args.quiet)?,
    };
    match output {
        Output::Text | Output::Tui => {}
        Output::Json => json::write(&mut out, &trace)?,
        Output::Jsonl => jsonl::write(&mut out, &trace)?,
    }
    out.flush()?;
    Ok(diagnose::exit_code(
        &trace.closing.verdict,
        &trace.closing.findings,
    ))
}

/// The trace on the screen; its verdict stays behind on the terminal.
fn look(args: &Args) -> Outcome {
    let file = args.file.clone();
    let color = args.color.on_stdout();
    let seen = tui::show(color, move |progress| {
        let loaded = recording::load(&file, true, |_, read| {
            let (done, total) = read.told();
            progress.at(done, total.unwrap_or(done));
            Ok::<_, recording::ReadError>(())
        });
        let name = file.display();
        let loaded = loaded.map_err(|e| format!("cannot show {name}: {e}"))?;
        let notices = loaded.notices.iter().map(|n| load::notice(&file, n));
        let notices = notices.collect();
        Ok((load::judged(loaded), notices))
    });
    for line in tui::kept() {
        say(&line);
    }
    let seen = seen.map_err(Failure::new)?;
    if let tui::Left::Failed(why) = seen.left {
        return Err(Failure::new(why));
    }
    let Some((closing, header)) = seen.closing else {
        let file = args.file.display();
        return Err(Failure::new(format!("{file} was not read to its end")));
    };
    if seen.left != tui::Left::Gone {
        Text::new(io::stdout().lock(), color).closing(&closing, &header)?;
    }
    Ok(diagnose::exit_code(&closing.verdict, &closing.findings))
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
