//! Runs a script under another kernel: a virtual machine in software emulation, with no network device and no disk.
//!
//! Its whole root is an initramfs that is put together here ([`initramfs`]) from this machine's own programs and the
//! kernel's modules; a shared root (9p) is several times slower under emulation. The guest speaks to us over three
//! virtio-serial ports ([`qemu`]): the script's output, what it left in `/results` (a tar), and its exit code.

mod cpio;
mod initramfs;
mod qemu;

use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use anyhow::{Context, Result, bail};

use crate::{
    kernels::{self, Kernel},
    paths,
};

/// Run a command under another kernel, in a virtual machine
#[derive(clap::Args)]
pub(crate) struct Options {
    /// The kernel
    #[arg(long)]
    kernel: Kernel,
    /// A file or folder to put into the guest; programs bring their libraries
    #[arg(long = "file", value_name = "HOST[:GUEST]")]
    files: Vec<String>,
    /// Where to put what the command leaves in /results
    #[arg(long, value_name = "DIR")]
    results: Option<PathBuf>,
    /// End the machine after this many seconds
    #[arg(long, default_value_t = 600)]
    timeout: u64,
    /// The guest's memory in MiB
    #[arg(long, default_value_t = Job::MEMORY_MIB)]
    memory: u32,
    /// The command: one word is a shell script, more are a program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<String>,
}

/// What to run in the guest, and with what.
pub(crate) struct Job<'a> {
    /// Names the log files, with the kernel.
    pub(crate) name: &'a str,
    /// The kernel to boot; it is fetched if it is not there.
    pub(crate) kernel: Kernel,
    /// Files and folders (here, in the guest). Programs bring the libraries that they need.
    pub(crate) files: Vec<(PathBuf, PathBuf)>,
    /// A script for the guest's `/bin/sh`, run as root in `/root`.
    pub(crate) script: String,
    /// When the machine is ended, boot included.
    pub(crate) time_limit: Duration,
    /// Where the script's `/results` go.
    pub(crate) results: Option<PathBuf>,
    /// The guest's memory in MiB; its files and `/tmp` are in there too.
    pub(crate) memory_mib: u32,
}

impl Job<'_> {
    /// Enough for two nodes' namespaces and the test programs.
    pub(crate) const MEMORY_MIB: u32 = 2560;
}

/// How it went.
pub(crate) struct Outcome {
    /// The script's exit code.
    pub(crate) code: i32,
    /// From the start of the machine to the start of the script.
    pub(crate) boot: Duration,
    /// From the start of the machine to its end.
    pub(crate) total: Duration,
}

/// The command line's `vm`.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let mut files = Vec::new();
    for spec in &options.files {
        let (host, guest) = spec.split_once(':').unwrap_or((spec, spec));
        let host = fs::canonicalize(host).with_context(|| format!("cannot find {host}"))?;
        let guest = if guest == spec {
            host.clone()
        } else {
            PathBuf::from(guest)
        };
        files.push((host, guest));
    }
    let script = match options.command.as_slice() {
        [script] => script.clone(),
        words => words
            .iter()
            .map(|word| shell_quote(word))
            .collect::<Vec<_>>()
            .join(" "),
    };
    let job = Job {
        name: "vm",
        kernel: options.kernel,
        files,
        script,
        time_limit: Duration::from_secs(options.timeout),
        results: options.results.clone(),
        memory_mib: options.memory,
    };
    let outcome = run_job(&job, &mut |line| println!("{line}"))?;
    eprintln!(
        "kernel {}: exit code {}, booted in {:.1} s, ended after {:.1} s",
        options.kernel.name(),
        outcome.code,
        outcome.boot.as_secs_f64(),
        outcome.total.as_secs_f64()
    );
    Ok(ExitCode::from(u8::try_from(outcome.code).unwrap_or(1)))
}

/// Boots, runs the script, hands each line of its output to `on_line`, brings the results back.
///
/// An error means that the script did not run to its end: no kernel, a panic, the time limit. All output is also in
/// `target/vm/logs/NAME-KERNEL.{output,console}.log`.
pub(crate) fn run_job(job: &Job, on_line: &mut dyn FnMut(&str)) -> Result<Outcome> {
    kernels::ensure(job.kernel)?;
    let dir = paths::target().join("vm");
    let logs = dir.join("logs");
    let label = format!("{}-{}", job.name, job.kernel.name());
    let work = dir.join(format!("{label}.{}", std::process::id()));
    for dir in [&logs, &work] {
        fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
    }
    let result = run_in(job, &work, &logs.join(label), on_line);
    fs::remove_dir_all(&work).with_context(|| format!("cannot remove {}", work.display()))?;
    result
}

/// As [`run_job`], with a folder for this run's files and the common start of its logs' names.
fn run_in(job: &Job, work: &Path, logs: &Path, on_line: &mut dyn FnMut(&str)) -> Result<Outcome> {
    let archive = work.join("initramfs.cpio");
    initramfs::write(job, &archive)
        .with_context(|| format!("cannot pack the root for kernel {}", job.kernel.name()))?;
    let machine = qemu::Machine {
        image: job.kernel.image(),
        initramfs: archive,
        memory_mib: job.memory_mib,
        time_limit: job.time_limit,
        output: logs.with_added_extension("output.log"),
        console: logs.with_added_extension("console.log"),
        status: work.join("status"),
        results: work.join("results.tar"),
    };
    let outcome = machine
        .run(on_line)
        .with_context(|| format!("kernel {}", job.kernel.name()))?;
    if let Some(results) = &job.results {
        unpack(&machine.results, results)?;
    }
    Ok(outcome)
}

/// Unpacks the tar that the guest sent.
fn unpack(tar: &Path, into: &Path) -> Result<()> {
    fs::create_dir_all(into).with_context(|| format!("cannot make {}", into.display()))?;
    if fs::metadata(tar).map_or(0, |found| found.len()) == 0 {
        bail!("the guest sent no results");
    }
    crate::process::output(
        crate::process::command("tar", ["--extract", "--file"])
            .arg(tar)
            .arg("--directory")
            .arg(into),
    )?;
    Ok(())
}

/// A word as the shell reads it back.
pub(crate) fn shell_quote(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::shell_quote;

    #[test]
    fn quotes_what_the_shell_would_read() {
        assert_eq!(shell_quote("it's $HOME"), r"'it'\''s $HOME'");
    }
}
