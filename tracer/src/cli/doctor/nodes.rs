//! The nodes of this machine, their interfaces and pods.

use std::net::IpAddr;

use serde::Serialize;

use super::{cni, proxy};
use crate::discover::{Discovery, NodeNs, PodNs};
use crate::inventory::{self, Inventory};
use crate::kallsyms::Kallsyms;
use crate::trace::Role;

/// One node.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Node {
    pub(super) name: String,
    pub(super) netns: u32,
    pub(super) addrs: Vec<IpAddr>,
    pub(super) interfaces: Vec<Interface>,
    pub(super) pods: Vec<Pod>,
    pub(super) cni: cni::Cni,
    pub(super) kube_proxy: proxy::Proxy,
}

/// An interface of a node.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Interface {
    pub(super) name: String,
    pub(super) ifindex: u32,
    pub(super) role: Role,
}

/// A pod of a node.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Pod {
    /// `NS/NAME`, where an inventory knows it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) name: Option<String>,
    pub(super) netns: u32,
    pub(super) addrs: Vec<IpAddr>,
    /// The node's end of its veth.
    pub(super) interface: String,
}

impl Node {
    /// Interfaces that `follow` may attach to.
    pub(super) fn watchable(&self) -> usize {
        let roles = [Role::Uplink, Role::Tunnel, Role::Bridge, Role::PodVeth];
        self.interfaces
            .iter()
            .filter(|i| roles.contains(&i.role))
            .count()
    }
}

/// Reads what discovery does not tell: the proxy's rules.
pub(super) fn gather(
    discovery: &Discovery,
    inventory: Option<&Inventory>,
    symbols: Option<&Kallsyms>,
) -> Vec<Node> {
    let each = discovery.nodes.iter().enumerate();
    each.map(|(index, found)| {
        let pods = discovery.pods.iter().filter(|p| p.node == index);
        Node {
            name: found.name.to_string(),
            netns: found.netns,
            addrs: found.addrs.clone(),
            interfaces: interfaces(found),
            pods: pods.map(|p| pod(p, inventory)).collect(),
            cni: cni::judge(
                &found
                    .links
                    .iter()
                    .map(|l| l.link.clone())
                    .collect::<Vec<_>>(),
            ),
            kube_proxy: proxy::find(&found.ns, symbols),
        }
    })
    .collect()
}

fn interfaces(node: &NodeNs) -> Vec<Interface> {
    let links = node
        .links
        .iter()
        .filter(|l| l.link.arphrd != libc::ARPHRD_LOOPBACK);
    links
        .map(|l| Interface {
            name: l.link.name.to_string(),
            ifindex: l.link.ifindex,
            role: l.role,
        })
        .collect()
}

fn pod(found: &PodNs, inventory: Option<&Inventory>) -> Pod {
    let named = inventory.and_then(|i| found.addrs.iter().find_map(|a| i.pod_at(*a)));
    Pod {
        name: named.map(inventory::Pod::full_name),
        netns: found.netns,
        addrs: found.addrs.clone(),
        interface: found.iface.to_string(),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A Calico node with one pod.
    pub(in super::super) fn node(name: &str) -> Node {
        let interface = |name: &str, ifindex, role| Interface {
            name: name.to_owned(),
            ifindex,
            role,
        };
        Node {
            name: name.to_owned(),
            netns: 4_026_532_315,
            addrs: vec!["172.31.0.2".parse().unwrap()],
            interfaces: vec![
                interface("eth0", 2, Role::Uplink),
                interface("vxlan.calico", 3, Role::Tunnel),
                interface("cali747ff840379", 4, Role::PodVeth),
                interface("dummy0", 5, Role::Other),
            ],
            pods: vec![Pod {
                name: Some("default/client".to_owned()),
                netns: 4_026_532_453,
                addrs: vec!["10.244.80.65".parse().unwrap()],
                interface: "cali747ff840379".to_owned(),
            }],
            cni: cni::judge(&[]),
            kube_proxy: proxy::Proxy {
                mode: proxy::Mode::IptablesNft,
                note: None,
            },
        }
    }

    #[test]
    fn interfaces_without_a_role_are_not_watched() {
        assert_eq!(node("worker").watchable(), 3);
    }
}
