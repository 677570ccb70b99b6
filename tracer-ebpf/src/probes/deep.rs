//! `--deep`: hooks that fire for every packet. They observe what is otherwise
//! worked out.

use aya_ebpf::{
    helpers::generated::bpf_probe_read_kernel_str,
    macros::{kprobe, kretprobe},
    programs::{ProbeContext, RetProbeContext},
};
use tracer_common::{
    config::flag as switch,
    event::{ChainEvent, HookEvent, PacketEvent, RouteEvent, flag, kind, tunnel},
    tuple::{Tag, mapped},
};

use super::{
    call::{self, Function},
    drop::{flow_of_packet, is_ip},
};
use crate::{
    emit,
    parse::{Context, Scratch},
    skb,
};

/// A followed packet at a function that has it by its network header.
struct Met {
    scratch: &'static mut Scratch,
    tag: Tag,
    skb: u64,
    place: skb::Place,
    len_mark: (u32, u32),
}

#[inline(always)]
fn meet(sk_buff: u64) -> Option<Met> {
    let scratch = Scratch::get(Context::Kprobe)?;
    if !scratch.load_network(sk_buff) {
        return None;
    }
    if !scratch.parse(false) {
        return None;
    }
    let tag = flow_of_packet(scratch, sk_buff)?;
    Some(Met {
        scratch,
        tag,
        skb: sk_buff,
        place: skb::place(sk_buff),
        len_mark: skb::len_mark(sk_buff),
    })
}

// match-proto:v5.10:net/netfilter/core.c:int nf_hook_slow(struct sk_buff *skb, struct nf_hook_state *state, const struct nf_hook_entries *e, unsigned int s)
#[kprobe(function = "nf_hook_slow")]
fn deep_hook(ctx: ProbeContext) -> u32 {
    let _ = try_hook(&ctx);
    0
}

#[inline(always)]
fn try_hook(ctx: &ProbeContext) -> Option<()> {
    let sk_buff: u64 = ctx.arg(0)?;
    let state: u64 = ctx.arg(1)?;
    let mut met = meet(sk_buff)?;
    // Before output has set a device, the hook's state knows the namespace.
    if met.place.netns == 0 {
        met.place.netns = skb::net_inum(skb::field(state, skb::off!(hs_net)).unwrap_or(0));
    }
    let input = skb::dev_place(skb::field(state, skb::off!(hs_in)).unwrap_or(0)).ifindex;
    let output = skb::dev_place(skb::field(state, skb::off!(hs_out)).unwrap_or(0)).ifindex;
    if met.place.ifindex == 0 {
        met.place.ifindex = if input == 0 { output } else { input };
    }
    let hook = skb::hook_state_small(state, skb::off!(hs_hook));
    let pf = skb::hook_state_small(state, skb::off!(hs_pf));
    let flags = met.scratch.all_flags();
    let (call, packet) = (&mut met.scratch.call, &met.scratch.packet);
    // SAFETY: two fields of the scratch area.
    unsafe { emit::put(&raw mut call.packet, packet) };
    call.tag = met.tag;
    call.skb = sk_buff;
    call.arg = u64::from(flags);
    call.netns = met.place.netns;
    call.ifindex = met.place.ifindex;
    call.a = u32::from(hook) | u32::from(pf) << 8;
    call.b = input;
    call.c = output;
    call.d = met.len_mark.0;
    call::enter(ctx, Function::HookSlow, call);
    Some(())
}

#[kretprobe(function = "nf_hook_slow")]
fn deep_hook_ret(ctx: RetProbeContext) -> u32 {
    let _ = verdict(&ctx, Function::HookSlow, kind::HOOK);
    0
}

/// One verdict record; names only for a table's.
#[inline(always)]
fn verdict(ctx: &RetProbeContext, function: Function, kind: u8) -> Option<()> {
    let scratch = Scratch::get(Context::Kprobe)?;
    call::leave(ctx, function, &mut scratch.call)?;
    let call = &scratch.call;
    let ret: i32 = ctx.ret();
    // Anything but "go on": the skb may be gone and must not be read.
    let alive = ret == 1;
    let mark = if alive { skb::len_mark(call.skb).1 } else { 0 };
    let mut entry = emit::reserve!(HookEvent);
    let place = skb::Place {
        netns: call.netns,
        ifindex: call.ifindex,
    };
    let mut header = emit::header(kind, call.tag, call.skb, place, (call.d, mark));
    header.flags = call.arg as u16;
    let event = entry.as_mut_ptr();
    // SAFETY: the reserved record; every field is written.
    unsafe {
        (*event).header = header;
        emit::put(&raw mut (*event).packet, &call.packet);
        emit::clear(&raw mut (*event).table);
        (*event).verdict = ret;
        let named = kind == kind::TABLE;
        (*event).in_ifindex = if named { 0 } else { call.b };
        (*event).out_ifindex = if named { 0 } else { call.c };
        (*event).hook = call.a as u8;
        (*event).pf = (call.a >> 8) as u8;
        (*event).has_mark_after = u8::from(alive);
        (*event).pad = 0;
        (*event).mark_after = mark;
        (*event).pad4 = 0;
        if named {
            // `b` and `c` held the halves of a pointer to the table's name.
            let name = u64::from(call.b) | u64::from(call.c) << 32;
            bpf_probe_read_kernel_str((&raw mut (*event).table).cast(), 16, name as *const _);
        }
    }
    emit::submit(entry);
    Some(())
}

