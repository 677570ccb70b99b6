//! What rules ask about the host: kinds of addresses, the way back.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use super::model::Net;
use super::route::{self, RouteKind};
use crate::state::Namespace;

/// What the host knows about addresses and routes.
pub trait Local {
    /// The kind of an address, by the local table alone, as the `addrtype` match
    /// asks (`inet_addr_type`, `net/ipv4/fib_frontend.c`); with an interface, an
    /// address of another one is [`AddrType::Unicast`]. `None` if it was not read.
    fn addr_type(&self, addr: IpAddr, dev: Option<&str>) -> Option<AddrType>;

    /// Where an answer from `dst` to `src` would go. `None` if it cannot be told.
    fn route_back(&self, src: IpAddr, dst: IpAddr, mark: u32) -> Option<RouteBack>;

    /// The address that an interface would lend to translated packets, where
    /// there is no choice.
    fn address(&self, dev: &str, ipv6: bool) -> Option<IpAddr>;
}

/// The kind of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddrType {
    /// Of the host.
    Local,
    /// Of all hosts on a link.
    Broadcast,
    /// Of a group.
    Multicast,
    /// Of the nearest of several.
    Anycast,
    /// Any other.
    Unicast,
}

impl AddrType {
    /// As rules name it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Local => "LOCAL",
            Self::Broadcast => "BROADCAST",
            Self::Multicast => "MULTICAST",
            Self::Anycast => "ANYCAST",
            Self::Unicast => "UNICAST",
        }
    }
}

/// Where an answer would go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RouteBack {
    /// Through one of these interfaces.
    Devices(Vec<Arc<str>>),
    /// To the host itself.
    Local,
    /// Nowhere.
    None,
}

impl Local for Namespace {
    fn addr_type(&self, addr: IpAddr, dev: Option<&str>) -> Option<AddrType> {
        match addr {
            IpAddr::V4(a) if a.octets()[0] == 0 || a == Ipv4Addr::BROADCAST => {
                return Some(AddrType::Broadcast);
            }
            a if a.is_multicast() => return Some(AddrType::Multicast),
            _ => {}
        }
        let is_local_table = |r: &&crate::state::Route| {
            r.table == route::TABLE_LOCAL && r.dst.is_ipv4() == addr.is_ipv4()
        };
        if self.routes.iter().any(|r| is_local_table(&r)) {
            let table = self.routes.iter().filter(is_local_table);
            let Some(found) = route::best(table, addr) else {
                return Some(AddrType::Unicast);
            };
            if dev.is_some_and(|dev| found.dev.as_deref() != Some(dev)) {
                return Some(AddrType::Unicast);
            }
            return Some(match &*found.kind {
                "local" => AddrType::Local,
                "broadcast" => AddrType::Broadcast,
                "anycast" => AddrType::Anycast,
                "multicast" => AddrType::Multicast,
                _ => AddrType::Unicast,
            });
        }
        by_addresses(self, addr, dev)
    }

    fn route_back(&self, src: IpAddr, dst: IpAddr, mark: u32) -> Option<RouteBack> {
        if self.routes.is_empty() {
            return None;
        }
        let from = (!dst.is_multicast()).then_some(dst);
        let answer = route::lookup(self, src, from, None, mark);
        match answer.kind {
            RouteKind::Unicast => {
                let route = answer.route?;
                let beside = self.routes.iter().filter(|r| {
                    (r.table, r.dst, r.prefix, r.metric)
                        == (route.table, route.dst, route.prefix, route.metric)
                });
                Some(RouteBack::Devices(
                    beside.filter_map(|r| r.dev.clone()).collect(),
                ))
            }
            RouteKind::Local => Some(RouteBack::Local),
            RouteKind::Unknown(_) => None,
            _ => Some(RouteBack::None),
        }
    }

    fn address(&self, dev: &str, ipv6: bool) -> Option<IpAddr> {
        let fits = |addr: &IpAddr| match addr {
            IpAddr::V4(_) => !ipv6,
            IpAddr::V6(a) => ipv6 && !a.is_unicast_link_local(),
        };
        let addrs = self.link(dev)?.addrs.iter().map(|a| a.addr);
        let mut addrs = addrs.filter(fits);
        let first = addrs.next();
        first.filter(|_| addrs.next().is_none())
    }
}

/// Without the local table, the interfaces' addresses have to do.
fn by_addresses(ns: &Namespace, addr: IpAddr, dev: Option<&str>) -> Option<AddrType> {
    if ns.links.is_empty() {
        return None;
    }
    let seen = |name: &str| dev.is_none_or(|dev| dev == name);
    if addr.is_loopback() && seen("lo") {
        return Some(AddrType::Local);
    }
    for link in ns.links.iter().filter(|l| seen(&l.name)) {
        for own in &link.addrs {
            if own.addr == addr {
                return Some(AddrType::Local);
            }
            let IpAddr::V4(asked) = addr else {
                continue;
            };
            let net = Net::parse(&format!("{}/{}", own.addr, own.prefix));
            let is_last = |net: Net| {
                let hosts = !(net.mask as u32);
                net.contains(addr) && asked.to_bits() & hosts == hosts
            };
            if own.prefix < 31 && net.is_some_and(is_last) {
                return Some(AddrType::Broadcast);
            }
        }
    }
    Some(AddrType::Unicast)
}
