//! tracer: follows one flow through the kernel and says where it stopped.
//!
//! Data flows one way, from left to right; a module imports only from modules
//! to its left:
//!
//! ```text
//! interrupt < progress, file < netns, netlink, btf, kallsyms, time, event, trace < state < rules
//!   < inventory < discover, conntrack, target < connect < probe < collect, decode
//!   < assemble < diagnose < output, recording, merge < tui < pipeline < cli
//! ```
#![cfg_attr(
    test,
    allow(clippy::unwrap_used, reason = "a test that cannot go on should panic")
)]

pub mod assemble;
pub mod btf;
pub mod cli;
pub mod collect;
pub mod connect;
pub mod conntrack;
pub mod decode;
pub mod diagnose;
pub mod discover;
pub mod event;
pub mod file;
pub mod interrupt;
pub mod inventory;
pub mod kallsyms;
pub mod merge;
pub mod netlink;
pub mod netns;
pub mod output;
pub mod pipeline;
pub mod privilege;
pub mod probe;
pub mod progress;
pub mod recording;
pub mod rules;
pub mod state;
pub mod target;
pub mod time;
pub mod trace;
pub mod tui;
