use super::*;

/// Whether a rule with these matches drops the packet.
#[track_caller]
fn holds(matches: &str, packet: &Packet) -> bool {
    let decision = decided(&format!("-A INPUT {matches} -j DROP"), packet);
    match decision.verdict {
        Verdict::Drop => true,
        Verdict::Policy(Policy::Accept) => false,
        other => panic!("{matches}: {other:?}"),
    }
}

#[track_caller]
fn unknown(matches: &str, packet: &Packet) -> String {
    match decided(&format!("-A INPUT {matches} -j DROP"), packet).verdict {
        Verdict::Unknown { what } => what.to_string(),
        other => panic!("{matches}: {other:?}"),
    }
}

/// What is asked for is not there: negated or not, the kernel says no, but for
/// the conntrack match that asks for the state as well.
#[test]
fn what_is_not_there_is_not_anything_else() {
    for state in [CtState::Invalid, CtState::Untracked] {
        let packet = tcp("10.244.80.65:40000", "172.31.0.2:80").state(state);
        let other = if state == CtState::Invalid {
            "UNTRACKED"
        } else {
            "INVALID"
        };
        for (matches, expect) in [
            ("-m conntrack --ctorigsrc 10.244.80.0/24".to_owned(), false),
            ("-m conntrack ! --ctorigsrc 10.0.0.1".to_owned(), false),
            ("-m conntrack ! --ctstatus ASSURED".to_owned(), false),
            ("-m conntrack --ctdir ORIGINAL".to_owned(), false),
            ("-m connmark --mark 0x0/0x1".to_owned(), false),
            ("-m connmark ! --mark 0x1/0x1".to_owned(), false),
            (
                format!(
                    "-m conntrack --ctstate {} --ctorigsrc 1.2.3.4",
                    state.name()
                ),
                true,
            ),
            (
                format!("-m conntrack --ctstate {other} --ctorigsrc 10.244.80.65"),
                false,
            ),
            (format!("-m conntrack ! --ctstate {other}"), true),
        ] {
            assert_eq!(holds(&matches, &packet), expect, "{matches} of {state:?}");
        }
    }
    let mut fragment = tcp("10.244.80.65:40000", "172.31.0.2:80");
    fragment.fragment = true;
    for matches in [
        "-p tcp -m tcp --dport 80",
        "-p tcp -m tcp ! --dport 81",
        "-p tcp -m multiport ! --ports 81",
        "-p tcp -m tcp ! --tcp-flags SYN,ACK ACK",
    ] {
        assert!(!holds(matches, &fragment), "{matches}");
    }
}

#[test]
fn addresses_interfaces_and_ports() {
    let packet = tcp("10.244.80.65:40000", "172.31.0.2:80").arriving("cali7");
    for (matches, expect) in [
        ("-s 10.244.0.0/16", true),
        ("! -s 10.244.0.0/16", false),
        ("-s 10.244.0.1/255.255.0.255", false),
        ("-s 10.244.0.65/255.255.0.255", true),
        ("-d 172.31.0.2/32 -i cali+", true),
        ("-i cali", false),
        ("-i +", true),
        ("! -i eth0", true),
        ("-o eth0", false),
        ("-p tcp", true),
        ("-p 6 -m tcp --dport 80", true),
        ("! -p udp", true),
        ("-p tcp -m tcp --dport 81:90", false),
        ("-p tcp -m tcp ! --dport :79", true),
        ("-p tcp -m tcp --sport 32768:65535", true),
        ("-p tcp -m multiport --dports 22,70:90", true),
        ("-p tcp -m multiport ! --dports 22,70:90", false),
        ("-p tcp -m multiport --ports 40000", true),
        ("-p tcp -m tcp --tcp-flags FIN,SYN,RST,ACK SYN", true),
        ("-p tcp -m tcp ! --tcp-flags FIN,SYN,RST,ACK SYN", false),
        ("-f", false),
        ("-m addrtype --dst-type LOCAL", true),
        ("-m addrtype ! --src-type LOCAL", true),
        ("-m addrtype --dst-type LOCAL --limit-iface-in", false),
        ("-m addrtype --src-type UNICAST,BROADCAST", true),
        (
            "-m nfacct --nfacct-name ct_state_invalid_dropped_pkts",
            true,
        ),
    ] {
        assert_eq!(holds(matches, &packet), expect, "{matches}");
    }
}

