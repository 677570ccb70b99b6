//! Links, addresses and routes (rtnetlink), and news about links.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;

use super::{Attrs, Message, Socket, Value, collect, messages};

// include/uapi/linux/rtnetlink.h
const RTM_NEWLINK: u16 = 16;
const RTM_DELLINK: u16 = 17;
const RTM_GETLINK: u16 = 18;
const RTM_NEWADDR: u16 = 20;
const RTM_GETADDR: u16 = 22;
const RTM_NEWROUTE: u16 = 24;
const RTM_GETROUTE: u16 = 26;
const RTA_DST: u16 = 1;
const RTA_OIF: u16 = 4;
const RTA_GATEWAY: u16 = 5;
const RTA_PRIORITY: u16 = 6;
const RTA_PREFSRC: u16 = 7;
const RTA_MULTIPATH: u16 = 9;
const RTA_TABLE: u16 = 15;
const RTA_VIA: u16 = 18;
const RTM_F_CLONED: u32 = 0x200;
const RTMGRP_LINK: u32 = 1;
// include/uapi/linux/if_link.h
const IFLA_ADDRESS: u16 = 1;
const IFLA_IFNAME: u16 = 3;
const IFLA_MTU: u16 = 4;
const IFLA_LINK: u16 = 5;
const IFLA_MASTER: u16 = 10;
const IFLA_LINKINFO: u16 = 18;
const IFLA_LINK_NETNSID: u16 = 37;
const IFLA_INFO_KIND: u16 = 1;
const IFLA_INFO_DATA: u16 = 2;
const IFLA_VXLAN_ID: u16 = 1;
const IFLA_VXLAN_LINK: u16 = 3;
const IFLA_VXLAN_LOCAL: u16 = 4;
const IFLA_VXLAN_PORT: u16 = 15;
const IFLA_VXLAN_LOCAL6: u16 = 17;
const IFLA_IPTUN_LINK: u16 = 1;
const IFLA_IPTUN_LOCAL: u16 = 2;
// include/uapi/linux/if_addr.h
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;

/// An interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Link {
    /// Index.
    pub ifindex: u32,
    /// Name.
    pub name: Arc<str>,
    /// Driver kind (`veth`, `vxlan`, `bridge`, ...), empty where there is none.
    pub kind: Arc<str>,
    /// `ARPHRD_*`.
    pub arphrd: u16,
    /// Administratively up.
    pub up: bool,
    /// MTU.
    pub mtu: u32,
    /// Ethernet address.
    pub mac: Option<Arc<str>>,
    /// `IFLA_LINK`: of a veth, the peer's index; of a tunnel, its device.
    pub link: Option<u32>,
    /// `IFLA_LINK_NETNSID`: the id, in this namespace, of that of `link`. Absent
    /// where both are in this one.
    pub link_netnsid: Option<u32>,
    /// Bridge or bond it belongs to.
    pub master: Option<u32>,
    /// Local address of a tunnel.
    pub local: Option<IpAddr>,
    /// VXLAN network identifier.
    pub vxlan_id: Option<u32>,
    /// VXLAN destination port.
    pub vxlan_port: Option<u16>,
}

/// An address of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    /// Interface.
    pub ifindex: u32,
    /// Address.
    pub addr: IpAddr,
    /// Length of its prefix.
    pub prefix: u8,
}

/// A route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// Destination, the unspecified address for a default route.
    pub dst: IpAddr,
    /// Prefix length.
    pub len: u8,
    /// Output interface, 0 where there is none.
    pub oif: u32,
    /// Next hop.
    pub gateway: Option<IpAddr>,
    /// `RTN_*`: 1 unicast, 2 local, 6 blackhole, ...
    pub kind: u8,
    /// Table; 254 is main.
    pub table: u32,
    /// Preferred source.
    pub src: Option<IpAddr>,
    /// Priority, 0 first.
    pub metric: u32,
}

impl Route {
    /// A unicast default route.
    pub fn is_default(&self) -> bool {
        self.len == 0 && self.kind == 1
    }

    /// A unicast route to one address.
    pub fn is_host(&self) -> bool {
        self.kind == 1 && self.len == if self.dst.is_ipv4() { 32 } else { 128 }
    }
}

