//! Reading. Nothing in a file is trusted: lines and the compression ratio are
//! bounded, and an error names the line.

use std::cell::Cell;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::rc::Rc;

use serde_json::Value;
use thiserror::Error;

use super::LINE_LIMIT;
use crate::trace::{Closing, Fold, Header, SCHEMA, Step, Trace};

/// A file may grow this much when it is decompressed, beyond [`GRACE`] bytes.
const RATIO: u64 = 500;
const GRACE: u64 = if cfg!(test) { 1 << 20 } else { 64 << 20 };
/// Largest `-o json` document.
const DOCUMENT_LIMIT: u64 = 1 << 30;

/// Why a recording cannot be read.
#[derive(Debug, Error)]
pub enum ReadError {
    /// The file cannot be opened or read.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// There is nothing in it.
    #[error("the file is empty; a recording starts with a header line")]
    Empty,
    /// It is something else.
    #[error("not a recording of tracer: {0}")]
    Foreign(String),
    /// It was made by a later version.
    #[error("schema {0} is not known to this version, which reads {SCHEMA}; use a newer tracer")]
    Schema(String),
    /// A line is damaged.
    #[error("line {line} is damaged: {why}")]
    Damaged {
        /// From 1.
        line: u64,
        /// In which way.
        why: String,
    },
}

/// What is worth telling about a file that could be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// The last line is not whole: the writer was cut off in it.
    CutShort {
        /// The line, from 1.
        line: u64,
    },
    /// There is no closing line: the writer did not end in an orderly way.
    NoClosing,
}

impl std::fmt::Display for Notice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::CutShort { line } => {
                write!(
                    f,
                    "the recording is cut short in line {line}; all before it was read"
                )
            }
            Self::NoClosing => f.write_str("the recording has no closing line; it ends early"),
        }
    }
}

/// A recording being read, step by step.
pub struct Reader {
    header: Header,
    input: Box<dyn BufRead>,
    line: u64,
    document: Option<std::vec::IntoIter<Step>>,
    closing: Option<Closing>,
    notices: Vec<Notice>,
    ended: bool,
}

enum Next {
    Line(Vec<u8>),
    Cut,
    End,
}

impl Reader {
    /// Opens a recording, or an `-o json` document, and reads its header.
    pub fn open(path: &Path) -> Result<Self, ReadError> {
        let file = File::open(path)?;
        Self::new(BufReader::new(file))
    }

    /// Reads from anything; whether it is compressed is told by its start.
    pub fn new(input: impl BufRead + 'static) -> Result<Self, ReadError> {
        let mut input = input;
        let magic = 0xFD2F_B528_u32.to_le_bytes();
        let compressed = input.fill_buf()?.starts_with(&magic);
        let input: Box<dyn BufRead> = if compressed {
            let consumed = Rc::new(Cell::new(0));
            let counted = Counted {
                inner: input,
                count: Rc::clone(&consumed),
            };
            let inner = zstd::Decoder::with_buffer(BufReader::new(counted))?;
            Box::new(BufReader::new(Bounded {
                inner,
                consumed,
                produced: 0,
            }))
        } else {
            Box::new(input)
        };
        Self::start(input)
    }

    fn start(mut input: Box<dyn BufRead>) -> Result<Self, ReadError> {
        let mut line = 0;
        let first = match next(&mut *input, &mut line)? {
            Next::Line(first) => first,
            Next::Cut => return Err(ReadError::Foreign("its first line is not whole".into())),
            Next::End => return Err(ReadError::Empty),
        };
        let value = match serde_json::from_slice::<Value>(&first) {
            Ok(value) => value,
            // A document that was written with line breaks in it.
            Err(e) if e.is_eof() && first.starts_with(b"{") => rest(first, &mut *input)?,
            Err(_) => {
                return Err(ReadError::Foreign(
                    "its first line is no JSON object".into(),
                ));
            }
        };
        let schema = value.get("schema").and_then(Value::as_str);
        let Some(schema) = schema else {
            return Err(ReadError::Foreign("its header names no schema".into()));
        };
        check_schema(schema)?;
        let broken = |e: serde_json::Error| ReadError::Damaged {
            line: 1,
            why: e.to_string(),
        };
        if value.get("packets").is_some() {
            let trace: Trace = serde_json::from_value(value).map_err(broken)?;
            return Ok(Self {
                header: trace.header,
                input,
                line,
                document: Some(document_steps(trace.packets).into_iter()),
                closing: Some(trace.closing),
                notices: Vec::new(),
                ended: false,
            });
        }
        let header = serde_json::from_value(value).map_err(broken)?;
        let (notices, ended) = (Vec::new(), false);
        Ok(Self {
            header,
            input,
            line,
            document: None,
            closing: None,
            notices,
            ended,
        })
    }

    /// The header.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The closing line, once all steps were read and if there is one.
    pub fn closing(&self) -> Option<&Closing> {
        self.closing.as_ref()
    }

    /// What is worth telling, once all steps were read.
    pub fn notices(&self) -> &[Notice] {
        &self.notices
    }

