//! The ways a packet goes when nothing is wrong, step by step.

use std::fs;

use tracer_tests::lab::client::{self, Kept, SEARCH, Transport};
use tracer_tests::lab::dns::TYPE_A;
use tracer_tests::lab::topology::REMOTE_SERVICE;
use tracer_tests::lab::{extra_pod, witness};

use crate::run::{LIMIT, eventually, evidence, follow, follow_service, slurp};
use crate::trace::{Flow, Packet, Trace, kprobes};
use crate::world::{
    CLIENT_END, REMOTE_END, conntrack, counters, get, get_with, lab, patient, server_saw, service,
    v4,
};

const C: &str = "10.244.80.65:45266";
const S: &str = "10.98.235.247:80";
const B: &str = "10.244.158.65:8080";

/// Checks a packet's way; each line is a format string, see [`Packet::path`].
macro_rules! way {
    ($packet:expr, $($line:literal),+ $(,)?) => {
        $packet.path(&[$(&format!($line)),+])
    };
}

mod protocols;

/// From a veth of worker through DNAT and VXLAN to the pod `remote`.
#[track_caller]
fn to_remote_by_service(packet: &Packet) {
    way!(
        packet,
        "ingress {CLIENT_END}@worker: {C} > {S}",
        "dnat@worker: {C} > {B}",
        "?conntrack-new@worker",
        "egress vxlan.calico@worker: {C} > {B}",
        "encap@worker: {C} > {B} [172.31.0.2 > 172.31.0.3]",
        "egress eth0@worker: {C} > {B} [172.31.0.2 > 172.31.0.3]",
        "ingress eth0@worker2: {C} > {B} [172.31.0.2 > 172.31.0.3]",
        "decap@worker2: {C} > {B} [172.31.0.2 > 172.31.0.3]",
        "ingress vxlan.calico@worker2: {C} > {B}",
        "?conntrack-new@worker2",
        "egress {REMOTE_END}@worker2: {C} > {B}",
    );
}

#[track_caller]
fn back_by_service(packet: &Packet) {
    way!(
        packet,
        "ingress {REMOTE_END}@worker2: {B} > {C}",
        "egress vxlan.calico@worker2: {B} > {C}",
        "encap@worker2: {B} > {C} [172.31.0.3 > 172.31.0.2]",
        "egress eth0@worker2: {B} > {C} [172.31.0.3 > 172.31.0.2]",
        "ingress eth0@worker: {B} > {C} [172.31.0.3 > 172.31.0.2]",
        "decap@worker: {B} > {C} [172.31.0.3 > 172.31.0.2]",
        "ingress vxlan.calico@worker: {B} > {C}",
        "un-dnat@worker: {S} > {C}",
        "egress {CLIENT_END}@worker: {S} > {C}",
    );
}

/// The new entry is told at the first packet of the direction and only there.
#[track_caller]
fn one_new_entry(trace: &Trace, flow: &Flow, nodes: &[&str]) {
    for packet in trace.packets.iter().filter(|packet| packet.flow == flow.id) {
        let told: Vec<&str> = packet
            .steps
            .iter()
            .filter(|step| step.kind == "conntrack-new")
            .map(|step| step.node.as_str())
            .collect();
        let wanted: &[&str] = if packet.summary == "SYN" { nodes } else { &[] };
        packet.require(told == wanted, &format!("conntrack-new at {wanted:?}"));
    }
}

/// Delivered; or the last acknowledgement, which nobody answers, to where nobody watches.
#[track_caller]
fn arrived(packet: &Packet) {
    let out_of_sight = packet
        .steps
        .last()
        .is_some_and(|step| step.place() == "egress eth0@worker" && !step.in_tunnel());
    if packet.outcome != "pending" || packet.summary != "ACK" || !out_of_sight {
        packet.outcome("delivered");
    }
}

