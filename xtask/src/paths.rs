//! Where things are.

use std::{
    env,
    path::{Path, PathBuf},
};

/// The root of the workspace that this program was built from.
pub(crate) fn workspace() -> PathBuf {
    let manifest_dir = env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    manifest_dir
        .parent()
        .map_or(manifest_dir.clone(), Path::to_path_buf)
}

/// Cargo's target folder.
pub(crate) fn target() -> PathBuf {
    env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| workspace().join("target"), |dir| workspace().join(dir))
}

/// Where downloads are kept that outlive a clone: `$XDG_CACHE_HOME/tracer-xtask`.
pub(crate) fn cache() -> PathBuf {
    env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .filter(|dir| dir.is_absolute())
        .or_else(|| env::var_os("HOME").map(|home| Path::new(&home).join(".cache")))
        .unwrap_or_else(|| PathBuf::from("/var/cache"))
        .join("tracer-xtask")
}

/// A program in PATH, in the system's folders, or where `cargo install` puts it.
pub(crate) fn find_program(name: &str) -> Option<PathBuf> {
    let cargo_home = env::var_os("CARGO_HOME")
        .map(PathBuf::from)
        .or_else(|| env::var_os("HOME").map(|home| Path::new(&home).join(".cargo")));
    env::split_paths(&env::var_os("PATH").unwrap_or_default())
        .chain(["/usr/sbin", "/usr/bin", "/sbin"].map(PathBuf::from))
        .chain(cargo_home.map(|home| home.join("bin")))
        .map(|dir| dir.join(name))
        .find(|path| path.is_file())
}
