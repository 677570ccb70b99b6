//! Messages while the screen has the terminal: they would tear it, so they are
//! kept, shown inside, and said once it is left.

use std::io::{self, IsTerminal};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Most messages that are kept.
const MOST: usize = 500;

#[derive(Debug, Default)]
struct Notes {
    /// The screen has the terminal.
    on: bool,
    /// Not yet shown inside.
    fresh: Vec<String>,
    /// To be said afterwards.
    kept: Vec<String>,
    more: usize,
}

static NOTES: Mutex<Notes> = Mutex::new(Notes {
    on: false,
    fresh: Vec::new(),
    kept: Vec::new(),
    more: 0,
});

fn notes() -> MutexGuard<'static, Notes> {
    NOTES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Keeps a line for the screen; whether that is all that has to be done with
/// it, because standard error is a terminal, too.
pub fn keep(line: &str) -> bool {
    let mut notes = notes();
    if !notes.on {
        return false;
    }
    if notes.fresh.len() < MOST {
        notes.fresh.push(line.to_owned());
    }
    if !io::stderr().is_terminal() {
        return false;
    }
    if notes.kept.len() < MOST {
        notes.kept.push(line.to_owned());
    } else {
        notes.more += 1;
    }
    true
}

/// From now on lines are kept.
pub(super) fn begin() {
    notes().on = true;
}

/// What has not been shown yet.
pub(super) fn fresh() -> Vec<String> {
    std::mem::take(&mut notes().fresh)
}

/// From now on lines are said; those that were kept.
pub(super) fn end() -> Vec<String> {
    let mut notes = notes();
    notes.on = false;
    notes.fresh.clear();
    let mut kept = std::mem::take(&mut notes.kept);
    let more = std::mem::take(&mut notes.more);
    if more > 0 {
        kept.push(format!("and {more} more messages"));
    }
    kept
}
