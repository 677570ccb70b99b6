//! Which namespaces are nodes, which are pods, and which interfaces to watch.
//!
//! A node holds an `InternalIP` of the inventory; or it forwards, and has a
//! tunnel or pods behind veths. A pod is a namespace whose default route leads
//! through a veth, and which nothing hangs off in turn.

use std::collections::HashMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;

use crate::inventory::Inventory;
use crate::netlink::{Address, Link, Route};
use crate::netns::{self, NetNs};
use crate::trace::{Interface, Node, Role};

mod classify;
mod gather;
mod names;
#[cfg(test)]
mod tests;
mod watch;

pub use gather::{Facts, gather};
pub use names::Names;
pub use watch::{Watch, endpoints, watch_list};

/// A link with its role.
#[derive(Clone, Debug)]
pub struct NodeLink {
    /// As the kernel tells it.
    pub link: Link,
    /// What it is to the node.
    pub role: Role,
    /// Inode of the namespace that the other end of a veth is in.
    pub peer: Option<u32>,
}

/// A namespace that forwards for pods.
#[derive(Clone, Debug)]
pub struct NodeNs {
    /// Name.
    pub name: Arc<str>,
    /// Inode.
    pub netns: u32,
    /// The open namespace.
    pub ns: Arc<NetNs>,
    /// Its addresses, without loopback and link-local ones.
    pub addrs: Vec<IpAddr>,
    /// Its links.
    pub links: Vec<NodeLink>,
    /// Addresses with a route of their own: (address, ifindex).
    pub host_routes: Vec<(IpAddr, u32)>,
}

/// A pod's namespace.
#[derive(Clone, Debug)]
pub struct PodNs {
    /// Inode.
    pub netns: u32,
    /// The open namespace.
    pub ns: Arc<NetNs>,
    /// Its addresses.
    pub addrs: Vec<IpAddr>,
    /// Index into [`Discovery::nodes`].
    pub node: usize,
    /// Index of the host end of its veth, in the node.
    pub ifindex: u32,
    /// Name of the host end.
    pub iface: Arc<str>,
    /// Index of the pod's end, in the pod.
    pub pod_ifindex: u32,
    /// Name of the pod's end.
    pub pod_iface: Arc<str>,
}

/// What was found.
#[derive(Clone, Debug, Default)]
pub struct Discovery {
    /// Nodes by name.
    pub nodes: Vec<NodeNs>,
    /// Pods.
    pub pods: Vec<PodNs>,
    /// Sentences about what was passed over.
    pub skipped: Vec<String>,
}

/// A node given by hand: name, and path of its namespace.
pub type Override = (String, PathBuf);

/// Parses `--netns NAME=PATH`.
pub fn parse_override(text: &str) -> Result<Override, String> {
    match text.split_once('=') {
        Some((name, path)) if !name.is_empty() && !path.is_empty() => {
            Ok((name.to_owned(), PathBuf::from(path)))
        }
        _ => Err(format!("malformed --netns {text:?}; write NAME=PATH")),
    }
}

/// A namespace given by hand that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("cannot open namespace {name} at {}: {source}; give --netns NAME=PATH of a file such as /run/netns/NAME or /proc/PID/ns/net", path.display())]
pub struct OverrideError {
    name: String,
    path: PathBuf,
    source: std::io::Error,
}

/// Looks at every namespace there is. With `overrides`, exactly those are nodes.
pub fn discover(
    overrides: &[Override],
    inventory: Option<&Inventory>,
) -> Result<Discovery, OverrideError> {
    let mut listing = netns::list();
    let mut forced = HashMap::new();
    for (name, path) in overrides {
        let ns = NetNs::open_named(name, path).map_err(|source| OverrideError {
            name: name.clone(),
            path: path.clone(),
            source,
        })?;
        forced.insert(ns.inode, name.clone());
        if listing.found.iter().all(|known| known.inode != ns.inode) {
            listing.found.push(ns);
        }
    }
    let (facts, mut skipped) = gather(listing.found);
    skipped.splice(0..0, listing.skipped);
    let mut discovery = classify::classify(&facts, &forced, inventory);
    discovery.skipped.splice(0..0, skipped);
    Ok(discovery)
}

impl Discovery {
    /// The nodes in the public form, with the watched interfaces.
    pub fn public_nodes(&self, watched: &[Watch]) -> Vec<Node> {
        let of = |node: usize| {
            let here = watched.iter().filter(move |w| w.node == node);
            here.map(|w| Interface {
                name: Arc::clone(&w.name),
                ifindex: w.ifindex,
                role: w.role,
            })
        };
        let nodes = self.nodes.iter().enumerate();
        nodes
            .map(|(i, node)| Node {
                name: Arc::clone(&node.name),
                netns: node.netns,
                addrs: node.addrs.clone(),
                interfaces: of(i).collect(),
            })
            .collect()
    }

    /// UDP ports of all VXLAN devices.
    pub fn vxlan_ports(&self) -> Vec<u16> {
        let links = self.nodes.iter().flat_map(|n| &n.links);
        let mut ports: Vec<u16> = links.filter_map(|l| l.link.vxlan_port).collect();
        ports.sort_unstable();
        ports.dedup();
        ports
    }
}

/// Whether an address tells one namespace from another.
fn is_own(addr: IpAddr) -> bool {
    match addr {
        IpAddr::V4(v4) => !v4.is_loopback() && !v4.is_link_local(),
        IpAddr::V6(v6) => !v6.is_loopback() && !v6.is_unicast_link_local(),
    }
}

/// Host routes through a device.
fn host_routes(routes: &[Route]) -> Vec<(IpAddr, u32)> {
    let hosts = routes.iter().filter(|r| r.is_host() && r.oif != 0);
    hosts.map(|r| (r.dst, r.oif)).collect()
}

fn own_addrs(addrs: &[Address], skip: impl Fn(u32) -> bool) -> Vec<IpAddr> {
    let mut own = Vec::new();
    for a in addrs.iter().filter(|a| is_own(a.addr) && !skip(a.ifindex)) {
        if !own.contains(&a.addr) {
            own.push(a.addr);
        }
    }
    own
}
