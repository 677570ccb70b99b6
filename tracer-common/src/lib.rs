//! The boundary between tracer's eBPF programs and its user space: record
//! layouts, map names, size limits. No logic lives here beyond what both sides
//! must compute in exactly the same way (tuple inversion, the Bloom index).
//!
//! Everything that crosses the boundary is made of integers and byte arrays,
//! has explicit padding, and is written by one side only.
#![cfg_attr(not(any(feature = "user", test)), no_std)]
#![allow(
    clippy::inline_always,
    reason = "both sides compute these in their hot paths, the kernel's within a verifier's view"
)]

pub mod config;
pub mod event;
pub mod tuple;

/// Changes whenever a record, a map or a global changes its layout.
pub const ABI_VERSION: u32 = 3;

/// Names of the maps, as the object file spells them.
pub mod map {
    /// Ring buffer of [`crate::event`] records.
    pub const EVENTS: &str = "EVENTS";
    /// LRU hash: [`crate::tuple::Tuple`] to [`crate::tuple::Tag`].
    pub const TAGS: &str = "TAGS";
    /// Array of `u8`, non-zero where a tuple may be tagged; see
    /// [`crate::tuple::Tuple::bloom_slot`].
    pub const BLOOM: &str = "BLOOM";
    /// Array of [`crate::config::FilterRule`].
    pub const FILTER: &str = "FILTER";
    /// Per-CPU array of `u64`, indexed by [`crate::config::Counter`].
    pub const COUNTERS: &str = "COUNTERS";
    /// Stack traces, by the id found in drop and answer events.
    pub const STACKS: &str = "STACKS";
}

/// Entries of the tag map: four tuples a connection, so 16,384 connections.
pub const MAX_TAGS: u32 = 65_536;
/// Slots of the Bloom array. One byte a slot, so that setting one needs no
/// atomic read-modify-write, which kernel 5.10 does not have for BPF.
pub const BLOOM_SLOTS: u32 = 65_536;
/// Slots of the direct-mapped table from skb pointer to flow.
pub const SKB_SLOTS: u32 = 8_192;
/// Filter rules that one request may compile to.
pub const MAX_FILTER_RULES: u32 = 32;
/// Default size of the ring buffer in bytes.
pub const RING_BYTES: u32 = 16 << 20;
