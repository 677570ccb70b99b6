//! Names for endpoints, from the inventory and what was found on this machine.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use super::Discovery;
use crate::event::Namer;
use crate::inventory::Inventory;
use crate::trace::Endpoint;

/// A node's name, bare and as `node/NAME`.
type Known = (Arc<str>, Arc<str>);

/// Implements [`Namer`]. The inventory comes first; without one, nodes are still
/// known by their addresses, and pods by the node they hang off.
#[derive(Clone, Debug, Default)]
pub struct Names {
    inventory: Option<Arc<Inventory>>,
    /// Nodes' own addresses. `None` where several nodes have one.
    nodes: HashMap<IpAddr, Option<Known>>,
    /// Node by pod address.
    pods: HashMap<IpAddr, Arc<str>>,
}

impl Names {
    /// Over an inventory (where there is one) and a discovery.
    pub fn new(inventory: Option<Arc<Inventory>>, discovery: &Discovery) -> Self {
        let mut names = Self {
            inventory,
            ..Self::default()
        };
        for node in &discovery.nodes {
            let title: Arc<str> = format!("node/{}", node.name).into();
            for addr in &node.addrs {
                let entry = Some((Arc::clone(&node.name), Arc::clone(&title)));
                // A bridge's address such as docker0's may be everywhere.
                let merge = |known: &mut Option<_>| *known = None;
                names.nodes.entry(*addr).and_modify(merge).or_insert(entry);
            }
        }
        for pod in &discovery.pods {
            if let Some(node) = discovery.nodes.get(pod.node) {
                for addr in &pod.addrs {
                    names.pods.insert(*addr, Arc::clone(&node.name));
                }
            }
        }
        names
    }

    /// The node that was found with this address, unless the inventory has
    /// another use for it.
    fn found(&self, addr: IpAddr) -> Option<&Known> {
        if self
            .inventory
            .as_ref()
            .is_some_and(|i| i.name(addr).is_some())
        {
            return None;
        }
        self.nodes.get(&addr)?.as_ref()
    }
}

impl Namer for Names {
    fn endpoint(&self, addr: IpAddr, port: Option<u16>) -> Endpoint {
        let listed = self.inventory.as_ref().and_then(|i| i.name(addr));
        let name = listed.or_else(|| Some(&self.found(addr)?.1));
        Endpoint {
            addr,
            port,
            name: name.cloned(),
        }
    }

    fn is_node(&self, addr: IpAddr) -> bool {
        let listed = self.inventory.as_ref().and_then(|i| i.node_at(addr));
        listed.is_some() || self.found(addr).is_some()
    }

    fn node_of(&self, addr: IpAddr) -> Option<Arc<str>> {
        let listed = self.inventory.as_ref().and_then(|i| i.node_of(addr));
        let found = listed
            .or_else(|| self.pods.get(&addr))
            .or_else(|| Some(&self.found(addr)?.0));
        found.cloned()
    }
}
