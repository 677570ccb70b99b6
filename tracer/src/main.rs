//! The `tracer` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    tracer::cli::main()
}
