//! The only writer of the ring buffer: reserve, fill, submit; every failed
//! reservation is counted.

use aya_ebpf::{
    bindings::{BPF_RB_AVAIL_DATA, BPF_RB_FORCE_WAKEUP, BPF_RB_NO_WAKEUP},
    helpers::{bpf_get_smp_processor_id, bpf_ktime_get_boot_ns},
    maps::ring_buf::RingBufEntry,
};
use tracer_common::{RING_BYTES, config::Counter, event::Header, tuple::Tag};

use crate::{COUNTERS, EVENTS, skb::Place};

/// Adds one to a counter.
#[inline(always)]
pub(crate) fn count(counter: Counter) {
    if let Some(n) = COUNTERS.get_ptr_mut(counter as u32) {
        // SAFETY: this CPU's value.
        unsafe { *n += 1 };
    }
}

/// Room for one record, or a counted loss.
#[inline(always)]
pub(crate) fn reserve<T: 'static>() -> Option<RingBufEntry<T>> {
    let entry = EVENTS.reserve::<T>(0);
    count(if entry.is_some() { Counter::Events } else { Counter::RingFull });
    entry
}

/// Hands a record over. Waking user space for each would cost more than the
/// record; it polls, and is woken only when a quarter of the buffer is waiting.
#[inline(always)]
pub(crate) fn submit<T: 'static>(entry: RingBufEntry<T>) {
    let waiting = EVENTS.query(u64::from(BPF_RB_AVAIL_DATA));
    let flags = if waiting > u64::from(RING_BYTES / 4) {
        BPF_RB_FORCE_WAKEUP
    } else {
        BPF_RB_NO_WAKEUP
    };
    entry.submit(u64::from(flags));
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
        dir: tag.dir,
        flags: 0,
        cpu: cpu as u16,
        gso_segs: 0,
    }
}
