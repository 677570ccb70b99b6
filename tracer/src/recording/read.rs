//! Reading. Nothing in a file is trusted: lines, the compression ratio and the
//! number of values are bounded; a line that cannot be understood is left out
//! and counted.

use std::io::{self, Read};
use std::path::Path;

use thiserror::Error;

use super::first::{First, first};
use super::input::{self, Input, Position};
use super::lines::{Batch, Batches, Line};
use crate::trace::{Closing, Header, SCHEMA, Step};

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
    /// A line is damaged so that nothing after it can be read.
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
    /// There is no closing line: the writer did not end in an orderly way, or
    /// has not ended yet.
    NoClosing,
    /// It was ended because it was full; the run goes on in the next file.
    GoesOn {
        /// Its name.
        file: String,
    },
    /// Lines that could not be understood.
    Skipped {
        /// How many.
        lines: u64,
        /// The first of them, from 1.
        first: u64,
        /// What is wrong with it.
        why: String,
    },
    /// There are more packets than are kept.
    Forgot {
        /// Packets and steps that were let go.
        packets: u64,
    },
}

impl std::fmt::Display for Notice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::CutShort { line } => write!(
                f,
                "the recording is cut short in line {line}; all before it was read"
            ),
            Self::NoClosing => f.write_str(
                "the recording has no closing line: it is still being written, or was ended by force",
            ),
            Self::GoesOn { file } => write!(f, "this file was full; the recording goes on in {file}"),
            Self::Skipped { lines: 1, first, why } => {
                write!(f, "line {first} is damaged and was left out: {why}")
            }
            Self::Skipped { lines, first, why } => write!(
                f,
                "{lines} lines are damaged and were left out; the first is line {first}: {why}"
            ),
            Self::Forgot { packets } => write!(
                f,
                "the recording is larger than what is kept in memory; {packets} packets or steps of it were let go"
            ),
        }
    }
}

/// A recording being read, step by step.
pub struct Reader {
    header: Header,
    source: Source,
    position: Position,
    lines: std::vec::IntoIter<Line>,
    closing: Option<Closing>,
    skipped: Option<(u64, u64, String)>,
    cut: Option<u64>,
    ended: bool,
}

enum Source {
    Document(std::vec::IntoIter<Step>),
    Lines(Batches),
}

impl Reader {
    /// Opens a recording, or an `-o json` document, and reads its header.
    pub fn open(path: &Path) -> Result<Self, ReadError> {
        let (input, position) = input::open(path)?;
        Self::start(input, position)
    }

    /// Reads from anything; whether it is compressed is told by its start.
    pub fn new(from: impl Read + Send + 'static) -> Result<Self, ReadError> {
        let (input, position) = input::start(from)?;
        Self::start(input, position)
    }

    fn start(mut input: Input, position: Position) -> Result<Self, ReadError> {
        let (header, source, closing) = match first(&mut input)? {
            First::Header(header) => (header, Source::Lines(Batches::start(input, 2)?), None),
            First::Document(header, steps, closing) => {
                (header, Source::Document(steps.into_iter()), Some(*closing))
            }
        };
        Ok(Self {
            header,
            source,
            position,
            lines: Vec::new().into_iter(),
            closing,
            skipped: None,
            cut: None,
            ended: false,
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

    /// Lines that were left out so far.
    pub fn skipped(&self) -> u64 {
        self.skipped.as_ref().map_or(0, |(n, _, _)| *n)
    }

    /// Bytes of the file that were read, and its size where it is a file.
    pub fn position(&self) -> (u64, Option<u64>) {
        (self.position.read(), self.position.total)
    }

    /// What is worth telling, once all steps were read.
    pub fn notices(&self) -> Vec<Notice> {
        let mut notices = Vec::new();
        if let Some((lines, first, why)) = self.skipped.clone() {
            notices.push(Notice::Skipped { lines, first, why });
        }
        match (self.cut, &self.closing) {
            (Some(line), _) => notices.push(Notice::CutShort { line }),
            (None, None) => notices.push(Notice::NoClosing),
            (None, Some(closing)) => {
                let file = closing.continues.clone();
                notices.extend(file.map(|file| Notice::GoesOn { file }));
            }
        }
        notices
    }

    /// Header, closing line and notices, once all steps were read.
    pub fn into_ends(self) -> (Header, Option<Closing>, Vec<Notice>) {
        let notices = self.notices();
        (self.header, self.closing, notices)
    }

    fn step(&mut self) -> Result<Option<Step>, ReadError> {
        loop {
            while let Some(line) = self.lines.next() {
                match line {
                    Line::Step(step) => return Ok(Some(step)),
                    Line::Closing(closing) => self.closing = Some(*closing),
                    Line::Header(header) => self.appended(*header),
                    Line::Bad(line, why) => {
                        self.skipped.get_or_insert((0, line, why)).0 += 1;
                    }
                }
            }
            let batches = match &mut self.source {
                Source::Document(steps) => return Ok(steps.next()),
                Source::Lines(batches) => batches,
            };
            match batches.next() {
                None => return Ok(None),
                Some(Batch::Lines(lines)) => self.lines = lines.into_iter(),
                Some(Batch::Cut(line)) => self.cut = Some(line),
                Some(Batch::Failed(e)) => return Err(e),
            }
        }
    }

    /// A file that goes on with this one was appended: it may know more nodes.
    fn appended(&mut self, header: Header) {
        for node in header.nodes {
            if !self.header.nodes.iter().any(|n| n.name == node.name) {
                self.header.nodes.push(node);
            }
        }
    }
}

impl Iterator for Reader {
    type Item = Result<Step, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let step = self.step();
        self.ended = !matches!(step, Ok(Some(_)));
        step.transpose()
    }
}