/// A whole short exchange over TCP: handshake, request, answer, end, each packet delivered once.
#[track_caller]
fn whole_exchange<'a>(trace: &'a Trace, flow: &Flow) -> [Vec<&'a Packet>; 2] {
    trace.healthy().lossless();
    let state = flow.state.as_str();
    trace.require(
        state == "closed",
        &format!("flow state {state}, not closed"),
    );
    trace.packet(flow, "SYN");
    trace.packet(flow, "SYN-ACK");
    let ways = ["request", "reply"].map(|way| trace.packets_of(flow, way));
    for packets in &ways {
        for packet in packets {
            arrived(packet);
            packet.require(packet.attempt == 1, "sent once");
        }
        for part in ["PSH", "FIN"] {
            trace.require(
                packets.iter().any(|packet| packet.summary.contains(part)),
                &format!("a {part} each way"),
            );
        }
    }
    trace.require(
        ways.iter().map(Vec::len).sum::<usize>() == trace.packets.len(),
        "no other packets",
    );
    ways
}

/// Both directions of the conntrack entry told at this place are those that the kernel lists.
#[track_caller]
fn same_entry(packet: &Packet, node: &str) {
    let step = packet.at(&format!("conntrack-new@{node}"));
    let Some(entry) = &step.conntrack else {
        packet.require(false, "the entry's tuples");
        return;
    };
    let told = [entry.original.to_string(), entry.reply.to_string()];
    let listed = conntrack(node, "tcp", entry.original.src.port.unwrap_or(0));
    packet.require(
        listed.contains(&told),
        &format!("{told:?} among {listed:?}"),
    );
}

#[test]
fn pod_to_pod_on_one_node() {
    let _lab = lab();
    let run = follow("local", &["--pod", "client", "--dst", "10.244.80.66:8080"]).start();
    let saw = get("client", v4(10, 244, 80, 66, 8080)).saw().expect("saw");
    server_saw("local", saw);
    let done = run.stop();
    let trace = done.exit(0).trace();
    let local = "10.244.80.66:8080";
    let flow = trace.only_flow(&format!("tcp {C} > {local}"));
    let [requests, replies] = whole_exchange(&trace, flow);
    assert_eq!(saw.to_string(), C);
    for packet in requests {
        way!(
            packet,
            "ingress {CLIENT_END}@worker: {C} > {local}",
            "?conntrack-new@worker",
            "egress calid5f5981a8e0@worker: {C} > {local}",
        );
    }
    for packet in replies {
        way!(
            packet,
            "ingress calid5f5981a8e0@worker: {local} > {C}",
            "egress {CLIENT_END}@worker: {local} > {C}",
        );
    }
    one_new_entry(&trace, flow, &["worker"]);
    same_entry(trace.packet(flow, "SYN"), "worker");
}

#[test]
fn core_pod_to_pod_over_vxlan() {
    let _lab = lab();
    let run = follow("vxlan", &["--pod", "client", "--dst", B]).start();
    let saw = get("client", v4(10, 244, 158, 65, 8080))
        .saw()
        .expect("saw");
    server_saw("remote", saw);
    let done = run.stop();
    let trace = done.exit(0).trace();
    let flow = trace.only_flow(&format!("tcp {C} > {B}"));
    let [requests, replies] = whole_exchange(&trace, flow);
    assert_eq!(saw.to_string(), C);
    for packet in requests {
        way!(
            packet,
            "ingress {CLIENT_END}@worker: {C} > {B}",
            "?conntrack-new@worker",
            "egress vxlan.calico@worker: {C} > {B}",
            "encap@worker: {C} > {B} [172.31.0.2 > 172.31.0.3]",
            "egress eth0@worker: {C} > {B} [172.31.0.2 > 172.31.0.3]",
            "ingress eth0@worker2: {C} > {B} [172.31.0.2 > 172.31.0.3]",
            "decap@worker2: {C} > {B} [172.31.0.2 > 172.31.0.3]",
            "ingress vxlan.calico@worker2: {C} > {B}",
            "?conntrack-new@worker2",
            "egress {REMOTE_END}@worker2: {C} > {B}",
        );
    }
    for packet in replies {
        way!(
            packet,
            "ingress {REMOTE_END}@worker2: {B} > {C}",
            "egress vxlan.calico@worker2: {B} > {C}",
            "encap@worker2: {B} > {C} [172.31.0.3 > 172.31.0.2]",
            "egress eth0@worker2: {B} > {C} [172.31.0.3 > 172.31.0.2]",
            "ingress eth0@worker: {B} > {C} [172.31.0.3 > 172.31.0.2]",
            "decap@worker: {B} > {C} [172.31.0.3 > 172.31.0.2]",
            "ingress vxlan.calico@worker: {B} > {C}",
            "egress {CLIENT_END}@worker: {B} > {C}",
        );
    }
    one_new_entry(&trace, flow, &["worker", "worker2"]);
}

