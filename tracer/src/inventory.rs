//! The cluster's objects, from `kubectl get ... -A -o json`: what addresses are
//! called, and what stands behind a Service.

use std::collections::HashMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::Value;

mod object;
mod strip;
#[cfg(test)]
pub(crate) mod tests;

pub use object::{Endpoints, Node, Pod, Protocol, Service, ServicePort, SliceEndpoint, SlicePort};

/// Why an inventory could not be used.
#[derive(Debug, thiserror::Error)]
pub enum InventoryError {
    /// The file is missing or unreadable.
    #[error("cannot read inventory {}: {source}", path.display())]
    Read {
        /// Which file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// Not JSON, or cut off.
    #[error(
        "inventory {origin} is not valid JSON ({source}); make it with `kubectl get nodes,pods,services,endpointslices,networkpolicies -A -o json`"
    )]
    Json {
        /// Which file.
        origin: String,
        /// Where it breaks.
        source: serde_json::Error,
    },
    /// JSON of another form.
    #[error(
        "inventory {origin} is not a Kubernetes List: {what}; make it with `kubectl get nodes,pods,services,endpointslices,networkpolicies -A -o json`"
    )]
    Shape {
        /// Which file.
        origin: String,
        /// What is missing.
        what: &'static str,
    },
    /// One object has another form than its kind should.
    #[error("inventory {origin}: item {index} ({item}) is damaged: {source}")]
    Item {
        /// Which file.
        origin: String,
        /// Position in the list, from 0.
        index: usize,
        /// Kind, namespace and name as far as they can be told.
        item: String,
        /// What is wrong.
        source: serde_json::Error,
    },
}

/// Result of looking for an object by name.
#[derive(Debug)]
pub enum Lookup<'a, T> {
    /// Found.
    Found(&'a T),
    /// Several namespaces have one; as `NS/NAME`.
    Ambiguous(Vec<String>),
    /// None; names that are close, as `NS/NAME`.
    Missing(Vec<String>),
}

/// Where a Service's connections may end up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backend {
    /// Address.
    pub addr: IpAddr,
    /// Target port.
    pub port: u16,
    /// Ready, or not said to be otherwise.
    pub ready: bool,
    /// Node that it runs on.
    pub node: Option<Arc<str>>,
}

/// The objects of a cluster.
#[derive(Clone, Debug, Default)]
pub struct Inventory {
    /// Nodes.
    pub nodes: Vec<Node>,
    /// Pods, finished ones included.
    pub pods: Vec<Pod>,
    /// Services.
    pub services: Vec<Service>,
    /// `EndpointSlices`.
    pub slices: Vec<Endpoints>,
    /// `NetworkPolicies`, as they are.
    pub policies: Vec<Value>,
    /// The list held `EndpointSlices`, so that their absence means something.
    pub has_slices: bool,
    stripped: Vec<Value>,
    names: HashMap<IpAddr, Arc<str>>,
    node_of: HashMap<IpAddr, Arc<str>>,
    node_addrs: HashMap<IpAddr, Arc<str>>,
}

impl Inventory {
    /// Reads a file made by `kubectl get ... -A -o json`.
    pub fn load(path: &Path) -> Result<Self, InventoryError> {
        let text = std::fs::read(path).map_err(|source| InventoryError::Read {
            path: path.to_owned(),
            source,
        })?;
        Self::parse(&path.display().to_string(), &text)
    }

    /// The same from memory; `origin` is for messages.
    pub fn parse(origin: &str, text: &[u8]) -> Result<Self, InventoryError> {
        let value = serde_json::from_slice(text).map_err(|source| InventoryError::Json {
            origin: origin.to_owned(),
            source,
        })?;
        let mut inventory = Self::default();
        inventory.add_list(origin, value)?;
        Ok(inventory)
    }

