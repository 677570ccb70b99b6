//! The binary and its files: merging, odd input, signals. Needs no privileges.
#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};
use tempfile::{TempDir, tempdir};

const TRACER: &str = env!("CARGO_BIN_EXE_tracer");

/// Writes a file into a folder.
fn write(folder: &TempDir, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
    let path = folder.path().join(name);
    fs::write(&path, bytes).unwrap();
    path
}

/// What is in a folder, in the order of the names.
fn names(folder: &TempDir) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<_> = entries
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

fn run(args: &[&Path]) -> Output {
    Command::new(TRACER)
        .args(args)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

/// Lines of a recording of the laboratory.
fn lines(case: &str) -> Vec<Value> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/recordings");
    let file = fs::File::open(folder.join(format!("{case}.jsonl.zst"))).unwrap();
    let text = zstd::decode_all(file).unwrap();
    let lines = text.split(|b| *b == b'\n').filter(|l| !l.is_empty());
    lines.map(|l| serde_json::from_slice(l).unwrap()).collect()
}

/// One node's recording, its clock off by so many nanoseconds.
fn of_node(case: &str, node: &str, off: u64) -> String {
    let mut text = String::new();
    for mut line in lines(case) {
        if line.get("schema").is_some() {
            line["nodes"]
                .as_array_mut()
                .unwrap()
                .retain(|n| n["name"] == node);
            line["run"] = json!({"boot": node, "began": 1});
        } else if line.get("verdict").is_some() {
            line = json!({"verdict": {"code": "", "summary": ""}, "findings": [], "losses": line["losses"]});
        } else if line["node"] == node {
            line["ts"] = json!(line["ts"].as_u64().unwrap() + off);
        } else {
            continue;
        }
        text.push_str(&line.to_string());
        text.push('\n');
    }
    text
}

#[test]
fn two_recordings_become_one() {
    let folder = tempdir().unwrap();
    let a = write(&folder, "a.jsonl", of_node("c20", "worker", 0));
    let b = write(
        &folder,
        "b.jsonl",
        of_node("c20", "worker2", 60_000_000_000),
    );
    let out = folder.path().join("out.jsonl.zst");
    let merged = run(&["merge".as_ref(), &a, &b, "-w".as_ref(), &out]);
    let said = String::from_utf8(merged.stdout).unwrap();
    assert!(
        said.contains("worker2 was 60.0000") && said.contains("ahead of worker"),
        "{said}"
    );
    assert!(said.contains("give or take"), "{said}");
    assert_eq!(merged.status.code(), Some(0), "{said}");
    assert_eq!(names(&folder), ["a.jsonl", "b.jsonl", "out.jsonl.zst"]);
    let shown = run(&["show".as_ref(), &out, "-o".as_ref(), "json".as_ref()]);
    let trace: Value = serde_json::from_slice(&shown.stdout).unwrap();
    assert_eq!(trace["verdict"]["code"], "delivered");
    let packets: std::collections::BTreeSet<u64> = lines("c20")
        .iter()
        .filter_map(|l| l["packet"].as_u64())
        .collect();
    assert_eq!(trace["packets"].as_array().unwrap().len(), packets.len());
    assert_eq!(trace["merged"]["sources"][1]["files"], json!(["b.jsonl"]));
    // The same to standard output.
    let direct = run(&["merge".as_ref(), &a, &b, "-o".as_ref(), "json".as_ref()]);
    let direct: Value = serde_json::from_slice(&direct.stdout).unwrap();
    assert_eq!(direct["packets"], trace["packets"]);
}

#[test]
fn odd_input_is_refused_in_one_sentence() {
    let folder = tempdir().unwrap();
    let good = write(&folder, "good.jsonl", of_node("c20", "worker", 0));
    let header = lines("c20")[0].to_string();
    let bomb = {
        let mut text = header.clone();
        text.push('\n');
        text.push_str(&format!("{}\n", " ".repeat(1 << 20)).repeat(100));
        zstd::encode_all(text.as_bytes(), 1).unwrap()
    };
    let cases = [
        (write(&folder, "empty", ""), "the file is empty"),
        (write(&folder, "elf", b"\x7fELF\0\0\0"), "not a recording"),
        (write(&folder, "cut.zst", &bomb[..2]), "not a recording"),
        (write(&folder, "bomb.zst", &bomb), "times its size"),
        (
            write(&folder, "deep", "[".repeat(1 << 20)),
            "not a recording",
        ),
        (
            write(&folder, "later", "{\"schema\":\"tracer.trace/2\"}\n"),
            "use a newer tracer",
        ),
        (folder.path().to_owned(), "it is a folder"),
        (folder.path().join("missing"), "No such file"),
    ];
    for (path, why) in &cases {
        for command in ["show", "diagnose", "merge"] {
            let all: [&Path; 3] = [command.as_ref(), path, &good];
            let files = if command == "merge" { 2 } else { 1 };
            let result = run(&all[..=files]);
            let said = String::from_utf8(result.stderr).unwrap();
            assert_eq!(
                result.status.code(),
                Some(1),
                "{command} {}: {said}",
                path.display()
            );
            assert!(
                said.contains(why) && said.trim_end().lines().count() == 1,
                "{said}"
            );
            assert!(result.stdout.is_empty());
        }
    }
    let result = run(&["merge".as_ref(), &good, "-w".as_ref(), folder.path()]);
    let said = String::from_utf8(result.stderr).unwrap();
    assert_eq!(
        (result.status.code(), said.lines().count()),
        (Some(1), 1),
        "{said}"
    );
    assert!(
        said.contains("it is a folder; give the name of a file"),
        "{said}"
    );
}

#[test]
fn names_from_files_cannot_move_the_cursor() {
    let folder = tempdir().unwrap();
    let text = of_node("c20", "worker", 0).replace("\"worker\"", "\"wor\\u001b[2Jker\"");
    let path = write(&folder, "evil\u{1b}[2J.jsonl", text);
    for command in ["show", "merge", "diagnose"] {
        let result = run(&[command.as_ref(), &path]);
        let all = [result.stdout, result.stderr].concat();
        assert!(!all.is_empty() && !all.contains(&0x1b), "{command}");
    }
}

#[test]
fn a_signal_ends_the_work_and_leaves_nothing() {
    let folder = tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    assert!(
        Command::new("mkfifo")
            .arg(&pipe)
            .status()
            .unwrap()
            .success()
    );
    let out = write(&folder, "out.jsonl", "old");
    let mut child = Command::new(TRACER)
        .args(["merge".as_ref(), pipe.as_path(), "-w".as_ref(), &out])
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    // Opening waits for the reader, which reads for ever.
    let writer = fs::OpenOptions::new().write(true).open(&pipe).unwrap();
    // SAFETY: a plain system call on a child of ours.
    unsafe { libc::kill(child.id().cast_signed(), libc::SIGTERM) };
    assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGTERM));
    drop(writer);
    assert_eq!(names(&folder), ["out.jsonl", "pipe"]);
    assert_eq!(fs::read_to_string(&out).unwrap(), "old");
}
