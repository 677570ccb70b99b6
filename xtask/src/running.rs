//! A traced run: the tool (or another) as a process beside this one, from its start to its end.

use std::{
    io::{BufRead, BufReader, Read},
    process::{Child, Command, ExitStatus, Stdio},
    sync::mpsc::{self, Receiver, RecvTimeoutError},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};

/// How long a program may take to get ready; under emulation everything takes long.
const READY: Duration = Duration::from_mins(4);
/// How long it may take to end after SIGINT.
const END: Duration = Duration::from_secs(30);
/// How much of what it printed is kept.
const KEPT: usize = 16 * 1024;

/// A program that says when it is ready, and ends on SIGINT. It is ended when this goes out of scope.
pub(crate) struct Running {
    child: Child,
    /// Standard error, line by line.
    lines: Receiver<String>,
    output: Option<JoinHandle<Vec<u8>>>,
    /// From its start to the line that says so.
    pub(crate) ready_after: Duration,
    /// That line.
    pub(crate) ready: String,
}

/// What is done with the program's standard output.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Output {
    /// It goes where this program's goes.
    Shown,
    /// It is read, and its end kept.
    Read,
}

impl Running {
    /// Starts the program and waits for the line on standard error in which `is_ready` finds that it is.
    /// Lines up to there, and that line, go to `on_line`.
    pub(crate) fn start(
        command: &mut Command,
        output: Output,
        is_ready: impl Fn(&str) -> bool,
        mut on_line: impl FnMut(&str),
    ) -> Result<Self> {
        let program = command.get_program().to_string_lossy().into_owned();
        command
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .stdout(match output {
                Output::Shown => Stdio::inherit(),
                Output::Read => Stdio::piped(),
            });
        let since = Instant::now();
        let mut child = command
            .spawn()
            .with_context(|| format!("cannot run {program}"))?;
        let (sender, lines) = mpsc::channel();
        if let Some(stderr) = child.stderr.take() {
            thread::spawn(move || {
                for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                    if sender.send(line).is_err() {
                        break;
                    }
                }
            });
        }
        let output = child
            .stdout
            .take()
            .map(|stdout| thread::spawn(move || last_of(stdout)));
        let mut running = Self {
            child,
            lines,
            output,
            ready_after: Duration::ZERO,
            ready: String::new(),
        };
        let mut said = String::new();
        loop {
            match running
                .lines
                .recv_timeout(READY.saturating_sub(since.elapsed()))
            {
                Ok(line) if is_ready(&line) => {
                    running.ready_after = since.elapsed();
                    on_line(&line);
                    running.ready = line;
                    return Ok(running);
                }
                Ok(line) => {
                    on_line(&line);
                    said = line;
                }
                Err(RecvTimeoutError::Disconnected) => {
                    let status = running.child.wait()?;
                    bail!("{program} ended before it was ready ({status}): {said}");
                }
                Err(RecvTimeoutError::Timeout) => {
                    bail!("{program} was not ready within {} s", READY.as_secs())
                }
            }
        }
    }

    /// Waits for the program to end by itself and hands on what it says meanwhile.
    pub(crate) fn wait(mut self, mut on_line: impl FnMut(&str)) -> Result<ExitStatus> {
        while let Ok(line) = self.lines.recv() {
            on_line(&line);
        }
        Ok(self.child.wait()?)
    }

    /// Ends the program; the end of what it printed.
    pub(crate) fn stop(mut self) -> Result<String> {
        self.end()?;
        let output = self.output.take().map(JoinHandle::join);
        let bytes = output.and_then(Result::ok).unwrap_or_default();
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// SIGINT, so that it can clean up; SIGKILL if it does not.
    fn end(&mut self) -> Result<()> {
        if self.child.try_wait()?.is_some() {
            return Ok(());
        }
        // SAFETY: kill takes no pointers; the child has not been waited for, so the id is still its own.
        unsafe { libc::kill(self.child.id() as i32, libc::SIGINT) };
        let deadline = Instant::now() + END;
        while self.child.try_wait()?.is_none() {
            if Instant::now() > deadline {
                self.child.kill()?;
                self.child.wait()?;
                bail!("a program did not end within {} s of SIGINT", END.as_secs());
            }
            thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            eprintln!("warning: {error:#}");
        }
    }
}

/// Reads all and keeps the end.
fn last_of(mut from: impl Read) -> Vec<u8> {
    let mut kept = Vec::new();
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(length) = from.read(&mut buffer) {
        if length == 0 {
            break;
        }
        kept.extend_from_slice(&buffer[..length]);
        if kept.len() > KEPT {
            kept.drain(..kept.len() - KEPT);
        }
    }
    kept
}
