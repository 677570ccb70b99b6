//! Fetches the kernels that the tests run on: Debian's own packages, from their suites, into the cache.
//!
//! apt does the fetching, with a configuration and state of its own, so the machine's sources stay as they are. Every
//! suite is verified with the Debian archive's keyring. Of each kernel only what a test needs is kept
//! (its image, and the modules of [`KEPT`] with their dependencies), decompressed:
//!
//! ```text
//! ~/.cache/tracer-xtask/kernels/6.1/vmlinuz
//! ~/.cache/tracer-xtask/kernels/6.1/release               6.1.0-57-amd64
//! ~/.cache/tracer-xtask/kernels/6.1/lib/modules/6.1.0-57-amd64/...
//! ```

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsStr,
    fs, io,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail};
use clap::ValueEnum;

use crate::{
    paths,
    process::{command, output, run as run_command},
};

/// Fetch the kernels that the tests run on
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Only this one (default: all)
    #[arg(long)]
    kernel: Option<Kernel>,
    /// Fetch again what is there already
    #[arg(long)]
    force: bool,
}

/// A kernel of the test matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kernel {
    /// Debian 11
    #[value(name = "5.10")]
    V5_10,
    /// Debian 12
    #[value(name = "6.1")]
    V6_1,
    /// Debian 13
    #[value(name = "6.12")]
    V6_12,
    /// The one after Debian 13
    #[value(name = "7")]
    V7,
}

/// The archive's public keys, from the package `debian-archive-keyring`.
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";
/// Where Debian is, on a machine whose own sources do not say.
const DEFAULT_MIRROR: &str = "http://deb.debian.org/debian/";
/// The same for its security updates.
const DEFAULT_SECURITY_MIRROR: &str = "http://deb.debian.org/debian-security/";
/// The package that depends on a suite's current kernel.
const META_PACKAGE: &str = "linux-image-amd64";
/// The modules to keep: those in these folders (ending in `/`) and these files, below `kernel/`.
const KEPT: &[&str] = &[
    "net/802/",
    "net/8021q/",
    "net/bridge/",
    "net/core/",
    "net/ipv4/",
    "net/ipv6/",
    "net/llc/",
    "net/netfilter/",
    "net/sched/",
    "net/sctp/",
    "net/xfrm/",
    "drivers/net/dummy",
    "drivers/net/geneve",
    "drivers/net/ifb",
    "drivers/net/ipvlan/",
    "drivers/net/macvlan",
    "drivers/net/tun",
    "drivers/net/veth",
    "drivers/net/vxlan",
    "drivers/net/wireguard/",
    "drivers/block/virtio_blk",
    "drivers/char/virtio_console",
    "drivers/virtio/",
    // Asked for by name when conntrack, SCTP and IPVS start, so no dependency that depmod sees.
    "arch/x86/crypto/crc32c-intel",
    "crypto/crc32c",
    "crypto/crc32c_generic",
    "crypto/hmac",
    "crypto/sha1_generic",
    "crypto/sha256_generic",
    "lib/",
];

impl Kernel {
    /// All kernels, oldest first.
    pub(crate) const ALL: [Self; 4] = [Self::V5_10, Self::V6_1, Self::V6_12, Self::V7];

    /// Its name on the command line and in the cache.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::V5_10 => "5.10",
            Self::V6_1 => "6.1",
            Self::V6_12 => "6.12",
            Self::V7 => "7",
        }
    }

    /// The suite of Debian that has it, and whether that suite has security updates.
    fn suite(self) -> (&'static str, bool) {
        match self {
            Self::V5_10 => ("bullseye", true),
            Self::V6_1 => ("bookworm", true),
            Self::V6_12 => ("trixie", true),
            Self::V7 => ("forky", false),
        }
    }

    /// Its folder in the cache.
    fn dir(self) -> PathBuf {
        paths::cache().join("kernels").join(self.name())
    }

    /// Its image.
    pub(crate) fn image(self) -> PathBuf {
        self.dir().join("vmlinuz")
    }

    /// The root of its `lib/modules`.
    pub(crate) fn tree(self) -> PathBuf {
        self.dir()
    }

    /// Its release, as `uname -r` prints it, once it has been fetched.
    pub(crate) fn release(self) -> Option<String> {
        // One fetched when other modules were kept is as good as none.
        if fs::read_to_string(self.dir().join("kept")).ok()? != kept_list() {
            return None;
        }
        let release = fs::read_to_string(self.dir().join("release")).ok()?;
        Some(release.trim().to_owned())
    }
}

