//! Tells nodes from pods and everything else. Pure: from facts to a discovery.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;

use super::{Discovery, Facts, NodeLink, NodeNs, PodNs, host_routes, own_addrs};
use crate::inventory::Inventory;
use crate::netlink::{Link, Route};
use crate::trace::Role;

const TUNNELS: &[&str] = &[
    "vxlan",
    "geneve",
    "ipip",
    "sit",
    "ip6tnl",
    "gre",
    "gretap",
    "ip6gre",
    "ip6gretap",
    "erspan",
    "wireguard",
];
/// Kinds with one end in a pod.
const PAIRS: &[&str] = &["veth", "netkit"];

pub(super) fn is_tunnel(link: &Link) -> bool {
    TUNNELS.contains(&&*link.kind)
}

fn is_pair(link: &Link) -> bool {
    PAIRS.contains(&&*link.kind)
}

/// A namespace reached through its default route, over a veth.
struct Parent {
    netns: u32,
    /// The pod's end.
    link: usize,
}

fn parent(facts: &Facts) -> Option<Parent> {
    let routes = facts.routes.iter().filter(|r| r.is_default());
    routes.into_iter().find_map(|route| {
        let link = facts.links.iter().position(|l| l.ifindex == route.oif)?;
        let end = facts.links.get(link).filter(|l| is_pair(l))?;
        let netns = facts.peer(end)?;
        Some(Parent { netns, link })
    })
}

struct World<'a> {
    facts: &'a [Facts],
    at: HashMap<u32, usize>,
    parents: Vec<Option<Parent>>,
    /// Namespaces that others hang off.
    hosts: HashSet<u32>,
}

impl World<'_> {
    /// Namespaces behind the veths of this one that look like pods.
    fn pods_of(&self, node: &Facts) -> Vec<usize> {
        let own = node.ns.inode;
        let children = self.parents.iter().enumerate().filter(|(i, p)| {
            let leaf = !self.hosts.contains(&self.facts[*i].ns.inode);
            leaf && p.as_ref().is_some_and(|p| p.netns == own)
        });
        children.map(|(i, _)| i).collect()
    }

    /// How a pod is wired to its node, if as CNIs do it.
    fn wiring(&self, node: &Facts, pod: usize) -> Option<Wiring> {
        let (parent, facts) = (self.parents[pod].as_ref()?, &self.facts[pod]);
        let end = &facts.links[parent.link];
        let host_end = node
            .links
            .iter()
            .find(|l| Some(l.ifindex) == end.link && node.peer(l) == Some(facts.ns.inode))?;
        let routed = |r: &Route| r.is_host() && r.oif == host_end.ifindex;
        if node.routes.iter().any(routed) {
            return Some(Wiring::Routed);
        }
        host_end.master.map(|_| Wiring::Bridged)
    }

    /// Without an inventory: is it a node? A tunnel, or pods routed by address,
    /// say so plainly. Bridged ones may as well be plain containers, so a
    /// machine that has plain nodes hanging off it is none.
    fn candidates(&self) -> Vec<bool> {
        let plain = |f: &Facts| {
            let mut pods = self.pods_of(f).into_iter();
            // The idle tunl0, gre0, ... that modules make everywhere are down.
            let tunnel = f.links.iter().any(|l| is_tunnel(l) && l.up);
            tunnel || pods.any(|p| self.wiring(f, p) == Some(Wiring::Routed))
        };
        let plain: Vec<bool> = self.facts.iter().map(|f| f.forwards && plain(f)).collect();
        let carries_nodes = |own: u32| {
            let mut all = self.parents.iter().zip(&plain);
            all.any(|(p, plain)| *plain && p.as_ref().is_some_and(|p| p.netns == own))
        };
        let each = self.facts.iter().zip(&plain);
        each.map(|(f, plain)| {
            let mut pods = self.pods_of(f).into_iter();
            let bridged = f.forwards && pods.any(|p| self.wiring(f, p).is_some());
            *plain || (bridged && !carries_nodes(f.ns.inode))
        })
        .collect()
    }
}

/// How the host end of a pod's veth is set up.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wiring {
    /// A route to the pod's address leads into it.
    Routed,
    /// It is a port of a bridge.
    Bridged,
}

fn internal_name(facts: &Facts, inventory: Option<&Inventory>) -> Option<Arc<str>> {
    let node = inventory?.nodes.iter().find(|n| {
        let internal = &n.internal;
        facts.addrs.iter().any(|a| internal.contains(&a.addr))
    })?;
    Some(Arc::clone(&node.name))
}

/// Names the nodes: `None` is not a node.
fn nodes(
    world: &World<'_>,
    forced: &HashMap<u32, String>,
    inventory: Option<&Inventory>,
) -> Vec<Option<Arc<str>>> {
    let facts = world.facts;
    if !forced.is_empty() {
        let name = |f: &Facts| forced.get(&f.ns.inode).map(|n| Arc::from(&**n));
        return facts.iter().map(name).collect();
    }
    let by_inventory: Vec<_> = facts.iter().map(|f| internal_name(f, inventory)).collect();
    // Where the inventory knows this machine's nodes, a machine that carries them
    // in containers must not be taken for one: only pods that the inventory
    // knows as well make another.
    let inventoried = |pod: &usize| {
        let mut addrs = facts[*pod].addrs.iter();
        addrs.any(|a| inventory.is_some_and(|i| i.pod_at(a.addr).is_some()))
    };
    let more: Vec<bool> = if by_inventory.iter().any(Option::is_some) {
        let has_pods = |f: &Facts| world.pods_of(f).iter().any(inventoried);
        facts.iter().map(|f| f.forwards && has_pods(f)).collect()
    } else {
        world.candidates()
    };
    let each = facts.iter().zip(by_inventory).zip(more);
    each.map(|((f, name), is_node)| name.or_else(|| is_node.then(|| own_name(f))))
        .collect()
}

