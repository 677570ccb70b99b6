//! NFLOG and nft's `log`: policy engines have their decisions logged, with the
//! policy's own name, just before they take effect.

use aya_ebpf::{
    helpers::generated::bpf_probe_read_kernel_str, macros::kprobe, programs::ProbeContext,
};
use tracer_common::event::{LogEvent, kind};

use super::{call::stack_pointer, drop::flow_of_packet};
use crate::{
    emit,
    parse::{Context, Scratch},
    skb,
};

/// Bytes of a prefix that are kept, a NUL among them.
const PREFIX: u32 = 48;

// match-proto:v5.10:net/netfilter/nf_log.c:void nf_log_packet(struct net *net, u_int8_t pf, unsigned int hooknum, const struct sk_buff *skb, const struct net_device *in, const struct net_device *out, const struct nf_loginfo *loginfo, const char *fmt, ...)
//
// Called whether anybody listens or not. Its callers give "%s" and the prefix
// (`nflog_tg`, `net/netfilter/xt_NFLOG.c`; `nft_log_eval`, `nft_log.c`).
#[kprobe(function = "nf_log_packet")]
fn log_packet(ctx: ProbeContext) -> u32 {
    let _ = try_log(&ctx);
    0
}

#[inline(always)]
fn try_log(ctx: &ProbeContext) -> Option<()> {
    let sk_buff: u64 = ctx.arg(3)?;
    let scratch = Scratch::get(Context::Kprobe)?;
    if !scratch.load_network(sk_buff) {
        return None;
    }
    if !scratch.parse(false) {
        return None;
    }
    let tag = flow_of_packet(scratch, sk_buff)?;
    let prefix: u64 = skb::read(first_variadic(ctx))?;
    let place = skb::place(sk_buff);
    let len_mark = skb::len_mark(sk_buff);
    let mut entry = emit::reserve!(LogEvent);
    let mut header = emit::header(kind::LOG, tag, sk_buff, place, len_mark);
    header.flags = scratch.all_flags();
    let event = entry.as_mut_ptr();
    // SAFETY: the reserved record; every field is written.
    unsafe {
        (*event).header = header;
        emit::put(&raw mut (*event).packet, &scratch.packet);
        emit::clear(&raw mut (*event).prefix);
        bpf_probe_read_kernel_str(
            (&raw mut (*event).prefix).cast(),
            PREFIX,
            prefix as *const _,
        );
    }
    emit::submit(entry);
    Some(())
}

/// Where the argument after eight named ones lies. System V x86-64: six are in
/// registers, the stack holds the return address and two more before it.
#[cfg(any(bpf_target_arch = "x86_64", target_arch = "x86_64"))]
#[inline(always)]
fn first_variadic(ctx: &ProbeContext) -> u64 {
    stack_pointer(ctx.regs) + 24
}

/// AAPCS64: eight are in registers.
#[cfg(any(bpf_target_arch = "aarch64", target_arch = "aarch64"))]
#[inline(always)]
fn first_variadic(ctx: &ProbeContext) -> u64 {
    stack_pointer(ctx.regs)
}
