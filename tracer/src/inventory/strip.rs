//! Objects with nothing in them but what tells where traffic goes. Everything
//! is chosen by name: what is not listed here never leaves an object, so no
//! environment, argument, volume or annotation does.

use serde_json::{Map, Value};

use super::object::{SERVICE_LABEL, VTEP_ANNOTATIONS};

/// Annotations of nodes that tell addresses and kinds of tunnels.
const NODE_ANNOTATIONS: &[&str] = &[
    "projectcalico.org/IPv4Address",
    "projectcalico.org/IPv6Address",
    "flannel.alpha.coreos.com/backend-type",
];
const NODE_CONDITIONS: &[&str] = &["Ready", "NetworkUnavailable"];
const POD_CONDITIONS: &[&str] = &["Ready", "ContainersReady"];

/// A list of the objects.
pub(super) fn list(items: Vec<Value>) -> Value {
    object([
        ("apiVersion", Some("v1".into())),
        ("kind", Some("List".into())),
        ("items", Some(Value::Array(items))),
    ])
}

/// The object without anything else; `None` for kinds that do not matter.
pub(super) fn strip(kind: &str, item: &Value) -> Option<Value> {
    let (api, parts) = match kind {
        "Node" => ("v1", node(item)),
        "Pod" => ("v1", pod(item)),
        "Service" => ("v1", service(item)),
        "EndpointSlice" => ("discovery.k8s.io/v1", slice(item)),
        "NetworkPolicy" => ("networking.k8s.io/v1", policy(item)),
        _ => return None,
    };
    let mut whole = Map::new();
    whole.insert("apiVersion".to_owned(), api.into());
    whole.insert("kind".to_owned(), kind.into());
    whole.extend(parts);
    Some(Value::Object(whole))
}

type Parts = Map<String, Value>;

/// The members that are there.
fn members<const N: usize>(all: [(&str, Option<Value>); N]) -> Parts {
    let there = all
        .into_iter()
        .filter_map(|(k, v)| Some((k.to_owned(), v?)));
    there.collect()
}

fn object<const N: usize>(all: [(&str, Option<Value>); N]) -> Value {
    Value::Object(members(all))
}

/// A text, number or truth value; nothing that could hold more.
fn plain(of: &Value, at: &str) -> Option<Value> {
    let value = of.get(at)?;
    (value.is_string() || value.is_number() || value.is_boolean()).then(|| value.clone())
}

/// The named plain members of an object.
fn plains(of: &Value, names: &[&str]) -> Value {
    let there = names
        .iter()
        .filter_map(|n| Some(((*n).to_owned(), plain(of, n)?)));
    Value::Object(there.collect())
}

/// A list, each item by `each`.
fn each(of: &Value, at: &str, each: impl Fn(&Value) -> Value) -> Option<Value> {
    let items = of.get(at)?.as_array()?;
    Some(items.iter().map(each).collect())
}

/// Addresses and the like.
fn texts(of: &Value, at: &str) -> Option<Value> {
    let items = of.get(at)?.as_array()?;
    Some(items.iter().filter(|i| i.is_string()).cloned().collect())
}

/// Labels, selectors: text by text.
fn labels(of: &Value, at: &str, keep: impl Fn(&str) -> bool) -> Option<Value> {
    let all = of.get(at)?.as_object()?;
    let kept = all.iter().filter(|(k, v)| v.is_string() && keep(k));
    Some(Value::Object(
        kept.map(|(k, v)| (k.clone(), v.clone())).collect(),
    ))
}

/// Those of the conditions that are named, without their messages.
fn conditions(of: &Value, names: &[&str]) -> Option<Value> {
    let all = of.get("conditions")?.as_array()?;
    let is_named = |c: &&Value| {
        let kind = c.get("type").and_then(Value::as_str);
        kind.is_some_and(|kind| names.contains(&kind))
    };
    let kept = all.iter().filter(is_named);
    Some(kept.map(|c| plains(c, &["type", "status"])).collect())
}

fn metadata(item: &Value, more: [(&str, Option<Value>); 1]) -> Option<Value> {
    let meta = item.get("metadata")?;
    let [(name, value)] = more;
    Some(object([
        ("name", plain(meta, "name")),
        ("namespace", plain(meta, "namespace")),
        (name, value),
    ]))
}

