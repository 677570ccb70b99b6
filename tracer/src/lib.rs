//! tracer: follows one flow through the kernel and says where it stopped.
#![cfg_attr(
    test,
    allow(
        clippy::unwrap_used,
        reason = "a test that cannot go on should panic"
    )
)]

pub mod btf;
pub mod conntrack;
pub mod decode;
pub mod discover;
pub mod event;
pub mod inventory;
pub mod kallsyms;
pub mod netlink;
pub mod netns;
pub mod probe;
pub mod target;
pub mod time;
pub mod trace;
