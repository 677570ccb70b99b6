//! Traces to export, and the export itself.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use tracer::output::format;
use tracer::recording;
use tracer::trace::Trace;

/// Text of an enemy: escapes, markup, Mermaid's directives, direction marks.
pub(crate) const EVIL: &str = "\x1b]0;x\x07\x1b[31m</script><script>window.top.pwned=1</script><img src=x \
onerror=window.top.pwned=2>\"'`&#60;%%{init: {'theme':'dark'}}%%\nend\nclick p0 href \"javascript:1\"\u{202e};#quot;--x\u{2028}";

/// Members whose texts an enemy may choose.
const CHOSEN: [&str; 16] = [
    "name", "node", "iface", "summary", "code", "reason", "function", "text", "comment", "version",
    "kernel", "state", "from", "policy", "chain", "ipsets",
];

/// A file beside the other results of these tests.
pub(crate) fn scratch(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("exports");
    fs::create_dir_all(&folder).unwrap();
    folder.join(name)
}

/// Where a kept recording is.
pub(crate) fn path(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/recordings");
    folder.join(format!("{name}.jsonl.zst"))
}

/// The kept recordings by name; those of other kernels are in folders of theirs.
pub(crate) fn recordings() -> Vec<(String, Trace)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/recordings");
    let mut files = Vec::new();
    let mut folders = vec![folder.clone()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.to_string_lossy().ends_with(".jsonl.zst") {
                files.push(path);
            }
        }
    }
    files.sort();
    assert!(files.len() >= 41, "the recordings are gone");
    let name = |path: &Path| {
        let name = path.strip_prefix(&folder).unwrap().to_string_lossy();
        name.trim_end_matches(".jsonl.zst").replace('/', "-")
    };
    let read = |path: &Path| recording::read(path).unwrap().0;
    files.iter().map(|f| (name(f), read(f))).collect()
}

/// A recording with an enemy's texts.
pub(crate) fn hostile() -> Trace {
    let (trace, _) = recording::read(&path("c11")).unwrap();
    let mut value = serde_json::to_value(trace).unwrap();
    poison(&mut value);
    serde_json::from_value(value).unwrap()
}

/// A trace in which nothing was seen.
pub(crate) fn empty() -> Trace {
    let (mut trace, _) = recording::read(&path("c11")).unwrap();
    trace.packets.clear();
    trace.flows.clear();
    trace.closing.verdict.packet = None;
    trace.closing.state = None;
    trace
}

fn poison(value: &mut Value) {
    match value {
        Value::Array(all) => all.iter_mut().for_each(poison),
        Value::Object(all) => {
            for (key, value) in all {
                let lists = ["evidence", "next", "degraded", "hooks"];
                match value {
                    Value::String(text) if CHOSEN.contains(&&**key) => EVIL.clone_into(text),
                    Value::Array(texts) if lists.contains(&&**key) => {
                        for text in texts {
                            *text = EVIL.into();
                        }
                    }
                    other => poison(other),
                }
            }
        }
        _ => {}
    }
}

/// The trace in a form.
pub(crate) fn export(trace: &Trace, form: &str) -> Vec<u8> {
    let mut out = Vec::new();
    (format::find(form).unwrap().write)(&mut out, trace).unwrap();
    out
}

/// The tool.
pub(crate) fn tracer() -> Command {
    let mut tracer = Command::new(env!("CARGO_BIN_EXE_tracer"));
    tracer.env_remove("OTEL_EXPORTER_OTLP_TIMEOUT");
    tracer
}
