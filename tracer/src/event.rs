//! What one kernel event says, in user space's words: addresses as addresses,
//! interfaces and functions by name, times on the wall clock. Made by `decode`
//! and `enrich`, consumed by `assemble`.

use std::net::IpAddr;
use std::sync::Arc;

use crate::trace::{Endpoint, Role, Tunnel};

/// One event.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// Nanoseconds since the Unix epoch.
    pub ts: u64,
    /// Address of the skb, 0 where there is none. Means something only while
    /// the packet's other marks agree: the kernel reuses the memory.
    pub skb: u64,
    /// The kernel side's flow id.
    pub flow: u64,
    /// Direction of the packet in that flow, as the kernel side tagged it.
    pub reply: bool,
    /// Node name; empty where the namespace is unknown.
    pub node: Arc<str>,
    /// Interface name; empty where there is none.
    pub iface: Arc<str>,
    /// What that interface is to its node.
    pub role: Role,
    /// `skb->len` in bytes; at tc with the link-layer header.
    pub len: u32,
    /// `skb->mark`.
    pub mark: u32,
    /// What happened.
    pub body: Body,
}

/// The headers of a packet; of the inner one inside a tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Source address.
    pub src: IpAddr,
    /// Destination address.
    pub dst: IpAddr,
    /// Source port; ICMP echo identifier; 0 where there is none.
    pub sport: u16,
    /// Destination port; ICMP echo identifier; 0 where there is none.
    pub dport: u16,
    /// IP protocol number.
    pub proto: u8,
    /// TCP sequence number; SCTP verification tag; ICMP echo sequence number.
    pub seq: u32,
    /// TCP acknowledgement number; SCTP first TSN.
    pub ack: u32,
    /// Bytes behind the L4 header.
    pub payload_len: u32,
    /// Hash over the first payload bytes.
    pub payload_hash: u32,
    /// IP identification, 0 where none.
    pub ip_id: u32,
    /// Fragment offset in bytes.
    pub frag_offset: u32,
    /// More fragments follow.
    pub more_fragments: bool,
    /// TCP flags, ICMP type, or the SCTP type of the first chunk.
    pub l4_flags: u8,
    /// Time to live, hop limit.
    pub ttl: u8,
    /// The addresses and ports are those of the packet that this ICMP error
    /// quotes (as quoted: from the quoted packet's sender).
    pub quoted: bool,
    /// The L4 header could not be read whole.
    pub truncated: bool,
}

/// Which way a conntrack entry became known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CtSource {
    /// `__nf_conntrack_confirm` returned success for it.
    Confirmed,
    /// A packet carried it at a tc hook.
    Carried,
    /// It was there before the tool started (conntrack dump); `skb` is 0.
    Dumped,
    /// It is being deleted.
    Destroyed,
}

/// A tuple of a conntrack entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CtTuple {
    /// Source address.
    pub src: IpAddr,
    /// Source port or ICMP id.
    pub sport: u16,
    /// Destination address.
    pub dst: IpAddr,
    /// Destination port or ICMP id.
    pub dport: u16,
    /// IP protocol number.
    pub proto: u8,
}

/// `IPS_CONFIRMED`, `include/uapi/linux/netfilter/nf_conntrack_common.h`.
pub const IPS_CONFIRMED: u32 = 1 << 3;