#[test]
fn marks_and_conntrack() {
    let mut packet = tcp("10.244.80.65:40000", "172.31.0.2:80").marked(0x14000);
    packet.ct.dnat = Some(true);
    packet.ct.snat = Some(false);
    packet.ct.confirmed = Some(false);
    packet.ct.original_dst = Some(("10.98.235.247".parse().unwrap(), Some(80)));
    for (matches, expect) in [
        ("-m mark --mark 0x4000/0x4000", true),
        ("-m mark ! --mark 0x4000/0x4000", false),
        ("-m mark --mark 0x4000", false),
        ("-m connmark --mark 0x0", true),
        ("-m conntrack --ctstate NEW", true),
        ("-m state --state NEW", true),
        ("-m conntrack --ctstate RELATED,ESTABLISHED", false),
        ("-m conntrack --ctstate DNAT", true),
        ("-m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT", false),
        ("-m conntrack --ctstate SNAT", false),
        ("-m conntrack --ctstatus CONFIRMED", false),
        (
            "-m conntrack --ctorigdst 10.98.235.247 --ctorigdstport 80",
            true,
        ),
        ("-m conntrack --ctorigdstport 81", false),
        ("-m conntrack --ctproto 6", true),
    ] {
        assert_eq!(holds(matches, &packet), expect, "{matches}");
    }
    let untracked = packet.clone().state(CtState::Untracked);
    assert!(holds("-m conntrack --ctstate UNTRACKED", &untracked));
    assert!(!holds("-m conntrack --ctstate DNAT", &untracked));
}

#[test]
fn fragments_have_no_ports() {
    let mut packet = tcp("10.0.0.1:1", "10.0.0.2:80");
    packet.fragment = true;
    assert!(holds("-f", &packet));
    assert!(!holds("-p tcp -m tcp --dport 80", &packet));
    assert!(holds("-p tcp", &packet));
}

