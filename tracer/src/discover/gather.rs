//! Reads what there is to know about each namespace: one visit, three dumps.

use std::collections::HashMap;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;

use crate::netlink::{Address, Link, Route, Socket, addresses, links, nsid_of, routes};
use crate::netns::{NetNs, run_in};

/// What a namespace holds.
#[derive(Clone, Debug)]
pub struct Facts {
    /// The open namespace.
    pub ns: Arc<NetNs>,
    /// Links.
    pub links: Vec<Link>,
    /// Addresses.
    pub addrs: Vec<Address>,
    /// Routes of all tables.
    pub routes: Vec<Route>,
    /// Forwards IPv4 or IPv6.
    pub forwards: bool,
    /// Inode by `IFLA_LINK_NETNSID`.
    pub nsids: HashMap<u32, u32>,
}

impl Facts {
    /// Inode of the namespace with the other end of a veth; `None` where that
    /// is in the same namespace or unknown.
    pub fn peer(&self, link: &Link) -> Option<u32> {
        self.nsids.get(&link.link_netnsid?).copied()
    }
}

fn is_set(path: &str) -> bool {
    std::fs::read(path).is_ok_and(|text| text.first().is_some_and(|b| *b != b'0'))
}

fn visit(ns: &Arc<NetNs>, all: &[Arc<NetNs>]) -> io::Result<Facts> {
    let links = links()?;
    let mut nsids = HashMap::new();
    if links.iter().any(|l| l.link_netnsid.is_some()) {
        let mut socket = Socket::open(libc::NETLINK_ROUTE, 0)?;
        for other in all {
            if let Ok(Some(id)) = nsid_of(&mut socket, other.file.as_fd()) {
                nsids.insert(id, other.inode);
            }
            if links
                .iter()
                .filter_map(|l| l.link_netnsid)
                .all(|id| nsids.contains_key(&id))
            {
                break;
            }
        }
    }
    Ok(Facts {
        ns: Arc::clone(ns),
        links,
        addrs: addresses()?,
        routes: routes()?,
        // /proc/sys/net shows the namespace of the thread that opens it.
        forwards: is_set("/proc/sys/net/ipv4/ip_forward")
            || is_set("/proc/sys/net/ipv6/conf/all/forwarding"),
        nsids,
    })
}

/// Visits each namespace. What cannot be read is left out, with the reason.
pub fn gather(found: Vec<NetNs>) -> (Vec<Facts>, Vec<String>) {
    let all: Vec<Arc<NetNs>> = found.into_iter().map(Arc::new).collect();
    let (mut facts, mut skipped) = (Vec::new(), Vec::new());
    for ns in &all {
        match run_in(ns, || visit(ns, &all)).and_then(|visited| visited) {
            Ok(visited) => facts.push(visited),
            Err(e) => {
                let name = ns.name.as_deref().unwrap_or("without a name");
                skipped.push(format!("namespace {name} (netns {}): {e}", ns.inode));
            }
        }
    }
    (facts, skipped)
}
