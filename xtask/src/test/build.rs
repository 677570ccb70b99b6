//! Builds what the laboratory runs, once: the release binaries, and the test programs that drive them.

use std::{
    path::PathBuf,
    process::{Command, Stdio},
};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::{paths, process};

/// Tells a test where the binary `tracer` is.
pub(crate) const TRACER_BIN: &str = "TRACER_BIN";
/// Tells a test where the binary `lab` is.
pub(crate) const LAB_BIN: &str = "LAB_BIN";
/// Tells a test where to leave its recordings.
pub(crate) const RECORDINGS_DIR: &str = "TRACER_CASES";
/// The crate with the laboratory and its tests.
const LABORATORY: &str = "tracer-tests";

/// What was built.
pub(crate) struct Built {
    /// The release binary `tracer`.
    pub(crate) tracer: PathBuf,
    /// The laboratory's own binaries. Tests have their paths built in (`CARGO_BIN_EXE_lab`).
    pub(crate) laboratory: Vec<Program>,
    /// The test programs, in the order of their names.
    pub(crate) tests: Vec<Program>,
}

/// One program, built.
pub(crate) struct Program {
    /// The binary's name, or that of the file of tests without its ending.
    pub(crate) name: String,
    /// Where it is.
    pub(crate) path: PathBuf,
    /// Whether it is a program of tests.
    is_test: bool,
}

impl Program {
    /// Its file's name, which no other program of the build has: a binary's tests and a file of tests may share a name.
    pub(crate) fn file_name(&self) -> String {
        let name = self.path.file_name().unwrap_or_default();
        name.to_string_lossy().into_owned()
    }
}

impl Built {
    /// The binary `lab`, if the crate has it.
    pub(crate) fn lab(&self) -> Option<&Program> {
        self.laboratory.iter().find(|program| program.name == "lab")
    }
}

/// Builds the release binary `tracer`.
pub(crate) fn tracer() -> Result<PathBuf> {
    let mut cargo = process::command(
        "cargo",
        ["build", "--release", "--locked", "--package", "tracer"],
    );
    find(&programs(cargo.arg("--bins"))?, "tracer")
}

/// Builds the crate tracer's benchmarks, and its binary for them, and returns the programs of these names.
pub(crate) fn benches<const N: usize>(names: [&str; N]) -> Result<[PathBuf; N]> {
    let mut cargo = process::command(
        "cargo",
        ["bench", "--no-run", "--locked", "--package", "tracer"],
    );
    // Cargo builds the crate's binaries for its benchmarks without being asked; asked, it adds their own benchmarks.
    for name in names.into_iter().filter(|name| *name != "tracer") {
        cargo.args(["--bench", name]);
    }
    let built = programs(&mut cargo)?;
    let mut paths = [const { PathBuf::new() }; N];
    for (path, name) in paths.iter_mut().zip(names) {
        *path = find(&built, name)?;
    }
    Ok(paths)
}

/// The path of the program of that name.
fn find(built: &[Program], name: &str) -> Result<PathBuf> {
    let found = built.iter().find(|program| program.name == name);
    found
        .map(|program| program.path.clone())
        .with_context(|| format!("the crate tracer built no program `{name}`"))
}

/// Builds all.
pub(crate) fn build() -> Result<Built> {
    let tracer = tracer()?;
    // Tests only start programs and read what they print, so they need no optimisation, and link faster without.
    let (mut tests, laboratory): (Vec<_>, Vec<_>) = programs(&mut process::command(
        "cargo",
        ["test", "--no-run", "--locked", "--package", LABORATORY],
    ))?
    .into_iter()
    .partition(|program| program.is_test);
    tests.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(Built {
        tracer,
        laboratory,
        tests,
    })
}

/// The programs that a cargo command built.
fn programs(cargo: &mut Command) -> Result<Vec<Program>> {
    cargo
        .arg("--message-format=json-render-diagnostics")
        .current_dir(paths::workspace())
        .stderr(Stdio::inherit());
    let mut found = Vec::new();
    let ended_well = process::stream(cargo, |line| found.extend(program(line)))?;
    if !ended_well {
        bail!("the build failed; the reason is above");
    }
    Ok(found)
}

/// The program that one of cargo's messages tells of.
fn program(message: &str) -> Option<Program> {
    let message: Value = serde_json::from_str(message).ok()?;
    if message.get("reason")? != "compiler-artifact" {
        return None;
    }
    Some(Program {
        name: message.pointer("/target/name")?.as_str()?.to_owned(),
        path: PathBuf::from(message.get("executable")?.as_str()?),
        is_test: message.pointer("/profile/test")?.as_bool()?,
    })
}

#[cfg(test)]
mod tests {
    use super::program;

    #[test]
    fn finds_programs_in_cargos_messages() {
        let message = r#"{"reason":"compiler-artifact","target":{"name":"dnat"},"profile":{"test":true},"executable":"/t/dnat-1"}"#;
        let found = program(message).map(|found| (found.name, found.is_test));
        assert_eq!(found, Some(("dnat".to_owned(), true)));
        let library = r#"{"reason":"compiler-artifact","target":{"name":"lab"},"profile":{"test":false},"executable":null}"#;
        assert!(program(library).is_none());
        assert!(program(r#"{"reason":"build-finished","success":true}"#).is_none());
    }
}
