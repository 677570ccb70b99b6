//! One more pod, after the laboratory went up: what a tool that already runs has to notice.

use std::net::Ipv4Addr;

use anyhow::{Context, Result, ensure};

use super::{exclusive, loaded, netns, network, rules, topology};

/// A pod without a server, which the inventory does not know.
#[derive(Debug, Clone)]
pub struct ExtraPod {
    /// Its namespace.
    pub name: String,
    /// Its address.
    pub addr: Ipv4Addr,
    /// The end of its veth on the node.
    pub host_end: String,
}

/// Makes a pod on a node; it goes down with the laboratory. There is room for one per node.
pub fn extra_pod(node: &str, name: &str, addr: Ipv4Addr) -> Result<ExtraPod> {
    let _lock = exclusive()?;
    let mut state = loaded()?;
    let like = topology::PODS
        .iter()
        .find(|pod| pod.node == node)
        .with_context(|| format!("there is no node {node} in the laboratory"))?;
    ensure!(!netns::path(name).exists(), "there already is a {name}");
    let host_end = format!("cali{:011x}", u32::from(addr));
    // As for the others: what a killed run leaves can be taken down.
    state.namespaces.insert(name.to_owned(), 0);
    state.save()?;
    network::add_pod(node, name, &host_end, addr)?;
    let inode = netns::inode(name).with_context(|| format!("namespace {name} did not appear"))?;
    state.namespaces.insert(name.to_owned(), inode);
    state.save()?;
    rules::admit(node, state.options.iptables, &host_end, like.host_end)?;
    Ok(ExtraPod {
        name: name.to_owned(),
        addr,
        host_end,
    })
}