#[test]
fn core_cluster_ip() {
    let _lab = lab();
    let run = follow_service("cluster-ip").start();
    let places = [("worker", CLIENT_END), ("worker2", REMOTE_END)];
    let before = places.map(|(node, iface)| counters(node, iface));
    let response = get("client", service());
    let saw = response.saw().expect("saw");
    server_saw("remote", saw);
    let done = run.stop();
    let after = places.map(|(node, iface)| counters(node, iface));
    let trace = done.exit(0).trace();
    let flow = trace.only_flow(&format!("tcp {C} > {S} = {B}"));
    let name = |end: &crate::trace::Endpoint| end.name.clone().unwrap_or_default();
    assert_eq!(name(&flow.client), "pod/default/client");
    assert_eq!(name(&flow.server), "svc/default/remote");
    assert_eq!(
        flow.backend.as_ref().map(name).unwrap_or_default(),
        "pod/default/remote"
    );
    let [requests, replies] = whole_exchange(&trace, flow);
    assert_eq!(
        (response.pod(), saw.to_string().as_str()),
        (Some("remote"), C)
    );
    let rewrite = trace.packet(flow, "SYN").at("dnat@worker").rewrite.clone();
    let rewrite = rewrite.expect("what was rewritten");
    assert_eq!(
        (
            rewrite.field,
            rewrite.from.to_string(),
            rewrite.to.to_string()
        ),
        ("dst".to_owned(), S.to_owned(), B.to_owned())
    );
    for packet in &requests {
        to_remote_by_service(packet);
    }
    for packet in &replies {
        back_by_service(packet);
    }
    one_new_entry(&trace, flow, &["worker", "worker2"]);
    let syn = trace.packet(flow, "SYN");
    same_entry(syn, "worker");
    same_entry(syn, "worker2");
    // At the client's veth requests come in, at the server's they go out; the rest is ARP.
    for (at, expected) in [
        [requests.len(), replies.len()],
        [replies.len(), requests.len()],
    ]
    .into_iter()
    .enumerate()
    {
        for way in [0, 1] {
            let (counted, told) = (after[at][way] - before[at][way], expected[way] as u64);
            trace.require(
                (told..=told + 6).contains(&counted),
                &format!("{:?} counted {counted} packets, not {told}", places[at]),
            );
        }
    }
}

