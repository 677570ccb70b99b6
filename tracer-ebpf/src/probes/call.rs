//! What a probed function was called with, kept until it returns.
//!
//! A return probe sees the return value only. Softirqs nest on one task, and a
//! REJECT sends its answer from inside the hook it judges, so neither the task
//! nor the CPU names a call; the stack pointer does: the return address lies at
//! a fixed place next to it at entry and at return.

use aya_ebpf::{
    helpers::{bpf_get_current_pid_tgid, bpf_get_smp_processor_id},
    programs::{ProbeContext, RetProbeContext},
};
use tracer_common::{config::Counter, event::Packet, tuple::Tag};

use crate::{CALLS, emit};

/// Functions with return probes.
#[derive(Clone, Copy)]
#[repr(u32)]
pub(crate) enum Function {
    Confirm = 1,
    ManipPkt = 2,
    HookSlow = 3,
    NftDoChain = 4,
    IptDoTable = 5,
}

/// One call that has not returned.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Key {
    sp: u64,
    task: u32,
    function: u32,
}

/// What the call was about, 128 bytes.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Call {
    /// The packet at entry.
    pub(crate) packet: Packet,
    /// The flow it belongs to.
    pub(crate) tag: Tag,
    /// Its skb.
    pub(crate) skb: u64,
    /// A second argument: conntrack entry, hook state, table.
    pub(crate) arg: u64,
    /// Namespace inode.
    pub(crate) netns: u32,
    /// Interface index.
    pub(crate) ifindex: u32,
    /// Two more words, meaning up to the function.
    pub(crate) a: u32,
    pub(crate) b: u32,
    pub(crate) c: u32,
    pub(crate) d: u32,
}

#[inline(always)]
fn task() -> u32 {
    // SAFETY: plain helper calls.
    let (tid, cpu) = unsafe {
        (
            bpf_get_current_pid_tgid() as u32,
            bpf_get_smp_processor_id(),
        )
    };
    // The idle tasks all have tid 0.
    if tid == 0 { cpu | 1 << 31 } else { tid }
}

#[cfg(any(bpf_target_arch = "x86_64", target_arch = "x86_64"))]
#[inline(always)]
pub(super) fn stack_pointer(regs: *mut aya_ebpf::bindings::pt_regs) -> u64 {
    // SAFETY: the context's registers.
    unsafe { (*regs).rsp }
}

#[cfg(any(bpf_target_arch = "aarch64", target_arch = "aarch64"))]
#[inline(always)]
pub(super) fn stack_pointer(regs: *mut aya_ebpf::bindings::pt_regs) -> u64 {
    // SAFETY: the context's registers.
    unsafe { (*regs).sp }
}

/// Keeps a call.
#[inline(always)]
pub(crate) fn enter(ctx: &ProbeContext, function: Function, call: &Call) {
    let key = Key {
        sp: stack_pointer(ctx.regs),
        task: task(),
        function: function as u32,
    };
    if CALLS.insert(&key, call, 0).is_err() {
        emit::count(Counter::CallLost);
    }
}

/// Takes back the call that now returns, if it was kept. How far the stack
/// pointer has moved depends on the kernel's trampoline: one word (the return
/// address is gone), none, or two.
#[inline(always)]
pub(crate) fn leave(ctx: &RetProbeContext, function: Function, into: &mut Call) -> Option<()> {
    let sp = stack_pointer(ctx.regs);
    let task = task();
    for back in [8, 0, 16] {
        let key = Key {
            sp: sp.wrapping_sub(back),
            task,
            function: function as u32,
        };
        // SAFETY: the value is copied at once; nobody else has this key.
        if let Some(call) = unsafe { CALLS.get(&key) } {
            // SAFETY: a map's value and the scratch area.
            unsafe { emit::put(into, call) };
            let _ = CALLS.remove(&key);
            return Some(());
        }
    }
    None
}
