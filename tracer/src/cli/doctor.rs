//! `tracer doctor`.
use super::Outcome;
/// Arguments of `tracer doctor`.
#[derive(Debug, clap::Args)]
pub struct Args {}
/// Runs `tracer doctor`.
pub fn run(_args: &Args) -> Outcome { Ok(0) }