/// Keeps a table's call; `name` points at the table's name.
#[inline(always)]
fn enter_table(
    ctx: &ProbeContext,
    function: Function,
    sk_buff: u64,
    name: u64,
    state: u64,
) -> Option<()> {
    let met = meet(sk_buff)?;
    let hook = skb::hook_state_small(state, skb::off!(hs_hook));
    let pf = skb::hook_state_small(state, skb::off!(hs_pf));
    let flags = met.scratch.all_flags();
    let (call, packet) = (&mut met.scratch.call, &met.scratch.packet);
    // SAFETY: two fields of the scratch area.
    unsafe { emit::put(&raw mut call.packet, packet) };
    call.tag = met.tag;
    call.skb = sk_buff;
    call.arg = u64::from(flags);
    call.netns = met.place.netns;
    call.ifindex = met.place.ifindex;
    call.a = u32::from(hook) | u32::from(pf) << 8;
    call.b = name as u32;
    call.c = (name >> 32) as u32;
    call.d = met.len_mark.0;
    call::enter(ctx, function, call);
    Some(())
}

// match-proto:v5.10:net/netfilter/nf_tables_core.c:unsigned int nft_do_chain(struct nft_pktinfo *pkt, void *priv)
#[kprobe(function = "nft_do_chain")]
fn deep_nft(ctx: ProbeContext) -> u32 {
    let _ = try_nft(&ctx);
    0
}

#[inline(always)]
fn try_nft(ctx: &ProbeContext) -> Option<()> {
    let pkt: u64 = ctx.arg(0)?;
    let chain: u64 = ctx.arg(1)?;
    let sk_buff: u64 = skb::field(pkt, skb::off!(nft_pktinfo_skb))?;
    let state: u64 = skb::field(pkt, skb::off!(nft_pktinfo_state))?;
    let table: u64 = skb::field(chain, skb::off!(nft_chain_table))?;
    let name: u64 = skb::field(table, skb::off!(nft_table_name))?;
    enter_table(ctx, Function::NftDoChain, sk_buff, name, state)
}

#[kretprobe(function = "nft_do_chain")]
fn deep_nft_ret(ctx: RetProbeContext) -> u32 {
    let _ = verdict(&ctx, Function::NftDoChain, kind::TABLE);
    0
}

// match-proto:v5.10:net/ipv4/netfilter/ip_tables.c:unsigned int ipt_do_table(struct sk_buff *skb, const struct nf_hook_state *state, struct xt_table *table)
//
// From 5.16: `(void *priv, struct sk_buff *skb, const struct nf_hook_state *state)`
// with the table in `priv`; which one, BTF says.
#[kprobe(function = "ipt_do_table")]
fn deep_ipt(ctx: ProbeContext) -> u32 {
    let _ = try_xt(&ctx);
    0
}

#[kretprobe(function = "ipt_do_table")]
fn deep_ipt_ret(ctx: RetProbeContext) -> u32 {
    let _ = verdict(&ctx, Function::IptDoTable, kind::TABLE);
    0
}

// match-proto:v5.10:net/ipv6/netfilter/ip6_tables.c:unsigned int ip6t_do_table(struct sk_buff *skb, const struct nf_hook_state *state, struct xt_table *table)
#[kprobe(function = "ip6t_do_table")]
fn deep_ip6t(ctx: ProbeContext) -> u32 {
    let _ = try_xt(&ctx);
    0
}

#[kretprobe(function = "ip6t_do_table")]
fn deep_ip6t_ret(ctx: RetProbeContext) -> u32 {
    let _ = verdict(&ctx, Function::IptDoTable, kind::TABLE);
    0
}

#[inline(always)]
fn try_xt(ctx: &ProbeContext) -> Option<()> {
    // All are read before any is chosen: the verifier takes no load from a computed place in the context.
    let (first, second, third): (u64, u64, u64) = (ctx.arg(0)?, ctx.arg(1)?, ctx.arg(2)?);
    let (table, sk_buff, state) = if skb::has_flag(switch::IPT_TABLE_FIRST) {
        (first, second, third)
    } else {
        (third, first, second)
    };
    let name = table + skb::off!(xt_table_name)?;
    enter_table(ctx, Function::IptDoTable, sk_buff, name, state)
}

