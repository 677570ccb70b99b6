//! tracer: follows one flow through the kernel and says where it stopped.
pub mod event;
pub mod trace;
pub mod btf;
