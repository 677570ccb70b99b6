//! Links, addresses, routes and sysctls, as the Calico CNI plugin and Felix leave them.
//!
//! Starting a program is what costs time in an emulated machine, so there is one `ip -batch` to
//! make every namespace and veth and one per namespace to configure it; sysctls are written directly.

use std::fmt::Write;
use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;

use anyhow::{Context, Result, anyhow, ensure};

use super::topology::{
    GATEWAY, NODES, Node, OUTSIDE, PODS, Pod, UNDERLAY, VNI, VXLAN_PORT, namespaces,
};
use super::{Iptables, Options, netns, program, rules};

/// The MTU of a pod: the underlay's less what VXLAN adds.
const POD_MTU: u32 = 1450;

/// The interface index of the first veth end on a node or the bridge, of a kind seen on real nodes.
const FIRST_PEER_INDEX: usize = 11;
/// The index of the host end of a pod that comes later.
const EXTRA_PEER_INDEX: usize = 40;

/// Calico gives every host end the same hardware address...
const HOST_END_MAC: &str = "ee:ee:ee:ee:ee:ee";
/// ...and so the same link-local address, which is the pods' IPv6 gateway.
const HOST_END_LINK_LOCAL: &str = "fe80::ecee:eeff:feee:eeee";

/// Kernel modules, where they are modules, that are not loaded on demand everywhere.
const MODULES: [&str; 12] = [
    "veth",
    "bridge",
    "vxlan",
    "nf_conntrack",
    "nf_nat",
    "ip_set",
    "ip_set_hash_net",
    "ip_set_hash_ip",
    "xt_set",
    "xt_addrtype",
    "xt_multiport",
    "xt_conntrack",
];

/// Loads the modules that every laboratory needs.
pub(super) fn load_modules() {
    modprobe(&MODULES);
}

/// Loads kernel modules; says nothing, because what is built in cannot be loaded and need not be.
pub(super) fn modprobe(modules: &[&str]) {
    call_modprobe(&[&["-a"], modules].concat());
}

/// Loads one module with a parameter; see [`modprobe`].
pub(super) fn modprobe_with(module: &str, parameter: &str) {
    call_modprobe(&[module, parameter]);
}

fn call_modprobe(args: &[&str]) {
    let Ok(release) = fs::read_to_string("/proc/sys/kernel/osrelease") else {
        return;
    };
    let index = Path::new("/lib/modules")
        .join(release.trim())
        .join("modules.dep");
    if index.exists() {
        let _ = Command::new("modprobe")
            .arg("-q")
            .args(args)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
    }
}

/// Makes the namespaces and the links between them.
pub(super) fn make_namespaces() -> Result<()> {
    let mut batch = String::new();
    for name in namespaces() {
        line(&mut batch, format_args!("netns add {name}"));
    }
    let uplinks = NODES.iter().map(|node| (node.name, UNDERLAY));
    let uplinks = uplinks.chain([(OUTSIDE.name, UNDERLAY)]);
    let uplinks = uplinks.map(|(host, at)| (host, 1500, format!("p-{host}"), at));
    let pods = PODS
        .iter()
        .map(|pod| (pod.name, POD_MTU, pod.host_end.to_owned(), pod.node));
    for (number, (name, mtu, peer, at)) in uplinks.chain(pods).enumerate() {
        // The ends of a veth must not have the same index, though they are in different namespaces:
        // the kernel (6.18, linkwatch_urgent_event) would take the link for a physical one and look
        // at its carrier only once a second, and the first packets would be lost.
        let index = FIRST_PEER_INDEX + number;
        line(
            &mut batch,
            format_args!(
                "link add eth0 index 2 netns {name} mtu {mtu} type veth \
                 peer name {peer} index {index} netns {at}"
            ),
        );
    }
    program::feed("ip", &["-batch", "-"], &batch)
}

/// Configures every namespace and loads the nodes' rules, side by side.
pub(super) fn configure(options: &Options) -> Result<()> {
    let Options {
        iptables,
        policy,
        ipv6,
        ..
    } = *options;
    thread::scope(|scope| {
        let mut work = vec![
            scope.spawn(move || configure_underlay(ipv6)),
            scope.spawn(move || configure_outside(ipv6)),
        ];
        for node in &NODES {
            work.push(scope.spawn(move || {
                configure_node(node, ipv6)?;
                rules::load(node, iptables, policy)
            }));
        }
        for pod in &PODS {
            work.push(scope.spawn(move || configure_pod(pod, ipv6)));
        }
        work.into_iter().try_for_each(|job| {
            job.join()
                .map_err(|_| anyhow!("a set-up thread panicked"))?
        })
    })
}

