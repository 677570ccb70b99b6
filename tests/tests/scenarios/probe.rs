//! `tracer probe`: it makes the connections itself, so the witnesses are the server's log, and what the laboratory
//! is known to be broken by.

use std::ffi::CString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context;
use serde_json::Value;
use tracer_tests::lab::{fault, inventory, netns, witness};

use crate::run::{Done, Tool, eventually, evidence};
use crate::world::{lab, lab_with, options};

const REMOTE: &str = "svc/default/remote:80";

/// `tracer probe` from the pod `client`, with JSON output.
fn probe(name: &str, dst: &str) -> Tool {
    probe_with(name, dst, "3s")
}

fn probe_with(name: &str, dst: &str, timeout: &str) -> Tool {
    Tool::new(
        name,
        &["probe", "--no-kube", "--pod", "client", "-o", "json"],
    )
    .args(&["--timeout", timeout, "--dst", dst, "--inventory"])
    .arg(inventory::path())
}

/// The member `probe` of the output.
#[track_caller]
fn report(done: &Done) -> Value {
    let whole: Value = serde_json::from_str(&done.stdout).expect("JSON");
    assert!(whole["probe"].is_object(), "{}", done.stderr);
    whole["probe"].clone()
}

/// Way and result of each attempt.
fn results(report: &Value) -> Vec<String> {
    let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
    let attempts = report["attempts"].as_array().expect("attempts");
    let each = attempts
        .iter()
        .map(|a| format!("{} {}", text(&a["way"]), text(&a["result"])));
    each.collect()
}

fn codes(done: &Done) -> Vec<String> {
    let whole: Value = serde_json::from_str(&done.stdout).expect("JSON");
    let findings = whole["findings"].as_array().expect("findings");
    let each = findings.iter().map(|f| {
        let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
        format!("{} {}", text(&f["severity"]), text(&f["code"]))
    });
    each.collect()
}

#[track_caller]
fn broken(name: &str) {
    let fault = fault::named(name).expect("a fault of that name");
    fault.apply().expect("the fault is made");
}

#[test]
fn core_probe_of_a_healthy_service() {
    let _lab = lab();
    let done = probe("probe-healthy", REMOTE).run();
    done.exit(0).trace().verdict("delivered").lossless();
    let report = report(&done);
    assert_eq!(
        results(&report),
        [
            "name connected",
            "cluster-ip connected",
            "backend connected"
        ]
    );
    assert_eq!(report["layer"]["code"], "none");
    assert_eq!(report["lookup"]["name"], "remote");
    assert_eq!(report["lookup"]["addrs"][0], "10.98.235.247");
    assert_eq!(
        report["lookup"]["queries"].as_array().map(Vec::len),
        Some(1)
    );
    assert_eq!(
        report["resolver"]["assumed"], true,
        "{}",
        report["resolver"]
    );
    // The server's own log has the same connections, from the same ports.
    for attempt in report["attempts"].as_array().expect("attempts") {
        let port = attempt["client"]["port"].as_u64().expect("a port") as u16;
        witness::wait_for("remote", Duration::from_mins(1), |access| {
            access.peer.port() == port && access.peer.ip().to_string() == "10.244.80.65"
        })
        .expect("the server saw it");
        assert!(attempt["flow"].is_u64(), "{attempt}");
        assert_eq!(attempt["stopped"], Value::Null);
    }
    // Each was announced.
    for words in [
        "10.96.0.10:53 (svc/kube-system/kube-dns): UDP, DNS query A remote.default.svc.cluster.local.",
        "10.98.235.247:80 (svc/default/remote): TCP",
        "10.244.158.65:8080 (pod/default/remote): TCP",
    ] {
        let line = format!("sending from pod/default/client (10.244.80.65) to {words}");
        assert!(
            done.stderr.contains(&line),
            "no {line:?} in {}",
            done.stderr
        );
    }
}

#[test]
fn probe_as_text_and_from_its_recording() {
    let _lab = lab();
    let file = evidence().join("probe.jsonl.zst");
    let done = probe("probe-text", REMOTE)
        .output("text")
        .args(&["-q", "-w"])
        .arg(&file)
        .run();
    done.exit(0);
    for words in [
        "way",
        "where it stopped",
        "ClusterIP",
        "connected in",
        "layer",
        "delivered: 3 of 3 ways",
    ] {
        assert!(
            done.stdout.contains(words),
            "no {words:?} in {}",
            done.stdout
        );
    }
    assert!(!done.stderr.contains("sending"), "{}", done.stderr);
    assert!(
        !done.stdout.contains("#1 "),
        "the table alone: {}",
        done.stdout
    );
    let shown = Tool::new("probe-shown", &["show"]).arg(&file).run();
    shown.exit(0);
    assert!(shown.stdout.contains("#1 UDP"), "{}", shown.stdout);
    assert!(
        shown.stdout.ends_with(&done.stdout),
        "{}\n{}",
        shown.stdout,
        done.stdout
    );
}

