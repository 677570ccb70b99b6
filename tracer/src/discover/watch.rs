//! Which interfaces to attach to for a request.

use std::collections::HashSet;
use std::net::IpAddr;
use std::sync::Arc;

use super::{Discovery, NodeNs};
use crate::inventory::{Inventory, Lookup};
use crate::target::Request;
use crate::trace::Role;

/// An interface to attach to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Watch {
    /// Index into [`Discovery::nodes`].
    pub node: usize,
    /// Interface.
    pub ifindex: u32,
    /// Its name.
    pub name: Arc<str>,
    /// What it is.
    pub role: Role,
    /// Packets there have no link-layer header (IP-in-IP, `WireGuard`).
    pub l3: bool,
}

/// Where the pod with an address hangs.
enum Place {
    /// (node, ifindex) of its veth's host end.
    Veth(usize, u32),
    /// It needs no veth: a node's own address, or no pod of these nodes.
    Elsewhere,
    Unknown,
}

fn place(discovery: &Discovery, inventory: Option<&Inventory>, addr: IpAddr) -> Place {
    if let Some(pod) = discovery.pods.iter().find(|p| p.addrs.contains(&addr)) {
        return Place::Veth(pod.node, pod.ifindex);
    }
    for (index, node) in discovery.nodes.iter().enumerate() {
        if node.addrs.contains(&addr) {
            return Place::Elsewhere;
        }
        let is_veth = |ifindex: u32| {
            let mut links = node.links.iter();
            links.any(|l| l.link.ifindex == ifindex && l.role == Role::PodVeth)
        };
        let route = node
            .host_routes
            .iter()
            .find(|(dst, oif)| *dst == addr && is_veth(*oif));
        if let Some((_, ifindex)) = route {
            return Place::Veth(index, *ifindex);
        }
    }
    let Some(inventory) = inventory else {
        return Place::Unknown;
    };
    // A pod of another machine's node, or no pod at all.
    let here = |node: &Arc<str>| discovery.nodes.iter().any(|n: &NodeNs| n.name == *node);
    match inventory.pod_at(addr) {
        Some(pod) if pod.node.as_ref().is_none_or(here) => Place::Unknown,
        _ => Place::Elsewhere,
    }
}

/// Endpoints of the Service that the request is about, ready or not.
pub fn endpoints(request: &Request, inventory: Option<&Inventory>) -> Vec<IpAddr> {
    let (Some(inventory), Some(name)) = (inventory, &request.service) else {
        return Vec::new();
    };
    let Lookup::Found(service) = inventory.service(name, "") else {
        return Vec::new();
    };
    let ports = service.ports.iter();
    let backends = ports.flat_map(|port| inventory.backends(service, port));
    backends.map(|backend| backend.addr).collect()
}

/// Host ends of the veths that matter; `None` for all of them.
fn veths(
    discovery: &Discovery,
    request: &Request,
    inventory: Option<&Inventory>,
) -> Option<HashSet<(usize, u32)>> {
    if request.src.is_empty() || request.dst.is_empty() {
        return None;
    }
    let mut wanted = HashSet::new();
    let mut take = |addr: IpAddr| match place(discovery, inventory, addr) {
        Place::Veth(node, ifindex) => {
            wanted.insert((node, ifindex));
            true
        }
        Place::Elsewhere => true,
        Place::Unknown => false,
    };
    // Connections that are there already may still use an endpoint that is not
    // ready; that its veth is found is welcome, not needed.
    for addr in endpoints(request, inventory) {
        take(addr);
    }
    let mut known = request.src.iter().all(|a| take(*a));
    match (&request.service, &request.backends) {
        (_, Some(backends)) => {
            known &= backends.iter().all(|(addr, _)| take(*addr));
            // A stale entry may still lead elsewhere; without any backend the
            // connection must end before a veth, or go where nobody expects.
            known &= !backends.is_empty();
        }
        (Some(_), None) => known = false,
        (None, None) => known &= request.dst.iter().all(|a| take(*a)),
    }
    known.then_some(wanted)
}

/// The interfaces to attach to: tunnels, uplinks and bridges of every node, and
/// the veths of the pods at both ends; every pod's veth where an end is not
/// known.
pub fn watch_list(
    discovery: &Discovery,
    request: &Request,
    inventory: Option<&Inventory>,
) -> Vec<Watch> {
    let wanted = veths(discovery, request, inventory);
    let mut list = Vec::new();
    for (index, node) in discovery.nodes.iter().enumerate() {
        for entry in &node.links {
            let watch = match entry.role {
                Role::Tunnel | Role::Uplink | Role::Bridge => true,
                Role::PodVeth => wanted
                    .as_ref()
                    .is_none_or(|w| w.contains(&(index, entry.link.ifindex))),
                Role::PodEth0 | Role::Other => false,
            };
            if watch {
                list.push(Watch {
                    node: index,
                    ifindex: entry.link.ifindex,
                    name: Arc::clone(&entry.link.name),
                    role: entry.role,
                    l3: entry.link.arphrd != libc::ARPHRD_ETHER,
                });
            }
        }
    }
    list
}
