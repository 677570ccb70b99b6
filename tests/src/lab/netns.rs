//! Named network namespaces: entering one, and finding who is in one.

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread;

use anyhow::{Context, Result, anyhow};

/// Where `ip netns` keeps names.
pub const DIR: &str = "/run/netns";

/// The file that stands for the namespace of that name.
pub fn path(name: &str) -> PathBuf {
    Path::new(DIR).join(name)
}

/// The inode number that identifies the namespace of that name, if there is one.
pub fn inode(name: &str) -> Option<u64> {
    fs::metadata(path(name)).ok().map(|meta| meta.ino())
}

/// The inode number of the namespace that the calling thread is in.
pub fn current_inode() -> Result<u64> {
    let meta =
        fs::metadata("/proc/thread-self/ns/net").context("reading /proc/thread-self/ns/net")?;
    Ok(meta.ino())
}

/// Moves the calling thread, and nothing else, into the namespace of that name.
///
/// Meant for a process that is about to become another program; use [`within`] otherwise.
pub fn enter(name: &str) -> Result<()> {
    let file = File::open(path(name))
        .with_context(|| format!("no network namespace {name}; is the laboratory up?"))?;
    // SAFETY: setns reads the descriptor, which `file` keeps open, and touches no memory of ours.
    let status = unsafe { libc::setns(file.as_raw_fd(), libc::CLONE_NEWNET) };
    if status == 0 {
        Ok(())
    } else {
        Err(std::io::Error::last_os_error())
            .with_context(|| format!("entering the network namespace {name}"))
    }
}

/// Runs `work` in the namespace of that name, on a thread of its own that ends with it.
///
/// Programs that `work` starts, and sockets that it opens, belong to that namespace for good.
pub fn within<T: Send>(name: &str, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    thread::scope(|scope| {
        scope
            .spawn(|| {
                enter(name)?;
                work()
            })
            .join()
            .map_err(|_| anyhow!("the thread in network namespace {name} panicked"))?
    })
}

/// Runs `work` in the namespace of that name, or right here when none is named.
pub fn within_or_here<T: Send>(
    name: Option<&str>,
    work: impl FnOnce() -> Result<T> + Send,
) -> Result<T> {
    match name {
        Some(name) => within(name, work),
        None => work(),
    }
}

/// The processes whose main thread is in one of the given namespaces.
pub fn processes_in(inodes: &[u64]) -> Vec<i32> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|pid: &i32| {
            fs::metadata(format!("/proc/{pid}/ns/net"))
                .is_ok_and(|meta| inodes.contains(&meta.ino()))
        })
        .collect()
}