    fn step(&mut self) -> Result<Option<Step>, ReadError> {
        if let Some(steps) = &mut self.document {
            return Ok(steps.next());
        }
        while !self.ended {
            let text = match next(&mut *self.input, &mut self.line)? {
                Next::Line(text) => text,
                Next::Cut => {
                    self.notices.push(Notice::CutShort { line: self.line });
                    break;
                }
                Next::End => {
                    if self.closing.is_none() {
                        self.notices.push(Notice::NoClosing);
                    }
                    break;
                }
            };
            if let Ok(step) = serde_json::from_slice(&text) {
                return Ok(Some(step));
            }
            match serde_json::from_slice(&text) {
                Ok(closing) => self.closing = Some(closing),
                Err(_) => {
                    return Err(ReadError::Damaged {
                        line: self.line,
                        why: why(&text),
                    });
                }
            }
        }
        self.ended = true;
        Ok(None)
    }
}

impl Iterator for Reader {
    type Item = Result<Step, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        let step = self.step();
        self.ended |= step.is_err();
        step.transpose()
    }
}

/// Reads a whole recording: the trace as it was, with its notices.
pub fn read(path: &Path) -> Result<(Trace, Vec<Notice>), ReadError> {
    let mut reader = Reader::open(path)?;
    let mut fold = Fold::new(&reader.header().nodes);
    for step in &mut reader {
        fold.push(step?);
    }
    fold.finish();
    let losses = reader.closing().map(|c| c.losses).unwrap_or_default();
    let mut trace = fold.trace(reader.header.clone(), losses);
    if let Some(closing) = reader.closing {
        trace.closing = closing;
    }
    // Steps that happened before the rules were read have no names yet.
    crate::diagnose::naming::name(&mut trace);
    Ok((trace, reader.notices))
}

/// What is wrong with a line, in the words of the kind of line it seems to be.
fn why(text: &[u8]) -> String {
    match serde_json::from_slice::<Value>(text) {
        Err(e) => e.to_string(),
        Ok(v) if !v.is_object() => "not a JSON object".into(),
        Ok(v) if v.get("verdict").is_some() => serde_json::from_value::<Closing>(v)
            .err()
            .map_or_else(String::new, |e| e.to_string()),
        Ok(v) => serde_json::from_value::<Step>(v)
            .err()
            .map_or_else(String::new, |e| e.to_string()),
    }
}

/// A minor version may add fields; a major one may mean something else.
fn check_schema(schema: &str) -> Result<(), ReadError> {
    let Some(version) = schema.strip_prefix("tracer.trace/") else {
        return Err(ReadError::Foreign(format!("its schema is {schema:?}")));
    };
    if version.split('.').next() == SCHEMA.rsplit('/').next() {
        Ok(())
    } else {
        Err(ReadError::Schema(
            schema
                .chars()
                .filter(|c| !c.is_control())
                .take(60)
                .collect(),
        ))
    }
}

/// A document's steps in order of time, with the ids that lines have.
fn document_steps(packets: Vec<crate::trace::Packet>) -> Vec<Step> {
    let mut steps: Vec<Step> = packets
        .into_iter()
        .flat_map(|p| {
            let (id, flow) = (p.id, p.flow);
            p.steps.into_iter().map(move |s| Step {
                packet: Some(id),
                flow: Some(flow),
                ..s
            })
        })
        .collect();
    steps.sort_by_key(|s| s.ts);
    steps
}

fn rest(first: Vec<u8>, input: &mut dyn BufRead) -> Result<Value, ReadError> {
    let all = io::Cursor::new(first).chain(input.take(DOCUMENT_LIMIT));
    serde_json::from_reader(all).map_err(|e| ReadError::Damaged {
        line: e.line() as u64,
        why: e.to_string(),
    })
}

/// The next line without its end. A stream that breaks off is cut short; any
/// other failure is an error.
fn next(input: &mut dyn BufRead, line: &mut u64) -> Result<Next, ReadError> {
    let mut text = Vec::new();
    let limit = LINE_LIMIT as u64 + 1;
    // A document is one line, and longer than any line of a recording.
    let limit = if *line == 0 { DOCUMENT_LIMIT } else { limit };
    *line += 1;
    match Read::take(&mut *input, limit).read_until(b'\n', &mut text) {
        Ok(0) => return Ok(Next::End),
        Ok(_) => {}
        Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => {
            // The last frame was not ended; the lines before it were flushed.
            return Ok(if text.is_empty() {
                Next::End
            } else {
                Next::Cut
            });
        }
        Err(e) => return Err(e.into()),
    }
    let whole = text.last() == Some(&b'\n');
    if whole {
        text.pop();
        if text.last() == Some(&b'\r') {
            text.pop();
        }
        return Ok(Next::Line(text));
    }
    if text.len() as u64 >= limit {
        let why = format!("longer than {LINE_LIMIT} bytes");
        return Err(ReadError::Damaged { line: *line, why });
    }
    // Without its end a line is whole only if it is whole JSON.
    if *line == 1 || serde_json::from_slice::<Value>(&text).is_ok_and(|v| v.is_object()) {
        return Ok(Next::Line(text));
    }
    Ok(Next::Cut)
}

/// Counts what is read of the compressed file.
struct Counted<R> {
    inner: R,
    count: Rc<Cell<u64>>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = self.inner.read(buf)?;
        self.count.set(self.count.get() + n as u64);
        Ok(n)
    }
}

/// Stops when the file grows out of all proportion.
struct Bounded<R> {
    inner: R,
    consumed: Rc<Cell<u64>>,
    produced: u64,
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = self.inner.read(buf)?;
        self.produced += n as u64;
        if self.produced > GRACE + self.consumed.get() * RATIO {
            let why = format!("decompresses to more than {RATIO} times its size");
            return Err(io::Error::new(io::ErrorKind::InvalidData, why));
        }
        Ok(n)
    }
}