/// What happened.
#[derive(Clone, Debug, PartialEq)]
pub enum Body {
    /// At an interface: `ingress` entered the stack there, else it left.
    Seen {
        /// tc ingress or egress.
        ingress: bool,
        /// Headers (inner ones inside a tunnel).
        packet: Packet,
        /// Outer headers.
        tunnel: Option<Tunnel>,
        /// Segments of a GSO packet, 0 or 1 otherwise.
        gso_segs: u16,
    },
    /// `nf_nat_manip_pkt` is about to rewrite (`done` false) or has (`done`).
    Nat {
        /// Headers before; after where `done`.
        packet: Packet,
        /// Address and port to be written.
        to: (IpAddr, u16),
        /// The source is rewritten, else the destination.
        source: bool,
        /// In the connection's reply direction: an earlier rewrite is undone.
        reply: bool,
        /// Address of the conntrack entry.
        ct: u64,
        /// A MASQUERADE target chose the translation.
        masquerade: bool,
        /// Observed after the rewrite.
        done: bool,
    },
    /// A conntrack entry.
    Conntrack {
        /// How it became known.
        how: CtSource,
        /// Original direction, before rewrites.
        original: CtTuple,
        /// Reply direction, as answers look on the wire.
        reply: CtTuple,
        /// Address of the entry, 0 where dumped.
        ct: u64,
        /// `IPS_*` bits.
        status: u32,
        /// `ct->mark`.
        mark: u32,
        /// Zone.
        zone: u16,
        /// A MASQUERADE target chose the translation.
        masquerade: bool,
    },
    /// A rule asked for a translation of a new connection.
    NatRange {
        /// The connection's original tuple.
        original: CtTuple,
        /// Address and port that the rule asked for.
        to: (IpAddr, u16),
        /// Of the source, else of the destination.
        source: bool,
        /// `NF_NAT_RANGE_*` bits.
        flags: u32,
        /// Address of the conntrack entry.
        ct: u64,
        /// A MASQUERADE target asked.
        masquerade: bool,
    },
    /// Freed as dropped.
    Drop {
        /// Headers as far as they could be read.
        packet: Packet,
        /// `SKB_DROP_REASON_*` without the prefix; none on kernels without.
        reason: Option<Arc<str>>,
        /// Kernel function that freed it.
        function: Arc<str>,
        /// Netfilter hook found on the kernel's stack: PREROUTING, INPUT, ...
        hook: Option<&'static str>,
        /// Outer headers, where it ended inside its tunnel.
        tunnel: Option<Tunnel>,
    },
    /// Answered with an RST or an ICMP error.
    Answer {
        /// The packet that is answered.
        packet: Packet,
        /// Kernel function that answers.
        function: &'static str,
        /// What is sent.
        answer: Answer,
        /// Netfilter hook found on the kernel's stack.
        hook: Option<&'static str>,
        /// Outer headers, where it was answered inside its tunnel.
        tunnel: Option<Tunnel>,
    },
    /// A rule logged the packet.
    Log {
        /// Headers.
        packet: Packet,
        /// The rule's prefix; ends with `...` where it was longer.
        prefix: Arc<str>,
    },
    /// A netfilter hook, or one table of it, gave its verdict.
    Hook {
        /// Headers at entry.
        packet: Packet,
        /// PREROUTING, INPUT, FORWARD, OUTPUT, POSTROUTING.
        hook: &'static str,
        /// Name of the table; none for the hook as a whole.
        table: Option<Arc<str>>,
        /// ACCEPT, DROP, STOLEN, ...
        verdict: &'static str,
        /// Input interface, empty where none.
        input: Arc<str>,
        /// Output interface, empty where none.
        output: Arc<str>,
        /// `skb->mark` at return.
        mark_after: Option<u32>,
    },
    /// An nft rule's immediate verdict: a jump into a chain, accept, drop.
    Chain {
        /// JUMP, GOTO, ACCEPT, DROP, RETURN, ...
        verdict: &'static str,
        /// Target chain of a jump or goto, else empty.
        chain: Arc<str>,
    },
    /// Given a next hop, or refused one.
    Route {
        /// Headers.
        packet: Packet,
        /// Output interface.
        dev: Arc<str>,
        /// Next hop.
        via: Option<IpAddr>,
        /// `RTN_*` in lower case: unicast, local, blackhole, ...
        kind: &'static str,
        /// The route forbids it: blackhole, unreachable, prohibit.
        error: bool,
    },
    /// Handed to a socket's protocol on this machine.
    Deliver {
        /// Headers.
        packet: Packet,
    },
    /// About to be put into a tunnel.
    Encap {
        /// Inner headers.
        packet: Packet,
        /// Outer headers, ports 0 where not yet known.
        tunnel: Tunnel,
    },
}

/// What a packet was answered with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// A TCP reset, on behalf of a socket or because there is none.
    TcpReset {
        /// A socket was known.
        socket: bool,
    },
    /// A TCP reset sent by a REJECT rule.
    RuleReset,
    /// An ICMP or `ICMPv6` error.
    Icmp {
        /// ICMP type.
        kind: u8,
        /// ICMP code.
        code: u8,
        /// MTU for "fragmentation needed" and "packet too big".
        info: u32,
        /// `ICMPv6`.
        v6: bool,
    },
}

impl Body {
    /// The packet's headers, where the event has them.
    pub fn packet(&self) -> Option<&Packet> {
        match self {
            Self::Seen { packet, .. }
            | Self::Nat { packet, .. }
            | Self::Drop { packet, .. }
            | Self::Answer { packet, .. }
            | Self::Hook { packet, .. }
            | Self::Route { packet, .. }
            | Self::Deliver { packet }
            | Self::Log { packet, .. }
            | Self::Encap { packet, .. } => Some(packet),
            Self::Conntrack { .. } | Self::NatRange { .. } | Self::Chain { .. } => None,
        }
    }
}

/// Gives endpoints their names: implemented over the inventory, or by nothing.
pub trait Namer {
    /// The endpoint with its name, where one is known.
    fn endpoint(&self, addr: IpAddr, port: Option<u16>) -> Endpoint;
    /// Whether the address belongs to a node (its own, or its VTEP's).
    fn is_node(&self, addr: IpAddr) -> bool;
    /// The node (by name) that has this pod or node address, where known.
    fn node_of(&self, addr: IpAddr) -> Option<Arc<str>>;
}
