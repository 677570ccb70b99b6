//! Nothing is broken: over every path the verdict is `delivered`, and nothing is complained of.
//!
//! The scenarios look at the same paths step by step; here the recordings are kept.

use crate::case::{Told, recordings};
use crate::run::follow;
use crate::traffic::{self, Outcome};
use crate::world::{lab_with, options};

/// Follows the traffic in the healthy laboratory; `notes` are all that may be said beside `delivered`.
#[track_caller]
fn healthy(name: &str, args: &[&str], ipv6: bool, notes: &[&str], traffic: fn() -> Outcome) {
    let _lab = lab_with(&tracer_tests::lab::Options { ipv6, ..options() });
    let file = recordings().join(format!("healthy-{name}.jsonl"));
    let run = follow(&format!("healthy-{name}"), &["-w"])
        .arg(&file)
        .args(args)
        .start();
    let outcome = traffic();
    let done = run.stop();
    assert_eq!(outcome, Outcome::Answered, "what the client lived through");
    let told = Told::of(&done);
    let said = told.describe();
    assert_eq!(told.verdict.code, "delivered", "{said}");
    let found: Vec<String> = told
        .findings
        .iter()
        .map(|f| format!("{} {}", f.severity, f.code))
        .filter(|f| f != "note delivered")
        .collect();
    assert_eq!(found, notes, "{said}");
    done.exit(0);
}

macro_rules! paths {
    ($($name:ident: $args:expr, $ipv6:expr, $notes:expr, $traffic:path;)+) => {$(
        #[test]
        fn $name() {
            let name = stringify!($name).trim_start_matches("healthy_").replace('_', "-");
            healthy(&name, $args, $ipv6, $notes, $traffic);
        }
    )+};
}

const SERVICE: &[&str] = &["--pod", "client", "--dst", "10.98.235.247:80"];

paths! {
    healthy_same_node: &["--pod", "client", "--dst", "10.244.80.66:8080"], false, &[], traffic::neighbour_works;
    healthy_pod_address: &["--pod", "client", "--dst", "10.244.158.65:8080"], false, &[], traffic::remote_works;
    healthy_cluster_ip: SERVICE, false, &[], traffic::service_works;
    healthy_outside: &["--pod", "client", "--dst", "172.31.0.5:8080"], false, &[], traffic::outside_works;
    healthy_node_port: &["--src", "172.31.0.5", "--dst", "172.31.0.3:30080"], false,
        &["note source-hidden"], traffic::other_node_port_works;
    healthy_hairpin: &["--pod", "remote", "--dst", "svc/remote"], false,
        &["note source-hidden"], traffic::service_works_for_itself;
    healthy_host_process: &["--src", "172.31.0.2", "--dst", "10.98.235.247:80"], false,
        &["note source-hidden"], traffic::service_works_on_node;
    healthy_name_then_service: &["--pod", "client"], false, &[], traffic::name_then_service_works;
    healthy_ipv6: &["--pod", "client", "--dst", "[fd00:10:244:158::65]:8080"], true, &[], traffic::remote_works_over_ipv6;
    healthy_large_transfer: SERVICE, false, &[], traffic::large_transfer_works;
    healthy_large_datagram: &["--pod", "client", "--dst", "172.31.0.5:8080", "--proto", "udp"], false, &[],
        traffic::large_answer_works;
}
