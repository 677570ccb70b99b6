//! The laboratory's own command; `cargo xtask lab` runs the same code.

use std::process::ExitCode;

use clap::Parser;
use tracer_tests::lab::command::{self, LabArgs};

/// Build, inspect and take down the laboratory: two Kubernetes nodes in network namespaces.
#[derive(Parser)]
#[command(name = "lab", version)]
struct Cli {
    #[command(flatten)]
    lab: LabArgs,
}

fn main() -> ExitCode {
    match command::run(Cli::parse().lab) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("lab: {error:#}");
            ExitCode::FAILURE
        }
    }
}
