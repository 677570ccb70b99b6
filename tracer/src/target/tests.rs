use super::*;
use crate::inventory::tests::sample;
use tracer_common::config::{HAS_DST, HAS_SRC};
use tracer_common::tuple::mapped;

fn no_dns(_: &str) -> io::Result<Vec<IpAddr>> {
    Err(io::Error::other("not found"))
}

#[expect(clippy::unnecessary_wraps, reason = "a resolver may fail")]
fn dns(_: &str) -> io::Result<Vec<IpAddr>> {
    Ok(vec![
        "192.0.2.7".parse().unwrap(),
        "192.0.2.7".parse().unwrap(),
    ])
}

fn asked<'a>(src: &'a str, dst: &'a str, proto: &'a str) -> Asked<'a> {
    let given = |s: &'a str| (!s.is_empty()).then_some(s);
    let is_addr = src.parse::<IpAddr>().is_ok();
    Asked {
        pod: given(src).filter(|_| !is_addr),
        src: given(src).filter(|_| is_addr),
        dst: given(dst),
        proto: given(proto),
    }
}

fn check(src: &str, dst: &str, proto: &str, expect: &str) {
    let request = resolve_with(asked(src, dst, proto), Some(&sample()), &dns).unwrap();
    assert_eq!(request.description, expect, "{src} {dst} {proto}");
}

fn check_error(src: &str, dst: &str, proto: &str, code: u8, expect: &str) {
    let e = resolve_with(asked(src, dst, proto), Some(&sample()), &no_dns).unwrap_err();
    let text = e.to_string();
    assert!(text.contains(expect), "{text:?} lacks {expect:?}");
    assert_eq!(e.exit_code(), code, "{text}");
    assert!(!text.contains('\n'));
}

#[test]
fn every_form_of_a_destination() {
    let client = "pod/default/client (10.244.80.65, fd00::65)";
    let web = format!("{client} -> svc/default/web (10.96.0.10), 80/tcp");
    for dst in [
        "10.96.0.10:80",
        "svc/web",
        "svc/default/web:80",
        "web",
        "web:80",
        "default/web",
        "web.default",
        "web.default.svc",
        "web.default.svc.cluster.local:80",
    ] {
        check("client", dst, "", &web);
    }
    check("", "10.0.0.1", "", "anyone -> 10.0.0.1, any protocol");
    check(
        "10.0.0.2",
        "10.0.0.1:53",
        "udp",
        "10.0.0.2 -> 10.0.0.1, 53/udp",
    );
    check("", "[fd00::1]:443", "", "anyone -> fd00::1, 443/tcp");
    check("", "fd00::1", "icmp", "anyone -> fd00::1, icmp");
    check(
        "",
        "::ffff:10.0.0.1",
        "",
        "anyone -> 10.0.0.1, any protocol",
    );
    check(
        "default/client",
        "",
        "",
        &format!("{client} -> anyone, any protocol"),
    );
    let server = "anyone -> pod/default/server (10.244.2.10), 8080/tcp";
    check("", "pod/server:8080", "", server);
    check("", "server:8080", "", server);
    check(
        "",
        "example.org:443",
        "",
        "anyone -> example.org (192.0.2.7), 443/tcp",
    );
    let dns = |rest| format!("anyone -> svc/kube-system/dns (10.96.0.53), {rest}");
    check("", "svc/kube-system/dns:53", "", &dns("53/tcp"));
    check("", "svc/dns:udp", "", &dns("53/udp"));
    check("", "svc/dns", "", &dns("any protocol"));
    let headless = "anyone -> svc/default/headless (10.244.2.10), 8080/tcp";
    check("", "svc/headless", "", headless);
}

#[test]
fn backends_of_services_and_node_ports() {
    let inventory = sample();
    let backends = |dst| {
        let request = resolve_with(asked("", dst, ""), Some(&inventory), &no_dns).unwrap();
        request.backends
    };
    let server = ("10.244.2.10".parse().unwrap(), 8080);
    assert_eq!(backends("svc/web"), Some(vec![server]));
    assert_eq!(backends("10.96.0.10:80"), Some(vec![server]));
    assert_eq!(backends("172.18.0.2:30080"), Some(vec![server]));
    assert_eq!(backends("svc/kube-system/dns:53"), Some(vec![]));
    assert_eq!(backends("10.244.2.10:8080"), None);
    assert_eq!(backends("172.18.0.2:22"), None);
}

#[test]
fn a_port_that_the_service_lacks_is_noted() {
    for dst in ["svc/web:81", "10.96.0.10:81"] {
        let request = resolve_with(asked("", dst, ""), Some(&sample()), &no_dns).unwrap();
        let note = "service default/web does not serve 81/tcp; it has 80/tcp";
        assert_eq!(request.notes, [note]);
        assert_eq!(request.backends, Some(vec![]));
    }
}

