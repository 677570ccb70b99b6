//! The case before the rules: the trace, the state that was read, and where
//! packets stopped.

use std::net::IpAddr;

use super::stop::{Stop, stops};
use crate::inventory::{Backend, Inventory, Service, ServicePort};
use crate::rules::Ruleset;
use crate::rules::native::{self, KubeProxy};
use crate::state::{Namespace, NamespaceKind, State};
use crate::trace::{Flow, Packet, Trace};

/// What a rule may look at.
pub struct Case<'a> {
    /// The trace.
    pub(super) trace: &'a Trace,
    /// The cluster's objects.
    pub(super) cluster: Option<Inventory>,
    /// Where packets stopped, in order of time.
    pub(super) stops: Vec<Stop<'a>>,
    rulesets: Vec<(&'a str, Ruleset)>,
}

impl<'a> Case<'a> {
    /// As of `now` in nanoseconds since the epoch, or of a trace that is over.
    pub(super) fn new(trace: &'a Trace, now: Option<u64>) -> Self {
        let state = trace.closing.state.as_deref();
        let nodes = state.map_or(&[][..], |s| &s.namespaces);
        let rulesets = nodes
            .iter()
            .filter(|n| n.kind == NamespaceKind::Node && !n.iptables.is_empty())
            .map(|n| {
                let (rules, _) = Ruleset::parse(&n.iptables, n.ipsets.as_deref());
                (&*n.name, rules)
            });
        Self {
            trace,
            cluster: state.and_then(cluster),
            stops: stops(trace, now),
            rulesets: rulesets.collect(),
        }
    }

    /// The state that was read, if any was.
    pub(super) fn state(&self) -> Option<&'a State> {
        self.trace.closing.state.as_deref()
    }

    /// What was read on a node.
    pub(super) fn node(&self, name: &str) -> Option<&'a Namespace> {
        self.state()?.node(name)
    }

    /// What was read in the namespace of the pod with this address.
    pub(super) fn pod(&self, addr: IpAddr) -> Option<&'a Namespace> {
        self.state()?.pod(addr)
    }

    /// The iptables rules and sets of a node.
    pub(super) fn rules(&self, node: &str) -> Option<&Ruleset> {
        let found = self.rulesets.iter().find(|(name, _)| *name == node);
        found.map(|(_, rules)| rules)
    }

    /// kube-proxy's nftables on a node, in its nftables mode.
    pub(super) fn native(&self, node: &str, ipv6: bool) -> Option<KubeProxy<'a>> {
        native::kube_proxy(self.node(node)?.nft.as_deref()?, ipv6)
    }

    /// The node that has this address, or the pod with it: by the inventory,
    /// else by the nodes' own links and routes.
    pub(super) fn owner(&self, addr: IpAddr) -> Option<String> {
        if let Some(name) = self.cluster.as_ref().and_then(|c| c.node_of(addr)) {
            return Some(name.to_string());
        }
        let nodes = self.nodes();
        let local = |n: &&Namespace| {
            n.links
                .iter()
                .any(|l| l.addrs.iter().any(|a| a.addr == addr))
        };
        nodes
            .clone()
            .find(local)
            .or_else(|| nodes.clone().find(|n| has_pod(n, addr)))
            .map(|n| n.name.to_string())
    }

    /// The nodes whose state was read.
    pub(super) fn nodes(&self) -> impl Iterator<Item = &'a Namespace> + Clone + use<'a> {
        let all = self.state().map_or(&[][..], |s| &s.namespaces);
        all.iter().filter(|n| n.kind == NamespaceKind::Node)
    }

    /// Whether a pod has this address, as far as is known.
    pub(super) fn is_pod(&self, addr: IpAddr) -> Option<bool> {
        if let Some(cluster) = &self.cluster {
            return Some(cluster.pod_at(addr).is_some());
        }
        let mut nodes = self.nodes().peekable();
        nodes.peek()?;
        Some(nodes.any(|n| has_pod(n, addr)))
    }

    /// The Service port at this address.
    pub(super) fn service(
        &self,
        addr: IpAddr,
        port: Option<u16>,
    ) -> Option<(&Service, &ServicePort)> {
        let cluster = self.cluster.as_ref()?;
        cluster.services_at(addr, port).into_iter().next()
    }

    /// What stands behind a Service port, as the cluster says it.
    pub(super) fn backends(&self, service: &Service, port: &ServicePort) -> Vec<Backend> {
        let cluster = self.cluster.as_ref().filter(|c| c.knows_endpoints());
        cluster.map_or_else(Vec::new, |c| c.backends(service, port))
    }

    /// Packets of a flow.
    pub(super) fn packets(&self, flow: &Flow) -> impl Iterator<Item = &'a Packet> + use<'a> {
        let id = flow.id;
        self.trace.packets.iter().filter(move |p| p.flow == id)
    }
}

/// A /32 or /128 route to an address through an interface of a pod's.
pub(super) fn has_pod(node: &Namespace, addr: IpAddr) -> bool {
    node.routes.iter().any(|r| {
        let host = if addr.is_ipv4() { 32 } else { 128 };
        r.dst == addr && r.prefix == host && &*r.kind == "unicast" && r.via.is_none()
    })
}

/// The cluster's objects as they were recorded.
pub(super) fn cluster(state: &State) -> Option<Inventory> {
    let mut inventory = Inventory::default();
    let list = state.cluster.clone()?;
    inventory.add_list("the recording", list).ok()?;
    Some(inventory)
}