// match-proto:v5.10:net/netfilter/nft_immediate.c:void nft_immediate_eval(const struct nft_expr *expr, struct nft_regs *regs, const struct nft_pktinfo *pkt)
#[kprobe(function = "nft_immediate_eval")]
fn deep_chain(ctx: ProbeContext) -> u32 {
    let _ = try_chain(&ctx);
    0
}

#[inline(always)]
fn try_chain(ctx: &ProbeContext) -> Option<()> {
    let expr: u64 = ctx.arg(0)?;
    let pkt: u64 = ctx.arg(2)?;
    let sk_buff: u64 = skb::field(pkt, skb::off!(nft_pktinfo_skb))?;
    let met = meet(sk_buff)?;
    let data = expr + skb::off!(nft_expr_data)?;
    // Register 0 takes verdicts (NFT_REG_VERDICT); others take data.
    if skb::field::<u8>(data, skb::off!(nft_imm_dreg))? != 0 {
        return None;
    }
    let code: i32 = skb::field(data, skb::off!(nft_verdict_code))?;
    // NFT_JUMP (-3) and NFT_GOTO (-4) name a chain.
    let name: u64 = if code == -3 || code == -4 {
        let chain: u64 = skb::field(data, skb::off!(nft_verdict_chain))?;
        skb::field(chain, skb::off!(nft_chain_name))?
    } else {
        0
    };
    let mut entry = emit::reserve!(ChainEvent);
    let mut header = emit::header(kind::CHAIN, met.tag, sk_buff, met.place, met.len_mark);
    header.flags = met.scratch.all_flags();
    let event = entry.as_mut_ptr();
    // SAFETY: the reserved record; every field is written.
    unsafe {
        (*event).header = header;
        emit::clear(&raw mut (*event).chain);
        (*event).expr = expr;
        (*event).code = code;
        (*event).pad = 0;
        if name != 0 {
            bpf_probe_read_kernel_str((&raw mut (*event).chain).cast(), 32, name as *const _);
        }
    }
    emit::submit(entry);
    Some(())
}

// match-proto:v5.10:net/ipv4/ip_forward.c:int ip_forward(struct sk_buff *skb)
#[kprobe(function = "ip_forward")]
fn deep_route_v4(ctx: ProbeContext) -> u32 {
    let _ = try_route(&ctx, kind::ROUTE, false);
    0
}

// match-proto:v5.10:net/ipv6/ip6_output.c:int ip6_forward(struct sk_buff *skb)
#[kprobe(function = "ip6_forward")]
fn deep_route_v6(ctx: ProbeContext) -> u32 {
    let _ = try_route(&ctx, kind::ROUTE, true);
    0
}

// match-proto:v5.10:net/ipv4/route.c:static int ip_error(struct sk_buff *skb)
#[kprobe(function = "ip_error")]
fn deep_route_error(ctx: ProbeContext) -> u32 {
    let _ = try_route(&ctx, kind::ROUTE_ERROR, false);
    0
}

#[inline(always)]
fn try_route(ctx: &ProbeContext, kind: u8, v6: bool) -> Option<()> {
    let sk_buff: u64 = ctx.arg(0)?;
    let met = meet(sk_buff)?;
    // The low bit says whether the skb holds a reference (SKB_DST_NOREF).
    let dst: u64 = skb::field::<u64>(sk_buff, skb::off!(skb_refdst))? & !1;
    if dst == 0 {
        return None;
    }
    let out = skb::dev_place(skb::field(dst, skb::off!(dst_dev)).unwrap_or(0)).ifindex;
    let mut gateway = [0; 2];
    let mut rt_type = 0;
    if v6 {
        gateway = skb::field(dst, skb::off!(rt6_gw)).unwrap_or([0; 2]);
    } else {
        rt_type = skb::field::<u16>(dst, skb::off!(rt_type)).map_or(0, u32::from);
        // AF_INET
        if skb::field::<u8>(dst, skb::off!(rt_gw_family)) == Some(2) {
            gateway = mapped(skb::field(dst, skb::off!(rt_gw4)).unwrap_or(0));
        }
    }
    let mut entry = emit::reserve!(RouteEvent);
    let mut header = emit::header(kind, met.tag, sk_buff, met.place, met.len_mark);
    header.flags = met.scratch.all_flags();
    let event = entry.as_mut_ptr();
    // SAFETY: the reserved record; every field is written.
    unsafe {
        (*event).header = header;
        emit::put(&raw mut (*event).packet, &met.scratch.packet);
        (*event).gateway = gateway;
        (*event).out_ifindex = out;
        (*event).rt_type = rt_type;
        (*event).pad = 0;
    }
    emit::submit(entry);
    Some(())
}

