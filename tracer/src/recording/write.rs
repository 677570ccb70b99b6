//! Writing. What was flushed is readable, whatever happens to the process
//! afterwards; a run that is recorded for long goes on in a next file when one
//! is full.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use crate::output::jsonl;
use crate::trace::{Closing, Header, Losses, Run, Step};

/// Nanoseconds of event time between flushes.
const FLUSH: u64 = 1_000_000_000;
/// Steps between two looks at the size of a compressed file, which is known
/// only when what was written is flushed.
const LOOK: u32 = 4096;

/// When a file is full, and how many are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rotation {
    /// Bytes of a file, as it lies on the disk, that make it full.
    pub size: u64,
    /// Files that are kept, the one being written included; all if absent.
    pub count: Option<u32>,
}

/// A recording in the making.
pub struct Writer {
    out: Out,
    path: PathBuf,
    header: Header,
    rotation: Option<Rotation>,
    number: u32,
    /// Those that are kept, oldest first.
    files: VecDeque<PathBuf>,
    flushed: u64,
    since_look: u32,
    latest: u64,
    losses: Losses,
    /// Losses that the files before this one told.
    told: Losses,
}

enum Out {
    Plain(Counted),
    /// Buffered before it is compressed: a call for each few bytes costs more
    /// than the compression.
    Zstd(Box<BufWriter<zstd::Encoder<'static, Counted>>>),
}

/// A file that knows how long it is.
struct Counted {
    file: BufWriter<File>,
    size: u64,
}

impl Write for Counted {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let n = self.file.write(bytes)?;
        self.size += n as u64;
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Out {
    fn create(path: &Path) -> io::Result<Self> {
        let counted = Counted {
            file: BufWriter::new(File::create(path)?),
            size: 0,
        };
        let compressed = path.extension().is_some_and(|e| e == "zst");
        Ok(if compressed {
            let encoder = zstd::Encoder::new(counted, 3)?;
            Self::Zstd(Box::new(BufWriter::with_capacity(1 << 16, encoder)))
        } else {
            Self::Plain(counted)
        })
    }

    fn write(&mut self) -> &mut dyn Write {
        match self {
            Self::Plain(w) => w,
            Self::Zstd(w) => w.as_mut(),
        }
    }

    fn size(&self) -> u64 {
        match self {
            Self::Plain(w) => w.size,
            Self::Zstd(w) => w.get_ref().get_ref().size,
        }
    }

    fn end(self) -> io::Result<()> {
        match self {
            Self::Plain(mut w) => w.flush(),
            Self::Zstd(w) => {
                let encoder = w.into_inner().map_err(io::IntoInnerError::into_error)?;
                encoder.finish()?.flush()
            }
        }
    }
}

impl Writer {
    /// Creates the file, so that a bad path fails before anything is traced,
    /// and writes the header.
    pub fn create(path: &Path, header: &Header) -> io::Result<Self> {
        Self::new(path, header, None)
    }

    /// The same, into several files in turn: `NAME.0001.jsonl.zst`,
    /// `NAME.0002.jsonl.zst` and so on for `NAME.jsonl.zst`. Each is a recording
    /// by itself; those beyond the count are deleted, oldest first.
    pub fn rotating(path: &Path, header: &Header, rotation: Rotation) -> io::Result<Self> {
        Self::new(path, header, Some(rotation))
    }

    fn new(path: &Path, header: &Header, rotation: Option<Rotation>) -> io::Result<Self> {
        let first = rotation.map_or_else(|| path.to_owned(), |_| numbered(path, 1));
        let mut writer = Self {
            out: Out::create(&first)?,
            path: path.to_owned(),
            header: header.clone(),
            rotation,
            number: 1,
            files: VecDeque::from([first]),
            flushed: 0,
            since_look: 0,
            latest: 0,
            losses: Losses::default(),
            told: Losses::default(),
        };
        writer.begin()?;
        Ok(writer)
    }

