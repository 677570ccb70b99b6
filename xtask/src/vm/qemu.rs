//! Runs the emulator and watches it: output, time limit, panics.

use std::{
    fs::{self, File},
    io::Read,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};

use super::Outcome;
use crate::paths;

/// How often the guest's output is read.
const POLL: Duration = Duration::from_millis(50);
/// What the guest's first program writes to the console when the script starts.
const STARTED: &str = "started";
/// What the kernel writes to the console when it gives up.
const PANIC: &str = "Kernel panic";

/// The kernel's command line. A fault in the kernel ends the guest at once; watchdogs are off, because time goes by
/// slowly under emulation.
const COMMAND_LINE: &str = "console=ttyS0 loglevel=4 panic=-1 oops=panic mitigations=off random.trust_cpu=on \
     nowatchdog rcupdate.rcu_cpu_stall_suppress=1 no_timer_check tsc=reliable net.ifnames=0";

/// One virtual machine and the files that it writes.
pub(crate) struct Machine {
    pub(crate) image: PathBuf,
    pub(crate) initramfs: PathBuf,
    pub(crate) memory_mib: u32,
    pub(crate) time_limit: Duration,
    /// The script's output.
    pub(crate) output: PathBuf,
    /// The kernel's messages.
    pub(crate) console: PathBuf,
    /// The script's exit code.
    pub(crate) status: PathBuf,
    /// The guest's `/results`, a tar.
    pub(crate) results: PathBuf,
}

/// The emulator, ended when this goes out of scope.
struct Emulator(Child);

impl Drop for Emulator {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Machine {
    /// Runs the machine to its end.
    pub(crate) fn run(&self, on_line: &mut dyn FnMut(&str)) -> Result<Outcome> {
        for path in [&self.output, &self.console, &self.status, &self.results] {
            File::create(path).with_context(|| format!("cannot write {}", path.display()))?;
        }
        let start = Instant::now();
        let mut emulator = Emulator(
            self.command()?
                .spawn()
                .context("cannot run qemu-system-x86_64")?,
        );
        let mut output = Lines::open(&self.output)?;
        let mut console = Lines::open(&self.console)?;
        let mut boot = None;
        loop {
            let ended = emulator.0.try_wait()?;
            let mut panic = None;
            console.read(ended.is_some(), &mut |line| {
                if line.trim() == STARTED {
                    boot.get_or_insert_with(|| start.elapsed());
                } else if line.contains(PANIC) {
                    panic = Some(line.trim().to_owned());
                }
            })?;
            output.read(ended.is_some(), on_line)?;
            if let Some(panic) = panic {
                // The rest of its last words.
                thread::sleep(Duration::from_secs(1));
                bail!("{panic}; see {}", self.console.display());
            }
            if let Some(status) = ended {
                let code = fs::read_to_string(&self.status)?;
                let Ok(code) = code.trim().parse() else {
                    bail!(
                        "the guest ended without an exit code ({status}); see {}",
                        self.console.display()
                    );
                };
                let total = start.elapsed();
                return Ok(Outcome {
                    code,
                    boot: boot.unwrap_or(total),
                    total,
                });
            }
            if start.elapsed() > self.time_limit {
                bail!(
                    "the time limit of {} s is over, and the guest {}; see {} and {}",
                    self.time_limit.as_secs(),
                    if boot.is_some() {
                        "still runs the script"
                    } else {
                        "has not booted"
                    },
                    self.output.display(),
                    self.console.display()
                );
            }
            thread::sleep(POLL);
        }
    }

    /// The emulator's command line.
    fn command(&self) -> Result<Command> {
        let Some(qemu) = paths::find_program("qemu-system-x86_64") else {
            bail!("qemu-system-x86_64 is missing; run `cargo xtask setup --vm`");
        };
        let mut command = Command::new(qemu);
        command
            .args([
                "-nodefaults",
                "-no-user-config",
                "-no-reboot",
                "-display",
                "none",
                "-nic",
                "none",
            ])
            // Never KVM: on the machines that this is made for it is there and does not work.
            .args(["-machine", "q35", "-accel", "tcg,thread=multi,tb-size=512"])
            .args([
                "-cpu",
                "max",
                "-smp",
                "2",
                "-m",
                &self.memory_mib.to_string(),
            ])
            .arg("-kernel")
            .arg(&self.image)
            .arg("-initrd")
            .arg(&self.initramfs)
            .args(["-append", COMMAND_LINE])
            .args([
                "-chardev",
                &chardev("console", &self.console),
                "-serial",
                "chardev:console",
            ])
            .args(["-device", "virtio-serial-pci"]);
        // The guest knows them by this order.
        for (name, path) in [
            ("output", &self.output),
            ("results", &self.results),
            ("status", &self.status),
        ] {
            command.args(["-chardev", &chardev(name, path)]);
            command.args([
                "-device",
                &format!("virtserialport,chardev={name},name={name}"),
            ]);
        }
        command.stdin(Stdio::null()).stdout(Stdio::null());
        Ok(command)
    }
}

/// A character device that writes to a file.
fn chardev(name: &str, path: &Path) -> String {
    // The emulator reads two commas as one.
    let path = path.display().to_string().replace(',', ",,");
    format!("file,id={name},path={path}")
}

/// A growing file, read line by line.
struct Lines {
    file: File,
    rest: Vec<u8>,
}

impl Lines {
    fn open(path: &Path) -> Result<Self> {
        Ok(Self {
            file: File::open(path)?,
            rest: Vec::new(),
        })
    }

    /// Hands on the lines that were added; at the end also one that is not whole.
    fn read(&mut self, last: bool, on_line: &mut dyn FnMut(&str)) -> Result<()> {
        self.file.read_to_end(&mut self.rest)?;
        while let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.rest.drain(..=end).collect();
            on_line(String::from_utf8_lossy(&line).trim_end_matches(['\n', '\r']));
        }
        if last && !self.rest.is_empty() {
            on_line(&String::from_utf8_lossy(&self.rest));
            self.rest.clear();
        }
        Ok(())
    }
}
