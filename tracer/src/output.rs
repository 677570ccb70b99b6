//! What goes to standard output: the timeline as text, the trace as JSON, or
//! its lines as they happen.

pub mod format;
pub mod json;
pub mod jsonl;
pub mod text;
