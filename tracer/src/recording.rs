//! Recordings: a header line, one line per step, a closing line; compressed
//! when the name ends in `.zst`.

pub use read::{Notice, ReadError, Reader, read};
pub use write::Writer;

mod read;
mod write;

/// Longest line that is read, in bytes.
pub const LINE_LIMIT: usize = 4 << 20;

#[cfg(test)]
mod tests;
