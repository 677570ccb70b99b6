use super::*;

fn only(traversal: Traversal) -> Way {
    let [way] = <[Way; 1]>::try_from(traversal.ways).unwrap();
    way
}

#[test]
fn the_way_of_a_pod_to_a_service() {
    let (rules, host) = (worker(), host());
    let way = only(rules.traverse(Hook::Prerouting, &to_service(), &host));
    assert_eq!(way.verdict, Verdict::Accept);
    let nat = way.translation().unwrap();
    let Verdict::Dnat(to) = &nat.verdict else {
        panic!("{nat:?}");
    };
    assert_eq!(to.to_string(), "10.244.158.65:8080");
    let rule = nat.rule.as_ref().unwrap();
    assert_eq!(&*rule.chain, "KUBE-SEP-XAMWAWZM6Q3EZXW4");
    assert_eq!(rule.comment.as_deref(), Some("default/remote"));
    let path: Vec<&str> = nat.path.iter().map(|v| &*v.chain).collect();
    assert_eq!(
        path,
        [
            "PREROUTING",
            "cali-PREROUTING",
            "cali-fip-dnat",
            "KUBE-SERVICES",
            "KUBE-SVC-WTUWVVJNNKPUFNHY",
            "KUBE-SEP-XAMWAWZM6Q3EZXW4",
        ]
    );
    let packet = way.packet;
    assert_eq!(packet.dst.to_string(), "10.244.158.65");
    assert_eq!((packet.dport, packet.mark), (Some(8080), 0x80000));
    assert_eq!(packet.ct.dnat, Some(true));
    let before = Some(("10.98.235.247".parse().unwrap(), Some(80)));
    assert_eq!(packet.ct.original_dst, before);

    let hop = route::next_hop(&host, packet.dst, Some(packet.src), None, packet.mark);
    let packet = packet.leaving(&hop.dev.unwrap());
    let way = only(rules.traverse(Hook::Forward, &packet, &host));
    assert_eq!(way.verdict, Verdict::Accept);
    let last = way.steps.last().unwrap();
    let comment = last.rule.as_ref().unwrap().comment.as_deref();
    assert_eq!(comment, Some("Policy explicitly accepted packet."));

    let way = only(rules.traverse(Hook::Postrouting, &way.packet, &host));
    assert_eq!(way.verdict, Verdict::Accept);
    assert_eq!(way.translation(), None);
    assert_eq!(way.packet.src.to_string(), "10.244.80.65");
}

#[test]
fn a_host_reaches_a_service_with_another_address() {
    let (rules, host) = (worker(), host());
    let packet = tcp("172.31.0.2:40000", "10.98.235.247:80").leaving("eth0");
    let way = only(rules.traverse(Hook::Output, &packet, &host));
    assert_eq!(way.packet.dst.to_string(), "10.244.158.65");
    assert_eq!(way.packet.mark & 0x4000, 0x4000);
    let tables: Vec<&str> = way.steps.iter().map(|s| &*s.table).collect();
    assert_eq!(tables, ["raw", "mangle", "nat", "filter"]);

    // Routed again after the rewrite.
    let packet = way.packet.leaving("vxlan.calico");
    let way = only(rules.traverse(Hook::Postrouting, &packet, &host));
    let nat = way.translation().unwrap();
    assert!(matches!(nat.verdict, Verdict::Masquerade(to) if to.random));
    assert_eq!(&*nat.rule.as_ref().unwrap().chain, "KUBE-POSTROUTING");
    assert_eq!(way.packet.mark & 0x4000, 0);
    assert_eq!(way.packet.src.to_string(), "10.244.80.64");
    assert_eq!(way.packet.sport, None);
}

#[test]
fn a_node_port_is_rewritten_and_marked() {
    let (rules, host) = (kube_proxy(), host());
    let packet = tcp("192.0.2.77:40000", "172.31.0.2:30080").arriving("eth0");
    let way = only(rules.traverse(Hook::Prerouting, &packet, &host));
    assert_eq!(way.packet.dst.to_string(), "10.244.158.65");
    assert_eq!(way.packet.mark, 0x4000);
    let nat = way.translation().unwrap();
    assert_eq!(&*nat.marks[0].rule.chain, "KUBE-MARK-MASQ");
    let packet = way.packet.leaving("vxlan.calico");
    let way = only(rules.traverse(Hook::Forward, &packet, &host));
    let rule = way.steps.last().unwrap().rule.as_ref().unwrap();
    assert!(rule.text.contains("--mark 0x4000/0x4000 -j ACCEPT"));
}

