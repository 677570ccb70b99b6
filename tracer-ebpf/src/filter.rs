//! Is this packet ours? Tag look-up behind a Bloom array, the request's filter
//! when that misses, and the skb itself when the tuple is a new one.

use aya_ebpf::{
    bindings::BPF_NOEXIST,
    helpers::{bpf_get_smp_processor_id, bpf_ktime_get_boot_ns},
};
use tracer_common::{
    BLOOM_SLOTS, MAX_FILTER_RULES, SKB_SLOTS,
    config::{Counter, FilterRule, HAS_DST, HAS_SRC},
    event::Packet,
    tuple::{Addr, DIR_REPLY, DIR_REQUEST, Tag, Tuple, proto},
};

use crate::{BLOOM, CONFIG, FILTER, FRAGMENTS, SLOTS, TAGS, emit};

/// How long an skb's address may stand for a packet. The slab hands it out
/// again within milliseconds; the marks must agree as well.
const SLOT_NS: u64 = 2_000_000_000;

/// The last followed packet that an skb address carried.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Slot {
    skb: u64,
    flow: u64,
    ts: u64,
    seq: u32,
    ack: u32,
    payload_len: u32,
    ip_id: u32,
    proto: u32,
    dir: u32,
}

/// A datagram whose first fragment was followed.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct FragmentKey {
    src: Addr,
    dst: Addr,
    id: u32,
    proto: u32,
}

/// What the later fragments need to know of the first.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Fragment {
    tag: Tag,
    sport: u16,
    dport: u16,
    pad: u32,
}

/// The TCP flags that tell who opened a connection.
pub(crate) const SYN: u32 = 0x02;
const ACK: u32 = 0x10;
/// No packet is at hand. A number and no `Option`: half of one may be left
/// unset in a register, which the verifier does not let pass.
pub(crate) const NO_FLAGS: u32 = u32::MAX;

#[inline(always)]
fn slot_index(skb: u64) -> u32 {
    // sk_buffs are at least 192 bytes apart; spread the rest.
    (((skb >> 6) as u32).wrapping_mul(0x9e37_79b1) >> 16) & (SKB_SLOTS - 1)
}

/// The tag of a tuple, if it has one.
#[inline(never)]
pub(crate) fn tag(tuple: &Tuple) -> Option<Tag> {
    let hint = BLOOM.get(tuple.bloom_slot() & (BLOOM_SLOTS - 1))?;
    if *hint == 0 {
        return None;
    }
    // SAFETY: the value is copied at once; entries are written whole.
    unsafe { TAGS.get(tuple).copied() }
}

/// Tags a tuple and its inverse; `inverse` is room for the latter.
#[inline(never)]
pub(crate) fn set_tag(tuple: &Tuple, tag: Tag, inverse: &mut Tuple) {
    if TAGS.insert(tuple, &tag, 0).is_err() {
        emit::count(Counter::TagFailed);
    }
    tag_back(tuple, tag, inverse);
}

/// The rest of tagging a tuple: its inverse, and the hint that it is worth a look.
#[inline(always)]
fn tag_back(tuple: &Tuple, tag: Tag, inverse: &mut Tuple) {
    *inverse = tuple.inverse();
    if let Some(hint) = BLOOM.get_ptr_mut(tuple.bloom_slot() & (BLOOM_SLOTS - 1)) {
        // SAFETY: a byte of the map's value; setting it twice is harmless.
        unsafe { *hint = 1 };
    }
    let back = tag.back();
    if TAGS.insert(&*inverse, &back, 0).is_err() {
        emit::count(Counter::TagFailed);
    }
    emit::count(Counter::Tags);
}

/// A flow id that is unique for this boot.
#[inline(always)]
fn new_flow() -> u64 {
    // SAFETY: plain helper calls.
    let (now, cpu) = unsafe { (bpf_ktime_get_boot_ns(), bpf_get_smp_processor_id()) };
    (now << 6) | u64::from(cpu & 63) | 1 << 63
}

/// Compares all that a rule gives, in one direction.
#[inline(always)]
fn agrees(rule: &FilterRule, src: &Addr, dst: &Addr, dport: u16) -> bool {
    (rule.given & HAS_SRC == 0 || rule.src == *src)
        && (rule.given & HAS_DST == 0 || rule.dst == *dst)
        && (rule.dport == 0 || rule.dport == dport)
}

