//! The kernel side's user-space half: which hooks there are (`catalog`), their
//! loading and attaching (`load`), interfaces (`tc`), and what an older kernel
//! may keep of them (`leftover`).

pub mod catalog;
pub mod leftover;
pub mod load;
pub mod tc;

pub use load::{Options, ProbeError, Probes};
