#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::io::Cursor;
use std::sync::Arc;

use tempfile::tempdir;

use super::{Notice, ReadError, Reader, Rotation, Writer, read};
use crate::assemble::tests::{Names, nodes};
use crate::assemble::{Assembler, Limits, synthetic};
use crate::output::{json, jsonl};
use crate::trace::{Closing, Fold, Header, Losses, SCHEMA, Step, Tool, Verdict};

fn header() -> Header {
    let request = serde_json::json!({"dst": "svc/default/remote:80"});
    Header {
        schema: SCHEMA.into(),
        tool: Tool::default(),
        request,
        nodes: nodes(),
        ..Header::default()
    }
}

fn closing() -> Closing {
    let verdict = Verdict {
        code: "delivered".into(),
        ..Verdict::default()
    };
    Closing {
        verdict,
        findings: Vec::new(),
        losses: Losses {
            other: 2,
            ..Losses::default()
        },
        ..Closing::default()
    }
}

fn steps() -> Vec<Step> {
    let mut out = Vec::new();
    let mut asm = Assembler::new(Limits::default(), Arc::new(Names));
    synthetic::events(5).for_each(|e| asm.push(e, &mut out));
    out
}

fn lines() -> Vec<u8> {
    let mut lines = jsonl::Lines::start(Vec::new(), &header()).unwrap();
    lines.steps(&steps()).unwrap();
    lines.finish(&closing()).unwrap()
}

fn open(bytes: impl Into<Vec<u8>>) -> Result<Reader, ReadError> {
    Reader::new(Cursor::new(bytes.into()))
}

#[test]
fn what_is_written_is_read() {
    for name in ["a.jsonl", "a.jsonl.zst"] {
        let folder = tempdir().unwrap();
        let path = folder.path().join(name);
        let mut writer = Writer::create(&path, &header()).unwrap();
        writer.steps(&steps()).unwrap();
        writer.finish(&closing()).unwrap();
        let (trace, notices) = read(&path).unwrap();
        let mut fold = Fold::new(&nodes());
        for step in steps() {
            fold.push(step);
        }
        fold.finish(None);
        let mut live = fold.trace(header(), Losses::default());
        live.closing = closing();
        live.closing.ended = steps().iter().map(|s| s.ts).max();
        assert_eq!((trace, notices), (live, vec![]));
    }
}

#[test]
fn crash_leaves_what_was_flushed() {
    for name in ["b.jsonl", "b.jsonl.zst"] {
        let folder = tempdir().unwrap();
        let path = folder.path().join(name);
        let mut writer = Writer::create(&path, &header()).unwrap();
        writer.steps(&steps()).unwrap();
        writer.tick(2_000_000_000).unwrap();
        std::mem::forget(writer);
        let mut reader = Reader::open(&path).unwrap();
        let n = reader.by_ref().map_while(Result::ok).count();
        assert_eq!(n, steps().len());
        assert_eq!(reader.notices(), [Notice::NoClosing]);
    }
}

#[test]
fn bad_path_fails_at_once() {
    assert!(Writer::create(std::path::Path::new("/nowhere/at/all.jsonl"), &header()).is_err());
}

#[test]
fn cut_short_is_read_up_to_the_last_whole_line() {
    let whole = lines();
    let mut reader = open(&whole[..whole.len() * 2 / 3]).unwrap();
    let read: Result<Vec<Step>, _> = reader.by_ref().collect();
    let n = read.unwrap().len();
    assert!(n > 10 && n < steps().len());
    assert_eq!(reader.notices(), [Notice::CutShort { line: n as u64 + 2 }]);
}

#[test]
fn damaged_line_in_the_middle_is_left_out_and_told() {
    let text = String::from_utf8(lines()).unwrap();
    for (bad, why) in [
        ("{\"ts\": 1, \"ki", "EOF while parsing"),
        ("[]", "not a JSON object"),
        ("{\"kind\":\"dance\"}", "unknown variant"),
        ("\0\0\0", "expected value"),
    ] {
        let mut all: Vec<&str> = text.lines().collect();
        all[3] = bad;
        all[7] = bad;
        let folder = tempdir().unwrap();
        let path = folder.path().join(format!("damaged-{}", bad.len()));
        std::fs::write(&path, all.join("\n")).unwrap();
        let (trace, notices) = read(&path).unwrap();
        let kept: usize = trace.packets.iter().map(|p| p.steps.len()).sum();
        assert_eq!(kept, steps().len() - 2);
        let [
            Notice::Skipped {
                lines: 2,
                first: 4,
                why: said,
            },
        ] = &notices[..]
        else {
            panic!("{notices:?}");
        };
        assert!(said.contains(why), "{said}");
        // What was not read may matter: it is judged anew, and uncertain.
        assert_eq!(
            (trace.closing.losses.other, &*trace.closing.verdict.code),
            (4, "")
        );
        let (verdict, _) = crate::diagnose::diagnose(&trace);
        assert!(verdict.summary.contains("uncertain"), "{}", verdict.summary);
    }
}

