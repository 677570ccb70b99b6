//! Whole paths, step by step.

use super::{
    A, Answer, BACKEND, Bench, Body, CLIENT, CtSource, NODE1, NODE2, Outcome, Packet, S, SA, VIP,
    ip, tcp, vxlan,
};
use crate::event::Event;

fn syn(dst: (&str, u16)) -> Packet {
    tcp((CLIENT, 45266), dst, S, 100, 0)
}

fn to_pod() -> Packet {
    syn((BACKEND, 8080))
}

fn answer_of(p: &Packet) -> Packet {
    let mut a = *p;
    (a.src, a.sport, a.dst, a.dport) = (p.dst, p.dport, p.src, p.sport);
    a
}

/// The request on the second node, then the reply's way back.
fn far_side(b: &mut Bench) {
    b.seen_in("worker2 < eth0", to_pod(), Some(vxlan(NODE1, NODE2, 52637)));
    b.seen("worker2 < vxlan.calico", to_pod());
    b.ct(
        "worker2",
        CtSource::Confirmed,
        &to_pod(),
        &answer_of(&to_pod()),
    );
    b.seen("worker2 > cali1b2c3d4e5f6", to_pod());
}

fn cluster_ip() -> Bench {
    let mut b = Bench::new();
    b.seen("worker < cali747ff840379", syn((VIP, 80)));
    b.nat("worker", syn((VIP, 80)), false, (BACKEND, 8080));
    b.ct(
        "worker",
        CtSource::Confirmed,
        &syn((VIP, 80)),
        &answer_of(&to_pod()),
    );
    b.seen("worker > vxlan.calico", to_pod());
    b.seen_in("worker > eth0", to_pod(), Some(vxlan(NODE1, NODE2, 52637)));
    far_side(&mut b);
    b.reply = true;
    b.skb = 0xaa00;
    let sa = tcp((BACKEND, 8080), (CLIENT, 45266), SA, 500, 101);
    b.seen("worker2 < cali1b2c3d4e5f6", sa);
    b.seen("worker2 > vxlan.calico", sa);
    b.seen_in("worker2 > eth0", sa, Some(vxlan(NODE2, NODE1, 4000)));
    b.seen_in("worker < eth0", sa, Some(vxlan(NODE2, NODE1, 4000)));
    b.seen("worker < vxlan.calico", sa);
    b.nat("worker", sa, true, (VIP, 80));
    b.seen(
        "worker > cali747ff840379",
        tcp((VIP, 80), (CLIENT, 45266), SA, 500, 101),
    );
    b
}

#[test]
fn cluster_ip_with_kprobes_is_told_in_order() {
    let b = cluster_ip();
    assert_eq!(
        b.kinds(1),
        [
            "ingress cali747ff840379",
            "dnat",
            "conntrack-new",
            "egress vxlan.calico",
            "~encap vxlan.calico",
            "egress eth0",
            "ingress eth0",
            "~decap vxlan.calico",
            "ingress vxlan.calico",
            "conntrack-new",
            "egress cali1b2c3d4e5f6",
        ]
    );
    assert_eq!(
        b.kinds(2),
        [
            "ingress cali1b2c3d4e5f6",
            "egress vxlan.calico",
            "~encap vxlan.calico",
            "egress eth0",
            "ingress eth0",
            "~decap vxlan.calico",
            "ingress vxlan.calico",
            "un-dnat",
            "egress cali747ff840379",
        ]
    );
    let encap = &b.steps[4];
    assert_eq!(
        encap.from.as_deref(),
        Some("outer header first seen at egress eth0")
    );
    assert_eq!(encap.tunnel.as_ref().unwrap().sport, Some(52637));
    let decap = &b.steps[7];
    assert_eq!(
        decap.from.as_deref(),
        Some("outer header gone between ingress eth0 and ingress vxlan.calico")
    );
    let fold = b.fold();
    let flow = fold.flow(1).unwrap();
    assert_eq!((flow.server.addr, flow.server.port), (ip(VIP), Some(80)));
    assert_eq!(flow.backend.unwrap().addr, ip(BACKEND));
    assert_eq!(flow.client.addr, ip(CLIENT));
    assert_eq!(flow.tuples.len(), 2);
    assert_eq!(fold.packet(1).unwrap().outcome, Outcome::Delivered);
    assert_eq!(fold.packet(2).unwrap().summary, "SYN-ACK");
    assert_eq!(flow.state, "answered");
}

