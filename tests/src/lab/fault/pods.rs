//! Pods that come and go.

use anyhow::{Context, Result, ensure};

use super::site::{ip, start};
use crate::lab::topology::Pod;
use crate::lab::{exclusive, extra_pod, loaded, netns, network, process, program};

/// Makes one more pod, with a server in it.
pub(super) fn add(pod: &Pod) -> Result<()> {
    extra_pod(pod.node, pod.name, pod.addr)?;
    start(pod.name, pod.name, &["serve", pod.name])
}

/// Takes a pod away as a node's kubelet does: its process, its namespace and with it the veth and the route.
pub(super) fn remove(name: &str) -> Result<()> {
    let _lock = exclusive()?;
    let mut state = loaded()?;
    let inode = netns::inode(name).with_context(|| format!("there is no namespace {name}"))?;
    ensure!(
        state.namespaces.get(name) == Some(&inode),
        "the namespace {name} is not the laboratory's"
    );
    if let Some(server) = state.processes.remove(name) {
        process::end(&[server]);
    }
    program::feed("ip", &["netns", "del", name], "")?;
    state.namespaces.remove(name);
    state.save()
}

/// Makes pods on a bridge of their own on worker, as flannel and the CNI plugin `bridge` do.
pub(super) fn add_bridged(pods: &[Pod]) -> Result<()> {
    ip(
        "worker",
        "link add cni0 type bridge\naddr add 10.244.81.1/24 dev cni0\nlink set cni0 up",
    )?;
    for (number, pod) in pods.iter().enumerate() {
        {
            let _lock = exclusive()?;
            let mut state = loaded()?;
            // As for the others: what a killed run leaves can be taken down.
            state.namespaces.insert(pod.name.to_owned(), 0);
            state.save()?;
            let batch = format!(
                "netns add {name}\nlink add eth0 index 2 netns {name} type veth \
                 peer name {end} index {index} netns worker\n",
                name = pod.name,
                end = pod.host_end,
                index = 50 + number,
            );
            program::feed("ip", &["-batch", "-"], &batch)?;
            let inode = netns::inode(pod.name).context("the namespace did not appear")?;
            state.namespaces.insert(pod.name.to_owned(), inode);
            state.save()?;
        }
        ip(
            "worker",
            &format!("link set {} master cni0 up", pod.host_end),
        )?;
        netns::within(pod.name, || network::set_ipv6(false))?;
        ip(
            pod.name,
            &format!(
                "link set lo up\nlink set eth0 up\naddr add {}/24 dev eth0\n\
                 route add default via 10.244.81.1",
                pod.addr
            ),
        )?;
        start(pod.name, pod.name, &["serve", pod.name])?;
    }
    Ok(())
}