#[test]
fn empty_lines_and_files_put_together_are_read() {
    let text = String::from_utf8(lines()).unwrap();
    let twice = format!("{text}\n\n{text}");
    let mut reader = open(twice).unwrap();
    assert_eq!(
        reader.by_ref().map_while(Result::ok).count(),
        2 * steps().len()
    );
    assert_eq!(reader.notices(), []);
}

#[test]
fn what_is_no_recording_is_refused() {
    let said = |bytes: &[u8]| open(bytes).err().unwrap().to_string();
    assert!(said(b"").contains("empty"));
    assert!(said(b"\x7fELF\x00\n").contains("not a recording"));
    assert!(said(b"{\"a\":1}\n").contains("names no schema"));
    assert!(said(b"{\"schema\":\"other/1\"}\n").contains("not a recording"));
    assert!(said(b"{\"schema\":\"tracer.trace/2\"}\n").contains("newer tracer"));
    assert!(said(b"\x28\xb5\x2f\xfd garbage").len() > 5);
}

#[test]
fn document_is_accepted() {
    let mut fold = Fold::new(&nodes());
    for step in steps() {
        fold.push(step);
    }
    fold.finish(None);
    let mut trace = fold.trace(header(), Losses::default());
    trace.closing = closing();
    let mut bytes = Vec::new();
    json::write(&mut bytes, &trace).unwrap();
    for bytes in [bytes, serde_json::to_vec_pretty(&trace).unwrap()] {
        let mut reader = open(bytes).unwrap();
        assert_eq!(reader.by_ref().count(), steps().len());
        assert_eq!(reader.closing(), Some(&closing()));
    }
}

#[test]
fn bomb_is_refused() {
    let mut encoder = zstd::Encoder::new(Vec::new(), 3).unwrap();
    jsonl::line(&mut encoder, &header()).unwrap();
    for _ in 0..20_000 {
        jsonl::line(&mut encoder, &closing()).unwrap();
    }
    let error = open(encoder.finish().unwrap())
        .unwrap()
        .find_map(Result::err)
        .unwrap();
    assert!(error.to_string().contains("times its size"), "{error}");
}

#[test]
fn endless_line_is_refused() {
    let mut bytes = serde_json::to_vec(&header()).unwrap();
    bytes.push(b'\n');
    bytes.resize(bytes.len() + super::LINE_LIMIT + 10, b'x');
    let error = open(bytes).unwrap().find_map(Result::err).unwrap();
    assert!(
        error.to_string().contains("line 2 is damaged: longer"),
        "{error}"
    );
}

/// What could take much memory is refused by its first bytes, or left out.
#[test]
fn garbage_is_refused_before_it_is_read() {
    /// Zeros without end, that notice how much of them is taken.
    struct Endless(
        &'static [u8],
        std::sync::Arc<std::sync::atomic::AtomicUsize>,
    );
    impl std::io::Read for Endless {
        fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
            let n = self.0.len().min(buf.len());
            buf[..n].copy_from_slice(&self.0[..n]);
            self.0 = &self.0[n..];
            buf[n..].fill(b'x');
            self.1
                .fetch_add(buf.len(), std::sync::atomic::Ordering::Relaxed);
            Ok(buf.len())
        }
    }
    for start in [
        &b"x"[..],
        b"{",
        b"{\"a\":\"tracer.trace/1",
        b"{\"schema\":\"other/1\",\"",
    ] {
        let taken = std::sync::Arc::default();
        let error = Reader::new(Endless(start, std::sync::Arc::clone(&taken)))
            .err()
            .unwrap();
        assert!(error.to_string().contains("not a recording"), "{error}");
        let taken = taken.load(std::sync::atomic::Ordering::Relaxed);
        assert!(taken < 1 << 20, "{taken}");
    }
}

#[test]
fn too_many_values_are_refused() {
    let mut bytes = serde_json::to_vec(&header()).unwrap();
    bytes.extend_from_slice(b"\n{\"verdict\":[");
    bytes.extend_from_slice("0,".repeat(1 << 19).as_bytes());
    let error = open(bytes).unwrap().find_map(Result::err).unwrap();
    assert!(error.to_string().contains("more values"), "{error}");
}

#[test]
fn deep_nesting_and_huge_strings_are_left_out() {
    let first = serde_json::to_string(&header()).unwrap();
    let deep = format!("{{\"ts\":{}", "[".repeat(100_000));
    let step = serde_json::to_string(&steps()[0]).unwrap();
    let huge = step.replacen(
        "\"node\":\"",
        &format!("\"node\":\"{}", "x".repeat(1 << 18)),
        1,
    );
    assert!(huge.len() > 1 << 18);
    let text = format!("{first}\n{deep}\n{huge}\n{step}\n");
    let mut reader = open(text).unwrap();
    assert_eq!(reader.by_ref().map_while(Result::ok).count(), 1);
    assert_eq!(reader.skipped(), 2);
}

