//! Every function hook, once: the program, where it attaches, when, and what
//! nobody can see without it.

/// How a program attaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// At the function's entry.
    Kprobe,
    /// At its return.
    Kretprobe,
    /// At a raw tracepoint.
    RawTracepoint,
}

/// One hook.
#[derive(Clone, Copy, Debug)]
pub struct Hook {
    /// Program name in the object.
    pub program: &'static str,
    /// Kernel function or tracepoint.
    pub target: &'static str,
    /// How it attaches.
    pub kind: Kind,
    /// Only with `--deep`.
    pub deep: bool,
    /// Not with `--deep`, which has another program for the same target.
    pub shallow_only: bool,
    /// What is not observed without it, as the end of "... so ".
    pub loses: &'static str,
}

const fn hook(
    program: &'static str,
    target: &'static str,
    kind: Kind,
    loses: &'static str,
) -> Hook {
    Hook {
        program,
        target,
        kind,
        deep: false,
        shallow_only: false,
        loses,
    }
}

const fn deep(
    program: &'static str,
    target: &'static str,
    kind: Kind,
    loses: &'static str,
) -> Hook {
    Hook {
        deep: true,
        ..hook(program, target, kind, loses)
    }
}

const ENTRIES: &str = "conntrack entries are read from the packets that carry them";
const REWRITES: &str = "rewrites are worked out from the change between two interfaces";
const MASQUERADE: &str = "MASQUERADE is told from SNAT by the address only";
const RANGES: &str = "what a NAT rule asked for is not seen";
const ENDS: &str = "the end of a conntrack entry is not seen";
const DROPS: &str = "drops are not seen";
const RESETS: &str = "a reset is seen only as the packet it sends";
const ICMP: &str = "an ICMP error is seen only as the packet it sends";
const LOGGED: &str = "what a policy engine has logged about a packet is not seen";
const VERDICTS: &str = "netfilter verdicts are not seen";
const TABLES: &str = "verdicts of single tables are not seen";
const CHAINS: &str = "the chain path is not seen";
const ROUTES: &str = "the route taken is not seen";
const ENCAP: &str = "encapsulation is worked out from the change between two interfaces";
const SOCKETS: &str = "delivery to the socket is not seen";

