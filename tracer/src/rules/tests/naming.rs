use super::names::{
    Owner, ServicePort, endpoint_chain, felix_chain, owner, policy_chain_candidates, service_chain,
    service_of_chain, workload_of_chain,
};
use super::*;

fn service(namespace: &str, name: &str, port: &str, proto: &'static str) -> ServicePort {
    ServicePort {
        namespace: namespace.into(),
        name: name.into(),
        port: port.into(),
        proto,
    }
}

#[test]
fn chains_of_a_service() {
    let remote = service("default", "remote", "", "tcp");
    assert_eq!(
        service_chain("KUBE-SVC-", &remote),
        "KUBE-SVC-WTUWVVJNNKPUFNHY"
    );
    assert_eq!(
        service_chain("KUBE-EXT-", &remote),
        "KUBE-EXT-WTUWVVJNNKPUFNHY"
    );
    assert_eq!(
        endpoint_chain(&remote, "10.244.158.65:8080"),
        "KUBE-SEP-XAMWAWZM6Q3EZXW4"
    );
    let dns = service("kube-system", "kube-dns", "dns", "udp");
    assert_eq!(
        service_chain("KUBE-SVC-", &dns),
        "KUBE-SVC-TCOU7JCQXEZGVUNU"
    );
}

#[test]
fn every_chain_of_kube_proxy_is_some_services() {
    let rules = kube_proxy();
    let nat = rules.tables().iter().find(|t| &*t.name == "nat").unwrap();
    let mut found = 0;
    for chain in nat.chains.keys() {
        let hashed = [
            "KUBE-SVC-",
            "KUBE-SVL-",
            "KUBE-EXT-",
            "KUBE-FW-",
            "KUBE-SEP-",
        ];
        let service = service_of_chain(&rules, chain);
        let expect = hashed.iter().any(|p| chain.starts_with(p));
        assert_eq!(service.is_some(), expect, "{chain}");
        found += usize::from(expect);
    }
    assert!(found > 30);
    assert_eq!(
        service_of_chain(&rules, "KUBE-SVC-ERIFXISQEP7F7OF4"),
        Some(service("kube-system", "kube-dns", "dns-tcp", "tcp"))
    );
    assert_eq!(
        service_of_chain(&rules, "KUBE-SEP-XC7MPXV5NB74KFY2"),
        Some(service("default", "two", "", "tcp"))
    );
    assert_eq!(service_of_chain(&rules, "KUBE-SVC-AAAAAAAAAAAAAAAA"), None);
}

#[test]
fn chains_of_a_policy() {
    let names = policy_chain_candidates("default", "remote-allow");
    assert!(names.contains(&"cali-pi-_noDcsEKNIIN94h2rZk1".to_owned()));
    assert!(names.iter().all(|n| n.len() == 28));
    // The comment on the real chain says the same.
    let rules = worker2();
    let chains = rules.tables().iter().flat_map(|t| t.chains.values());
    let chain = chains
        .into_iter()
        .find(|c| names.contains(&c.name.to_string()));
    let comment = chain.unwrap().rules[0].comment().unwrap();
    assert_eq!(
        &*comment,
        "KubernetesNetworkPolicy default/remote-allow ingress"
    );
    assert_eq!(
        felix_chain("cali-pri-", "kns.default"),
        "cali-pri-kns.default"
    );
    assert_eq!(
        felix_chain("cali-pri-", "ksa.kube-system.coredns"),
        "cali-pri-_u2Tn2rSoAPffvE7JO6"
    );
    // Short enough to be kept.
    let short = policy_chain_candidates("a", "b");
    assert_eq!(short[0], "cali-pi-knp/a/b");
}

#[test]
fn owners() {
    for (chain, expect) in [
        ("KUBE-SVC-WTUWVVJNNKPUFNHY", Owner::KubeProxy),
        ("KUBE-FIREWALL", Owner::KubeProxy),
        ("KUBE-KUBELET-CANARY", Owner::Kubelet),
        ("KUBE-POD-FW-ABC", Owner::KubeRouter),
        ("cali-tw-cali747ff840379", Owner::Calico),
        ("FLANNEL-POSTRTG", Owner::Flannel),
        ("CNI-HOSTPORT-DNAT", Owner::Cni),
        ("DOCKER-USER", Owner::Docker),
        ("FORWARD", Owner::Host),
        ("INPUT", Owner::Host),
        ("INPUT_direct", Owner::Other),
        ("f2b-sshd", Owner::Other),
    ] {
        assert_eq!(owner(chain), expect, "{chain}");
    }
    assert_eq!(
        workload_of_chain("cali-tw-cali747ff840379"),
        Some("cali747ff840379")
    );
    assert_eq!(workload_of_chain("cali-pi-x"), None);
}

#[test]
fn logged_prefixes_are_read() {
    let told = |prefix| names::logged(prefix).map(|l| l.to_string());
    let is = |prefix, text: &str| assert_eq!(told(prefix).as_deref(), Some(text), "{prefix}");
    is(
        "DPI|default",
        "denied by the end of tier default: no policy let it pass (ingress)",
    );
    is(
        "API0|knp/default/remote-allow",
        "allowed by policy default/remote-allow, rule 0 (ingress)",
    );
    is(
        "DPE12|gnp/deny-all",
        "denied by policy deny-all, rule 12 (egress)",
    );
    is("PPI3|np/a/b", "passed on by policy a/b, rule 3 (ingress)");
    is(
        "ARE0|kns.default",
        "allowed by profile kns.default (egress)",
    );
    is(
        "DRI",
        "denied by the end of all profiles: none matched (ingress)",
    );
    is(
        "DROP by policy default/deny",
        "denied by policy default/deny",
    );
    for other in ["", "D", "DP", "IN=eth0 ", "DROP: ", "APIx|y", "DPX0|y"] {
        assert_eq!(told(other), None, "{other}");
    }
}
