//! Who is where: the cluster of the first seed article, address for address.
//!
//! This is the only place that knows an address; the network, the inventory, the resolver and the
//! tests all read it from here.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddrV4};

/// The namespace that holds the bridge between the nodes; it has no part in forwarding.
pub const UNDERLAY: &str = "underlay";

/// The host outside the cluster.
pub const OUTSIDE: Host = Host {
    name: "outside",
    addr: Ipv4Addr::new(172, 31, 0, 5),
};

/// The underlay's gateway: it answers ARP, so that a node can have a default route, and forwards nothing.
pub const GATEWAY: Ipv4Addr = Ipv4Addr::new(172, 31, 0, 1);

/// The VXLAN network identifier and UDP port that Calico uses.
pub const VNI: u32 = 4096;
/// See [`VNI`].
pub const VXLAN_PORT: u16 = 4789;

/// What `kubectl get service default/remote` shows.
pub const REMOTE_SERVICE: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 98, 235, 247), 80);
/// The node port of `default/remote`.
pub const NODE_PORT: u16 = 30080;
/// What `kubectl get service kube-system/kube-dns` shows.
pub const DNS_SERVICE: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 96, 0, 10), 53);

/// The port on which every pod and the outside host answer.
pub const POD_PORT: u16 = 8080;

/// The ipset on worker2 that lists the pods which `default/remote-allow` lets in.
pub const ALLOWED_SET: &str = "cali40s:Ikklc_4A4XKzhaQl4gSxydF";

/// A host that is no node.
#[derive(Debug, Clone, Copy)]
pub struct Host {
    /// Its namespace.
    pub name: &'static str,
    /// Its address on the underlay.
    pub addr: Ipv4Addr,
}

/// A cluster node.
#[derive(Debug, Clone, Copy)]
pub struct Node {
    /// Its name, in Kubernetes and in /run/netns.
    pub name: &'static str,
    /// Its `InternalIP`.
    pub addr: Ipv4Addr,
    /// The address of its `vxlan.calico`.
    pub vtep: Ipv4Addr,
    /// The hardware address of its `vxlan.calico`.
    pub vtep_mac: &'static str,
    /// The IPAM block its pods are numbered from.
    pub block: &'static str,
    /// The IPv6 address of its `vxlan.calico`, when the lab has IPv6.
    pub vtep6: Ipv6Addr,
    /// The IPv6 block its pods are numbered from, when the lab has IPv6.
    pub block6: &'static str,
}

/// A pod: a namespace, a veth and one process.
#[derive(Debug, Clone, Copy)]
pub struct Pod {
    /// Its name, in Kubernetes and in /run/netns.
    pub name: &'static str,
    /// Its Kubernetes namespace.
    pub namespace: &'static str,
    /// The node it runs on.
    pub node: &'static str,
    /// Its address.
    pub addr: Ipv4Addr,
    /// Its IPv6 address, when the lab has IPv6.
    pub addr6: Ipv6Addr,
    /// The end of its veth on the node.
    pub host_end: &'static str,
    /// The `app` or `k8s-app` label it starts with.
    pub label: (&'static str, &'static str),
}

const fn v6(node: u16, host: u16) -> Ipv6Addr {
    Ipv6Addr::new(0xfd00, 0x10, 0x244, node, 0, 0, 0, host)
}

/// The nodes.
pub const NODES: [Node; 2] = [
    Node {
        name: "worker",
        addr: Ipv4Addr::new(172, 31, 0, 2),
        vtep: Ipv4Addr::new(10, 244, 80, 64),
        // Felix: 66: and the first five bytes of the node name's SHA-1.
        vtep_mac: "66:10:f5:eb:e6:ac",
        block: "10.244.80.64/26",
        vtep6: v6(0x80, 0x64),
        block6: "fd00:10:244:80::/64",
    },
    Node {
        name: "worker2",
        addr: Ipv4Addr::new(172, 31, 0, 3),
        vtep: Ipv4Addr::new(10, 244, 158, 64),
        vtep_mac: "66:b0:94:1d:fb:92",
        block: "10.244.158.64/26",
        vtep6: v6(0x158, 0x64),
        block6: "fd00:10:244:158::/64",
    },
];

/// The pods.
pub const PODS: [Pod; 4] = [
    Pod {
        name: "client",
        namespace: "default",
        node: "worker",
        addr: Ipv4Addr::new(10, 244, 80, 65),
        addr6: v6(0x80, 0x65),
        host_end: "cali747ff840379",
        label: ("app", "client"),
    },
    Pod {
        name: "local",
        namespace: "default",
        node: "worker",
        addr: Ipv4Addr::new(10, 244, 80, 66),
        addr6: v6(0x80, 0x66),
        host_end: "calid5f5981a8e0",
        label: ("app", "local"),
    },
    Pod {
        name: "remote",
        namespace: "default",
        node: "worker2",
        addr: Ipv4Addr::new(10, 244, 158, 65),
        addr6: v6(0x158, 0x65),
        host_end: "cali1b2c3d4e5f6",
        label: ("app", "remote"),
    },
    Pod {
        name: "dns",
        namespace: "kube-system",
        node: "worker2",
        addr: Ipv4Addr::new(10, 244, 158, 66),
        addr6: v6(0x158, 0x66),
        host_end: "cali3f0e5a7b9c1",
        label: ("k8s-app", "kube-dns"),
    },
];

/// The pod of that name.
pub fn pod(name: &str) -> Option<&'static Pod> {
    PODS.iter().find(|pod| pod.name == name)
}

/// The node of that name.
pub fn node(name: &str) -> Option<&'static Node> {
    NODES.iter().find(|node| node.name == name)
}

/// Every namespace of the laboratory, in the order in which they are made.
pub fn namespaces() -> impl Iterator<Item = &'static str> {
    [UNDERLAY, OUTSIDE.name]
        .into_iter()
        .chain(NODES.iter().map(|node| node.name))
        .chain(PODS.iter().map(|pod| pod.name))
}

/// The namespaces in which a server process runs.
pub fn servers() -> impl Iterator<Item = &'static str> {
    PODS.iter()
        .map(|pod| pod.name)
        .chain(std::iter::once(OUTSIDE.name))
}

/// What an address of the laboratory is called, for tables.
pub fn describe(name: &str) -> String {
    if let Some(pod) = pod(name) {
        return format!(
            "pod {}/{} {} on {} ({})",
            pod.namespace, pod.name, pod.addr, pod.node, pod.host_end
        );
    }
    if let Some(node) = node(name) {
        return format!("node {}, vxlan.calico {}", node.addr, node.vtep);
    }
    match name {
        UNDERLAY => format!("bridge between the nodes, gateway {GATEWAY}"),
        _ => format!("outside host {}", OUTSIDE.addr),
    }
}
