//! Connection tracking: once per connection, both tuples at once.

use aya_ebpf::{
    macros::{kprobe, kretprobe},
    programs::{ProbeContext, RetProbeContext},
};
use tracer_common::{
    event::{ConntrackEvent, Header, kind},
    tuple::{Tag, Tuple},
};

use super::call::{self, Function};
use crate::{
    MASQUERADED, emit, filter,
    parse::{Context, Scratch},
    skb,
};

/// `enum ip_conntrack_info`, `nf_conntrack_common.h`.
pub(crate) const IP_CT_NEW: u8 = 2;

/// The flow of a connection by its original tuple, which is left in `original`;
/// makes one where the request asks for it. This is how a local process's
/// connection is caught before its first packet reaches any interface.
#[inline(never)]
pub(crate) fn flow_of(ct: u64, original: &mut Tuple, inverse: &mut Tuple) -> Option<Tag> {
    skb::ct_tuple(ct, 0, original)?;
    if let Some(tag) = filter::tag(original) {
        return Some(tag);
    }
    let dir = filter::wanted(original, filter::NO_FLAGS)?;
    Some(filter::start(original, dir, inverse))
}

/// The flow of the new connection whose entry a packet carries.
#[inline(always)]
pub(crate) fn carried_new(sk_buff: u64, original: &mut Tuple, inverse: &mut Tuple) -> Option<Tag> {
    let (ct, info) = skb::conntrack(sk_buff)?;
    if info != IP_CT_NEW {
        return None;
    }
    flow_of(ct, original, inverse)
}

/// Writes a conntrack record, and tags all tuples of the entry. `tag` is of the
/// original direction. Returns nothing on purpose: see [`emit::reserve`].
#[inline(never)]
pub(crate) fn report(scratch: &mut Scratch, header: &Header, ct: u64, tag: Tag) {
    let read = skb::ct_tuple(ct, 0, &mut scratch.ct[0]).is_some()
        && skb::ct_tuple(ct, 1, &mut scratch.ct[1]).is_some();
    if !read {
        return;
    }
    filter::set_tag(&scratch.ct[0], tag, &mut scratch.inverse);
    // The reply tuple travels against the original one.
    filter::set_tag(&scratch.ct[1], tag.back(), &mut scratch.inverse);
    // SAFETY: the value is copied at once.
    let masquerade = unsafe { MASQUERADED.get(&ct).copied() }.unwrap_or(0);
    // Status is a long; the bits of interest are in its low word.
    let status = skb::field::<u64>(ct, skb::off!(ct_status)).unwrap_or(0) as u32;
    let mark = skb::field(ct, skb::off!(ct_mark)).unwrap_or(0);
    let zone = skb::field(ct, skb::off!(ct_zone)).unwrap_or(0);
    let mut entry = emit::reserve!(ConntrackEvent, return);
    let event = entry.as_mut_ptr();
    // SAFETY: the reserved record; every field is written.
    unsafe {
        emit::put(&raw mut (*event).header, header);
        emit::put(&raw mut (*event).original, &scratch.ct[0]);
        emit::put(&raw mut (*event).reply, &scratch.ct[1]);
        (*event).ct = ct;
        (*event).status = status;
        (*event).mark = mark;
        (*event).zone = zone;
        (*event).masquerade = u16::from(masquerade);
        (*event).pad = 0;
    }
    emit::submit(entry);
}

// match-proto:v5.10:net/netfilter/nf_conntrack_core.c:int __nf_conntrack_confirm(struct sk_buff *skb)
#[kprobe(function = "__nf_conntrack_confirm")]
fn confirm(ctx: ProbeContext) -> u32 {
    let _ = try_confirm(&ctx);
    0
}

#[inline(always)]
fn try_confirm(ctx: &ProbeContext) -> Option<()> {
    let sk_buff: u64 = ctx.arg(0)?;
    let (ct, _) = skb::conntrack(sk_buff)?;
    let scratch = Scratch::get(Context::Kprobe)?;
    let tag = flow_of(ct, &mut scratch.ct[0], &mut scratch.inverse)?;
    let place = skb::place(sk_buff);
    let (len, mark) = skb::len_mark(sk_buff);
    scratch.call.tag = tag;
    scratch.call.skb = sk_buff;
    scratch.call.arg = ct;
    scratch.call.netns = place.netns;
    scratch.call.ifindex = place.ifindex;
    scratch.call.a = len;
    scratch.call.b = mark;
    call::enter(ctx, Function::Confirm, &scratch.call);
    Some(())
}

/// `NF_ACCEPT`, `include/uapi/linux/netfilter.h`.
const NF_ACCEPT: i32 = 1;

#[kretprobe(function = "__nf_conntrack_confirm")]
fn confirm_ret(ctx: RetProbeContext) -> u32 {
    let _ = try_confirm_ret(&ctx);
    0
}

#[inline(always)]
fn try_confirm_ret(ctx: &RetProbeContext) -> Option<()> {
    let scratch = Scratch::get(Context::Kprobe)?;
    call::leave(ctx, Function::Confirm, &mut scratch.call)?;
    if ctx.ret::<i32>() != NF_ACCEPT {
        return None;
    }
    let call = &scratch.call;
    let place = skb::Place {
        netns: call.netns,
        ifindex: call.ifindex,
    };
    let (ct, tag) = (call.arg, call.tag);
    let header = emit::header(kind::CT_CONFIRMED, tag, call.skb, place, (call.a, call.b));
    report(scratch, &header, ct, tag);
    Some(())
}

// match-proto:v5.10:net/netfilter/nf_conntrack_core.c:bool nf_ct_delete(struct nf_conn *ct, u32 portid, int report)
#[kprobe(function = "nf_ct_delete")]
fn ct_delete(ctx: ProbeContext) -> u32 {
    let _ = try_delete(&ctx);
    0
}

#[inline(always)]
fn try_delete(ctx: &ProbeContext) -> Option<()> {
    let ct: u64 = ctx.arg(0)?;
    let scratch = Scratch::get(Context::Kprobe)?;
    skb::ct_tuple(ct, 0, &mut scratch.ct[0])?;
    let tag = filter::tag(&scratch.ct[0])?;
    let place = skb::Place {
        netns: skb::net_inum(skb::field(ct, skb::off!(ct_net)).unwrap_or(0)),
        ifindex: 0,
    };
    let header = emit::header(kind::CT_DESTROYED, tag, 0, place, (0, 0));
    report(scratch, &header, ct, tag);
    let _ = MASQUERADED.remove(&ct);
    Some(())
}
