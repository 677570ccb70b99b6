//! What the tool tells of the nodes' set-up, against what `ip`, `iptables-save` and the laboratory say of it.

use serde_json::{Value, json};
use tracer_tests::lab::topology::NODES;

use crate::run::{Tool, evidence, follow_service, slurp};
use crate::world::{PORT, conntrack, exec, get, lab, server_saw, service};

/// What reading could change by accident.
fn witness() -> String {
    let mut text = String::new();
    for node in &NODES {
        for name in ["ip_tables_names", "ip6_tables_names"] {
            let path = format!("/proc/thread-self/net/{name}");
            text += &exec(
                node.name,
                "sh",
                &["-c", &format!("cat {path} 2>/dev/null; true")],
            );
        }
        text += &exec(node.name, "nft", &["list", "tables"]);
        text += &exec(node.name, "ip", &["-o", "link"]);
    }
    // The first column: counts of users come and go.
    for line in std::fs::read_to_string("/proc/modules")
        .unwrap_or_default()
        .lines()
    {
        text += line.split(' ').next().unwrap_or_default();
        text += "\n";
    }
    text
}

/// The namespace of that name.
#[track_caller]
fn namespace<'a>(state: &'a Value, name: &str) -> &'a Value {
    let all = state["namespaces"].as_array().expect("namespaces");
    let found = all.iter().find(|n| n["name"] == name);
    found.unwrap_or_else(|| {
        panic!(
            "no {name} in {:?}",
            all.iter().map(|n| &n["name"]).collect::<Vec<_>>()
        )
    })
}

/// Whether a list has an item with all these members.
fn has(list: &Value, wanted: &Value) -> bool {
    let wanted = wanted.as_object().expect("an object");
    let mut items = list.as_array().into_iter().flatten();
    items.any(|item| wanted.iter().all(|(key, value)| item[key] == *value))
}

#[track_caller]
fn require(list: &Value, wanted: &Value) {
    assert!(has(list, wanted), "no {wanted} in {list:#}");
}

#[test]
fn core_state_of_both_nodes_and_pods() {
    let _lab = lab();
    // The first connection loads what connection tracking needs, with or without the tool.
    get("client", service());
    let before = witness();
    let file = evidence().join("state.jsonl.zst");
    let _ = std::fs::remove_file(&file);
    let run = follow_service("state").arg("-w").arg(&file).start();
    let saw = get("client", service()).saw().expect("saw");
    server_saw("remote", saw);
    let done = run.stop();
    done.exit(0);
    let trace: Value = serde_json::from_str(&done.stdout).expect("JSON");
    let state = &trace["state"];
    assert_eq!(witness(), before, "reading changed something");

    for name in [
        "worker",
        "worker2",
        "pod/default/client",
        "pod/default/remote",
    ] {
        let n = namespace(state, name);
        assert_eq!(n["unread"], json!([]), "{name}");
        assert_eq!(
            n["kind"],
            if name.starts_with("pod/") {
                "pod"
            } else {
                "node"
            }
        );
        assert!(
            n["read_at"].as_u64() > Some(1_600_000_000_000_000_000),
            "{name}"
        );
        for counters in ["counters", "counters_before"] {
            assert!(
                n[counters]["IpInAddrErrors"].is_u64(),
                "{counters} of {name}: {}",
                n[counters]
            );
        }
    }
    one_node(namespace(state, "worker"));
    let remote = namespace(state, "pod/default/remote");
    assert_eq!(remote["node"], "worker2");
    require(&remote["listeners"], &json!({"tcp": true, "port": 8080}));
    require(
        &remote["routes"],
        &json!({"dst": "0.0.0.0", "prefix": 0, "dev": "eth0"}),
    );

    let worker2 = namespace(state, "worker2");
    let dump = worker2["iptables"][0]["text"].as_str().expect("a text");
    assert!(
        dump.contains("cali-FORWARD") && dump.contains("KUBE-SERVICES"),
        "{dump}"
    );
    let entry = &worker2["conntrack"][0];
    assert_eq!(entry["original"]["dst"]["addr"], "10.244.158.65", "{entry}");

    let cluster = state["cluster"]["items"].as_array().expect("items");
    assert!(
        cluster
            .iter()
            .any(|i| i["kind"] == "Service" && i["metadata"]["name"] == "remote")
    );

    let shown = Tool::new("state-show", &["show", "-o", "json"])
        .arg(&file)
        .run();
    let shown: Value = serde_json::from_str(&shown.stdout).expect("JSON");
    assert_eq!(
        shown["state"],
        *state,
        "the recording in {}",
        file.display()
    );
    assert!(slurp(&file).len() < 256 << 10, "{}", slurp(&file).len());
}

