//! Network policies, as Felix renders them.

use std::hash::{DefaultHasher, Hash, Hasher};

use anyhow::Result;
use serde_json::{Value, json};

use super::Fault;
use super::names::{CLIENT_END, REMOTE_END};
use super::site::{Site, run};

/// Which of a pod's chains a policy is in.
#[derive(Debug, Clone, Copy)]
enum Way {
    Ingress,
    Egress,
}

/// A policy with at most one rule.
struct Policy<'a> {
    name: &'a str,
    node: &'a str,
    /// The end of the pod's veth on the node.
    end: &'a str,
    way: Way,
    /// The matches of the rule that lets packets in or out.
    rule: Option<String>,
}

pub(super) const NODE_PORT_SOURCE_HIDDEN: Fault = Fault {
    id: "C11",
    name: "node-port-source-hidden",
    about: "a policy lets in only the outside host, which the node port's masquerading hides from it",
    shown_by: "lab get --ns outside 172.31.0.2:30080",
    make: |site| {
        Policy {
            name: "office",
            node: "worker2",
            end: REMOTE_END,
            way: Way::Ingress,
            rule: Some("-s 172.31.0.5/32 -p tcp -m multiport --dports 8080".to_owned()),
        }
        .render(site)
    },
    show: |objects| {
        let from = json!([{"ipBlock": {"cidr": "172.31.0.5/32"}}]);
        let ports = json!([{"port": 8080, "protocol": "TCP"}]);
        objects.add(ingress("office", &json!([{"from": from, "ports": ports}])));
    },
};

pub(super) const INGRESS_DENIED: Fault = Fault {
    id: "C58",
    name: "ingress-denied",
    about: "a policy selects the pod remote and lets nobody in",
    shown_by: "lab get --ns client 10.98.235.247:80",
    make: |site| {
        Policy {
            name: "default-deny",
            node: "worker2",
            end: REMOTE_END,
            way: Way::Ingress,
            rule: None,
        }
        .render(site)
    },
    show: |objects| objects.add(ingress("default-deny", &json!([]))),
};

pub(super) const EGRESS_WITHOUT_DNS: Fault = Fault {
    id: "C59",
    name: "egress-without-dns",
    about: "a policy lets the pod client call port 8080 only, so it cannot ask the resolver",
    shown_by: "lab resolve --ns client remote.default.svc.cluster.local.",
    make: |site| {
        Policy {
            name: "allow-web",
            node: "worker",
            end: CLIENT_END,
            way: Way::Egress,
            rule: Some("-p tcp -m multiport --dports 8080".to_owned()),
        }
        .render(site)
    },
    show: |objects| {
        let ports = json!([{"port": 8080, "protocol": "TCP"}]);
        objects.add(egress("allow-web", &json!([{"ports": ports}])));
    },
};

pub(super) const SERVICE_PORT: Fault = Fault {
    id: "C60",
    name: "policy-of-service-port",
    about: "a policy lets the pod client call the Service's address and port, which packets no longer have when it is asked",
    shown_by: "lab get --ns client 10.98.235.247:80",
    make: |site| {
        Policy {
            name: "allow-svc",
            node: "worker",
            end: CLIENT_END,
            way: Way::Egress,
            rule: Some("-d 10.98.235.247/32 -p tcp -m multiport --dports 80".to_owned()),
        }
        .render(site)
    },
    show: |objects| {
        let to = json!([{"ipBlock": {"cidr": "10.98.235.247/32"}}]);
        let ports = json!([{"port": 80, "protocol": "TCP"}]);
        objects.add(egress("allow-svc", &json!([{"to": to, "ports": ports}])));
    },
};