    fn begin(&mut self) -> io::Result<()> {
        if self.rotation.is_some() {
            self.header.run.get_or_insert_with(Run::default).part = Some(self.number);
        }
        jsonl::line(self.out.write(), &self.header)?;
        self.flush()
    }

    /// Writes steps as they happen.
    pub fn steps(&mut self, steps: &[Step]) -> io::Result<()> {
        for step in steps {
            self.latest = self.latest.max(step.ts);
            jsonl::line(self.out.write(), step)?;
            if self.full()? {
                self.rotate()?;
            }
        }
        Ok(())
    }

    /// Flushes if a second has passed since it was last done.
    pub fn tick(&mut self, now_ns: u64) -> io::Result<()> {
        self.latest = self.latest.max(now_ns);
        if now_ns.saturating_sub(self.flushed) >= FLUSH {
            self.flushed = now_ns;
            self.flush()?;
        }
        Ok(())
    }

    /// Notes what was lost so far, for the next closing line.
    pub fn lost(&mut self, losses: Losses) {
        self.losses = losses;
    }

    /// Hands everything written so far to the file.
    pub fn flush(&mut self) -> io::Result<()> {
        self.out.write().flush()
    }

    /// Writes the closing line and ends the file. The closing line says when it
    /// ended, or the last step's time stands for it.
    pub fn finish(mut self, closing: &Closing) -> io::Result<()> {
        let mut closing = closing.clone();
        // What earlier files told is not told again: they may be put together.
        closing.losses = closing.losses.since(self.told);
        self.close(closing)?;
        self.out.end()
    }

    fn close(&mut self, mut closing: Closing) -> io::Result<()> {
        let latest = Some(self.latest).filter(|ts| *ts > 0);
        closing.ended = closing.ended.or(latest);
        jsonl::line(self.out.write(), &closing)
    }

    fn full(&mut self) -> io::Result<bool> {
        let Some(rotation) = self.rotation else {
            return Ok(false);
        };
        self.since_look += 1;
        if matches!(self.out, Out::Zstd(_)) && self.since_look >= LOOK {
            self.since_look = 0;
            self.flush()?;
        }
        Ok(self.out.size() >= rotation.size)
    }

    /// Ends this file and goes on in the next.
    fn rotate(&mut self) -> io::Result<()> {
        self.number += 1;
        let next = numbered(&self.path, self.number);
        let name = next.file_name().unwrap_or_default().to_string_lossy();
        let closing = Closing {
            losses: self.losses.since(self.told),
            continues: Some(name.into_owned()),
            ..Closing::default()
        };
        self.told = self.losses;
        let out = Out::create(&next)?;
        self.close(closing)?;
        std::mem::replace(&mut self.out, out).end()?;
        self.since_look = 0;
        self.begin()?;
        self.files.push_back(next);
        let count = self.rotation.and_then(|r| r.count);
        while count.is_some_and(|n| self.files.len() > n.max(1) as usize) {
            if let Some(oldest) = self.files.pop_front() {
                // Somebody else may have taken it away.
                let _ = fs::remove_file(oldest);
            }
        }
        Ok(())
    }
}

/// `trace.0003.jsonl.zst` for `trace.jsonl.zst`: the number goes before what
/// tells the kind of file, so that the names sort by age.
fn numbered(path: &Path, number: u32) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let kinds = [".jsonl.zst", ".json.zst", ".zst", ".jsonl", ".json"];
    let kind = kinds.iter().find(|k| name.ends_with(*k)).unwrap_or(&"");
    let stem = name.strip_suffix(kind).unwrap_or(&name);
    path.with_file_name(format!("{stem}.{number:04}{kind}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_go_before_the_kind_of_file() {
        let name = |path: &str, n| numbered(Path::new(path), n).display().to_string();
        assert_eq!(name("/a.b/trace.jsonl.zst", 3), "/a.b/trace.0003.jsonl.zst");
        assert_eq!(name("trace.zst", 12345), "trace.12345.zst");
        assert_eq!(name("a.b", 1), "a.b.0001");
    }
}
