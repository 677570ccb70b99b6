#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

use super::{clean, write};
use crate::assemble::tests::{
    BACKEND, Bench, CLIENT, NODE1, NODE2, S, VIP, nodes, plain, tcp, vxlan,
};
use crate::diagnose::diagnose;
use crate::trace::{Header, Losses, Tool, Trace};

fn text(b: &Bench, color: bool) -> String {
    let schema = crate::trace::SCHEMA.into();
    let request = serde_json::Value::Null;
    let header = Header {
        schema,
        tool: Tool::default(),
        request,
        nodes: nodes(),
        ..Header::default()
    };
    let mut trace: Trace = b.fold().trace(header, Losses::default());
    (trace.closing.verdict, trace.closing.findings) = diagnose(&trace);
    let mut out = Vec::new();
    write(&mut out, &trace, color).unwrap();
    String::from_utf8(out).unwrap()
}

fn syn() -> Bench {
    let mut b = Bench::new();
    b.seen(
        "worker < cali747ff840379",
        tcp((CLIENT, 45266), (VIP, 80), S, 1, 0),
    );
    b.nat(
        "worker",
        tcp((CLIENT, 45266), (VIP, 80), S, 1, 0),
        false,
        (BACKEND, 8080),
    );
    b.seen("worker > vxlan.calico", plain(S, 1, 0, 0));
    b.seen_in(
        "worker > eth0",
        plain(S, 1, 0, 0),
        Some(vxlan(NODE1, NODE2, 52637)),
    );
    b.seen_in(
        "worker2 < eth0",
        plain(S, 1, 0, 0),
        Some(vxlan(NODE1, NODE2, 52637)),
    );
    b.seen("worker2 < vxlan.calico", plain(S, 1, 0, 0));
    b
}

#[test]
fn timeline_reads_like_a_path() {
    let mut b = syn();
    b.seen("worker2 > cali1b2c3d4e5f6", plain(S, 1, 0, 0));
    let text = text(&b, false);
    let timeline: Vec<&str> = text
        .lines()
        .take_while(|l| !l.is_empty())
        .map(str::trim_end)
        .collect();
    assert_eq!(
        timeline,
        [
            "#1 SYN  pod/default/client:45266 -> 10.98.235.247:80 (svc/default/remote)  delivered in 0.00 ms",
            "      +0.000 ms  worker    from pod client cali747ff840379",
            "      +0.001 ms            dnat  dst 10.98.235.247:80 -> 10.244.158.65:8080 (pod/default/remote)",
            "      +0.002 ms            into tunnel vxlan.calico",
            "      +0.003 ms          ~ encap  vxlan vni 4096  172.31.0.2:52637 -> 172.31.0.3:4789",
            "                           (~ worked out, not observed; here from: outer header first seen at egress eth0)",
            "      +0.003 ms            out eth0",
            "      +0.004 ms  worker2   in eth0",
            "      +0.005 ms          ~ decap  vxlan vni 4096  172.31.0.2:52637 -> 172.31.0.3:4789",
            "      +0.005 ms            out of tunnel vxlan.calico",
            "      +0.006 ms            to pod remote cali1b2c3d4e5f6",
        ]
    );
    assert!(text.lines().all(|l| l.chars().count() <= 110), "{text}");
}

#[test]
fn drop_is_told_without_colour() {
    let mut b = syn();
    b.drop("worker2", plain(S, 1, 0, 0), Some("FORWARD"));
    let plain_text = text(&b, false);
    assert!(
        plain_text.contains("✗ DROP  NETFILTER_DROP  in FORWARD  (nft_do_chain)"),
        "{plain_text}"
    );
    assert!(
        plain_text.contains("✗ netfilter-drop: pod/default/client's SYN"),
        "{plain_text}"
    );
    assert!(!plain_text.contains('\x1b'));
    assert!(text(&b, true).contains("\x1b[1;31m"));
}

#[test]
fn hostile_names_are_shown_not_obeyed() {
    assert_eq!(clean("a\x1b[2Jb\u{202e}c\n"), "a\\u{1b}[2Jb\\u{202e}c\\n");
    let mut b = Bench::new();
    b.seen("evil\x1b]0;x\x07 < cali\u{9b}1", plain(S, 1, 0, 0));
    let out = text(&b, false);
    assert!(out.chars().all(|c| c == '\n' || !c.is_control()), "{out:?}");
}

#[test]
fn a_probe_is_a_table_with_its_layer() {
    use crate::trace::probe::{Attempt, Layer, LayerCode, Outcome, Place, Report, Way};
    let end = |port| crate::trace::Endpoint {
        addr: VIP.parse().unwrap(),
        port: Some(port),
        name: Some("pod/default/re\u{202e}mote".into()),
    };
    let attempt = |way, result, detail: &str| Attempt {
        ts: 1,
        way,
        name: (way == Way::Name).then(|| "remote".to_owned()),
        client: None,
        server: (way != Way::Name).then(|| end(80)),
        unready: false,
        result,
        detail: detail.to_owned(),
        took: 1,
        flow: None,
        stopped: (!result.is_good()).then(|| Place {
            packet: 7,
            node: "worker".to_owned(),
            iface: "eth0".to_owned(),
            how: "dropped".to_owned(),
        }),
    };
    let b = syn();
    let header = crate::diagnose::tests::header();
    let mut trace = b.fold().trace(header, Losses::default());
    trace.packets.clear();
    trace.closing.probe = Some(Box::new(Report {
        client: end(1),
        resolver: None,
        lookup: None,
        attempts: vec![
            attempt(Way::Name, Outcome::Unresolved, "name: NXDOMAIN"),
            attempt(Way::Backend, Outcome::Connected, "connected in 0.3 ms"),
        ],
        notes: vec!["a note".to_owned()],
        layer: Layer {
            code: LayerCode::Dns,
            summary: "DNS".to_owned(),
        },
    }));
    let mut out = Vec::new();
    write(&mut out, &trace, false).unwrap();
    let text = String::from_utf8(out).unwrap();
    let table = text.split("\n\n").next().unwrap();
    assert_eq!(
        table,
        "way      target                                       result               where it stopped\n\
         name     remote                                       name: NXDOMAIN       worker eth0 (dropped, #7)\n\
         backend  10.98.235.247:80 pod/default/re\\u{202e}mote  connected in 0.3 ms\n\
         note  a note"
    );
    assert!(text.contains("\n\nlayer  DNS\n"), "{text}");
}
