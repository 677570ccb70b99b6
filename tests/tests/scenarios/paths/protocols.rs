//! The same for what is not TCP over IPv4 in whole packets.

use std::net::{SocketAddr, UdpSocket};

use tracer_tests::lab::client;
use tracer_tests::lab::topology;
use tracer_tests::lab::{Options, netns, witness};

use super::{B, C, whole_exchange};
use crate::run::{LIMIT, follow};
use crate::trace::{Flow, Trace};
use crate::world::{CLIENT_END, PORT, REMOTE_END, get, lab, lab_with, options, server_saw, v4};

#[test]
fn ipv6_over_vxlan() {
    let _lab = lab_with(&Options {
        ipv6: true,
        ..options()
    });
    let remote = topology::pod("remote").expect("a pod").addr6;
    let client6 = topology::pod("client").expect("a pod").addr6;
    let (c, b) = (format!("[{client6}]:{PORT}"), format!("[{remote}]:8080"));
    let run = follow("ipv6", &["--pod", "client", "--dst", &b]).start();
    let saw = get("client", SocketAddr::new(remote.into(), 8080)).saw();
    let saw = saw.expect("saw");
    server_saw("remote", saw);
    let done = run.stop();
    let trace = done.exit(0).trace();
    let flow = trace.only_flow(&format!("tcp {c} > {b}"));
    let [requests, replies] = whole_exchange(&trace, flow);
    assert_eq!(saw.to_string(), c);
    for packet in requests {
        way!(
            packet,
            "ingress {CLIENT_END}@worker: {c} > {b}",
            "?conntrack-new@worker",
            "egress vxlan.calico@worker: {c} > {b}",
            "encap@worker: {c} > {b} [172.31.0.2 > 172.31.0.3]",
            "egress eth0@worker: {c} > {b} [172.31.0.2 > 172.31.0.3]",
            "ingress eth0@worker2: {c} > {b} [172.31.0.2 > 172.31.0.3]",
            "decap@worker2: {c} > {b} [172.31.0.2 > 172.31.0.3]",
            "ingress vxlan.calico@worker2: {c} > {b}",
            "?conntrack-new@worker2",
            "egress {REMOTE_END}@worker2: {c} > {b}",
        );
    }
    for packet in replies {
        way!(
            packet,
            "ingress {REMOTE_END}@worker2: {b} > {c}",
            "egress vxlan.calico@worker2: {b} > {c}",
            "encap@worker2: {b} > {c} [172.31.0.3 > 172.31.0.2]",
            "egress eth0@worker2: {b} > {c} [172.31.0.3 > 172.31.0.2]",
            "ingress eth0@worker: {b} > {c} [172.31.0.3 > 172.31.0.2]",
            "decap@worker: {b} > {c} [172.31.0.3 > 172.31.0.2]",
            "ingress vxlan.calico@worker: {b} > {c}",
            "egress {CLIENT_END}@worker: {b} > {c}",
        );
    }
}

/// The way of a packet without ports or translation from the client to `remote`, and back.
#[track_caller]
fn plain_ways(trace: &Trace, flow: &Flow, [c, b]: [&str; 2]) {
    let (requests, replies) = (
        trace.packets_of(flow, "request"),
        trace.packets_of(flow, "reply"),
    );
    trace.require(
        requests.len() == 1 && replies.len() == 1 && trace.packets.len() == 2,
        "one question, one answer",
    );
    way!(
        requests[0].outcome("delivered"),
        "ingress {CLIENT_END}@worker: {c} > {b}",
        "?conntrack-new@worker",
        "egress vxlan.calico@worker: {c} > {b}",
        "encap@worker: {c} > {b} [172.31.0.2 > 172.31.0.3]",
        "egress eth0@worker: {c} > {b} [172.31.0.2 > 172.31.0.3]",
        "ingress eth0@worker2: {c} > {b} [172.31.0.2 > 172.31.0.3]",
        "decap@worker2: {c} > {b} [172.31.0.2 > 172.31.0.3]",
        "ingress vxlan.calico@worker2: {c} > {b}",
        "?conntrack-new@worker2",
        "egress {REMOTE_END}@worker2: {c} > {b}",
    );
    way!(
        replies[0].outcome("delivered"),
        "ingress {REMOTE_END}@worker2: {b} > {c}",
        "egress vxlan.calico@worker2: {b} > {c}",
        "encap@worker2: {b} > {c} [172.31.0.3 > 172.31.0.2]",
        "egress eth0@worker2: {b} > {c} [172.31.0.3 > 172.31.0.2]",
        "ingress eth0@worker: {b} > {c} [172.31.0.3 > 172.31.0.2]",
        "decap@worker: {b} > {c} [172.31.0.3 > 172.31.0.2]",
        "ingress vxlan.calico@worker: {b} > {c}",
        "egress {CLIENT_END}@worker: {b} > {c}",
    );
}