fn configure_underlay(ipv6: bool) -> Result<()> {
    let mut batch = format!(
        "link set lo up\nlink add br0 type bridge\nlink set br0 up\naddr add {GATEWAY}/24 dev br0\n"
    );
    for host in NODES.iter().map(|node| node.name).chain([OUTSIDE.name]) {
        line(&mut batch, format_args!("link set p-{host} master br0 up"));
    }
    netns::within(UNDERLAY, || {
        set_ipv6(ipv6)?;
        // One kernel has one br_netfilter; the bridge must not take its frames through iptables.
        let _ = fs::write("/proc/sys/net/bridge/bridge-nf-call-iptables", "0");
        program::feed("ip", &["-batch", "-"], &batch)
    })
}

fn configure_outside(ipv6: bool) -> Result<()> {
    let batch = format!(
        "link set lo up\nlink set eth0 up\naddr add {}/24 dev eth0\nroute add default via {GATEWAY}\n",
        OUTSIDE.addr
    );
    netns::within(OUTSIDE.name, || {
        set_ipv6(ipv6)?;
        program::feed("ip", &["-batch", "-"], &batch)
    })
}

fn configure_pod(pod: &Pod, ipv6: bool) -> Result<()> {
    let mut batch = pod_batch(pod.addr);
    if ipv6 {
        line(
            &mut batch,
            format_args!("addr add {}/128 dev eth0 nodad", pod.addr6),
        );
        line(
            &mut batch,
            format_args!("route add default via {HOST_END_LINK_LOCAL} dev eth0"),
        );
    }
    netns::within(pod.name, || {
        set_ipv6(ipv6)?;
        program::feed("ip", &["-batch", "-"], &batch)
    })
}

fn pod_batch(addr: Ipv4Addr) -> String {
    format!(
        "link set lo up\nlink set eth0 up\naddr add {addr}/32 dev eth0\n\
         route add 169.254.1.1 dev eth0 scope link\nroute add default via 169.254.1.1 dev eth0\n"
    )
}

/// Makes one more pod on a node that is up; IPv4 only.
pub(super) fn add_pod(node: &str, name: &str, host_end: &str, addr: Ipv4Addr) -> Result<()> {
    // As in make_namespaces, the ends of the veth have different indexes.
    let batch = format!(
        "netns add {name}\nlink add eth0 index 2 netns {name} mtu {POD_MTU} type veth \
         peer name {host_end} index {EXTRA_PEER_INDEX} netns {node}\n"
    );
    program::feed("ip", &["-batch", "-"], &batch)?;
    netns::within(node, || {
        program::feed("ip", &["-batch", "-"], &host_end_batch(host_end, addr))?;
        set_host_end(host_end, false)
    })?;
    netns::within(name, || {
        set_ipv6(false)?;
        program::feed("ip", &["-batch", "-"], &pod_batch(addr))
    })
}

fn host_end_batch(host_end: &str, addr: Ipv4Addr) -> String {
    format!(
        "link set {host_end} mtu {POD_MTU} address {HOST_END_MAC} up\n\
         route add {addr} dev {host_end} scope link\n"
    )
}

fn set_host_end(host_end: &str, ipv6: bool) -> Result<()> {
    let conf = format!("net/ipv4/conf/{host_end}");
    for (key, value) in [
        ("proxy_arp", "1"),
        ("forwarding", "1"),
        ("route_localnet", "1"),
        ("rp_filter", "1"),
    ] {
        sysctl(&format!("{conf}/{key}"), value)?;
    }
    sysctl(&format!("net/ipv4/neigh/{host_end}/proxy_delay"), "0")?;
    if ipv6 {
        sysctl(&format!("net/ipv6/conf/{host_end}/proxy_ndp"), "1")?;
    }
    Ok(())
}

fn configure_node(node: &Node, ipv6: bool) -> Result<()> {
    let batch = node_batch(node, ipv6);
    netns::within(node.name, || {
        set_ipv6(ipv6)?;
        sysctl("net/ipv4/ip_forward", "1")?;
        sysctl("net/ipv4/conf/all/rp_filter", "0")?;
        sysctl("net/ipv4/conf/default/rp_filter", "1")?;
        sysctl("net/ipv4/conf/eth0/rp_filter", "1")?;
        if ipv6 {
            sysctl("net/ipv6/conf/all/forwarding", "1")?;
        }
        for pod in pods_on(node) {
            set_host_end(pod.host_end, ipv6)?;
        }
        program::feed("ip", &["-batch", "-"], &batch)?;
        program::feed("bridge", &["-batch", "-"], &fdb_batch(node))
    })
}

