//! From the kernel's bytes to [`Event`]s: the only user-side module that knows
//! the records' layout, and where numbers become names.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use tracer_common::event as raw;
use tracer_common::event::kind;
use tracer_common::tuple::{Addr, Tuple, to_bytes};

use crate::event::{Answer, Body, CtSource, CtTuple, Event, Packet};
use crate::kallsyms::Kallsyms;
use crate::trace::{Role, Tunnel};

/// Where an interface is.
#[derive(Clone, Debug)]
pub struct Place {
    /// Node name.
    pub node: Arc<str>,
    /// Interface name.
    pub iface: Arc<str>,
    /// What it is to its node.
    pub role: Role,
}

/// Addresses of a kernel stack, innermost first, by the stack map's id.
pub type Stacks = Box<dyn Fn(u32) -> Vec<u64>>;

/// Decodes records of one run.
pub struct Decoder {
    places: HashMap<(u32, u32), Place>,
    nodes: HashMap<u32, Arc<str>>,
    reasons: HashMap<u32, Arc<str>>,
    symbols: Arc<Kallsyms>,
    functions: HashMap<u64, Arc<str>>,
    stacks: Stacks,
    hooks: HashMap<i32, Option<&'static str>>,
    boot_to_epoch_ns: i64,
    empty: Arc<str>,
    tables: HashMap<[u8; 32], Arc<str>>,
    last_netns: u32,
    /// Records that were too short or of an unknown kind.
    pub undecoded: u64,
}

impl Decoder {
    /// A decoder for this kernel.
    pub fn new(
        symbols: Arc<Kallsyms>,
        reasons: HashMap<u32, Arc<str>>,
        stacks: Stacks,
        boot_to_epoch_ns: i64,
    ) -> Self {
        Self {
            places: HashMap::new(),
            nodes: HashMap::new(),
            reasons,
            symbols,
            functions: HashMap::new(),
            stacks,
            hooks: HashMap::new(),
            boot_to_epoch_ns,
            empty: Arc::from(""),
            tables: HashMap::new(),
            last_netns: 0,
            undecoded: 0,
        }
    }

    /// Names a namespace.
    pub fn set_node(&mut self, netns: u32, node: &Arc<str>) {
        self.nodes.insert(netns, node.clone());
    }

    /// Names an interface.
    pub fn set_place(&mut self, netns: u32, ifindex: u32, place: Place) {
        self.places.insert((netns, ifindex), place);
    }

    /// Inode of the namespace that the last record came from, 0 where unknown.
    pub fn last_netns(&self) -> u32 {
        self.last_netns
    }

    /// Boot-time nanoseconds as nanoseconds since the Unix epoch.
    pub fn epoch(&self, boot_ns: u64) -> u64 {
        boot_ns.wrapping_add_signed(self.boot_to_epoch_ns)
    }

    /// Decodes one record; `None` (and counted) where it makes no sense.
    pub fn decode(&mut self, bytes: &[u8]) -> Option<Event> {
        let event = self.try_decode(bytes);
        if event.is_none() {
            self.undecoded += 1;
        }
        event
    }

