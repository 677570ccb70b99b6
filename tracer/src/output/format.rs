//! The forms that a trace can be exported in. A new one is a file beside this
//! one and a line in [`FORMATS`].

use std::io::{self, Write};

use super::{html, json, jsonl, mermaid, otlp, pcapng, perfetto, text};
use crate::trace::Trace;

/// Cuts a trace into requests.
pub type Batches = for<'a> fn(&'a Trace) -> Box<dyn Iterator<Item = (usize, Vec<u8>)> + 'a>;

/// A form.
#[derive(Clone, Debug)]
pub struct Format {
    /// As it is asked for.
    pub name: &'static str,
    /// What it is, in a few words.
    pub about: &'static str,
    /// Not fit for a terminal.
    pub binary: bool,
    /// What a collector takes: number of items and body, request by request.
    pub batches: Option<Batches>,
    /// Writes the whole trace.
    pub write: fn(&mut dyn Write, &Trace) -> io::Result<()>,
}

/// All forms.
pub const FORMATS: &[Format] = &[
    Format {
        name: "text",
        about: "the timeline, as show prints it",
        binary: false,
        batches: None,
        write: |out, trace| text::write(out, trace, false),
    },
    Format {
        name: "json",
        about: "one object, docs/trace.schema.json",
        binary: false,
        batches: None,
        write: json::write,
    },
    Format {
        name: "jsonl",
        about: "a recording: a line for each step",
        binary: false,
        batches: None,
        write: jsonl::write,
    },
    Format {
        name: "pcapng",
        about: "packets for Wireshark, rebuilt from their steps",
        binary: true,
        batches: None,
        write: pcapng::write,
    },
    Format {
        name: "perfetto",
        about: "Chrome trace JSON, for https://ui.perfetto.dev",
        binary: false,
        batches: None,
        write: perfetto::write,
    },
    Format {
        name: "html",
        about: "one page for a browser, with a picture of the way; needs no network",
        binary: false,
        batches: None,
        write: html::write,
    },
    Format {
        name: "mermaid",
        about: "a sequence diagram of the packets that tell the story, for Markdown",
        binary: false,
        batches: None,
        write: mermaid::write,
    },
    Format {
        name: "otlp",
        about: "OpenTelemetry: a trace per packet, a span per step; a file, or sent to a collector",
        binary: false,
        batches: Some(otlp::batches),
        write: otlp::write,
    },
];

/// The form of that name.
pub fn find(name: &str) -> Option<&'static Format> {
    FORMATS.iter().find(|f| f.name == name)
}

#[cfg(test)]
mod tests;
