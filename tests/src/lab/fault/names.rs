//! Chains and addresses that more than one fault speaks of.

use std::net::Ipv4Addr;

use crate::lab::topology::Pod;

/// kube-proxy's chain of the Service `default/remote`.
pub(super) const SVC: &str = "KUBE-SVC-WTUWVVJNNKPUFNHY";
/// Its chain for traffic from outside the cluster.
pub(super) const EXT: &str = "KUBE-EXT-WTUWVVJNNKPUFNHY";
/// Its chain for traffic from outside the cluster that stays on the node.
pub(super) const SVL: &str = "KUBE-SVL-WTUWVVJNNKPUFNHY";
/// The chain of its endpoint, the pod `remote`.
pub(super) const SEP: &str = "KUBE-SEP-XAMWAWZM6Q3EZXW4";
/// The chain of the resolver over UDP.
pub(super) const DNS_SVC: &str = "KUBE-SVC-TCOU7JCQXEZGVUNU";
/// The chain of the resolver over TCP.
pub(super) const DNS_TCP_SVC: &str = "KUBE-SVC-ERIFXISQEP7F7OF4";

/// The name of the Service's slice of endpoints.
pub(super) const SLICE: &str = "remote-7xk2p";
/// The name of the resolver's.
pub(super) const DNS_SLICE: &str = "kube-dns-q9wzl";

/// The ends on the nodes of `client`'s and `remote`'s veths.
pub(super) const CLIENT_END: &str = "cali747ff840379";
/// See [`CLIENT_END`].
pub(super) const REMOTE_END: &str = "cali1b2c3d4e5f6";

/// A second resolver.
pub(super) const DNS2: Pod = Pod {
    name: "dns-2",
    namespace: "kube-system",
    addr: Ipv4Addr::new(10, 244, 158, 67),
    label: ("k8s-app", "kube-dns"),
    ..EXTRA
};

/// One more pod on worker2, whose address is from worker's block.
pub(super) const BORROWER: Pod = Pod {
    name: "extra",
    addr: Ipv4Addr::new(10, 244, 80, 100),
    ..EXTRA
};

/// What pods that are not always there have in common.
pub(super) const EXTRA: Pod = Pod {
    name: "",
    namespace: "default",
    node: "worker2",
    addr: Ipv4Addr::UNSPECIFIED,
    addr6: std::net::Ipv6Addr::UNSPECIFIED,
    host_end: "",
    label: ("app", "extra"),
};
