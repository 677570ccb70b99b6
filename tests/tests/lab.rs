//! The laboratory itself: every path answers, seen by the server from the address it should be,
//! and nothing is left behind. Needs root.

use std::collections::BTreeSet;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use tracer_tests::lab::client::{self, SEARCH, Transport};
use tracer_tests::lab::dns::{Rcode, TYPE_A, TYPE_AAAA};
use tracer_tests::lab::session::{Session, Turn};
use tracer_tests::lab::topology::{DNS_SERVICE, NODE_PORT, POD_PORT, REMOTE_SERVICE};
use tracer_tests::lab::{
    self, Iptables, Launcher, Options, Policy, inventory, netns, program, witness,
};

const REMOTE_END: &str = "cali1b2c3d4e5f6";
const SOON: Duration = Duration::from_millis(1500);

fn options() -> Options {
    Options::new(Launcher::binary(env!("CARGO_BIN_EXE_lab")))
}

fn start(options: &Options) -> Session {
    Session::start(options).expect("the laboratory goes up")
}

fn addr(text: &str, port: u16) -> SocketAddr {
    SocketAddr::new(text.parse().expect("an address"), port)
}

/// Asks from `ns` and checks who answers and whom it saw.
#[track_caller]
fn check(ns: &str, target: SocketAddr, pod: &str, seen: &[&str]) {
    let response = client::get(Some(ns), target, &client::Options::default())
        .unwrap_or_else(|error| panic!("{ns} -> {target}: {error:#}"));
    let saw = response.saw().expect("the answer says whom it saw");
    assert_eq!(response.status, 200);
    assert_eq!(response.pod(), Some(pod), "{ns} -> {target}");
    assert!(
        seen.contains(&saw.ip().to_string().as_str()),
        "{ns} -> {target}: the server saw {saw}, not one of {seen:?}"
    );
    let log = witness::read(pod).expect("the server's log");
    assert!(
        log.iter().any(|access| access.peer == saw),
        "{pod} logged {saw}"
    );
}

fn check_all_paths() {
    let service = SocketAddr::V4(REMOTE_SERVICE);
    check(
        "client",
        addr("10.244.80.66", POD_PORT),
        "local",
        &["10.244.80.65"],
    );
    check(
        "client",
        addr("10.244.158.65", POD_PORT),
        "remote",
        &["10.244.80.65"],
    );
    check("client", service, "remote", &["10.244.80.65"]);
    check(
        "client",
        addr("172.31.0.5", POD_PORT),
        "outside",
        &["172.31.0.2"],
    );
    check(
        "outside",
        addr("172.31.0.2", NODE_PORT),
        "remote",
        &["10.244.80.64"],
    );
    check(
        "outside",
        addr("172.31.0.3", NODE_PORT),
        "remote",
        &["172.31.0.3"],
    );
    check(
        "remote",
        service,
        "remote",
        &["172.31.0.3", "10.244.158.64"],
    );
    check("worker", service, "remote", &["10.244.80.64"]);
    check(
        "worker",
        addr("10.244.80.65", POD_PORT),
        "client",
        &["172.31.0.2"],
    );
    for transport in [Transport::Udp, Transport::Tcp] {
        let (name, answer) =
            client::resolve(Some("client"), "remote", TYPE_A, &SEARCH, transport, SOON)
                .expect("the resolver answers");
        assert_eq!(name, "remote.default.svc.cluster.local");
        assert_eq!(answer.addrs, [*REMOTE_SERVICE.ip()]);
    }
}

#[test]
fn every_path_answers_under_both_iptables() {
    for iptables in [Iptables::Nft, Iptables::Legacy] {
        let _lab = start(&Options {
            iptables,
            ..options()
        });
        check_all_paths();
    }
}

#[test]
fn up_twice_is_up() {
    let lab = start(&options());
    let first = lab.state();
    let kept = lab::ensure(&options()).expect("the same laboratory");
    assert_eq!(first.id, kept.id);
    let second = lab::up(&options()).expect("a new laboratory");
    assert_ne!(first.id, second.id);
    assert!(second.is_intact());
    check(
        "client",
        SocketAddr::V4(REMOTE_SERVICE),
        "remote",
        &["10.244.80.65"],
    );
    drop(lab);
}