#[test]
fn a_service_without_endpoints_rejects() {
    let (rules, host) = (kube_proxy(), host());
    let packet = tcp("10.244.80.65:1", "10.103.9.9:80").arriving("cali747ff840379");
    let way = only(rules.traverse(Hook::Prerouting, &packet, &host));
    assert_eq!(way.translation(), None);
    let packet = way.packet.leaving("eth0");
    let way = only(rules.traverse(Hook::Forward, &packet, &host));
    let with = "icmp-port-unreachable".into();
    assert_eq!(way.verdict, Verdict::Reject { with });
    let comment = way.end().unwrap().rule.as_ref().unwrap().comment.clone();
    assert_eq!(comment.as_deref(), Some("default/noeps has no endpoints"));
}

#[test]
fn a_node_without_an_endpoint_of_its_own_drops() {
    let (rules, host) = (kube_proxy(), host());
    let packet = tcp("192.0.2.77:1", "172.31.0.2:30083").arriving("eth0");
    let way = only(rules.traverse(Hook::Prerouting, &packet, &host));
    assert_eq!(way.packet.dport, Some(30083));
    let way = only(rules.traverse(Hook::Input, &way.packet, &host));
    assert_eq!(way.verdict, Verdict::Drop);
    let comment = way.end().unwrap().rule.as_ref().unwrap().comment.clone();
    assert_eq!(
        comment.as_deref(),
        Some("default/etplocal-noeps-here has no local endpoints")
    );
}

#[test]
fn source_ranges_of_a_load_balancer() {
    let (rules, host) = (kube_proxy(), host());
    let at = |src: &str| {
        let packet = tcp(&format!("{src}:1"), "192.0.2.10:80").arriving("eth0");
        let way = only(rules.traverse(Hook::Prerouting, &packet, &host));
        let translated = way.translation().is_some();
        let packet = way.packet.leaving("eth0");
        let way = only(rules.traverse(Hook::Forward, &packet, &host));
        (translated, way.verdict)
    };
    assert_eq!(at("203.0.113.7"), (true, Verdict::Accept));
    assert_eq!(at("198.51.100.7"), (false, Verdict::Drop));
}

#[test]
fn vxlan_is_not_tracked() {
    let (rules, host) = (worker(), host());
    let packet = Packet::udp(addr("172.31.0.3:5"), addr("172.31.0.2:4789")).arriving("eth0");
    let way = only(rules.traverse(Hook::Prerouting, &packet, &host));
    let untracked = way.steps[0].untracked.as_ref().unwrap();
    assert!(untracked.text.ends_with("--dport 4789 -j NOTRACK"));
    assert_eq!(way.packet.ct.state, Some(CtState::Untracked));
    let tables: Vec<&str> = way.steps.iter().map(|s| &*s.table).collect();
    assert_eq!(tables, ["raw", "mangle"]);
}

#[test]
fn established_packets_do_not_meet_nat() {
    let packet = to_service().state(CtState::Established);
    let way = only(worker().traverse(Hook::Prerouting, &packet, &host()));
    assert_eq!(way.translation(), None);
    let mut packet = to_service();
    packet.ct.state = None;
    let way = only(kube_proxy().traverse(Hook::Prerouting, &packet, &host()));
    let Verdict::Unknown { what } = way.verdict else {
        panic!("known");
    };
    assert!(what.contains("connection state"));
}

#[test]
fn each_way_carries_its_own_packet() {
    let packet = tcp("172.31.0.2:1", "10.102.8.8:80").leaving("eth0");
    let traversal = kube_proxy().traverse(Hook::Output, &packet, &host());
    assert_eq!(traversal.verdict(), Some(&Verdict::Accept));
    let to: Vec<String> = traversal
        .ways
        .iter()
        .map(|w| w.packet.dst.to_string())
        .collect();
    assert_eq!(to, ["10.244.158.65", "10.244.80.66"]);
    let sum: f64 = traversal.ways.iter().map(|w| w.probability).sum();
    assert!((sum - 1.0).abs() < 1e-9);
}

#[test]
fn ipvs_is_let_through_to_ipvs() {
    let rules = node(
        "kube-proxy-1.30.3-ipvs-full.iptables-save",
        Some("kube-proxy-1.30.3-ipvs-full.ipset-save"),
    );
    let host = host();
    let packet = tcp("10.244.80.65:1", "10.98.235.247:80").arriving("cali747ff840379");
    let way = only(rules.traverse(Hook::Prerouting, &packet, &host));
    assert_eq!(way.steps[0].verdict, Verdict::Accept);
    let way = only(rules.traverse(Hook::Input, &way.packet, &host));
    assert_eq!(way.verdict, Verdict::Accept);
    // A port that the Service does not have.
    let packet = tcp("10.244.80.65:1", "10.98.235.247:81").arriving("cali747ff840379");
    let way = only(rules.traverse(Hook::Input, &packet, &host));
    assert!(matches!(way.verdict, Verdict::Reject { .. }));
    // From elsewhere than the pods, the source will be replaced.
    let packet = tcp("192.0.2.7:1", "10.98.235.247:80").arriving("eth0");
    let way = only(rules.traverse(Hook::Prerouting, &packet, &host));
    assert_eq!(way.packet.mark, 0x4000);
}