#[test]
fn host_network_pods_are_noted() {
    let request = resolve_with(asked("kube-proxy-x", "", ""), Some(&sample()), &no_dns).unwrap();
    assert!(request.notes[0].contains("uses its node's network"));
    assert_eq!(
        request.description,
        "pod/kube-system/kube-proxy-x (172.18.0.3) -> anyone, any protocol"
    );
}

#[test]
fn rules_pair_addresses_of_one_family() {
    let request = resolve_with(asked("client", "svc/web", ""), Some(&sample()), &no_dns).unwrap();
    let [rule] = request.rules.as_slice() else {
        panic!("one pair");
    };
    assert_eq!(rule.src, mapped(u32::from_ne_bytes([10, 244, 80, 65])));
    assert_eq!(rule.dst, mapped(u32::from_ne_bytes([10, 96, 0, 10])));
    assert_eq!(
        (rule.dport, rule.proto, rule.given),
        (80, 6, HAS_SRC | HAS_DST)
    );
    let request = resolve_with(asked("client", "", "icmp"), Some(&sample()), &no_dns).unwrap();
    let protos: Vec<_> = request.rules.iter().map(|r| (r.proto, r.given)).collect();
    assert_eq!(protos, [(proto::ICMP, HAS_SRC), (proto::ICMPV6, HAS_SRC)]);
    assert_eq!(request.summary["proto"], "icmp");
    assert_eq!(request.summary["src_name"], "pod/default/client");
}

#[test]
fn from_another_node_a_service_is_followed_by_its_backends() {
    let inventory = sample();
    let client: IpAddr = "10.244.80.65".parse().unwrap();
    let home = inventory.node_of(client).unwrap().to_string();
    let request = |pod, watched: &[&str]| {
        let mut request = resolve_with(asked(pod, "svc/web", ""), Some(&inventory), &no_dns);
        let request = request.as_mut().unwrap();
        request.watch_from(watched, &inventory);
        (request.rules.clone(), request.notes.len(), request.clone())
    };
    let translated = CtTuple {
        src: client,
        dst: "10.244.2.10".parse().unwrap(),
        sport: 45266,
        dport: 8080,
        proto: 6,
    };
    let (rules, notes, here) = request("client", &[&home, "another"]);
    assert_eq!((rules.len(), notes), (1, 0));
    assert!(!here.is_met_by(&translated));
    let (rules, notes, there) = request("client", &["another"]);
    assert_eq!((rules.len(), notes), (2, 1));
    assert_eq!(rules[1].dst, mapped(u32::from_ne_bytes([10, 244, 2, 10])));
    assert_eq!((rules[1].dport, rules[1].given), (8080, HAS_SRC | HAS_DST));
    assert!(there.is_met_by(&translated));
    // Whose node is not known may be anywhere; anyone's calls would be too many.
    assert_eq!(request("", &["another"]).0.len(), 1);
}

#[test]
fn wrong_usage_is_told_from_failure() {
    check_error("", "", "", 2, "nothing to follow");
    check_error("", "10.0.0.1:0", "", 2, "bad port");
    check_error("", "10.0.0.1:65536", "", 2, "bad port");
    check_error("", "10.0.0.1:", "", 2, "bad port");
    check_error("", "10.0.0.1:http", "", 2, "bad port");
    check_error("", "web:-1", "", 2, "bad port");
    check_error("", "10.0.0.300", "", 2, "malformed address");
    check_error("", "[fd00::1", "", 2, "malformed address");
    check_error("", "fd00::zz:1", "", 2, "malformed address");
    check_error("", "svc/", "", 2, "malformed name");
    check_error("a/b/c", "", "", 2, "malformed name");
    check_error("client", "", "gre", 2, "unknown protocol");
    check_error("", "10.0.0.1:80", "icmp", 2, "icmp has no ports");
    check_error(
        "cleint",
        "",
        "",
        1,
        "no pod cleint; did you mean default/client?",
    );
    check_error("twin", "", "", 1, "a/twin, b/twin");
    check_error("job", "", "", 1, "it has finished");
    check_error(
        "",
        "svc/wbe:80",
        "",
        1,
        "no service wbe; did you mean default/web?",
    );
    check_error("", "svc/web:grpc", "", 1, "it has 80/tcp");
    check_error("", "x/nothing", "", 1, "no service or pod x/nothing");
    check_error("", "nothing.example", "", 1, "cannot resolve");
    check_error("server", "fd00::1", "", 1, "no such address family");
}

#[test]
fn names_need_an_inventory() {
    for (src, dst) in [("client", ""), ("", "svc/web"), ("", "pod/x"), ("", "a/b")] {
        let e = resolve_with(asked(src, dst, ""), None, &no_dns).unwrap_err();
        assert!(e.to_string().contains("--inventory"), "{e}");
        assert_eq!(e.exit_code(), 2);
    }
    let request = resolve_with(asked("10.0.0.1", "example.org:80", ""), None, &dns).unwrap();
    assert_eq!(request.rules.len(), 1);
}