#[test]
fn policy_admits_only_the_labelled() {
    let _lab = start(&Options {
        policy: Policy::On,
        ..options()
    });
    let service = SocketAddr::V4(REMOTE_SERVICE);
    let hasty = client::Options::default().timeout(SOON);
    check("client", service, "remote", &["10.244.80.65"]);

    lab::label("client", None).expect("the label goes");
    let before = lab::policy_drops(REMOTE_END).expect("a counter");
    let refused = client::get(Some("client"), service, &hasty).expect_err("the policy drops it");
    assert!(format!("{refused:#}").contains("timed out"), "{refused:#}");
    assert!(lab::policy_drops(REMOTE_END).expect("a counter") > before);
    check(
        "client",
        addr("10.244.80.66", POD_PORT),
        "local",
        &["10.244.80.65"],
    );

    lab::label("client", Some("true")).expect("the label comes back");
    check("client", service, "remote", &["10.244.80.65"]);
}

#[test]
fn resolver_tells_absence_of_a_record_from_absence_of_a_name() {
    let _lab = start(&options());
    let ask = |name, kind| {
        client::resolve(Some("client"), name, kind, &SEARCH, Transport::Udp, SOON)
            .expect("the resolver answers")
            .1
    };
    let aaaa = ask("remote", TYPE_AAAA);
    assert_eq!(
        (aaaa.rcode, aaaa.addrs),
        (Rcode::NoError, Vec::<Ipv4Addr>::new())
    );
    assert_eq!(ask("nowhere", TYPE_A).rcode, Rcode::NxDomain);
    assert_eq!(
        ask("kube-dns.kube-system", TYPE_A).addrs,
        [*DNS_SERVICE.ip()]
    );
}

#[test]
fn client_and_server_count_the_same_bytes() {
    let _lab = start(&options());
    let target = SocketAddr::V4(REMOTE_SERVICE);
    let down =
        client::get(Some("client"), target, &client::Options::down(3_000_000)).expect("download");
    assert_eq!(down.body_len, 3_000_000);
    let port = 45266;
    let up = client::Options::up(3_000_000).source_port(port);
    let up = client::get(Some("client"), target, &up).expect("upload");
    assert_eq!(up.body.trim(), "got=3000000");
    assert_eq!(up.local_addr.port(), port);
    let load = client::Load {
        count: 30,
        parallel: 3,
        keep_alive: true,
    };
    let outcomes =
        client::load(Some("client"), target, &client::Options::default(), load).expect("a load");
    let peers: BTreeSet<_> = outcomes
        .iter()
        .flatten()
        .filter_map(client::Response::saw)
        .collect();
    assert_eq!(
        outcomes.iter().filter(|outcome| outcome.is_ok()).count(),
        30
    );
    assert!(
        peers.len() <= 3,
        "three clients, three connections: {peers:?}"
    );
    let log = witness::read("remote").expect("a log");
    let sink = log
        .iter()
        .find(|it| it.request.starts_with("POST"))
        .expect("the upload was logged");
    assert!(sink.received > 3_000_000 && sink.peer.port() == port);
}

#[test]
fn udp_and_ipv6_work_too() {
    let _lab = start(&Options {
        ipv6: true,
        ..options()
    });
    let said =
        client::echo(Some("client"), addr("10.244.158.65", POD_PORT), SOON).expect("an echo");
    assert!(said.starts_with("pod=remote saw=10.244.80.65:"), "{said}");
    check(
        "client",
        addr("fd00:10:244:158::65", POD_PORT),
        "remote",
        &["fd00:10:244:80::65"],
    );
}

