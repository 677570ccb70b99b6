//! What user space tells the programs before they run: kernel offsets, the
//! request's filter, switches; and the counters they report back.

use crate::MAX_FILTER_RULES;
use crate::tuple::{Addr, unmapped};

/// An offset that this kernel's BTF does not have.
pub const NONE: u32 = u32::MAX;

macro_rules! offsets {
    ($($(#[$doc:meta])* $field:ident = $path:literal;)*) => {
        /// Byte offsets of the kernel fields that the programs read, resolved
        /// from the running kernel's BTF. [`NONE`] where BTF lacks the field.
        #[repr(C)]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct Offsets { $($(#[$doc])* #[doc = concat!("`", $path, "`")] pub $field: u32,)* }

        impl Offsets {
            /// No offset known.
            pub const UNKNOWN: Self = Self { $($field: NONE,)* };

            /// Every offset as (path in BTF, where to store it). A path is
            /// `struct.member[.member]`.
            pub fn entries(&mut self) -> [(&'static str, &mut u32); [$($path),*].len()] {
                [$(($path, &mut self.$field)),*]
            }
        }
    };
}

offsets! {
    skb_head = "sk_buff.head";
    skb_data = "sk_buff.data";
    skb_end = "sk_buff.end";
    skb_len = "sk_buff.len";
    skb_network_header = "sk_buff.network_header";
    skb_mac_header = "sk_buff.mac_header";
    skb_protocol = "sk_buff.protocol";
    skb_mark = "sk_buff.mark";
    skb_iif = "sk_buff.skb_iif";
    skb_nfct = "sk_buff._nfct";
    skb_refdst = "sk_buff._skb_refdst";
    skb_dev = "sk_buff.dev";
    skb_sk = "sk_buff.sk";
    dev_ifindex = "net_device.ifindex";
    dev_net = "net_device.nd_net.net";
    net_inum = "net.ns.inum";
    sk_net = "sock.__sk_common.skc_net.net";
    ct_tuplehash = "nf_conn.tuplehash";
    ct_status = "nf_conn.status";
    ct_zone = "nf_conn.zone.id";
    ct_mark = "nf_conn.mark";
    ct_net = "nf_conn.ct_net.net";
    th_tuple = "nf_conntrack_tuple_hash.tuple";
    tuple_src = "nf_conntrack_tuple.src.u3";
    tuple_sport = "nf_conntrack_tuple.src.u.all";
    tuple_l3num = "nf_conntrack_tuple.src.l3num";
    tuple_dst = "nf_conntrack_tuple.dst.u3";
    tuple_dport = "nf_conntrack_tuple.dst.u.all";
    tuple_proto = "nf_conntrack_tuple.dst.protonum";
    hs_hook = "nf_hook_state.hook";
    hs_pf = "nf_hook_state.pf";
    hs_in = "nf_hook_state.in";
    hs_out = "nf_hook_state.out";
    hs_net = "nf_hook_state.net";
    range_flags = "nf_nat_range2.flags";
    range_min_addr = "nf_nat_range2.min_addr";
    range_min_proto = "nf_nat_range2.min_proto.all";
    dst_dev = "dst_entry.dev";
    rt_type = "rtable.rt_type";
    rt_gw_family = "rtable.rt_gw_family";
    rt_gw4 = "rtable.rt_gw4";
    rt6_gw = "rt6_info.rt6i_gateway";
    xt_table_name = "xt_table.name";
    nft_pktinfo_skb = "nft_pktinfo.skb";
    nft_pktinfo_state = "nft_pktinfo.state";
    nft_chain_table = "nft_chain.table";
    nft_chain_name = "nft_chain.name";
    nft_table_name = "nft_table.name";
    nft_expr_data = "nft_expr.data";
    nft_imm_dreg = "nft_immediate_expr.dreg";
    nft_verdict_code = "nft_data.verdict.code";
    nft_verdict_chain = "nft_data.verdict.chain";
}

/// Bits of [`Config::flags`].
pub mod flag {
    /// No conntrack hook could be attached: the tc programs read the entry that
    /// a packet carries instead.
    pub const CT_FROM_TC: u32 = 1;
    /// The entry size of `enum`-like hook and pf fields is one byte (6.1 and
    /// later) instead of four.
    pub const HOOK_STATE_U8: u32 = 1 << 1;
    /// The first parameter of `ipt_do_table` is the table (5.16 and later).
    pub const IPT_TABLE_FIRST: u32 = 1 << 2;
    /// `nf_send_reset` takes a socket as second parameter.
    pub const SEND_RESET_HAS_SK: u32 = 1 << 3;
}

/// The `CONFIG` global, read-only once loaded.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// [`crate::ABI_VERSION`] of the side that wrote it.
    pub abi: u32,
    /// See [`flag`].
    pub flags: u32,
    /// Rules in use in the filter map.
    pub n_rules: u32,
    /// Glances in use.
    pub n_glances: u32,
    /// What IPv4 packets are compared with before anything else.
    pub glances: [Glance; MAX_FILTER_RULES as usize],
    /// VXLAN destination ports; unused entries repeat the first.
    pub vxlan_ports: [u16; 8],
    /// Where the kernel keeps what is read.
    pub off: Offsets,
}

impl Config {
    /// A configuration that knows nothing and matches nothing.
    pub const EMPTY: Self = Self {
        abi: crate::ABI_VERSION,
        flags: 0,
        n_rules: 0,
        n_glances: 0,
        glances: [Glance::NEVER; MAX_FILTER_RULES as usize],
        vxlan_ports: [4789, 8472, 4789, 4789, 4789, 4789, 4789, 4789],
        off: Offsets::UNKNOWN,
    };
}

/// [`FilterRule::given`]: the source address counts.
pub const HAS_SRC: u8 = 1;
/// [`FilterRule::given`]: the destination address counts.
pub const HAS_DST: u8 = 2;

/// One alternative of the request, as the client addresses it. A packet matches
/// as a request when everything given agrees, as a reply when it agrees the
/// other way round.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FilterRule {
    /// The client's address, IPv4-mapped.
    pub src: Addr,
    /// The server's address as the client sees it, IPv4-mapped.
    pub dst: Addr,
    /// The server's port, 0 for any.
    pub dport: u16,
    /// IP protocol, 0 for any.
    pub proto: u8,
    /// [`HAS_SRC`] and [`HAS_DST`].
    pub given: u8,
    /// Always zero.
    pub pad: u32,
}

/// What of a rule can be told at a glance from an IPv4 packet. Agreeing is no
/// match yet: the rule itself decides. Not agreeing is none.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Glance {
    /// The client's address, in network order.
    src: u32,
    /// All ones where `src` counts, else zero.
    src_mask: u32,
    /// The server's address.
    dst: u32,
    /// As `src_mask`.
    dst_mask: u32,
    /// The server's port.
    port: u32,
    /// As `src_mask`.
    port_mask: u32,
}

