//! RST and ICMP error senders: the packet is answered instead of going on.

use aya_ebpf::{
    macros::kprobe,
    programs::{ProbeContext, tracing::StackIdContext},
};
use tracer_common::{
    config::{Counter, flag as switch},
    event::{AnswerEvent, Outer, answer, kind},
};

use super::drop::flow_of_packet;
use crate::{
    STACKS, emit,
    parse::{Context, Scratch},
    skb,
};

// match-proto:v5.10:net/ipv4/tcp_ipv4.c:static void tcp_v4_send_reset(const struct sock *sk, struct sk_buff *skb)
#[kprobe(function = "tcp_v4_send_reset")]
fn tcp_reset_v4(ctx: ProbeContext) -> u32 {
    let _ = try_reset(&ctx);
    0
}

// match-proto:v5.10:net/ipv6/tcp_ipv6.c:static void tcp_v6_send_reset(const struct sock *sk, struct sk_buff *skb)
#[kprobe(function = "tcp_v6_send_reset")]
fn tcp_reset_v6(ctx: ProbeContext) -> u32 {
    let _ = try_reset(&ctx);
    0
}

#[inline(always)]
fn try_reset(ctx: &ProbeContext) -> Option<()> {
    let sk: u64 = ctx.arg(0)?;
    let sk_buff: u64 = ctx.arg(1)?;
    report(
        ctx,
        sk_buff,
        Answer {
            what: answer::TCP_RESET,
            kind: 0,
            code: 0,
            info: 0,
            socket: sk != 0,
        },
    )
}

// match-proto:v5.10:net/ipv4/netfilter/nf_reject_ipv4.c:void nf_send_reset(struct net *net, struct sk_buff *oldskb, int hook)
//
// Later, and in stable updates of 5.10: `(net, sk, oldskb, hook)`; which one,
// BTF says.
#[kprobe(function = "nf_send_reset")]
fn rule_reset_v4(ctx: ProbeContext) -> u32 {
    let _ = try_rule_reset(&ctx);
    0
}

// match-proto:v5.10:net/ipv6/netfilter/nf_reject_ipv6.c:void nf_send_reset6(struct net *net, struct sk_buff *oldskb, int hook)
#[kprobe(function = "nf_send_reset6")]
fn rule_reset_v6(ctx: ProbeContext) -> u32 {
    let _ = try_rule_reset(&ctx);
    0
}

#[inline(always)]
fn try_rule_reset(ctx: &ProbeContext) -> Option<()> {
    // Both are read: a load from one of two places becomes one from a computed place, which the verifier refuses.
    let (early, late): (u64, u64) = (ctx.arg(1)?, ctx.arg(2)?);
    let sk_buff = if skb::has_flag(switch::SEND_RESET_HAS_SK) {
        late
    } else {
        early
    };
    report(
        ctx,
        sk_buff,
        Answer {
            what: answer::NF_RESET,
            kind: 0,
            code: 0,
            info: 0,
            socket: false,
        },
    )
}

// match-proto:v5.10:net/ipv4/icmp.c:void __icmp_send(struct sk_buff *skb_in, int type, int code, __be32 info, const struct ip_options *opt)
#[kprobe(function = "__icmp_send")]
fn icmp_send(ctx: ProbeContext) -> u32 {
    let _ = try_icmp(&ctx, answer::ICMP);
    0
}

// match-proto:v5.10:net/ipv6/icmp.c:void icmp6_send(struct sk_buff *skb, u8 type, u8 code, __u32 info, const struct in6_addr *force_saddr)
#[kprobe(function = "icmp6_send")]
fn icmp6_send(ctx: ProbeContext) -> u32 {
    let _ = try_icmp(&ctx, answer::ICMPV6);
    0
}

#[inline(always)]
fn try_icmp(ctx: &ProbeContext, what: u8) -> Option<()> {
    let sk_buff: u64 = ctx.arg(0)?;
    let kind: u32 = ctx.arg(1)?;
    let code: u32 = ctx.arg(2)?;
    let mut info: u32 = ctx.arg(3)?;
    if what == answer::ICMP {
        info = u32::from_be(info);
    }
    report(
        ctx,
        sk_buff,
        Answer {
            what,
            kind: kind as u8,
            code: code as u8,
            info,
            socket: false,
        },
    )
}

#[derive(Clone, Copy)]
struct Answer {
    what: u8,
    kind: u8,
    code: u8,
    info: u32,
    socket: bool,
}

#[inline(always)]
fn report(ctx: &ProbeContext, sk_buff: u64, answer: Answer) -> Option<()> {
    let scratch = Scratch::get(Context::Kprobe)?;
    if !scratch.load_network(sk_buff) {
        return None;
    }
    if !scratch.parse(false) {
        return None;
    }
    let tag = flow_of_packet(scratch, sk_buff)?;
    let place = skb::place(sk_buff);
    let len_mark = skb::len_mark(sk_buff);
    let stack = ctx.get_stackid(&STACKS, 0).unwrap_or(-1) as i32;
    if stack < 0 {
        emit::count(Counter::StackFailed);
    }
    let outer = Outer::of(&scratch.tunnel);
    let mut entry = emit::reserve!(AnswerEvent);
    let mut header = emit::header(kind::ANSWER, tag, sk_buff, place, len_mark);
    header.flags = scratch.all_flags();
    let event = entry.as_mut_ptr();
    // SAFETY: the reserved record; every field is written.
    unsafe {
        (*event).header = header;
        emit::put(&raw mut (*event).packet, &scratch.packet);
        (*event).info = answer.info;
        (*event).what = answer.what;
        (*event).icmp_type = answer.kind;
        (*event).icmp_code = answer.code;
        (*event).has_socket = u8::from(answer.socket);
        (*event).stack = stack;
        (*event).pad = 0;
        (*event).outer = outer;
    }
    emit::submit(entry);
    Some(())
}
