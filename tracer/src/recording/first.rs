//! The first line: a header, or a whole `-o json` document.

use std::io::{self, BufRead, Read};

use serde::Deserialize;
use serde_json::Value;

use super::input::Input;
use super::read::ReadError;
use crate::trace::{Closing, Header, Merged, Node, Packet, Run, SCHEMA, Step, Tool};

/// Longest header line; a longer first line can only be a document.
const HEADER_LIMIT: usize = if cfg!(test) { 1 << 16 } else { 4 << 20 };
/// A document names its schema this early.
const NAMED_WITHIN: usize = 1 << 12;
/// Largest `-o json` document.
const DOCUMENT_LIMIT: u64 = 1 << 30;

/// What a file begins with.
pub(super) enum First {
    /// Steps follow.
    Header(Header),
    /// That is all of it.
    Document(Header, Vec<Step>, Box<Closing>),
}

/// A document, without the buffering that `flatten` brings.
#[derive(Deserialize)]
struct Document {
    schema: String,
    tool: Tool,
    request: Value,
    nodes: Vec<Node>,
    run: Option<Run>,
    merged: Option<Box<Merged>>,
    packets: Vec<Packet>,
    #[serde(default)]
    verdict: crate::trace::Verdict,
    #[serde(default)]
    findings: Vec<crate::trace::Finding>,
    #[serde(default)]
    losses: crate::trace::Losses,
    state: Option<Box<crate::state::State>>,
    probe: Option<Box<crate::trace::probe::Report>>,
    ended: Option<u64>,
    continues: Option<String>,
}

/// Reads the first line.
pub(super) fn first(input: &mut Input) -> Result<First, ReadError> {
    let mut line = Vec::new();
    let limit = HEADER_LIMIT as u64;
    match Read::take(&mut *input, limit).read_until(b'\n', &mut line) {
        Ok(0) => return Err(ReadError::Empty),
        Ok(_) => {}
        Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => {
            return Err(ReadError::Foreign("its first line is not whole".into()));
        }
        Err(e) => return Err(e.into()),
    }
    let whole = line.last() == Some(&b'\n') || line.len() < HEADER_LIMIT;
    if !whole && !names_schema(&line) {
        let why = "its first line is long and does not begin as a trace does".into();
        return Err(ReadError::Foreign(why));
    }
    let value = match serde_json::from_slice::<Value>(&line) {
        Ok(value) => value,
        // A document of many lines, or of one long one.
        Err(e) if e.is_eof() && line.trim_ascii_start().starts_with(b"{") => {
            return document(io::Cursor::new(line).chain(input.take(DOCUMENT_LIMIT)));
        }
        Err(_) => {
            let why = "its first line is no JSON object".into();
            return Err(ReadError::Foreign(why));
        }
    };
    check_schema(value.get("schema").and_then(Value::as_str))?;
    if value.get("packets").is_some() {
        return document(line.as_slice());
    }
    let header = serde_json::from_value(value).map_err(|e| damaged(&e))?;
    Ok(First::Header(header))
}

/// Whether it could be a trace, told by its first bytes.
fn names_schema(line: &[u8]) -> bool {
    let start = line.get(..NAMED_WITHIN).unwrap_or(line);
    let named = |what: &[u8]| start.windows(what.len()).any(|w| w == what);
    start.trim_ascii_start().starts_with(b"{") && named(b"\"schema\"") && named(b"tracer.trace/")
}

fn document(from: impl Read) -> Result<First, ReadError> {
    let from = io::BufReader::new(from);
    let document: Document = serde_json::from_reader(from).map_err(|e| match e.classify() {
        serde_json::error::Category::Eof => {
            ReadError::Foreign("it begins as a JSON document and ends in the middle of it".into())
        }
        serde_json::error::Category::Io => ReadError::Io(e.into()),
        _ => damaged(&e),
    })?;
    check_schema(Some(&document.schema))?;
    let header = Header {
        schema: document.schema.into(),
        tool: document.tool,
        request: document.request,
        nodes: document.nodes,
        run: document.run,
        merged: document.merged,
    };
    let closing = Closing {
        verdict: document.verdict,
        findings: document.findings,
        losses: document.losses,
        state: document.state,
        probe: document.probe,
        ended: document.ended,
        continues: document.continues,
    };
    Ok(First::Document(
        header,
        steps(document.packets),
        Box::new(closing),
    ))
}

/// A document's steps in order of time, with the ids that lines have.
fn steps(packets: Vec<Packet>) -> Vec<Step> {
    let of = |p: Packet| {
        let (packet, flow) = (Some(p.id), Some(p.flow));
        let with_ids = move |s| Step { packet, flow, ..s };
        p.steps.into_iter().map(with_ids)
    };
    let mut steps: Vec<Step> = packets.into_iter().flat_map(of).collect();
    steps.sort_by_key(|s| s.ts);
    steps
}

/// A minor version may add fields; a major one may mean something else.
fn check_schema(schema: Option<&str>) -> Result<(), ReadError> {
    let Some(schema) = schema else {
        let why = "its header names no schema".into();
        return Err(ReadError::Foreign(why));
    };
    let shown = || {
        schema
            .chars()
            .filter(|c| !c.is_control())
            .take(60)
            .collect()
    };
    let Some(version) = schema.strip_prefix("tracer.trace/") else {
        let shown: String = shown();
        return Err(ReadError::Foreign(format!("its schema is {shown:?}")));
    };
    if version.split('.').next() == SCHEMA.rsplit('/').next() {
        Ok(())
    } else {
        Err(ReadError::Schema(shown()))
    }
}

fn damaged(e: &serde_json::Error) -> ReadError {
    ReadError::Damaged {
        line: (e.line() as u64).max(1),
        why: e.to_string(),
    }
}
