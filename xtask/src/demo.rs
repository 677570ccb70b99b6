//! Shows the tool at work, for a person who sees it for the first time: one call in the laboratory, its timeline, and
//! what to try next.

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Context, Result, bail};
use tracer_tests::lab::{self, Launcher, client, session::Turn, state::State, topology};

use crate::{
    LAB,
    kernels::Kernel,
    paths,
    running::{Output, Running},
    setup, test,
    vm::{self, Job},
};

/// Follow one call through the laboratory and show what the tool makes of it
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Under Debian 12's kernel in a virtual machine, with every hook
    #[arg(long)]
    vm: bool,
    /// Install what is missing without asking
    #[arg(long, short)]
    yes: bool,
    /// Inside the virtual machine: the folder with the programs
    #[arg(long, hide = true)]
    prebuilt: Option<PathBuf>,
}

/// The kernel of `--vm`.
pub(crate) const VM_KERNEL: Kernel = Kernel::V6_1;
/// Where the programs are in the guest.
pub(crate) const GUEST_DIR: &str = "/opt/tracer";
/// Says that a kernel has kprobes.
const KPROBES: &str = "/sys/bus/event_source/devices/kprobe/type";
/// Boot, laboratory and call, under emulation.
const VM_TIME: Duration = Duration::from_mins(5);

/// Runs the demonstration.
pub(crate) fn run(options: &Options) -> Result<()> {
    if let Some(dir) = &options.prebuilt {
        return follow(
            &dir.join("tracer"),
            Path::new(&format!("/results/{}", name(true))),
        );
    }
    check_root("demo")?;
    println!("1. What is missing on this machine");
    setup::run(&setup::Options {
        exports: false,
        vm: options.vm,
        yes: options.yes,
    })?;
    println!("\n2. Build the tool (the first time takes minutes)");
    let tracer = test::build::tracer()?;
    let dir = paths::target().join("demo");
    fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
    let recording = dir.join(name(options.vm));
    if options.vm {
        follow_in_vm(&tracer, &dir)?;
    } else {
        follow(&tracer, &recording)?;
    }
    if !recording.is_file() {
        bail!("the tool left no recording at {}", recording.display());
    }
    next(options, &tracer, &recording);
    Ok(())
}

/// An error unless this runs as root.
pub(crate) fn check_root(task: &str) -> Result<()> {
    // SAFETY: it reads a number of this process.
    if unsafe { libc::geteuid() } != 0 {
        bail!(
            "this makes network namespaces and loads eBPF programs, so it needs root: run `sudo -E env PATH=\"$PATH\" cargo xtask {task}`"
        );
    }
    Ok(())
}

/// The recording's name.
fn name(in_vm: bool) -> &'static str {
    if in_vm {
        "clusterip-vm.jsonl"
    } else {
        "clusterip.jsonl"
    }
}

/// Brings the laboratory up, follows the call, takes the laboratory down unless it was up before.
fn follow(tracer: &Path, recording: &Path) -> Result<()> {
    println!(
        "\n3. Bring the laboratory up: two Kubernetes nodes with Calico's and kube-proxy's rules, in network namespaces"
    );
    let turn = Turn::wait()?;
    let found = State::load()?.filter(State::is_intact);
    let was_up = found.is_some();
    let state = match found {
        Some(state) => {
            println!("   it is up already, and stays up afterwards");
            state
        }
        None => lab::up(&lab::Options::new(Launcher::current(LAB)?))?,
    };
    for name in ["client", "remote"] {
        println!("   {name:<7} {}", topology::describe(name));
    }
    println!("   {}  Service default/remote", topology::REMOTE_SERVICE);
    let result = call(tracer, recording);
    if !was_up {
        // The first error is the one worth telling.
        let down = lab::down();
        if result.is_ok() {
            down?;
            println!("\n5. The laboratory is down again");
        }
    }
    drop((turn, state));
    result
}

