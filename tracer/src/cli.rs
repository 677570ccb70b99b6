//! The command line: parsing, one module per command, exit codes.

pub mod cleanup;
pub mod diagnose;
pub mod doctor;
pub mod explain;
pub mod export;
pub mod follow;
mod load;
pub mod merge;
pub mod pages;
pub mod probe;
pub mod show;

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;

use clap::{Parser, Subcommand, ValueEnum};

/// Follow one flow through the kernel of a Kubernetes node and see where it stopped.
#[derive(Debug, Parser)]
#[command(name = "tracer", version, max_term_width = 100, after_help = EXIT_CODES)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

const EXIT_CODES: &str = "Exit codes: 0 the flow was seen and no fault was found, 1 the tool failed, 2 wrong usage, \
3 the flow was seen and a fault was found, 4 nothing of the flow was seen in the time given.";

#[derive(Debug, Subcommand)]
enum Command {
    /// Trace one flow live
    Follow(Box<follow::Args>),
    /// Connect from the pod itself, by name, by Service and by backend, and trace each
    Probe(Box<probe::Args>),
    /// Show a recorded trace
    Show(show::Args),
    /// Put recordings of several nodes into one timeline
    Merge(merge::Args),
    /// Tell the findings of a recorded trace
    Diagnose(diagnose::Args),
    /// Write a recorded trace in another form: for Wireshark, a browser, a tracing backend
    Export(export::Args),
    /// Tell what a finding means and what to check next
    Explain(explain::Args),
    /// Tell what this kernel and this node let the tool see
    Doctor(doctor::Args),
    /// Remove what a killed run left behind
    Cleanup(cleanup::Args),
    /// Print a completion script for a shell
    Completions(pages::CompletionArgs),
    /// Print the manual page
    Man,
}

/// When to use colour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ColorWhen {
    /// On a terminal, unless `NO_COLOR` is set or TERM is dumb.
    #[default]
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

impl ColorWhen {
    /// Whether standard output gets colour.
    pub fn on_stdout(self) -> bool {
        match self {
            Self::Always => true,
            Self::Never => false,
            Self::Auto => {
                let set = |name| std::env::var_os(name).is_some_and(|v| !v.is_empty());
                let dumb = std::env::var_os("TERM").is_some_and(|t| t == "dumb");
                io::stdout().is_terminal() && !set("NO_COLOR") && !dumb
            }
        }
    }
}

/// The form of the result on standard output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// A screen to look around in; the default on a terminal.
    Tui,
    /// A timeline for people, packet by packet; the default elsewhere.
    Text,
    /// One JSON object at the end.
    Json,
    /// JSON lines as things happen.
    Jsonl,
}

impl Output {
    /// The form asked for, else the one that fits where the output goes.
    pub fn chosen(asked: Option<Self>) -> Result<Self, Failure> {
        let there = crate::tui::available();
        match asked {
            Some(Self::Tui) if !there => Err(Failure::usage(
                "-o tui needs a terminal on standard input and output (and TERM not dumb); use -o text",
            )),
            Some(form) => Ok(form),
            None if there => Ok(Self::Tui),
            None => Ok(Self::Text),
        }
    }
}

/// A command that failed: what to print, and the exit code.
#[derive(Debug)]
pub struct Failure {
    code: u8,
    message: String,
}

impl Failure {
    /// The tool failed.
    pub fn new(message: impl std::fmt::Display) -> Self {
        Self {
            code: 1,
            message: message.to_string(),
        }
    }

    /// The user asked wrongly.
    pub fn usage(message: impl std::fmt::Display) -> Self {
        Self {
            code: 2,
            message: message.to_string(),
        }
    }

    /// With a code of its own.
    pub fn with_code(code: u8, message: impl std::fmt::Display) -> Self {
        Self {
            code,
            message: message.to_string(),
        }
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl From<crate::file::WriteError> for Failure {
    fn from(e: crate::file::WriteError) -> Self {
        if e.is_broken_pipe() {
            return io::Error::from(io::ErrorKind::BrokenPipe).into();
        }
        Self::new(e)
    }
}

impl From<io::Error> for Failure {
    fn from(e: io::Error) -> Self {
        if e.kind() == io::ErrorKind::BrokenPipe {
            // The reader has seen enough, as `head` does.
            return Self {
                code: 0,
                message: String::new(),
            };
        }
        Self::new(e)
    }
}

/// What every command returns: an exit code, or why it failed.
pub type Outcome = Result<u8, Failure>;

/// Parses the arguments and runs the command.
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(e) => {
            // Help and version are no errors; clap knows which stream.
            let code = u8::try_from(e.exit_code()).unwrap_or(2);
            let _ = e.print();
            return ExitCode::from(code);
        }
    };
    let outcome = match cli.command {
        Command::Follow(args) => follow::run(&args),
        Command::Probe(args) => probe::run(&args),
        Command::Show(args) => show::run(&args),
        Command::Merge(args) => merge::run(&args),
        Command::Diagnose(args) => diagnose::run(&args),
        Command::Export(args) => export::run(&args),
        Command::Explain(args) => explain::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Cleanup(args) => cleanup::run(&args),
        Command::Completions(args) => pages::completions(&args),
        Command::Man => pages::man(),
    };
    match outcome {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            if !failure.message.is_empty() {
                say(&format!("tracer: {}", failure.message));
            }
            ExitCode::from(failure.code)
        }
    }
}

/// A line to standard error; a closed one is no reason to fail.
pub fn say(line: &str) {
    if crate::tui::keep(line) {
        return;
    }
    crate::progress::clear();
    let _ = writeln!(io::stderr(), "{}", crate::output::text::clean(line));
}
