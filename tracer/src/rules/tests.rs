//! Real rules of kube-proxy 1.30 and Calico 3.32, in `testdata/rules`.

mod chance;
mod evaluate;
mod felix;
mod naming;
mod parse;
mod routing;
mod sets;
mod traverse;

use std::net::SocketAddr;
use std::sync::Arc;

use super::*;
use crate::state::{Addr, Link, Namespace, NamespaceKind, Route};

/// All files of one kind, with their names.
fn files(ending: &str) -> Vec<(String, String)> {
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/rules");
    let mut files = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if name.ends_with(ending) {
            files.push((name.clone(), read(&name)));
        }
    }
    assert!(files.len() >= 7);
    files
}

fn read(name: &str) -> String {
    std::fs::read_to_string(format!(
        "{}/testdata/rules/{name}",
        env!("CARGO_MANIFEST_DIR")
    ))
    .unwrap()
}

fn dump(text: &str) -> IptablesDump {
    IptablesDump {
        ipv6: false,
        variant: "nft".into(),
        text: text.to_owned(),
    }
}

/// The rules of a node, of which all must be understood.
fn node(iptables: &str, ipset: Option<&str>) -> Ruleset {
    let sets = ipset.map(read);
    let (rules, problems) = Ruleset::parse(&[dump(&read(iptables))], sets.as_deref());
    assert_eq!(problems, []);
    rules
}

fn worker() -> Ruleset {
    node(
        "combined-worker.iptables-save",
        Some("combined-worker.ipset-save"),
    )
}

fn worker2() -> Ruleset {
    node(
        "combined-worker2.iptables-save",
        Some("combined-worker2.ipset-save"),
    )
}

fn kube_proxy() -> Ruleset {
    node("kube-proxy-1.30.3-iptables-full.iptables-save", None)
}

/// One table of the filter kind from its chains and rules.
fn filter(rules: &str) -> (Ruleset, Vec<Problem>) {
    let text = format!("*filter\n{rules}\nCOMMIT\n");
    Ruleset::parse(&[dump(&text)], None)
}

fn decided(rules: &str, packet: &Packet) -> Decision {
    let (rules, problems) = filter(&format!(":INPUT ACCEPT [0:0]\n{rules}"));
    assert_eq!(problems, []);
    rules
        .evaluate(Hook::Input, "filter", packet, &host())
        .unwrap()
}

fn addr(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn tcp(src: &str, dst: &str) -> Packet {
    Packet::tcp(addr(src), addr(dst))
}

/// The client's SYN to the Service, as it leaves the pod.
fn to_service() -> Packet {
    tcp("10.244.80.65:40000", "10.98.235.247:80").arriving("cali747ff840379")
}

/// What is needed of a namespace: the node `worker`.
fn host() -> Namespace {
    let route =
        |dst: &str, prefix, kind: &str, table, dev: Option<&str>, via: Option<&str>| Route {
            dst: dst.parse().unwrap(),
            prefix,
            kind: kind.into(),
            table,
            dev: dev.map(Arc::from),
            via: via.map(|v| v.parse().unwrap()),
            src: None,
            metric: 0,
        };
    let link = |name: &str, kind: &str, addr: Option<(&str, u8)>| Link {
        name: name.into(),
        kind: kind.into(),
        addrs: addr
            .map(|(addr, prefix)| Addr {
                addr: addr.parse().unwrap(),
                prefix,
            })
            .into_iter()
            .collect(),
        ..Link::default()
    };
    let mut ns = empty();
    ns.links = vec![
        link("lo", "", Some(("127.0.0.1", 8))),
        link("eth0", "", Some(("172.31.0.2", 24))),
        link("vxlan.calico", "vxlan", Some(("10.244.80.64", 32))),
        link("cali747ff840379", "veth", None),
        link("calid5f5981a8e0", "veth", None),
    ];
    ns.routes = vec![
        route("127.0.0.0", 8, "local", 255, Some("lo"), None),
        route("172.31.0.2", 32, "local", 255, Some("eth0"), None),
        route("172.31.0.255", 32, "broadcast", 255, Some("eth0"), None),
        route("10.244.80.64", 32, "local", 255, Some("vxlan.calico"), None),
        route(
            "0.0.0.0",
            0,
            "unicast",
            254,
            Some("eth0"),
            Some("172.31.0.1"),
        ),
        route("172.31.0.0", 24, "unicast", 254, Some("eth0"), None),
        route("10.244.80.64", 26, "blackhole", 254, None, None),
        route(
            "10.244.80.65",
            32,
            "unicast",
            254,
            Some("cali747ff840379"),
            None,
        ),
        route(
            "10.244.80.66",
            32,
            "unicast",
            254,
            Some("calid5f5981a8e0"),
            None,
        ),
        route(
            "10.244.158.64",
            26,
            "unicast",
            254,
            Some("vxlan.calico"),
            Some("10.244.158.64"),
        ),
    ];
    ns
}

fn empty() -> Namespace {
    Namespace {
        name: "worker".into(),
        kind: NamespaceKind::Node,
        node: None,
        netns: 1,
        read_at: 0,
        links: Vec::new(),
        routes: Vec::new(),
        rules: Vec::new(),
        neighbours: Vec::new(),
        fdb: Vec::new(),
        sysctls: std::collections::BTreeMap::new(),
        counters: std::collections::BTreeMap::new(),
        counters_before: std::collections::BTreeMap::new(),
        iptables: Vec::new(),
        ipsets: None,
        nft: None,
        ipvs: None,
        conntrack: Vec::new(),
        qdiscs: Vec::new(),
        listeners: Vec::new(),
        unread: Vec::new(),
    }
}