#[inline(always)]
fn packet_event(met: &Met, kind: u8) -> Option<()> {
    let mut entry = emit::reserve!(PacketEvent);
    let mut header = emit::header(kind, met.tag, met.skb, met.place, met.len_mark);
    header.flags = met.scratch.all_flags();
    let event = entry.as_mut_ptr();
    // SAFETY: the reserved record; every field is written.
    unsafe {
        (*event).header = header;
        emit::put(&raw mut (*event).packet, &met.scratch.packet);
        emit::put(&raw mut (*event).tunnel, &met.scratch.tunnel);
    }
    emit::submit(entry);
    Some(())
}

// match-proto:v5.10:net/ipv4/ip_tunnel_core.c:void iptunnel_xmit(struct sock *sk, struct rtable *rt, struct sk_buff *skb, __be32 src, __be32 dst, __u8 proto, __u8 tos, __u8 ttl, __be16 df, bool xnet)
//
// The network header is still the inner one; `skb->data` is at the UDP header
// of UDP tunnels.
#[kprobe(function = "iptunnel_xmit")]
fn deep_encap(ctx: ProbeContext) -> u32 {
    let _ = try_encap(&ctx);
    0
}

#[inline(always)]
fn try_encap(ctx: &ProbeContext) -> Option<()> {
    let sk_buff: u64 = ctx.arg(2)?;
    if !is_ip(sk_buff) {
        return None;
    }
    let met = meet(sk_buff)?;
    let src: u32 = ctx.arg(3)?;
    let dst: u32 = ctx.arg(4)?;
    let proto: u32 = ctx.arg(5)?;
    let outer = &mut met.scratch.tunnel;
    outer.src = mapped(src);
    outer.dst = mapped(dst);
    outer.sport = 0;
    outer.dport = 0;
    outer.vni_kind = u32::from(tunnel::IPIP) << 24;
    if proto & 0xff == 17 {
        let data: u64 = skb::field(sk_buff, skb::off!(skb_data))?;
        outer.sport = u16::from_be(skb::read(data)?);
        outer.dport = u16::from_be(skb::read(data + 2)?);
        let vni: u32 = u32::from_be(skb::read(data + 12)?) >> 8;
        outer.vni_kind = u32::from(tunnel::VXLAN) << 24 | vni;
    }
    met.scratch.set_flags(flag::TUNNEL);
    packet_event(&met, kind::ENCAP)
}

#[inline(always)]
fn try_deliver(sk_buff: Option<u64>) -> Option<()> {
    let met = meet(sk_buff?)?;
    // The outer header reached the tunnel's own socket, not the packet its.
    if met.scratch.has(flag::TUNNEL | flag::QUOTED) {
        return None;
    }
    packet_event(&met, kind::DELIVER)
}

// match-proto:v5.10:net/ipv4/tcp_ipv4.c:int tcp_v4_rcv(struct sk_buff *skb)
#[kprobe(function = "tcp_v4_rcv")]
fn deep_tcp_v4(ctx: ProbeContext) -> u32 {
    let _ = try_deliver(ctx.arg(0));
    0
}

// match-proto:v5.10:net/ipv6/tcp_ipv6.c:static int tcp_v6_rcv(struct sk_buff *skb)
#[kprobe(function = "tcp_v6_rcv")]
fn deep_tcp_v6(ctx: ProbeContext) -> u32 {
    let _ = try_deliver(ctx.arg(0));
    0
}

// match-proto:v5.10:net/ipv4/udp.c:static int udp_queue_rcv_one_skb(struct sock *sk, struct sk_buff *skb)
#[kprobe(function = "udp_queue_rcv_one_skb")]
fn deep_udp_v4(ctx: ProbeContext) -> u32 {
    let _ = try_deliver(ctx.arg(1));
    0
}

// match-proto:v5.10:net/ipv6/udp.c:static int udpv6_queue_rcv_one_skb(struct sock *sk, struct sk_buff *skb)
#[kprobe(function = "udpv6_queue_rcv_one_skb")]
fn deep_udp_v6(ctx: ProbeContext) -> u32 {
    let _ = try_deliver(ctx.arg(1));
    0
}

// match-proto:v5.10:net/ipv4/icmp.c:int icmp_rcv(struct sk_buff *skb)
#[kprobe(function = "icmp_rcv")]
fn deep_icmp(ctx: ProbeContext) -> u32 {
    let _ = try_deliver(ctx.arg(0));
    0
}