#[test]
fn probe_of_a_wrong_name() {
    let _lab = lab();
    let done = probe("probe-wrong-name", "remot.default:80").run();
    done.exit(3).trace().verdict("dns-name-wrong");
    let report = report(&done);
    assert_eq!(results(&report), ["name unresolved"]);
    assert_eq!(report["layer"]["code"], "dns");
    // Three domains of the search list, and the name as it is.
    assert_eq!(
        report["lookup"]["queries"].as_array().map(Vec::len),
        Some(4)
    );
}

#[test]
fn probe_on_a_detour() {
    let _lab = lab();
    let done = probe("probe-detour", "remote.default.svc.cluster.local:80").run();
    done.exit(0).trace().verdict("delivered");
    assert!(
        codes(&done).contains(&"note dns-search-detour".to_owned()),
        "{:?}",
        codes(&done)
    );
}

#[test]
fn probe_against_a_policy() {
    let _lab = lab();
    broken("ingress-denied");
    let done = probe("probe-policy", REMOTE).run();
    done.exit(3).trace().verdict("policy-drop");
    let report = report(&done);
    assert_eq!(
        results(&report),
        [
            "name timed-out",
            "cluster-ip timed-out",
            "backend timed-out"
        ]
    );
    assert_eq!(report["layer"]["code"], "network");
    for attempt in report["attempts"].as_array().expect("attempts") {
        assert_eq!(attempt["stopped"]["node"], "worker2", "{attempt}");
    }
}

#[test]
fn probe_without_translation() {
    let _lab = lab();
    broken("nat-flushed");
    let done = probe("probe-nat", REMOTE).run();
    done.exit(3).trace().verdict("service-not-translated");
    let report = report(&done);
    let results = results(&report);
    assert_eq!(
        results[1..],
        ["cluster-ip timed-out", "backend connected"],
        "{results:?}"
    );
    assert_eq!(report["layer"]["code"], "service");
    // The resolver is behind a Service, too.
    assert_eq!(results[0], "name unresolved");
    assert!(
        codes(&done).contains(&"warning dns-resolver-unreachable".to_owned()),
        "{:?}",
        codes(&done)
    );
}

#[test]
fn probe_without_a_way_to_the_resolver() {
    let _lab = lab();
    broken("egress-without-dns");
    let done = probe("probe-dns", REMOTE).run();
    done.exit(3).trace().verdict("policy-drop");
    let report = report(&done);
    assert_eq!(
        results(&report),
        [
            "name unresolved",
            "cluster-ip connected",
            "backend connected"
        ]
    );
    assert_eq!(report["layer"]["code"], "dns");
    assert_eq!(report["attempts"][0]["stopped"]["node"], "worker");
    assert!(
        codes(&done).contains(&"warning dns-resolver-unreachable".to_owned()),
        "{:?}",
        codes(&done)
    );
}

#[test]
fn probe_of_an_old_record() {
    let _lab = lab();
    broken("old-dns-record");
    let done = probe("probe-old-record", REMOTE).run();
    done.exit(3).trace().verdict("dns-answer-mismatch");
    let report = report(&done);
    assert_eq!(report["lookup"]["addrs"][0], "10.98.235.247");
    assert_eq!(report["lookup"]["expected"][0], "10.98.235.250");
    // Nobody translates the address that the Service has by now.
    assert_eq!(results(&report)[1], "cluster-ip timed-out");
    assert!(
        codes(&done).contains(&"fault service-not-translated".to_owned()),
        "{:?}",
        codes(&done)
    );
}

#[test]
fn probe_over_udp() {
    let _lab = lab();
    let done = probe("probe-udp", "svc/kube-system/kube-dns:53")
        .args(&["--proto", "udp"])
        .run();
    done.exit(0).trace().verdict("delivered");
    assert_eq!(
        results(&report(&done)),
        ["name answered", "cluster-ip answered", "backend answered"]
    );
}

