//! Verdicts on whole traces, near misses among them.
#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

use super::{diagnose, diagnose_live, exit_code};
use crate::assemble::tests::{
    A, BACKEND, Bench, NODE1, NODE2, PA, S, SA, VIP, nodes, plain, tcp, vxlan,
};
use crate::event::{Answer, Packet};
use crate::trace::{Finding, Fold, Header, Losses, Outcome, Severity, Tool, Trace, Verdict};

pub(crate) fn header() -> Header {
    Header {
        schema: crate::trace::SCHEMA.into(),
        tool: Tool::default(),
        request: serde_json::Value::Null,
        nodes: nodes(),
        ..Header::default()
    }
}

fn trace(b: &Bench) -> Trace {
    b.fold().trace(header(), Losses::default())
}

fn check(b: &Bench) -> (Verdict, Vec<Finding>, u8) {
    let (verdict, findings) = diagnose(&trace(b));
    let code = exit_code(&verdict, &findings);
    (verdict, findings, code)
}

const POD: &str = "worker < cali747ff840379";

#[test]
fn nothing_is_no_traffic() {
    let (verdict, _, code) = check(&Bench::new());
    assert_eq!((&*verdict.code, code), ("no-traffic", 4));
}

#[test]
fn three_dropped_syns_are_a_netfilter_drop() {
    let mut b = Bench::new();
    for _ in 0..3 {
        b.now += 1_000_000_000;
        b.seen(POD, tcp((client(), 45266), (VIP, 80), S, 1, 0));
        b.seen("worker2 < vxlan.calico", plain(S, 1, 0, 0));
        b.drop("worker2", plain(S, 1, 0, 0), Some("FORWARD"));
    }
    let (verdict, findings, code) = check(&b);
    assert_eq!((&*verdict.code, code), ("netfilter-drop", 3));
    assert_eq!(
        verdict.summary,
        "pod/default/client's SYN to 10.98.235.247:80 reached worker2 and was dropped there: netfilter \
         dropped it in FORWARD, by a rule that is not known; 3 tries, none got through"
    );
    assert_eq!(verdict.node.as_deref(), Some("worker2"));
    assert_eq!(findings.len(), 1, "{findings:#?}");
}

fn client() -> &'static str {
    crate::assemble::tests::CLIENT
}

#[test]
fn drop_that_a_retry_made_good_is_no_fault() {
    let mut b = Bench::new();
    b.seen(POD, plain(S, 1, 0, 0));
    b.drop("worker", plain(S, 1, 0, 0), Some("FORWARD"));
    b.now += 1_000_000_000;
    b.seen(POD, plain(S, 1, 0, 0));
    b.seen("worker2 > cali1b2c3d4e5f6", plain(S, 1, 0, 0));
    b.reply = true;
    b.seen(
        "worker2 < cali1b2c3d4e5f6",
        tcp((BACKEND, 8080), (client(), 45266), SA, 9, 2),
    );
    b.seen(
        "worker > cali747ff840379",
        tcp((BACKEND, 8080), (client(), 45266), SA, 9, 2),
    );
    let (verdict, findings, code) = check(&b);
    assert_eq!((&*verdict.code, code), ("delivered", 0));
    assert_eq!(findings[0].severity, Severity::Warning);
}

