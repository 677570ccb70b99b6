//! Routes: which rule and route a packet gets, and what its next hop is.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use super::model::{bits, prefix_mask, width};
use crate::state::{Fdb, Namespace, Neighbour, PolicyRule, Route};

/// The table of the host's own addresses (`RT_TABLE_LOCAL`).
pub const TABLE_LOCAL: u32 = 255;
/// `RT_TABLE_MAIN`.
const TABLE_MAIN: u32 = 254;
/// `RT_TABLE_DEFAULT`.
const TABLE_DEFAULT: u32 = 253;

/// What a look-up found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteAnswer<'a> {
    /// The rule of `ip rule` that led there; absent where there are only the
    /// default ones, and where nothing was found.
    pub rule: Option<&'a PolicyRule>,
    /// The route; absent where a rule itself decided, and where nothing was found.
    pub route: Option<&'a Route>,
    /// What becomes of the packet.
    pub kind: RouteKind,
}

/// What becomes of a packet by its route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RouteKind {
    /// It is sent on.
    Unicast,
    /// It is for this host.
    Local,
    /// It is for all on a link, this host among them.
    Broadcast,
    /// It is for a group.
    Multicast,
    /// Dropped silently.
    Blackhole,
    /// Rejected: host unreachable.
    Unreachable,
    /// Rejected: administratively prohibited.
    Prohibit,
    /// There is no route: network unreachable.
    NoRoute,
    /// It cannot be told, and why.
    Unknown(Arc<str>),
}

impl RouteKind {
    fn named(kind: &str) -> Self {
        match kind {
            "unicast" => Self::Unicast,
            "local" | "anycast" => Self::Local,
            "broadcast" => Self::Broadcast,
            "multicast" => Self::Multicast,
            "blackhole" => Self::Blackhole,
            "unreachable" => Self::Unreachable,
            "prohibit" => Self::Prohibit,
            other => Self::Unknown(format!("route of type {other}").into()),
        }
    }
}

/// Looks up as the kernel does (`ip-rule(8)`, `ip-route(8)`): rules by priority,
/// in each table the longest prefix, then the lowest metric. A packet made on
/// this host has no input interface; its source may not be chosen yet.
pub fn lookup<'a>(
    ns: &'a Namespace,
    dst: IpAddr,
    src: Option<IpAddr>,
    iif: Option<&str>,
    mark: u32,
) -> RouteAnswer<'a> {
    let of_family = |r: &&PolicyRule| r.ipv6 == dst.is_ipv6();
    let mut rules: Vec<&PolicyRule> = ns.rules.iter().filter(of_family).collect();
    rules.sort_by_key(|r| r.priority);
    if rules.is_empty() {
        for table in [TABLE_LOCAL, TABLE_MAIN, TABLE_DEFAULT] {
            if let Some(route) = in_table(ns, table, dst) {
                return RouteAnswer {
                    rule: None,
                    route: Some(route),
                    kind: RouteKind::named(&route.kind),
                };
            }
        }
    }
    let flow = Flow {
        dst,
        src: src.unwrap_or(unspecified(dst)),
        iif: iif.unwrap_or("lo"),
        mark,
    };
    for rule in rules.into_iter().filter(|r| flow.meets(r)) {
        let kind = match (&*rule.action, rule.table) {
            ("lookup", Some(table)) => match in_table(ns, table, dst) {
                Some(route) => {
                    return RouteAnswer {
                        rule: Some(rule),
                        route: Some(route),
                        kind: RouteKind::named(&route.kind),
                    };
                }
                None => continue,
            },
            ("nop", _) => continue,
            ("blackhole", _) => RouteKind::Blackhole,
            ("unreachable", _) => RouteKind::Unreachable,
            ("prohibit", _) => RouteKind::Prohibit,
            (action, _) => RouteKind::Unknown(format!("rule with action {action}").into()),
        };
        return RouteAnswer {
            rule: Some(rule),
            route: None,
            kind,
        };
    }
    RouteAnswer {
        rule: None,
        route: None,
        kind: RouteKind::NoRoute,
    }
}

struct Flow<'a> {
    dst: IpAddr,
    src: IpAddr,
    iif: &'a str,
    mark: u32,
}

impl Flow<'_> {
    /// `fib_rule_match`, `net/core/fib_rules.c`. No socket is known that would be
    /// bound to an interface, so rules with `oif` do not match.
    fn meets(&self, rule: &PolicyRule) -> bool {
        let selected = rule.iif.as_deref().is_none_or(|iif| iif == self.iif)
            && rule.oif.is_none()
            && rule
                .fwmark
                .is_none_or(|(value, mask)| (value ^ self.mark) & mask == 0)
            && rule.src.is_none_or(|net| within(net, self.src))
            && rule.dst.is_none_or(|net| within(net, self.dst));
        selected != rule.invert
    }
}

