//! Recordings: a header line, one line per step, a closing line; compressed
//! when the name ends in `.zst`.
//!
//! Reading goes over three stages, each on threads of its own: `input` reads
//! and decompresses, `lines` makes steps of lines, the caller folds them.

pub use load::{Loaded, load, read};
pub use read::{Notice, ReadError, Reader};
pub use write::{Rotation, Writer};

mod fast;
mod first;
mod input;
mod lines;
mod load;
mod read;
mod write;

/// Longest line that is read, in bytes. The closing line holds the rules of all
/// nodes.
pub const LINE_LIMIT: usize = 64 << 20;

#[cfg(test)]
mod tests;