#[test]
fn deep_tells_more_of_the_same_way() {
    if !kprobes() {
        eprintln!("this kernel has no kprobes: nothing is deep");
        return;
    }
    let _lab = lab();
    let run = follow_service("deep").args(&["--deep"]).start();
    let saw = get("client", service()).saw().expect("saw");
    server_saw("remote", saw);
    let done = run.stop();
    let trace = done.exit(0).trace();
    let flow = trace.only_flow(&format!("tcp {C} > {S} = {B}"));
    let [requests, replies] = whole_exchange(&trace, flow);
    for packet in &requests {
        to_remote_by_service(packet);
        let place = |wanted: &str| {
            let at = packet.steps.iter().position(|step| step.place() == wanted);
            at.unwrap_or_else(|| panic!("no {wanted} in {}", packet.describe()))
        };
        for node in ["worker", "worker2"] {
            let hooks: Vec<(usize, &str, &str)> = packet
                .steps
                .iter()
                .enumerate()
                .filter(|(_, step)| step.node == node)
                .filter_map(|(at, step)| step.hook.as_ref().map(|hook| (at, hook)))
                .map(|(at, hook)| (at, hook.hook.as_str(), hook.verdict.as_str()))
                .collect();
            for wanted in ["PREROUTING", "FORWARD", "POSTROUTING"] {
                let (from, to) = match node {
                    "worker" => (
                        place(&format!("ingress {CLIENT_END}@worker")),
                        place("egress vxlan.calico@worker"),
                    ),
                    _ => (
                        place("decap@worker2"),
                        place(&format!("egress {REMOTE_END}@worker2")),
                    ),
                };
                packet.require(
                    hooks.iter().any(|&(at, hook, verdict)| {
                        hook == wanted && verdict == "ACCEPT" && from < at && at < to
                    }),
                    &format!("{wanted} ACCEPT between the interfaces of {node}"),
                );
            }
        }
        let route = packet.at("route@worker");
        let dev = route.route.as_ref().map(|route| route.dev.as_str());
        packet.require(dev == Some("vxlan.calico"), "the route to the tunnel");
        let last = packet.steps.last().map(|step| step.kind.as_str());
        packet.require(last == Some("deliver"), "delivered to a socket last");
    }
    for packet in &replies {
        back_by_service(packet);
        let last = packet.steps.last().map(|step| step.kind.as_str());
        packet.require(last == Some("deliver"), "delivered to a socket last");
    }
}

#[test]
fn core_pod_to_outside_is_masqueraded() {
    let _lab = lab();
    let o = "172.31.0.5:8080";
    let run = follow("outside", &["--pod", "client", "--dst", o]).start();
    let saw = get("client", v4(172, 31, 0, 5, 8080)).saw().expect("saw");
    server_saw("outside", saw);
    let done = run.stop();
    let trace = done.exit(0).trace();
    let flow = trace.only_flow(&format!("tcp {C} > {o}"));
    let [requests, replies] = whole_exchange(&trace, flow);
    assert_eq!(saw.ip().to_string(), "172.31.0.2");
    for packet in requests {
        way!(
            packet,
            "ingress {CLIENT_END}@worker: {C} > {o}",
            "masquerade@worker: {saw} > {o}",
            "?conntrack-new@worker",
            "egress eth0@worker: {saw} > {o}",
        );
    }
    for packet in replies {
        way!(
            packet,
            "ingress eth0@worker: {o} > {saw}",
            "un-snat@worker: {o} > {C}",
            "egress {CLIENT_END}@worker: {o} > {C}",
        );
    }
    one_new_entry(&trace, flow, &["worker"]);
    same_entry(trace.packet(flow, "SYN"), "worker");
}

