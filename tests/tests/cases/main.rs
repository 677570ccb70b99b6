//! Broken clusters: each of the laboratory's faults, the traffic that shows it, and what the tool says of it.
//!
//! What the client itself lived through is asserted as well: it does not come from the tool. Every case leaves its
//! recording in `target/cases/KERNEL/`, or where `TRACER_CASES` says. Needs root, and the binary as the scenarios do.
//!
//! A case that not every kernel can make is ignored, with the reason; `--include-ignored` runs it.

mod case;
mod healthy;
mod losses;
mod table;
mod traffic;

// What the scenarios have, and not all of it is needed here.
#[allow(dead_code, reason = "shared with the scenarios, which use the rest")]
#[path = "../scenarios/run.rs"]
mod run;
#[allow(dead_code, reason = "shared with the scenarios, which use the rest")]
#[path = "../scenarios/trace.rs"]
mod trace;
#[allow(dead_code, reason = "shared with the scenarios, which use the rest")]
#[path = "../scenarios/world.rs"]
mod world;
