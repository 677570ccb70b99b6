//! `cargo xtask`: development tasks. One file per task, each with its `Options` and `run`.

mod bench;
mod demo;
mod kernels;
mod lint;
mod paths;
mod process;
mod running;
mod setup;
mod test;
mod vm;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};
use tracer_tests::lab::command::{self as lab, LabArgs};

/// Development tasks of tracer
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    Setup(setup::Options),
    Kernels(kernels::Options),
    Vm(vm::Options),
    Lint(lint::Options),
    Test(test::Options),
    /// Build, inspect and take down the laboratory: two Kubernetes nodes in network namespaces
    Lab(LabArgs),
    Demo(demo::Options),
    Bench(bench::Options),
}

/// The words that lead from this program to the laboratory's command line: its pods' processes are started by them.
const LAB: &[&str] = &["lab"];

fn main() -> ExitCode {
    let result = match Arguments::parse().task {
        Task::Setup(options) => done(setup::run(&options)),
        Task::Kernels(options) => done(kernels::run(&options)),
        Task::Vm(options) => vm::run(&options),
        Task::Lint(options) => done(lint::run(&options)),
        Task::Test(options) => Ok(test::run(&options)),
        Task::Lab(arguments) => lab::run(arguments.reached_by(LAB)),
        Task::Demo(options) => done(demo::run(&options)),
        Task::Bench(options) => done(bench::run(&options)),
    };
    result.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::FAILURE
    })
}

/// A task that has no exit code of its own.
fn done(result: Result<()>) -> Result<ExitCode> {
    result.map(|()| ExitCode::SUCCESS)
}