    #[allow(clippy::too_many_lines, reason = "one short arm for each kind")]
    fn try_decode(&mut self, bytes: &[u8]) -> Option<Event> {
        let header: raw::Header = read(bytes)?;
        self.last_netns = header.netns;
        let flags = header.flags;
        let body = match header.kind {
            kind::INGRESS | kind::EGRESS => {
                let event: raw::PacketEvent = read(bytes)?;
                Body::Seen {
                    ingress: header.kind == kind::INGRESS,
                    packet: packet(&event.packet, flags),
                    tunnel: (flags & raw::flag::TUNNEL != 0).then(|| tunnel(&event.tunnel)),
                    gso_segs: header.gso_segs,
                }
            }
            kind::DELIVER => {
                let event: raw::PacketEvent = read(bytes)?;
                Body::Deliver {
                    packet: packet(&event.packet, flags),
                }
            }
            kind::ENCAP => {
                let event: raw::PacketEvent = read(bytes)?;
                Body::Encap {
                    packet: packet(&event.packet, flags),
                    tunnel: tunnel(&event.tunnel),
                }
            }
            kind::NAT | kind::NAT_DONE => {
                let event: raw::NatEvent = read(bytes)?;
                Body::Nat {
                    packet: packet(&event.packet, flags),
                    to: (addr(&event.to_addr), event.to_port),
                    source: event.manip == 0,
                    reply: event.ct_dir == 1,
                    ct: event.ct,
                    masquerade: event.masquerade != 0,
                    done: header.kind == kind::NAT_DONE,
                }
            }
            kind::CT_CONFIRMED | kind::CT_CARRIED | kind::CT_DESTROYED => {
                let event: raw::ConntrackEvent = read(bytes)?;
                Body::Conntrack {
                    how: match header.kind {
                        kind::CT_CONFIRMED => CtSource::Confirmed,
                        kind::CT_CARRIED => CtSource::Carried,
                        _ => CtSource::Destroyed,
                    },
                    original: ct_tuple(&event.original),
                    reply: ct_tuple(&event.reply),
                    ct: event.ct,
                    status: event.status,
                    mark: event.mark,
                    zone: event.zone,
                    masquerade: event.masquerade != 0,
                }
            }
            kind::NAT_RANGE => {
                let event: raw::NatRangeEvent = read(bytes)?;
                Body::NatRange {
                    original: ct_tuple(&event.original),
                    to: (addr(&event.min_addr), event.min_port),
                    source: event.manip == 0,
                    flags: event.range_flags,
                    ct: event.ct,
                    masquerade: event.masquerade != 0,
                }
            }
            kind::DROP => {
                let event: raw::DropEvent = read(bytes)?;
                Body::Drop {
                    packet: packet(&event.packet, flags),
                    reason: self.reason(event.reason),
                    function: self.function(event.location),
                    hook: self.stack_hook(event.stack),
                    tunnel: outer(&event.outer, flags),
                }
            }
            kind::ANSWER => {
                let event: raw::AnswerEvent = read(bytes)?;
                let (function, answer) = answer(&event, header_is_v6(&event.packet.tuple))?;
                Body::Answer {
                    packet: packet(&event.packet, flags),
                    function,
                    answer,
                    hook: self.stack_hook(event.stack),
                    tunnel: outer(&event.outer, flags),
                }
            }
            kind::LOG => {
                let event: raw::LogEvent = read(bytes)?;
                Body::Log {
                    packet: packet(&event.packet, flags),
                    prefix: text(bytes_of(&event.prefix)),
                }
            }
            kind::HOOK | kind::TABLE => {
                let event: raw::HookEvent = read(bytes)?;
                Body::Hook {
                    packet: packet(&event.packet, flags),
                    hook: hook_name(event.hook),
                    table: (header.kind == kind::TABLE).then(|| self.name(bytes_of(&event.table))),
                    verdict: verdict_name(event.verdict, header.kind == kind::HOOK),
                    input: self.iface(header.netns, event.in_ifindex),
                    output: self.iface(header.netns, event.out_ifindex),
                    mark_after: (event.has_mark_after != 0).then_some(event.mark_after),
                }
            }
            kind::CHAIN => {
                let event: raw::ChainEvent = read(bytes)?;
                Body::Chain {
                    verdict: rule_verdict_name(event.code),
                    chain: self.name(bytes_of(&event.chain)),
                }
            }
            kind::ROUTE | kind::ROUTE_ERROR => {
                let event: raw::RouteEvent = read(bytes)?;
                Body::Route {
                    packet: packet(&event.packet, flags),
                    dev: self.iface(header.netns, event.out_ifindex),
                    via: (event.gateway != [0; 2]).then(|| addr(&event.gateway)),
                    kind: route_type_name(event.rt_type),
                    error: header.kind == kind::ROUTE_ERROR,
                }
            }
            _ => return None,
        };
        let (node, iface, role) = self.place(header.netns, header.ifindex);
        Some(Event {
            ts: self.epoch(header.ts_ns),
            skb: header.skb,
            flow: header.flow,
            reply: header.dir != 0,
            node,
            iface,
            role,
            len: header.skb_len,
            mark: header.mark,
            body,
        })
    }

    fn place(&self, netns: u32, ifindex: u32) -> (Arc<str>, Arc<str>, Role) {
        if let Some(place) = self.places.get(&(netns, ifindex)) {
            return (place.node.clone(), place.iface.clone(), place.role);
        }
        let node = self.nodes.get(&netns).unwrap_or(&self.empty).clone();
        let iface = if ifindex == 0 {
            self.empty.clone()
        } else {
            Arc::from(format!("if{ifindex}"))
        };
        (node, iface, Role::Other)
    }

    fn iface(&self, netns: u32, ifindex: u32) -> Arc<str> {
        if ifindex == 0 {
            return self.empty.clone();
        }
        self.place(netns, ifindex).1
    }

    /// A drop reason's name from BTF; 0 means the kernel has none.
    fn reason(&self, reason: u32) -> Option<Arc<str>> {
        if reason == 0 {
            return None;
        }
        Some(
            self.reasons
                .get(&reason)
                .cloned()
                // Subsystems number their own reasons in the high half
                // (include/net/dropreason.h).
                .unwrap_or_else(|| Arc::from(format!("{reason:#x}"))),
        )
    }

    fn function(&mut self, address: u64) -> Arc<str> {
        if let Some(name) = self.functions.get(&address) {
            return name.clone();
        }
        let name = self
            .symbols
            .resolve(address)
            .unwrap_or_else(|| Arc::from(format!("{address:#x}")));
        self.functions.insert(address, name.clone());
        name
    }

