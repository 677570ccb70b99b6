use super::*;

fn nat(rules: &Ruleset, packet: &Packet) -> Decision {
    rules
        .evaluate(Hook::Prerouting, "nat", packet, &host())
        .unwrap()
}

fn destination(decision: &Decision) -> String {
    match &decision.verdict {
        Verdict::Dnat(to) => to.to_string(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn three_endpoints_share_evenly() {
    let text = "*nat\n:PREROUTING ACCEPT [0:0]\n:SVC - [0:0]\n\
        -A PREROUTING -d 10.96.0.9/32 -j SVC\n\
        -A SVC -m statistic --mode random --probability 0.33333333349 -j DNAT --to-destination 10.0.0.1:80\n\
        -A SVC -m statistic --mode random --probability 0.50000000000 -j DNAT --to-destination 10.0.0.2:80\n\
        -A SVC -j DNAT --to-destination 10.0.0.3:80\nCOMMIT\n";
    let (rules, problems) = Ruleset::parse(&[dump(text)], None);
    assert_eq!(problems, []);
    let decision = nat(&rules, &tcp("10.244.0.1:1", "10.96.0.9:80"));
    assert_eq!(decision.verdict, Verdict::Depends);
    assert_eq!(decision.rule, None);
    let ways = &decision.alternatives;
    assert_eq!(ways.len(), 3);
    let sum: f64 = ways.iter().map(|w| w.probability).sum();
    assert!((sum - 1.0).abs() < 1e-9);
    for (way, last) in ways.iter().zip(1..) {
        assert!((way.probability - 1.0 / 3.0).abs() < 1e-6);
        assert_eq!(destination(&way.decision), format!("10.0.0.{last}:80"));
    }
    let path: Vec<&str> = decision.path.iter().map(|v| &*v.chain).collect();
    assert_eq!(path, ["PREROUTING", "SVC"]);
}

#[test]
fn two_endpoints_of_a_real_service() {
    let packet = tcp("10.244.80.65:1", "10.102.8.8:80");
    let decision = nat(&kube_proxy(), &packet);
    let to: Vec<String> = decision
        .alternatives
        .iter()
        .map(|w| destination(&w.decision))
        .collect();
    assert_eq!(to, ["10.244.158.65:8080", "10.244.80.66:8080"]);
}

#[test]
fn affinity_depends_on_lists_nobody_can_read() {
    let packet = tcp("10.244.80.65:1", "10.104.1.1:80");
    let decision = nat(&kube_proxy(), &packet);
    assert_eq!(decision.verdict, Verdict::Depends);
    let ways = &decision.alternatives;
    let listed: Vec<Vec<(&str, bool)>> = ways
        .iter()
        .map(|w| w.assuming.iter().map(|a| (&*a.list, a.listed)).collect())
        .collect();
    let (one, two) = ("KUBE-SEP-JHV3UWGIR24DR6QN", "KUBE-SEP-6KHXA6W22RKROPDX");
    assert_eq!(
        listed,
        [
            vec![(one, true)],
            vec![(one, false), (two, true)],
            vec![(one, false), (two, false)],
            vec![(one, false), (two, false)],
        ]
    );
    let probabilities: Vec<f64> = ways.iter().map(|w| w.probability).collect();
    assert_eq!(probabilities, [1.0, 1.0, 0.5, 0.5]);
    assert_eq!(destination(&ways[1].decision), "10.244.80.66:8080");
}

#[test]
fn nth_is_as_good_as_chance() {
    let decision = decided(
        "-A INPUT -m statistic --mode nth --every 4 --packet 0 -j DROP",
        &tcp("10.0.0.1:1", "10.0.0.2:80"),
    );
    assert_eq!(decision.verdict, Verdict::Depends);
    assert_eq!(decision.alternatives[0].decision.verdict, Verdict::Drop);
    assert!((decision.alternatives[0].probability - 0.25).abs() < 1e-9);
}

#[test]
fn chance_that_decides_nothing_leaves_one_verdict() {
    let decision = decided(
        "-A INPUT -m statistic --mode random --probability 0.5 -j MARK --set-xmark 0x1/0x1\n\
         -A INPUT -j DROP",
        &tcp("10.0.0.1:1", "10.0.0.2:80"),
    );
    assert_eq!(decision.verdict, Verdict::Drop);
    assert_eq!(decision.rule.unwrap().index, 2);
    assert_eq!(decision.alternatives.len(), 2);
}
