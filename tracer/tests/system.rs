//! What needs real namespaces: entering them, news about links, conntrack. Each
//! test makes nameless namespaces that vanish with it. Needs root.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should panic")]

use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use tracer::conntrack;
use tracer::discover::gather;
use tracer::netlink::{LinkEvent, LinkEvents, links};
use tracer::netns::{NetNs, enter, run_in};

/// A new namespace, kept by its descriptor alone.
fn new_ns() -> NetNs {
    let made = thread::spawn(|| {
        // SAFETY: changes the namespace of this short-lived thread only.
        let rc = unsafe { libc::unshare(libc::CLONE_NEWNET) };
        let error = std::io::Error::last_os_error();
        assert_eq!(rc, 0, "cannot make a namespace: {error}; run as root");
        NetNs::current().unwrap()
    });
    made.join().unwrap()
}

/// Runs `ip` in the namespace.
fn ip(ns: &NetNs, args: &str) {
    let run = || Command::new("ip").args(args.split(' ')).status();
    let status = run_in(ns, run).unwrap().unwrap();
    assert!(status.success(), "ip {args}: {status}");
}

#[test]
fn work_inside_a_namespace_leaves_the_caller_where_it_was() {
    let (own, ns) = (NetNs::current().unwrap().inode, new_ns());
    assert_ne!(own, ns.inode);
    let inside = || NetNs::current().unwrap().inode;
    assert_eq!(run_in(&ns, inside).unwrap(), ns.inode);
    {
        let _guard = enter(&ns).unwrap();
        assert_eq!(inside(), ns.inode);
    }
    assert_eq!(inside(), own);
    let failed = run_in(&ns, || panic!("on purpose"));
    assert!(failed.is_err());
    assert_eq!(inside(), own);
}

#[test]
fn links_that_come_and_go_are_told() {
    let ns = new_ns();
    let mut events = run_in(&ns, LinkEvents::open).unwrap().unwrap();
    assert!(events.read().unwrap().is_empty());
    ip(&ns, "link add v0 type veth peer name v1");
    ip(&ns, "link del v0");
    let (mut came, mut went) = (false, false);
    let end = Instant::now() + Duration::from_secs(5);
    while !(came && went) && Instant::now() < end {
        for event in events.read().unwrap() {
            came |= matches!(&event, LinkEvent::New(l) if &*l.name == "v0" && &*l.kind == "veth");
            went |= matches!(&event, LinkEvent::Deleted(l) if &*l.name == "v0");
        }
        thread::yield_now();
    }
    assert!(came && went);
}

#[test]
fn the_other_end_of_a_veth_is_found_in_its_namespace() {
    let (a, b) = (new_ns(), new_ns());
    let (a_inode, b_inode) = (a.inode, b.inode);
    ip(&a, "link add here type veth peer name there");
    let there = std::os::fd::AsRawFd::as_raw_fd(&b.file);
    let pid = std::process::id();
    ip(&a, &format!("link set there netns /proc/{pid}/fd/{there}"));
    ip(
        &a,
        "link add vx type vxlan id 7 dstport 8472 local 10.9.9.9",
    );
    let (facts, skipped) = gather(vec![a, b]);
    assert!(skipped.is_empty(), "{skipped:?}");
    let (a, b) = (&facts[0], &facts[1]);
    let find = |f: &tracer::discover::Facts, name: &str| {
        let link = f.links.iter().find(|l| &*l.name == name).unwrap().clone();
        (f.peer(&link), link)
    };
    let (here_peer, here) = find(a, "here");
    let (there_peer, there) = find(b, "there");
    assert_eq!((here_peer, there_peer), (Some(b_inode), Some(a_inode)));
    assert_eq!(here.link, Some(there.ifindex));
    let (_, vx) = find(a, "vx");
    assert_eq!((vx.vxlan_id, vx.vxlan_port), (Some(7), Some(8472)));
    assert_eq!(vx.local, Some("10.9.9.9".parse().unwrap()));
}

#[test]
fn a_new_namespace_has_no_connections() {
    let ns = new_ns();
    assert_eq!(
        run_in(&ns, || links().unwrap().iter().filter(|l| l.up).count()).unwrap(),
        0
    );
    assert!(conntrack::dump(&ns, |_| true).unwrap().entries.is_empty());
}
