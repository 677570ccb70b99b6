//! Everything that can be said about the source without running it.

use std::{path::Path, process::Command, time::Instant};

use anyhow::{Result, bail};

use crate::{
    paths,
    process::{command, output, run as run_command},
};

/// Check format, lints, documentation, licences
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Format instead of checking the format
    #[arg(long)]
    pub(crate) fix_format: bool,
}

/// The crate that is compiled for the kernel.
const EBPF_CRATE: &str = "tracer-ebpf";
const EBPF_TARGET: &str = "bpfel-unknown-none";

/// A check: an error if it finds something.
type Check = fn(&Options) -> Result<Checked>;

/// A check that found nothing.
enum Checked {
    /// It ran.
    Passed,
    /// It could not run here, and why.
    Skipped(String),
}

/// Runs all checks, and then says which failed.
pub(crate) fn run(options: &Options) -> Result<()> {
    let checks: [(&str, Check); 6] = [
        ("format", format),
        ("clippy", clippy),
        ("clippy of tracer-ebpf", clippy_ebpf),
        ("documentation", documentation),
        ("licences, bans, sources", deny),
        ("advisories", advisories),
    ];
    let mut failed = Vec::new();
    for (name, check) in checks {
        let start = Instant::now();
        match check(options) {
            Ok(Checked::Passed) => {
                println!("lint: {name}: ok ({:.1} s)", start.elapsed().as_secs_f64());
            }
            Ok(Checked::Skipped(reason)) => println!("lint: {name}: NOT CHECKED: {reason}"),
            Err(error) => {
                println!("lint: {name}: {error:#}");
                failed.push(name);
            }
        }
    }
    if !failed.is_empty() {
        bail!("lint failed: {}", failed.join(", "));
    }
    Ok(())
}

/// A check that is a program.
fn check(command: &mut Command) -> Result<Checked> {
    run_command(command).map(|()| Checked::Passed)
}

/// The toolchain's own cargo, in the workspace.
fn cargo<const N: usize>(arguments: [&str; N]) -> Command {
    let mut cargo = command("cargo", arguments);
    cargo.current_dir(paths::workspace());
    cargo
}

fn format(options: &Options) -> Result<Checked> {
    let mut cargo = cargo(["fmt", "--all"]);
    if !options.fix_format {
        cargo.arg("--check");
    }
    check(&mut cargo)
}

fn clippy(_: &Options) -> Result<Checked> {
    check(&mut cargo([
        "clippy",
        "--quiet",
        "--workspace",
        "--exclude",
        EBPF_CRATE,
        "--all-targets",
        "--locked",
        "--",
        "-D",
        "warnings",
    ]))
}

/// Lints the eBPF programs with a clippy whose compiler has the BPF target: Debian's, or rustup's nightly.
fn clippy_ebpf(_: &Options) -> Result<Checked> {
    let mut clippy = if Path::new("/usr/bin/clippy-driver").exists()
        && Path::new("/usr/bin/cargo-clippy").exists()
    {
        let mut clippy = Command::new("/usr/bin/cargo-clippy");
        // Else it would find rustup's cargo and clippy-driver.
        clippy
            .env("PATH", "/usr/bin:/bin")
            .env("CARGO", "/usr/bin/cargo");
        clippy
            .env("RUSTC", "/usr/bin/rustc")
            .env("RUSTC_BOOTSTRAP", "1")
            .arg("clippy");
        clippy
    } else {
        let mut clippy = command(
            "rustup",
            ["run", "nightly", "cargo", "clippy", "-Z", "build-std=core"],
        );
        clippy.env("RUSTUP_AUTO_INSTALL", "0");
        clippy
    };
    clippy
        .args([
            "--quiet",
            "--package",
            EBPF_CRATE,
            "--release",
            "--locked",
            "--target",
            EBPF_TARGET,
            "--target-dir",
        ])
        .arg(paths::target().join("ebpf-lint"))
        .args(["--", "-D", "warnings"])
        .current_dir(paths::workspace())
        // Cargo sets these for the programs that it runs, and this is one.
        .env_remove("RUSTUP_TOOLCHAIN")
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .env(
            "RUSTFLAGS",
            format!("--cfg=bpf_target_arch=\"{}\"", std::env::consts::ARCH),
        );
    check(&mut clippy)
}

fn documentation(_: &Options) -> Result<Checked> {
    check(
        cargo([
            "doc",
            "--quiet",
            "--workspace",
            "--exclude",
            EBPF_CRATE,
            "--no-deps",
            "--locked",
        ])
        .env("RUSTDOCFLAGS", "-D warnings"),
    )
}

fn deny(_: &Options) -> Result<Checked> {
    check(&mut cargo([
        "deny",
        "--log-level",
        "error",
        "check",
        "bans",
        "licenses",
        "sources",
    ]))
}

/// Advisories are checked where their database (on GitHub) can be had; where not, that is said and is no failure.
fn advisories(_: &Options) -> Result<Checked> {
    if let Err(error) = output(&mut cargo(["deny", "fetch", "db"])) {
        let reason = format!("{error:#}");
        let reason = reason.lines().next().unwrap_or_default();
        return Ok(Checked::Skipped(format!(
            "the database of advisories cannot be fetched ({reason})"
        )));
    }
    check(&mut cargo([
        "deny",
        "--log-level",
        "error",
        "check",
        "advisories",
    ]))
}
