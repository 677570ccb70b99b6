//! Writes the archive form that the kernel unpacks as its first root: cpio, "newc".

use std::{
    io::{self, Write},
    path::Path,
};

/// Kinds of entries, as in `st_mode`.
const DIRECTORY: u32 = 0o040_755;
const REGULAR: u32 = 0o100_000;
const SYMLINK: u32 = 0o120_777;
const CHARACTER_DEVICE: u32 = 0o020_600;

/// The length of an entry before its name: a magic word, thirteen numbers.
const HEADER: usize = 6 + 13 * 8;

/// An archive under way.
pub(crate) struct Archive<W> {
    to: W,
    next_inode: u32,
}

impl<W: Write> Archive<W> {
    pub(crate) fn new(to: W) -> Self {
        Self { to, next_inode: 1 }
    }

    pub(crate) fn directory(&mut self, path: &Path) -> io::Result<()> {
        self.entry(path, DIRECTORY, (0, 0), &[])
    }

    pub(crate) fn file(&mut self, path: &Path, permissions: u32, content: &[u8]) -> io::Result<()> {
        self.entry(path, REGULAR | (permissions & 0o7777), (0, 0), content)
    }

    pub(crate) fn symlink(&mut self, path: &Path, target: &str) -> io::Result<()> {
        self.entry(path, SYMLINK, (0, 0), target.as_bytes())
    }

    pub(crate) fn character_device(
        &mut self,
        path: &Path,
        major: u32,
        minor: u32,
    ) -> io::Result<()> {
        self.entry(path, CHARACTER_DEVICE, (major, minor), &[])
    }

    /// The closing entry. Without it the kernel takes the archive for cut off.
    pub(crate) fn finish(mut self) -> io::Result<W> {
        self.entry(Path::new("TRAILER!!!"), 0, (0, 0), &[])?;
        self.to.flush()?;
        Ok(self.to)
    }

    fn entry(
        &mut self,
        path: &Path,
        mode: u32,
        device: (u32, u32),
        content: &[u8],
    ) -> io::Result<()> {
        let path = path.strip_prefix("/").unwrap_or(path);
        let name = path.to_string_lossy();
        let size = u32::try_from(content.len())
            .map_err(|_| io::Error::other(format!("{name} is too big for the guest's root")))?;
        let name_size = name.len() + 1;
        let links = if mode == DIRECTORY { 2 } else { 1 };
        write!(self.to, "070701")?;
        // In order: inode, mode, owner, group, links, time, size, the file system's device, the node's device, the
        // name's length, a checksum that this form does not use.
        let inode = self.next_inode;
        self.next_inode += 1;
        for field in [
            inode,
            mode,
            0,
            0,
            links,
            0,
            size,
            0,
            0,
            device.0,
            device.1,
            name_size as u32,
            0,
        ] {
            write!(self.to, "{field:08x}")?;
        }
        self.to.write_all(name.as_bytes())?;
        self.to.write_all(&[0])?;
        self.pad(HEADER + name_size)?;
        self.to.write_all(content)?;
        self.pad(content.len())
    }

    /// Fills up to a multiple of four.
    fn pad(&mut self, written: usize) -> io::Result<()> {
        self.to.write_all(&[0; 3][..written.wrapping_neg() % 4])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_start_at_multiples_of_four() -> io::Result<()> {
        let mut archive = Archive::new(Vec::new());
        archive.file(Path::new("/a"), 0o755, b"12345")?;
        let bytes = archive.finish()?;
        assert_eq!(&bytes[..6], b"070701");
        assert_eq!(&bytes[110..112], b"a\0");
        assert_eq!(&bytes[112..120], b"12345\0\0\0");
        assert_eq!(&bytes[120..126], b"070701");
        assert_eq!(bytes.len() % 4, 0);
        Ok(())
    }
}
