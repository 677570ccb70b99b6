//! The laboratory made ready: more rules, silence, and what tracer reads of it.

use std::sync::Arc;

use tracer::collect::{self, Target};
use tracer::netns::NetNs;
use tracer::rules::Ruleset;
use tracer::state::{Namespace, NamespaceKind};
use tracer_tests::lab::topology::{self, NODES, OUTSIDE, PODS, UNDERLAY};
use tracer_tests::lab::{Iptables, netns, program};

use crate::predict::{Node, World};
use crate::wire;

/// What kube-proxy writes for Services of all kinds.
const SERVICES: &str =
    include_str!("../../../tracer/testdata/rules/kube-proxy-1.30.3-iptables-full.iptables-save");
/// How often the nodes are read until all of it was.
const READINGS: usize = 6;

pub(crate) fn world() -> World {
    let is_whole = |nodes: &[Namespace; 2]| nodes.iter().all(|ns| ns.unread.is_empty());
    let mut nodes = read();
    // It is bounded in time, which an emulated machine may have too little of.
    for _ in 0..READINGS {
        if is_whole(&nodes) {
            break;
        }
        nodes = read();
    }
    World {
        nodes: nodes.map(understood).into(),
    }
}

pub(crate) fn load(node: &str, iptables: Iptables, rules: &str) {
    let restore = match iptables {
        Iptables::Nft => "iptables-nft-restore",
        Iptables::Legacy => "iptables-legacy-restore",
    };
    netns::within(node, || {
        program::feed(restore, &["-w", "10", "--noflush"], rules)
    })
    .expect("the rules are loaded");
}

/// More Services for the first node, and silence: pods and nodes send nothing but what is sent here, and tunnels.
pub(crate) fn prepare(iptables: Iptables) {
    load("worker", iptables, SERVICES);
    let run = |ns: &str, program: &str, args: &[&str], input: &str| {
        netns::within(ns, || program::feed(program, args, input))
            .expect("the laboratory is prepared");
    };
    let quiet = |but: &str| {
        format!(
            "table ip lab_quiet {{\n chain output {{\n  type filter hook output priority -500; policy drop;\n\
             {but}\n }}\n}}\n"
        )
    };
    // The bridge's host would tell of groups that it belongs to.
    for ns in PODS
        .iter()
        .map(|pod| pod.name)
        .chain([OUTSIDE.name, UNDERLAY])
    {
        run(ns, "nft", &["-f", "-"], &quiet(""));
    }
    let ours = quiet(&format!(
        "  ip id {} accept\n  udp dport 4789 accept",
        wire::ID
    ));
    for node in &NODES {
        run(node.name, "nft", &["-f", "-"], &ours);
    }
}

/// As tracer reads it.
fn read() -> [Namespace; 2] {
    let target = |node: &topology::Node| {
        let pods = PODS.iter().filter(|pod| pod.node == node.name);
        Target {
            name: node.name.into(),
            kind: NamespaceKind::Node,
            node: None,
            ns: Arc::new(NetNs::open(&netns::path(node.name)).expect("a namespace")),
            interfaces: pods
                .map(|pod| pod.host_end)
                .chain(["eth0", "vxlan.calico"])
                .map(Arc::from)
                .collect(),
        }
    };
    let targets = NODES.iter().map(target).collect();
    let options = collect::Options {
        nft: true,
        nice: false,
        wanted: collect::Wanted::default(),
        names: Arc::default(),
    };
    let read = collect::all(targets, &options).finish();
    read.try_into().expect("both nodes")
}

fn understood(ns: Namespace) -> Node {
    assert!(ns.unread.is_empty(), "{:?}", ns.unread);
    let (rules, problems) = Ruleset::parse(&ns.iptables, ns.ipsets.as_deref());
    assert!(problems.is_empty(), "{problems:?}");
    Node { ns, rules }
}

pub(crate) fn mac(world: &World, node: &str) -> [u8; 6] {
    let node = world
        .nodes
        .iter()
        .find(|n| &*n.ns.name == node)
        .expect("a node of that name");
    let text = node
        .ns
        .link("eth0")
        .and_then(|l| l.mac.clone())
        .expect("a link-layer address");
    let mut mac = [0; 6];
    for (byte, word) in mac.iter_mut().zip(text.split(':')) {
        *byte = u8::from_str_radix(word, 16).expect("two digits");
    }
    mac
}
