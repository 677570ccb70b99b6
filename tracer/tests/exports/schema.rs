//! JSON against its schema, by the crate `jsonschema`.

use std::fs;
use std::path::Path;

use jsonschema::Validator;
use serde_json::{Value, json};
use tracer::output::{jsonl, schema};

use crate::samples::{self, empty, export, hostile, recordings};

/// Set it to write the file anew.
const UPDATE: &str = "UPDATE_SCHEMA";

#[test]
fn the_schema_in_the_documents_is_that_of_the_types() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/trace.schema.json");
    let now = format!("{:#}\n", schema::schema());
    if std::env::var_os(UPDATE).is_some() {
        fs::write(&file, &now).unwrap();
    }
    let kept = fs::read_to_string(&file).unwrap_or_default();
    assert!(
        kept == now,
        "docs/trace.schema.json is not up to date; run `{UPDATE}=1 cargo test -p tracer --test exports schema`"
    );
}

/// Forbids members that the schema does not name, which readers have to allow.
fn close(schema: &mut Value) {
    match schema {
        Value::Array(all) => all.iter_mut().for_each(close),
        Value::Object(all) => {
            if all.get("properties").is_some_and(Value::is_object) {
                all.entry("additionalProperties").or_insert(json!(false));
            }
            all.values_mut().for_each(close);
        }
        _ => {}
    }
}

/// The kept schema, and the one for the lines of a recording.
fn validators() -> (Validator, Validator) {
    let mut whole = schema::schema();
    close(&mut whole);
    let mut line = whole.clone();
    let members = line.as_object_mut().unwrap();
    members.retain(|name, _| name.starts_with('$'));
    members.insert("$ref".into(), json!("#/$defs/Line"));
    (
        jsonschema::validator_for(&whole).unwrap(),
        jsonschema::validator_for(&line).unwrap(),
    )
}

fn check(validator: &Validator, value: &Value, what: &str) {
    let errors: Vec<String> = validator
        .iter_errors(value)
        .take(3)
        .map(|e| {
            format!(
                "{} at {}",
                e.to_string().chars().take(300).collect::<String>(),
                e.instance_path()
            )
        })
        .collect();
    assert!(errors.is_empty(), "{what}: {errors:#?}");
}

#[test]
fn every_output_is_valid() {
    let (whole, line) = validators();
    let more = [("hostile", hostile()), ("empty", empty())];
    let more = more
        .into_iter()
        .map(|(name, trace)| (name.to_owned(), trace));
    for (name, trace) in recordings().into_iter().chain(more) {
        let value: Value = serde_json::from_slice(&export(&trace, "json")).unwrap();
        check(&whole, &value, &name);
        let mut lines = jsonl::Lines::start(Vec::new(), &trace.header).unwrap();
        for packet in &trace.packets {
            lines.steps(&packet.steps).unwrap();
        }
        let out = lines.finish(&trace.closing).unwrap();
        for (i, text) in out
            .split(|b| *b == b'\n')
            .filter(|l| !l.is_empty())
            .enumerate()
        {
            let value: Value = serde_json::from_slice(text).unwrap();
            check(&line, &value, &format!("{name}, line {}", i + 1));
        }
    }
}

#[test]
fn what_is_wrong_is_not_valid() {
    let (whole, line) = validators();
    let (trace, _) = tracer::recording::read(&samples::path("c11")).unwrap();
    let right: Value = serde_json::from_slice(&export(&trace, "json")).unwrap();
    let wrongs = [
        ("/packets/0/steps/0/kind", json!("teleport")),
        ("/packets/0/steps/0/ts", json!("yesterday")),
        ("/packets/0/outcome", json!(null)),
        ("/losses/ring_buffer", json!(-1)),
        ("/nodes/0", json!({"name": "a"})),
    ];
    for (place, value) in wrongs {
        let mut wrong = right.clone();
        *wrong.pointer_mut(place).unwrap() = value;
        assert!(!whole.is_valid(&wrong), "{place}");
    }
    let mut more = right.clone();
    more["packets"][0]["steps"][0]["colour"] = json!("red");
    assert!(!whole.is_valid(&more), "a member nobody wrote down");
    assert!(!line.is_valid(&json!({"ts": 1})));
}
