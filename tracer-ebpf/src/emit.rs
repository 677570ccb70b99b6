//! The only writer of the ring buffer: reserve, fill, submit; every failed
//! reservation is counted.

use aya_ebpf::{
    bindings::{BPF_RB_AVAIL_DATA, BPF_RB_FORCE_WAKEUP, BPF_RB_NO_WAKEUP, BPF_RB_RING_SIZE},
    helpers::{bpf_get_smp_processor_id, bpf_ktime_get_boot_ns},
    maps::ring_buf::RingBufEntry,
};
use tracer_common::{config::Counter, event::Header, tuple::Tag};

use crate::{COUNTERS, EVENTS, skb::Place};

/// Adds one to a counter.
#[inline(always)]
pub(crate) fn count(counter: Counter) {
    if let Some(n) = COUNTERS.get_ptr_mut(counter as u32) {
        // SAFETY: this CPU's value.
        unsafe { *n += 1 };
    }
}

/// Room for one record, or a counted loss and a return with `None`.
///
/// A macro, so that the reservation is compared with null once and in place:
/// kernels up to 6.1 take a second comparison for a leak of the first.
macro_rules! reserve {
    ($record:ty) => {
        crate::emit::reserve!($record, return None)
    };
    ($record:ty, $leave:expr) => {{
        let Some(entry) = crate::EVENTS.reserve::<$record>(0) else {
            crate::emit::count(tracer_common::config::Counter::RingFull);
            $leave
        };
        entry
    }};
}
pub(crate) use reserve;

/// Hands a record over. Waking user space for each would cost more than the
/// record; it polls, and is woken only when a quarter of the buffer is waiting.
#[inline(always)]
pub(crate) fn submit<T: 'static>(entry: RingBufEntry<T>) {
    let waiting = EVENTS.query(u64::from(BPF_RB_AVAIL_DATA));
    let flags = if waiting > EVENTS.query(u64::from(BPF_RB_RING_SIZE)) / 4 {
        BPF_RB_FORCE_WAKEUP
    } else {
        BPF_RB_NO_WAKEUP
    };
    entry.submit(u64::from(flags));
    count(Counter::Events);
}

/// What every record starts with.
#[inline(always)]
pub(crate) fn header(kind: u8, tag: Tag, skb: u64, place: Place, len_mark: (u32, u32)) -> Header {
    // SAFETY: plain helper calls.
    let (now, cpu) = unsafe { (bpf_ktime_get_boot_ns(), bpf_get_smp_processor_id()) };
    Header {
        ts_ns: now,
        skb,
        flow: tag.flow,
        netns: place.netns,
        ifindex: place.ifindex,
        skb_len: len_mark.0,
        mark: len_mark.1,
        kind,
        dir: tag.dir as u8,
        flags: 0,
        cpu: cpu as u16,
        gso_segs: 0,
    }
}

/// Copies a value into a record. Both are aligned and apart, which the compiler
/// cannot know: an assignment would become a call to memmove.
///
/// # Safety
/// `to` must be valid for writing and not overlap `from`.
#[inline(always)]
pub(crate) unsafe fn put<T: Copy>(to: *mut T, from: &T) {
    // SAFETY: as promised by the caller.
    unsafe { core::ptr::copy_nonoverlapping(core::ptr::from_ref(from), to, 1) };
}

/// Clears words of a record, one by one: a run of zeros would become a call to
/// memset.
///
/// # Safety
/// `words` must be valid for writing.
#[inline(always)]
pub(crate) unsafe fn clear<const N: usize>(words: *mut [u64; N]) {
    for i in 0..N {
        // SAFETY: as promised by the caller; i is within the array.
        unsafe { words.cast::<u64>().add(i).write_volatile(0) };
    }
}
