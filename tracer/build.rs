//! Builds the eBPF programs (workspace member `tracer-ebpf`) and leaves the object file in `OUT_DIR/tracer-ebpf`, where
//! `include_bytes_aligned!(concat!(env!("OUT_DIR"), "/tracer-ebpf"))` finds it.
//!
//! The BPF targets come with no compiler as it is installed, so this looks for one that can do it: Debian's
//! `/usr/bin/rustc`, for which a package holds `core` ready-built, or any toolchain with the component `rust-src`
//! (rustup's nightly), which then builds `core` itself. `TRACER_EBPF_RUSTC` names another `rustc`.

use std::{
    env,
    ffi::OsString,
    fs, io,
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
};

/// The name of the crate, of its binary, and of the object in `OUT_DIR`.
const CRATE: &str = "tracer-ebpf";
/// The instruction set that the oldest supported kernel (5.10) loads. `v3` would also let LLVM emit atomics that
/// return the old value, which kernels before 5.12 refuse.
const BPF_CPU: &str = "v2";
/// Names another `rustc` for the eBPF programs, before all others.
const RUSTC_OVERRIDE: &str = "TRACER_EBPF_RUSTC";
/// What to do when no compiler or linker is there.
const REMEDY: &str = "run `cargo xtask setup` (Debian, Ubuntu), or `rustup toolchain install nightly --component rust-src` and \
     `cargo install bpf-linker`";

