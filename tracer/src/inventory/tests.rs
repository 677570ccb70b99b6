use serde_json::json;

use super::*;

/// A small cluster, also used by the tests of other modules.
pub(crate) fn sample() -> Inventory {
    let mut inventory = Inventory::default();
    let pod = |ns: &str, name: &str, node: &str, ip: &str| {
        json!({"kind": "Pod", "metadata": {"name": name, "namespace": ns},
               "spec": {"nodeName": node},
               "status": {"phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}]}})
    };
    let mut dual = pod("default", "client", "worker", "10.244.80.65");
    dual["status"]["podIPs"] = json!([{"ip": "10.244.80.65"}, {"ip": "fd00::65"}]);
    let mut host = pod("kube-system", "kube-proxy-x", "worker", "172.18.0.3");
    host["spec"]["hostNetwork"] = json!(true);
    let mut done = pod("default", "job", "worker", "10.244.80.99");
    done["status"]["phase"] = json!("Succeeded");
    let port = |name: &str, port: u16, protocol: &str| json!({"name": name, "port": port, "protocol": protocol, "targetPort": 8080});
    let list = json!({"kind": "List", "apiVersion": "v1", "items": [
        {"kind": "Node", "metadata": {"name": "worker", "annotations": {
            "projectcalico.org/IPv4VXLANTunnelAddr": "10.244.80.64"}},
         "status": {"addresses": [{"type": "Hostname", "address": "worker"},
                                  {"type": "InternalIP", "address": "172.18.0.3"}]}},
        {"kind": "Node", "metadata": {"name": "worker2"},
         "status": {"addresses": [{"type": "InternalIP", "address": "172.18.0.2"}]}},
        dual, host, done,
        pod("default", "server", "worker2", "10.244.2.10"),
        pod("a", "twin", "worker", "10.244.80.70"),
        pod("b", "twin", "worker", "10.244.80.71"),
        {"kind": "Service", "metadata": {"name": "web", "namespace": "default"},
         "spec": {"clusterIP": "10.96.0.10", "clusterIPs": ["10.96.0.10"],
                  "ports": [{"port": 80, "targetPort": "http", "nodePort": 30080}]}},
        {"kind": "Service", "metadata": {"name": "dns", "namespace": "kube-system"},
         "spec": {"clusterIP": "10.96.0.53",
                  "ports": [port("udp", 53, "UDP"), port("tcp", 53, "TCP"),
                            port("m", 9153, "TCP")]}},
        {"kind": "Service", "metadata": {"name": "headless", "namespace": "default"},
         "spec": {"clusterIP": "None", "ports": [port("", 8080, "TCP")]}},
        {"kind": "EndpointSlice",
         "metadata": {"name": "web-x", "namespace": "default",
                      "labels": {"kubernetes.io/service-name": "web"}},
         "ports": [{"name": "", "port": 8080, "protocol": "TCP"}],
         "endpoints": [{"addresses": ["10.244.2.10"], "conditions": {"ready": true},
                        "nodeName": "worker2"},
                       {"addresses": ["10.244.2.11"], "conditions": {"ready": false}}]},
        {"kind": "EndpointSlice",
         "metadata": {"name": "headless-x", "namespace": "default",
                      "labels": {"kubernetes.io/service-name": "headless"}},
         "ports": [{"name": "", "port": 8080, "protocol": "TCP"}],
         "endpoints": [{"addresses": ["10.244.2.10"]}]},
        {"kind": "NetworkPolicy", "metadata": {"name": "deny"}},
        {"kind": "Widget", "shape": 7},
    ]});
    inventory.add_list("sample", list).unwrap();
    inventory
}

fn addr(text: &str) -> IpAddr {
    text.parse().unwrap()
}

#[test]
fn addresses_have_names() {
    let inventory = sample();
    let check = |text, expect: Option<&str>| {
        assert_eq!(inventory.name(addr(text)).map(|n| &**n), expect, "{text}");
    };
    check("10.244.80.65", Some("pod/default/client"));
    check("::ffff:10.244.80.65", Some("pod/default/client"));
    check("fd00::65", Some("pod/default/client"));
    check("10.96.0.10", Some("svc/default/web"));
    check("172.18.0.3", Some("node/worker"));
    check("10.244.80.64", Some("node/worker"));
    check("10.244.80.99", None);
    check("192.0.2.1", None);
    assert_eq!(
        inventory.node_of(addr("10.244.2.10")).unwrap().as_ref(),
        "worker2"
    );
    assert!(inventory.node_at(addr("10.244.2.10")).is_none());
    assert_eq!(inventory.policies.len(), 1);
}

#[test]
fn pods_are_found_by_name() {
    let inventory = sample();
    assert!(matches!(
        inventory.pod("client", "default"),
        Lookup::Found(_)
    ));
    assert!(matches!(
        inventory.pod("kube-proxy-x", "default"),
        Lookup::Found(_)
    ));
    assert!(matches!(
        inventory.pod("a/twin", "default"),
        Lookup::Found(_)
    ));
    let Lookup::Ambiguous(both) = inventory.pod("twin", "default") else {
        panic!("twin is ambiguous");
    };
    assert_eq!(both, ["a/twin", "b/twin"]);
    let Lookup::Missing(close) = inventory.pod("cleint", "default") else {
        panic!("there is no such pod");
    };
    assert_eq!(close, ["default/client"]);
}

#[test]
fn services_have_backends() {
    let inventory = sample();
    for (at, port) in [("10.96.0.10", 80), ("172.18.0.2", 30080)] {
        let found = inventory.services_at(addr(at), Some(port));
        let [(service, port)] = found.as_slice() else {
            panic!("one Service at {at}");
        };
        let backends = inventory.backends(service, port);
        let short: Vec<_> = backends.iter().map(|b| (b.addr, b.port, b.ready)).collect();
        let expect = [
            (addr("10.244.2.10"), 8080, true),
            (addr("10.244.2.11"), 8080, false),
        ];
        assert_eq!(short, expect);
    }
    assert!(
        inventory
            .services_at(addr("10.96.0.10"), Some(81))
            .is_empty()
    );
    assert!(
        inventory
            .services_at(addr("10.96.0.10"), Some(30080))
            .is_empty()
    );
}

#[test]
fn damage_is_told_with_file_and_item() {
    let check = |text: &str, expect: &[&str]| {
        let e = Inventory::parse("inv.json", text.as_bytes())
            .unwrap_err()
            .to_string();
        for part in expect.iter().chain(&["inv.json"]) {
            assert!(e.contains(part), "{e:?} lacks {part:?}");
        }
        assert!(!e.contains('\n'));
    };
    check("", &["not valid JSON"]);
    check("{\"kind\": \"List\", \"items\": [", &["not valid JSON"]);
    check("[]", &["not an object"]);
    check("{\"kind\": \"Pod\"}", &["kind is not List"]);
    check("{\"kind\": \"List\"}", &["no items"]);
    let bad = r#"{"kind":"List","items":[{"kind":"Widget"},{"kind":"Service",
        "metadata":{"name":"web","namespace":"default"},"spec":{"ports":[{"port":99999}]}}]}"#;
    check(bad, &["item 1", "Service default/web", "99999"]);
    check(
        r#"{"kind":"List","items":[{"kind":"Pod"}]}"#,
        &["item 0", "metadata"],
    );
}

#[test]
fn nulls_and_lists_of_the_api_server_are_taken() {
    let text = r#"{"kind":"PodList","items":[{"metadata":{"name":"p","labels":null},
        "spec":{},"status":{"podIPs":null}}]}"#;
    let inventory = Inventory::parse("x", text.as_bytes()).unwrap();
    assert_eq!(inventory.pods[0].full_name(), "default/p");
}
