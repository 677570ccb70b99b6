//! Puts together the guest's root: this machine's busybox, network tools and their libraries, the kernel's modules,
//! the job's files.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File},
    io::BufWriter,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};

use super::{Job, cpio::Archive};
use crate::{
    paths,
    process::{command, output},
};

/// The guest's first program.
const INIT: &str = include_str!("init.sh");
/// The guest's shell. busybox's own, as Debian builds it, takes busybox's `ip` for the real one.
const SHELL: &str = "dash";
/// Programs that every guest has.
const PROGRAMS: &[&str] = &[
    "conntrack",
    "ip",
    "ipset",
    "kmod",
    "nft",
    "ss",
    "tc",
    "xtables-legacy-multi",
    "xtables-nft-multi",
];
/// Programs that a guest has when this machine has them.
const OPTIONAL_PROGRAMS: &[&str] = &["bpftool", "bridge", "ethtool", "ipvsadm"];
/// Folders of files that those programs load by themselves.
const FOLDERS: &[&str] = &[
    "/usr/lib/x86_64-linux-gnu/xtables",
    "/usr/lib/aarch64-linux-gnu/xtables",
    "/etc/iproute2",
];
/// Single files of the same kind.
const FILES: &[&str] = &["/etc/protocols", "/etc/services", "/etc/ethertypes"];
/// The multi-call programs and the names that they are called by.
const LINKS: &[(&str, &[&str])] = &[
    (
        "xtables-nft-multi",
        &[
            "iptables",
            "iptables-save",
            "iptables-restore",
            "iptables-nft",
            "iptables-nft-save",
            "iptables-nft-restore",
            "ip6tables",
            "ip6tables-save",
            "ip6tables-restore",
            "ip6tables-nft",
            "ip6tables-nft-save",
            "ip6tables-nft-restore",
        ],
    ),
    (
        "xtables-legacy-multi",
        &[
            "iptables-legacy",
            "iptables-legacy-save",
            "iptables-legacy-restore",
            "ip6tables-legacy",
            "ip6tables-legacy-save",
            "ip6tables-legacy-restore",
        ],
    ),
    (
        "kmod",
        &["modprobe", "insmod", "rmmod", "lsmod", "modinfo", "depmod"],
    ),
];
/// Above this size a program's debug information is left out: the guest's root is memory.
const STRIP_ABOVE: u64 = 4 << 20;

/// What is at a path of the guest's root.
enum Node {
    /// A file of this machine.
    File(PathBuf),
    /// A file made here.
    Text(String, u32),
    Symlink(String),
    Directory,
}

/// The guest's root, before it is written.
#[derive(Default)]
struct Tree {
    nodes: BTreeMap<PathBuf, Node>,
}

/// Writes the whole root for a job.
pub(crate) fn write(job: &Job, to: &Path) -> Result<()> {
    let mut tree = Tree::default();
    tree.skeleton();
    tree.programs()?;
    tree.modules(job)?;
    for (from, guest) in &job.files {
        tree.any(from, guest)?;
    }
    tree.busybox()?;
    tree.insert("/init", Node::Text(INIT.to_owned(), 0o755));
    tree.insert("/script", Node::Text(job.script.clone(), 0o755));
    tree.write(to)
}

impl Tree {
    /// Adds a node and the folders above it.
    fn insert(&mut self, path: impl AsRef<Path>, node: Node) {
        let path = path.as_ref();
        for parent in path
            .ancestors()
            .skip(1)
            .filter(|parent| parent.parent().is_some())
        {
            self.nodes
                .entry(parent.to_owned())
                .or_insert(Node::Directory);
        }
        self.nodes.insert(path.to_owned(), node);
    }

