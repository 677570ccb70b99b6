//! tracer: follows one flow through the kernel and says where it stopped.
pub mod assemble;
pub mod event;
pub mod trace;
