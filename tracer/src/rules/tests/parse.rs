use super::*;
use proptest::prelude::*;

#[test]
fn every_line_of_every_file_is_read() {
    for (name, text) in files(".iptables-save") {
        let (rules, problems) = Ruleset::parse(&[dump(&text)], None);
        assert_eq!(problems, [], "{name}");
        let mut read: Vec<&str> = Vec::new();
        for chain in rules.tables().iter().flat_map(|t| t.chains.values()) {
            for (at, rule) in chain.rules.iter().enumerate() {
                assert_eq!(rule.index, at + 1);
                read.push(&rule.text);
                let targets = !matches!(rule.target, Target::Unknown { .. });
                assert!(targets, "{name}: {}", rule.text);
            }
        }
        let mut written: Vec<&str> = text.lines().filter(|l| l.starts_with("-A")).collect();
        read.sort_unstable();
        written.sort_unstable();
        assert_eq!(read, written, "{name}");
    }
    for (name, text) in files(".ipset-save") {
        let (rules, problems) = Ruleset::parse(&[], Some(&text));
        assert_eq!(problems, [], "{name}");
        let read: usize = rules.sets.values().map(|s| 1 + s.elements.len()).sum();
        assert_eq!(read, text.lines().count(), "{name}");
    }
}

#[test]
fn only_ipvs_is_asked_for_what_is_not_known() {
    for (name, text) in files(".iptables-save") {
        let (rules, _) = Ruleset::parse(&[dump(&text)], None);
        let chains = rules.tables().iter().flat_map(|t| t.chains.values());
        let conditions = chains.flat_map(|c| &c.rules).flat_map(|r| &r.conditions);
        for condition in conditions {
            if let Match::Unknown { name: unknown, .. } = &condition.test {
                assert_eq!(&**unknown, "ipvs", "{name}");
            }
        }
    }
}

/// Matches and targets of all kinds as iptables 1.8.9 and ipset 7.17 write them,
/// in both variants and families.
#[test]
fn what_the_tools_write() {
    let sets = read("tools/sets.ipset-save");
    for (name, variant, ipv6) in [
        ("nft", "nft", false),
        ("nft-ipv6", "nft", true),
        ("legacy", "legacy", false),
        ("legacy-ipv6", "legacy", true),
    ] {
        let dump = IptablesDump {
            ipv6,
            variant: variant.into(),
            text: read(&format!("tools/{name}.iptables-save")),
        };
        let (rules, problems) = Ruleset::parse(&[dump], Some(&sets));
        assert_eq!(problems, [], "{name}");
        let chains = rules.tables().iter().flat_map(|t| t.chains.values());
        let mut unknown = Vec::new();
        for rule in chains.flat_map(|c| &c.rules) {
            assert!(rule.counters.is_some());
            for condition in &rule.conditions {
                if let Match::Unknown { name, args } = &condition.test {
                    unknown.push(format!("{name} {args}"));
                }
            }
            if let Target::Unknown { name, .. } = &rule.target {
                unknown.push(name.to_string());
            }
        }
        unknown.sort();
        let expect = [
            "TPROXY",
            "hashlimit --hashlimit-above 10/sec --hashlimit-burst 5 --hashlimit-mode srcip \
             --hashlimit-name h",
            "limit --limit 5/min",
            "owner --uid-owner 0",
            "pkttype --pkt-type broadcast",
            "tcp --tcp-option 5",
        ];
        assert_eq!(unknown, expect, "{name}");
        let filter = rules.tables().iter().find(|t| &*t.name == "filter");
        let first = &filter.unwrap().chains["INPUT"].rules[0];
        assert_eq!(first.comment().as_deref(), Some("it's \"quoted\" \\ here"));
    }
}

#[test]
fn counters_comments_and_quotes() {
    let (rules, problems) = filter(
        ":FORWARD DROP [7:420]\n\
         [3:180] -A FORWARD -p tcp -m comment --comment \"cali:6gwbT8clXdHdC1b1\" \
         -m comment --comment \"say \\\"no\\\" - to -j DROP\" -m tcp --dport 80 -j REJECT \
         --reject-with tcp-reset\n\
         [0:0] -A FORWARD -m comment --comment -dash -j ACCEPT",
    );
    assert_eq!(problems, []);
    let chain = &rules.tables()[0].chains["FORWARD"];
    assert_eq!(chain.policy, Some(Policy::Drop));
    assert_eq!(chain.counters, Some((7, 420)));
    let rule = &chain.rules[0];
    assert_eq!(rule.counters, Some((3, 180)));
    assert_eq!(rule.comment().as_deref(), Some("say \"no\" - to -j DROP"));
    assert_eq!(rule.target, Target::Reject("tcp-reset".into()));
    assert!(rule.text.starts_with("-A FORWARD"));
    assert_eq!(chain.rules[1].comments, ["-dash".into()]);
    assert_eq!(chain.rules[1].target, Target::Accept);
}

#[test]
fn what_is_not_understood_is_a_problem_and_stays_unknown() {
    let (rules, problems) = filter(
        ":INPUT ACCEPT [0:0]\n\
         -A INPUT -s nonsense -j DROP\n\
         -A INPUT -m comment --comment \"open -j DROP\n\
         -A INPUT word -j DROP",
    );
    let lines: Vec<usize> = problems.iter().map(|p| p.line).collect();
    assert_eq!(lines, [3, 4, 5]);
    let packet = tcp("10.0.0.1:1", "10.0.0.2:2");
    let decision = rules.evaluate(Hook::Input, "filter", &packet, &host());
    assert!(matches!(decision.unwrap().verdict, Verdict::Unknown { .. }));
}

