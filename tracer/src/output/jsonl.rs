//! `-o jsonl`: a header line, one line per step as it happens, a closing line.

use std::io::{self, Write};

use serde::Serialize;

use crate::trace::{Closing, Header, Step, Trace};

/// Writes one line.
pub(crate) fn line(out: &mut dyn Write, value: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer(&mut *out, value)?;
    out.write_all(b"\n")
}

/// Writes lines; each batch is flushed, so that a reader sees it at once.
pub struct Lines<W: Write> {
    out: W,
}

impl<W: Write> Lines<W> {
    /// Starts with the header line.
    pub fn start(mut out: W, header: &Header) -> io::Result<Self> {
        line(&mut out, header)?;
        out.flush()?;
        Ok(Self { out })
    }

    /// Writes a batch.
    pub fn steps<'a>(&mut self, steps: impl IntoIterator<Item = &'a Step>) -> io::Result<()> {
        for step in steps {
            line(&mut self.out, step)?;
        }
        self.out.flush()
    }

    /// Ends with the closing line.
    pub fn finish(mut self, closing: &Closing) -> io::Result<W> {
        line(&mut self.out, closing)?;
        self.out.flush()?;
        Ok(self.out)
    }
}

/// Writes a whole trace, its steps in order of time.
pub fn write(out: &mut dyn Write, trace: &Trace) -> io::Result<()> {
    let mut lines = Lines::start(out, &trace.header)?;
    let all = trace.packets.iter().flat_map(|p| &p.steps);
    let mut steps: Vec<Step> = all.cloned().collect();
    steps.sort_by_key(|s| s.ts);
    lines.steps(&steps)?;
    lines.finish(&trace.closing)?;
    Ok(())
}
