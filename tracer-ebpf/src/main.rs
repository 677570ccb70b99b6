//! tracer's eBPF programs. Maps and the panic handler live here; `probes` holds
//! one file per family of attach points.
//!
//! No program alters a packet, and every tc program hands on. A miss costs a
//! look at the headers, two array look-ups and a few comparisons (`quick`): room
//! in the ring buffer is reserved only after a match.
#![cfg_attr(target_arch = "bpf", no_std)]
#![cfg_attr(target_arch = "bpf", no_main)]
#![allow(
    clippy::inline_always,
    reason = "the verifier follows bounds best through inlined code"
)]
#![allow(
    clippy::needless_pass_by_value,
    reason = "aya hands contexts over by value"
)]
#![allow(
    clippy::needless_borrows_for_generic_args,
    reason = "a map key by reference stays out of the program's 512 bytes of stack"
)]

mod emit;
mod filter;
mod parse;
mod probes;
mod quick;
mod skb;

use aya_ebpf::{
    macros::map,
    maps::{Array, LruHashMap, PerCpuArray, RingBuf, StackTrace},
};
use tracer_common::{
    BLOOM_SLOTS, MAX_FILTER_RULES, MAX_TAGS, RING_BYTES, SKB_SLOTS,
    config::{COUNTERS as N_COUNTERS, Config, FilterRule},
    tuple::{Tag, Tuple},
};

/// Offsets and switches, written by user space before load.
#[unsafe(no_mangle)]
static CONFIG: Config = Config::EMPTY;

#[map]
static EVENTS: RingBuf = RingBuf::with_byte_size(RING_BYTES, 0);
#[map]
static TAGS: LruHashMap<Tuple, Tag> = LruHashMap::with_max_entries(MAX_TAGS, 0);
#[map]
static BLOOM: Array<u8> = Array::with_max_entries(BLOOM_SLOTS, 0);
#[map]
static FILTER: Array<FilterRule> = Array::with_max_entries(MAX_FILTER_RULES, 0);
#[map]
static SLOTS: Array<filter::Slot> = Array::with_max_entries(SKB_SLOTS, 0);
#[map]
static FRAGMENTS: LruHashMap<filter::FragmentKey, filter::Fragment> =
    LruHashMap::with_max_entries(4096, 0);
#[map]
static MASQUERADED: LruHashMap<u64, u8> = LruHashMap::with_max_entries(8192, 0);
#[map]
static CALLS: LruHashMap<probes::call::Key, probes::call::Call> =
    LruHashMap::with_max_entries(4096, 0);
#[map]
static COUNTERS: PerCpuArray<u64> = PerCpuArray::with_max_entries(N_COUNTERS, 0);
/// One scratch area per kind of context that can interrupt another.
#[map]
static SCRATCH: PerCpuArray<parse::Scratch> = PerCpuArray::with_max_entries(4, 0);
#[map]
static STACKS: StackTrace = StackTrace::with_max_entries(4096, 0);
/// Modules and kernels refuse GPL-only helpers to anything else.
#[cfg(target_arch = "bpf")]
#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";

#[cfg(target_arch = "bpf")]
#[panic_handler]
fn panic(_info: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}

/// The crate means something for the BPF target only; this lets the rest of the
/// workspace's tools look at it.
#[cfg(not(target_arch = "bpf"))]
fn main() {}
