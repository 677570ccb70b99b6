//! The forms that a trace can be exported in. A new one is a file beside this
//! one and a line in [`FORMATS`].

use std::io::{self, Write};

use super::{json, jsonl, text};
use crate::trace::Trace;

/// A form.
#[derive(Debug)]
pub struct Format {
    /// As it is asked for.
    pub name: &'static str,
    /// What it is, in a few words.
    pub about: &'static str,
    /// Not fit for a terminal.
    pub binary: bool,
    /// Writes the whole trace.
    pub write: fn(&mut dyn Write, &Trace) -> io::Result<()>,
}

/// All forms.
pub const FORMATS: &[Format] = &[
    Format {
        name: "text",
        about: "the timeline, as show prints it",
        binary: false,
        write: |out, trace| text::write(out, trace, false),
    },
    Format {
        name: "json",
        about: "the whole trace as one object",
        binary: false,
        write: json::write,
    },
    Format {
        name: "jsonl",
        about: "a recording: a line for each step",
        binary: false,
        write: jsonl::write,
    },
];
