//! `tracer doctor`: what this kernel and this node let the tool see, and what
//! was found. Reads only: nothing is attached, loaded or written.
//!
//! Facts are gathered in the files below, each of which also judges them in
//! functions without I/O.

mod cni;
mod hooks;
mod kernel;
mod nodes;
mod proxy;
mod report;
mod text;

use std::io::{self, BufWriter, Write};
use std::path::PathBuf;

use clap::ValueEnum;

use super::{ColorWhen, Failure, Outcome};
use crate::btf::Btf;
use crate::discover::{self, Override};
use crate::inventory::Inventory;
use crate::kallsyms::Kallsyms;
use crate::probe::load;

use report::Report;

/// Arguments of `tracer doctor`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub struct Args {
    /// Form of the result
    #[arg(short, long, value_enum, default_value_t)]
    output: Form,
    /// Names and addresses of the cluster, as for `tracer follow`
    #[arg(long, value_name = "FILE")]
    inventory: Option<PathBuf>,
    /// A node, by its network namespace (repeatable; replaces discovery)
    #[arg(long, value_name = "NAME=PATH", value_parser = discover::parse_override)]
    netns: Vec<Override>,
    /// Type information of the kernel, where it has none itself
    #[arg(long, value_name = "FILE")]
    btf: Option<PathBuf>,
    /// List what `follow --deep` attaches, too
    #[arg(long)]
    deep: bool,
    /// When to use colour
    #[arg(long, value_enum, default_value_t)]
    color: ColorWhen,
}

const EXIT_CODES: &str = "Exit codes: 0 `tracer follow` can work here, 1 it cannot (the last line says why), 2 wrong usage.";

/// The form of the report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Form {
    /// Grouped lines for people.
    #[default]
    Text,
    /// One JSON object.
    Json,
}

/// Runs `tracer doctor`.
pub fn run(args: &Args) -> Outcome {
    let inventory = match &args.inventory {
        Some(path) => Some(Inventory::load(path).map_err(Failure::new)?),
        None => None,
    };
    let report = examine(args, inventory.as_ref())?;
    let mut out = BufWriter::new(io::stdout().lock());
    match args.output {
        Form::Text => text::write(&mut out, &report, args.deep, args.color.on_stdout())?,
        Form::Json => {
            serde_json::to_writer_pretty(&mut out, &report).map_err(Failure::new)?;
            writeln!(out)?;
        }
    }
    out.flush()?;
    Ok(u8::from(!report.verdict.can_follow))
}

/// Gathers the facts and judges them.
fn examine(args: &Args, inventory: Option<&Inventory>) -> Result<Report, Failure> {
    let (btf, symbols) = std::thread::scope(|scope| {
        let symbols = scope.spawn(|| Kallsyms::load(&load::wanted_symbols()).ok());
        let btf = match &args.btf {
            Some(path) => Btf::load(path),
            None => Btf::load_system(),
        };
        (btf, symbols.join().ok().flatten())
    });
    // An empty table, as a container may show it, is as good as none.
    let symbols = symbols.filter(hooks::any_target);
    let kernel = kernel::gather(&btf, args.btf.as_deref(), symbols.as_ref());
    let hooks = hooks::judge(kernel.kprobes, symbols.as_ref(), kernel.reasons);
    let discovery = discover::discover(&args.netns, inventory).map_err(Failure::new)?;
    let nodes = nodes::gather(&discovery, inventory, symbols.as_ref());
    Ok(report::build(
        &kernel,
        hooks,
        nodes,
        discovery.skipped,
        args.deep,
    ))
}