fn unspecified(like: IpAddr) -> IpAddr {
    match like {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    }
}

fn within((net, prefix): (IpAddr, u8), addr: IpAddr) -> bool {
    let mask = prefix_mask(u32::from(prefix), width(net));
    net.is_ipv4() == addr.is_ipv4() && (bits(net) ^ bits(addr)) & mask == 0
}

/// The table's route, unless it says `throw`.
fn in_table(ns: &Namespace, table: u32, dst: IpAddr) -> Option<&Route> {
    let routes = ns.routes.iter().filter(|r| r.table == table);
    best(routes, dst).filter(|r| &*r.kind != "throw")
}

/// The longest prefix, then the lowest metric, then the first.
pub(super) fn best<'a>(routes: impl Iterator<Item = &'a Route>, dst: IpAddr) -> Option<&'a Route> {
    routes
        .filter(|r| within((r.dst, r.prefix), dst))
        .min_by_key(|r| (std::cmp::Reverse(r.prefix), r.metric))
}

/// The neighbour with this address on an interface.
pub fn neighbour<'a>(ns: &'a Namespace, dev: &str, addr: IpAddr) -> Option<&'a Neighbour> {
    ns.neighbours
        .iter()
        .find(|n| &*n.dev == dev && n.addr == addr)
}

/// The forwarding entry for a link-layer address on an interface; where there is
/// none, the one for all addresses, which VXLAN devices may have.
pub fn fdb<'a>(ns: &'a Namespace, dev: &str, mac: &str) -> Option<&'a Fdb> {
    let entry = |mac: &str| {
        ns.fdb
            .iter()
            .find(|f| &*f.dev == dev && f.mac.eq_ignore_ascii_case(mac))
    };
    entry(mac).or_else(|| entry("00:00:00:00:00:00"))
}

/// Where a packet goes next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NextHop {
    /// What its route says.
    pub kind: RouteKind,
    /// Output interface.
    pub dev: Option<Arc<str>>,
    /// Address that is asked for on the link: the gateway, or the destination.
    pub via: IpAddr,
    /// Its link-layer address.
    pub mac: Option<Arc<str>>,
    /// Where the outer packet of a tunnel goes.
    pub vtep: Option<IpAddr>,
    /// What is not there that would be needed.
    pub missing: Option<Missing>,
}

/// What a packet lacks to be sent on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// A route.
    Route,
    /// A neighbour; outside of tunnels, it may still be found by asking.
    Neighbour,
    /// The VXLAN device's forwarding entry.
    Fdb,
}

/// Where a packet goes next: route, neighbour, and for VXLAN the forwarding entry.
pub fn next_hop(
    ns: &Namespace,
    dst: IpAddr,
    src: Option<IpAddr>,
    iif: Option<&str>,
    mark: u32,
) -> NextHop {
    let answer = lookup(ns, dst, src, iif, mark);
    let mut hop = NextHop {
        kind: answer.kind,
        dev: answer.route.and_then(|r| r.dev.clone()),
        via: answer.route.and_then(|r| r.via).unwrap_or(dst),
        mac: None,
        vtep: None,
        missing: None,
    };
    if hop.kind == RouteKind::NoRoute {
        hop.missing = Some(Missing::Route);
    }
    let Some(dev) = hop.dev.clone().filter(|_| hop.kind == RouteKind::Unicast) else {
        return hop;
    };
    match ns.link(&dev).map_or("", |l| &*l.kind) {
        "ipip" | "sit" | "gre" | "ip6tnl" => {
            hop.vtep = Some(hop.via);
            return hop;
        }
        // No link-layer addresses.
        "wireguard" | "tun" | "xfrm" => return hop,
        _ => {}
    }
    hop.mac = neighbour(ns, &dev, hop.via).and_then(|n| n.mac.clone());
    let Some(mac) = &hop.mac else {
        hop.missing = Some(Missing::Neighbour);
        return hop;
    };
    if ns.link(&dev).is_some_and(|l| &*l.kind == "vxlan") {
        hop.vtep = fdb(ns, &dev, mac).and_then(|f| f.dst);
        if hop.vtep.is_none() {
            hop.missing = Some(Missing::Fdb);
        }
    }
    hop
}
