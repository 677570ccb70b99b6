//! tracer: follows one flow through the kernel and says where it stopped.
pub mod assemble;
pub mod diagnose;
pub mod event;
pub mod output;
pub mod recording;
pub mod trace;