#[test]
fn node_port() {
    let _lab = lab();
    let (o, n) = ("172.31.0.5:45266", "172.31.0.2:30080");
    let run = follow("node-port", &["--src", "172.31.0.5", "--dst", n]).start();
    let saw = get("outside", v4(172, 31, 0, 2, 30080)).saw().expect("saw");
    server_saw("remote", saw);
    let done = run.stop();
    let trace = done.exit(0).trace();
    let flow = trace.only_flow(&format!("tcp {o} > {n} = {B}"));
    let [requests, replies] = whole_exchange(&trace, flow);
    assert_eq!(saw.ip().to_string(), "10.244.80.64");
    for packet in requests {
        way!(
            packet,
            "ingress eth0@worker: {o} > {n}",
            "dnat@worker: {o} > {B}",
            "masquerade@worker: {saw} > {B}",
            "?conntrack-new@worker",
            "egress vxlan.calico@worker: {saw} > {B}",
            "encap@worker: {saw} > {B} [172.31.0.2 > 172.31.0.3]",
            "egress eth0@worker: {saw} > {B} [172.31.0.2 > 172.31.0.3]",
            "ingress eth0@worker2: {saw} > {B} [172.31.0.2 > 172.31.0.3]",
            "decap@worker2: {saw} > {B} [172.31.0.2 > 172.31.0.3]",
            "ingress vxlan.calico@worker2: {saw} > {B}",
            "?conntrack-new@worker2",
            "egress {REMOTE_END}@worker2: {saw} > {B}",
        );
    }
    for packet in replies {
        way!(
            packet,
            "ingress {REMOTE_END}@worker2: {B} > {saw}",
            "egress vxlan.calico@worker2: {B} > {saw}",
            "encap@worker2: {B} > {saw} [172.31.0.3 > 172.31.0.2]",
            "egress eth0@worker2: {B} > {saw} [172.31.0.3 > 172.31.0.2]",
            "ingress eth0@worker: {B} > {saw} [172.31.0.3 > 172.31.0.2]",
            "decap@worker: {B} > {saw} [172.31.0.3 > 172.31.0.2]",
            "ingress vxlan.calico@worker: {B} > {saw}",
            "un-snat@worker: {B} > {o}",
            "un-dnat@worker: {n} > {o}",
            "egress eth0@worker: {n} > {o}",
        );
    }
    one_new_entry(&trace, flow, &["worker", "worker2"]);
    same_entry(trace.packet(flow, "SYN"), "worker");
}

#[test]
fn pod_to_itself_by_its_service() {
    let _lab = lab();
    let run = follow("hairpin", &["--pod", "remote", "--dst", "svc/remote"]).start();
    let saw = get("remote", service()).saw().expect("saw");
    server_saw("remote", saw);
    let done = run.stop();
    let trace = done.exit(0).trace();
    let r = "10.244.158.65:45266";
    let flow = trace.only_flow(&format!("tcp {r} > {S} = {B}"));
    let [requests, replies] = whole_exchange(&trace, flow);
    assert_ne!(saw.to_string(), r);
    for packet in requests {
        way!(
            packet,
            "ingress {REMOTE_END}@worker2: {r} > {S}",
            "dnat@worker2: {r} > {B}",
            "masquerade@worker2: {saw} > {B}",
            "?conntrack-new@worker2",
            "egress {REMOTE_END}@worker2: {saw} > {B}",
        );
    }
    for packet in replies {
        way!(
            packet,
            "ingress {REMOTE_END}@worker2: {B} > {saw}",
            "un-snat@worker2: {B} > {r}",
            "un-dnat@worker2: {S} > {r}",
            "egress {REMOTE_END}@worker2: {S} > {r}",
        );
    }
    one_new_entry(&trace, flow, &["worker2"]);
}

#[test]
fn process_on_a_node_to_a_service() {
    let _lab = lab();
    let run = follow("host", &["--src", "172.31.0.2", "--dst", S]).start();
    let saw = get("worker", service()).saw().expect("saw");
    server_saw("remote", saw);
    let done = run.stop();
    let trace = done.exit(0).trace();
    let h = "172.31.0.2:45266";
    let flow = trace.only_flow(&format!("tcp {h} > {S} = {B}"));
    let [requests, replies] = whole_exchange(&trace, flow);
    assert_eq!(saw.ip().to_string(), "10.244.80.64");
    for packet in requests {
        way!(
            packet,
            "dnat@worker: {h} > {B}",
            "masquerade@worker: {saw} > {B}",
            "?conntrack-new@worker",
            "egress vxlan.calico@worker: {saw} > {B}",
            "encap@worker: {saw} > {B} [172.31.0.2 > 172.31.0.3]",
            "egress eth0@worker: {saw} > {B} [172.31.0.2 > 172.31.0.3]",
            "ingress eth0@worker2: {saw} > {B} [172.31.0.2 > 172.31.0.3]",
            "decap@worker2: {saw} > {B} [172.31.0.2 > 172.31.0.3]",
            "ingress vxlan.calico@worker2: {saw} > {B}",
            "?conntrack-new@worker2",
            "egress {REMOTE_END}@worker2: {saw} > {B}",
        );
    }
    // Without kprobes nothing is seen of a packet once a node has taken it for itself.
    let may = if kprobes() { "" } else { "?" };
    for packet in replies {
        way!(
            packet,
            "ingress {REMOTE_END}@worker2: {B} > {saw}",
            "egress vxlan.calico@worker2: {B} > {saw}",
            "encap@worker2: {B} > {saw} [172.31.0.3 > 172.31.0.2]",
            "egress eth0@worker2: {B} > {saw} [172.31.0.3 > 172.31.0.2]",
            "ingress eth0@worker: {B} > {saw} [172.31.0.3 > 172.31.0.2]",
            "decap@worker: {B} > {saw} [172.31.0.3 > 172.31.0.2]",
            "ingress vxlan.calico@worker: {B} > {saw}",
            "{may}un-snat@worker: {B} > {h}",
            "{may}un-dnat@worker: {S} > {h}",
        );
    }
}