fn node(item: &Value) -> Parts {
    let annotation =
        |name: &str| NODE_ANNOTATIONS.contains(&name) || VTEP_ANNOTATIONS.contains(&name);
    let meta = &item["metadata"];
    let (spec, status) = (&item["spec"], &item["status"]);
    members([
        (
            "metadata",
            metadata(
                item,
                [("annotations", labels(meta, "annotations", annotation))],
            ),
        ),
        (
            "spec",
            Some(object([
                ("podCIDR", plain(spec, "podCIDR")),
                ("podCIDRs", texts(spec, "podCIDRs")),
            ])),
        ),
        (
            "status",
            Some(object([
                (
                    "addresses",
                    each(status, "addresses", |a| plains(a, &["type", "address"])),
                ),
                ("conditions", conditions(status, NODE_CONDITIONS)),
            ])),
        ),
    ])
}

fn pod(item: &Value) -> Parts {
    let (spec, status) = (&item["spec"], &item["status"]);
    let container = |c: &Value| {
        object([
            ("name", plain(c, "name")),
            (
                "ports",
                each(c, "ports", |p| {
                    plains(p, &["name", "containerPort", "hostPort", "protocol"])
                }),
            ),
        ])
    };
    members([
        (
            "metadata",
            metadata(
                item,
                [("labels", labels(&item["metadata"], "labels", |_| true))],
            ),
        ),
        (
            "spec",
            Some(object([
                ("nodeName", plain(spec, "nodeName")),
                ("hostNetwork", plain(spec, "hostNetwork")),
                ("containers", each(spec, "containers", container)),
            ])),
        ),
        (
            "status",
            Some(object([
                ("phase", plain(status, "phase")),
                ("podIP", plain(status, "podIP")),
                ("podIPs", each(status, "podIPs", |ip| plains(ip, &["ip"]))),
                ("conditions", conditions(status, POD_CONDITIONS)),
            ])),
        ),
    ])
}

fn service(item: &Value) -> Parts {
    let spec = &item["spec"];
    let mut kept = members([
        ("clusterIPs", texts(spec, "clusterIPs")),
        ("externalIPs", texts(spec, "externalIPs")),
        ("selector", labels(spec, "selector", |_| true)),
        (
            "ports",
            each(spec, "ports", |p| {
                plains(
                    p,
                    &[
                        "name",
                        "protocol",
                        "port",
                        "targetPort",
                        "nodePort",
                        "appProtocol",
                    ],
                )
            }),
        ),
        (
            "loadBalancerSourceRanges",
            texts(spec, "loadBalancerSourceRanges"),
        ),
    ]);
    let single = [
        "type",
        "clusterIP",
        "externalTrafficPolicy",
        "internalTrafficPolicy",
        "sessionAffinity",
        "healthCheckNodePort",
        "publishNotReadyAddresses",
    ];
    if let Value::Object(single) = plains(spec, &single) {
        kept.extend(single);
    }
    let balancer = &item["status"]["loadBalancer"];
    let ingress = each(balancer, "ingress", |i| plains(i, &["ip", "hostname"]));
    members([
        ("metadata", metadata(item, [("labels", None)])),
        ("spec", Some(Value::Object(kept))),
        (
            "status",
            ingress.map(|i| object([("loadBalancer", Some(object([("ingress", Some(i))])))])),
        ),
    ])
}

fn slice(item: &Value) -> Parts {
    let endpoint = |e: &Value| {
        let mut kept = members([
            ("addresses", texts(e, "addresses")),
            (
                "conditions",
                e.get("conditions")
                    .map(|c| plains(c, &["ready", "serving", "terminating"])),
            ),
            (
                "targetRef",
                e.get("targetRef")
                    .map(|t| plains(t, &["kind", "namespace", "name"])),
            ),
            (
                "hints",
                e.get("hints")
                    .map(|h| object([("forZones", each(h, "forZones", |z| plains(z, &["name"])))])),
            ),
        ]);
        if let Value::Object(single) = plains(e, &["nodeName", "hostname", "zone"]) {
            kept.extend(single);
        }
        Value::Object(kept)
    };
    let service = |name: &str| name == SERVICE_LABEL;
    members([
        (
            "metadata",
            metadata(
                item,
                [("labels", labels(&item["metadata"], "labels", service))],
            ),
        ),
        ("addressType", plain(item, "addressType")),
        (
            "ports",
            each(item, "ports", |p| {
                plains(p, &["name", "protocol", "port", "appProtocol"])
            }),
        ),
        ("endpoints", each(item, "endpoints", endpoint)),
    ])
}

/// A policy's spec is nothing but selectors, ranges and ports, and is kept as it
/// is below its four members.
fn policy(item: &Value) -> Parts {
    let spec = |name: &str| item["spec"].get(name).cloned();
    members([
        ("metadata", metadata(item, [("labels", None)])),
        (
            "spec",
            Some(object([
                ("podSelector", spec("podSelector")),
                ("policyTypes", spec("policyTypes")),
                ("ingress", spec("ingress")),
                ("egress", spec("egress")),
            ])),
        ),
    ])
}

#[cfg(test)]
mod tests;
