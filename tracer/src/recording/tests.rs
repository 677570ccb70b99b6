#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::io::Cursor;
use std::path::PathBuf;
use std::sync::Arc;

use super::{Notice, ReadError, Reader, Writer, read};
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
        state: None,
        probe: None,
    }
}

fn steps() -> Vec<Step> {
    let mut out = Vec::new();
    let mut asm = Assembler::new(Limits::default(), Arc::new(Names));
    synthetic::events(5).for_each(|e| asm.push(e, &mut out));
    out
}

fn temporary(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("tracer-{}-{name}", std::process::id()))
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
        let path = temporary(name);
        let mut writer = Writer::create(&path, &header()).unwrap();
        writer.steps(&steps()).unwrap();
        writer.finish(&closing()).unwrap();
        let (trace, notices) = read(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let mut fold = Fold::new(&nodes());
        for step in steps() {
            fold.push(step);
        }
        fold.finish();
        let mut live = fold.trace(header(), Losses::default());
        live.closing = closing();
        assert_eq!((trace, notices), (live, vec![]));
    }
}

#[test]
fn crash_leaves_what_was_flushed() {
    for name in ["b.jsonl", "b.jsonl.zst"] {
        let path = temporary(name);
        let mut writer = Writer::create(&path, &header()).unwrap();
        writer.steps(&steps()).unwrap();
        writer.tick(2_000_000_000).unwrap();
        std::mem::forget(writer);
        let mut reader = Reader::open(&path).unwrap();
        let n = reader.by_ref().map_while(Result::ok).count();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(n, steps().len());
        assert_eq!(reader.notices(), [Notice::NoClosing]);
    }
}

#[test]
fn bad_path_fails_at_once() {
    assert!(Writer::create(&PathBuf::from("/nowhere/at/all.jsonl"), &header()).is_err());
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
fn damaged_line_in_the_middle_is_named() {
    let text = String::from_utf8(lines()).unwrap();
    for bad in ["", "{\"ts\": 1, \"ki", "[]", "{\"kind\":\"dance\"}"] {
        let mut all: Vec<&str> = text.lines().collect();
        all[3] = bad;
        let result: Result<Vec<Step>, _> = open(all.join("\n")).unwrap().collect();
        let error = result.unwrap_err().to_string();
        assert!(error.starts_with("line 4 is damaged: "), "{error}");
        assert!(error.len() > 22, "{error}");
    }
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
    fold.finish();
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