    /// Adds a `v1` `List`, or the `PodList` and the like of the API server.
    pub fn add_list(&mut self, origin: &str, list: Value) -> Result<(), InventoryError> {
        let shape = |what| InventoryError::Shape {
            origin: origin.to_owned(),
            what,
        };
        let Value::Object(mut list) = list else {
            return Err(shape("it is not an object"));
        };
        let kind = list.get("kind").and_then(Value::as_str).unwrap_or_default();
        let Some(of) = kind.strip_suffix("List").map(str::to_owned) else {
            return Err(shape("its kind is not List"));
        };
        let Some(Value::Array(items)) = list.remove("items") else {
            return Err(shape("it has no items"));
        };
        self.has_slices |= of == "EndpointSlice";
        for (index, item) in items.into_iter().enumerate() {
            let kind = item.get("kind").and_then(Value::as_str);
            let kind = kind.unwrap_or(&of).to_owned();
            let title = object::title(&kind, &item);
            self.add(&kind, item)
                .map_err(|source| InventoryError::Item {
                    origin: origin.to_owned(),
                    index,
                    item: title,
                    source,
                })?;
        }
        self.index();
        Ok(())
    }

    fn add(&mut self, kind: &str, item: Value) -> Result<(), serde_json::Error> {
        self.stripped.extend(strip::strip(kind, &item));
        match kind {
            "Node" => self.nodes.push(Node::from_value(item)?),
            "Pod" => self.pods.push(Pod::from_value(item)?),
            "Service" => self.services.push(Service::from_value(item)?),
            "EndpointSlice" => {
                self.has_slices = true;
                self.slices.push(Endpoints::from_value(item)?);
            }
            "NetworkPolicy" => self.policies.push(item),
            _ => {}
        }
        Ok(())
    }

    /// The objects as a `v1` `List` that can be added again, with nothing in
    /// them but names, addresses, ports, labels, readiness and policies.
    pub fn to_list(&self) -> Value {
        strip::list(self.stripped.clone())
    }

    /// Rebuilds the indexes. What is listed first wins: nodes before the
    /// host-network pods that share their address.
    fn index(&mut self) {
        self.names.clear();
        self.node_of.clear();
        self.node_addrs.clear();
        for node in &self.nodes {
            let name: Arc<str> = format!("node/{}", node.name).into();
            for addr in node.addrs.iter().chain(&node.vteps) {
                self.names.entry(*addr).or_insert_with(|| Arc::clone(&name));
                for map in [&mut self.node_of, &mut self.node_addrs] {
                    map.entry(*addr).or_insert_with(|| Arc::clone(&node.name));
                }
            }
        }
        for service in &self.services {
            let name: Arc<str> = format!("svc/{}", service.full_name()).into();
            for addr in service.cluster_ips.iter().chain(&service.other_ips) {
                self.names.entry(*addr).or_insert_with(|| Arc::clone(&name));
            }
        }
        for pod in self.pods.iter().filter(|p| !p.finished) {
            let name: Arc<str> = format!("pod/{}", pod.full_name()).into();
            for addr in &pod.addrs {
                self.names.entry(*addr).or_insert_with(|| Arc::clone(&name));
                if let Some(node) = &pod.node {
                    self.node_of
                        .entry(*addr)
                        .or_insert_with(|| Arc::clone(node));
                }
            }
        }
    }

    /// `pod/NS/NAME`, `svc/NS/NAME` or `node/NAME`.
    pub fn name(&self, addr: IpAddr) -> Option<&Arc<str>> {
        self.names.get(&addr.to_canonical())
    }

    /// Name of the node that has this address or this VTEP.
    pub fn node_at(&self, addr: IpAddr) -> Option<&Arc<str>> {
        self.node_addrs.get(&addr.to_canonical())
    }

    /// Name of the node that has this address or runs the pod with it.
    pub fn node_of(&self, addr: IpAddr) -> Option<&Arc<str>> {
        self.node_of.get(&addr.to_canonical())
    }

    /// A running pod's record by address; not for host-network pods.
    pub fn pod_at(&self, addr: IpAddr) -> Option<&Pod> {
        let addr = addr.to_canonical();
        let mut running = self.pods.iter().filter(|p| !p.finished);
        running.find(|p| !p.host_network && p.addrs.contains(&addr))
    }