    /// The folders and files of a bare system. As in Debian, all programs and libraries are below /usr.
    fn skeleton(&mut self) {
        for dir in [
            "/dev",
            "/proc",
            "/sys",
            "/run",
            "/tmp",
            "/root",
            "/results",
            "/var/tmp",
            "/usr/bin",
            "/usr/sbin",
            "/usr/lib",
            "/usr/lib64",
            "/etc",
        ] {
            self.insert(dir, Node::Directory);
        }
        for (link, target) in [
            ("/bin", "usr/bin"),
            ("/sbin", "usr/sbin"),
            ("/lib", "usr/lib"),
            ("/lib64", "usr/lib64"),
            ("/var/run", "/run"),
            ("/etc/mtab", "/proc/self/mounts"),
        ] {
            self.insert(link, Node::Symlink(target.to_owned()));
        }
        for (path, text) in [
            (
                "/etc/passwd",
                "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n",
            ),
            ("/etc/group", "root:x:0:\nnogroup:x:65534:\n"),
            ("/etc/hosts", "127.0.0.1 localhost\n::1 localhost\n"),
            (
                "/etc/nsswitch.conf",
                "passwd: files\ngroup: files\nhosts: files\nprotocols: files\nservices: files\n",
            ),
        ] {
            self.insert(path, Node::Text(text.to_owned(), 0o644));
        }
    }

    /// The network tools, what they load, and their other names.
    fn programs(&mut self) -> Result<()> {
        for name in PROGRAMS {
            let Some(path) = paths::find_program(name) else {
                bail!("{name} is missing; run `cargo xtask setup --vm`");
            };
            self.program(&path, &Path::new("/usr/sbin").join(name))?;
        }
        let Some(shell) = paths::find_program(SHELL) else {
            bail!("{SHELL} is missing; run `cargo xtask setup --vm`");
        };
        self.program(&shell, Path::new("/usr/bin/sh"))?;
        for name in OPTIONAL_PROGRAMS {
            if let Some(path) = paths::find_program(name) {
                self.program(&path, &Path::new("/usr/sbin").join(name))?;
            }
        }
        for (program, names) in LINKS {
            for name in *names {
                self.insert(
                    Path::new("/usr/sbin").join(name),
                    Node::Symlink((*program).to_owned()),
                );
            }
        }
        for folder in FOLDERS.iter().map(Path::new).filter(|path| path.is_dir()) {
            self.any(folder, folder)?;
        }
        for file in FILES.iter().map(Path::new).filter(|path| path.is_file()) {
            self.insert(file, Node::File(file.to_owned()));
        }
        Ok(())
    }

    /// busybox under each of its names that no better program has.
    fn busybox(&mut self) -> Result<()> {
        let Some(busybox) = paths::find_program("busybox") else {
            bail!("busybox is missing; run `cargo xtask setup --vm`");
        };
        self.program(&busybox, Path::new("/usr/bin/busybox"))?;
        for name in output(std::process::Command::new(&busybox).arg("--list"))?.lines() {
            let taken = ["/usr/bin", "/usr/sbin"]
                .iter()
                .any(|dir| self.nodes.contains_key(&Path::new(dir).join(name)));
            if !taken {
                self.insert(
                    Path::new("/usr/bin").join(name),
                    Node::Symlink("busybox".to_owned()),
                );
            }
        }
        Ok(())
    }

    /// The kernel's modules.
    fn modules(&mut self, job: &Job) -> Result<()> {
        let release = job
            .kernel
            .release()
            .context("the kernel has not been fetched")?;
        let dir = Path::new("lib/modules").join(release);
        self.any(&job.kernel.tree().join(&dir), &Path::new("/usr").join(dir))
    }

    /// A file, a program with its libraries, or a folder of such.
    fn any(&mut self, from: &Path, guest: &Path) -> Result<()> {
        if from.is_dir() {
            self.insert(guest, Node::Directory);
            let entries =
                fs::read_dir(from).with_context(|| format!("cannot read {}", from.display()))?;
            for entry in entries {
                let entry = entry?;
                self.any(&entry.path(), &guest.join(entry.file_name()))?;
            }
            return Ok(());
        }
        if !from.is_file() {
            bail!("{} is missing", from.display());
        }
        if from.extension().is_some_and(|extension| extension == "ko") {
            self.insert(guest, Node::File(from.to_owned()));
            return Ok(());
        }
        self.program(from, guest)
    }