/// A compiler that can build for a BPF target.
struct Toolchain {
    rustc: PathBuf,
    cargo: PathBuf,
    /// Whether `core` has to be built from source.
    build_std: bool,
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            println!("cargo::error={message}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), String> {
    let out_dir = PathBuf::from(var("OUT_DIR")?);
    let manifest_dir = PathBuf::from(var("CARGO_MANIFEST_DIR")?);
    let workspace = manifest_dir
        .parent()
        .ok_or("the crate tracer is not in its workspace")?;

    for name in [RUSTC_OVERRIDE, "PATH", "CARGO_HOME", "RUSTUP_HOME"] {
        println!("cargo::rerun-if-env-changed={name}");
    }
    for name in ["Cargo.toml", "Cargo.lock"] {
        rerun_if_changed(&workspace.join(name));
    }
    for name in [CRATE, "tracer-common"] {
        rerun_if_changed(&workspace.join(name).join("Cargo.toml"));
        // Cargo looks through a folder recursively.
        rerun_if_changed(&workspace.join(name).join("src"));
    }

    let target = match var("CARGO_CFG_TARGET_ENDIAN")?.as_str() {
        "big" => "bpfeb-unknown-none",
        _ => "bpfel-unknown-none",
    };
    let toolchain = find_toolchain(target)?;
    let linker = find_linker()?;
    rerun_if_changed(&toolchain.rustc);
    rerun_if_changed(&linker);

    let target_dir = out_dir.join("ebpf-target");
    let mut cargo = Command::new(&toolchain.cargo);
    // What cargo tells this script about the crate `tracer` and its compiler must not reach the inner cargo; what the
    // user says about networks and registries must.
    for (name, _) in env::vars_os() {
        if is_about_outer_build(&name.to_string_lossy()) {
            cargo.env_remove(&name);
        }
    }
    cargo
        .env("RUSTC", &toolchain.rustc)
        .env("RUSTC_BOOTSTRAP", "1")
        .env("CARGO_ENCODED_RUSTFLAGS", rustflags(&linker)?)
        // bpf-linker optimises the whole program; rustc must not do so before it.
        .env("CARGO_PROFILE_RELEASE_LTO", "off")
        .env("CARGO_PROFILE_RELEASE_PANIC", "abort")
        .args(["build", "--locked", "--release", "--package", CRATE])
        .args(["--bin", CRATE, "--target", target, "--target-dir"])
        .arg(&target_dir)
        .current_dir(workspace)
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    if toolchain.build_std {
        cargo.args(["-Z", "build-std=core"]);
    }
    let status = cargo
        .status()
        .map_err(|error| format!("cannot run {}: {error}", toolchain.cargo.display()))?;
    if !status.success() {
        return Err(format!(
            "the eBPF programs did not build with {} and {} (the reason is above; when it is about bitcode or LLVM versions, \
             bpf-linker was built for another LLVM than this rustc's)",
            toolchain.rustc.display(),
            linker.display()
        ));
    }

    let built = target_dir.join(target).join("release").join(CRATE);
    fs::copy(&built, out_dir.join(CRATE))
        .map(|_| ())
        .map_err(|error| format!("cannot copy {}: {error}", built.display()))
}

/// Whether an environment variable tells of the build that this script is part of.
fn is_about_outer_build(name: &str) -> bool {
    const NAMES: [&str; 17] = [
        "CARGO",
        "CARGO_BUILD_RUSTC",
        "CARGO_BUILD_RUSTFLAGS",
        "CARGO_BUILD_TARGET",
        "CARGO_BUILD_TARGET_DIR",
        "CARGO_ENCODED_RUSTFLAGS",
        "CARGO_TARGET_DIR",
        "CLIPPY_ARGS",
        "CLIPPY_CONF_DIR",
        "LD_LIBRARY_PATH",
        "RUSTC",
        "RUSTC_LINKER",
        "RUSTC_WORKSPACE_WRAPPER",
        "RUSTC_WRAPPER",
        "RUSTDOCFLAGS",
        "RUSTFLAGS",
        "RUSTUP_TOOLCHAIN",
    ];
    const PREFIXES: [&str; 8] = [
        "CARGO_BUILD_RUSTC_",
        "CARGO_CFG_",
        "CARGO_FEATURE_",
        "CARGO_MANIFEST_",
        "CARGO_PKG_",
        "CARGO_PROFILE_",
        "CARGO_TARGET_",
        "DEP_",
    ];
    NAMES.contains(&name) || PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// The compiler's flags, in the form of `CARGO_ENCODED_RUSTFLAGS`.
fn rustflags(linker: &Path) -> Result<OsString, String> {
    let mut flags = OsString::from("-Clinker=");
    flags.push(linker);
    for flag in [
        "-Clink-arg=--btf",
        "-Cdebuginfo=2",
        &format!("-Ctarget-cpu={BPF_CPU}"),
        // aya-ebpf reads the traced kernel's registers by this.
        &format!(
            "--cfg=bpf_target_arch=\"{}\"",
            var("CARGO_CFG_TARGET_ARCH")?
        ),
    ] {
        flags.push("\x1f");
        flags.push(flag);
    }
    Ok(flags)
}

/// The first compiler that can build for the BPF target.
fn find_toolchain(target: &str) -> Result<Toolchain, String> {
    if let Some(rustc) = env::var_os(RUSTC_OVERRIDE) {
        return usable(Path::new(&rustc), target).ok_or_else(|| {
            format!(
                "{RUSTC_OVERRIDE}={} has neither core for {target} nor the component rust-src; unset it, or {REMEDY}",
                Path::new(&rustc).display()
            )
        });
    }
    let debian = Some(PathBuf::from("/usr/bin/rustc"));
    debian
        .into_iter()
        .chain(rustup_nightly())
        .chain(env::var_os("RUSTC").map(PathBuf::from))
        .find_map(|rustc| usable(&rustc, target))
        .ok_or_else(|| {
            format!("no Rust compiler here can build eBPF programs (none has core for {target} or the component rust-src); {REMEDY}")
        })
}

/// This compiler with its cargo, if it can build for the BPF target.
fn usable(rustc: &Path, target: &str) -> Option<Toolchain> {
    let sysroot = output(Command::new(rustc).args(["--print", "sysroot"]))?;
    let rustlib = Path::new(&sysroot).join("lib/rustlib");
    let prebuilt = rustlib.join(target).join("lib").is_dir();
    if !prebuilt && !rustlib.join("src/rust/library/core").is_dir() {
        return None;
    }
    // A toolchain's own cargo goes with its rustc; one in PATH may be rustup's, which would choose another.
    let cargo = [
        rustc.with_file_name("cargo"),
        Path::new(&sysroot).join("bin/cargo"),
    ]
    .into_iter()
    .find(|path| path.is_file())
    .or_else(|| env::var_os("CARGO").map(PathBuf::from))?;
    Some(Toolchain {
        rustc: rustc.to_owned(),
        cargo,
        build_std: !prebuilt,
    })
}

/// The `rustc` of rustup's nightly, if rustup and it are installed. It installs nothing.
fn rustup_nightly() -> Option<PathBuf> {
    let mut rustup = Command::new("rustup");
    rustup
        .args(["which", "--toolchain", "nightly", "rustc"])
        .env("RUSTUP_AUTO_INSTALL", "0");
    output(&mut rustup).map(PathBuf::from)
}

/// `bpf-linker`, from PATH or from where `cargo install` puts it.
fn find_linker() -> Result<PathBuf, String> {
    let cargo_home = env::var_os("CARGO_HOME")
        .map(PathBuf::from)
        .or_else(|| env::var_os("HOME").map(|home| Path::new(&home).join(".cargo")));
    env::split_paths(&env::var_os("PATH").unwrap_or_default())
        .chain(cargo_home.map(|home| home.join("bin")))
        .map(|dir| dir.join("bpf-linker"))
        .find(|path| path.is_file())
        .ok_or_else(|| format!("bpf-linker is neither in PATH nor in ~/.cargo/bin; {REMEDY}"))
}

/// A program's standard output, if it ran well.
fn output(command: &mut Command) -> Option<String> {
    command.env_remove("RUSTUP_TOOLCHAIN").stderr(Stdio::null());
    let output: io::Result<std::process::Output> = command.output();
    let output = output.ok().filter(|output| output.status.success())?;
    let text = String::from_utf8(output.stdout).ok()?;
    Some(text.trim().to_owned())
}

/// Has cargo run this script again when the file or folder changes.
fn rerun_if_changed(path: &Path) {
    println!("cargo::rerun-if-changed={}", path.display());
}

/// An environment variable that cargo sets for every build script.
fn var(name: &str) -> Result<String, String> {
    env::var(name).map_err(|error| format!("cargo did not set {name}: {error}"))
}
