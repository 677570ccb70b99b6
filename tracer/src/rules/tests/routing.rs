use super::route::{Missing, RouteKind, lookup, next_hop};
use super::*;
use crate::state::{Fdb, Neighbour, PolicyRule};
use std::net::IpAddr;

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn rule(priority: u32, table: u32) -> PolicyRule {
    PolicyRule {
        priority,
        ipv6: false,
        src: None,
        dst: None,
        iif: None,
        oif: None,
        fwmark: None,
        invert: false,
        table: Some(table),
        action: "lookup".into(),
    }
}

fn found(ns: &Namespace, dst: &str) -> (RouteKind, Option<String>) {
    let answer = lookup(ns, ip(dst), None, None, 0);
    let dev = answer.route.and_then(|r| r.dev.as_ref());
    (answer.kind, dev.map(ToString::to_string))
}

#[test]
fn the_longest_prefix_of_the_first_table() {
    let mut ns = host();
    let to = |dev: &str| (RouteKind::Unicast, Some(dev.to_owned()));
    assert_eq!(found(&ns, "10.244.80.65"), to("cali747ff840379"));
    assert_eq!(found(&ns, "10.244.158.70"), to("vxlan.calico"));
    assert_eq!(found(&ns, "192.0.2.1"), to("eth0"));
    assert_eq!(found(&ns, "10.244.80.70"), (RouteKind::Blackhole, None));
    let local = (RouteKind::Local, Some("eth0".to_owned()));
    assert_eq!(found(&ns, "172.31.0.2"), local);
    assert_eq!(found(&ns, "fd00::1"), (RouteKind::NoRoute, None));
    // The lower metric wins, whatever its place.
    let mut better = ns.routes[8].clone();
    ns.routes[8].metric = 10;
    better.dev = Some("eth1".into());
    ns.routes.push(better);
    assert_eq!(found(&ns, "10.244.80.66"), to("eth1"));
}

#[test]
fn rules_select_tables() {
    let mut ns = host();
    let mut other = ns.routes[4].clone();
    other.table = 100;
    other.dev = Some("eth1".into());
    ns.routes.push(other);
    ns.rules = vec![rule(32766, 254), rule(0, 255)];
    ns.rules.push(PolicyRule {
        fwmark: Some((0x100, 0xf00)),
        src: Some((ip("10.244.0.0"), 16)),
        ..rule(1000, 100)
    });
    let dev = |src: Option<&str>, iif: Option<&str>, mark| {
        let answer = lookup(&ns, ip("192.0.2.1"), src.map(ip), iif, mark);
        answer.route.unwrap().dev.clone().unwrap().to_string()
    };
    assert_eq!(dev(Some("10.244.0.1"), None, 0x1100), "eth1");
    assert_eq!(dev(Some("10.244.0.1"), None, 0x200), "eth0");
    assert_eq!(dev(None, None, 0x100), "eth0");
    let answer = lookup(&ns, ip("172.31.0.2"), None, None, 0);
    assert_eq!(answer.rule.unwrap().priority, 0);

    ns.rules[2].invert = true;
    let answer = lookup(&ns, ip("192.0.2.1"), None, Some("eth0"), 0);
    assert_eq!(answer.rule.unwrap().table, Some(100));
    ns.rules[2].invert = false;
    ns.rules[2].src = None;
    ns.rules[2].iif = Some("eth0".into());
    ns.rules[2].action = "prohibit".into();
    let answer = lookup(&ns, ip("192.0.2.1"), None, Some("eth0"), 0x100);
    assert_eq!((answer.kind, answer.route), (RouteKind::Prohibit, None));
    ns.rules[2].action = "goto".into();
    let answer = lookup(&ns, ip("192.0.2.1"), None, Some("eth0"), 0x100);
    assert!(matches!(answer.kind, RouteKind::Unknown(_)));
}

#[test]
fn throw_goes_on_with_the_next_table() {
    let mut ns = host();
    let mut throw = ns.routes[4].clone();
    throw.table = 100;
    throw.kind = "throw".into();
    ns.routes.push(throw);
    ns.rules = vec![rule(10, 100), rule(20, 254)];
    let answer = lookup(&ns, ip("192.0.2.1"), None, None, 0);
    assert_eq!(answer.rule.unwrap().priority, 20);
}

#[test]
fn the_next_hop_of_a_tunnel() {
    let mut ns = host();
    let hop = |ns: &Namespace| next_hop(ns, ip("10.244.158.65"), None, None, 0);
    assert_eq!(hop(&ns).via, ip("10.244.158.64"));
    assert_eq!(hop(&ns).missing, Some(Missing::Neighbour));
    ns.neighbours.push(Neighbour {
        addr: ip("10.244.158.64"),
        dev: "vxlan.calico".into(),
        mac: Some("66:10:F5:eb:e6:ac".into()),
        state: "permanent".into(),
    });
    assert_eq!(hop(&ns).missing, Some(Missing::Fdb));
    ns.fdb.push(Fdb {
        mac: "66:10:f5:eb:e6:ac".into(),
        dev: "vxlan.calico".into(),
        dst: Some(ip("172.31.0.3")),
    });
    assert_eq!(
        (hop(&ns).vtep, hop(&ns).missing),
        (Some(ip("172.31.0.3")), None)
    );
    ns.routes.retain(|r| r.prefix != 0 && r.prefix != 26);
    assert_eq!(hop(&ns).missing, Some(Missing::Route));
}

#[test]
fn ip_in_ip_needs_no_neighbour() {
    let mut ns = host();
    ns.links[2].kind = "ipip".into();
    let hop = next_hop(&ns, ip("10.244.158.65"), None, None, 0);
    assert_eq!((hop.vtep, hop.missing), (Some(ip("10.244.158.64")), None));
}

#[test]
fn kinds_of_addresses() {
    let mut ns = host();
    let kind = |ns: &Namespace, addr: &str, dev| ns.addr_type(ip(addr), dev);
    for _ in 0..2 {
        for (addr, dev, expect) in [
            ("172.31.0.2", None, AddrType::Local),
            ("172.31.0.2", Some("eth0"), AddrType::Local),
            ("172.31.0.2", Some("vxlan.calico"), AddrType::Unicast),
            ("127.8.8.8", None, AddrType::Local),
            ("172.31.0.255", None, AddrType::Broadcast),
            ("255.255.255.255", None, AddrType::Broadcast),
            ("224.0.0.5", None, AddrType::Multicast),
            ("192.0.2.1", None, AddrType::Unicast),
        ] {
            assert_eq!(kind(&ns, addr, dev), Some(expect), "{addr}");
        }
        // The interfaces' addresses have to do where the local table is missing.
        ns.routes.retain(|r| r.table != 255);
    }
    assert_eq!(kind(&empty(), "192.0.2.1", None), None);
}