#[test]
fn rule_and_missing_listener_are_rejected() {
    let mut b = Bench::new();
    b.seen("worker2 < vxlan.calico", plain(S, 1, 0, 0));
    b.answer(
        "worker2",
        plain(S, 1, 0, 0),
        Answer::Icmp {
            kind: 3,
            code: 3,
            info: 0,
            v6: false,
        },
    );
    b.drop("worker2", plain(S, 1, 0, 0), Some("FORWARD"));
    let (verdict, _, code) = check(&b);
    assert_eq!((&*verdict.code, code), ("rejected", 3));
    assert!(
        verdict
            .summary
            .contains("in FORWARD rejected it with ICMP port unreachable"),
        "{}",
        verdict.summary
    );

    let mut b = Bench::new();
    b.seen("worker2 > cali1b2c3d4e5f6", plain(S, 1, 0, 0));
    b.reply = true;
    b.seen(
        "worker2 < cali1b2c3d4e5f6",
        tcp((BACKEND, 8080), (client(), 45266), 0x14, 0, 2),
    );
    let (verdict, findings, code) = check(&b);
    assert_eq!((&*verdict.code, code), ("backend-refused", 3));
    assert!(findings[0].next[0].contains("ss -lntu"), "{findings:#?}");
}

#[test]
fn silence_is_no_reply_and_live_it_is_waited_for() {
    let mut b = Bench::new();
    b.seen(POD, plain(S, 1, 0, 0));
    b.seen("worker > cali1b2c3d4e5f6", plain(S, 1, 0, 0));
    let (verdict, _, code) = check(&b);
    assert_eq!((&*verdict.code, code), ("no-reply", 3));
    let (verdict, _) = diagnose_live(&trace(&b), b.now + 1000);
    assert_eq!(verdict.code, "delivered");
    let (verdict, _) = diagnose_live(&trace(&b), b.now + 2_000_000_000);
    assert_eq!(verdict.code, "no-reply");
}

#[test]
fn tunnel_into_nothing_is_underlay_loss_only_if_certain() {
    let mut b = Bench::new();
    for _ in 0..2 {
        b.now += 1_000_000_000;
        b.seen(POD, plain(S, 1, 0, 0));
        b.seen("worker > vxlan.calico", plain(S, 1, 0, 0));
        b.seen_in(
            "worker > eth0",
            plain(S, 1, 0, 0),
            Some(vxlan(NODE1, NODE2, 7)),
        );
    }
    let (verdict, _, code) = check(&b);
    assert_eq!((&*verdict.code, code), ("underlay-loss", 3));
    let mut unsure = trace(&b);
    unsure.closing.losses.ring_buffer = 3;
    let (verdict, _) = diagnose(&unsure);
    assert_eq!(verdict.code, "no-reply");
    assert!(
        verdict
            .summary
            .ends_with("; 3 events were lost, so this is uncertain")
    );
}

#[test]
fn too_big_is_mtu_exceeded_until_smaller_ones_pass() {
    let mut b = Bench::new();
    let too_big = Answer::Icmp {
        kind: 3,
        code: 4,
        info: 1450,
        v6: false,
    };
    b.seen(POD, plain(0x10, 1, 1, 1460));
    b.answer("worker", plain(0x10, 1, 1, 1460), too_big);
    let (verdict, _, code) = check(&b);
    assert_eq!((&*verdict.code, code), ("mtu-exceeded", 3));
    b.now += 1_000_000;
    b.seen(POD, plain(0x10, 1, 1, 1300));
    b.seen("worker2 > cali1b2c3d4e5f6", plain(0x10, 1, 1, 1300));
    let (verdict, _, code) = check(&b);
    assert_eq!(
        (&*verdict.code, code),
        ("delivered", 0),
        "{}",
        verdict.summary
    );
}

#[test]
fn tries_that_end_in_different_places_are_told_each() {
    let mut b = Bench::new();
    b.seen(POD, plain(S, 1, 0, 0));
    b.drop("worker", plain(S, 1, 0, 0), Some("FORWARD"));
    for _ in 0..2 {
        b.now += 1_000_000_000;
        b.skb += 0x100;
        b.seen(POD, plain(S, 1, 0, 0));
        b.seen("worker2 < vxlan.calico", plain(S, 1, 0, 0));
        b.freed(
            "worker2 vxlan.calico",
            plain(S, 1, 0, 0),
            "tcf_classify",
            "TC_INGRESS",
        );
    }
    let (verdict, findings, code) = check(&b);
    let codes: Vec<&str> = findings.iter().map(|f| &*f.code).collect();
    assert_eq!(codes, ["netfilter-drop", "bpf-drop"], "{findings:#?}");
    assert_eq!((&*verdict.code, code), ("netfilter-drop", 3));
    assert_eq!(verdict.node.as_deref(), Some("worker"));
}

