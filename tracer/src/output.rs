//! What goes to standard output and into files: the timeline as text, the trace
//! as JSON, its lines as they happen, and the forms of other people's tools.

pub mod format;
pub mod html;
pub mod json;
pub mod jsonl;
pub mod mermaid;
mod order;
pub mod otlp;
pub mod pcapng;
pub mod perfetto;
mod phrase;
#[cfg(test)]
pub(crate) mod samples;
pub mod schema;
pub mod text;