    /// The netfilter hook that a stack passes through: the caller of
    /// `nf_hook_slow` nearest to the top.
    fn stack_hook(&mut self, id: i32) -> Option<&'static str> {
        if id < 0 {
            return None;
        }
        if let Some(known) = self.hooks.get(&id) {
            return *known;
        }
        let frames = (self.stacks)(id as u32);
        let mut inside = false;
        let mut found = None;
        for frame in frames {
            let name = self.function(frame);
            if inside && let Some(hook) = caller_hook(&name) {
                found = Some(hook);
                break;
            }
            inside |= name.starts_with("nf_hook_slow");
        }
        self.hooks.insert(id, found);
        found
    }

    fn name(&mut self, bytes: &[u8]) -> Arc<str> {
        let mut key = [0; 32];
        let n = bytes
            .iter()
            .position(|b| *b == 0)
            .unwrap_or(bytes.len())
            .min(32);
        key[..n].copy_from_slice(&bytes[..n]);
        if let Some(name) = self.tables.get(&key) {
            return name.clone();
        }
        let name: Arc<str> = Arc::from(String::from_utf8_lossy(&bytes[..n]));
        if self.tables.len() < 65_536 {
            self.tables.insert(key, name.clone());
        }
        name
    }
}

/// The functions that call `nf_hook_slow` (through the inline `NF_HOOK`), by the
/// hook they are at: `net/ipv4/ip_{input,forward,output}.c`, `net/ipv6/...`.
fn caller_hook(function: &str) -> Option<&'static str> {
    let base = function.split('.').next().unwrap_or(function);
    Some(match base {
        "ip_rcv"
        | "ip_list_rcv"
        | "ip_sublist_rcv"
        | "ipv6_rcv"
        | "ipv6_list_rcv"
        | "ip6_sublist_rcv"
        | "ipv6_list_rcv_finish" => "PREROUTING",
        "ip_local_deliver" | "ip6_input" => "INPUT",
        "ip_forward" | "ip6_forward" => "FORWARD",
        "__ip_local_out" | "ip_local_out" | "__ip6_local_out" | "ip6_local_out" | "ip6_xmit"
        | "raw_sendmsg" | "rawv6_sendmsg" => "OUTPUT",
        "ip_output" | "ip_mc_output" | "ip6_output" | "xfrm4_output" | "xfrm6_output" => {
            "POSTROUTING"
        }
        _ => return None,
    })
}

/// Copies a record's type out of the buffer.
fn read<T: Record>(bytes: &[u8]) -> Option<T> {
    if bytes.len() < size_of::<T>() {
        return None;
    }
    // SAFETY: long enough, and every bit pattern is a valid T (`Record`).
    Some(unsafe { bytes.as_ptr().cast::<T>().read_unaligned() })
}

/// The bytes of a name that the kernel side keeps in words.
fn bytes_of(words: &[u64]) -> &[u8] {
    // SAFETY: any u64 is eight valid bytes.
    unsafe { std::slice::from_raw_parts(words.as_ptr().cast(), size_of_val(words)) }
}

/// A record type made of integers and byte arrays.
///
/// # Safety
/// Every bit pattern must be a valid value.
unsafe trait Record: Copy {}

macro_rules! records {
    ($($name:ident),*) => {
        $(
            // SAFETY: integers and byte arrays only, see tracer-common.
            unsafe impl Record for raw::$name {}
        )*
    };
}
records!(
    Header,
    PacketEvent,
    NatEvent,
    ConntrackEvent,
    NatRangeEvent,
    DropEvent,
    AnswerEvent,
    HookEvent,
    ChainEvent,
    RouteEvent,
    LogEvent
);

/// A 16-byte address as it is meant.
pub fn addr(addr: &Addr) -> IpAddr {
    let v6 = Ipv6Addr::from(to_bytes(*addr));
    v6.to_ipv4_mapped()
        .map_or(IpAddr::V6(v6), |v4: Ipv4Addr| IpAddr::V4(v4))
}

fn header_is_v6(tuple: &Tuple) -> bool {
    addr(&tuple.src).is_ipv6()
}

fn ct_tuple(tuple: &Tuple) -> CtTuple {
    CtTuple {
        src: addr(&tuple.src),
        sport: tuple.sport,
        dst: addr(&tuple.dst),
        dport: tuple.dport,
        proto: tuple.proto as u8,
    }
}