/// A flow of its own for each destination port.
#[test]
fn two_flows_have_a_fault_each_and_the_first_is_the_verdict() {
    let mut b = Bench::new();
    let mut call = |flow, port, end: fn(&mut Bench, Packet)| {
        let syn = tcp((client(), 45266), (BACKEND, port), S, 1, 0);
        b.flow = flow;
        b.skb += 0x100;
        b.seen(POD, syn);
        b.seen("worker2 < vxlan.calico", syn);
        end(&mut b, syn);
    };
    call(1, 80, |b, p| {
        b.freed("worker2 vxlan.calico", p, "tcf_classify", "TC_INGRESS");
    });
    call(2, 81, |b, p| b.drop("worker2", p, Some("FORWARD")));
    call(3, 82, |b, p| b.drop("worker2", p, Some("INPUT")));
    call(4, 83, |b, p| b.drop("worker2", p, Some("FORWARD")));
    let (verdict, findings, _) = check(&b);
    let codes: Vec<&str> = findings.iter().map(|f| &*f.code).collect();
    // The same hook once, another hook as another cause.
    assert_eq!(
        codes,
        ["bpf-drop", "netfilter-drop", "netfilter-drop"],
        "{findings:#?}"
    );
    assert_eq!(verdict.code, "bpf-drop");
}

/// With holes in what was seen, a packet whose later steps are missing is not lost,
/// and a reset at a connection's end is no refusal.
#[test]
fn holes_make_no_fault() {
    let lossy = |b: &Bench| {
        let mut trace = trace(b);
        trace.closing.losses.ring_buffer = 100;
        let (verdict, findings) = diagnose(&trace);
        assert!(verdict.summary.contains("uncertain"), "{}", verdict.summary);
        assert_eq!(exit_code(&verdict, &findings), 0, "{findings:#?}");
    };
    // Only the beginning of the way.
    let mut b = Bench::new();
    b.seen(POD, plain(S, 1, 0, 0));
    b.seen_in(
        "worker > eth0",
        plain(S, 1, 0, 0),
        Some(vxlan(NODE1, NODE2, 7)),
    );
    lossy(&b);
    // Handed over, and the answer not seen.
    let mut b = Bench::new();
    b.seen("worker2 > cali1b2c3d4e5f6", plain(S, 1, 0, 0));
    lossy(&b);
    // The handshake is missing, and the end is a reset.
    let mut b = Bench::new();
    b.seen("worker2 > cali1b2c3d4e5f6", plain(S, 1, 0, 0));
    b.reply = true;
    let reset = tcp((BACKEND, 8080), (client(), 45266), 0x14, 500, 200);
    b.seen("worker2 < cali1b2c3d4e5f6", reset);
    lossy(&b);
    // What TCP frees at the end of a connection whose FINs were not seen.
    let mut b = Bench::new();
    b.seen("worker2 > cali1b2c3d4e5f6", plain(0x11, 100, 1, 0));
    b.freed(
        "worker2 eth0",
        plain(0x11, 100, 1, 0),
        "tcp_v4_rcv",
        "NO_SOCKET",
    );
    lossy(&b);
}

