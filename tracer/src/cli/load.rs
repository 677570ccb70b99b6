//! Reading a recording for a command: what it lacks is told, and it is judged
//! where it has no verdict.

use std::io;
use std::path::Path;

use super::{Failure, say};
use crate::diagnose;
use crate::progress::Progress;
use crate::recording::{self, Loaded, Notice, ReadError};
use crate::trace::{Fold, Trace};

/// Why reading stopped.
enum Stopped {
    Reading(ReadError),
    Writing(io::Error),
}

impl From<ReadError> for Stopped {
    fn from(e: ReadError) -> Self {
        Self::Reading(e)
    }
}

/// The whole trace; `verb` is what cannot be done when it cannot be read.
pub(super) fn trace(path: &Path, verb: &str, quiet: bool) -> Result<Trace, Failure> {
    let loaded = load(path, verb, quiet, |_, _| Ok(()))?;
    Ok(judged(loaded))
}

/// The same, with `each` to look at what there is every few thousand steps.
pub(super) fn load(
    path: &Path,
    verb: &str,
    quiet: bool,
    mut each: impl FnMut(&mut Fold, &mut Progress) -> io::Result<()>,
) -> Result<Loaded, Failure> {
    let each =
        |fold: &mut Fold, progress: &mut Progress| each(fold, progress).map_err(Stopped::Writing);
    let loaded = recording::load(path, quiet, each).map_err(|e| match e {
        Stopped::Reading(e) => Failure::new(format!("cannot {verb} {}: {e}", path.display())),
        Stopped::Writing(e) => e.into(),
    })?;
    if !quiet {
        tell(path, &loaded.notices);
    }
    Ok(loaded)
}

/// Says what a file lacks.
pub(super) fn tell(path: &Path, notices: &[Notice]) {
    for told in notices {
        say(&notice(path, told));
    }
}

/// The line for it.
pub(super) fn notice(path: &Path, notice: &Notice) -> String {
    let kind = if matches!(notice, Notice::GoesOn { .. }) {
        "note"
    } else {
        "warning"
    };
    format!("{kind}: {}: {notice}", path.display())
}

/// The trace with its verdict; judged anew by what was read where it was never
/// given or rests on more than that.
pub(super) fn judged(loaded: Loaded) -> Trace {
    let mut trace = loaded.into_trace();
    if trace.closing.verdict.code.is_empty() {
        let (verdict, findings) = diagnose::diagnose(&trace);
        trace.closing.verdict = verdict;
        trace.closing.findings = findings;
    }
    trace
}
