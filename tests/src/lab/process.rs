//! The processes of the laboratory: each is this program again, in a namespace.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::state::{Process, State};
use super::{netns, witness};

/// A process that was started and has not said yet that it is ready.
pub(super) struct Starting {
    name: String,
    child: Child,
}

/// Starts `lab WORDS... --lab-id ID` in a namespace and notes it in the state under a name of its own.
pub(super) fn start(
    state: &mut State,
    name: &str,
    namespace: &str,
    words: &[&str],
) -> Result<Starting> {
    let launcher = &state.options.launcher;
    let errors = File::create(witness::dir().join(format!("{name}.err")))?;
    let mut command = Command::new(&launcher.program);
    command
        .args(&launcher.args)
        .args(words)
        .args(["--lab-id", &state.id])
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(errors)
        .process_group(0);
    let child = netns::within(namespace, || {
        command
            .spawn()
            .with_context(|| format!("starting {}", launcher.program.display()))
    })?;
    let process = Process::of(child.id() as i32)
        .with_context(|| format!("the process {name} ended at once"))?;
    state.processes.insert(name.to_owned(), process);
    Ok(Starting {
        name: name.to_owned(),
        child,
    })
}

/// Waits until it says `ready`.
pub(super) fn wait_until_ready(Starting { name, child }: Starting) -> Result<()> {
    let mut ready = String::new();
    if let Some(stdout) = child.stdout {
        BufReader::new(stdout).read_line(&mut ready)?;
    }
    if ready.trim() != "ready" {
        let said = fs::read_to_string(witness::dir().join(format!("{name}.err")))?;
        bail!("the process {name} did not start: {}", said.trim());
    }
    Ok(())
}

/// Says that this process is ready, then waits until the laboratory with that id is gone.
pub(super) fn stay(lab_id: &str) {
    println!("ready");
    while State::load()
        .ok()
        .flatten()
        .is_some_and(|state| state.id == lab_id)
    {
        thread::sleep(Duration::from_secs(1));
    }
}

/// Ends processes and waits until they are gone.
pub(super) fn end(victims: &[Process]) {
    for process in victims.iter().filter(|process| process.is_alive()) {
        // SAFETY: kill takes no pointers; the id was compared with the recorded start time just now.
        unsafe { libc::kill(process.pid, libc::SIGKILL) };
    }
    let deadline = Instant::now() + Duration::from_secs(2);
    for process in victims {
        loop {
            // SAFETY: waitpid accepts a null status. It reaps the process if it is a child of ours
            // and fails harmlessly if it is not.
            unsafe { libc::waitpid(process.pid, std::ptr::null_mut(), libc::WNOHANG) };
            if !process.is_alive() || Instant::now() > deadline {
                break;
            }
            thread::sleep(Duration::from_millis(2));
        }
    }
}
