//! Lines to steps: one thread cuts the input into batches of whole lines,
//! others parse them, and they come out in their order. Bounded: when the
//! caller is slow, reading waits.

use std::io::{self, BufRead};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use serde_json::Value;

use super::input::Input;
use super::read::ReadError;
use super::{LINE_LIMIT, fast};
use crate::trace::{Closing, Header, Step};

/// Batches under way.
const QUEUE: usize = 8;
/// Threads that parse, at most.
const PARSERS: usize = 4;
/// Longest line of a step; real ones have a hundredth of it.
const STEP_LIMIT: usize = 1 << 17;

/// What a line is. Nearly all are steps, so that these are not boxed.
#[allow(clippy::large_enum_variant, reason = "the others are rare")]
pub(super) enum Line {
    Step(Step),
    Closing(Box<Closing>),
    /// Of a later file that was appended to this one.
    Header(Box<Header>),
    /// It cannot be understood, and why.
    Bad(u64, String),
}

/// What comes out.
pub(super) enum Batch {
    Lines(Vec<Line>),
    /// The last line, of this number, is not whole.
    Cut(u64),
    Failed(ReadError),
}

struct Job {
    text: Vec<u8>,
    /// Number of its first line.
    line: u64,
    /// How many end in it.
    lines: usize,
    done: SyncSender<Batch>,
}

/// The batches of a file, in order.
pub(super) struct Batches {
    queue: Receiver<Receiver<Batch>>,
}

impl Batches {
    /// Starts to read lines, the first of which has this number.
    pub(super) fn start(input: Input, line: u64) -> io::Result<Self> {
        let (order, queue) = sync_channel(QUEUE);
        let (jobs, work) = sync_channel::<Job>(QUEUE);
        let work = Arc::new(Mutex::new(work));
        let parsers = thread::available_parallelism().map_or(1, |n| n.get().min(PARSERS));
        for _ in 0..parsers {
            let work = Arc::clone(&work);
            let name = thread::Builder::new().name("parse".into());
            name.spawn(move || parse_all(&work))?;
        }
        let name = thread::Builder::new().name("read".into());
        name.spawn(move || cut(input, line, &order, &jobs))?;
        Ok(Self { queue })
    }

    /// The next batch; none at the end.
    pub(super) fn next(&self) -> Option<Batch> {
        self.queue.recv().ok()?.recv().ok()
    }
}

fn parse_all(work: &Mutex<Receiver<Job>>) {
    loop {
        let next = work.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(job) = next else { return };
        let mut parsed = Vec::with_capacity(job.lines + 1);
        let mut from = 0;
        let ends = memchr::memchr_iter(b'\n', &job.text).chain([job.text.len()]);
        for (end, line) in ends.zip(job.line..) {
            let text = job.text.get(from..end).unwrap_or_default();
            parsed.extend(parse(text.trim_ascii(), line));
            from = end + 1;
        }
        // Nobody waits any more when the reader was dropped.
        let _ = job.done.send(Batch::Lines(parsed));
    }
}

/// Cuts the input into batches of whole lines.
fn cut(
    mut input: Input,
    mut line: u64,
    order: &SyncSender<Receiver<Batch>>,
    jobs: &SyncSender<Job>,
) {
    let mut left = Vec::new();
    let tell = |batch| {
        let (done, result) = sync_channel(1);
        let _ = done.send(batch);
        let _ = order.send(result);
    };
    loop {
        let block = match input.fill_buf() {
            Ok(block) => block,
            // The last frame was not ended; the lines before it were flushed.
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => &[],
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(e) => return tell(Batch::Failed(e.into())),
        };
        let read = block.len();
        let end = match memchr::memrchr(b'\n', block) {
            Some(at) => at + 1,
            None if left.len() + read > LINE_LIMIT => {
                let why = format!("longer than {LINE_LIMIT} bytes");
                return tell(Batch::Failed(ReadError::Damaged { line, why }));
            }
            None => 0,
        };
        let (whole, rest) = block.split_at(end);
        let mut text = Vec::new();
        if end > 0 || read == 0 {
            text = std::mem::take(&mut left);
            text.extend_from_slice(whole);
        }
        left.extend_from_slice(rest);
        input.consume(read);
        let lines = memchr::memchr_iter(b'\n', &text).count();
        if read == 0 && !is_object(&text) {
            if !text.trim_ascii().is_empty() {
                tell(Batch::Cut(line));
            }
            return;
        }
        if !text.is_empty() {
            let (done, result) = sync_channel(1);
            let job = Job {
                text,
                line,
                lines,
                done,
            };
            if jobs.send(job).is_err() || order.send(result).is_err() {
                return;
            }
        }
        line += lines as u64;
        if read == 0 {
            return;
        }
    }
}

/// Without its end a line is whole only if it is whole JSON.
fn is_object(text: &[u8]) -> bool {
    serde_json::from_slice::<Value>(text).is_ok_and(|v| v.is_object())
}

fn parse(text: &[u8], line: u64) -> Option<Line> {
    if text.is_empty() {
        return None;
    }
    // Looked at once for all strings in it.
    let Ok(text) = std::str::from_utf8(text) else {
        return Some(Line::Bad(line, "not UTF-8".into()));
    };
    let short = text.len() <= STEP_LIMIT;
    if short && let Some(step) = fast::step(text) {
        return Some(Line::Step(step));
    }
    if short && let Ok(step) = serde_json::from_str(text) {
        return Some(Line::Step(step));
    }
    if let Ok(closing) = serde_json::from_str::<Closing>(text) {
        return Some(Line::Closing(Box::new(closing)));
    }
    if short && let Ok(header) = serde_json::from_str(text) {
        return Some(Line::Header(Box::new(header)));
    }
    Some(Line::Bad(line, why(text, short)))
}

/// What is wrong with a line, in the words of the kind of line it seems to be.
fn why(text: &str, short: bool) -> String {
    if !short {
        return format!("longer than {STEP_LIMIT} bytes and no closing line");
    }
    let error =
        |e: Option<serde_json::Error>| e.map_or_else(|| "no step".into(), |e| e.to_string());
    match serde_json::from_str::<Value>(text) {
        Err(e) => e.to_string(),
        Ok(v) if !v.is_object() => "not a JSON object".into(),
        Ok(v) if v.get("verdict").is_some() => error(serde_json::from_value::<Closing>(v).err()),
        Ok(v) => error(serde_json::from_value::<Step>(v).err()),
    }
}
