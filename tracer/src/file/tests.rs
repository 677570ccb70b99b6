#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::tempdir;

use super::{Draft, check};

/// What is in a folder, in the order of the names.
fn entries(folder: &Path) -> Vec<String> {
    let names = fs::read_dir(folder).unwrap();
    let mut names: Vec<_> = names
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

fn write(path: &Path, text: &str) -> Draft {
    let mut draft = Draft::create(path).unwrap();
    draft.write_all(text.as_bytes()).unwrap();
    draft
}

#[test]
fn a_file_has_its_name_when_it_is_whole() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("out");
    fs::write(&path, "old").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    let mut draft = write(&path, "new");
    draft.flush().unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "old");
    draft.finish().unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "new");
    let mode = fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(
        (entries(folder.path()), mode & 0o777),
        (vec!["out".into()], 0o640)
    );
}

#[test]
fn dropped_unfinished_it_leaves_no_trace() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("out");
    drop(write(&path, "half"));
    assert!(entries(folder.path()).is_empty());
    fs::write(&path, "old").unwrap();
    drop(write(&path, "half"));
    check(&path).unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "old");
    assert_eq!(entries(folder.path()), ["out"]);
}

#[test]
fn what_cannot_be_written_is_refused_in_one_sentence() {
    let folder = tempdir().unwrap();
    let lost = folder.path().join("lost");
    symlink(folder.path().join("nowhere"), &lost).unwrap();
    let cases = [
        (folder.path().to_owned(), "it is a folder"),
        (folder.path().join("new/"), "it is a folder"),
        (folder.path().join("no/such"), "its folder does not exist"),
        (lost, "a link that leads nowhere"),
        (PathBuf::from(".."), "it is a folder"),
        (PathBuf::from("/dev/fd/999"), "folder does not exist"),
    ];
    for (path, why) in cases {
        let error = Draft::create(&path).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
        assert!(!error.contains('\n'), "{error}");
        assert!(check(&path).is_err() || path.starts_with("/dev"), "{error}");
    }
    assert_eq!(entries(folder.path()), ["lost"]);
}

#[test]
fn a_link_stays_and_its_file_is_replaced() {
    let folder = tempdir().unwrap();
    let (file, link) = (folder.path().join("file"), folder.path().join("link"));
    fs::write(&file, "old").unwrap();
    symlink("file", &link).unwrap();
    write(&link, "new").finish().unwrap();
    assert!(link.is_symlink());
    assert_eq!(fs::read_to_string(&file).unwrap(), "new");
    assert_eq!(entries(folder.path()), ["file", "link"]);
}

#[test]
fn pipes_and_devices_are_written_directly() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("pipe");
    let made = Command::new("mkfifo").arg(&path).status().unwrap();
    assert!(made.success());
    let reader = {
        let path = path.clone();
        std::thread::spawn(move || fs::read_to_string(path).unwrap())
    };
    let draft = write(&path, "text");
    assert_eq!(entries(folder.path()), ["pipe"]);
    draft.finish().unwrap();
    assert_eq!(reader.join().unwrap(), "text");
    write(Path::new("/dev/null"), "text").finish().unwrap();
    let full = write(Path::new("/dev/full"), "text").finish().unwrap_err();
    assert!(full.to_string().contains("No space left"), "{full}");
}

/// Not a test by itself: what the next one runs in a process of its own.
#[test]
fn child_that_waits() {
    let Some(path) = std::env::var_os("TRACER_TEST_DRAFT") else {
        return;
    };
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: plain integers. Ignored signals, as in the background of a
        // script, would be inherited.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
    let mut draft = write(Path::new(&path), "half");
    draft.flush().unwrap();
    println!("\nwriting");
    let _ = std::io::stdin().read(&mut [0]);
    draft.finish().unwrap();
}

#[test]
fn a_signal_removes_what_is_not_whole() {
    let run = |signal: Option<i32>| {
        let folder = tempdir().unwrap();
        let path = folder.path().join("out");
        fs::write(&path, "old").unwrap();
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "file::tests::child_that_waits", "--nocapture"])
            .env("TRACER_TEST_DRAFT", &path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        lines
            .find(|l| l.as_ref().unwrap() == "writing")
            .unwrap()
            .unwrap();
        assert_eq!(entries(folder.path()).len(), 2);
        if let Some(signal) = signal {
            // SAFETY: a plain system call on a child of ours.
            unsafe { libc::kill(child.id().cast_signed(), signal) };
        }
        drop(child.stdin.take());
        lines.for_each(drop);
        let status = child.wait().unwrap();
        let text = fs::read_to_string(&path).unwrap();
        (status.signal(), text, entries(folder.path()))
    };
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        let left = run(Some(signal));
        assert_eq!(left, (Some(signal), "old".into(), vec!["out".into()]));
    }
    let left = run(None);
    assert_eq!(left, (None, "half".into(), vec!["out".into()]));
}