    /// A file, and if it is a program or library, the libraries that it needs.
    fn program(&mut self, from: &Path, guest: &Path) -> Result<()> {
        self.insert(guest, Node::File(from.to_owned()));
        for library in libraries(from)? {
            let place = in_usr(&library);
            if !self.nodes.contains_key(&place) {
                self.insert(place, Node::File(library));
            }
        }
        Ok(())
    }

    /// Writes the archive.
    fn write(&self, to: &Path) -> Result<()> {
        let file = File::create(to).with_context(|| format!("cannot write {}", to.display()))?;
        let mut archive = Archive::new(BufWriter::with_capacity(1 << 20, file));
        // The kernel wants a console for the first program before /dev is mounted.
        archive.directory(Path::new("dev"))?;
        archive.character_device(Path::new("dev/console"), 5, 1)?;
        for (path, node) in &self.nodes {
            match node {
                Node::Directory => archive.directory(path)?,
                Node::Symlink(target) => archive.symlink(path, target)?,
                Node::Text(text, permissions) => {
                    archive.file(path, *permissions, text.as_bytes())?;
                }
                Node::File(from) => {
                    let (content, permissions) = content(from, to)
                        .with_context(|| format!("cannot read {}", from.display()))?;
                    archive.file(path, permissions, &content)?;
                }
            }
        }
        archive.finish()?;
        Ok(())
    }
}

/// A file's content and permissions; of big programs without their debug information.
fn content(from: &Path, archive: &Path) -> Result<(Vec<u8>, u32)> {
    let metadata = fs::metadata(from)?;
    let permissions = metadata.permissions().mode();
    if metadata.len() > STRIP_ABOVE && permissions & 0o111 != 0 {
        let stripped = archive.with_extension("stripped");
        let strip = output(
            command("strip", ["--strip-debug", "-o"])
                .arg(&stripped)
                .arg(from),
        );
        if strip.is_ok() {
            return Ok((fs::read(stripped)?, permissions));
        }
    }
    Ok((fs::read(from)?, permissions))
}

/// The shared libraries that a program loads, and its loader; none for a static program or other file.
fn libraries(program: &Path) -> Result<BTreeSet<PathBuf>> {
    let mut magic = [0; 4];
    let is_elf = File::open(program)
        .and_then(|mut file| std::io::Read::read_exact(&mut file, &mut magic))
        .is_ok()
        && magic == *b"\x7fELF";
    if !is_elf {
        return Ok(BTreeSet::new());
    }
    // ldd fails for a static program.
    let Ok(text) = output(command("ldd", []).arg(program)) else {
        return Ok(BTreeSet::new());
    };
    let mut found = BTreeSet::new();
    for line in text.lines() {
        // "libc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x...)", or the loader: "/lib64/ld-linux-x86-64.so.2 (0x...)"
        if line.contains("not found") {
            bail!(
                "{} needs a library that is missing: {}",
                program.display(),
                line.trim()
            );
        }
        let path = line
            .split("=>")
            .last()
            .unwrap_or_default()
            .split_whitespace()
            .next()
            .unwrap_or_default();
        if path.starts_with('/') {
            found.insert(PathBuf::from(path));
        }
    }
    Ok(found)
}

/// A library's path with /lib and /lib64 read as what they link to in the guest.
fn in_usr(library: &Path) -> PathBuf {
    if library.starts_with("/lib") || library.starts_with("/lib64") {
        return Path::new("/usr").join(library.strip_prefix("/").unwrap_or(library));
    }
    library.to_owned()
}