impl Glance {
    /// An unused entry.
    pub const NEVER: Self = Self {
        src: 0,
        src_mask: 0,
        dst: 0,
        dst_mask: 0,
        port: 0,
        port_mask: 0,
    };

    /// A rule at a glance; `None` where no IPv4 packet agrees with it.
    #[must_use]
    pub fn of(rule: &FilterRule) -> Option<Self> {
        let part = |given: bool, addr: &Addr| {
            if given {
                unmapped(addr).map(|word| (word, u32::MAX))
            } else {
                Some((0, 0))
            }
        };
        let (src, src_mask) = part(rule.given & HAS_SRC != 0, &rule.src)?;
        let (dst, dst_mask) = part(rule.given & HAS_DST != 0, &rule.dst)?;
        Some(Self {
            src,
            src_mask,
            dst,
            dst_mask,
            port: rule.dport.into(),
            port_mask: if rule.dport == 0 { 0 } else { u32::MAX },
        })
    }

    /// Whether the rule may match a packet, in either direction. Without
    /// branches, which would be as many states for the verifier.
    #[inline(always)]
    #[must_use]
    pub fn may_match(&self, src: u32, dst: u32, sport: u16, dport: u16) -> bool {
        let differ = |src: u32, dst: u32, port: u16| {
            (src ^ self.src) & self.src_mask
                | (dst ^ self.dst) & self.dst_mask
                | (u32::from(port) ^ self.port) & self.port_mask
        };
        differ(src, dst, dport) == 0 || differ(dst, src, sport) == 0
    }
}

/// Indices into the counter map.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counter {
    /// Events written.
    Events = 0,
    /// Events that found the ring buffer full.
    RingFull = 1,
    /// Tags written, both directions counted.
    Tags = 2,
    /// Tags that could not be written.
    TagFailed = 3,
    /// Entries of a called function that were gone when it returned.
    CallLost = 4,
    /// Followed packets whose headers could not be read whole.
    Truncated = 5,
    /// Stack traces that could not be stored.
    StackFailed = 6,
}

/// Entries of the counter map.
pub const COUNTERS: u32 = 16;

#[cfg(feature = "user")]
// SAFETY: repr(C), u32 and u16 members only, no implicit padding.
unsafe impl aya::Pod for Config {}
#[cfg(feature = "user")]
// SAFETY: repr(C), integers only, no implicit padding (see the size test).
unsafe impl aya::Pod for FilterRule {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tuple::{from_bytes, mapped};

    #[test]
    fn layout_is_pinned() {
        assert_eq!(size_of::<FilterRule>(), 40);
        assert_eq!(size_of::<Config>() % 4, 0);
    }

    #[test]
    fn a_glance_sees_both_directions_and_nothing_else() {
        let [client, server, other] =
            [[10, 0, 0, 1], [10, 0, 0, 2], [10, 0, 0, 3]].map(u32::from_ne_bytes);
        let rule = FilterRule {
            src: mapped(client),
            dst: mapped(server),
            dport: 80,
            given: HAS_SRC | HAS_DST,
            ..FilterRule::default()
        };
        let sees = |rule: &FilterRule, src, dst, sport, dport| {
            Glance::of(rule).is_some_and(|g| g.may_match(src, dst, sport, dport))
        };
        assert!(sees(&rule, client, server, 4000, 80));
        assert!(sees(&rule, server, client, 80, 4000));
        assert!(!sees(&rule, client, server, 80, 4000));
        assert!(!sees(&rule, client, other, 4000, 80));
        assert!(!sees(&rule, other, server, 4000, 80));
        let anywhere = FilterRule {
            given: HAS_SRC,
            dport: 0,
            ..rule
        };
        assert!(sees(&anywhere, client, other, 1, 2));
        assert!(sees(&anywhere, other, client, 1, 2));
        assert!(!sees(&anywhere, other, server, 1, 2));
        assert!(sees(&FilterRule::default(), other, other, 1, 2));
    }

    #[test]
    fn no_ipv4_packet_agrees_with_an_ipv6_rule() {
        let six = FilterRule {
            dst: from_bytes([0xfd; 16]),
            given: HAS_DST,
            ..FilterRule::default()
        };
        assert_eq!(Glance::of(&six), None);
    }

    #[test]
    fn every_offset_has_its_own_path() {
        let mut off = Offsets::UNKNOWN;
        let paths: std::collections::BTreeSet<_> =
            off.entries().into_iter().map(|(p, _)| p).collect();
        assert_eq!(paths.len(), off.entries().len());
    }
}
