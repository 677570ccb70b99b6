use super::*;

#[test]
fn counters_come_in_pairs_of_lines() {
    let text = "\
TcpExt: SyncookiesSent ListenOverflows ListenDrops IPReversePathFilter
TcpExt: 0 3 4 18446744073709551615
IpExt: InNoRoutes InTruncatedPkts
IpExt: 7 0
Ip: Forwarding DefaultTTL InAddrErrors
Ip: 1 64 -1
";
    let mut all = BTreeMap::new();
    paired(text, &mut all);
    let read: Vec<_> = all.iter().map(|(k, v)| (&**k, *v)).collect();
    assert_eq!(
        read,
        [
            ("IpExtInNoRoutes", 7),
            ("TcpExtIPReversePathFilter", u64::MAX),
            ("TcpExtListenDrops", 4),
            ("TcpExtListenOverflows", 3),
        ]
    );
    for len in 0..text.len() {
        paired(&text[..len], &mut BTreeMap::new());
    }
}

#[test]
fn ipv6_counters_come_one_a_line() {
    let text =
        "Ip6InReceives                   \t5\nIp6InNoRoutes                   \t2\nIp6InDiscards";
    let mut all = BTreeMap::new();
    listed(text, &mut all);
    assert_eq!(all, BTreeMap::from([("Ip6InNoRoutes".to_owned(), 2)]));
}

#[test]
fn conntrack_statistics_are_hexadecimal_and_summed() {
    let text = "\
entries  clashres found new invalid ignore delete chainlength insert insert_failed drop early_drop icmp_error  expect_new expect_create expect_delete search_restart
0000000a  00000000 00000002 00000000 00000010 00000000 00000000 00000001 00000000 00000000 00000000 00000000 00000000  00000000 00000000 00000000 00000000
0000000a  00000001 00000000 00000000 00000001 00000000 00000000 00000000 00000000 00000003 000000ff 00000000 00000000  00000000 00000000 00000000 00000000
";
    let mut all = BTreeMap::new();
    per_cpu(text, &mut all);
    let of = |name: &str| all[&format!("conntrack.{name}")];
    assert_eq!((of("invalid"), of("insert_failed")), (17, 3));
    assert_eq!(
        (of("drop"), of("clashres"), of("chaintoolong")),
        (255, 1, 1)
    );
    for len in 0..text.len() {
        per_cpu(&text[..len], &mut BTreeMap::new());
    }
}

#[test]
fn the_same_over_netlink() {
    use crate::netlink::{Writer, each_cut, message};
    let mut body = Writer::new(&[0, 0, 0, 1]);
    for (kind, value) in [(2u16, 9u32), (4, 16), (10, 255)] {
        body.put(kind, &value.to_be_bytes());
    }
    let stats = ct_stats(message(CT_STATS, &body.0));
    assert_eq!(stats, [("invalid", 16), ("drop", 255)]);
    each_cut(CT_STATS, &body.0, |m| drop(ct_stats(m)));
}

const TCP: &str = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1 1
   1: 0100007F:1F91 0100007F:8000 01 00000000:00000000 00:00000000 00000000     0        0 2 1
   2: 0100007F:1F92 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 3 1
";

#[test]
fn listening_sockets_come_first() {
    let all = sockets(TCP.as_bytes(), true);
    // What stands behind the first other one is not looked at.
    let read: Vec<_> = all.iter().map(|l| (l.addr.to_string(), l.port)).collect();
    assert_eq!(read, [("127.0.0.1".to_owned(), 8080)]);
    for len in 0..TCP.len() {
        sockets(&TCP.as_bytes()[..len], true);
    }
}

#[test]
fn bound_sockets_of_udp_have_no_peer() {
    let text =
        "  sl  local_address                         remote_address                        st
 9: 00000000000000000000000000000000:0035 00000000000000000000000000000000:0000 07 0
10: 00000000000000000000000001000000:0036 00000000000000000000000001000000:0037 01 0
11: 000010FD4402000000000000BC9A7856:0038 00000000000000000000000000000000:0000 07 0
";
    let all = sockets(text.as_bytes(), false);
    let read: Vec<_> = all
        .iter()
        .map(|l| (l.addr.to_string(), l.port, l.tcp))
        .collect();
    assert_eq!(
        read,
        [
            ("::".to_owned(), 53, false),
            ("fd10::244:0:0:5678:9abc".to_owned(), 56, false),
        ]
    );
    assert_eq!(socket("0: 0100007F:XYZ 0:0 0A"), None);
    assert_eq!(socket("0: 0100:0050 0:0 0A"), None);
}
