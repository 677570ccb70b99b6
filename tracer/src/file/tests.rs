#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::{Draft, check};

/// A folder that goes away with the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("tracer-file-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    fn entries(&self) -> Vec<String> {
        let names = fs::read_dir(&self.0).unwrap();
        let mut names: Vec<_> = names
            .map(|e| e.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn write(path: &Path, text: &str) -> Draft {
    let mut draft = Draft::create(path).unwrap();
    draft.write_all(text.as_bytes()).unwrap();
    draft
}

#[test]
fn a_file_has_its_name_when_it_is_whole() {
    let folder = Folder::new("whole");
    let path = folder.0.join("out");
    fs::write(&path, "old").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    let mut draft = write(&path, "new");
    draft.flush().unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "old");
    draft.finish().unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "new");
    let mode = fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(
        (folder.entries(), mode & 0o777),
        (vec!["out".into()], 0o640)
    );
}

#[test]
fn dropped_unfinished_it_leaves_no_trace() {
    let folder = Folder::new("dropped");
    let path = folder.0.join("out");
    drop(write(&path, "half"));
    assert!(folder.entries().is_empty());
    fs::write(&path, "old").unwrap();
    drop(write(&path, "half"));
    check(&path).unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "old");
    assert_eq!(folder.entries(), ["out"]);
}

#[test]
fn what_cannot_be_written_is_refused_in_one_sentence() {
    let folder = Folder::new("refused");
    let lost = folder.0.join("lost");
    symlink(folder.0.join("nowhere"), &lost).unwrap();
    let cases = [
        (folder.0.clone(), "it is a folder"),
        (folder.0.join("new/"), "it is a folder"),
        (folder.0.join("no/such"), "its folder does not exist"),
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
    assert_eq!(folder.entries(), ["lost"]);
}

#[test]
fn a_link_stays_and_its_file_is_replaced() {
    let folder = Folder::new("link");
    let (file, link) = (folder.0.join("file"), folder.0.join("link"));
    fs::write(&file, "old").unwrap();
    symlink("file", &link).unwrap();
    write(&link, "new").finish().unwrap();
    assert!(link.is_symlink());
    assert_eq!(fs::read_to_string(&file).unwrap(), "new");
    assert_eq!(folder.entries(), ["file", "link"]);
}

#[test]
fn pipes_and_devices_are_written_directly() {
    let folder = Folder::new("pipe");
    let path = folder.0.join("pipe");
    let made = Command::new("mkfifo").arg(&path).status().unwrap();
    assert!(made.success());
    let reader = {
        let path = path.clone();
        std::thread::spawn(move || fs::read_to_string(path).unwrap())
    };
    let draft = write(&path, "text");
    assert_eq!(folder.entries(), ["pipe"]);
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
    let run = |signal: Option<i32>, name: &str| {
        let folder = Folder::new(name);
        let path = folder.0.join("out");
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
        assert_eq!(folder.entries().len(), 2);
        if let Some(signal) = signal {
            // SAFETY: a plain system call on a child of ours.
            unsafe { libc::kill(child.id().cast_signed(), signal) };
        }
        drop(child.stdin.take());
        lines.for_each(drop);
        let status = child.wait().unwrap();
        let text = fs::read_to_string(&path).unwrap();
        (status.signal(), text, folder.entries())
    };
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        let left = run(Some(signal), &format!("signal-{signal}"));
        assert_eq!(left, (Some(signal), "old".into(), vec!["out".into()]));
    }
    let left = run(None, "no-signal");
    assert_eq!(left, (None, "half".into(), vec!["out".into()]));
}
