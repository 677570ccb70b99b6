//! Everything that has to pass: set-up, lint, unit tests, the laboratory on this kernel and under the others.
//!
//! Sections run in this order. One that later ones build on ends the run when it fails; the others are all run, and
//! counted. The last line, `N passed, N failed`, is what CI reads.

pub(crate) mod build;
mod libtest;
mod matrix;

use std::{
    process::{Command, ExitCode},
    time::{Duration, Instant},
};

use anyhow::Result;
use clap::ValueEnum;

use self::{build::Built, libtest::Counts};
use crate::{kernels::Kernel, lint, paths, process, setup};

/// Run all tests
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Only these sections (default: all)
    #[arg(long, value_delimiter = ',')]
    only: Vec<Section>,
    /// Only these kernels of the section `vm` (default: all)
    #[arg(long = "kernel", value_delimiter = ',')]
    kernels: Vec<Kernel>,
    /// Only the laboratory's tests whose names contain one of these (default: what the kernel is listed with)
    #[arg(last = true)]
    filters: Vec<String>,
}

/// A part of the run.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Section {
    /// What is missing on this machine
    Setup,
    /// Format, lints, documentation, licences
    Lint,
    /// The crates' own tests
    Unit,
    /// The laboratory on this machine's kernel
    Native,
    /// The laboratory under the other kernels
    Vm,
}

/// What has been counted so far.
#[derive(Default)]
struct Report {
    counts: Counts,
    /// A line for each section that was run.
    lines: Vec<String>,
}

/// Runs the sections, prints the summary.
pub(crate) fn run(options: &Options) -> ExitCode {
    let mut report = Report::default();
    let start = Instant::now();
    let whole = run_sections(options, &mut report);
    println!("\n== summary");
    for line in &report.lines {
        println!("{line}");
    }
    if !whole {
        println!("stopped there: the sections after it build on it");
    }
    println!("in all: {}", duration(start.elapsed()));
    println!(
        "{} passed, {} failed",
        report.counts.passed, report.counts.failed
    );
    if report.counts.failed == 0 && whole {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Runs the sections in order; false when it had to stop.
fn run_sections(options: &Options, report: &mut Report) -> bool {
    let wanted = |section| options.only.is_empty() || options.only.contains(&section);
    if wanted(Section::Setup) {
        let options = setup::Options {
            vm: true,
            exports: true,
            yes: true,
        };
        if !report.step("setup", || setup::run(&options)) {
            return false;
        }
    }
    if wanted(Section::Lint)
        && !report.step("lint", || lint::run(&lint::Options { fix_format: false }))
    {
        return false;
    }
    if wanted(Section::Unit) {
        report.tests("unit tests", || {
            let mut cargo = process::command("cargo", ["test", "--locked"]);
            libtest::run(cargo.current_dir(paths::workspace()))
        });
    }
    if !wanted(Section::Native) && !wanted(Section::Vm) {
        return true;
    }
    let mut built = None;
    if !report.step("build", || {
        built = Some(build::build()?);
        Ok(())
    }) {
        return false;
    }
    let Some(built) = built else {
        return false;
    };
    if wanted(Section::Native) {
        report.tests("laboratory on this kernel", || {
            native(&built, &options.filters)
        });
    }
    if wanted(Section::Vm) {
        for kernel in Kernel::ALL {
            if options.kernels.is_empty() || options.kernels.contains(&kernel) {
                let name = format!("laboratory on kernel {}", kernel.name());
                report.tests(&name, || matrix::run(kernel, &built, &options.filters));
            }
        }
    }
    true
}

/// Runs the laboratory's tests on this machine's own kernel.
fn native(built: &Built, filters: &[String]) -> Result<Counts> {
    let mut counts = Counts::default();
    for test in &built.tests {
        let mut command = Command::new(&test.path);
        command
            .arg("--test-threads=1")
            .args(filters)
            .env(build::TRACER_BIN, &built.tracer)
            .env(build::RECORDINGS_DIR, paths::target().join("cases/native"))
            // Where `cargo test` would run it.
            .current_dir(paths::workspace().join("tests"));
        if let Some(lab) = built.lab() {
            command.env(build::LAB_BIN, &lab.path);
        }
        counts.add(libtest::run(&mut command)?);
    }
    Ok(counts)
}

impl Report {
    /// Runs a section that is not made of tests. It counts only when it fails.
    fn step(&mut self, name: &str, run: impl FnOnce() -> Result<()>) -> bool {
        println!("\n== {name}");
        let start = Instant::now();
        let result = run();
        let outcome = match &result {
            Ok(()) => "ok".to_owned(),
            Err(error) => format!("FAILED: {error:#}"),
        };
        if result.is_err() {
            self.counts.failed += 1;
        }
        self.close(name, &outcome, start);
        result.is_ok()
    }

    /// Runs a section that is made of tests.
    fn tests(&mut self, name: &str, run: impl FnOnce() -> Result<Counts>) {
        println!("\n== {name}");
        let start = Instant::now();
        let outcome = match run() {
            Ok(mut counts) => {
                if counts.crashed && counts.failed == 0 {
                    counts.failed = 1;
                }
                self.counts.add(counts);
                let word = if counts.failed == 0 { "ok" } else { "FAILED" };
                format!(
                    "{word}: {} passed, {} failed, {} ignored",
                    counts.passed, counts.failed, counts.ignored
                )
            }
            Err(error) => {
                self.counts.failed += 1;
                format!("FAILED: {error:#}")
            }
        };
        self.close(name, &outcome, start);
    }

    fn close(&mut self, name: &str, outcome: &str, start: Instant) {
        let line = format!("{name}: {outcome} ({})", duration(start.elapsed()));
        println!("== {line}");
        self.lines.push(line);
    }
}

/// `3 min 20 s`.
fn duration(time: Duration) -> String {
    let seconds = time.as_secs();
    if seconds < 60 {
        return format!("{:.1} s", time.as_secs_f64());
    }
    format!("{} min {} s", seconds / 60, seconds % 60)
}