/// Runs the tool and makes the call that it waits for.
fn call(tracer: &Path, recording: &Path) -> Result<()> {
    println!("\n4. Follow the client's call of the Service");
    if !Path::new(KPROBES).exists() {
        println!(
            "   This kernel has no kprobes. What that costs is listed below as `warning:`; `cargo xtask demo --vm` shows\n   \
             the same call under Debian 12's kernel with every hook."
        );
    }
    let service = topology::REMOTE_SERVICE.to_string();
    let inventory = lab::inventory::path();
    let mut command = Command::new(tracer);
    command
        .args([
            "follow",
            "--pod",
            "client",
            "--dst",
            &service,
            "--inventory",
        ])
        .arg(&inventory)
        .args(["--no-kube", "--count", "1", "--duration", "60s"])
        .args(["-o", "text", "-w"])
        .arg(recording);
    println!(
        "   $ tracer follow --pod client --dst {service} --inventory {} --count 1 -o text -w {}\n",
        inventory.display(),
        shown(recording).display()
    );
    let running = Running::start(
        &mut command,
        Output::Shown,
        |line| line.starts_with("ready:"),
        |line| println!("{line}"),
    )?;
    println!("(now the client calls)\n");
    let address = SocketAddr::V4(topology::REMOTE_SERVICE);
    let limits = client::Options::default().timeout(Duration::from_secs(10));
    let answer = client::get(Some("client"), address, &limits);
    let status = running.wait(|line| eprintln!("{line}"))?;
    match answer {
        Ok(answer) => println!("\n(the client got {:?})", answer.body.trim()),
        Err(error) => println!("\n(the client got no answer: {error:#})"),
    }
    // 3 is a fault in the network, which a laboratory with a policy may well have.
    if !matches!(status.code(), Some(0 | 3)) {
        bail!("the tool did not see the call ({status})");
    }
    Ok(())
}

/// The same inside the virtual machine; the recording comes back.
fn follow_in_vm(tracer: &Path, dir: &Path) -> Result<()> {
    println!(
        "\n   The rest runs under kernel {}, in software emulation: about a minute",
        VM_KERNEL.name()
    );
    let job = Job {
        name: "demo",
        kernel: VM_KERNEL,
        files: guest_files(&[("tracer", tracer)])?,
        script: format!("{GUEST_DIR}/xtask demo --prebuilt {GUEST_DIR}\n"),
        time_limit: VM_TIME,
        results: Some(dir.to_owned()),
        memory_mib: Job::MEMORY_MIB,
    };
    let outcome = vm::run_job(&job, &mut |line| println!("{line}"))?;
    if outcome.code != 0 {
        bail!("the demonstration failed in the virtual machine; the reason is above");
    }
    Ok(())
}

/// These programs and this one, for the guest.
pub(crate) fn guest_files(programs: &[(&str, &Path)]) -> Result<Vec<(PathBuf, PathBuf)>> {
    let this = std::env::current_exe().context("cannot find this program's own file")?;
    let all = programs.iter().copied().chain([("xtask", this.as_path())]);
    Ok(all
        .map(|(name, path)| (path.to_owned(), Path::new(GUEST_DIR).join(name)))
        .collect())
}

/// A path as one would type it here.
fn shown(path: &Path) -> PathBuf {
    std::env::current_dir()
        .ok()
        .and_then(|here| path.strip_prefix(here).ok().map(Path::to_path_buf))
        .unwrap_or_else(|| path.to_owned())
}

/// Says what to try next.
fn next(options: &Options, tracer: &Path, recording: &Path) {
    let (tracer, recording) = (shown(tracer), shown(recording));
    let (tracer, recording) = (tracer.display(), recording.display());
    println!("\nThe recording is {recording}. What to try next:\n");
    println!("   {tracer} show {recording}             the same again, on any machine");
    println!("   {tracer} show {recording} -o json     for other programs");
    if !options.vm {
        println!("   cargo xtask demo --vm                 the same under a kernel with kprobes");
    }
    println!(
        "   cargo xtask lab up --policy on        a laboratory that stays, with a network policy"
    );
    println!(
        "   {tracer} follow --pod client --dst svc/default/remote --inventory {} --count 1",
        lab::inventory::path().display()
    );
    println!(
        "   cargo xtask lab label client -        the policy no longer lets the client in ..."
    );
    println!(
        "   cargo xtask lab get --ns client {}    ... so this call, made while the tool follows, is dropped",
        topology::REMOTE_SERVICE
    );
    println!("   cargo xtask lab down");
}