/// Fetches the kernels that are not there.
pub(crate) fn run(options: &Options) -> Result<()> {
    for kernel in Kernel::ALL {
        if options.kernel.is_some_and(|only| only != kernel) {
            continue;
        }
        if options.force && kernel.dir().exists() {
            fs::remove_dir_all(kernel.dir())?;
        }
        ensure(kernel)?;
        let release = kernel.release().unwrap_or_default();
        println!(
            "kernel {}: {release} in {}",
            kernel.name(),
            kernel.dir().display()
        );
    }
    Ok(())
}

/// Fetches a kernel unless it is there.
pub(crate) fn ensure(kernel: Kernel) -> Result<()> {
    if kernel.release().is_some() {
        return Ok(());
    }
    println!(
        "fetching kernel {} from Debian {}",
        kernel.name(),
        kernel.suite().0
    );
    // Beside the final place, so that the last step is one rename and a cut-off fetch leaves nothing that looks whole.
    let work = kernel
        .dir()
        .with_extension(format!("{}.new", std::process::id()));
    let result =
        fetch(kernel, &work).with_context(|| format!("cannot fetch kernel {}", kernel.name()));
    if work.exists() {
        fs::remove_dir_all(&work)?;
    }
    result
}

/// Fetches, unpacks, thins and puts a kernel in its place.
fn fetch(kernel: Kernel, work: &Path) -> Result<()> {
    if !Path::new(KEYRING).exists() {
        bail!("{KEYRING} is missing; run `cargo xtask setup --vm`");
    }
    let apt = Apt::new(work.join("apt"), kernel)?;
    apt.update()?;
    let packages = apt.kernel_packages()?;
    let (debs, full, kept) = (work.join("debs"), work.join("full"), work.join("kept"));
    for dir in [&debs, &full, &kept] {
        fs::create_dir_all(dir)?;
    }
    apt.download(&packages, &debs)?;
    for entry in fs::read_dir(&debs)? {
        run_command(command("dpkg-deb", ["-x"]).arg(entry?.path()).arg(&full))?;
    }
    // Newer packages put into /usr/lib what older ones put into /lib.
    let modules = ["lib/modules", "usr/lib/modules"]
        .map(|dir| full.join(dir))
        .into_iter()
        .find(|dir| dir.is_dir())
        .context("its packages hold no modules")?;
    let release = fs::read_dir(&modules)?
        .next()
        .context("its packages hold no modules")??
        .file_name()
        .to_string_lossy()
        .into_owned();
    let image = [
        full.join("boot").join(format!("vmlinuz-{release}")),
        modules.join(&release).join("vmlinuz"),
    ]
    .into_iter()
    .find(|path| path.is_file())
    .context("its packages hold no vmlinuz")?;
    keep_modules(&modules, &release, &kept)?;
    fs::copy(image, kept.join("vmlinuz"))?;
    fs::write(kept.join("release"), format!("{release}\n"))?;
    fs::write(kept.join("kept"), kept_list())?;
    if kernel.dir().exists() {
        fs::remove_dir_all(kernel.dir())?;
    }
    fs::rename(&kept, kernel.dir())?;
    Ok(())
}

