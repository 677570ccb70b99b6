use serde_json::json;

use super::*;
use crate::inventory::{Inventory, Lookup, tests::sample};

const SECRET: &str = "hunter2";

/// A pod as an API server gives it, with the secret wherever one could be.
fn pod() -> Value {
    let container = json!({
        "name": "app", "image": SECRET, "args": [SECRET], "command": [SECRET],
        "env": [{"name": "PASSWORD", "value": SECRET}],
        "envFrom": [{"secretRef": {"name": SECRET}}],
        "volumeMounts": [{"name": SECRET, "mountPath": SECRET}],
        "ports": [{"name": "http", "containerPort": 8080, "protocol": "TCP", "hostIP": SECRET}],
        "livenessProbe": {"httpGet": {"httpHeaders": [{"name": "Authorization", "value": SECRET}]}}
    });
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": "web", "namespace": "shop", "labels": {"app": "web"},
            "annotations": {"kubectl.kubernetes.io/last-applied-configuration": SECRET},
            "managedFields": [{"fieldsV1": {"f:env": SECRET}}], "uid": SECRET
        },
        "spec": {
            "nodeName": "worker", "hostNetwork": false, "containers": [container.clone()],
            "initContainers": [container], "volumes": [{"secret": {"secretName": SECRET}}],
            "serviceAccountName": SECRET, "imagePullSecrets": [{"name": SECRET}]
        },
        "status": {
            "phase": "Running", "podIP": "10.244.80.65", "podIPs": [{"ip": "10.244.80.65", "x": SECRET}],
            "conditions": [{"type": "Ready", "status": "True", "message": SECRET},
                           {"type": "Other", "status": SECRET}],
            "containerStatuses": [{"imageID": SECRET}]
        }
    })
}

fn others() -> [Value; 4] {
    let meta = json!({"name": "web", "namespace": "shop", "uid": SECRET,
        "labels": {"kubernetes.io/service-name": "web", "secret": SECRET},
        "annotations": {"note": SECRET, "projectcalico.org/IPv4VXLANTunnelAddr": "10.244.80.64"}});
    [
        json!({"kind": "Node", "metadata": meta, "spec": {"podCIDRs": ["10.244.80.0/24"], "providerID": SECRET},
            "status": {"addresses": [{"type": "InternalIP", "address": "172.18.0.3"}],
                "conditions": [{"type": "Ready", "status": "True", "message": SECRET}],
                "images": [{"names": [SECRET]}], "nodeInfo": {"bootID": SECRET}}}),
        json!({"kind": "Service", "metadata": meta, "spec": {"type": "LoadBalancer", "clusterIP": "10.96.0.10",
            "clusterIPs": ["10.96.0.10"], "selector": {"app": "web"}, "sessionAffinity": "None",
            "externalTrafficPolicy": "Local", "externalIPs": ["192.0.2.1"], "loadBalancerClass": SECRET,
            "ports": [{"port": 80, "targetPort": "http", "nodePort": 30080, "x": SECRET}]},
            "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.2", "x": SECRET}]}}}),
        json!({"kind": "EndpointSlice", "metadata": meta, "addressType": "IPv4", "x": SECRET,
            "ports": [{"name": "", "port": 8080, "protocol": "TCP"}],
            "endpoints": [{"addresses": ["10.244.80.65"], "conditions": {"ready": true, "x": SECRET},
                "nodeName": "worker", "targetRef": {"kind": "Pod", "name": "web", "uid": SECRET},
                "deprecatedTopology": {"x": SECRET}}]}),
        json!({"kind": "NetworkPolicy", "metadata": meta, "status": {"x": SECRET},
            "spec": {"podSelector": {"matchLabels": {"app": "web"}}, "policyTypes": ["Ingress"],
                "ingress": [{"ports": [{"port": 8080}]}], "x": SECRET}}),
    ]
}

#[test]
fn nothing_but_addresses_ports_and_labels_comes_through() {
    let mut inventory = Inventory::default();
    let mut items = others().to_vec();
    items.push(pod());
    items.push(json!({"kind": "Secret", "metadata": {"name": "s"}, "data": {"password": SECRET}}));
    inventory.add_list("test", list(items)).unwrap();
    let text = inventory.to_list().to_string();
    assert!(!text.contains(SECRET), "{text}");
    assert!(!text.contains("Secret"), "{text}");
    for kept in [
        "10.244.80.64",
        "10.244.80.0/24",
        "172.18.0.3",
        "containerPort",
        "\"app\":\"web\"",
        "NodeReady",
        "externalTrafficPolicy",
        "192.0.2.1",
        "192.0.2.2",
        "nodePort",
        "kubernetes.io/service-name",
        "policyTypes",
    ] {
        let kept = kept.trim_start_matches("Node");
        assert!(text.contains(kept), "no {kept} in {text}");
    }
}

#[test]
fn what_is_stripped_is_read_again_as_it_was() {
    let before = sample();
    let mut after = Inventory::default();
    after.add_list("again", before.to_list()).unwrap();
    let addrs = before
        .nodes
        .iter()
        .flat_map(|n| n.addrs.iter().chain(&n.vteps));
    let addrs = addrs.chain(before.pods.iter().flat_map(|p| &p.addrs));
    let addrs = addrs.chain(before.services.iter().flat_map(|s| &s.cluster_ips));
    for addr in addrs {
        assert_eq!(before.name(*addr), after.name(*addr), "{addr}");
        assert_eq!(before.node_of(*addr), after.node_of(*addr), "{addr}");
    }
    let backends = |i: &Inventory| {
        let Lookup::Found(service) = i.service("default/web", "") else {
            panic!("no service");
        };
        i.backends(service, &service.ports[0])
    };
    assert_eq!(backends(&before), backends(&after));
    assert_eq!(backends(&after).len(), 2);
    assert_eq!(before.policies.len(), after.policies.len());
    assert_eq!(before.to_list(), after.to_list());
}

#[test]
fn odd_objects_are_survived() {
    for kind in ["Node", "Pod", "Service", "EndpointSlice", "NetworkPolicy"] {
        for item in [
            json!(null),
            json!([]),
            json!({"metadata": 7, "spec": [], "status": "x"}),
        ] {
            assert!(strip(kind, &item).is_some());
        }
    }
    assert_eq!(strip("Secret", &json!({})), None);
    let odd = json!({"metadata": {"name": {"x": SECRET}, "labels": {"a": {"x": SECRET}}},
        "spec": {"nodeName": [SECRET], "containers": [{"name": {"x": SECRET}, "ports": [[SECRET]]}]},
        "status": {"podIPs": [SECRET], "conditions": [SECRET]}});
    let stripped = strip("Pod", &odd).unwrap().to_string();
    assert!(!stripped.contains(SECRET), "{stripped}");
}