/// The client's node.
#[track_caller]
fn one_node(node: &Value) {
    require(
        &node["routes"],
        &json!({"dst": "10.244.158.64", "prefix": 26, "type": "unicast", "via": "10.244.158.64",
            "dev": "vxlan.calico", "table": 254}),
    );
    require(
        &node["routes"],
        &json!({"dst": "10.244.80.64", "prefix": 26, "type": "blackhole", "table": 254}),
    );
    require(
        &node["routes"],
        &json!({"dst": "10.244.80.65", "prefix": 32, "type": "unicast", "dev": "cali747ff840379"}),
    );
    require(
        &node["routes"],
        &json!({"dst": "10.244.80.64", "prefix": 32, "type": "local", "table": 255}),
    );
    require(
        &node["rules"],
        &json!({"priority": 32766, "ipv6": false, "table": 254, "action": "lookup"}),
    );
    require(
        &node["neighbours"],
        &json!({"addr": "10.244.158.64", "dev": "vxlan.calico", "mac": NODES[1].vtep_mac, "state": "permanent"}),
    );
    require(
        &node["fdb"],
        &json!({"mac": NODES[1].vtep_mac, "dev": "vxlan.calico", "dst": "172.31.0.3"}),
    );
    require(
        &node["links"],
        &json!({"name": "vxlan.calico", "kind": "vxlan", "up": true, "vni": 4096, "vxlan_port": 4789,
            "local": "172.31.0.2", "mac": NODES[0].vtep_mac, "addrs": [{"addr": "10.244.80.64", "prefix": 32}]}),
    );
    let sysctls = &node["sysctls"];
    assert_eq!(sysctls["net.ipv4.ip_forward"], "1");
    for name in [
        "net.ipv4.conf.all.rp_filter",
        "net.ipv4.conf.cali747ff840379.proxy_arp",
        "net.netfilter.nf_conntrack_max",
    ] {
        assert!(sysctls[name].is_string(), "no {name} in {sysctls:#}");
    }
    assert_eq!(sysctls["net.ipv4.conf.cali747ff840379.proxy_arp"], "1");

    let dumps = node["iptables"].as_array().expect("dumps");
    assert_eq!(dumps[0]["ipv6"], false);
    let text = dumps[0]["text"].as_str().expect("a text");
    for word in ["KUBE-SERVICES", "cali-FORWARD"] {
        assert!(text.contains(word), "no {word} in {text}");
    }
    let counted = text.lines().any(|line| {
        line.starts_with('[') && !line.starts_with("[0:0]") && line.contains("-A KUBE-SEP-")
    });
    assert!(counted, "counters in {text}");
    let sets = node["ipsets"].as_str().expect("sets");
    assert!(sets.contains("create cali40"), "{sets}");
    assert_eq!(node["nft"], Value::Null);

    // The same connection that `conntrack -L` lists.
    let listed = &conntrack("worker", "tcp", PORT)[0];
    let found = node["conntrack"]
        .as_array()
        .expect("entries")
        .iter()
        .any(|entry| {
            let end =
                |e: &Value| format!("{}:{}", e["addr"].as_str().unwrap_or_default(), e["port"]);
            let way = |t: &Value| format!("{} > {}", end(&t["src"]), end(&t["dst"]));
            let status = entry["status"].as_array().expect("status");
            [way(&entry["original"]), way(&entry["reply"])] == *listed
                && status.contains(&json!("DST_NAT"))
                && entry["proto"] == "tcp"
                && entry["original"]["dst"]["name"] == "svc/default/remote"
        });
    assert!(found, "no {listed:?} in {:#}", node["conntrack"]);
    assert!(node["counters"]["conntrack.count"].as_u64() >= Some(1));
    assert!(
        node["counters"]["conntrack.insert_failed"].is_u64(),
        "{}",
        node["counters"]
    );
    assert_eq!(node["qdiscs"], json!([]), "ours are not told");
}

#[test]
fn state_of_legacy_tables_and_other_peoples_work() {
    use crate::world::{lab_with, options};
    use tracer_tests::lab::Iptables;
    let mut options = options();
    options.iptables = Iptables::Legacy;
    let _lab = lab_with(&options);
    exec("worker", "nft", &["add", "table", "inet", "others"]);
    exec("worker", "nft", &["add", "chain", "inet", "others", "c1"]);
    let netem = [
        "qdisc", "add", "dev", "eth0", "root", "tbf", "rate", "1gbit", "burst", "1mb", "latency",
        "50ms",
    ];
    exec("worker", "tc", &netem);
    exec("worker", "tc", &["qdisc", "add", "dev", "eth0", "clsact"]);
    // Matches nothing, and so lets everything go on.
    let filter = "filter add dev eth0 ingress protocol ip bpf bytecode";
    let mut filter: Vec<&str> = filter.split(' ').collect();
    filter.extend(["1,6 0 0 0", "flowid", "1:7"]);
    exec("worker", "tc", &filter);
    get("client", service());
    let before = witness();
    let run = follow_service("state-legacy").start();
    get("client", service());
    let done = run.stop();
    let trace: Value = serde_json::from_str(&done.stdout).expect("JSON");
    assert_eq!(witness(), before, "reading changed something");
    let worker = namespace(&trace["state"], "worker");
    assert_eq!(worker["unread"], json!([]));
    let dumps = worker["iptables"].as_array().expect("dumps");
    let legacy = dumps
        .iter()
        .find(|d| d["variant"] == "legacy" && d["ipv6"] == false);
    let text = legacy
        .and_then(|d| d["text"].as_str())
        .expect("a legacy dump");
    assert!(
        text.contains("KUBE-SERVICES") && text.contains("--match-set"),
        "{text}"
    );
    let nft = worker["nft"].as_str().expect("nft's tables");
    assert!(nft.contains("table inet others"), "{nft}");
    require(
        &worker["qdiscs"],
        &json!({"dev": "eth0", "at": "root", "kind": "tbf", "detail": "rate 1000000000 bit/s"}),
    );
    require(
        &worker["qdiscs"],
        &json!({"dev": "eth0", "at": "ingress", "kind": "bpf"}),
    );
}