#[test]
fn name_then_service() {
    let _lab = lab();
    let run = follow("name", &["--pod", "client"]).start();
    let (_, answer) = client::resolve(
        Some("client"),
        "remote",
        TYPE_A,
        &SEARCH,
        Transport::Udp,
        LIMIT,
    )
    .expect("the resolver answers");
    assert_eq!(answer.addrs, [*REMOTE_SERVICE.ip()]);
    let saw = get("client", service()).saw().expect("saw");
    server_saw("remote", saw);
    let asked = witness::wait_for("dns", LIMIT, |access| access.proto == "udp");
    let asked = asked.expect("the resolver logged it").peer;
    let done = run.stop();
    let trace = done.exit(0).trace();
    trace.lossless().healthy();
    let (d, dns) = ("10.96.0.10:53", "10.244.158.66:53");
    let flow = trace.flow(&format!("udp {asked} > {d} = {dns}"));
    let (requests, replies) = (
        trace.packets_of(flow, "request"),
        trace.packets_of(flow, "reply"),
    );
    trace.require(
        requests.len() == 1 && replies.len() == 1,
        "one question, one answer",
    );
    way!(
        requests[0].outcome("delivered"),
        "ingress {CLIENT_END}@worker: {asked} > {d}",
        "dnat@worker: {asked} > {dns}",
        "conntrack-new@worker",
        "egress vxlan.calico@worker: {asked} > {dns}",
        "encap@worker: {asked} > {dns} [172.31.0.2 > 172.31.0.3]",
        "egress eth0@worker: {asked} > {dns} [172.31.0.2 > 172.31.0.3]",
        "ingress eth0@worker2: {asked} > {dns} [172.31.0.2 > 172.31.0.3]",
        "decap@worker2: {asked} > {dns} [172.31.0.2 > 172.31.0.3]",
        "ingress vxlan.calico@worker2: {asked} > {dns}",
        "conntrack-new@worker2",
        "egress cali3f0e5a7b9c1@worker2: {asked} > {dns}",
    );
    replies[0].outcome("delivered");
    way!(
        replies[0],
        "ingress cali3f0e5a7b9c1@worker2: {dns} > {asked}",
        "egress vxlan.calico@worker2: {dns} > {asked}",
        "encap@worker2: {dns} > {asked} [172.31.0.3 > 172.31.0.2]",
        "egress eth0@worker2: {dns} > {asked} [172.31.0.3 > 172.31.0.2]",
        "ingress eth0@worker: {dns} > {asked} [172.31.0.3 > 172.31.0.2]",
        "decap@worker: {dns} > {asked} [172.31.0.3 > 172.31.0.2]",
        "ingress vxlan.calico@worker: {dns} > {asked}",
        "un-dnat@worker: {d} > {asked}",
        "egress {CLIENT_END}@worker: {d} > {asked}",
    );
    let flow = trace.flow(&format!("tcp {C} > {S} = {B}"));
    trace.require(flow.state == "closed", "the connection is closed");
    to_remote_by_service(trace.packet(flow, "SYN"));
    back_by_service(trace.packet(flow, "SYN-ACK"));
}

