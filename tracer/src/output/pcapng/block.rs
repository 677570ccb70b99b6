//! Blocks of a pcapng file: `draft-ietf-opsawg-pcapng`, little-endian.

use std::io::{self, Write};

/// The body of a block, options last.
#[derive(Debug, Default)]
pub(super) struct Block(Vec<u8>);

/// Longest value of an option in bytes.
const OPTION: usize = 60_000;

impl Block {
    pub(super) fn new() -> Self {
        Self::default()
    }

    pub(super) fn u16(mut self, value: u16) -> Self {
        self.0.extend(value.to_le_bytes());
        self
    }

    pub(super) fn u32(mut self, value: u32) -> Self {
        self.0.extend(value.to_le_bytes());
        self
    }

    /// Bytes, padded to 32 bits.
    pub(super) fn bytes(mut self, bytes: &[u8]) -> Self {
        self.0.extend(bytes);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self
    }

    /// An option; a text too long for one is cut.
    pub(super) fn option(self, code: u16, value: &[u8]) -> Self {
        let mut end = value.len().min(OPTION);
        while end < value.len() && value[end] & 0xc0 == 0x80 {
            end -= 1;
        }
        let value = &value[..end];
        self.u16(code).u16(value.len() as u16).bytes(value)
    }

    /// The block with its type and lengths.
    pub(super) fn write(self, out: &mut dyn Write, kind: u32) -> io::Result<()> {
        let len = (self.0.len() as u32 + 12).to_le_bytes();
        out.write_all(&kind.to_le_bytes())?;
        out.write_all(&len)?;
        out.write_all(&self.0)?;
        out.write_all(&len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_padded_and_cut_between_characters() {
        let mut out = Vec::new();
        Block::new().option(1, b"abc").write(&mut out, 5).unwrap();
        assert_eq!(
            out,
            [
                5, 0, 0, 0, 20, 0, 0, 0, 1, 0, 3, 0, b'a', b'b', b'c', 0, 20, 0, 0, 0
            ]
        );
        let long = "x".to_owned() + &"ä".repeat(40_000);
        let block = Block::new().option(1, long.as_bytes());
        let len = usize::from(u16::from_le_bytes([block.0[2], block.0[3]]));
        assert_eq!(len, OPTION - 1);
        assert!(std::str::from_utf8(&block.0[4..4 + len]).is_ok());
    }
}
