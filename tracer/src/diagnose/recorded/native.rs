//! The same recordings on nodes whose rules are nftables' own: what iptables
//! lack must not be held against them.

use super::read;
use crate::diagnose::diagnose;
use crate::state::Namespace;
use crate::trace::{Finding, Trace, Verdict};

const KUBE_PROXY: &str =
    include_str!("../../../testdata/rules/kube-proxy-1.30.3-nftables-full.nft");
/// A table that translates, of nobody that is known.
const OTHER: &str = "table ip other {\n\tchain pre {\n\t\ttype nat hook prerouting priority dstnat; policy accept;\n\t}\n}\n";
/// A table that may drop what is forwarded.
const STRICT: &str = "table inet cni {\n\tchain f {\n\t\ttype filter hook forward priority filter; policy accept;\n\t\tct state invalid drop\n\t}\n}\n";

/// The recording with each node's state changed.
fn changed(case: &str, change: impl Fn(&mut Namespace)) -> Trace {
    let mut trace = read(case);
    let state = trace.closing.state.as_mut().unwrap();
    state.namespaces.iter_mut().for_each(change);
    trace
}

fn told(trace: &Trace) -> (Verdict, Finding) {
    let (verdict, findings) = diagnose(trace);
    let of_it = findings.into_iter().find(|f| f.code == verdict.code);
    (verdict, of_it.unwrap())
}

fn with(nft: &str, iptables: bool) -> impl Fn(&mut Namespace) {
    move |n| {
        n.nft = Some(nft.to_owned());
        if !iptables {
            n.iptables.clear();
        }
    }
}

#[test]
fn a_service_that_nftables_know_is_not_called_unknown() {
    for iptables in [true, false] {
        let trace = changed("c02", with(KUBE_PROXY, iptables));
        let (verdict, finding) = told(&trace);
        assert_eq!(verdict.code, "service-not-translated");
        let summary = &verdict.summary;
        assert!(
            summary.contains("kube-proxy's nftables on worker have an entry"),
            "{summary}"
        );
        assert!(!summary.contains("flushed"), "{summary}");
        let entry = "10.98.235.247 . tcp . 80 : goto service-QFUP7MMD-default/remote/tcp/";
        assert!(
            finding.evidence.iter().any(|l| l.ends_with(entry)),
            "{finding:?}"
        );
    }
}

#[test]
fn a_service_that_nftables_lack_is_told_so() {
    let lacking: Vec<&str> = KUBE_PROXY
        .lines()
        .filter(|l| !l.contains("10.98.235.247 . tcp"))
        .collect();
    let trace = changed("c02", with(&lacking.join("\n"), false));
    let (verdict, _) = told(&trace);
    assert!(
        verdict.summary.contains("no entry for 10.98.235.247:80"),
        "{}",
        verdict.summary
    );
}

#[test]
fn rules_that_are_not_evaluated_are_not_missed() {
    let nft = changed("c02", with(OTHER, true));
    let ipvs = changed("c02", |n| {
        n.ipvs = Some("Prot LocalAddress:Port Scheduler Flags\nTCP  0A600001:01BB rr\n".to_owned());
    });
    for (trace, word) in [(nft, "nftables"), (ipvs, "IPVS")] {
        let (verdict, _) = told(&trace);
        assert_eq!(verdict.code, "service-not-translated");
        let summary = &verdict.summary;
        assert!(
            summary.contains(word) && summary.contains("not evaluated"),
            "{summary}"
        );
        assert!(!summary.contains("flushed"), "{summary}");
    }
}

#[test]
fn where_nftables_masquerade_no_rule_is_missed() {
    let line = "has no MASQUERADE rule";
    let of = |nft: Option<&str>| {
        let trace = changed("c65", |n| {
            for dump in &mut n.iptables {
                let kept = dump.text.lines().filter(|l| !l.contains("MASQUERADE"));
                dump.text = kept.collect::<Vec<_>>().join("\n") + "\n";
            }
            n.nft = nft.map(str::to_owned);
        });
        let (verdict, finding) = told(&trace);
        assert_eq!(verdict.code, "masquerade-missing");
        finding.evidence.iter().any(|l| l.contains(line))
    };
    assert!(of(None));
    assert!(!of(Some(KUBE_PROXY)));
}

/// kube-proxy's rules in nftables, the CNI's in iptables: the entry is no old one
/// because iptables do not have it.
#[test]
fn an_endpoint_of_nftables_is_not_called_an_old_entry() {
    let of = |nft: Option<&str>| {
        let trace = changed("c03", |n| {
            for dump in &mut n.iptables {
                let kept = dump.text.lines().filter(|l| !l.contains("DNAT"));
                dump.text = kept.collect::<Vec<_>>().join("\n") + "\n";
            }
            n.nft = nft.map(str::to_owned);
        });
        let (verdict, _) = told(&trace);
        assert_eq!(verdict.code, "stale-backend");
        verdict.summary.contains("old conntrack entry")
    };
    assert!(of(None));
    assert!(!of(Some(OTHER)));
    let stale = KUBE_PROXY.replace("dnat to 10.244.158.65:8080", "dnat to 10.244.158.99:8080");
    assert!(!of(Some(&stale)));
}

#[test]
fn a_service_that_nftables_reject_has_no_endpoints() {
    let nft = KUBE_PROXY.replace("10.103.9.9 . tcp", "10.98.235.247 . tcp");
    let trace = changed("c01", with(&nft, false));
    let (verdict, finding) = told(&trace);
    assert_eq!(verdict.code, "no-endpoints", "{}", verdict.summary);
    assert!(
        verdict.summary.contains("kube-proxy's nftables reject it"),
        "{}",
        verdict.summary
    );
    assert!(
        finding
            .evidence
            .iter()
            .any(|l| l.contains("goto reject-chain"))
    );
    let (verdict, _) = told(&changed("c01", with(KUBE_PROXY, false)));
    assert_ne!(verdict.code, "no-endpoints");
}

/// That iptables would drop it if it were INVALID does not tell that it is, where
/// another table may have dropped it.
#[test]
fn what_nftables_may_drop_is_not_called_invalid() {
    let (verdict, _) = told(&read("c24"));
    assert_eq!(verdict.code, "checksum-fault");
    let (verdict, _) = told(&changed("c24", with(STRICT, true)));
    assert!(!verdict.summary.contains("INVALID"), "{}", verdict.summary);
}