#[test]
fn udp_echo() {
    let _lab = lab();
    let args = ["--pod", "client", "--dst", B, "--proto", "udp"];
    let run = follow("udp", &args).start();
    let answer = client::echo(Some("client"), v4(10, 244, 158, 65, 8080), LIMIT);
    let answer = answer.expect("an answer");
    let saw = answer.trim().rsplit_once("saw=").expect("saw").1.to_owned();
    let done = run.stop();
    let trace = done.exit(0).trace();
    trace.lossless().healthy();
    let flow = trace.only_flow(&format!("udp {saw} > {B}"));
    trace.require(flow.state == "answered", "answered");
    plain_ways(&trace, flow, [&saw, B]);
}

#[test]
fn icmp_echo() {
    let _lab = lab();
    let remote = "10.244.158.65";
    let args = ["--pod", "client", "--dst", remote, "--proto", "icmp"];
    let run = follow("icmp", &args).start();
    netns::within("client", || ping(remote)).expect("an answer");
    let done = run.stop();
    let trace = done.exit(0).trace();
    trace.lossless().healthy();
    trace.require(trace.flows.len() == 1, "one flow");
    let flow = &trace.flows[0];
    assert_eq!(
        (
            flow.proto.as_str(),
            flow.client.addr.as_str(),
            flow.server.addr.as_str()
        ),
        ("icmp", "10.244.80.65", remote)
    );
    trace.packet(flow, "ICMP echo request");
    trace.packet(flow, "ICMP echo reply");
    let (c, b) = (flow.client.to_string(), flow.server.to_string());
    let request = &trace.packets_of(flow, "request")[0].steps[0];
    assert_eq!(
        (request.src.to_string(), request.dst.to_string()),
        (c.clone(), b.clone())
    );
    plain_ways(&trace, flow, [&c, &b]);
}

/// One ICMP echo, from the namespace of the calling thread.
fn ping(to: &str) -> anyhow::Result<()> {
    use socket2::{Domain, Protocol, Socket, Type};
    let socket = Socket::new(
        Domain::IPV4,
        Type::from(libc::SOCK_RAW),
        Some(Protocol::ICMPV4),
    )?;
    socket.set_read_timeout(Some(LIMIT))?;
    let to: SocketAddr = format!("{to}:0").parse()?;
    socket.connect(&to.into())?;
    // Echo request, identifier 0x1234, sequence number 1.
    let mut message = [8, 0, 0, 0, 0x12, 0x34, 0, 1];
    let sum = !(0x0800_u16 + 0x1234 + 1);
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    socket.send(&message)?;
    let mut answer = [0; 64];
    let length = std::io::Read::read(&mut &socket, &mut answer)?;
    anyhow::ensure!(length >= 28 && answer[20] == 0, "not an echo reply");
    Ok(())
}

#[test]
fn fragments_are_one_packet() {
    let _lab = lab();
    let args = ["--pod", "client", "--dst", B, "--proto", "udp"];
    let run = follow("fragments", &args).start();
    netns::within("client", || {
        let socket = UdpSocket::bind(("0.0.0.0", PORT))?;
        socket.set_read_timeout(Some(LIMIT))?;
        socket.connect(B)?;
        socket.send(&[b'x'; 4000])?;
        socket.recv(&mut [0; 100])?;
        Ok(())
    })
    .expect("an answer");
    let heard = witness::wait_for("remote", LIMIT, |access| access.proto == "udp");
    assert_eq!(heard.expect("the server logged it").received, 4000);
    let done = run.stop();
    let trace = done.exit(0).trace();
    trace.lossless().healthy();
    let flow = trace.only_flow(&format!("udp {C} > {B}"));
    let requests = trace.packets_of(flow, "request");
    trace.require(requests.len() == 1, "one packet there");
    let packet = requests[0].outcome("delivered");
    for place in [
        format!("ingress {CLIENT_END}@worker"),
        "egress vxlan.calico@worker".to_owned(),
        "ingress vxlan.calico@worker2".to_owned(),
        format!("egress {REMOTE_END}@worker2"),
    ] {
        let offsets: Vec<(u32, bool)> = packet
            .steps
            .iter()
            .filter(|step| step.place() == place)
            .filter_map(|step| step.ip.as_ref())
            .map(|ip| (ip.frag_offset.unwrap_or(0), ip.more_fragments))
            .collect();
        // 1450 bytes less the IP header, in eights: 1424 of 8 + 4000 bytes in each.
        packet.require(
            offsets == [(0, true), (1424, true), (2848, false)],
            &format!("three fragments at {place}, not {offsets:?}"),
        );
    }
    trace.require(trace.packets_of(flow, "reply").len() == 1, "one answer");
}
