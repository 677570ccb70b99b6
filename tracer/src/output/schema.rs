//! The JSON Schema of what is written: made from the types themselves, kept in
//! `docs/trace.schema.json`.

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema};
use serde::Serialize;
use serde_json::json;

use crate::trace::{Closing, Header, Step, Trace};

/// A line of a recording.
#[derive(Serialize, JsonSchema)]
#[serde(untagged)]
#[allow(
    dead_code,
    clippy::large_enum_variant,
    reason = "never made; its schema is what is wanted"
)]
enum Line {
    /// The first.
    Header(Header),
    /// What happened.
    Step(Step),
    /// The last.
    Closing(Closing),
}

/// JSON Schema (draft 2020-12) of the whole trace; of a recording's lines under
/// `#/$defs/Line`.
pub fn schema() -> serde_json::Value {
    let mut generator = SchemaSettings::draft2020_12()
        .for_serialize()
        .into_generator();
    let _: Schema = generator.subschema_for::<Line>();
    let mut schema = generator.into_root_schema_for::<Trace>();
    schema.insert("$id".into(), json!("urn:tracer:trace:1"));
    schema.insert("title".into(), json!("A trace of tracer"));
    schema.to_value()
}