fn packet(packet: &raw::Packet, flags: u16) -> Packet {
    Packet {
        src: addr(&packet.tuple.src),
        dst: addr(&packet.tuple.dst),
        sport: packet.tuple.sport,
        dport: packet.tuple.dport,
        proto: packet.tuple.proto as u8,
        seq: packet.seq,
        ack: packet.ack,
        payload_len: packet.payload_len,
        payload_hash: packet.payload_hash,
        ip_id: packet.ip_id,
        frag_offset: u32::from(packet.frag & 0x1fff) * 8,
        more_fragments: packet.frag & 0x8000 != 0,
        l4_flags: packet.l4_flags,
        ttl: packet.ttl,
        quoted: flags & raw::flag::QUOTED != 0,
        truncated: flags & raw::flag::TRUNCATED != 0,
    }
}

fn tunnel(tunnel: &raw::Tunnel) -> Tunnel {
    let vxlan = (tunnel.vni_kind >> 24) as u8 == raw::tunnel::VXLAN;
    let port = |p: u16| (p != 0).then_some(p);
    Tunnel {
        kind: if vxlan { "vxlan" } else { "ipip" }.into(),
        vni: vxlan.then_some(tunnel.vni_kind & 0x00ff_ffff),
        src: addr(&tunnel.src),
        dst: addr(&tunnel.dst),
        sport: port(tunnel.sport),
        dport: port(tunnel.dport),
    }
}

fn outer(outer: &raw::Outer, flags: u16) -> Option<Tunnel> {
    let whole = outer.tunnel().filter(|_| flags & raw::flag::TUNNEL != 0);
    whole.as_ref().map(tunnel)
}

/// A text that fills its room may have been longer.
fn text(bytes: &[u8]) -> Arc<str> {
    let n = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
    let kept = String::from_utf8_lossy(&bytes[..n]);
    if n + 1 >= bytes.len() {
        Arc::from(format!("{kept}..."))
    } else {
        Arc::from(kept)
    }
}

fn answer(event: &raw::AnswerEvent, v6: bool) -> Option<(&'static str, Answer)> {
    Some(match event.what {
        raw::answer::TCP_RESET => (
            if v6 {
                "tcp_v6_send_reset"
            } else {
                "tcp_v4_send_reset"
            },
            Answer::TcpReset {
                socket: event.has_socket != 0,
            },
        ),
        raw::answer::NF_RESET => (
            if v6 {
                "nf_send_reset6"
            } else {
                "nf_send_reset"
            },
            Answer::RuleReset,
        ),
        raw::answer::ICMP | raw::answer::ICMPV6 => {
            let v6 = event.what == raw::answer::ICMPV6;
            (
                if v6 { "icmp6_send" } else { "__icmp_send" },
                Answer::Icmp {
                    kind: event.icmp_type,
                    code: event.icmp_code,
                    info: event.info,
                    v6,
                },
            )
        }
        _ => return None,
    })
}

/// `enum nf_inet_hooks`, `include/uapi/linux/netfilter.h`.
fn hook_name(hook: u8) -> &'static str {
    match hook {
        0 => "PREROUTING",
        1 => "INPUT",
        2 => "FORWARD",
        3 => "OUTPUT",
        4 => "POSTROUTING",
        5 => "INGRESS",
        _ => "unknown",
    }
}

/// What a hook function returned. `nf_hook_slow` returns 1 for "go on", a
/// negative errno for a drop, 0 for stolen or queued; a table returns `NF_*`
/// with an errno in the high half.
fn verdict_name(verdict: i32, whole_hook: bool) -> &'static str {
    if whole_hook {
        return match verdict {
            1 => "ACCEPT",
            0 => "STOLEN",
            v if v < 0 => "DROP",
            _ => "unknown",
        };
    }
    match (verdict & 0xff, verdict >> 16) {
        (0, _) => "DROP",
        (1, _) => "ACCEPT",
        // Dropped on the spot: NF_DROP_REASON, net/netfilter/core.c (6.7, and
        // in stable updates before).
        (2, errno) if errno != 0 => "DROP",
        (2, _) => "STOLEN",
        (3, _) => "QUEUE",
        (4, _) => "REPEAT",
        _ => "unknown",
    }
}

/// `NF_*` and `enum nft_verdicts`, `include/uapi/linux/netfilter/nf_tables.h`.
fn rule_verdict_name(code: i32) -> &'static str {
    match code {
        0 => "DROP",
        1 => "ACCEPT",
        2 => "STOLEN",
        3 => "QUEUE",
        -1 => "CONTINUE",
        -2 => "BREAK",
        -3 => "JUMP",
        -4 => "GOTO",
        -5 => "RETURN",
        _ => "unknown",
    }
}

/// `RTN_*`, `include/uapi/linux/rtnetlink.h`.
fn route_type_name(kind: u32) -> &'static str {
    match kind {
        1 => "unicast",
        2 => "local",
        3 => "broadcast",
        4 => "anycast",
        5 => "multicast",
        6 => "blackhole",
        7 => "unreachable",
        8 => "prohibit",
        9 => "throw",
        10 => "nat",
        _ => "unknown",
    }
}
