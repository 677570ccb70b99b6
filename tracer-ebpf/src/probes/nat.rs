//! Address translation: what a rule asked for, and every packet's rewrite.

use aya_ebpf::{
    macros::{kprobe, kretprobe},
    programs::{ProbeContext, RetProbeContext},
};
use tracer_common::{
    config::Counter,
    event::{NatEvent, NatRangeEvent, kind},
    tuple::{Addr, Tag, is_mapped, mapped},
};

use super::{
    call::{self, Function},
    conntrack::flow_of,
};
use crate::{
    MASQUERADED, emit, filter,
    parse::{Context, Scratch},
    skb,
};

// match-proto:v5.10:net/netfilter/nf_nat_core.c:unsigned int nf_nat_manip_pkt(struct sk_buff *skb, struct nf_conn *ct, enum nf_nat_manip_type mtype, enum ip_conntrack_dir dir)
//
// Runs for translated packets only, followed or not, so the miss path reads
// one tuple of the entry and compares.
#[kprobe(function = "nf_nat_manip_pkt")]
fn manip_pkt(ctx: ProbeContext) -> u32 {
    let _ = try_manip(&ctx, false);
    0
}

/// The same with what the return needs (`--deep`).
#[kprobe(function = "nf_nat_manip_pkt")]
fn deep_manip_pkt(ctx: ProbeContext) -> u32 {
    let _ = try_manip(&ctx, true);
    0
}

/// The flow of a packet of a connection, and which way it goes.
///
/// Where a backend's own address is followed, only the answers of a connection to its Service
/// are known: the entry's original tuple says nothing, its reply tuple does.
#[inline(always)]
fn flow_of_packet(ct: u64, dir: u32, scratch: &mut Scratch) -> Option<Tag> {
    if let Some(mut tag) = flow_of(ct, &mut scratch.ct[0], &mut scratch.inverse) {
        tag.dir ^= u64::from(dir);
        return Some(tag);
    }
    if dir == 0 {
        return None;
    }
    skb::ct_tuple(ct, 1, &mut scratch.ct[1])?;
    filter::tag(&scratch.ct[1])
}

#[inline(always)]
fn try_manip(ctx: &ProbeContext, deep: bool) -> Option<()> {
    let ct: u64 = ctx.arg(1)?;
    let scratch = Scratch::get(Context::Kprobe)?;
    let dir: u32 = ctx.arg(3)?;
    let tag = flow_of_packet(ct, dir & 1, scratch)?;
    let sk_buff: u64 = ctx.arg(0)?;
    let manip: u32 = ctx.arg(2)?;
    if !scratch.load_network(sk_buff) {
        emit::count(Counter::Truncated);
        return None;
    }
    if !scratch.parse(false) {
        return None;
    }
    scratch.finish();
    let place = skb::place(sk_buff);
    let (len, mark) = skb::len_mark(sk_buff);
    let (call, packet) = (&mut scratch.call, &scratch.packet);
    // SAFETY: two fields of the scratch area.
    unsafe { emit::put(&raw mut call.packet, packet) };
    call.tag = tag;
    call.skb = sk_buff;
    call.arg = ct;
    call.netns = place.netns;
    call.ifindex = place.ifindex;
    call.a = len;
    call.b = mark;
    call.c = manip;
    call.d = dir;
    if deep {
        call::enter(ctx, Function::ManipPkt, call);
    }
    submit(scratch, kind::NAT)
}

/// Writes a record of the call in `scratch.call`.
///
/// The entry's other direction, inverted, is what the packet is to look like
/// (`nf_nat_manip_pkt`: `nf_ct_invert_tuple(&target, &ct->tuplehash[!dir].tuple)`).
#[inline(always)]
fn submit(scratch: &mut Scratch, kind: u8) -> Option<()> {
    let (ct, manip, dir) = (scratch.call.arg, scratch.call.c, scratch.call.d);
    let other = &mut scratch.ct[1];
    skb::ct_tuple(ct, u64::from((dir & 1) ^ 1), other)?;
    // SAFETY: the value is copied at once.
    let masquerade = unsafe { MASQUERADED.get(&ct).copied() }.unwrap_or(0);
    let call = &scratch.call;
    let place = skb::Place {
        netns: call.netns,
        ifindex: call.ifindex,
    };
    let mut entry = emit::reserve!(NatEvent);
    let header = emit::header(kind, call.tag, call.skb, place, (call.a, call.b));
    let event = entry.as_mut_ptr();
    // SAFETY: the reserved record; every field is written.
    unsafe {
        (*event).header = header;
        emit::put(&raw mut (*event).packet, &scratch.packet);
        if manip == 0 {
            emit::put(&raw mut (*event).to_addr, &scratch.ct[1].dst);
            (*event).to_port = scratch.ct[1].dport;
        } else {
            emit::put(&raw mut (*event).to_addr, &scratch.ct[1].src);
            (*event).to_port = scratch.ct[1].sport;
        }
        (*event).ct = ct;
        (*event).manip = manip as u8;
        (*event).ct_dir = dir as u8;
        (*event).masquerade = u32::from(masquerade);
    }
    emit::submit(entry);
    Some(())
}

