//! A laboratory for the length of one test.

use std::fs::File;

use anyhow::{Context, Result};

use super::state::State;
use super::{Options, down, up};

/// A laboratory that goes down when it is dropped.
///
/// There is one laboratory per machine, so a session waits until every other session is over, in
/// this process and in others; the test runner's number of threads does not matter.
#[derive(Debug)]
pub struct Session {
    state: State,
    _turn: Turn,
}

impl Session {
    /// Waits for its turn and builds the laboratory anew.
    pub fn start(options: &Options) -> Result<Self> {
        let turn = Turn::wait()?;
        Ok(Self {
            state: up(options)?,
            _turn: turn,
        })
    }

    /// The laboratory as it was when it went up.
    pub fn state(&self) -> &State {
        &self.state
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if let Err(error) = down() {
            eprintln!("the laboratory did not go down: {error:#}");
        }
    }
}

/// The right to use the machine's one laboratory, until dropped.
#[derive(Debug)]
pub struct Turn {
    _lock: File,
}

impl Turn {
    /// Waits for the laboratory to be free; builds nothing.
    pub fn wait() -> Result<Self> {
        // Any file that always exists will do to lock; a directory of the kernel's leaves none behind.
        let lock = File::open("/proc").context("opening /proc")?;
        lock.lock()
            .context("waiting for another user of the laboratory")?;
        Ok(Self { _lock: lock })
    }
}