pub(super) const HOST_NETWORK_CLIENT: Fault = Fault {
    id: "C62",
    name: "host-network-client",
    about: "a policy lets in pods by label, which no process in a node's own network can have",
    shown_by: "lab get --ns worker 10.244.158.65:8080",
    make: |site| {
        let set = "cali40s:f7Qw2xLZbR0nVt8cKy5mJpE";
        run(
            "worker2",
            "ipset",
            &format!("create {set} hash:net family inet hashsize 1024 maxelem 1048576"),
        )?;
        run("worker2", "ipset", &format!("add {set} 10.244.80.65"))?;
        Policy {
            name: "from-client",
            node: "worker2",
            end: REMOTE_END,
            way: Way::Ingress,
            rule: Some(format!(
                "-p tcp -m set --match-set {set} src -m multiport --dports 8080"
            )),
        }
        .render(site)
    },
    show: |objects| {
        let from = json!([{"podSelector": {"matchLabels": {"app": "client"}}}]);
        let ports = json!([{"port": 8080, "protocol": "TCP"}]);
        objects.add(ingress(
            "from-client",
            &json!([{"from": from, "ports": ports}]),
        ));
    },
};

impl Policy<'_> {
    /// Puts the policy's chain and the tier's rules into the pod's chain, before its profiles.
    fn render(&self, site: &Site) -> Result<()> {
        let Self {
            name,
            node,
            end,
            way,
            rule,
        } = self;
        let (word, policies, pod, at) = match way {
            Way::Ingress => ("ingress", "pi", "tw", 4),
            Way::Egress => ("egress", "po", "fw", 6),
        };
        // A chain's name has at most 28 characters.
        let chain = format!("cali-{policies}-_{}", hash(name, 19));
        let hashed = |what: &str| {
            format!(
                "-m comment --comment \"cali:{}\"",
                hash(&format!("{chain} {what}"), 16)
            )
        };
        let comment = format!(
            "{} -m comment --comment \"KubernetesNetworkPolicy default/{name} {word}\"",
            hashed("rule")
        );
        // Without a rule that lets anything pass, the comment alone is left.
        let rule = match rule {
            Some(rule) => format!("{comment} {rule} -j MARK --set-xmark 0x10000/0x10000"),
            None => comment,
        };
        let pod = format!("cali-{pod}-{end}");
        let (start, jump, accepted, end) = (
            hashed("start"),
            hashed("jump"),
            hashed("accepted"),
            hashed("end"),
        );
        site.rules(
            node,
            "filter",
            &format!(
                ":{chain} - [0:0]\n-A {chain} {rule}\n\
                 -I {pod} {at} {start} -m comment --comment \"Start of tier default\" \
                 -j MARK --set-xmark 0x0/0x20000\n\
                 -I {pod} {} {jump} -m mark --mark 0x0/0x20000 -j {chain}\n\
                 -I {pod} {} {accepted} -m comment --comment \"Return if policy accepted\" \
                 -m mark --mark 0x10000/0x10000 -j RETURN\n\
                 -I {pod} {} {end} -m comment \
                 --comment \"End of tier default. Drop if no policies passed packet\" \
                 -m mark --mark 0x0/0x20000 -j DROP",
                at + 1,
                at + 2,
                at + 3,
            ),
        )
    }
}

/// Characters that look like Felix's hashes.
fn hash(text: &str, length: usize) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    (0..length)
        .map(|at| {
            let mut hasher = DefaultHasher::new();
            (text, at).hash(&mut hasher);
            char::from(ALPHABET[(hasher.finish() % 64) as usize])
        })
        .collect()
}

fn ingress(name: &str, rules: &Value) -> Value {
    object(name, "remote", &json!(["Ingress"]), "ingress", rules)
}

fn egress(name: &str, rules: &Value) -> Value {
    object(name, "client", &json!(["Egress"]), "egress", rules)
}

fn object(name: &str, app: &str, types: &Value, way: &str, rules: &Value) -> Value {
    json!({
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "podSelector": {"matchLabels": {"app": app}},
            "policyTypes": types,
            way: rules,
        },
    })
}