#[test]
fn later_minor_versions_and_unknown_members_are_read() {
    let text = String::from_utf8(lines()).unwrap();
    let later = text
        .replace(
            "tracer.trace/1\"",
            "tracer.trace/1.7\",\"colour\":{\"a\":[1]}",
        )
        .replace("\"ts\":", "\"mood\":\"good\",\"ts\":")
        .replace("\"losses\":", "\"weather\":[],\"losses\":");
    let mut reader = open(later).unwrap();
    assert_eq!(reader.by_ref().map_while(Result::ok).count(), steps().len());
    assert_eq!((reader.closing(), reader.skipped()), (Some(&closing()), 0));
}

/// The first form ever released, as it was written then.
#[test]
fn the_first_version_is_read() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/version-1.jsonl");
    let (trace, notices) = read(&path).unwrap();
    assert_eq!(notices, []);
    assert_eq!((trace.packets.len(), trace.flows.len()), (3, 1));
    assert_eq!(trace.header.run, None);
    assert_eq!(trace.packets[0].steps.len(), 6);
    assert_eq!(trace.closing.verdict.code, "underlay-loss");
    assert!(trace.closing.state.is_some());
}

#[test]
fn a_growing_file_gives_what_is_whole_so_far() {
    for name in ["growing.jsonl", "growing.jsonl.zst"] {
        let folder = tempdir().unwrap();
        let path = folder.path().join(name);
        let mut writer = Writer::create(&path, &header()).unwrap();
        let all = steps();
        let mut now = 0;
        for (i, chunk) in all.chunks(40).enumerate() {
            writer.steps(chunk).unwrap();
            now += 2_000_000_000;
            writer.tick(now).unwrap();
            let (trace, notices) = read(&path).unwrap();
            let read: usize = trace.packets.iter().map(|p| p.steps.len()).sum();
            assert_eq!(read, all.len().min(40 * (i + 1)));
            assert_eq!(notices, [Notice::NoClosing]);
        }
        writer.finish(&closing()).unwrap();
        assert_eq!(read(&path).unwrap().1, []);
    }
}

/// Not a test by itself: a writer that is killed by the next one.
#[test]
fn child_that_records() {
    let Some(path) = std::env::var_os("TRACER_TEST_RECORD") else {
        return;
    };
    let mut writer = Writer::create(std::path::Path::new(&path), &header()).unwrap();
    for now in 1.. {
        writer.steps(&steps()).unwrap();
        writer.tick(now * 1_000_000_000).unwrap();
        if now == 3 {
            println!("\nrecording");
        }
    }
}

#[test]
fn a_killed_writer_leaves_a_readable_file() {
    use std::io::BufRead;
    for name in ["killed.jsonl", "killed.jsonl.zst"] {
        let folder = tempdir().unwrap();
        let path = folder.path().join(name);
        let mut child = std::process::Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "recording::tests::child_that_records",
                "--nocapture",
            ])
            .env("TRACER_TEST_RECORD", &path)
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let out = std::io::BufReader::new(child.stdout.take().unwrap());
        out.lines()
            .find(|l| l.as_ref().unwrap() == "recording")
            .unwrap()
            .unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        let mut reader = Reader::open(&path).unwrap();
        let read: Result<Vec<Step>, _> = reader.by_ref().collect();
        assert!(read.unwrap().len() >= 3 * steps().len());
        assert_eq!((reader.skipped(), reader.notices().len()), (0, 1));
    }
}

#[test]
fn rotated_files_are_recordings_and_the_oldest_go() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("trace.jsonl");
    let rotation = Rotation {
        size: 16 << 10,
        count: Some(3),
    };
    let mut writer = Writer::rotating(&path, &header(), rotation).unwrap();
    let all = steps();
    for (i, step) in all.iter().enumerate() {
        writer.lost(Losses {
            ring_buffer: i as u64,
            ..Losses::default()
        });
        writer.steps(std::slice::from_ref(step)).unwrap();
    }
    let mut last = closing();
    last.losses = Losses {
        ring_buffer: all.len() as u64,
        ..Losses::default()
    };
    writer.finish(&last).unwrap();
    let mut files: Vec<_> = std::fs::read_dir(folder.path())
        .unwrap()
        .map(|e| e.unwrap().path())
        .collect();
    files.sort();
    assert_eq!(files.len(), 3);
    let mut inputs = Vec::new();
    let mut lost = 0;
    for (i, file) in files.iter().enumerate() {
        assert!(std::fs::metadata(file).unwrap().len() < 20 << 10);
        let mut reader = Reader::open(file).unwrap();
        let part: Vec<Step> = reader.by_ref().map(Result::unwrap).collect();
        let name = file.file_name().unwrap().to_str().unwrap().to_owned();
        let number = reader.header().run.as_ref().unwrap().part.unwrap();
        assert_eq!(name, format!("trace.{number:04}.jsonl"));
        let next = format!("trace.{:04}.jsonl", number + 1);
        let goes_on = if i < 2 {
            vec![Notice::GoesOn { file: next }]
        } else {
            vec![]
        };
        assert_eq!(reader.notices(), goes_on);
        lost += reader.closing().unwrap().losses.ring_buffer;
        inputs.extend(part);
    }
    // The newest steps, with the numbers that they have in the run.
    assert_eq!(inputs, all[all.len() - inputs.len()..]);
    assert!(
        inputs.len() < all.len() && lost < all.len() as u64,
        "some were deleted"
    );
}