    /// A pod by `NS/NAME`, or by `NAME`: in `home` first, then in any namespace
    /// when only one has it.
    pub fn pod(&self, name: &str, home: &str) -> Lookup<'_, Pod> {
        find(&self.pods, name, home, |p| (&p.namespace, &p.name))
    }

    /// A Service, in the same way.
    pub fn service(&self, name: &str, home: &str) -> Lookup<'_, Service> {
        find(&self.services, name, home, |s| (&s.namespace, &s.name))
    }

    /// The Services (with the port) that answer at this address and port: by
    /// `ClusterIP`, external address, or as node port. No port: every port of a
    /// Service with this address.
    pub fn services_at(&self, addr: IpAddr, port: Option<u16>) -> Vec<(&Service, &ServicePort)> {
        let addr = addr.to_canonical();
        // Node ports answer on a node's loopback, too, where route_localnet lets them.
        let is_node = addr.is_loopback() || self.node_addrs.contains_key(&addr);
        let mut found = Vec::new();
        for service in &self.services {
            let own = service.cluster_ips.contains(&addr) || service.other_ips.contains(&addr);
            for p in &service.ports {
                let at_port = own && port.is_none_or(|port| port == p.port);
                let at_node = is_node && port.is_some() && port == p.node_port;
                if at_port || at_node {
                    found.push((service, p));
                }
            }
        }
        found
    }

    /// Whether the cluster said what stands behind Services at all.
    pub fn knows_endpoints(&self) -> bool {
        self.has_slices
    }

    /// All endpoints of a Service's port, ready or not, as its slices list them.
    pub fn backends(&self, service: &Service, port: &ServicePort) -> Vec<Backend> {
        let mut found: Vec<Backend> = Vec::new();
        let of_service = |s: &&Endpoints| {
            s.namespace == service.namespace && s.service.as_ref() == Some(&service.name)
        };
        for slice in self.slices.iter().filter(of_service) {
            let same = |p: &&SlicePort| p.name == port.name && p.protocol == port.protocol;
            for target in slice.ports.iter().filter(same).filter_map(|p| p.port) {
                for endpoint in &slice.endpoints {
                    for addr in &endpoint.addrs {
                        let backend = Backend {
                            addr: *addr,
                            port: target,
                            ready: endpoint.ready,
                            node: endpoint.node.clone(),
                        };
                        if !found.contains(&backend) {
                            found.push(backend);
                        }
                    }
                }
            }
        }
        found
    }
}

fn find<'a, T>(
    all: &'a [T],
    name: &str,
    home: &str,
    key: impl Fn(&T) -> (&Arc<str>, &Arc<str>),
) -> Lookup<'a, T> {
    let full = |t: &T| {
        let (namespace, name) = key(t);
        format!("{namespace}/{name}")
    };
    let (namespace, bare) = match name.split_once('/') {
        Some((namespace, bare)) => (Some(namespace), bare),
        None => (None, name),
    };
    let exact = |ns: &str| {
        all.iter().find(|t| {
            let (namespace, name) = key(t);
            &**namespace == ns && &**name == bare
        })
    };
    if let Some(found) = exact(namespace.unwrap_or(home)) {
        return Lookup::Found(found);
    }
    if namespace.is_none() {
        let same: Vec<&T> = all.iter().filter(|t| &**key(t).1 == bare).collect();
        match same.as_slice() {
            [] => {}
            [one] => return Lookup::Found(one),
            many => return Lookup::Ambiguous(many.iter().map(|t| full(t)).collect()),
        }
    }
    let mut close: Vec<(usize, String)> = all
        .iter()
        .filter_map(|t| {
            let other = key(t).1;
            let distance = if other.starts_with(bare) || &**other == bare {
                0
            } else {
                distance(bare, other)
            };
            (distance <= 1 + bare.len() / 3).then(|| (distance, full(t)))
        })
        .collect();
    close.sort();
    close.dedup();
    Lookup::Missing(close.into_iter().take(3).map(|(_, n)| n).collect())
}

/// Levenshtein's distance.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = i;
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let replace = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = replace.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}
