//! Wrong usage, and what cannot be done: one clear sentence and the right exit code.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::run::{Tool, evidence, follow, follow_service};
use crate::world::lab;

const S: &str = "10.98.235.247:80";

#[test]
fn refusals_of_follow() {
    let _lab = lab();
    let cases: &[(&str, i32, &[&str], &[&str])] = &[
        ("pod", 1, &["--pod", "nobody", "--dst", S], &["nobody"]),
        (
            "family",
            1,
            &["--pod", "client", "--dst", "[fd00::1]:80"],
            &["address family"],
        ),
        ("address", 2, &["--src", "10.0.0.300"], &["10.0.0.300"]),
        ("port", 2, &["--dst", "10.98.235.247:70000"], &["70000"]),
        ("nothing", 2, &[], &["--pod", "--dst"]),
        (
            "netns",
            1,
            &["--dst", S, "--netns", "worker=/run/netns/no-such"],
            &["/run/netns/no-such"],
        ),
        (
            "unwritable",
            1,
            &["--dst", S, "-w", "/no-such-directory/file"],
            &["/no-such-directory/file"],
        ),
    ];
    for &(name, code, args, words) in cases {
        follow(&format!("refused-{name}"), args)
            .run()
            .refused(code, words);
    }
}

#[test]
fn refusals_without_a_laboratory() {
    Tool::new("refused-command", &["folow"])
        .run()
        .refused(2, &["folow"]);
    Tool::new("refused-missing", &["show", "/no-such-file"])
        .run()
        .refused(1, &["/no-such-file"]);
    let damaged = evidence().join("damaged.jsonl");
    fs::write(
        &damaged,
        "{\"schema\":\"tracer.trace/1\",\"tool\":{}}\nnothing\n",
    )
    .expect("a file");
    Tool::new("refused-damaged", &["show"])
        .arg(&damaged)
        .run()
        .refused(1, &["damaged.jsonl", "line"]);
    let foreign = evidence().join("foreign.txt");
    fs::write(&foreign, "From: nobody\nSubject: no recording\n").expect("a file");
    Tool::new("refused-foreign", &["show"])
        .arg(&foreign)
        .run()
        .refused(1, &["foreign.txt"]);
    Tool::new(
        "refused-empty-inventory",
        &["follow", "--no-kube", "--dst", S],
    )
    .args(&["--inventory", "/no-such-inventory"])
    .run()
    .refused(1, &["/no-such-inventory"]);
}

#[test]
fn refusal_without_privileges() {
    let _lab = lab();
    // The binary may be where only root can go.
    let copy = evidence().join("tracer-for-nobody");
    fs::copy(crate::run::binary(), &copy).expect("a copy");
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o755)).expect("executable");
    let tool = follow("refused-nobody", &["--dst", S]).without_privileges(copy.clone());
    let done = tool.run();
    fs::remove_file(copy).expect("the copy goes");
    done.refused(1, &["root"]);
}

#[test]
fn nothing_seen_in_the_time_given() {
    let _lab = lab();
    let inventory = tracer_tests::lab::inventory::path();
    let args = ["follow", "--no-kube", "--dst", S, "-o", "json"];
    let done = Tool::new("time", &args)
        .args(&["--pod", "client", "--duration", "1s", "--inventory"])
        .arg(&inventory)
        .run();
    let trace = done.exit(4).trace();
    trace.verdict("no-traffic").lossless();
    trace.require(
        trace.flows.is_empty() && trace.packets.is_empty(),
        "nothing",
    );

    let done = follow_service("interrupted").start().stop();
    done.exit(4).trace().verdict("no-traffic");
}
