//! Runs other programs, with errors of one sentence.

use std::{
    io::{BufRead, BufReader},
    process::{Command, Stdio},
};

use anyhow::{Context, Result, bail};

/// A command, from words.
pub(crate) fn command<const N: usize>(program: &str, arguments: [&str; N]) -> Command {
    let mut command = Command::new(program);
    command.args(arguments);
    command
}

/// Runs to the end, with this program's own output; an error if it fails.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let status = command
        .stdin(Stdio::null())
        .status()
        .with_context(|| format!("cannot run {}", name(command)))?;
    if !status.success() {
        bail!("`{}` failed ({status})", line(command));
    }
    Ok(())
}

/// Runs to the end and returns standard output; an error with what it said if it fails.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot run {}", name(command)))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!(
            "`{}` failed ({}): {}",
            line(command),
            output.status,
            said.trim()
        );
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Whether the program is there and ends well. It says nothing.
pub(crate) fn succeeds(command: &mut Command) -> bool {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// Runs to the end, hands each line of its standard output to `on_line`, and says whether it ended well.
pub(crate) fn stream(command: &mut Command, mut on_line: impl FnMut(&str)) -> Result<bool> {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot run {}", name(command)))?;
    if let Some(stdout) = child.stdout.take() {
        let mut reader = BufReader::new(stdout);
        let mut bytes = Vec::new();
        while reader.read_until(b'\n', &mut bytes)? > 0 {
            on_line(String::from_utf8_lossy(&bytes).trim_end_matches(['\n', '\r']));
            bytes.clear();
        }
    }
    Ok(child.wait()?.success())
}

/// The program's name, as it was given.
fn name(command: &Command) -> String {
    command.get_program().to_string_lossy().into_owned()
}

/// The command as one would type it, cut to a readable length.
fn line(command: &Command) -> String {
    const LONGEST: usize = 160;
    let mut line = name(command);
    for argument in command.get_args() {
        line.push(' ');
        line.push_str(&argument.to_string_lossy());
    }
    if line.chars().count() > LONGEST {
        line = line.chars().take(LONGEST).chain("...".chars()).collect();
    }
    line
}
