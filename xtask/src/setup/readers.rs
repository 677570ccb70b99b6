//! Other people's readers of what tracer exports: Wireshark's, a browser, Mermaid.

use std::{fs, path::PathBuf};

use anyhow::{Context, Result, bail};

use crate::{
    paths,
    process::{command, output, run as run_command},
};

/// The version of Mermaid that the tests have passed with, and the SHA-512 of its package.
const MERMAID: &str = "12.3.0";
const MERMAID_SHA512: &str = "e35d774dd5de2c0b0caee27bf4ea452f93bcf8b4c55e142a676eb4ac5ded8149\
                              a2340b519b852e99ed3823eeb93d137ac99ebd2787fcad56165bccd193ae5463";
/// Names that Chromium has in distributions.
const CHROMIUM: &[&str] = &[
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
];

/// Debian's packages that are needed; `npm` only where there is none of another origin.
pub(super) fn packages() -> Result<Vec<&'static str>> {
    let mut packages = vec!["tshark", "fonts-dejavu-core"];
    if paths::find_program("npm").is_none() {
        packages.push("npm");
    }
    let has_chromium = CHROMIUM
        .iter()
        .any(|name| paths::find_program(name).is_some());
    if !has_chromium {
        let system = fs::read_to_string("/etc/os-release").unwrap_or_default();
        if system.lines().any(|line| line == "ID=ubuntu") {
            bail!(
                "Ubuntu has Chromium as a snap only, which its packages cannot install everywhere and which sees no files \
                 outside the home folder; install Google Chrome's own package (google-chrome-stable), then run this again"
            );
        }
        packages.push("chromium");
    }
    Ok(packages)
}

/// Where Mermaid is kept.
fn folder() -> PathBuf {
    paths::cache().join("mermaid")
}

/// What is to be done for Mermaid, if anything.
pub(super) fn missing() -> Option<String> {
    let file = folder().join("package/package.json");
    let version = fs::read_to_string(file)
        .ok()
        .and_then(|text| serde_json::from_str::<serde_json::Value>(&text).ok())
        .and_then(|package| package["version"].as_str().map(str::to_owned));
    let there = version.as_deref() == Some(MERMAID)
        && folder().join("package/dist/mermaid.min.js").is_file();
    (!there).then(|| format!("npm pack mermaid@{MERMAID} into {}", folder().display()))
}

/// Fetches Mermaid, checks that it is the one that was tested, and unpacks what the tests load.
pub(super) fn fetch() -> Result<()> {
    // Beside the final place, so that a cut-off fetch leaves nothing that looks whole.
    let work = paths::cache().join(format!("mermaid-{}.new", std::process::id()));
    fs::create_dir_all(&work).with_context(|| format!("cannot make {}", work.display()))?;
    let fetched = fetch_into(&work);
    let done = fetched.and_then(|()| {
        let _ = fs::remove_dir_all(folder());
        fs::rename(&work, folder()).context("cannot move Mermaid to its place")
    });
    let _ = fs::remove_dir_all(&work);
    done
}

fn fetch_into(work: &PathBuf) -> Result<()> {
    let archive = format!("mermaid-{MERMAID}.tgz");
    let package = format!("mermaid@{MERMAID}");
    run_command(
        command(
            "npm",
            ["pack", "--silent", &package, "--pack-destination", "."],
        )
        .current_dir(work),
    )?;
    let sum = output(command("sha512sum", [&archive]).current_dir(work))?;
    if sum.split_whitespace().next() != Some(MERMAID_SHA512) {
        bail!("{archive} is not the one that was tested: its SHA-512 is another");
    }
    run_command(
        command(
            "tar",
            [
                "xzf",
                &archive,
                "package/package.json",
                "package/dist/mermaid.min.js",
            ],
        )
        .current_dir(work),
    )?;
    fs::remove_file(work.join(&archive))?;
    Ok(())
}