#[test]
fn inventory_lists_the_cluster_and_its_labels() {
    let _lab = start(&Options {
        policy: Policy::On,
        ..options()
    });
    let read = || -> Vec<Value> {
        let text = fs::read(inventory::path()).expect("an inventory");
        let list: Value = serde_json::from_slice(&text).expect("JSON");
        assert_eq!(
            (list["kind"].as_str(), list["apiVersion"].as_str()),
            (Some("List"), Some("v1"))
        );
        list["items"].as_array().expect("items").clone()
    };
    let count =
        |items: &[Value], kind: &str| items.iter().filter(|item| item["kind"] == kind).count();
    let items = read();
    for (kind, n) in [
        ("Node", 2),
        ("Pod", 4),
        ("Service", 2),
        ("EndpointSlice", 2),
        ("NetworkPolicy", 1),
    ] {
        assert_eq!(count(&items, kind), n, "{kind}");
    }
    let allowed = |items: &[Value]| {
        let client = items
            .iter()
            .find(|item| item["kind"] == "Pod" && item["metadata"]["name"] == "client")
            .expect("the pod client");
        client["metadata"]["labels"]["allowed"]
            .as_str()
            .map(str::to_owned)
    };
    assert_eq!(allowed(&items).as_deref(), Some("true"));
    lab::label("client", None).expect("the label goes");
    assert_eq!(allowed(&read()), None);
}

#[test]
fn down_leaves_nothing() {
    let turn = Turn::wait().expect("a turn");
    let _ = lab::down();
    let before = leftovers();
    lab::up(&Options {
        iptables: Iptables::Legacy,
        ..options()
    })
    .expect("the laboratory goes up");
    // Somebody else's process in a pod is in the way of its namespace, and goes too.
    let mut stray =
        netns::within("client", || Ok(Command::new("sleep").arg("60").spawn()?)).expect("sleep");
    assert!(lab::down().expect("down"));
    // `down` may have reaped it already; either way it has ended.
    let _ = stray.wait();
    assert_eq!(leftovers(), before);
    assert!(!lab::down().expect("down again"), "nothing was up");
    drop(turn);
}

/// What the laboratory could leave: files in /run, network namespaces, servers.
fn leftovers() -> BTreeSet<String> {
    let names = |dir: &str| -> Vec<String> {
        let entries = fs::read_dir(dir).into_iter().flatten().flatten();
        entries
            .map(|entry| entry.path().display().to_string())
            .collect()
    };
    let servers = names("/proc").into_iter().filter(|path| {
        fs::read(Path::new(path).join("cmdline"))
            .is_ok_and(|line| String::from_utf8_lossy(&line).contains("--lab-id"))
    });
    let files = ["/run/tracer-lab", netns::DIR, "/run/xtables.lock"]
        .into_iter()
        .filter(|path| Path::new(path).exists())
        .map(str::to_owned);
    servers.chain(files).chain(names(netns::DIR)).collect()
}

#[test]
fn foreign_namespaces_are_left_alone() {
    let turn = Turn::wait().expect("a turn");
    let _ = lab::down();
    program::feed("ip", &["netns", "add", "client"], "")
        .expect("a namespace that is not the lab's");
    let inode = netns::inode("client");
    let refusal = lab::up(&options()).expect_err("the name is taken");
    let untouched = netns::inode("client") == inode && !Path::new("/run/tracer-lab").exists();
    program::feed("ip", &["netns", "del", "client"], "").expect("clean-up");
    assert!(format!("{refusal:#}").contains("client"), "{refusal:#}");
    assert!(untouched && inode.is_some());
    drop(turn);
}

#[test]
fn no_link_to_the_machines_network() {
    let lab = start(&options());
    // A veth whose peer is in a named namespace says so.
    let links = program::run("ip", &["-o", "link"], "").expect("the machine's links");
    for name in lab.state().namespaces.keys() {
        assert!(!links.contains(&format!("link-netns {name}")), "{links}");
    }
    let routes = program::run("ip", &["route", "show", "table", "all"], "").expect("routes");
    for prefix in ["172.31.0.", "10.244.", "10.98.235.", "10.96.0."] {
        assert!(!routes.contains(prefix), "{routes}");
    }
}