/// A connection from SYN to both FINs, all delivered.
fn closed() -> Bench {
    let mut b = Bench::new();
    let mut go = |flags, seq, ack, len, reply| {
        b.now += 1_000_000;
        b.skb += 0x100;
        b.reply = reply;
        let mut packet = plain(flags, seq, ack, len);
        if reply {
            (packet.src, packet.dst) = (packet.dst, packet.src);
            (packet.sport, packet.dport) = (packet.dport, packet.sport);
            b.seen("worker2 < cali1b2c3d4e5f6", packet);
            b.seen("worker > cali747ff840379", packet);
        } else {
            b.seen(POD, packet);
            b.seen("worker2 > cali1b2c3d4e5f6", packet);
        }
    };
    go(S, 1, 0, 0, false);
    go(SA, 9, 2, 0, true);
    go(A, 2, 10, 0, false);
    go(PA, 2, 10, 100, false);
    go(PA, 10, 102, 50, true);
    go(0x11, 60, 102, 0, true);
    go(0x11, 102, 61, 0, false);
    b
}

/// A packet of the tail, from the server, which the client's host refuses.
fn refused(b: &mut Bench, flags: u8, seq: u32, ack: u32) {
    b.now += 200_000_000;
    b.skb += 0x100;
    b.reply = true;
    let packet = tcp((BACKEND, 8080), (client(), 45266), flags, seq, ack);
    b.seen("worker2 < cali1b2c3d4e5f6", packet);
    b.seen("worker > cali747ff840379", packet);
    b.freed("worker eth0", packet, "tcp_v4_rcv", "NO_SOCKET");
}

#[test]
fn the_servers_fin_to_a_socket_that_is_closed_is_no_fault() {
    let mut b = Bench::new();
    for (flags, seq, ack) in [(S, 1, 0), (0x11, 2, 10)] {
        b.skb += 0x100;
        b.seen(POD, plain(flags, seq, ack, 0));
        b.seen("worker2 > cali1b2c3d4e5f6", plain(flags, seq, ack, 0));
    }
    b.reply = true;
    b.skb += 0x100;
    let fin = tcp((BACKEND, 8080), (client(), 45266), 0x11, 10, 3);
    b.seen("worker2 < cali1b2c3d4e5f6", fin);
    b.seen("worker > cali747ff840379", fin);
    b.freed("worker eth0", fin, "tcp_v4_rcv", "NOT_SPECIFIED");
    let (verdict, findings, code) = check(&b);
    assert_eq!((&*verdict.code, code), ("delivered", 0), "{findings:#?}");
}

#[test]
fn refusing_the_tail_of_a_closed_connection_is_no_fault() {
    let mut b = closed();
    refused(&mut b, 0x11, 60, 102);
    refused(&mut b, A, 61, 103);
    b.reply = false;
    b.skb += 0x100;
    b.seen("worker2 > cali1b2c3d4e5f6", plain(4, 102, 0, 0));
    b.freed(
        "worker2 eth0",
        plain(4, 102, 0, 0),
        "tcp_v4_rcv",
        "NOT_SPECIFIED",
    );
    let (verdict, findings, code) = check(&b);
    assert_eq!((&*verdict.code, code), ("delivered", 0), "{findings:#?}");
    assert!(
        findings.iter().all(|f| f.severity == Severity::Note),
        "{findings:#?}"
    );
}

#[test]
fn refusing_data_is_a_fault_until_both_have_closed() {
    let mut b = Bench::new();
    b.seen(POD, plain(S, 1, 0, 0));
    b.seen("worker2 > cali1b2c3d4e5f6", plain(S, 1, 0, 0));
    b.freed("worker2 eth0", plain(S, 1, 0, 0), "tcp_v4_rcv", "NO_SOCKET");
    let (verdict, _, code) = check(&b);
    assert_eq!((verdict.node.as_deref(), code), (Some("worker2"), 3));
}