pub(super) fn word(body: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*body.get(at..)?.first_chunk()?))
}

/// `struct ifinfomsg`, 16 bytes: family, pad, type, index, flags, change.
pub(super) fn parse_link(m: Message<'_>) -> Option<Link> {
    if m.kind != RTM_NEWLINK && m.kind != RTM_DELLINK {
        return None;
    }
    let mut link = Link {
        arphrd: (word(m.body, 0)? >> 16) as u16,
        ifindex: word(m.body, 4)?,
        up: word(m.body, 8)? & libc::IFF_UP as u32 != 0,
        ..Link::default()
    };
    for (kind, value) in Attrs(m.body.get(16..)?) {
        match kind {
            IFLA_ADDRESS => link.mac = value.mac(),
            IFLA_IFNAME => link.name = value.text(),
            IFLA_MTU => link.mtu = value.u32().unwrap_or(0),
            IFLA_LINK => link.link = value.u32().filter(|i| *i != 0),
            IFLA_MASTER => link.master = value.u32(),
            IFLA_LINK_NETNSID => link.link_netnsid = value.u32(),
            IFLA_LINKINFO => link_info(&mut link, value.nested()),
            _ => {}
        }
    }
    Some(link)
}

fn link_info(link: &mut Link, info: Attrs<'_>) {
    for (kind, value) in info {
        match kind {
            IFLA_INFO_KIND => link.kind = value.text(),
            IFLA_INFO_DATA => link_data(link, value.nested()),
            _ => {}
        }
    }
}

/// The kernel puts the kind before the data (`rtnl_link_fill`).
fn link_data(link: &mut Link, data: Attrs<'_>) {
    let kind = Arc::clone(&link.kind);
    for (attr, value) in data {
        match (&*kind, attr) {
            ("vxlan", IFLA_VXLAN_ID) => link.vxlan_id = value.u32(),
            ("vxlan", IFLA_VXLAN_PORT) => link.vxlan_port = value.be16(),
            ("vxlan", IFLA_VXLAN_LOCAL | IFLA_VXLAN_LOCAL6)
            | ("ipip" | "sit" | "ip6tnl", IFLA_IPTUN_LOCAL) => {
                link.local = value.addr().filter(|a| !a.is_unspecified());
            }
            ("vxlan", IFLA_VXLAN_LINK) | ("ipip" | "sit" | "ip6tnl", IFLA_IPTUN_LINK) => {
                link.link = value.u32().filter(|i| *i != 0).or(link.link);
            }
            _ => {}
        }
    }
}

/// `struct ifaddrmsg`, 8 bytes: family, prefixlen, flags, scope, index.
fn parse_address(m: Message<'_>) -> Option<Address> {
    if m.kind != RTM_NEWADDR {
        return None;
    }
    let (mut addr, mut local) = (None, None);
    for (kind, value) in Attrs(m.body.get(8..)?) {
        match kind {
            IFA_ADDRESS => addr = value.addr(),
            // On point-to-point links IFA_ADDRESS is the other end's.
            IFA_LOCAL => local = value.addr(),
            _ => {}
        }
    }
    Some(Address {
        ifindex: word(m.body, 4)?,
        addr: local.or(addr)?,
        prefix: *m.body.get(1)?,
    })
}

/// The next hop's address, where the attribute is one.
fn gateway(kind: u16, value: Value<'_>) -> Option<IpAddr> {
    match kind {
        RTA_GATEWAY => value.addr(),
        // struct rtvia: family, address.
        RTA_VIA => Value(value.0.get(2..)?).addr(),
        _ => None,
    }
}

