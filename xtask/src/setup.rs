//! Installs what building and testing need on a fresh Debian or Ubuntu: says what it will do, does only what is missing.

mod readers;

use std::{
    env,
    io::{self, BufRead, IsTerminal, Write},
    path::Path,
    process::Command,
};

use anyhow::{Result, bail};

use crate::{
    kernels::{self, Kernel},
    paths,
    process::{command, output, run as run_command, succeeds},
};

/// Install what building and testing need (Debian, Ubuntu)
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Also what the tests under other kernels need: an emulator and the kernels
    #[arg(long)]
    pub(crate) vm: bool,
    /// Also what the tests of exports need: tshark, Chromium, Mermaid
    #[arg(long)]
    pub(crate) exports: bool,
    /// Do not ask
    #[arg(long, short)]
    pub(crate) yes: bool,
}

/// For compiling at all.
const BUILD_PACKAGES: &[&str] = &["build-essential"];
/// Debian's own Rust, the one with `core` for the BPF targets ready-built.
const DEBIAN_RUST_PACKAGES: &[&str] = &[
    "rustc-web",
    "cargo-web",
    "libstd-rust-web-dev-bpf",
    "rust-web-clippy",
];
/// For bpf-linker, beside the LLVM that Debian's Rust was built with.
const LINKER_PACKAGES: &[&str] = &["libzstd-dev", "zlib1g-dev"];
/// For the laboratory.
const LABORATORY_PACKAGES: &[&str] = &[
    "conntrack",
    "iproute2",
    "ipset",
    "iptables",
    "ipvsadm",
    "kmod",
    "nftables",
    "tmux",
];
/// For the virtual machine and its kernels.
const VM_PACKAGES: &[&str] = &[
    "binutils",
    "busybox-static",
    "dash",
    "debian-archive-keyring",
    "kmod",
    "qemu-system-x86",
    "xz-utils",
    "zstd",
];
/// The version of bpf-linker that the tests have passed with.
const BPF_LINKER: &str = "0.13.0";
/// The version of cargo-deny that deny.toml is written for.
const CARGO_DENY: &str = "0.20.2";

/// Installs what is missing.
pub(crate) fn run(options: &Options) -> Result<()> {
    check_rustup_components()?;
    let debian_rust = has_debian_rust();
    let mut packages: Vec<&str> = [BUILD_PACKAGES, LINKER_PACKAGES, LABORATORY_PACKAGES].concat();
    if debian_rust {
        packages.extend(DEBIAN_RUST_PACKAGES);
    }
    if options.vm {
        packages.extend(VM_PACKAGES);
    }
    if options.exports {
        packages.extend(readers::packages()?);
    }
    packages.sort_unstable();
    packages.dedup();

    let missing = missing_packages(
        &packages
            .iter()
            .map(|name| (*name).to_owned())
            .collect::<Vec<_>>(),
    );
    let linker = !has_version("bpf-linker", BPF_LINKER);
    let deny = !has_version("cargo-deny", CARGO_DENY);
    let kernels: Vec<Kernel> = Kernel::ALL
        .into_iter()
        .filter(|kernel| options.vm && kernel.release().is_none())
        .collect();

    let mut plan = Vec::new();
    if !missing.is_empty() {
        plan.push(format!("apt-get install {}", missing.join(" ")));
    }
    if linker {
        plan.push(format!(
            "cargo install bpf-linker@{BPF_LINKER} (and the LLVM that it links)"
        ));
    }
    if deny {
        plan.push(format!("cargo install cargo-deny@{CARGO_DENY}"));
    }
    for kernel in &kernels {
        plan.push(format!(
            "fetch kernel {} into {}",
            kernel.name(),
            paths::cache().display()
        ));
    }
    let mermaid = readers::missing().filter(|_| options.exports);
    plan.extend(mermaid.clone());
    if plan.is_empty() {
        println!("nothing to install");
        return Ok(());
    }
    println!("to install:");
    for step in &plan {
        println!("  {step}");
    }
    confirm(options)?;

    install_packages(missing)?;
    if linker {
        install_bpf_linker()?;
    }
    if deny {
        cargo_install(&format!("cargo-deny@{CARGO_DENY}"), &[], None)?;
    }
    if mermaid.is_some() {
        readers::fetch()?;
    }
    for kernel in kernels {
        kernels::ensure(kernel)?;
    }
    Ok(())
}

/// rustup's default profile has these; a minimal one may lack them.
fn check_rustup_components() -> Result<()> {
    for (program, component) in [("cargo-clippy", "clippy"), ("rustfmt", "rustfmt")] {
        if !succeeds(command(program, ["--version"]).env_remove("RUSTUP_TOOLCHAIN")) {
            bail!("{component} is missing; run `rustup component add {component}`");
        }
    }
    Ok(())
}