#[test]
fn what_a_time_wait_socket_takes_is_delivered() {
    let mut b = Bench::new();
    b.reply = true;
    let fin = tcp((BACKEND, 8080), (client(), 45266), 0x11, 60, 102);
    b.seen("worker > cali747ff840379", fin);
    b.freed("worker eth0", fin, "tcp_v4_rcv", "NOT_SPECIFIED");
    assert_eq!(b.outcome(1), crate::trace::Outcome::Delivered);
    // Data or a SYN that is freed there did not get through.
    for flags in [S, PA] {
        let mut b = Bench::new();
        let len = if flags == PA { 10 } else { 0 };
        b.seen("worker2 > cali1b2c3d4e5f6", plain(flags, 1, 0, len));
        let packet = plain(flags, 1, 0, len);
        b.freed("worker2 eth0", packet, "tcp_v4_rcv", "NOT_SPECIFIED");
        assert_eq!(b.outcome(1), crate::trace::Outcome::Dropped);
    }
}

#[test]
fn what_was_received_before_is_no_loss() {
    let mut b = closed();
    b.now += 200_000_000;
    b.skb += 0x100;
    b.reply = true;
    let again = tcp((BACKEND, 8080), (client(), 45266), 0x11, 60, 102);
    b.seen("worker > cali747ff840379", again);
    b.freed("worker eth0", again, "tcp_data_queue", "TCP_OLD_DATA");
    let (_, findings, code) = check(&b);
    assert_eq!(code, 0);
    assert!(
        findings.iter().all(|f| f.severity == Severity::Note),
        "{findings:#?}"
    );
}

#[test]
fn an_acknowledgement_that_was_overtaken_is_no_loss() {
    // Two acknowledgements leave the pod; the second one is with the server first.
    let overtaken = |also: bool, len| {
        let mut b = Bench::new();
        let mut at = |place: &str, ack: u32| {
            b.now += 1_000_000;
            b.skb = 0x1000 + u64::from(ack) * 0x100;
            let size = if ack == 10 { len } else { 0 };
            b.seen(place, plain(if size > 0 { PA } else { A }, 2, ack, size));
        };
        at(POD, 10);
        at(POD, 60);
        if also {
            at("worker2 > cali1b2c3d4e5f6", 60);
        }
        at("worker2 > cali1b2c3d4e5f6", 10);
        let late = plain(if len > 0 { PA } else { A }, 2, 10, len);
        b.freed(
            "worker2 eth0",
            late,
            "tcp_validate_incoming",
            "TCP_RFC7323_PAWS",
        );
        check(&b).1
    };
    let held_against = |also, len| {
        let findings = overtaken(also, len);
        findings.iter().any(|f| f.severity != Severity::Note)
    };
    assert!(!held_against(true, 0));
    // Nothing came before it, so it was not late; and data is no bare acknowledgement.
    assert!(held_against(false, 0));
    assert!(held_against(true, 100));
}

/// What becomes of a packet that left for the other node, and the verdict, in a
/// trace that ended so long after it.
fn ended_after(ms: u64, continues: Option<&str>) -> (Outcome, String) {
    let mut b = Bench::new();
    b.seen(POD, plain(S, 1, 0, 0));
    let outer = vxlan(NODE1, NODE2, 46_354);
    b.seen_in("worker > eth0", plain(S, 1, 0, 0), Some(outer));
    let ended = b.now + ms * 1_000_000;
    let mut fold = Fold::new(&nodes());
    b.steps.iter().cloned().for_each(|s| fold.push(s));
    fold.finish(Some(ended));
    let mut trace = fold.trace(header(), Losses::default());
    trace.closing.ended = Some(ended);
    trace.closing.continues = continues.map(str::to_owned);
    let (verdict, _) = diagnose(&trace);
    (trace.packets[0].outcome, verdict.code.into_owned())
}

#[test]
fn what_is_under_way_when_the_trace_ends_is_not_lost() {
    let open = (Outcome::Pending, "undecided".to_owned());
    assert_eq!(ended_after(50, None), open);
    assert_eq!(ended_after(50, Some("orders.2.jsonl")), open);
    let (outcome, code) = ended_after(300, None);
    assert_eq!(outcome, Outcome::Lost);
    assert_ne!(code, "undecided");
}
