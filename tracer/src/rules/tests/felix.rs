use super::*;

/// The client's SYN where the server's node forwards it to the pod.
fn inner(src: &str, dport: u16) -> Packet {
    let mut packet = tcp(&format!("{src}:40000"), &format!("10.244.158.65:{dport}"))
        .arriving("vxlan.calico")
        .leaving("cali1b2c3d4e5f6");
    packet.ct.dnat = Some(false);
    packet.ct.snat = Some(false);
    packet
}

fn forward(packet: &Packet) -> Decision {
    worker2()
        .evaluate(Hook::Forward, "filter", packet, &host())
        .unwrap()
}

#[test]
fn a_policy_accepts() {
    let decision = forward(&inner("10.244.80.65", 8080));
    assert_eq!(decision.verdict, Verdict::Accept);
    let rule = decision.rule.unwrap();
    assert_eq!((&*rule.chain, rule.index), ("FORWARD", 6));
    assert_eq!(
        rule.comment.as_deref(),
        Some("Policy explicitly accepted packet.")
    );
    let marked = &decision.marks.last().unwrap().rule;
    assert_eq!(&*marked.chain, "cali-pi-_noDcsEKNIIN94h2rZk1");
    assert_eq!(decision.failed, []);
}

#[test]
fn a_policy_that_does_not_name_the_source_drops() {
    let decision = forward(&inner("10.244.80.66", 8080));
    assert_eq!(decision.verdict, Verdict::Drop);
    let rule = decision.rule.unwrap();
    assert_eq!(&*rule.chain, "cali-tw-cali1b2c3d4e5f6");
    assert_eq!(
        rule.comment.as_deref(),
        Some("End of tier default. Drop if no policies passed packet")
    );
    let [miss] = &*decision.failed else {
        panic!("{:?}", decision.failed);
    };
    assert_eq!(
        &*miss.why,
        "set cali40s:Ikklc_4A4XKzhaQl4gSxydF src does not contain 10.244.80.66"
    );
    assert_eq!(
        miss.rule.comment.as_deref(),
        Some("KubernetesNetworkPolicy default/remote-allow ingress")
    );
    let path: Vec<&str> = decision.path.iter().map(|v| &*v.chain).collect();
    assert_eq!(path.last(), Some(&"cali-pi-_noDcsEKNIIN94h2rZk1"));
}

#[test]
fn a_policy_that_does_not_name_the_port_drops() {
    let decision = forward(&inner("10.244.80.65", 80));
    assert_eq!(decision.verdict, Verdict::Drop);
    let why: Vec<&str> = decision.failed.iter().map(|m| &*m.why).collect();
    assert_eq!(why, ["dport 80 is not 8080"]);
}

#[test]
fn two_things_wrong_are_not_near() {
    let decision = forward(&inner("10.244.80.66", 80));
    assert_eq!(decision.verdict, Verdict::Drop);
    assert_eq!(decision.failed, []);
}

#[test]
fn answers_and_the_invalid() {
    let packet = inner("10.244.80.66", 80);
    let answer = forward(&packet.clone().state(CtState::Established));
    assert_eq!(answer.verdict, Verdict::Accept);
    assert_eq!(&*answer.rule.unwrap().chain, "cali-tw-cali1b2c3d4e5f6");
    let invalid = forward(&packet.state(CtState::Invalid));
    assert_eq!(invalid.verdict, Verdict::Drop);
    assert_eq!(invalid.rule.unwrap().index, 2);
}

#[test]
fn a_workload_felix_does_not_know() {
    let decision = forward(&inner("10.244.80.65", 8080).leaving("cali000"));
    assert_eq!(decision.verdict, Verdict::Drop);
    let comment = decision.rule.unwrap().comment;
    assert_eq!(comment.as_deref(), Some("Unknown interface"));
}

#[test]
fn the_policy_of_flow_logs_logs_on_the_way() {
    let rules = node(
        "felix-3.32.1-worker2-flowlogs.iptables-save",
        Some("felix-3.32.1-worker2.ipset-save"),
    );
    let decide = |src| {
        let packet = inner(src, 8080);
        rules
            .evaluate(Hook::Forward, "filter", &packet, &host())
            .unwrap()
    };
    assert_eq!(decide("10.244.80.65").verdict, Verdict::Accept);
    let dropped = decide("10.244.80.66");
    assert_eq!(dropped.verdict, Verdict::Drop);
    assert_eq!(dropped.failed.len(), 1);
}

#[test]
fn vxlan_from_hosts_that_are_not_allowed() {
    let rules = worker();
    let outer = |src: &str| {
        let src = format!("{src}:55555");
        let packet = Packet::udp(addr(&src), addr("172.31.0.2:4789")).arriving("eth0");
        let packet = packet.state(CtState::Untracked);
        rules
            .evaluate(Hook::Input, "filter", &packet, &host())
            .unwrap()
    };
    let allowed = outer("172.31.0.3");
    assert_eq!(allowed.verdict, Verdict::Accept);
    let rule = allowed.rule.unwrap();
    assert_eq!((&*rule.chain, rule.index), ("cali-INPUT", 1));
    let denied = outer("172.31.0.9");
    assert_eq!(denied.verdict, Verdict::Drop);
    assert_eq!(
        denied.rule.unwrap().comment.as_deref(),
        Some("Drop IPv4 VXLAN packets from non-allowed hosts")
    );
    assert_eq!(
        &*denied.failed[0].why,
        "set cali40all-vxlan-net src does not contain 172.31.0.9"
    );
}

#[test]
fn spoofed_sources_die_in_raw() {
    let rules = worker();
    let raw = |src: &str| {
        let packet = tcp(&format!("{src}:1"), "10.244.158.65:8080").arriving("cali747ff840379");
        rules
            .evaluate(Hook::Prerouting, "raw", &packet, &host())
            .unwrap()
    };
    let own = raw("10.244.80.65");
    assert_eq!(own.verdict, Verdict::Policy(Policy::Accept));
    assert_eq!(own.mark, 0x80000);
    for spoofed in ["10.244.80.66", "192.0.2.1", "172.31.0.2"] {
        let decision = raw(spoofed);
        assert_eq!(decision.verdict, Verdict::Drop, "{spoofed}");
        assert!(decision.rule.unwrap().text.contains("rpfilter"));
    }
}

#[test]
fn without_routes_nothing_is_said_about_them() {
    let (rules, empty) = (worker(), empty());
    let what = |table, packet: &Packet| {
        let decision = rules.evaluate(Hook::Prerouting, table, packet, &empty);
        match decision.unwrap().verdict {
            Verdict::Unknown { what } => what.to_string(),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(what("raw", &to_service()), "the route back to 10.244.80.65");
    assert_eq!(
        what("nat", &tcp("10.0.0.1:1", "10.0.0.2:30080")),
        "the type of address 10.0.0.2, for no routes were read"
    );
    // No node port: whether the address is the node's makes no difference.
    let packet = tcp("10.0.0.1:1", "10.0.0.2:2");
    let decision = rules.evaluate(Hook::Prerouting, "nat", &packet, &empty);
    assert_eq!(decision.unwrap().verdict, Verdict::Policy(Policy::Accept));
}
