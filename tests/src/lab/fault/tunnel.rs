//! The way between the nodes: routes, neighbours and forwarding entries of `vxlan.calico`.

use std::net::Ipv4Addr;

use anyhow::{Context, Result};

use super::names::{BORROWER, REMOTE_END};
use super::site::{ip, run, sysctl};
use super::{Fault, pods, unseen};
use crate::lab::topology::{Node, VNI, node};

/// Where a port that no tool guesses leads.
const ODD_PORT: u16 = 4799;

pub(super) const OTHER_PORT: Fault = Fault {
    id: "C27",
    name: "other-vxlan-port",
    about: "vxlan.calico of worker2 listens on UDP port 4799, worker sends to 4789",
    shown_by: "lab get --ns client 10.98.235.247:80",
    make: |_| {
        let (here, peer) = nodes()?;
        ip(
            peer.name,
            &format!(
                "link del vxlan.calico\n\
                 link add vxlan.calico address {mac} mtu 1450 type vxlan id {VNI} dstport {ODD_PORT} \
                 local {addr} dev eth0 nolearning\n\
                 addr add {vtep}/32 dev vxlan.calico\nlink set vxlan.calico up\n\
                 neigh add {to} lladdr {to_mac} dev vxlan.calico nud permanent\n\
                 route add {block} via {to} dev vxlan.calico onlink proto 80",
                mac = peer.vtep_mac,
                addr = peer.addr,
                vtep = peer.vtep,
                to = here.vtep,
                to_mac = here.vtep_mac,
                block = here.block,
            ),
        )?;
        fdb(peer.name, "add", here, here.addr)
    },
    show: unseen,
};

pub(super) const NO_FDB_ENTRY: Fault = Fault {
    id: "C29",
    name: "no-fdb-entry",
    about: "worker's vxlan.calico does not know behind which node worker2's hardware address is",
    shown_by: "lab get --ns client 10.98.235.247:80",
    make: |_| {
        let (here, peer) = nodes()?;
        fdb(here.name, "del", peer, peer.addr)
    },
    show: unseen,
};

pub(super) const WRONG_FDB_ENTRY: Fault = Fault {
    id: "C30",
    name: "wrong-fdb-entry",
    about: "worker's vxlan.calico sends what is for worker2 to an address that no node has any more",
    shown_by: "lab get --ns client 10.98.235.247:80",
    make: |_| {
        let (here, peer) = nodes()?;
        fdb(here.name, "del", peer, peer.addr)?;
        fdb(here.name, "add", peer, Ipv4Addr::new(172, 31, 0, 9))
    },
    show: unseen,
};

pub(super) const NO_NEIGHBOUR: Fault = Fault {
    id: "C31",
    name: "no-neighbour",
    about: "worker has no neighbour entry for worker2's tunnel address",
    shown_by: "lab get --ns client 10.98.235.247:80",
    make: |_| {
        let (here, peer) = nodes()?;
        ip(
            here.name,
            &format!("neigh del {} dev vxlan.calico", peer.vtep),
        )
    },
    show: unseen,
};

pub(super) const PEER_NOT_ALLOWED: Fault = Fault {
    id: "C33",
    name: "peer-not-allowed",
    about: "worker2 does not count worker among the nodes whose VXLAN it takes",
    shown_by: "lab get --ns client 10.98.235.247:80",
    make: |_| {
        let (here, peer) = nodes()?;
        run(
            peer.name,
            "ipset",
            &format!("del cali40all-vxlan-net {}", here.addr),
        )
    },
    show: unseen,
};

pub(super) const NO_ROUTE: Fault = Fault {
    id: "C36",
    name: "no-block-route",
    about: "worker has lost the route to worker2's block of addresses and sends to the default gateway",
    shown_by: "lab get --ns client 10.98.235.247:80",
    make: |_| {
        let (here, peer) = nodes()?;
        ip(here.name, &format!("route del {}", peer.block))
    },
    show: unseen,
};

pub(super) const REVERSE_PATH: Fault = Fault {
    id: "C43",
    name: "reverse-path",
    about: "worker2's route back to worker's pods leads through eth0, and its reverse path filter is strict",
    shown_by: "lab get --ns client 10.98.235.247:80",
    make: |_| {
        let (here, peer) = nodes()?;
        ip(
            peer.name,
            &format!(
                "route replace {} via {} dev eth0 proto 80",
                here.block, here.addr
            ),
        )
    },
    show: unseen,
};

pub(super) const BORROWED_ADDRESS: Fault = Fault {
    id: "C47",
    name: "borrowed-address",
    about: "a pod on worker2 has an address from worker's block, and worker has no route to it",
    shown_by: "lab get --ns client 10.244.80.100:8080",
    make: |_| pods::add(&BORROWER),
    show: |objects| objects.add_pod(&BORROWER),
};

pub(super) const ANSWER_BY_ANOTHER_WAY: Fault = Fault {
    id: "C80",
    name: "answer-by-another-way",
    about: "a routing rule on worker2 sends what comes from the pod remote to the default gateway, past the tunnel",
    shown_by: "lab get --ns client 10.98.235.247:80",
    make: |_| {
        // A strict filter would refuse the request: it looks up the way back as the answer's.
        sysctl("worker2", "net/ipv4/conf/vxlan.calico/rp_filter", "2")?;
        ip(
            "worker2",
            &format!(
                "route add default via 172.31.0.1 dev eth0 table 100\n\
                 rule add iif {REMOTE_END} lookup 100 priority 1000"
            ),
        )
    },
    show: unseen,
};

pub(super) const ROUTING_LOOP: Fault = Fault {
    id: "C85",
    name: "routing-loop",
    about: "worker2 has a route left that sends the pod remote's address back to worker, which sends it to worker2 again",
    shown_by: "lab get --ns client 10.98.235.247:80",
    make: |_| {
        let (here, peer) = nodes()?;
        // Else the first packet that comes back is refused for its source.
        sysctl(here.name, "net/ipv4/conf/vxlan.calico/rp_filter", "2")?;
        ip(
            peer.name,
            &format!(
                "route replace 10.244.158.65/32 via {} dev vxlan.calico onlink",
                here.vtep
            ),
        )
    },
    show: unseen,
};

/// The node of the client, and its peer.
fn nodes() -> Result<(&'static Node, &'static Node)> {
    let find = |name| node(name).context("a node of the laboratory");
    Ok((find("worker")?, find("worker2")?))
}

/// Changes the entry of a peer's hardware address.
fn fdb(at: &str, verb: &str, peer: &Node, to: Ipv4Addr) -> Result<()> {
    let permanent = if verb == "add" { "permanent" } else { "" };
    run(
        at,
        "bridge",
        &format!(
            "fdb {verb} {} dev vxlan.calico dst {to} self {permanent}",
            peer.vtep_mac
        ),
    )
}
