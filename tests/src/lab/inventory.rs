//! The inventory file: what `kubectl get nodes,pods,services,endpointslices,networkpolicies -A -o json`
//! would print, had the laboratory an API server.

use std::path::{Path, PathBuf};

use anyhow::Result;
use serde_json::{Value, json};

use super::state::{self, State};
use super::topology::{DNS_SERVICE, NODE_PORT, NODES, Node, POD_PORT, PODS, Pod, REMOTE_SERVICE};
use super::{Policy, fault};

/// Where the inventory is kept.
pub fn path() -> PathBuf {
    Path::new(state::DIR).join("inventory.json")
}

/// Writes the inventory of the laboratory in this state.
pub(super) fn write(state: &State) -> Result<()> {
    state::write_whole(&path(), &serde_json::to_vec_pretty(&list(state))?)
}

/// The whole `v1` `List`.
pub fn list(state: &State) -> Value {
    let ipv6 = state.options.ipv6;
    let mut items: Vec<Value> = NODES.iter().map(node).collect();
    items.extend(
        PODS.iter()
            .map(|it| pod(it, state.allowed.get(it.name), ipv6)),
    );
    items.extend([remote_service(), dns_service()]);
    items.extend([
        endpoint_slice(
            "default",
            "remote",
            "remote-7xk2p",
            "remote",
            &[("", POD_PORT, "TCP")],
        ),
        endpoint_slice(
            "kube-system",
            "kube-dns",
            "kube-dns-q9wzl",
            "dns",
            &[("dns", 53, "UDP"), ("dns-tcp", 53, "TCP")],
        ),
    ]);
    if state.options.policy == Policy::On {
        items.push(network_policy());
    }
    for fault in state.faults.iter().filter_map(|name| fault::named(name)) {
        fault.show_in(&mut items);
    }
    json!({"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": ""}, "items": items})
}

fn node(node: &Node) -> Value {
    let pod_cidr = match node.name {
        "worker" => "10.244.1.0/24",
        _ => "10.244.2.0/24",
    };
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": node.name,
            "labels": {"kubernetes.io/hostname": node.name, "kubernetes.io/os": "linux"},
            "annotations": {
                "projectcalico.org/IPv4Address": format!("{}/24", node.addr),
                "projectcalico.org/IPv4VXLANTunnelAddr": node.vtep.to_string(),
                "projectcalico.org/VXLANTunnelMACAddr": node.vtep_mac,
            },
        },
        "spec": {"podCIDR": pod_cidr, "podCIDRs": [pod_cidr]},
        "status": {
            "addresses": [
                {"type": "InternalIP", "address": node.addr.to_string()},
                {"type": "Hostname", "address": node.name},
            ],
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    })
}

/// A pod as the API server has it.
pub(super) fn pod(pod: &Pod, allowed: Option<&String>, ipv6: bool) -> Value {
    let mut labels = json!({pod.label.0: pod.label.1});
    if let Some(value) = allowed {
        labels["allowed"] = json!(value);
    }
    let mut ips = vec![json!({"ip": pod.addr.to_string()})];
    if ipv6 {
        ips.push(json!({"ip": pod.addr6.to_string()}));
    }
    let ports = match pod.name {
        "dns" => json!([
            {"name": "dns", "containerPort": 53, "protocol": "UDP"},
            {"name": "dns-tcp", "containerPort": 53, "protocol": "TCP"},
        ]),
        _ => json!([{"containerPort": POD_PORT, "protocol": "TCP"}]),
    };
    let node_addr = NODES
        .iter()
        .find(|node| node.name == pod.node)
        .map(|node| node.addr.to_string());
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": pod.name,
            "namespace": pod.namespace,
            "uid": uid(pod),
            "labels": labels,
            "annotations": {
                "cni.projectcalico.org/podIP": format!("{}/32", pod.addr),
                "cni.projectcalico.org/podIPs": format!("{}/32", pod.addr),
            },
        },
        "spec": {
            "nodeName": pod.node,
            "hostNetwork": false,
            "serviceAccountName": if pod.name == "dns" { "coredns" } else { "default" },
            "containers": [{"name": pod.name, "image": "tracer-lab", "ports": ports}],
        },
        "status": {
            "phase": "Running",
            "podIP": pod.addr.to_string(),
            "podIPs": ips,
            "hostIP": node_addr,
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    })
}

fn uid(pod: &Pod) -> String {
    format!("00000000-0000-4000-8000-{:012x}", u32::from(pod.addr))
}

fn remote_service() -> Value {
    let address = REMOTE_SERVICE.ip().to_string();
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "remote", "namespace": "default"},
        "spec": {
            "type": "NodePort",
            "clusterIP": address,
            "clusterIPs": [address],
            "ipFamilies": ["IPv4"],
            "selector": {"app": "remote"},
            "externalTrafficPolicy": "Cluster",
            "internalTrafficPolicy": "Cluster",
            "sessionAffinity": "None",
            "ports": [{
                "port": REMOTE_SERVICE.port(), "targetPort": POD_PORT,
                "nodePort": NODE_PORT, "protocol": "TCP",
            }],
        },
    })
}

fn dns_service() -> Value {
    let address = DNS_SERVICE.ip().to_string();
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "kube-dns", "namespace": "kube-system", "labels": {"k8s-app": "kube-dns"}},
        "spec": {
            "type": "ClusterIP",
            "clusterIP": address,
            "clusterIPs": [address],
            "ipFamilies": ["IPv4"],
            "selector": {"k8s-app": "kube-dns"},
            "internalTrafficPolicy": "Cluster",
            "sessionAffinity": "None",
            "ports": [
                {"name": "dns", "port": 53, "targetPort": 53, "protocol": "UDP"},
                {"name": "dns-tcp", "port": 53, "targetPort": 53, "protocol": "TCP"},
            ],
        },
    })
}

fn endpoint_slice(
    namespace: &str,
    service: &str,
    name: &str,
    backend: &str,
    ports: &[(&str, u16, &str)],
) -> Value {
    let endpoints: Vec<Value> = PODS
        .iter()
        .filter(|pod| pod.name == backend)
        .map(endpoint)
        .collect();
    let ports: Vec<Value> = ports
        .iter()
        .map(|&(name, port, protocol)| json!({"name": name, "port": port, "protocol": protocol}))
        .collect();
    json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {"kubernetes.io/service-name": service},
        },
        "addressType": "IPv4",
        "endpoints": endpoints,
        "ports": ports,
    })
}

/// A ready endpoint.
pub(super) fn endpoint(pod: &Pod) -> Value {
    json!({
        "addresses": [pod.addr.to_string()],
        "conditions": {"ready": true, "serving": true, "terminating": false},
        "nodeName": pod.node,
        "targetRef": {
            "kind": "Pod", "name": pod.name, "namespace": pod.namespace, "uid": uid(pod),
        },
    })
}

fn network_policy() -> Value {
    json!({
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": "remote-allow", "namespace": "default"},
        "spec": {
            "podSelector": {"matchLabels": {"app": "remote"}},
            "policyTypes": ["Ingress"],
            "ingress": [{
                "from": [{"podSelector": {"matchLabels": {"allowed": "true"}}}],
                "ports": [{"port": POD_PORT, "protocol": "TCP"}],
            }],
        },
    })
}
