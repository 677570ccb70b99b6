//! Running the few system programs that the laboratory needs.

use std::io::{ErrorKind, Write};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, anyhow, bail};

use super::state;

/// Runs a program with `input` on its standard input and returns its standard output.
pub fn run(program: &str, args: &[&str], input: &str) -> Result<String> {
    let mut child = Command::new(program)
        .args(args)
        // The legacy iptables would leave /run/xtables.lock behind.
        .env("XTABLES_LOCKFILE", format!("{}/xtables.lock", state::DIR))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| match error.kind() {
            ErrorKind::NotFound => missing(program),
            _ => anyhow!(error).context(format!("starting {program}")),
        })?;
    if let Some(mut stdin) = child.stdin.take() {
        match stdin.write_all(input.as_bytes()) {
            // The program ended early; its exit status says why.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => {}
            other => other.with_context(|| format!("writing to {program}"))?,
        }
    }
    let output = child
        .wait_with_output()
        .with_context(|| format!("waiting for {program}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let message = String::from_utf8_lossy(&output.stderr);
    let said: Vec<&str> = message
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect();
    bail!("{program} {} failed: {}", args.join(" "), said.join("; "));
}

/// Runs a program for its effect alone.
pub fn feed(program: &str, args: &[&str], input: &str) -> Result<()> {
    run(program, args, input).map(drop)
}

fn missing(program: &str) -> anyhow::Error {
    let package = match program {
        "ip" | "bridge" => "iproute2",
        "ipset" => "ipset",
        _ if program.starts_with("iptables") => "iptables",
        _ => return anyhow!("{program} is not installed"),
    };
    anyhow!("{program} is not installed; install the package {package}")
}
