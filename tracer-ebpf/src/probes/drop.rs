//! The `kfree_skb` raw tracepoint: that a packet ended, where and why.

use aya_ebpf::{
    macros::raw_tracepoint,
    programs::{RawTracePointContext, tracing::StackIdContext},
};
use tracer_common::{
    config::Counter,
    event::{DropEvent, Outer, flag, kind},
    tuple::Tag,
};

use crate::{
    STACKS, emit, filter,
    parse::{Context, Scratch},
    skb,
};

/// Kernels before 5.17: `(skb, location)`.
#[raw_tracepoint(tracepoint = "kfree_skb")]
fn drop_no_reason(ctx: RawTracePointContext) -> i32 {
    let _ = try_drop(&ctx, 0);
    0
}

/// Kernels from 5.17: `(skb, location, reason[, rx_sk])`. A program of its own,
/// because reading past an event's arguments makes attaching fail.
#[raw_tracepoint(tracepoint = "kfree_skb")]
fn drop_reason(ctx: RawTracePointContext) -> i32 {
    let reason: u64 = ctx.arg(2);
    let _ = try_drop(&ctx, reason as u32);
    0
}

/// The flow of a packet met outside tc, by tuple, by fragment or by skb.
#[inline(never)]
pub(crate) fn flow_of_packet(scratch: &mut Scratch, sk_buff: u64) -> Option<Tag> {
    if scratch.has(flag::LATER_FRAGMENT) {
        let tag = filter::by_fragment(&mut scratch.packet)?;
        scratch.finish();
        return Some(tag);
    }
    if let Some(mut tag) = filter::tag(&scratch.packet.tuple) {
        if scratch.has(flag::QUOTED) {
            tag.dir ^= 1;
        }
        scratch.finish();
        return Some(tag);
    }
    if filter::skb_known(sk_buff) {
        scratch.finish();
        return filter::by_skb(sk_buff, &scratch.packet);
    }
    None
}

/// IPv4 and IPv6 ethertypes.
#[inline(always)]
pub(crate) fn is_ip(sk_buff: u64) -> bool {
    matches!(skb::protocol(sk_buff), 0x0800 | 0x86dd)
}

#[inline(always)]
fn try_drop(ctx: &RawTracePointContext, reason: u32) -> Option<()> {
    let sk_buff: u64 = ctx.arg(0);
    // Sockets free packets that never had a network header through here, too.
    if !is_ip(sk_buff) {
        return None;
    }
    let scratch = Scratch::get(Context::Tracepoint)?;
    if !scratch.load_network(sk_buff) {
        return None;
    }
    if !scratch.parse(false) {
        return None;
    }
    let tag = if let Some(tag) = flow_of_packet(scratch, sk_buff) {
        tag
    } else {
        // A local process's first packet may die before any interface or
        // conntrack hook has seen it.
        if scratch.has(flag::QUOTED | flag::LATER_FRAGMENT) {
            return None;
        }
        let tcp_flags = u32::from(scratch.tcp_flags());
        let dir = filter::wanted(&scratch.packet.tuple, tcp_flags)?;
        scratch.finish();
        filter::start(&scratch.packet.tuple, dir, &mut scratch.inverse)
    };
    let place = skb::place(sk_buff);
    let len_mark = skb::len_mark(sk_buff);
    let stack = ctx.get_stackid(&STACKS, 0).unwrap_or(-1) as i32;
    if stack < 0 {
        emit::count(Counter::StackFailed);
    }
    let location: u64 = ctx.arg(1);
    let outer = Outer::of(&scratch.tunnel);
    let mut entry = emit::reserve!(DropEvent);
    let mut header = emit::header(kind::DROP, tag, sk_buff, place, len_mark);
    header.flags = scratch.all_flags();
    let event = entry.as_mut_ptr();
    // SAFETY: the reserved record; every field is written.
    unsafe {
        (*event).header = header;
        emit::put(&raw mut (*event).packet, &scratch.packet);
        (*event).location = location;
        (*event).reason = reason;
        (*event).stack = stack;
        (*event).outer = outer;
    }
    emit::submit(entry);
    Some(())
}