/// All function hooks. Order is the order of attaching: what ends a packet's
/// life first, so that nothing followed goes unaccounted for.
pub static HOOKS: &[Hook] = &[
    hook("drop_reason", "kfree_skb", Kind::RawTracepoint, DROPS),
    hook("drop_no_reason", "kfree_skb", Kind::RawTracepoint, DROPS),
    hook(
        "confirm_ret",
        "__nf_conntrack_confirm",
        Kind::Kretprobe,
        ENTRIES,
    ),
    hook("confirm", "__nf_conntrack_confirm", Kind::Kprobe, ENTRIES),
    hook("ct_delete", "nf_ct_delete", Kind::Kprobe, ENDS),
    hook(
        "masquerade_v4",
        "nf_nat_masquerade_ipv4",
        Kind::Kprobe,
        MASQUERADE,
    ),
    hook(
        "masquerade_v6",
        "nf_nat_masquerade_ipv6",
        Kind::Kprobe,
        MASQUERADE,
    ),
    hook("setup_info", "nf_nat_setup_info", Kind::Kprobe, RANGES),
    Hook {
        shallow_only: true,
        ..hook("manip_pkt", "nf_nat_manip_pkt", Kind::Kprobe, REWRITES)
    },
    deep(
        "deep_manip_pkt_ret",
        "nf_nat_manip_pkt",
        Kind::Kretprobe,
        REWRITES,
    ),
    deep("deep_manip_pkt", "nf_nat_manip_pkt", Kind::Kprobe, REWRITES),
    hook("tcp_reset_v4", "tcp_v4_send_reset", Kind::Kprobe, RESETS),
    hook("tcp_reset_v6", "tcp_v6_send_reset", Kind::Kprobe, RESETS),
    hook("rule_reset_v4", "nf_send_reset", Kind::Kprobe, RESETS),
    hook("rule_reset_v6", "nf_send_reset6", Kind::Kprobe, RESETS),
    hook("icmp_send", "__icmp_send", Kind::Kprobe, ICMP),
    hook("icmp6_send", "icmp6_send", Kind::Kprobe, ICMP),
    hook("log_packet", "nf_log_packet", Kind::Kprobe, LOGGED),
    deep("deep_hook_ret", "nf_hook_slow", Kind::Kretprobe, VERDICTS),
    deep("deep_hook", "nf_hook_slow", Kind::Kprobe, VERDICTS),
    deep("deep_nft_ret", "nft_do_chain", Kind::Kretprobe, TABLES),
    deep("deep_nft", "nft_do_chain", Kind::Kprobe, TABLES),
    deep("deep_ipt_ret", "ipt_do_table", Kind::Kretprobe, TABLES),
    deep("deep_ipt", "ipt_do_table", Kind::Kprobe, TABLES),
    deep("deep_ip6t_ret", "ip6t_do_table", Kind::Kretprobe, TABLES),
    deep("deep_ip6t", "ip6t_do_table", Kind::Kprobe, TABLES),
    deep("deep_chain", "nft_immediate_eval", Kind::Kprobe, CHAINS),
    deep("deep_route_v4", "ip_forward", Kind::Kprobe, ROUTES),
    deep("deep_route_v6", "ip6_forward", Kind::Kprobe, ROUTES),
    deep("deep_route_error", "ip_error", Kind::Kprobe, ROUTES),
    deep("deep_encap", "iptunnel_xmit", Kind::Kprobe, ENCAP),
    deep("deep_tcp_v4", "tcp_v4_rcv", Kind::Kprobe, SOCKETS),
    deep("deep_tcp_v6", "tcp_v6_rcv", Kind::Kprobe, SOCKETS),
    deep(
        "deep_udp_v4",
        "udp_queue_rcv_one_skb",
        Kind::Kprobe,
        SOCKETS,
    ),
    deep(
        "deep_udp_v6",
        "udpv6_queue_rcv_one_skb",
        Kind::Kprobe,
        SOCKETS,
    ),
    deep("deep_icmp", "icmp_rcv", Kind::Kprobe, SOCKETS),
];

/// The tc programs: (ingress, egress) by whether the device has a link-layer
/// header.
pub const TC_LINK: [&str; 2] = ["tracer_in", "tracer_out"];
/// The same for devices without one.
pub const TC_L3: [&str; 2] = ["tracer_l3_in", "tracer_l3_out"];

/// Functions that are absent on many healthy nodes, so that their absence by
/// itself is no news: only one backend of iptables is in use, IPv6 may be off.
pub fn is_optional(hook: &Hook) -> bool {
    matches!(
        hook.target,
        "nft_do_chain"
            | "nft_immediate_eval"
            | "ipt_do_table"
            | "ip6t_do_table"
            | "nf_nat_masquerade_ipv6"
            | "nf_send_reset6"
            | "nf_send_reset"
            | "tcp_v6_send_reset"
            | "tcp_v6_rcv"
            | "ip6_forward"
            | "udpv6_queue_rcv_one_skb"
            | "icmp6_send"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_listed_once() {
        let mut names: Vec<_> = HOOKS.iter().map(|h| h.program).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), HOOKS.len());
    }

    #[test]
    fn every_return_probe_is_attached_before_its_entry() {
        for (at, ret) in HOOKS
            .iter()
            .enumerate()
            .filter(|(_, h)| h.kind == Kind::Kretprobe)
        {
            let entry = HOOKS
                .iter()
                .position(|h| {
                    h.kind == Kind::Kprobe && h.target == ret.target && h.deep == ret.deep
                })
                .expect("a return probe alone says nothing");
            assert!(at < entry, "{}", ret.program);
        }
    }

    #[test]
    fn deep_replaces_what_it_repeats() {
        for shallow in HOOKS.iter().filter(|h| h.shallow_only) {
            assert!(HOOKS.iter().any(|h| h.deep && h.target == shallow.target));
        }
    }
}
