//! A whole recording, folded into flows and packets.

use std::path::Path;

use super::read::{Notice, ReadError, Reader};
use crate::progress::Progress;
use crate::trace::{Closing, Finding, Fold, Header, Trace, Verdict};

/// Packets that are kept of a recording; beyond that the oldest that were
/// delivered are let go.
const PACKETS: usize = 500_000;
/// Steps between two looks at what else there is to do.
const STRIDE: u64 = 4096;

/// A recording that was read.
pub struct Loaded {
    /// Its header.
    pub header: Header,
    /// Its flows and packets, ended.
    pub fold: Fold,
    /// Its closing line, if it has one.
    pub closing: Option<Closing>,
    /// What is worth telling.
    pub notices: Vec<Notice>,
    /// Lines that were left out.
    pub skipped: u64,
}

impl Loaded {
    /// The trace as it was. Its verdict is empty where it has to be judged
    /// anew: it was never given, or steps are missing that it rests on.
    pub fn into_trace(self) -> Trace {
        let mut closing = self.closing.unwrap_or_default();
        if self.skipped > 0 {
            closing.losses.other += self.skipped;
            closing.verdict = Verdict::default();
            closing.findings = Vec::<Finding>::new();
        }
        let mut trace = self.fold.into_trace(self.header, closing.losses);
        trace.closing = closing;
        // Steps that happened before the rules were read have no names yet.
        crate::diagnose::naming::name(&mut trace);
        trace
    }
}

/// Reads a whole recording: the trace as it was, with its notices.
pub fn read(path: &Path) -> Result<(Trace, Vec<Notice>), ReadError> {
    let loaded = load(path, true, |_, _| Ok::<_, ReadError>(()))?;
    let notices = loaded.notices.clone();
    Ok((loaded.into_trace(), notices))
}

/// Reads a recording, says how far that is unless `quiet`, and lets `each` look
/// at what there is every few thousand steps; it may hush the progress line.
pub fn load<E: From<ReadError>>(
    path: &Path,
    quiet: bool,
    mut each: impl FnMut(&mut Fold, &mut Progress) -> Result<(), E>,
) -> Result<Loaded, E> {
    let mut reader = Reader::open(path)?;
    let name = path.file_name().unwrap_or(path.as_os_str());
    let what = format!("reading {}", name.to_string_lossy());
    let mut progress = Progress::new(&what, reader.position().1, quiet);
    let mut fold = Fold::of(reader.header(), PACKETS);
    let mut steps = 0_u64;
    while let Some(step) = reader.next() {
        fold.push(step?);
        steps += 1;
        if steps.is_multiple_of(STRIDE) {
            progress.at(reader.position().0);
            each(&mut fold, &mut progress)?;
        }
    }
    fold.finish(reader.closing().and_then(|c| c.ended));
    let skipped = reader.skipped();
    let (header, closing, mut notices) = reader.into_ends();
    if fold.packet_count() > PACKETS as u64 {
        let packets = fold.packet_count() - PACKETS as u64;
        notices.push(Notice::Forgot { packets });
    }
    Ok(Loaded {
        header,
        fold,
        closing,
        notices,
        skipped,
    })
}