fn node_batch(node: &Node, ipv6: bool) -> String {
    let Node {
        addr,
        vtep,
        vtep_mac,
        block,
        vtep6,
        block6,
        ..
    } = node;
    let mut batch = format!(
        "link set lo up\nlink set eth0 up\naddr add {addr}/24 dev eth0\n\
         route add default via {GATEWAY} dev eth0\n\
         link add vxlan.calico address {vtep_mac} mtu {POD_MTU} type vxlan \
         id {VNI} dstport {VXLAN_PORT} local {addr} dev eth0 nolearning\n\
         addr add {vtep}/32 dev vxlan.calico\nlink set vxlan.calico up\n\
         route add blackhole {block} proto 80\n"
    );
    if ipv6 {
        line(
            &mut batch,
            format_args!("addr add {vtep6}/128 dev vxlan.calico nodad"),
        );
        line(
            &mut batch,
            format_args!("route add blackhole {block6} proto 80"),
        );
    }
    for pod in pods_on(node) {
        let Pod {
            host_end,
            addr,
            addr6,
            ..
        } = pod;
        batch += &host_end_batch(host_end, *addr);
        if ipv6 {
            line(&mut batch, format_args!("route add {addr6} dev {host_end}"));
        }
    }
    for peer in peers_of(node) {
        let Node {
            vtep,
            vtep_mac,
            block,
            vtep6,
            block6,
            ..
        } = peer;
        line(
            &mut batch,
            format_args!("neigh add {vtep} lladdr {vtep_mac} dev vxlan.calico nud permanent"),
        );
        line(
            &mut batch,
            format_args!("route add {block} via {vtep} dev vxlan.calico onlink proto 80"),
        );
        if ipv6 {
            line(
                &mut batch,
                format_args!("neigh add {vtep6} lladdr {vtep_mac} dev vxlan.calico nud permanent"),
            );
            line(
                &mut batch,
                format_args!("route add {block6} via {vtep6} dev vxlan.calico onlink proto 80"),
            );
        }
    }
    batch
}

fn fdb_batch(node: &Node) -> String {
    let mut batch = String::new();
    for peer in peers_of(node) {
        line(
            &mut batch,
            format_args!(
                "fdb add {} dev vxlan.calico dst {} self permanent",
                peer.vtep_mac, peer.addr
            ),
        );
    }
    batch
}

fn pods_on(node: &Node) -> impl Iterator<Item = &'static Pod> {
    PODS.iter().filter(|pod| pod.node == node.name)
}

fn peers_of(node: &Node) -> impl Iterator<Item = &'static Node> {
    NODES.iter().filter(|peer| peer.name != node.name)
}

/// Turns IPv6 off where it is not wanted, because its neighbour and router discovery is noise in a
/// trace; where it is wanted, spares the two seconds of duplicate address detection.
pub(super) fn set_ipv6(wanted: bool) -> Result<()> {
    let conf = Path::new("/proc/sys/net/ipv6/conf");
    if !conf.exists() {
        ensure!(!wanted, "this kernel has no IPv6");
        return Ok(());
    }
    if !wanted {
        sysctl("net/ipv6/conf/all/disable_ipv6", "1")?;
        return sysctl("net/ipv6/conf/default/disable_ipv6", "1");
    }
    for interface in fs::read_dir(conf).context("listing interfaces")? {
        let name = interface?.file_name();
        sysctl(&format!("net/ipv6/conf/{}/accept_dad", name.display()), "0")?;
    }
    Ok(())
}

/// Sets a sysctl of the namespace that the calling thread is in.
pub(super) fn sysctl(key: &str, value: &str) -> Result<()> {
    let path = Path::new("/proc/sys").join(key);
    fs::write(&path, value).with_context(|| format!("setting {} to {value}", path.display()))
}

fn line(batch: &mut String, text: std::fmt::Arguments<'_>) {
    // Writing to a String cannot fail.
    let _ = writeln!(batch, "{text}");
}

impl Iptables {
    /// The program that changes single rules in this variant.
    pub(super) fn program(self) -> &'static str {
        match self {
            Self::Nft => "iptables-nft",
            Self::Legacy => "iptables-legacy",
        }
    }

    /// The program that loads rules in this variant.
    pub(super) fn restore(self) -> &'static str {
        match self {
            Self::Nft => "iptables-nft-restore",
            Self::Legacy => "iptables-legacy-restore",
        }
    }

    /// The program that lists rules in this variant.
    pub fn save(self) -> &'static str {
        match self {
            Self::Nft => "iptables-nft-save",
            Self::Legacy => "iptables-legacy-save",
        }
    }
}
