//! The built `tracer` against the laboratory: what it says of a flow, step by step, and what others
//! saw of the same flow. Needs root, and the binary (`TRACER_BIN`, else `target/release/tracer`).
//!
//! Tests whose name starts with `core_` are the ones for every kernel.

mod apart;
mod broken;
mod crowd;
mod deep;
mod files;
mod long;
mod names;
mod paths;
mod probe;
mod run;
mod state;
mod tidy;
mod trace;
mod usage;
mod world;
