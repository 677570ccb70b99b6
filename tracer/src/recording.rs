//! Recordings: a header line, one line per step, a closing line; compressed
//! when the name ends in `.zst`.

pub use read::{Notice, ReadError, Reader, read};
pub use write::Writer;

mod read;
mod write;

/// Longest line that is read, in bytes. The closing line holds the rules of all
/// nodes.
pub const LINE_LIMIT: usize = 64 << 20;

#[cfg(test)]
mod tests;
