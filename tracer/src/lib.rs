//! tracer: follows one flow through the kernel and says where it stopped.
pub mod event;
pub mod trace;
pub mod btf;
pub mod kallsyms;
pub mod netns;
pub mod time;
pub mod netlink;
pub mod inventory;
pub mod target;
pub mod discover;
pub mod conntrack;