fn own_name(facts: &Facts) -> Arc<str> {
    if let Some(name) = &facts.ns.name {
        return Arc::from(&**name);
    }
    let own = std::process::id() as i32;
    if facts.ns.pid.is_some_and(|pid| pid == 1 || pid == own)
        && let Ok(name) = std::fs::read_to_string("/proc/sys/kernel/hostname")
    {
        return Arc::from(name.trim());
    }
    format!("netns-{}", facts.ns.inode).into()
}

/// Devices that carry the node's own address or lead to other nodes.
fn uplinks(facts: &Facts, internal: &[IpAddr]) -> HashSet<u32> {
    let holding = |addr: &IpAddr| facts.addrs.iter().find(|a| a.addr == *addr);
    let carried = facts.links.iter().filter(|l| is_tunnel(l));
    let local = carried.clone().filter_map(|t| t.local.as_ref());
    let holders = internal.iter().chain(local).filter_map(holding);
    let mut found: HashSet<u32> = holders.map(|a| a.ifindex).collect();
    let defaults = facts.routes.iter().filter(|r| r.is_default());
    found.extend(defaults.map(|r| r.oif));
    found.extend(
        carried
            .filter(|t| t.link_netnsid.is_none())
            .filter_map(|t| t.link),
    );
    let is_inner =
        |l: &&Link| is_tunnel(l) || l.arphrd == libc::ARPHRD_LOOPBACK || &*l.kind == "dummy";
    for inner in facts.links.iter().filter(is_inner) {
        found.remove(&inner.ifindex);
    }
    found
}

fn role(facts: &Facts, link: &Link, uplinks: &HashSet<u32>) -> Role {
    let foreign = link.link_netnsid.is_some();
    match &*link.kind {
        _ if uplinks.contains(&link.ifindex) => Role::Uplink,
        _ if is_tunnel(link) && link.up => Role::Tunnel,
        "bridge" => Role::Bridge,
        // The kernel leaves the id out only where both ends are in here.
        _ if is_pair(link) && (foreign || facts.peer(link).is_some()) => Role::PodVeth,
        _ => Role::Other,
    }
}

fn node(facts: &Facts, name: Arc<str>, inventory: Option<&Inventory>) -> NodeNs {
    let listed = inventory.iter().flat_map(|i| &i.nodes);
    let internal: Vec<IpAddr> = listed
        .filter(|n| n.name == name)
        .flat_map(|n| n.internal.iter().copied())
        .collect();
    let uplinks = uplinks(facts, &internal);
    let links = facts.links.iter().map(|link| NodeLink {
        role: role(facts, link, &uplinks),
        peer: facts.peer(link),
        link: link.clone(),
    });
    // kube-proxy's IPVS mode puts every ClusterIP on a dummy device.
    let dummy = |ifindex| {
        let mut all = facts.links.iter();
        all.any(|l| l.ifindex == ifindex && &*l.kind == "dummy")
    };
    let mut addrs = own_addrs(&facts.addrs, dummy);
    addrs.sort_by_key(|a| !internal.contains(a));
    NodeNs {
        name,
        netns: facts.ns.inode,
        ns: Arc::clone(&facts.ns),
        addrs,
        links: links.collect(),
        host_routes: host_routes(&facts.routes),
    }
}

pub(super) fn classify(
    facts: &[Facts],
    forced: &HashMap<u32, String>,
    inventory: Option<&Inventory>,
) -> Discovery {
    let at = facts.iter().enumerate().map(|(i, f)| (f.ns.inode, i));
    let parents: Vec<_> = facts.iter().map(parent).collect();
    let world = World {
        at: at.collect(),
        hosts: parents.iter().flatten().map(|p| p.netns).collect(),
        parents,
        facts,
    };
    let names = nodes(&world, forced, inventory);
    let mut discovery = Discovery::default();
    for (f, name) in facts.iter().zip(&names) {
        if let Some(name) = name {
            discovery.nodes.push(node(f, Arc::clone(name), inventory));
        }
    }
    discovery
        .nodes
        .sort_by(|a, b| (&a.name, a.netns).cmp(&(&b.name, b.netns)));
    let is_node: HashSet<u32> = discovery.nodes.iter().map(|n| n.netns).collect();
    for (index, node) in discovery.nodes.iter().enumerate() {
        for host_end in node.links.iter().filter(|l| l.role == Role::PodVeth) {
            let Some(peer) = host_end.peer.filter(|p| !is_node.contains(p)) else {
                continue;
            };
            let Some(pod) = world.at.get(&peer).map(|i| &facts[*i]) else {
                continue;
            };
            let end = pod
                .links
                .iter()
                .find(|l| Some(l.ifindex) == host_end.link.link);
            let Some(end) = end else { continue };
            discovery.pods.push(PodNs {
                netns: peer,
                ns: Arc::clone(&pod.ns),
                addrs: own_addrs(&pod.addrs, |i| i != end.ifindex),
                node: index,
                ifindex: host_end.link.ifindex,
                iface: Arc::clone(&host_end.link.name),
                pod_ifindex: end.ifindex,
                pod_iface: Arc::clone(&end.name),
            });
        }
    }
    discovery
}
