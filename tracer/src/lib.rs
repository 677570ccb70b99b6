//! tracer: follows one flow through the kernel and says where it stopped.
pub mod btf;
pub mod decode;
pub mod event;
pub mod inventory;
pub mod kallsyms;
pub mod netlink;
pub mod netns;
pub mod probe;
pub mod target;
pub mod time;
pub mod trace;
