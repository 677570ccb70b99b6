//! `tracer completions` and `tracer man`: made from the same definition as the
//! parser.

use std::io::{self, Write};

use clap::CommandFactory;

use super::{Cli, Outcome};

/// Arguments of `tracer completions`.
#[derive(Debug, clap::Args)]
pub struct CompletionArgs {
    /// The shell.
    shell: clap_complete::Shell,
}

/// Runs `tracer completions`.
pub fn completions(args: &CompletionArgs) -> Outcome {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "tracer", &mut script);
    io::stdout().write_all(&script)?;
    Ok(0)
}

/// Runs `tracer man`: the page of the command itself, then one per subcommand.
pub fn man() -> Outcome {
    let mut command = Cli::command();
    command.build();
    let mut page = Vec::new();
    clap_mangen::Man::new(command.clone()).render(&mut page)?;
    for sub in command.get_subcommands().filter(|c| c.get_name() != "help") {
        clap_mangen::Man::new(sub.clone()).render(&mut page)?;
    }
    io::stdout().write_all(&page)?;
    Ok(0)
}
