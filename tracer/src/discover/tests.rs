use super::classify::classify;
use super::*;
use crate::event::Namer;
use crate::inventory::tests::sample;
use crate::target::Request;

/// A namespace by hand; it borrows this process's own as the open file.
struct Ns(Facts);

impl Ns {
    fn new(inode: u32, name: &str, forwards: bool) -> Self {
        let ns = NetNs {
            inode,
            name: (!name.is_empty()).then(|| name.to_owned()),
            pid: None,
            ..NetNs::current().unwrap()
        };
        Self(Facts {
            ns: Arc::new(ns),
            links: Vec::new(),
            addrs: Vec::new(),
            routes: Vec::new(),
            forwards,
            nsids: HashMap::new(),
        })
    }

    /// `peer` is (inode of its namespace, index there).
    fn link(mut self, ifindex: u32, name: &str, kind: &str, peer: Option<(u32, u32)>) -> Self {
        self.0.nsids.extend(peer.map(|(inode, _)| (inode, inode)));
        self.0.links.push(Link {
            ifindex,
            name: name.into(),
            kind: kind.into(),
            arphrd: if kind == "ipip" {
                libc::ARPHRD_TUNNEL
            } else {
                libc::ARPHRD_ETHER
            },
            up: true,
            link: peer.map(|(_, index)| index),
            link_netnsid: peer.map(|(inode, _)| inode),
            ..Link::default()
        });
        self
    }

    fn addr(mut self, ifindex: u32, addr: &str) -> Self {
        let addr = addr.parse().unwrap();
        self.0.addrs.push(Address {
            ifindex,
            addr,
            prefix: 24,
        });
        self
    }

    fn route(mut self, dst: &str, len: u8, oif: u32) -> Self {
        self.0.routes.push(Route {
            dst: dst.parse().unwrap(),
            len,
            oif,
            gateway: None,
            kind: 1,
            table: 254,
            src: None,
            metric: 0,
        });
        self
    }
}

fn pod(inode: u32, addr: &str, host: u32, host_index: u32) -> Ns {
    Ns::new(inode, "", true)
        .link(3, "eth0", "veth", Some((host, host_index)))
        .addr(3, addr)
        .route("0.0.0.0", 0, 3)
}

/// Two Calico-like nodes, a pod each, an outside client, under one machine that
/// forwards between them and runs a container of its own.
fn kind_like() -> Vec<Facts> {
    let node = |inode, name, addr, host_index, pod_inode, pod_addr| {
        Ns::new(inode, name, true)
            .link(2, "eth0", "veth", Some((1, host_index)))
            .link(3, "vxlan.calico", "vxlan", None)
            .link(4, "cali123", "veth", Some((pod_inode, 3)))
            .link(5, "tunl0", "ipip", None)
            .addr(2, addr)
            .route("0.0.0.0", 0, 2)
            .route(pod_addr, 32, 4)
    };
    let host = Ns::new(1, "", true)
        .link(2, "eth0", "", None)
        .link(3, "br0", "bridge", None)
        .link(12, "veth1", "veth", Some((10, 2)))
        .link(13, "veth2", "veth", Some((20, 2)))
        .addr(3, "172.18.0.1")
        .route("0.0.0.0", 0, 2);
    let mut worker2 = node(20, "w2", "172.18.0.2", 13, 21, "10.244.2.10");
    worker2.0.links[3].up = false;
    [
        host,
        node(10, "w1", "172.18.0.3", 12, 11, "10.244.80.65"),
        worker2,
        pod(11, "10.244.80.65", 10, 4),
        pod(21, "10.244.2.10", 20, 4),
    ]
    .map(|ns| ns.0)
    .into()
}

fn names(discovery: &Discovery) -> Vec<&str> {
    discovery.nodes.iter().map(|n| &*n.name).collect()
}

#[test]
fn nodes_are_named_by_the_inventory_and_the_machine_is_none() {
    let inventory = sample();
    let discovery = classify(&kind_like(), &HashMap::new(), Some(&inventory));
    assert_eq!(names(&discovery), ["worker", "worker2"]);
    let roles: Vec<_> = discovery.nodes[0].links.iter().map(|l| l.role).collect();
    assert_eq!(
        roles,
        [Role::Uplink, Role::Tunnel, Role::PodVeth, Role::Tunnel]
    );
    assert_eq!(discovery.nodes[1].links[3].role, Role::Other);
    let pods: Vec<_> = discovery
        .pods
        .iter()
        .map(|p| (p.netns, p.node, p.ifindex))
        .collect();
    assert_eq!(pods, [(11, 0, 4), (21, 1, 4)]);
    assert_eq!(&*discovery.pods[0].pod_iface, "eth0");
}

#[test]
fn a_machine_with_containers_and_nodes_is_no_node() {
    let mut all = kind_like();
    let host = Ns(all.remove(0)).link(14, "veth3", "veth", Some((30, 3)));
    all.push(host.0);
    for link in &mut all[4].links {
        link.master = (&*link.kind == "veth").then_some(3);
    }
    all.push(pod(30, "172.17.0.2", 1, 14).0);
    assert_eq!(names(&classify(&all, &HashMap::new(), None)), ["w1", "w2"]);
    let known = classify(&all, &HashMap::new(), Some(&sample()));
    assert_eq!(names(&known), ["worker", "worker2"]);
}