/// Whether the request wants this tuple, and as which direction of a flow.
/// `tcp_flags` is [`NO_FLAGS`] where the packet is not at hand: the tuple is then the
/// original direction of a connection, and only that way round counts.
#[inline(never)]
pub(crate) fn wanted(tuple: &Tuple, tcp_flags: u32) -> Option<u64> {
    // SAFETY: CONFIG is a static, replaced by user space before load.
    let n = unsafe { core::ptr::read_volatile(&raw const CONFIG.n_rules) };
    let tcp = tuple.proto == u32::from(proto::TCP);
    for i in 0..MAX_FILTER_RULES {
        if i >= n {
            break;
        }
        let Some(rule) = FILTER.get(i) else { break };
        if rule.proto != 0 && u32::from(rule.proto) != tuple.proto {
            continue;
        }
        if agrees(rule, &tuple.src, &tuple.dst, tuple.dport) {
            // An SYN-ACK or an answer of a connection that someone else opened
            // to the followed source: not what was asked for.
            let answers = tcp && tcp_flags != NO_FLAGS && tcp_flags & (SYN | ACK) == SYN | ACK;
            if !answers {
                return Some(DIR_REQUEST);
            }
        }
        if tcp_flags != NO_FLAGS && agrees(rule, &tuple.dst, &tuple.src, tuple.sport) {
            // A reply whose request was never seen. A bare SYN is none; for
            // other protocols both ends or the port must be given, lest any
            // packet to the followed source count.
            let late = tcp && tcp_flags & (SYN | ACK) != SYN;
            let exact = rule.dport != 0 || rule.given == HAS_SRC | HAS_DST;
            if late || (!tcp && exact) {
                return Some(DIR_REPLY);
            }
        }
    }
    None
}

/// Makes a flow of a wanted tuple, or joins the one that another CPU has made of it since
/// [`tag`] missed: two queries sent at once from one socket are one flow.
#[inline(always)]
pub(crate) fn start(tuple: &Tuple, dir: u64, inverse: &mut Tuple) -> Tag {
    let new = Tag {
        flow: new_flow(),
        dir,
    };
    if TAGS.insert(tuple, &new, u64::from(BPF_NOEXIST)).is_err() {
        // SAFETY: the value is copied at once; entries are written whole.
        if let Some(first) = unsafe { TAGS.get(tuple).copied() } {
            return first;
        }
        emit::count(Counter::TagFailed);
    }
    tag_back(tuple, new, inverse);
    new
}

/// The flow whose packet this skb was when last seen, if its marks agree.
#[inline(never)]
pub(crate) fn by_skb(skb: u64, packet: &Packet) -> Option<Tag> {
    let slot = SLOTS.get(slot_index(skb))?;
    if slot.skb != skb
        || slot.proto != packet.tuple.proto
        || slot.seq != packet.seq
        || slot.ack != packet.ack
        || slot.payload_len != packet.payload_len
        || slot.ip_id != packet.ip_id
    {
        return None;
    }
    // SAFETY: plain helper call.
    let now = unsafe { bpf_ktime_get_boot_ns() };
    (now.wrapping_sub(slot.ts) < SLOT_NS).then_some(Tag {
        flow: slot.flow,
        dir: u64::from(slot.dir),
    })
}

/// Whether [`by_skb`] is worth the full parse it needs.
#[inline(always)]
pub(crate) fn skb_known(skb: u64) -> bool {
    SLOTS
        .get(slot_index(skb))
        .is_some_and(|slot| slot.skb == skb)
}

/// Remembers which packet an skb carries.
#[inline(never)]
pub(crate) fn remember(skb: u64, packet: &Packet, tag: Tag) {
    let Some(slot) = SLOTS.get_ptr_mut(slot_index(skb)) else {
        return;
    };
    // SAFETY: the map's value. Two CPUs may write one slot at once; a torn
    // entry fails the comparison in `by_skb`.
    unsafe {
        (*slot).flow = tag.flow;
        (*slot).ts = bpf_ktime_get_boot_ns();
        (*slot).seq = packet.seq;
        (*slot).ack = packet.ack;
        (*slot).payload_len = packet.payload_len;
        (*slot).ip_id = packet.ip_id;
        (*slot).proto = packet.tuple.proto;
        (*slot).dir = tag.dir as u32;
        (*slot).skb = skb;
    }
}

#[inline(always)]
fn fragment_key(packet: &Packet) -> FragmentKey {
    FragmentKey {
        src: packet.tuple.src,
        dst: packet.tuple.dst,
        id: packet.ip_id,
        proto: packet.tuple.proto,
    }
}

/// Lets later fragments of this followed first fragment be found.
#[inline(never)]
pub(crate) fn remember_fragment(packet: &Packet, tag: Tag) {
    let key = fragment_key(packet);
    let value = Fragment {
        tag,
        sport: packet.tuple.sport,
        dport: packet.tuple.dport,
        pad: 0,
    };
    if FRAGMENTS.insert(&key, &value, 0).is_err() {
        emit::count(Counter::TagFailed);
    }
}

/// The flow of a later fragment; fills in the first one's ports.
#[inline(never)]
pub(crate) fn by_fragment(packet: &mut Packet) -> Option<Tag> {
    // SAFETY: the value is copied at once.
    let first = unsafe { FRAGMENTS.get(&fragment_key(packet)).copied() }?;
    packet.tuple.sport = first.sport;
    packet.tuple.dport = first.dport;
    Some(first.tag)
}
