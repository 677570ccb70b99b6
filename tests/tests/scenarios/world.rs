//! The laboratory, and the witnesses in it that are not the tool.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::process::Command;

use serde_json::Value;
use tracer_tests::lab::client::{self, Response};
use tracer_tests::lab::session::Session;
use tracer_tests::lab::topology::REMOTE_SERVICE;
use tracer_tests::lab::witness::{self, Access};
use tracer_tests::lab::{Launcher, Options, netns, program};

use crate::run::LIMIT;

pub(crate) const CLIENT_END: &str = "cali747ff840379";
pub(crate) const REMOTE_END: &str = "cali1b2c3d4e5f6";
/// The port that traced clients speak from.
pub(crate) const PORT: u16 = 45266;

pub(crate) fn options() -> Options {
    Options::new(Launcher::binary(env!("CARGO_BIN_EXE_lab")))
}

/// The healthy laboratory.
pub(crate) fn lab() -> Session {
    lab_with(&options())
}

#[track_caller]
pub(crate) fn lab_with(options: &Options) -> Session {
    Session::start(options).expect("the laboratory goes up")
}

pub(crate) fn service() -> SocketAddr {
    SocketAddr::V4(REMOTE_SERVICE)
}

pub(crate) fn v4(a: u8, b: u8, c: u8, d: u8, port: u16) -> SocketAddr {
    SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::new(a, b, c, d), port))
}

/// Patient options, from [`PORT`].
pub(crate) fn patient() -> client::Options {
    client::Options::default().timeout(LIMIT).source_port(PORT)
}

/// One request that has to succeed.
#[track_caller]
pub(crate) fn get(ns: &str, to: SocketAddr) -> Response {
    get_with(ns, to, &patient())
}

#[track_caller]
pub(crate) fn get_with(ns: &str, to: SocketAddr, options: &client::Options) -> Response {
    let response = client::get(Some(ns), to, options)
        .unwrap_or_else(|error| panic!("{ns} -> {to}: {error:#}"));
    assert_eq!(response.status, 200, "{ns} -> {to}");
    response
}

/// What the server logged of the connection from that peer, once it is closed.
#[track_caller]
pub(crate) fn server_saw(server: &str, peer: SocketAddr) -> Access {
    witness::wait_for(server, LIMIT, |access| {
        access.peer == peer && access.request == "closed"
    })
    .unwrap_or_else(|error| panic!("from {peer}: {error:#}"))
}

/// Runs a program in a namespace.
#[track_caller]
pub(crate) fn exec(ns: &str, name: &str, args: &[&str]) -> String {
    netns::within(ns, || program::run(name, args, ""))
        .unwrap_or_else(|error| panic!("in {ns}: {error:#}"))
}

/// Whether a program is there; not every machine has every one.
pub(crate) fn has(name: &str) -> bool {
    Command::new(name).arg("--version").output().is_ok()
}

/// Both directions of a connection's entry in a node's table, as `SRC > DST`.
#[track_caller]
pub(crate) fn conntrack(node: &str, proto: &str, source_port: u16) -> Vec<[String; 2]> {
    let port = source_port.to_string();
    let listing = exec(
        node,
        "conntrack",
        &["-L", "-p", proto, "--orig-port-src", &port],
    );
    listing
        .lines()
        .map(|line| {
            let values = |key: &str| -> Vec<&str> {
                line.split_whitespace()
                    .filter_map(|word| word.strip_prefix(key)?.strip_prefix('='))
                    .collect()
            };
            let (src, dst) = (values("src"), values("dst"));
            let (sport, dport) = (values("sport"), values("dport"));
            [0, 1].map(|way| format!("{}:{} > {}:{}", src[way], sport[way], dst[way], dport[way]))
        })
        .collect()
}

/// Packets that an interface has received and sent.
#[track_caller]
pub(crate) fn counters(node: &str, iface: &str) -> [u64; 2] {
    let listing = exec(node, "ip", &["-s", "-j", "link", "show", "dev", iface]);
    let listing: Value = serde_json::from_str(&listing).expect("JSON of ip");
    let stats = &listing[0]["stats64"];
    ["rx", "tx"].map(|way| stats[way]["packets"].as_u64().expect("a counter"))
}

/// How many programs TCX holds at an interface; `None` where the kernel has no TCX (before 6.6).
#[track_caller]
pub(crate) fn tcx(node: &str, iface: &str) -> Option<u32> {
    // From linux/bpf.h: the command, both attach types, and attr.query.
    const BPF_PROG_QUERY: libc::c_long = 16;
    const BPF_TCX: [u32; 2] = [46, 47];
    #[repr(C)]
    #[derive(Default)]
    struct Query {
        ifindex: u32,
        attach_type: u32,
        flags: [u32; 2],
        prog_ids: u64,
        count: u32,
        _pad: u32,
        rest: [u64; 4],
    }
    let ifindex = exec(node, "ip", &["-j", "link", "show", "dev", iface]);
    let ifindex: Value = serde_json::from_str(&ifindex).expect("JSON of ip");
    let ifindex = ifindex[0]["ifindex"].as_u64().expect("an index") as u32;
    netns::within(node, || {
        let mut total = 0;
        for attach_type in BPF_TCX {
            let mut query = Query {
                ifindex,
                attach_type,
                ..Query::default()
            };
            // SAFETY: the kernel reads and writes the structure, whose size it is told.
            let status = unsafe {
                libc::syscall(
                    libc::SYS_bpf,
                    BPF_PROG_QUERY,
                    &raw mut query,
                    size_of::<Query>(),
                )
            };
            if status != 0 {
                return Ok(None);
            }
            total += query.count;
        }
        Ok(Some(total))
    })
    .expect("the namespace is there")
}
