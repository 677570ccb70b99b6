//! The bytes of a file, decompressed, with bounds on what they may turn into.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A file may grow this much when it is decompressed, beyond [`GRACE`] bytes.
const RATIO: u64 = 500;
const GRACE: u64 = if cfg!(test) { 1 << 20 } else { 64 << 20 };
/// Values are parted by commas, and each takes memory: a recording has one in
/// fifteen bytes or so. More than one in so many is refused, beyond
/// [`VALUES`] of them.
const DENSITY: u64 = 8;
const VALUES: u64 = if cfg!(test) { 1 << 16 } else { 4 << 20 };
/// Bytes read at once.
const BLOCK: usize = 1 << 17;

/// A decompressed stream.
pub(super) type Input = Box<dyn BufRead + Send>;

/// How far a file is read.
#[derive(Clone, Debug, Default)]
pub(super) struct Position {
    read: Arc<AtomicU64>,
    /// Size of the file, where it is one.
    pub(super) total: Option<u64>,
}

impl Position {
    /// Bytes of the file that were read.
    pub(super) fn read(&self) -> u64 {
        self.read.load(Ordering::Relaxed)
    }
}

/// Opens a file; `-` is standard input.
pub(super) fn open(path: &Path) -> io::Result<(Input, Position)> {
    if path.as_os_str() == "-" {
        return start(io::stdin());
    }
    let file = File::open(path)?;
    let found = file.metadata()?;
    if found.is_dir() {
        return Err(io::Error::other("it is a folder; give the name of a file"));
    }
    let (input, mut position) = start(file)?;
    position.total = found.is_file().then_some(found.len());
    Ok((input, position))
}

/// Whether it is compressed is told by its start.
pub(super) fn start(from: impl Read + Send + 'static) -> io::Result<(Input, Position)> {
    let position = Position::default();
    let counted = Counted {
        inner: from,
        count: Arc::clone(&position.read),
    };
    let mut input = BufReader::with_capacity(BLOCK, counted);
    let magic = 0xFD2F_B528_u32.to_le_bytes();
    let compressed = input.fill_buf()?.starts_with(&magic);
    let mut bounded = Bounded {
        inner: Box::new(input) as Box<dyn Read + Send>,
        consumed: None,
        produced: 0,
        commas: 0,
    };
    if compressed {
        let buffered = BufReader::with_capacity(BLOCK, bounded.inner);
        bounded.inner = Box::new(zstd::Decoder::with_buffer(buffered)?);
        bounded.consumed = Some(position.clone());
    }
    let input = Box::new(BufReader::with_capacity(BLOCK, bounded));
    Ok((input, position))
}

/// Counts what is read of the file.
struct Counted<R> {
    inner: R,
    count: Arc<AtomicU64>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = self.inner.read(buf)?;
        self.count.fetch_add(n as u64, Ordering::Relaxed);
        Ok(n)
    }
}

/// Stops when the file grows out of all proportion, or what is made of it would.
struct Bounded {
    inner: Box<dyn Read + Send>,
    /// Of what is compressed.
    consumed: Option<Position>,
    produced: u64,
    commas: u64,
}

impl Read for Bounded {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = self.inner.read(buf)?;
        let refuse = |why: String| Err(io::Error::new(io::ErrorKind::InvalidData, why));
        self.produced += n as u64;
        if let Some(position) = &self.consumed
            && self.produced > GRACE + position.read() * RATIO
        {
            return refuse(format!(
                "it decompresses to more than {RATIO} times its size"
            ));
        }
        let read = buf.get(..n).unwrap_or_default();
        self.commas += memchr::memchr_iter(b',', read).count() as u64;
        if self.commas > VALUES + self.produced / DENSITY {
            return refuse("it holds more values than a recording of its size can".into());
        }
        Ok(n)
    }
}
