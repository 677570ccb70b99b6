//! tc ingress and egress: where the packet was, with which headers, inside
//! which tunnel. The only programs that run for every packet of an interface.

use aya_ebpf::{
    bindings::{__sk_buff, TC_ACT_UNSPEC},
    macros::classifier,
    programs::TcContext,
};
use tracer_common::{
    config::flag as switch,
    event::{PacketEvent, flag, kind},
    tuple::{Tag, proto},
};

use crate::{
    emit, filter,
    parse::{Context, Scratch},
    probes::conntrack,
    quick, skb,
};

/// tc ingress of an interface with a link-layer header.
#[classifier]
fn tracer_in(ctx: TcContext) -> i32 {
    observe(ctx.skb.skb, true, true);
    TC_ACT_UNSPEC
}

/// tc egress of an interface with a link-layer header.
#[classifier]
fn tracer_out(ctx: TcContext) -> i32 {
    observe(ctx.skb.skb, false, true);
    TC_ACT_UNSPEC
}

/// tc ingress of an interface without one (`tunl0`, `wg0`).
#[classifier]
fn tracer_l3_in(ctx: TcContext) -> i32 {
    observe(ctx.skb.skb, true, false);
    TC_ACT_UNSPEC
}

/// tc egress of an interface without one.
#[classifier]
fn tracer_l3_out(ctx: TcContext) -> i32 {
    observe(ctx.skb.skb, false, false);
    TC_ACT_UNSPEC
}

/// Does nothing: what attaching costs by itself, for the benchmark.
#[classifier]
fn tracer_empty(_ctx: TcContext) -> i32 {
    TC_ACT_UNSPEC
}

#[inline(always)]
fn observe(ctx: *mut __sk_buff, ingress: bool, link: bool) {
    let Some(scratch) = Scratch::get(Context::Tc) else {
        return;
    };
    if quick::is_miss(ctx, scratch, ingress, link) {
        return;
    }
    // SAFETY: the verifier checks context accesses.
    let len = unsafe { (*ctx).len };
    if !scratch.load_skb(ctx, len) {
        return;
    }
    if !scratch.parse(link) {
        return;
    }
    let sk_buff = scratch.address(ctx);
    if let Some(tag) = follow(scratch, sk_buff, ingress) {
        let _ = report(ctx, scratch, sk_buff, tag, ingress);
    }
}

/// The packet's flow, if it is followed.
#[inline(always)]
fn follow(scratch: &mut Scratch, sk_buff: u64, ingress: bool) -> Option<Tag> {
    if scratch.has(flag::LATER_FRAGMENT) {
        let tag = filter::by_fragment(&mut scratch.packet)?;
        scratch.finish();
        return Some(tag);
    }
    let quoted = scratch.has(flag::QUOTED);
    if let Some(mut tag) = filter::tag(&scratch.packet.tuple) {
        if quoted {
            // The error travels against the packet that it quotes.
            tag.dir ^= 1;
        }
        scratch.finish();
        return Some(tag);
    }
    if quoted {
        return None;
    }
    // Before the filter: after a DNAT the packet may match a request that
    // names only the source, and is no new flow for that.
    if filter::skb_known(sk_buff) {
        scratch.finish();
        if let Some(tag) = filter::by_skb(sk_buff, &scratch.packet) {
            filter::set_tag(&scratch.packet.tuple, tag, &mut scratch.inverse);
            scratch.set_flags(flag::BY_SKB);
            return Some(tag);
        }
    }
    let tcp = scratch.packet.tuple.proto == u32::from(proto::TCP);
    let flags = if tcp {
        u32::from(scratch.tcp_flags())
    } else {
        0
    };
    if let Some(dir) = filter::wanted(&scratch.packet.tuple, flags) {
        let tag = filter::start(&scratch.packet.tuple, dir, &mut scratch.inverse);
        scratch.set_flags(flag::FIRST);
        scratch.finish();
        return Some(tag);
    }
    if !ingress && !scratch.has(flag::TUNNEL) && skb::has_flag(switch::CT_FROM_TC) {
        // Without conntrack hooks the entry that the packet carries is the
        // only link to the tuple a local process used. A tunnel's packet carries
        // the tunnel's entry (`skb_scrub_packet`), not that of what is inside.
        let tag = conntrack::carried_new(sk_buff, &mut scratch.ct[0], &mut scratch.inverse)?;
        filter::set_tag(&scratch.packet.tuple, tag, &mut scratch.inverse);
        scratch.finish();
        return Some(tag);
    }
    None
}

#[inline(always)]
fn report(
    ctx: *mut __sk_buff,
    scratch: &mut Scratch,
    sk_buff: u64,
    tag: Tag,
    ingress: bool,
) -> Option<()> {
    if scratch.packet.frag == 1 << 15 {
        filter::remember_fragment(&scratch.packet, tag);
    }
    if !scratch.has(flag::QUOTED) {
        filter::remember(sk_buff, &scratch.packet, tag);
    }
    let dev: u64 = skb::field(sk_buff, skb::off!(skb_dev)).unwrap_or(0);
    let mut place = skb::dev_place(dev);
    // SAFETY: the verifier checks context accesses.
    let (len, mark, segs, ifindex) =
        unsafe { ((*ctx).len, (*ctx).mark, (*ctx).gso_segs, (*ctx).ifindex) };
    place.ifindex = ifindex;
    if !ingress
        && skb::has_flag(switch::CT_FROM_TC)
        && let Some((ct, info)) = skb::conntrack(sk_buff)
        && info == conntrack::IP_CT_NEW
    {
        let header = emit::header(kind::CT_CARRIED, tag, sk_buff, place, (len, mark));
        conntrack::report(scratch, &header, ct, tag);
    }
    if scratch.has(flag::TRUNCATED) {
        emit::count(tracer_common::config::Counter::Truncated);
    }
    let mut entry = emit::reserve!(PacketEvent);
    let kind = if ingress { kind::INGRESS } else { kind::EGRESS };
    let mut header = emit::header(kind, tag, sk_buff, place, (len, mark));
    header.flags = scratch.all_flags();
    header.gso_segs = segs as u16;
    let event = entry.as_mut_ptr();
    // SAFETY: the reserved record; every field is written.
    unsafe {
        (*event).header = header;
        emit::put(&raw mut (*event).packet, &scratch.packet);
        emit::put(&raw mut (*event).tunnel, &scratch.tunnel);
    }
    emit::submit(entry);
    Some(())
}