#[test]
fn cluster_ip_without_kprobes_is_worked_out() {
    let mut b = Bench::new();
    b.seen("worker < cali747ff840379", syn((VIP, 80)));
    b.ct(
        "worker",
        CtSource::Carried,
        &syn((VIP, 80)),
        &answer_of(&to_pod()),
    );
    b.seen("worker > vxlan.calico", to_pod());
    b.ct(
        "worker",
        CtSource::Carried,
        &syn((VIP, 80)),
        &answer_of(&to_pod()),
    );
    b.seen_in("worker > eth0", to_pod(), Some(vxlan(NODE1, NODE2, 52637)));
    assert_eq!(
        b.kinds(1),
        [
            "ingress cali747ff840379",
            "~dnat",
            "~conntrack-new",
            "egress vxlan.calico",
            "~encap vxlan.calico",
            "egress eth0",
        ]
    );
    assert_eq!(
        b.steps[1].from.as_deref(),
        Some("tuple change between two hooks")
    );
    assert_eq!(&*b.steps[1].iface, "cali747ff840379");
}

#[test]
fn reply_is_untranslated_by_tuple_change() {
    let mut b = Bench::new();
    b.reply = true;
    b.seen(
        "worker < vxlan.calico",
        tcp((BACKEND, 8080), (CLIENT, 45266), SA, 5, 6),
    );
    b.seen(
        "worker > cali747ff840379",
        tcp((VIP, 80), (CLIENT, 45266), SA, 5, 6),
    );
    assert_eq!(
        b.kinds(1),
        ["ingress vxlan.calico", "~un-dnat", "egress cali747ff840379"]
    );
    let flow = b.fold().flow(1).unwrap();
    assert_eq!(
        (flow.server.addr, flow.backend.unwrap().addr),
        (ip(VIP), ip(BACKEND))
    );
}

/// A filter rule of its own may have tagged the backend's address, so that the
/// kernel side has two flows of one packet; conntrack has not confirmed any.
#[test]
fn dropped_after_its_translation_it_is_the_same_packet() {
    let mut b = Bench::new();
    let before = tcp(("127.0.0.1", 45266), ("127.0.0.1", 30080), S, 100, 0);
    let after = tcp(("127.0.0.1", 45266), (BACKEND, 8080), S, 100, 0);
    b.nat("worker", before, false, (BACKEND, 8080));
    b.flow = 78;
    b.drop("worker", after, Some("OUTPUT"));
    assert_eq!(b.kinds(1), ["dnat", "drop"]);
    assert_eq!(b.fold().flows().count(), 1);
}

#[test]
fn host_process_is_translated_before_first_sight() {
    let host = tcp((NODE1, 4000), (VIP, 80), S, 1, 0);
    let out = tcp(("10.244.80.64", 4000), (BACKEND, 8080), S, 1, 0);
    let mut b = Bench::new();
    b.ct("worker", CtSource::Carried, &host, &answer_of(&out));
    b.seen("worker > vxlan.calico", out);
    assert_eq!(
        b.kinds(1),
        [
            "~dnat",
            "~masquerade",
            "~conntrack-new",
            "egress vxlan.calico"
        ]
    );
    assert_eq!(
        b.steps[0].from.as_deref(),
        Some("conntrack entry carried by the packet")
    );
    // The next packet carries no new entry, but was translated by the same.
    let mut more = out;
    (more.l4_flags, more.seq, more.ack) = (A, 2, 9);
    b.skb += 1;
    b.seen("worker > vxlan.calico", more);
    assert_eq!(b.kinds(2), ["~dnat", "~masquerade", "egress vxlan.calico"]);
    assert_eq!(b.fold().flow(1).unwrap().client.addr, ip(NODE1));
}

#[test]
fn host_process_with_kprobes_is_one_packet() {
    let host = tcp((NODE1, 4000), (VIP, 80), S, 1, 0);
    let mid = tcp((NODE1, 4000), (BACKEND, 8080), S, 1, 0);
    let out = tcp(("10.244.80.64", 4000), (BACKEND, 8080), S, 1, 0);
    let mut b = Bench::new();
    b.nat("worker", host, false, (BACKEND, 8080));
    let to = (ip("10.244.80.64"), 4000);
    let nat = Body::Nat {
        packet: mid,
        to,
        source: true,
        reply: false,
        ct: 9,
        masquerade: true,
        done: false,
    };
    b.body("worker", "vxlan.calico", nat);
    b.ct("worker", CtSource::Confirmed, &host, &answer_of(&out));
    b.seen("worker > vxlan.calico", out);
    assert_eq!(
        b.kinds(1),
        ["dnat", "masquerade", "conntrack-new", "egress vxlan.calico"]
    );
}