/// Copies the modules of [`KEPT`] and all that they depend on, decompressed, with fresh indexes.
fn keep_modules(modules: &Path, release: &str, kept: &Path) -> Result<()> {
    let base = modules
        .parent()
        .and_then(Path::parent)
        .context("no root of the modules")?;
    run_command(command("depmod", ["-b"]).arg(base).arg(release))?;
    let from = modules.join(release);
    let to = kept.join("lib/modules").join(release);
    let index = fs::read_to_string(from.join("modules.dep"))?;
    let dependencies: BTreeMap<&str, Vec<&str>> = index
        .lines()
        .filter_map(|line| line.split_once(':'))
        .map(|(module, needed)| (module, needed.split_whitespace().collect()))
        .collect();
    let mut wanted = BTreeSet::new();
    for (module, needed) in &dependencies {
        if is_kept(module) {
            wanted.insert(*module);
            wanted.extend(needed);
        }
    }
    let (mut xz, mut zst) = (Vec::new(), Vec::new());
    for module in wanted {
        let target = to.join(module);
        if let Some(dir) = target.parent() {
            fs::create_dir_all(dir)?;
        }
        fs::copy(from.join(module), &target)?;
        match target.extension().and_then(OsStr::to_str) {
            Some("xz") => xz.push(target),
            Some("zst") => zst.push(target),
            _ => {}
        }
    }
    for name in [
        "modules.builtin",
        "modules.builtin.modinfo",
        "modules.order",
    ] {
        match fs::copy(from.join(name), to.join(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
            _ => {}
        }
    }
    run_command(command("depmod", ["-b"]).arg(kept).arg(release))
}

/// [`KEPT`] as it is noted beside a kernel.
fn kept_list() -> String {
    KEPT.join("\n")
}

/// Whether a module (`kernel/net/sctp/sctp.ko.xz`) is one of [`KEPT`].
fn is_kept(module: &str) -> bool {
    let Some(path) = module.strip_prefix("kernel/") else {
        return false;
    };
    KEPT.iter().any(|kept| {
        path.strip_prefix(kept)
            .is_some_and(|rest| kept.ends_with('/') || rest.starts_with(['.', '/']))
    })
}

/// An apt of our own: its sources, its state, its cache.
struct Apt {
    root: PathBuf,
}

impl Apt {
    fn new(root: PathBuf, kernel: Kernel) -> Result<Self> {
        for dir in ["state/lists/partial", "cache/archives/partial"] {
            fs::create_dir_all(root.join(dir))?;
        }
        let (suite, security) = kernel.suite();
        let (mirror, security_mirror) = mirrors();
        let mut sources = format!("deb [arch=amd64 signed-by={KEYRING}] {mirror} {suite} main\n");
        if security {
            let line = format!(
                "deb [arch=amd64 signed-by={KEYRING}] {security_mirror} {suite}-security main\n"
            );
            sources.push_str(&line);
        }
        fs::write(root.join("sources.list"), sources)?;
        Ok(Self { root })
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        for (name, path) in [
            ("Dir::State", self.root.join("state")),
            ("Dir::Cache", self.root.join("cache")),
            ("Dir::Etc::SourceList", self.root.join("sources.list")),
            ("Dir::Etc::SourceParts", PathBuf::from("/dev/null")),
            // Nothing counts as installed, or apt would stop at packages that this machine has already.
            ("Dir::State::status", PathBuf::from("/dev/null")),
        ] {
            command.arg("-o").arg(format!("{name}={}", path.display()));
        }
        for option in [
            "APT::Architecture=amd64",
            // A user's own cache is not readable for apt's own user.
            "APT::Sandbox::User=root",
            "Acquire::Languages=none",
            "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false",
            "Acquire::IndexTargets::deb::Contents-deb::DefaultEnabled=false",
            "Acquire::Check-Valid-Until=false",
            "Acquire::Retries=3",
        ] {
            command.args(["-o", option]);
        }
        command
    }

    fn update(&self) -> Result<()> {
        output(self.command("apt-get").args(["update", "--error-on=any"])).map(drop)
    }

    /// The packages that together are the suite's current kernel: one, or since 7.x several.
    fn kernel_packages(&self) -> Result<BTreeSet<String>> {
        let mut found = BTreeSet::new();
        let mut open = vec![META_PACKAGE.to_owned()];
        while let Some(package) = open.pop() {
            let text =
                output(
                    self.command("apt-cache")
                        .args(["depends", "--important", &package]),
                )?;
            for line in text.lines() {
                let Some(name) = line
                    .trim()
                    .trim_start_matches('|')
                    .strip_prefix("Depends: ")
                else {
                    continue;
                };
                if is_kernel_package(name) && found.insert(name.to_owned()) {
                    open.push(name.to_owned());
                }
            }
        }
        // Packages that only point to others are small and hold nothing, so they do no harm.
        if found.is_empty() {
            bail!("the suite has no {META_PACKAGE}");
        }
        Ok(found)
    }

    fn download(&self, packages: &BTreeSet<String>, into: &Path) -> Result<()> {
        output(
            self.command("apt-get")
                .args(["download", "--quiet"])
                .args(packages)
                .current_dir(into),
        )
        .map(drop)
    }
}

/// Whether a package is (a part of) a kernel: `linux-image-6.1.0-57-amd64`, `linux-modules-7.2.12+deb14-amd64`.
fn is_kernel_package(name: &str) -> bool {
    [
        "linux-base-",
        "linux-binary-",
        "linux-image-",
        "linux-modules-",
    ]
    .iter()
    .any(|prefix| name.starts_with(prefix))
        && name.ends_with("-amd64")
        || name == "linux-base-amd64"
}

/// The mirrors of Debian and of its security updates that the machine itself uses.
fn mirrors() -> (String, String) {
    let targets = output(&mut command(
        "apt-get",
        ["indextargets", "--format", "$(LABEL)|$(REPO_URI)"],
    ))
    .unwrap_or_default();
    let of = |label: &str, default: &str| {
        targets
            .lines()
            .filter_map(|line| line.split_once('|'))
            .find(|(found, _)| *found == label)
            .map_or_else(|| default.to_owned(), |(_, uri)| uri.to_owned())
    };
    (
        of("Debian", DEFAULT_MIRROR),
        of("Debian-Security", DEFAULT_SECURITY_MIRROR),
    )
}