/// `struct rtmsg`, 12 bytes: family, `dst_len`, `src_len`, tos, table, protocol,
/// scope, type, flags.
/// One route per next hop.
fn parse_route(m: Message<'_>) -> Option<Vec<Route>> {
    if m.kind != RTM_NEWROUTE || word(m.body, 8)? & RTM_F_CLONED != 0 {
        return None;
    }
    let any: IpAddr = match i32::from(*m.body.first()?) {
        libc::AF_INET => Ipv4Addr::UNSPECIFIED.into(),
        libc::AF_INET6 => Ipv6Addr::UNSPECIFIED.into(),
        _ => return None,
    };
    let mut route = Route {
        dst: any,
        len: *m.body.get(1)?,
        oif: 0,
        gateway: None,
        kind: *m.body.get(7)?,
        table: u32::from(*m.body.get(4)?),
        src: None,
        metric: 0,
    };
    let mut next_hops: &[u8] = &[];
    for (kind, value) in Attrs(m.body.get(12..)?) {
        match kind {
            RTA_DST => route.dst = value.addr()?,
            RTA_OIF => route.oif = value.u32()?,
            RTA_GATEWAY | RTA_VIA => route.gateway = gateway(kind, value),
            RTA_TABLE => route.table = value.u32()?,
            RTA_PREFSRC => route.src = value.addr(),
            RTA_PRIORITY => route.metric = value.u32()?,
            RTA_MULTIPATH => next_hops = value.0,
            _ => {}
        }
    }
    if next_hops.is_empty() {
        return Some(vec![route]);
    }
    // struct rtnexthop: len, flags, hops, ifindex, attributes.
    let mut routes = Vec::new();
    while let (Some(head), Some(oif)) = (word(next_hops, 0), word(next_hops, 4)) {
        let len = (head & 0xffff) as usize;
        let Some(attrs) = next_hops.get(8..len) else {
            break;
        };
        let gateway = Attrs(attrs).find_map(|(kind, value)| gateway(kind, value));
        routes.push(Route {
            oif,
            gateway,
            ..route
        });
        next_hops = next_hops.get(len.next_multiple_of(4)..).unwrap_or_default();
    }
    Some(routes)
}

/// Links of the thread's namespace.
pub fn links() -> io::Result<Vec<Link>> {
    collect(libc::NETLINK_ROUTE, RTM_GETLINK, &[0; 16], parse_link)
}

/// Addresses of the thread's namespace.
pub fn addresses() -> io::Result<Vec<Address>> {
    collect(libc::NETLINK_ROUTE, RTM_GETADDR, &[0; 8], parse_address)
}

/// Routes of the thread's namespace, all tables, both families; one for each
/// next hop.
pub fn routes() -> io::Result<Vec<Route>> {
    let each = |m: Message<'_>| parse_route(m).unwrap_or_default();
    collect(libc::NETLINK_ROUTE, RTM_GETROUTE, &[0; 12], each)
}

/// A link came, changed, or went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkEvent {
    /// New, or changed.
    New(Link),
    /// Gone.
    Deleted(Link),
    /// The socket's buffer overflowed: list the links again.
    Lost,
}

/// News about links of the namespace it was opened in. The descriptor is
/// readable when there is any (for `poll` or tokio's `AsyncFd`).
#[derive(Debug)]
pub struct LinkEvents {
    socket: Socket,
    buffer: Vec<u8>,
}

impl LinkEvents {
    /// Subscribes in the thread's namespace.
    pub fn open() -> io::Result<Self> {
        Ok(Self {
            socket: Socket::open(libc::NETLINK_ROUTE, RTMGRP_LINK)?,
            buffer: vec![0; 32 << 10],
        })
    }

    /// All news there is now, without waiting; empty when there is none.
    pub fn read(&mut self) -> io::Result<Vec<LinkEvent>> {
        let mut events = Vec::new();
        loop {
            let n = match self.socket.receive(&mut self.buffer, libc::MSG_DONTWAIT) {
                Ok(n) => n,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(events),
                Err(e) if e.raw_os_error() == Some(libc::ENOBUFS) => {
                    events.push(LinkEvent::Lost);
                    continue;
                }
                Err(e) => return Err(e),
            };
            for m in messages(self.buffer.get(..n).unwrap_or_default()) {
                match (m.kind, parse_link(m)) {
                    (RTM_NEWLINK, Some(link)) => events.push(LinkEvent::New(link)),
                    (RTM_DELLINK, Some(link)) => events.push(LinkEvent::Deleted(link)),
                    _ => {}
                }
            }
        }
    }
}

impl AsFd for LinkEvents {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl AsRawFd for LinkEvents {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}
