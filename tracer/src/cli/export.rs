//! `tracer export`, and `--export` of the live commands: a trace in the form of
//! other people's tools.

use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::{Path, PathBuf};

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};

use super::{Failure, Outcome, load, say};
use crate::file::{self, Draft};
use crate::output::format::{self, FORMATS, Format};
use crate::progress::Progress;
use crate::trace::Trace;

mod post;

/// Arguments of `tracer export`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// A recording made with `follow -w`, or the output of `-o json` or `-o jsonl`
    file: PathBuf,
    /// The form
    #[arg(long, value_name = "FORMAT", value_parser = formats())]
    to: &'static Format,
    /// Where to: a file, `-` for standard output, for otlp also `http://HOST[:PORT]` of a collector
    #[arg(short, long, value_name = "OUT", default_value = "-")]
    output: String,
    /// Say nothing about what the file lacks, and no progress
    #[arg(short, long)]
    quiet: bool,
}

const EXAMPLES: &str = "Examples:
  tracer export call.jsonl.zst --to html -o call.html
  tracer export call.jsonl.zst --to pcapng -o - | wireshark -k -i -
  tracer export call.jsonl.zst --to otlp -o http://localhost:4318

A file takes its name when it is complete; what was there before stays until then. The exit code is 0 when
the trace was exported, whatever its verdict.";

fn formats() -> impl TypedValueParser<Value = &'static Format> {
    let values = FORMATS
        .iter()
        .map(|f| PossibleValue::new(f.name).help(f.about));
    PossibleValuesParser::new(values).try_map(|name| format::find(&name).ok_or("no such form"))
}

/// What to export when a live trace ends.
#[derive(Clone, Debug)]
pub struct Export {
    format: &'static Format,
    out: Out,
}

/// Where a result goes.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Out {
    File(PathBuf),
    Collector(String),
}

impl Out {
    fn new(format: &Format, text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Err("give the name of a file".to_owned());
        }
        let Some((scheme, _)) = text.split_once("://") else {
            return Ok(Self::File(text.into()));
        };
        if format.batches.is_none() {
            return Err(format!(
                "{} can only be written to a file; otlp is what is sent to a collector",
                format.name
            ));
        }
        if scheme != "http" {
            return Err(format!(
                "cannot send by {scheme}; give http://HOST[:PORT], or a file"
            ));
        }
        post::endpoint(text).map(Self::Collector)
    }
}

/// `FORMAT=OUT`, for clap.
pub fn parse_export(text: &str) -> Result<Export, String> {
    let names: Vec<&str> = FORMATS.iter().map(|f| f.name).collect();
    let wrong = || format!("write FORMAT=OUT, with one of {}", names.join(", "));
    let (name, out) = text.split_once('=').ok_or_else(wrong)?;
    let format = format::find(name).ok_or_else(wrong)?;
    let out = Out::new(format, out)?;
    if out == Out::File("-".into()) {
        return Err("standard output carries the result; give the name of a file".to_owned());
    }
    Ok(Export { format, out })
}

impl Export {
    /// Whether it could be written now: for finding out before the run what
    /// would be a pity after it.
    pub fn check(&self) -> Result<(), Failure> {
        match &self.out {
            Out::File(path) => Ok(file::check(path)?),
            Out::Collector(_) => Ok(()),
        }
    }

    /// Writes or sends the trace; with a sentence if there is something to tell.
    pub fn write(&self, trace: &Trace, quiet: bool) -> Result<Option<String>, Failure> {
        match &self.out {
            Out::File(path) => self.to_file(path, trace, quiet).map(|()| None),
            Out::Collector(url) => post::send(url, self.format, trace).map_err(Failure::new),
        }
    }

    fn to_file(&self, path: &Path, trace: &Trace, quiet: bool) -> Result<(), Failure> {
        let what = format!("exporting {}", path.display());
        let mut counted = Counted {
            out: Draft::create(path)?,
            written: 0,
            progress: Progress::new(&what, None, quiet),
        };
        let mut out = BufWriter::with_capacity(1 << 16, &mut counted);
        let done = (self.format.write)(&mut out, trace).and_then(|()| out.flush());
        drop(out);
        let Counted { out, progress, .. } = counted;
        done.map_err(|e| out.error(&e))?;
        out.finish()?;
        drop(progress);
        Ok(())
    }
}

/// Tells how far it is.
struct Counted {
    out: Draft,
    written: u64,
    progress: Progress,
}

impl Write for Counted {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let n = self.out.write(bytes)?;
        self.written += n as u64;
        self.progress.at(self.written);
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Runs `tracer export`.
pub fn run(args: &Args) -> Outcome {
    let format = args.to;
    let out = Out::new(format, &args.output).map_err(Failure::usage)?;
    let terminal = out == Out::File("-".into()) && io::stdout().is_terminal();
    if format.binary && terminal {
        return Err(Failure::usage(format!(
            "{} is nothing for a terminal; give a file with -o",
            format.name
        )));
    }
    let export = Export { format, out };
    export.check()?;
    let trace = load::trace(&args.file, "export", args.quiet)?;
    if let Some(note) = export.write(&trace, args.quiet)?.filter(|_| !args.quiet) {
        say(&note);
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exports_are_a_form_and_a_place() {
        let export = parse_export("json=a=b.json").unwrap();
        assert_eq!(export.format.name, "json");
        assert_eq!(export.out, Out::File("a=b.json".into()));
        let bad = [
            "json",
            "xml=a",
            "json=",
            "json=-",
            "json=http://a",
            "otlp=https://a",
            "otlp=http://",
        ];
        for text in bad {
            assert!(parse_export(text).is_err(), "{text}");
        }
        let sent = parse_export("otlp=http://localhost:4318").unwrap();
        let url = "http://localhost:4318/v1/traces";
        assert_eq!(sent.out, Out::Collector(url.to_owned()));
    }
}