#[kretprobe(function = "nf_nat_manip_pkt")]
fn deep_manip_pkt_ret(ctx: RetProbeContext) -> u32 {
    let _ = try_manip_ret(&ctx);
    0
}

#[inline(always)]
fn try_manip_ret(ctx: &RetProbeContext) -> Option<()> {
    let scratch = Scratch::get(Context::Kprobe)?;
    call::leave(ctx, Function::ManipPkt, &mut scratch.call)?;
    // NF_ACCEPT; otherwise the packet is about to be dropped.
    if ctx.ret::<u32>() != 1 || !scratch.load_network(scratch.call.skb) {
        return None;
    }
    if !scratch.parse(false) {
        return None;
    }
    scratch.finish();
    submit(scratch, kind::NAT_DONE)
}

// match-proto:v5.10:net/netfilter/nf_nat_masquerade.c:unsigned int nf_nat_masquerade_ipv4(struct sk_buff *skb, unsigned int hooknum, const struct nf_nat_range2 *range, const struct net_device *out)
#[kprobe(function = "nf_nat_masquerade_ipv4")]
fn masquerade_v4(ctx: ProbeContext) -> u32 {
    let _ = try_masquerade(&ctx);
    0
}

// match-proto:v5.10:net/netfilter/nf_nat_masquerade.c:unsigned int nf_nat_masquerade_ipv6(struct sk_buff *skb, const struct nf_nat_range2 *range, const struct net_device *out)
#[kprobe(function = "nf_nat_masquerade_ipv6")]
fn masquerade_v6(ctx: ProbeContext) -> u32 {
    let _ = try_masquerade(&ctx);
    0
}

#[inline(always)]
fn try_masquerade(ctx: &ProbeContext) -> Option<()> {
    let sk_buff: u64 = ctx.arg(0)?;
    let (ct, _) = skb::conntrack(sk_buff)?;
    let scratch = Scratch::get(Context::Kprobe)?;
    flow_of(ct, &mut scratch.ct[0], &mut scratch.inverse)?;
    if MASQUERADED.insert(&ct, &1, 0).is_err() {
        emit::count(Counter::TagFailed);
    }
    Some(())
}

/// `NF_NAT_RANGE_MAP_IPS`, `include/uapi/linux/netfilter/nf_nat.h`.
const MAP_IPS: u32 = 1;

// match-proto:v5.10:net/netfilter/nf_nat_core.c:unsigned int nf_nat_setup_info(struct nf_conn *ct, const struct nf_nat_range2 *range, enum nf_nat_manip_type maniptype)
#[kprobe(function = "nf_nat_setup_info")]
fn setup_info(ctx: ProbeContext) -> u32 {
    let _ = try_setup(&ctx);
    0
}

#[inline(always)]
fn try_setup(ctx: &ProbeContext) -> Option<()> {
    let ct: u64 = ctx.arg(0)?;
    let scratch = Scratch::get(Context::Kprobe)?;
    let tag = flow_of(ct, &mut scratch.ct[0], &mut scratch.inverse)?;
    let range: u64 = ctx.arg(1)?;
    let manip: u32 = ctx.arg(2)?;
    let range_flags: u32 = skb::field(range, skb::off!(range_flags))?;
    if range_flags & MAP_IPS == 0 {
        return None;
    }
    let mut min_addr: Addr = skb::field(range, skb::off!(range_min_addr))?;
    let original = &scratch.ct[0];
    if is_mapped(&original.src) {
        min_addr = mapped(skb::field(range, skb::off!(range_min_addr))?);
    }
    let min_port = u16::from_be(skb::field(range, skb::off!(range_min_proto)).unwrap_or(0));
    // Every connection gets a "null binding" to its own address where no rule
    // spoke (`__nf_nat_alloc_null_binding`): the reply tuple's own value.
    skb::ct_tuple(ct, 1, &mut scratch.ct[1])?;
    let own = if manip == 0 {
        &scratch.ct[1].dst
    } else {
        &scratch.ct[1].src
    };
    if *own == min_addr && min_port == 0 {
        return None;
    }
    // SAFETY: the value is copied at once.
    let masquerade = unsafe { MASQUERADED.get(&ct).copied() }.unwrap_or(0);
    let place = skb::Place {
        netns: skb::net_inum(skb::field(ct, skb::off!(ct_net)).unwrap_or(0)),
        ifindex: 0,
    };
    let mut entry = emit::reserve!(NatRangeEvent);
    let header = emit::header(kind::NAT_RANGE, tag, 0, place, (0, 0));
    let event = entry.as_mut_ptr();
    // SAFETY: the reserved record; every field is written.
    unsafe {
        (*event).header = header;
        emit::put(&raw mut (*event).original, &scratch.ct[0]);
        (*event).min_addr = min_addr;
        (*event).ct = ct;
        (*event).range_flags = range_flags;
        (*event).min_port = min_port;
        (*event).manip = manip as u8;
        (*event).masquerade = masquerade & u8::from(manip == 0);
    }
    emit::submit(entry);
    Some(())
}