#[test]
fn without_an_inventory_namespaces_keep_their_own_names() {
    let discovery = classify(&kind_like(), &HashMap::new(), None);
    assert_eq!(names(&discovery), ["w1", "w2"]);
    let forced = HashMap::from([(20, "mine".to_owned())]);
    let discovery = classify(&kind_like(), &forced, Some(&sample()));
    assert_eq!(names(&discovery), ["mine"]);
    assert_eq!(discovery.pods.len(), 1);
}

#[test]
fn a_machine_without_pods_is_no_node() {
    let plain = Ns::new(1, "", true)
        .link(2, "eth0", "", None)
        .route("0.0.0.0", 0, 2);
    assert!(classify(&[plain.0], &HashMap::new(), None).nodes.is_empty());
    // A router with a host behind it, neither bridged nor routed by address.
    let router = Ns::new(1, "", true).link(2, "veth", "veth", Some((2, 3)));
    let all = vec![router.0, pod(2, "10.0.0.2", 1, 2).0];
    assert!(classify(&all, &HashMap::new(), None).nodes.is_empty());
    let bridged = || {
        let mut host = Ns::new(1, "", true).link(2, "veth", "veth", Some((2, 3)));
        host.0.links[0].master = Some(9);
        host
    };
    let all = vec![bridged().0, pod(2, "10.0.0.2", 1, 2).0];
    assert_eq!(names(&classify(&all, &HashMap::new(), None)), ["netns-1"]);
    let mut still = bridged();
    still.0.forwards = false;
    let all = vec![still.0, pod(2, "10.0.0.2", 1, 2).0];
    assert!(classify(&all, &HashMap::new(), None).nodes.is_empty());
}

fn watched(src: &str, dst: &str, backends: Option<&[&str]>, known: bool) -> Vec<String> {
    let inventory = sample();
    let discovery = classify(&kind_like(), &HashMap::new(), Some(&inventory));
    let parse = |s: &str| s.parse::<IpAddr>().ok();
    let request = Request {
        src: parse(src).into_iter().collect(),
        dst: parse(dst).into_iter().collect(),
        backends: backends.map(|b| b.iter().filter_map(|s| Some((parse(s)?, 80))).collect()),
        ..Request::default()
    };
    let list = watch_list(&discovery, &request, known.then_some(&inventory));
    let veths = list.iter().filter(|w| w.role == Role::PodVeth);
    let veths = veths.map(|w| format!("{}:{}", w.node, w.name)).collect();
    assert_eq!(list.iter().filter(|w| w.role == Role::Uplink).count(), 2);
    assert_eq!(list.iter().filter(|w| w.l3).count(), 1);
    veths
}

#[test]
fn the_veths_of_both_ends_are_watched() {
    let (both, first) = (["0:cali123", "1:cali123"], ["0:cali123"]);
    let (client, server, vip) = ("10.244.80.65", "10.244.2.10", "10.96.0.10");
    assert_eq!(watched(client, server, None, true), both);
    assert_eq!(watched(client, vip, Some(&[server]), true), both);
    assert_eq!(watched(client, vip, Some(&[client]), true), first);
    assert_eq!(watched(client, "8.8.8.8", None, true), first);
    assert_eq!(watched(client, "172.18.0.2", None, false), first);
    // Unknown ends: every veth.
    assert_eq!(watched(client, "8.8.8.8", None, false), both);
    assert_eq!(watched(client, "", None, true), both);
    assert_eq!(watched("", server, None, true), both);
    assert_eq!(watched(client, vip, Some(&[]), true), both);
}

#[test]
fn names_come_from_the_inventory_then_from_what_was_found() {
    let addr = |s: &str| s.parse::<IpAddr>().unwrap();
    let inventory = Arc::new(sample());
    let discovery = classify(&kind_like(), &HashMap::new(), Some(&inventory));
    let listed = Names::new(Some(inventory), &discovery);
    let found = Names::new(None, &discovery);
    let name = |n: &Names, a| n.endpoint(addr(a), Some(80)).name.map(|n| n.to_string());
    assert_eq!(
        name(&listed, "10.244.2.10").as_deref(),
        Some("pod/default/server")
    );
    assert_eq!(name(&found, "10.244.2.10"), None);
    assert_eq!(name(&found, "172.18.0.2").as_deref(), Some("node/worker2"));
    assert_eq!(
        found.node_of(addr("10.244.2.10")).as_deref(),
        Some("worker2")
    );
    assert_eq!(
        listed.node_of(addr("10.244.80.70")).as_deref(),
        Some("worker")
    );
    assert!(listed.is_node(addr("10.244.80.64")) && !found.is_node(addr("10.244.80.64")));
    assert!(!listed.is_node(addr("10.96.0.10")));
}

#[test]
fn overrides_are_parsed_and_bad_ones_told() {
    let (name, path) = parse_override("w=/run/netns/w").unwrap();
    assert_eq!((&*name, path.to_str()), ("w", Some("/run/netns/w")));
    assert!(parse_override("w").is_err() && parse_override("=x").is_err());
    let gone = [("w".to_owned(), PathBuf::from("/nowhere/w"))];
    let e = discover(&gone, None).unwrap_err().to_string();
    assert!(e.contains("cannot open namespace w at /nowhere/w"), "{e}");
}
