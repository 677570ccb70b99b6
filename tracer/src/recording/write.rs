//! Writing.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use crate::output::jsonl;
use crate::trace::{Closing, Header, Step};

/// Nanoseconds of event time between flushes.
const FLUSH: u64 = 1_000_000_000;

/// A recording in the making. What was flushed is readable, whatever happens
/// to the process afterwards.
pub struct Writer {
    out: Out,
    flushed: u64,
}

enum Out {
    Plain(BufWriter<File>),
    Zstd(zstd::Encoder<'static, BufWriter<File>>),
}

impl Out {
    fn write(&mut self) -> &mut dyn Write {
        match self {
            Self::Plain(w) => w,
            Self::Zstd(w) => w,
        }
    }
}

impl Writer {
    /// Creates the file, so that a bad path fails before anything is traced,
    /// and writes the header.
    pub fn create(path: &Path, header: &Header) -> io::Result<Self> {
        let file = BufWriter::new(File::create(path)?);
        let compressed = path.extension().is_some_and(|e| e == "zst");
        let out = if compressed {
            Out::Zstd(zstd::Encoder::new(file, 3)?)
        } else {
            Out::Plain(file)
        };
        let mut writer = Self { out, flushed: 0 };
        jsonl::line(writer.out.write(), header)?;
        writer.flush()?;
        Ok(writer)
    }

    /// Writes steps as they happen.
    pub fn steps(&mut self, steps: &[Step]) -> io::Result<()> {
        for step in steps {
            jsonl::line(self.out.write(), step)?;
        }
        Ok(())
    }

    /// Flushes if a second has passed since it was last done.
    pub fn tick(&mut self, now_ns: u64) -> io::Result<()> {
        if now_ns.saturating_sub(self.flushed) >= FLUSH {
            self.flushed = now_ns;
            self.flush()?;
        }
        Ok(())
    }

    /// Hands everything written so far to the file.
    pub fn flush(&mut self) -> io::Result<()> {
        self.out.write().flush()
    }

    /// Writes the closing line and ends the file.
    pub fn finish(mut self, closing: &Closing) -> io::Result<()> {
        jsonl::line(self.out.write(), closing)?;
        match self.out {
            Out::Plain(mut w) => w.flush(),
            Out::Zstd(w) => w.finish()?.flush(),
        }
    }
}