#[test]
fn probe_of_a_pod_with_both_families() {
    let mut options = options();
    options.ipv6 = true;
    let _lab = lab_with(&options);
    let done = probe("probe-dual", REMOTE).run();
    done.exit(0).trace().verdict("delivered");
    let report = report(&done);
    let queries = report["lookup"]["queries"].as_array().expect("queries");
    let kinds: Vec<[&Value; 2]> = queries.iter().map(|q| [&q["type"], &q["reply"]]).collect();
    assert_eq!(kinds, [["A", "addresses"], ["AAAA", "no-address"]]);
}

/// A process as a container has it: in the pod's network, with an /etc of its own.
struct Container {
    child: Child,
    etc: PathBuf,
}

impl Container {
    fn start(text: &str) -> Self {
        let etc = evidence().join("pod-etc");
        fs::create_dir_all(&etc).expect("a directory");
        fs::write(etc.join("resolv.conf"), text).expect("a file");
        let from = CString::new(etc.as_os_str().as_bytes()).expect("a path");
        let mut command = Command::new("sleep");
        command
            .arg("600")
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        // SAFETY: system calls alone, on strings that were made before the fork.
        unsafe {
            command.pre_exec(move || {
                let none = std::ptr::null();
                let private = libc::MS_REC | libc::MS_PRIVATE;
                let done = libc::unshare(libc::CLONE_NEWNS) == 0
                    && libc::mount(none, c"/".as_ptr(), none, private, none.cast()) == 0
                    && libc::mount(
                        from.as_ptr(),
                        c"/etc".as_ptr(),
                        none,
                        libc::MS_BIND,
                        none.cast(),
                    ) == 0;
                if done {
                    Ok(())
                } else {
                    Err(std::io::Error::last_os_error())
                }
            });
        }
        let spawn = || command.spawn().context("starting sleep");
        let child = netns::within("client", spawn).expect("a process in the pod");
        Self { child, etc }
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.etc);
    }
}

#[test]
fn probe_reads_the_resolver_settings_of_the_pod() {
    let _lab = lab();
    let container = Container::start(
        "nameserver 10.96.0.10\nsearch kube-system.svc.cluster.local default.svc.cluster.local\noptions ndots:2\n",
    );
    let done = probe("probe-settings", REMOTE).run();
    done.exit(0);
    let report = report(&done);
    let resolver = &report["resolver"];
    assert_eq!(resolver["assumed"], Value::Null, "{resolver}");
    assert_eq!(resolver["ndots"], 2);
    let origin = format!("/proc/{}/root/etc/resolv.conf", container.child.id());
    assert_eq!(resolver["origin"], *origin);
    let queries = report["lookup"]["queries"].as_array().expect("queries");
    let names: Vec<&Value> = queries.iter().map(|q| &q["name"]).collect();
    assert_eq!(
        names,
        [
            "remote.kube-system.svc.cluster.local.",
            "remote.default.svc.cluster.local."
        ]
    );
}

#[test]
fn an_interrupted_probe_ends_in_good_order() {
    let _lab = lab();
    broken("ingress-denied");
    let tool = probe_with("probe-interrupted", REMOTE, "1m");
    let running = tool.start();
    eventually("the first connection is announced", || {
        running.stderr().contains(": TCP")
    });
    let since = Instant::now();
    let done = running.stop();
    assert!(
        since.elapsed() < Duration::from_secs(50),
        "{:?}",
        since.elapsed()
    );
    let report = report(&done);
    let results = results(&report);
    assert_eq!(report["attempts"][0]["detail"], "interrupted");
    assert_eq!(
        results[1..],
        ["cluster-ip not-tried", "backend not-tried"],
        "{results:?}"
    );
}

#[test]
fn refusals_of_probe() {
    let _lab = lab();
    for (name, code, dst, words) in [
        ("port", 2, "10.98.235.247", &["PORT", "80/TCP"][..]),
        ("family", 1, "[fd00::1]:80", &["address family"]),
        ("named-port", 2, "nobody:http", &["nobody", "number"]),
        ("service", 1, "svc/default/nobody:80", &["nobody"]),
    ] {
        probe(&format!("refused-probe-{name}"), dst)
            .run()
            .refused(code, words);
    }
    let inventory = inventory::path();
    Tool::new(
        "refused-probe-pod",
        &["probe", "--pod", "nobody", "--dst", REMOTE, "--inventory"],
    )
    .arg(&inventory)
    .run()
    .refused(1, &["nobody"]);
}
