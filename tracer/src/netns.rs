//! Network namespaces: listing them, and working inside one.

use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Where `ip netns` (and containerd, docker) keep named namespaces.
const NAMED: &[&str] = &["/run/netns", "/var/run/docker/netns"];

/// An open network namespace.
#[derive(Debug)]
pub struct NetNs {
    /// Inode in nsfs: the namespace's identity, `net.ns.inum` in the kernel.
    pub inode: u32,
    /// Keeps it open.
    pub file: OwnedFd,
    /// Base name under `/run/netns`, or as given by the user.
    pub name: Option<String>,
    /// A process inside.
    pub pid: Option<i32>,
}

impl NetNs {
    /// Opens the namespace behind `path`, which must be one.
    pub fn open(path: &Path) -> io::Result<Self> {
        // Non-blocking: a pipe among the names must not hold us up.
        let file = File::options()
            .read(true)
            .custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC)
            .open(path)?;
        // SAFETY: statfs is plain integers; all zero is a valid value.
        let mut fs: libc::statfs = unsafe { std::mem::zeroed() };
        // SAFETY: the descriptor is open and `fs` is valid for the call to fill.
        if unsafe { libc::fstatfs(file.as_raw_fd(), &raw mut fs) } != 0 {
            return Err(io::Error::last_os_error());
        }
        if fs.f_type != libc::NSFS_MAGIC {
            return Err(io::Error::other("not a namespace (a stale mount point?)"));
        }
        let inode = u32::try_from(file.metadata()?.ino())
            .map_err(|_| io::Error::other("inode out of range"))?;
        Ok(Self {
            inode,
            file: file.into(),
            name: None,
            pid: None,
        })
    }

    /// The one this thread is in.
    pub fn current() -> io::Result<Self> {
        Self::open(Path::new("/proc/thread-self/ns/net"))
    }

    /// Opens `path` under a name the user gave.
    pub fn open_named(name: &str, path: &Path) -> io::Result<Self> {
        let mut this = Self::open(path)?;
        this.name = Some(name.to_owned());
        Ok(this)
    }
}

fn set_ns(fd: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: setns with an open descriptor changes this thread's namespace only.
    match unsafe { libc::setns(fd.as_raw_fd(), libc::CLONE_NEWNET) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Keeps the current thread inside a namespace; dropping it goes back. Not
/// `Send`: the namespace is the thread's.
#[derive(Debug)]
pub struct Entered {
    back: OwnedFd,
    here: std::marker::PhantomData<*const ()>,
}

/// Moves the current thread into `ns` until the guard is dropped.
pub fn enter(ns: &NetNs) -> io::Result<Entered> {
    let back = NetNs::current()?.file;
    set_ns(ns.file.as_fd())?;
    Ok(Entered {
        back,
        here: std::marker::PhantomData,
    })
}

impl Drop for Entered {
    fn drop(&mut self) {
        if let Err(e) = set_ns(self.back.as_fd()) {
            // Going on would do things in the wrong namespace.
            panic!("cannot return to the own network namespace: {e}");
        }
    }
}

/// Runs `work` inside `ns` on a thread of its own, so that the caller's thread
/// never changes its namespace whatever happens.
pub fn run_in<T: Send>(ns: &NetNs, work: impl FnOnce() -> T + Send) -> io::Result<T> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new()
            .name("netns".to_owned())
            .spawn_scoped(scope, || {
                set_ns(ns.file.as_fd())?;
                Ok(work())
            })?;
        thread
            .join()
            .unwrap_or_else(|_| Err(io::Error::other("the work inside panicked")))
    })
}

/// The same without waiting. The work is told whether the namespace could be
/// entered.
pub fn spawn_in(
    ns: std::sync::Arc<NetNs>,
    name: &str,
    work: impl FnOnce(io::Result<()>) + Send + 'static,
) -> io::Result<()> {
    let thread = std::thread::Builder::new().name(name.to_owned());
    thread.spawn(move || {
        let entered = set_ns(ns.file.as_fd());
        drop(ns);
        work(entered);
    })?;
    Ok(())
}

/// All namespaces found, and why some were not opened.
#[derive(Debug, Default)]
pub struct Listing {
    /// Each once, the tool's own first.
    pub found: Vec<NetNs>,
    /// Sentences about what was passed over.
    pub skipped: Vec<String>,
}

/// Lists the tool's own namespace, that of process 1, the named ones, and those
/// that processes are in. One `readlink` per process, no more.
pub fn list() -> Listing {
    let mut listing = Listing::default();
    let mut seen = HashSet::new();
    add(
        &mut listing,
        &mut seen,
        Path::new("/proc/self/ns/net"),
        None,
        Some(std::process::id() as i32),
    );
    add(
        &mut listing,
        &mut seen,
        Path::new("/proc/1/ns/net"),
        None,
        Some(1),
    );
    for dir in NAMED {
        for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            add(&mut listing, &mut seen, &entry.path(), Some(name), None);
        }
    }
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|n| n.parse().ok()) else {
            continue;
        };
        let path: PathBuf = entry.path().join("ns/net");
        // Threads of the kernel and processes that just ended have no link.
        let Some(inode) = std::fs::read_link(&path).ok().and_then(|l| link_inode(&l)) else {
            continue;
        };
        match listing.found.iter_mut().find(|n| n.inode == inode) {
            Some(known) => known.pid = known.pid.or(Some(pid)),
            None if !seen.contains(&inode) => {
                add(&mut listing, &mut seen, &path, None, Some(pid));
            }
            None => {}
        }
    }
    listing
}

fn add(
    listing: &mut Listing,
    seen: &mut HashSet<u32>,
    path: &Path,
    name: Option<String>,
    pid: Option<i32>,
) {
    match NetNs::open(path) {
        Ok(ns) if seen.insert(ns.inode) => listing.found.push(NetNs { name, pid, ..ns }),
        Ok(ns) => {
            if let Some(known) = listing.found.iter_mut().find(|n| n.inode == ns.inode) {
                known.name = known.name.take().or(name);
                known.pid = pid.filter(|p| *p == 1).or(known.pid);
            }
        }
        // The process may have ended meanwhile.
        Err(e) if e.kind() == io::ErrorKind::NotFound => {}
        Err(e) => listing
            .skipped
            .push(format!("namespace {}: {e}", path.display())),
    }
}

/// Inode in a link such as `net:[4026531840]`.
fn link_inode(link: &Path) -> Option<u32> {
    let text = link.to_str()?;
    text.strip_prefix("net:[")?.strip_suffix(']')?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_carry_the_inode() {
        assert_eq!(
            link_inode(Path::new("net:[4026531840]")),
            Some(4_026_531_840)
        );
        for bad in ["mnt:[1]", "net:[", "net:[x]", ""] {
            assert_eq!(link_inode(Path::new(bad)), None);
        }
    }

    #[test]
    fn a_plain_file_is_not_a_namespace() {
        let e = NetNs::open(Path::new("/proc/version")).unwrap_err();
        assert!(e.to_string().contains("not a namespace"));
    }

    #[test]
    fn the_own_namespace_is_listed_first_and_once() {
        let own = NetNs::current().unwrap().inode;
        let listing = list();
        assert_eq!(listing.found.first().map(|n| n.inode), Some(own));
        assert_eq!(listing.found.iter().filter(|n| n.inode == own).count(), 1);
    }
}
