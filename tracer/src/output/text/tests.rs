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