#[test]
fn confirmed_entry_waits_for_an_unseen_packet() {
    let p = tcp((NODE1, 4000), (BACKEND, 8080), S, 1, 0);
    let mut b = Bench::new();
    b.ct("worker", CtSource::Confirmed, &p, &answer_of(&p));
    assert!(b.steps.is_empty());
    b.seen("worker > vxlan.calico", p);
    assert_eq!(b.kinds(1), ["conntrack-new", "egress vxlan.calico"]);
}

#[test]
fn node_port_is_dnat_and_masquerade() {
    let outside = tcp(("192.0.2.7", 999), (NODE1, 30080), S, 1, 0);
    let inside = tcp(("10.244.80.64", 999), (BACKEND, 8080), S, 1, 0);
    let mut b = Bench::new();
    b.seen("worker < eth0", outside);
    b.seen("worker > vxlan.calico", inside);
    b.seen_in("worker > eth0", inside, Some(vxlan(NODE1, NODE2, 7)));
    assert_eq!(
        b.kinds(1),
        [
            "ingress eth0",
            "~dnat",
            "~masquerade",
            "egress vxlan.calico",
            "~encap vxlan.calico",
            "egress eth0"
        ]
    );
    b.reply = true;
    b.skb += 1;
    b.seen("worker < vxlan.calico", answer_of(&inside));
    b.seen("worker > eth0", answer_of(&outside));
    assert_eq!(
        b.kinds(2),
        [
            "ingress vxlan.calico",
            "~un-snat",
            "~un-dnat",
            "egress eth0"
        ]
    );
}

#[test]
fn hairpin_is_one_packet() {
    let out = tcp((CLIENT, 1000), (VIP, 80), S, 1, 0);
    let back = tcp((NODE1, 1000), (CLIENT, 8080), S, 1, 0);
    let mut b = Bench::new();
    b.seen("worker < cali747ff840379", out);
    b.seen("worker > cali747ff840379", back);
    assert_eq!(
        b.kinds(1),
        [
            "ingress cali747ff840379",
            "~dnat",
            "~masquerade",
            "egress cali747ff840379"
        ]
    );
    assert_eq!(b.outcome(1), Outcome::Delivered);
}

#[test]
fn observed_encapsulation_gets_its_ports() {
    let mut b = Bench::new();
    b.seen("worker > vxlan.calico", to_pod());
    b.body(
        "worker",
        "vxlan.calico",
        Body::Encap {
            packet: to_pod(),
            tunnel: vxlan(NODE1, NODE2, 0),
        },
    );
    b.seen_in("worker > eth0", to_pod(), Some(vxlan(NODE1, NODE2, 52637)));
    assert_eq!(
        b.kinds(1),
        ["egress vxlan.calico", "encap vxlan.calico", "egress eth0"]
    );
    assert_eq!(b.steps[1].tunnel.as_ref().unwrap().sport, Some(52637));
}

#[test]
fn encapsulation_that_leads_nowhere_is_told_in_time() {
    let mut b = Bench::new();
    b.seen("worker > vxlan.calico", to_pod());
    b.body(
        "worker",
        "vxlan.calico",
        Body::Encap {
            packet: to_pod(),
            tunnel: vxlan(NODE1, NODE2, 0),
        },
    );
    b.asm.tick(b.now, &mut b.steps);
    assert_eq!(b.steps.len(), 1);
    b.asm.tick(b.now + 400_000_000, &mut b.steps);
    assert_eq!(b.kinds(1), ["egress vxlan.calico", "encap vxlan.calico"]);
}

#[test]
fn dumped_entry_names_the_server() {
    let mut b = Bench::new();
    let skb = std::mem::take(&mut b.skb);
    b.ct(
        "worker",
        CtSource::Dumped,
        &syn((VIP, 80)),
        &answer_of(&to_pod()),
    );
    b.skb = skb;
    let mut data = to_pod();
    (data.l4_flags, data.payload_len) = (0x18, 10);
    b.seen("worker > vxlan.calico", data);
    let flow = b.fold().flow(1).unwrap();
    assert_eq!(
        (flow.server.addr, flow.backend.unwrap().addr),
        (ip(VIP), ip(BACKEND))
    );
}