/// Whether Debian's Rust is installed or can be.
fn has_debian_rust() -> bool {
    let names: Vec<String> = DEBIAN_RUST_PACKAGES
        .iter()
        .map(|name| (*name).to_owned())
        .collect();
    if missing_packages(&names).is_empty() {
        return true;
    }
    let known = || {
        output(&mut command(
            "apt-cache",
            ["policy", "libstd-rust-web-dev-bpf"],
        ))
        .is_ok_and(|text| text.contains("Candidate:") && !text.contains("Candidate: (none)"))
    };
    if !known() {
        update_packages();
    }
    known()
}

/// Those of the packages that are not installed.
fn missing_packages(packages: &[String]) -> Vec<String> {
    // dpkg-query fails when it does not know a package, and still prints the others.
    let text = Command::new("dpkg-query")
        .args(["--show", "--showformat", "${db:Status-Status} ${Package}\n"])
        .args(packages)
        .output()
        .map(|output| String::from_utf8_lossy(&output.stdout).into_owned())
        .unwrap_or_default();
    packages
        .iter()
        .filter(|package| {
            !text
                .lines()
                .any(|line| line.strip_prefix("installed ") == Some(package.as_str()))
        })
        .cloned()
        .collect()
}

/// Fetches the lists of packages. A source of the machine's that does not answer is no reason to stop: what is missing
/// then shows when something is installed.
fn update_packages() {
    if let Err(error) = run_command(as_root("apt-get").args(["update", "--quiet", "--quiet"])) {
        eprintln!("warning: {error:#}");
    }
}

fn install_packages(packages: Vec<String>) -> Result<()> {
    if packages.is_empty() {
        return Ok(());
    }
    update_packages();
    run_command(
        as_root("apt-get")
            .args(["install", "--yes", "--quiet", "--no-install-recommends"])
            .args(packages),
    )
}

/// Builds bpf-linker for the LLVM of the Rust that will use it: Debian's, or else the one that rustup's nightly brings.
fn install_bpf_linker() -> Result<()> {
    let package = format!("bpf-linker@{BPF_LINKER}");
    let Some(llvm) = debian_llvm() else {
        if !succeeds(&mut command(
            "rustup",
            ["which", "--toolchain", "nightly", "rustc"],
        )) {
            bail!(
                "this distribution has no Rust with core for BPF; run `rustup toolchain install nightly --component rust-src`, \
                 then this again"
            );
        }
        return cargo_install(&package, &[], None);
    };
    install_packages(missing_packages(&[
        format!("llvm-{llvm}-dev"),
        format!("libpolly-{llvm}-dev"),
    ]))?;
    let feature = format!("llvm-{llvm}");
    cargo_install(
        &package,
        &["--no-default-features", "--features", &feature],
        Some(("LLVM_PREFIX", format!("/usr/lib/llvm-{llvm}"))),
    )
}

/// The major version of the LLVM that Debian's Rust was built with.
fn debian_llvm() -> Option<String> {
    let text = output(
        command("/usr/bin/rustc", ["--version", "--verbose"]).env_remove("RUSTUP_TOOLCHAIN"),
    )
    .ok()?;
    let version = text
        .lines()
        .find_map(|line| line.strip_prefix("LLVM version: "))?;
    let sysroot = output(&mut command("/usr/bin/rustc", ["--print", "sysroot"])).ok()?;
    Path::new(sysroot.trim())
        .join("lib/rustlib/bpfel-unknown-none")
        .is_dir()
        .then(|| version.split('.').next().unwrap_or(version).to_owned())
}

fn cargo_install(package: &str, options: &[&str], variable: Option<(&str, String)>) -> Result<()> {
    let mut cargo = command("cargo", ["install", "--locked", "--force", package]);
    // Where this program itself was built is nothing to the programs that it installs.
    cargo
        .args(options)
        .env_remove("CARGO_TARGET_DIR")
        .envs(variable);
    run_command(&mut cargo)
}

/// Whether a program is there in this version.
fn has_version(program: &str, version: &str) -> bool {
    paths::find_program(program)
        .and_then(|path| output(Command::new(path).arg("--version")).ok())
        .is_some_and(|text| text.split_whitespace().any(|word| word == version))
}

/// A command that runs as root.
fn as_root(program: &str) -> Command {
    // SAFETY: it reads a number of this process.
    let mut command = if unsafe { libc::geteuid() } == 0 {
        Command::new(program)
    } else {
        let mut sudo = Command::new("sudo");
        sudo.args(["--preserve-env=DEBIAN_FRONTEND", program]);
        sudo
    };
    command.env("DEBIAN_FRONTEND", "noninteractive");
    command
}

/// Asks, unless told not to.
fn confirm(options: &Options) -> Result<()> {
    if options.yes || env::var_os("CI").is_some() {
        return Ok(());
    }
    if !io::stdin().is_terminal() {
        bail!("nothing was installed; say --yes to install without being asked");
    }
    print!("go on? [y/N] ");
    io::stdout().flush()?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    if !answer.trim().eq_ignore_ascii_case("y") {
        bail!("nothing was installed");
    }
    Ok(())
}
