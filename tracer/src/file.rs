//! Result files: whole or not at all.
//!
//! A [`Draft`] is written beside its destination and takes its name when it is
//! complete. Until then what was there before stays. A draft that is dropped
//! unfinished is removed, also when a signal ends the process; after SIGKILL or
//! a crash a file `.tracer-PID-N.tmp` is left, never half a result under its
//! own name.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use thiserror::Error;

use crate::interrupt::{self, Unfinished};

/// Why a result cannot be written: one sentence.
#[derive(Debug, Error)]
#[error("cannot write to {}: {why}", path.display())]
pub struct WriteError {
    path: PathBuf,
    why: String,
    kind: io::ErrorKind,
}

impl WriteError {
    fn new(path: &Path, e: &io::Error) -> Self {
        let why = match e.kind() {
            io::ErrorKind::NotFound => "its folder does not exist".into(),
            io::ErrorKind::IsADirectory => "it is a folder; give the name of a file".into(),
            _ => e.to_string(),
        };
        Self {
            path: path.to_owned(),
            why,
            kind: e.kind(),
        }
    }

    /// The reader of a pipe went away, which is no failure.
    pub fn is_broken_pipe(&self) -> bool {
        self.kind == io::ErrorKind::BrokenPipe
    }
}

/// A result file in the making.
#[derive(Debug)]
pub struct Draft {
    out: BufWriter<File>,
    path: PathBuf,
    /// Absent for what is written in place: pipes, devices, standard output.
    pending: Option<Pending>,
}

#[derive(Debug)]
struct Pending {
    temporary: PathBuf,
    destination: PathBuf,
    _unfinished: Unfinished,
}

impl Drop for Pending {
    fn drop(&mut self) {
        // Nothing is there any more once it has its name.
        let _ = fs::remove_file(&self.temporary);
    }
}

/// Where a path leads.
enum Place {
    /// Written as it is: pipe, device, socket, an open descriptor.
    Direct,
    /// The file itself, links resolved, and its permissions if it exists.
    File(PathBuf, Option<fs::Permissions>),
}

impl Draft {
    /// Begins a file. `-` and `/dev/stdout` are standard output. A path that
    /// cannot be written fails here.
    pub fn create(path: &Path) -> Result<Self, WriteError> {
        let failed = |e: io::Error| WriteError::new(path, &e);
        let (file, pending) = match place(path).map_err(failed)? {
            Place::Direct => (direct(path).map_err(failed)?, None),
            Place::File(destination, permissions) => {
                let (file, pending) = beside(destination).map_err(failed)?;
                if let Some(permissions) = permissions {
                    // A stranger's file keeps at least its content to itself.
                    let _ = file.set_permissions(permissions);
                }
                (file, Some(pending))
            }
        };
        Ok(Self {
            out: BufWriter::with_capacity(1 << 16, file),
            path: path.to_owned(),
            pending,
        })
    }

    /// Completes the file: from now on it has its name.
    pub fn finish(self) -> Result<(), WriteError> {
        let Self { out, path, pending } = self;
        let end = || -> io::Result<()> {
            let file = out.into_inner().map_err(io::IntoInnerError::into_error)?;
            if let Some(pending) = &pending {
                file.sync_all()?;
                fs::rename(&pending.temporary, &pending.destination)?;
            }
            Ok(())
        };
        end().map_err(|e| WriteError::new(&path, &e))
    }

    /// The sentence for a failed write.
    pub fn error(&self, e: &io::Error) -> WriteError {
        WriteError::new(&self.path, e)
    }
}

impl Write for Draft {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.out.write(bytes)
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.out.write_all(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Whether a result could be written there, leaving everything as it is: for
/// work that takes long before its result is known.
pub fn check(path: &Path) -> Result<(), WriteError> {
    let look = || -> io::Result<()> {
        if let Place::File(destination, _) = place(path)? {
            beside(destination)?;
        }
        Ok(())
    };
    look().map_err(|e| WriteError::new(path, &e))
}

fn place(path: &Path) -> io::Result<Place> {
    if is_descriptor(path) {
        return Ok(Place::Direct);
    }
    match fs::metadata(path) {
        Ok(found) if found.is_dir() => Err(io::ErrorKind::IsADirectory.into()),
        Ok(found) if found.is_file() => {
            // Replacing would not ask whether the file may be written.
            OpenOptions::new().write(true).open(path)?;
            let destination = fs::canonicalize(path)?;
            Ok(Place::File(destination, Some(found.permissions())))
        }
        Ok(_) => Ok(Place::Direct),
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            let name = path.file_name().ok_or(io::ErrorKind::IsADirectory)?;
            if fs::symlink_metadata(path).is_ok() {
                return Err(io::Error::other("it is a link that leads nowhere"));
            }
            if path.as_os_str().as_encoded_bytes().ends_with(b"/") {
                return Err(io::ErrorKind::IsADirectory.into());
            }
            Ok(Place::File(
                fs::canonicalize(folder(path))?.join(name),
                None,
            ))
        }
        Err(e) => Err(e),
    }
}

/// Whether it names something that is open already; behind it may be a file
/// that a shell redirects to, whose name must not change hands.
fn is_descriptor(path: &Path) -> bool {
    let standard = ["-", "/dev/stdout", "/dev/stderr"];
    standard.iter().any(|name| path == Path::new(name))
        || path.starts_with("/dev/fd")
        || path.starts_with("/proc")
}

fn folder(path: &Path) -> &Path {
    path.parent()
        .filter(|p| !p.as_os_str().is_empty())
        .unwrap_or(Path::new("."))
}

/// Opens what is written in place; appending, as a shell's redirection may
/// have put something there already.
fn direct(path: &Path) -> io::Result<File> {
    if path.as_os_str() == "-" || path == Path::new("/dev/stdout") {
        return Ok(io::stdout().as_fd().try_clone_to_owned()?.into());
    }
    OpenOptions::new().append(true).open(path)
}

/// A new file in the destination's folder.
fn beside(destination: PathBuf) -> io::Result<(File, Pending)> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    loop {
        let n = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!(".tracer-{}-{n}.tmp", std::process::id());
        let temporary = folder(&destination).join(name);
        match OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(&temporary)
        {
            Ok(file) => {
                let pending = Pending {
                    _unfinished: interrupt::remove(&temporary),
                    temporary,
                    destination,
                };
                return Ok((file, pending));
            }
            // Left by a process that had this number before.
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            Err(e) => return Err(e),
        }
    }
}

#[cfg(test)]
mod tests;