#[test]
fn kernel_flows_of_one_connection_are_merged() {
    let mut b = Bench::new();
    b.seen("worker < cali747ff840379", syn((VIP, 80)));
    b.ct(
        "worker",
        CtSource::Confirmed,
        &syn((VIP, 80)),
        &answer_of(&to_pod()),
    );
    b.flow = 78;
    b.seen("worker > vxlan.calico", to_pod());
    assert_eq!(b.lines().len(), 4, "{:#?}", b.lines());
    assert!(
        b.steps
            .iter()
            .all(|s| s.flow == Some(1) && s.packet == Some(1))
    );
    // The same tuple opened again is another connection.
    b.flow = 79;
    b.seen("worker < cali747ff840379", syn((VIP, 80)));
    assert_eq!(b.steps.last().unwrap().flow, Some(2));
}

#[test]
fn reject_is_followed_by_its_drop() {
    let mut b = Bench::new();
    b.seen("worker2 < vxlan.calico", to_pod());
    b.answer(
        "worker2",
        to_pod(),
        Answer::Icmp {
            kind: 3,
            code: 3,
            info: 0,
            v6: false,
        },
    );
    b.drop("worker2", to_pod(), Some("FORWARD"));
    assert_eq!(b.kinds(1), ["ingress vxlan.calico", "reject", "drop"]);
    assert_eq!(b.outcome(1), Outcome::Rejected);
    assert_eq!(b.fold().flow(1).unwrap().state, "rejected");
}

#[test]
fn fragmentation_needed_tells_the_mtu() {
    let mut b = Bench::new();
    let big = super::plain(A, 1, 1, 1460);
    b.seen("worker < cali747ff840379", big);
    b.answer(
        "worker",
        big,
        Answer::Icmp {
            kind: 3,
            code: 4,
            info: 1450,
            v6: false,
        },
    );
    assert_eq!(b.kinds(1), ["ingress cali747ff840379", "fragment-needed"]);
    assert_eq!(b.steps[1].icmp.unwrap().mtu, Some(1450));
}

#[test]
fn icmp_error_is_a_packet_of_the_other_direction() {
    let mut b = Bench::new();
    b.seen("worker < cali747ff840379", to_pod());
    let mut error = to_pod();
    (error.quoted, error.l4_flags, error.seq, error.ack) = (true, 3, 4, 1450);
    b.skb = 0xbb;
    // As the kernel side tells it: against the packet that is quoted.
    b.reply = true;
    b.seen("worker > cali747ff840379", error);
    let fold = b.fold();
    let packet = fold.packet(2).unwrap();
    assert_eq!(packet.summary, "ICMP fragmentation needed (mtu 1450)");
    assert_eq!(packet.direction, crate::trace::Direction::Reply);
    assert_eq!(packet.steps[0].dst.addr, ip(CLIENT));
    assert_eq!(fold.flow(1).unwrap().proto, "tcp");
}

#[test]
fn tunnelled_packet_that_never_arrives_is_lost() {
    let mut b = Bench::new();
    b.seen("worker > vxlan.calico", to_pod());
    b.seen_in("worker > eth0", to_pod(), Some(vxlan(NODE1, NODE2, 7)));
    assert_eq!(b.outcome(1), Outcome::Lost);
    let mut far = Bench::new();
    far.seen_in(
        "worker > eth0",
        to_pod(),
        Some(vxlan(NODE1, "172.31.0.9", 7)),
    );
    assert_eq!(
        far.outcome(1),
        Outcome::Pending,
        "an unwatched node proves nothing"
    );
}

#[test]
fn unknown_flow_is_counted() {
    let mut b = Bench::new();
    b.flow = 0;
    b.drop("worker", to_pod(), None);
    assert_eq!(b.asm.losses().other, 1);
    let _: Option<Event> = None;
}

#[test]
fn a_port_used_again_is_another_flow() {
    let mut b = Bench::new();
    b.seen("worker < cali747ff840379", to_pod());
    b.seen("worker < cali747ff840379", to_pod());
    let mut again = to_pod();
    again.seq = again.seq.wrapping_add(77_777);
    b.skb = 0xcc;
    b.seen("worker < cali747ff840379", again);
    b.seen("worker > vxlan.calico", again);
    let fold = b.fold();
    assert_eq!(fold.flow_count(), 2);
    let flows: Vec<u64> = (1..=3).map(|id| fold.packet(id).unwrap().flow).collect();
    assert_eq!(flows, [1, 1, 2], "a retransmission is no new connection");
    assert_eq!(fold.packet(3).unwrap().steps.len(), 2);
}