#[test]
fn icmp() {
    let mut packet = Packet::new("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap(), 1);
    packet.icmp = Some((3, 4));
    assert!(holds("-p icmp -m icmp --icmp-type 3", &packet));
    assert!(holds("-p icmp -m icmp --icmp-type 3/4", &packet));
    assert!(!holds("-p icmp -m icmp --icmp-type 3/3", &packet));
    assert!(holds("-p icmp -m icmp --icmp-type any", &packet));
    packet.icmp = None;
    assert!(unknown("-p icmp -m icmp --icmp-type 8", &packet).contains("ICMP type"));
}

#[test]
fn what_is_not_known_is_named() {
    let packet = tcp("10.0.0.1:1", "10.0.0.2:80");
    let what = unknown("-m u32 --u32 \"0x0 & 0xff = 0x1\"", &packet);
    assert_eq!(what, "match u32 --u32 0x0 & 0xff = 0x1");
    assert!(unknown("-m owner --uid-owner 0", &packet).contains("owner"));
    assert!(unknown("-m set --match-set gone src", &packet).contains("set gone was not read"));
    assert!(unknown("-i eth0", &packet).contains("input interface"));
    assert!(unknown("-m length --length 0:99", &packet).contains("length"));
    assert!(unknown("-m conntrack --ctstate DNAT", &packet).contains("translation"));
    let decision = decided("-A INPUT -j TARPIT --tarpit", &packet);
    assert_eq!(
        decision.verdict,
        Verdict::Unknown {
            what: "target TARPIT --tarpit".into()
        }
    );
    assert_eq!(decision.rule.unwrap().index, 1);
}

#[test]
fn what_makes_no_difference_need_not_be_known() {
    let packet = tcp("10.0.0.1:1", "10.0.0.2:80");
    // The other matches do not hold, whatever this one does.
    assert!(!holds("-m u32 --u32 0x0 -p udp", &packet));
    let decision = decided(
        ":EMPTY - [0:0]\n\
         -A INPUT -m limit --limit 3/min -j LOG\n\
         -A INPUT -m u32 --u32 0x0 -j EMPTY\n\
         -A INPUT -j DROP",
        &packet,
    );
    assert_eq!(decision.verdict, Verdict::Drop);
    assert_eq!(decision.rule.unwrap().index, 3);
}

#[test]
fn jumps_gotos_and_returns() {
    let packet = tcp("10.0.0.1:1", "10.0.0.2:80");
    let decision = decided(
        ":A - [0:0]\n:B - [0:0]\n:C - [0:0]\n\
         -A INPUT -j A\n\
         -A INPUT -j DROP\n\
         -A A -g B\n\
         -A A -j ACCEPT\n\
         -A B -j C\n\
         -A B -j RETURN\n\
         -A B -j ACCEPT\n\
         -A C -j RETURN\n\
         -A C -j ACCEPT",
        &packet,
    );
    assert_eq!(decision.verdict, Verdict::Drop);
    let path: Vec<&str> = decision.path.iter().map(|v| &*v.chain).collect();
    assert_eq!(path, ["INPUT", "A", "B", "C"]);
    assert_eq!(decision.path[1].via.as_deref(), Some("-A INPUT -j A"));
    let decision = decided(":A - [0:0]\n-A INPUT -g A\n-A INPUT -j DROP", &packet);
    assert_eq!(decision.verdict, Verdict::Policy(Policy::Accept));
}

#[test]
fn loops_end() {
    let packet = tcp("10.0.0.1:1", "10.0.0.2:80");
    let decision = decided(":A - [0:0]\n-A INPUT -j A\n-A A -j A", &packet);
    assert!(matches!(decision.verdict, Verdict::Unknown { .. }));
    let decision = decided(":A - [0:0]\n-A INPUT -j A\n-A A -g A", &packet);
    assert!(matches!(decision.verdict, Verdict::Unknown { .. }));
    let half = "-m statistic --mode random --probability 0.5";
    let decision = decided(
        &format!(":A - [0:0]\n-A INPUT -j A\n-A A {half} -g A\n-A A -j A"),
        &packet,
    );
    assert!(!decision.alternatives.is_empty());
}

#[test]
fn connection_marks() {
    let packet = tcp("10.0.0.1:1", "10.0.0.2:80").marked(0x12);
    let decision = decided(
        "-A INPUT -j CONNMARK --save-mark --nfmask 0xf0 --ctmask 0xff\n\
         -A INPUT -j MARK --set-xmark 0x3/0xffffffff\n\
         -A INPUT -j CONNMARK --restore-mark --nfmask 0xf0 --ctmask 0xf0",
        &packet,
    );
    assert_eq!(decision.connmark, Some(0x10));
    assert_eq!(decision.mark, 0x13);
    assert_eq!(decision.marks.len(), 2);
    let late = packet.state(CtState::Established);
    let decision = decided("-A INPUT -j CONNMARK --restore-mark", &late);
    assert!(matches!(decision.verdict, Verdict::Unknown { .. }));
}

#[test]
fn near_misses_name_the_match() {
    let packet = tcp("10.0.0.1:1", "10.0.0.2:80");
    let decision = decided(
        "-A INPUT -s 10.0.0.0/24 -p tcp -m tcp --dport 8080 -j ACCEPT\n\
         -A INPUT -s 10.1.0.0/24 -p tcp -m tcp --dport 80 -j ACCEPT\n\
         -A INPUT -s 10.1.0.0/24 -p tcp -m tcp --dport 8080 -j ACCEPT\n\
         -A INPUT -m conntrack --ctstate ESTABLISHED -j ACCEPT\n\
         -A INPUT -j DROP",
        &packet,
    );
    let why: Vec<&str> = decision.failed.iter().map(|m| &*m.why).collect();
    assert_eq!(
        why,
        [
            "dport 80 is not 8080",
            "source 10.0.0.1 is not in 10.1.0.0/24"
        ]
    );
    assert_eq!(decision.failed[1].rule.index, 2);
}

#[test]
fn ipv6_has_tables_of_its_own() {
    let six = IptablesDump {
        ipv6: true,
        ..dump(
            "*filter\n:INPUT ACCEPT [0:0]\n\
             -A INPUT -s fd00:10:244::/64 -p tcp -m tcp --dport 80 -m set --match-set cali60x dst \
             -j REJECT --reject-with icmp6-port-unreachable\n\
             -A INPUT -p ipv6-icmp -m icmp6 --icmpv6-type 135 -j ACCEPT\nCOMMIT\n",
        )
    };
    let four = dump("*filter\n:INPUT DROP [0:0]\nCOMMIT\n");
    let sets = "create cali60x hash:net family inet6\nadd cali60x fd00::/16\n";
    let (rules, problems) = Ruleset::parse(&[four, six], Some(sets));
    assert_eq!(problems, []);
    let decide = |packet: &Packet| {
        rules
            .evaluate(Hook::Input, "filter", packet, &host())
            .unwrap()
    };
    let decision = decide(&tcp("[fd00:10:244::5]:1", "[fd00::1]:80"));
    let with = "icmp6-port-unreachable".into();
    assert_eq!(decision.verdict, Verdict::Reject { with });
    assert!(decision.rule.unwrap().ipv6);
    let mut solicit = Packet::new("fe80::1".parse().unwrap(), "ff02::1".parse().unwrap(), 58);
    solicit.icmp = Some((135, 0));
    assert_eq!(decide(&solicit).verdict, Verdict::Accept);
    let four = decide(&tcp("10.0.0.1:1", "10.0.0.2:80"));
    assert_eq!(four.verdict, Verdict::Policy(Policy::Drop));
}

#[test]
fn the_stricter_variant_decides() {
    let legacy = IptablesDump {
        variant: "legacy".into(),
        ..dump("*filter\n:FORWARD DROP [0:0]\nCOMMIT\n")
    };
    let nft = dump("*filter\n:FORWARD ACCEPT [0:0]\n-A FORWARD -j ACCEPT\nCOMMIT\n");
    let packet = tcp("10.0.0.1:1", "10.0.0.2:80");
    for dumps in [[nft.clone(), legacy.clone()], [legacy, nft]] {
        let (rules, _) = Ruleset::parse(&dumps, None);
        let decision = rules
            .evaluate(Hook::Forward, "filter", &packet, &host())
            .unwrap();
        assert_eq!(decision.verdict, Verdict::Policy(Policy::Drop));
        assert_eq!(&*decision.variant, "legacy");
    }
    let (rules, _) = filter(":INPUT ACCEPT [0:0]");
    assert_eq!(
        rules.evaluate(Hook::Forward, "filter", &packet, &host()),
        None
    );
}