#[test]
fn connection_older_than_the_tool() {
    let _lab = lab();
    let old = client::Options {
        path: "/bytes/100".to_owned(),
        ..patient()
    };
    let mut connection = Kept::open(Some("client"), service(), &old).expect("a connection");
    let first = connection.get(&old).expect("the first answer");
    assert_eq!(first.body_len, 100);
    let run = follow_service("older").start();
    let second = connection.get(&old).expect("the second answer");
    assert_eq!(second.body_len, 100);
    drop(connection);
    server_saw("remote", first.local_addr);
    let done = run.stop();
    let trace = done.exit(0).trace();
    let flow = trace.only_flow(&format!("tcp {C} > {S} = {B}"));
    let (requests, replies) = (
        trace.packets_of(flow, "request"),
        trace.packets_of(flow, "reply"),
    );
    for (packets, what) in [(&requests, "requests"), (&replies, "replies")] {
        trace.require(
            packets.iter().any(|packet| packet.summary.contains("PSH")),
            &format!("data among the {what}"),
        );
    }
    for packet in &requests {
        to_remote_by_service(packet);
    }
    for packet in &replies {
        back_by_service(packet);
    }
    one_new_entry(&trace, flow, &[]);
    trace.lossless().healthy();
}

#[test]
fn pod_that_comes_after_the_tool() {
    let _lab = lab();
    let file = evidence().join("late.jsonl");
    let _ = fs::remove_file(&file);
    let run = follow("late", &["--dst", S]).arg("-w").arg(&file).start();
    let address = "10.244.80.67".parse().expect("an address");
    let pod = extra_pod("worker", "late", address).expect("one more pod");
    let call = || {
        let options = client::Options::default().timeout(LIMIT);
        let saw = get_with(&pod.name, service(), &options).saw().expect("saw");
        server_saw("remote", saw);
        saw
    };
    // Its first packets may come before the tool has noticed it; before long it is watched.
    eventually("the new pod is watched", || {
        call();
        String::from_utf8_lossy(&slurp(&file)).contains(&pod.host_end)
    });
    let peer = call();
    let done = run.stop();
    let trace = done.exit(0).trace();
    let p = peer;
    let flow = trace.flow(&format!("tcp {p} > {S} = {B}"));
    trace.require(flow.state == "closed", "the connection is closed");
    trace.healthy();
    let end = &pod.host_end;
    way!(
        trace.packet(flow, "SYN"),
        "ingress {end}@worker: {p} > {S}",
        "dnat@worker: {p} > {B}",
        "conntrack-new@worker",
        "egress vxlan.calico@worker: {p} > {B}",
        "encap@worker: {p} > {B} [172.31.0.2 > 172.31.0.3]",
        "egress eth0@worker: {p} > {B} [172.31.0.2 > 172.31.0.3]",
        "ingress eth0@worker2: {p} > {B} [172.31.0.2 > 172.31.0.3]",
        "decap@worker2: {p} > {B} [172.31.0.2 > 172.31.0.3]",
        "ingress vxlan.calico@worker2: {p} > {B}",
        "conntrack-new@worker2",
        "egress {REMOTE_END}@worker2: {p} > {B}",
    );
}

#[test]
fn count_ends_it() {
    let _lab = lab();
    let done = follow("time", &["--pod", "client", "--dst", S])
        .args(&["--count", "1"])
        .start();
    let saw = get("client", service()).saw().expect("saw");
    server_saw("remote", saw);
    // No signal: the one connection has ended, and so does the tool.
    let done = done.wait();
    let trace = done.exit(0).trace();
    let flow = trace.only_flow(&format!("tcp {C} > {S} = {B}"));
    to_remote_by_service(trace.packet(flow, "SYN"));
    trace.healthy();
}
