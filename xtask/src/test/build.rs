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
/// The crate with the laboratory and its tests.
const LABORATORY: &str = "tracer-tests";

/// What was built.
pub(crate) struct Built {
    /// The release binary `tracer`.
    pub(crate) tracer: PathBuf,
    /// The release binary `lab`, if the crate has it.
    pub(crate) lab: Option<PathBuf>,
    /// The test programs, in the order of their names.
    pub(crate) tests: Vec<TestProgram>,
}

/// One file of tests, built.
pub(crate) struct TestProgram {
    /// The file's name without its ending.
    pub(crate) name: String,
    pub(crate) path: PathBuf,
}

/// Builds all.
pub(crate) fn build() -> Result<Built> {
    let binaries = artifacts(process::command(
        "cargo",
        [
            "build",
            "--release",
            "--locked",
            "--package",
            "tracer",
            "--package",
            LABORATORY,
            "--bins",
        ],
    ))?;
    let find = |name: &str| {
        binaries
            .iter()
            .find(|found| found.name == name)
            .map(|found| found.path.clone())
    };
    // Tests only start programs and read what they print, so they need no optimisation, and link faster without.
    let mut tests = artifacts(process::command(
        "cargo",
        ["test", "--no-run", "--locked", "--package", LABORATORY],
    ))?;
    tests.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(Built {
        tracer: find("tracer").context("the crate tracer built no binary `tracer`")?,
        lab: find("lab"),
        tests,
    })
}

/// The programs that a cargo command built (tests only, if it is `cargo test`).
fn artifacts(mut cargo: Command) -> Result<Vec<TestProgram>> {
    let tests_only = cargo
        .get_args()
        .next()
        .is_some_and(|argument| argument == "test");
    cargo
        .arg("--message-format=json-render-diagnostics")
        .current_dir(paths::workspace())
        .stderr(Stdio::inherit());
    let mut found = Vec::new();
    let ended_well = process::stream(&mut cargo, |line| {
        found.extend(artifact(line, tests_only));
    })?;
    if !ended_well {
        bail!("the build failed; the reason is above");
    }
    Ok(found)
}

/// The program that one of cargo's messages tells of.
fn artifact(message: &str, tests_only: bool) -> Option<TestProgram> {
    let message: Value = serde_json::from_str(message).ok()?;
    if message.get("reason")? != "compiler-artifact" {
        return None;
    }
    let is_test = message.pointer("/profile/test")?.as_bool()?;
    if is_test != tests_only {
        return None;
    }
    Some(TestProgram {
        name: message.pointer("/target/name")?.as_str()?.to_owned(),
        path: PathBuf::from(message.get("executable")?.as_str()?),
    })
}

#[cfg(test)]
mod tests {
    use super::artifact;

    #[test]
    fn finds_test_programs_in_cargos_messages() {
        let message = r#"{"reason":"compiler-artifact","target":{"name":"dnat"},"profile":{"test":true},"executable":"/t/dnat-1"}"#;
        assert_eq!(
            artifact(message, true).map(|found| found.name),
            Some("dnat".to_owned())
        );
        assert!(artifact(message, false).is_none());
        assert!(artifact(r#"{"reason":"build-finished","success":true}"#, true).is_none());
    }
}