#[test]
fn a_table_that_is_not_whole_decides_nothing() {
    let packet = tcp("10.0.0.1:1", "10.0.0.2:2");
    for text in [
        "*filter\n:INPUT ACCEPT [0:0]\n",
        "*filter\n:INPUT ACCEPT [0:0]\ngarbage\nCOMMIT\n",
        "*filter\n:INPUT ACCEPT [0:0]\n-A NOWHERE -j DROP\nCOMMIT\n",
        "# Table `filter' is incompatible, use 'nft' tool.\n",
        "# Table `filter' contains incompatible base-chains, use 'nft' tool to list them.\n\
         *filter\n:INPUT ACCEPT [0:0]\nCOMMIT\n",
    ] {
        let (rules, problems) = Ruleset::parse(&[dump(text)], None);
        assert_eq!(problems.len(), 1, "{text}");
        let decision = rules.evaluate(Hook::Input, "filter", &packet, &host());
        let verdict = decision.unwrap().verdict;
        assert!(matches!(verdict, Verdict::Unknown { .. }), "{text}");
    }
}

#[test]
fn targets() {
    let target = |text: &str| {
        let (rules, problems) = filter(&format!(
            ":INPUT ACCEPT [0:0]\n:MINE - [0:0]\n-A INPUT -j {text}"
        ));
        assert_eq!(problems, [], "{text}");
        rules.tables()[0].chains["INPUT"].rules[0].target.clone()
    };
    let to = |from: &str, last: &str, ports, random| Translation {
        addrs: Some((from.parse().unwrap(), last.parse().unwrap())),
        ports,
        random,
    };
    assert_eq!(target("MINE"), Target::Jump("MINE".into()));
    assert_eq!(
        target("DNAT --to-destination 10.0.0.1-10.0.0.9:80-90 --random --persistent"),
        Target::Dnat(to("10.0.0.1", "10.0.0.9", Some(Ports(80, 90)), true))
    );
    assert_eq!(
        target("DNAT --to-destination [fd00::1]:80"),
        Target::Dnat(to("fd00::1", "fd00::1", Some(Ports(80, 80)), false))
    );
    assert_eq!(
        target("SNAT --to-source fd00::1"),
        Target::Snat(to("fd00::1", "fd00::1", None, false))
    );
    assert_eq!(
        target("DNAT --to-destination :8080"),
        Target::Dnat(Translation {
            addrs: None,
            ports: Some(Ports(8080, 8080)),
            random: false
        })
    );
    let marked = |text: &str, before| match target(text) {
        Target::Mark(op) => op.apply(before),
        other => panic!("{other:?}"),
    };
    assert_eq!(marked("MARK --set-xmark 0x4000/0x0", 0x4001), 1);
    assert_eq!(marked("MARK --set-xmark 0x0/0x1b0000", 0x11_0001), 1);
    assert_eq!(marked("MARK --set-mark 0x5/0xf", 0x1a), 0x15);
    assert_eq!(marked("MARK --and-mark 0xf", 0x1a), 0xa);
    assert_eq!(marked("MARK --or-mark 0x100", 0x1a), 0x11a);
    assert_eq!(marked("MARK --xor-mark 0xf", 0x1a), 0x15);
    assert_eq!(
        target("CONNMARK --save-mark --nfmask 0xff --ctmask 0xf0"),
        Target::SaveMark { nf: 0xff, ct: 0xf0 }
    );
    assert_eq!(target("CT --notrack"), Target::NoTrack);
    assert_eq!(
        target("LOG --log-prefix \"-j DROP \""),
        Target::Continue("LOG".into())
    );
    assert_eq!(
        target("TPROXY --on-port 1 --on-ip 0.0.0.0"),
        Target::Unknown {
            name: "TPROXY".into(),
            args: "--on-port 1 --on-ip 0.0.0.0".into()
        }
    );
}

#[test]
fn random_cuts_never_panic() {
    let packet = to_service();
    let host = host();
    let mut state = 1u64;
    for (_, text) in files(".iptables-save") {
        for _ in 0..60 {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let from = (state >> 33) as usize % text.len();
            let to = from + (state >> 20) as usize % (text.len() - from);
            let cut = format!("{}{}", &text[..from], &text[to..]);
            let (rules, _) = Ruleset::parse(&[dump(&cut)], Some(&cut[..from / 2]));
            rules.traverse(Hook::Prerouting, &packet, &host);
            rules.traverse(Hook::Forward, &packet, &host);
        }
    }
}

proptest! {
    #[test]
    fn no_text_panics(rule in "[-!a-zA-Z0-9\"\\\\/:,. ]{0,80}", set in "[a-z0-9:,./ ]{0,60}") {
        let text = format!("*filter\n:INPUT ACCEPT [0:0]\n-A INPUT {rule}\n{rule}\nCOMMIT\n");
        let sets = format!("create x {set}\nadd x {set}\n{set}");
        let (rules, _) = Ruleset::parse(&[dump(&text)], Some(&sets));
        rules.evaluate(Hook::Input, "filter", &to_service(), &host());
    }
}
