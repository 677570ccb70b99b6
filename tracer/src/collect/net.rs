//! Links, routes, rules, neighbours, forwarding databases and what sits on the
//! interfaces, of the thread's namespace.

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use aya::programs::SchedClassifier;
use aya::programs::tc::TcAttachType;

use super::Reader;
use crate::netlink::{self, Neighbour, Sched, Side};
use crate::probe::catalog;
use crate::state::{self, Addr, Fdb, Namespace, PolicyRule, Qdisc, Unread};

/// Routes, neighbours or entries of a database beyond this are left out.
const MOST: usize = 10_000;

/// Names of interfaces by index.
type Devices = HashMap<u32, Arc<str>>;

/// The names of kernel constants, by value.
fn named(names: &[(u32, &'static str)], value: u32) -> Arc<str> {
    let known = names.iter().find(|(v, _)| *v == value);
    known.map_or_else(|| value.to_string().into(), |(_, name)| Arc::from(*name))
}

/// `RTN_*`, `include/uapi/linux/rtnetlink.h`, in the words of `ip route`.
const ROUTE_TYPES: &[(u32, &str)] = &[
    (1, "unicast"),
    (2, "local"),
    (3, "broadcast"),
    (4, "anycast"),
    (5, "multicast"),
    (6, "blackhole"),
    (7, "unreachable"),
    (8, "prohibit"),
    (9, "throw"),
    (10, "nat"),
];

/// `FR_ACT_*`, `include/uapi/linux/fib_rules.h`, in the words of `ip rule`.
const LOOKUP: u8 = 1;
const RULE_ACTIONS: &[(u32, &str)] = &[
    (LOOKUP as u32, "lookup"),
    (2, "goto"),
    (3, "nop"),
    (6, "blackhole"),
    (7, "unreachable"),
    (8, "prohibit"),
];

/// `NUD_*`, `include/uapi/linux/neighbour.h`, in the words of `ip neigh`.
const NEIGHBOUR_STATES: &[(u32, &str)] = &[
    (0x00, "none"),
    (0x01, "incomplete"),
    (0x02, "reachable"),
    (0x04, "stale"),
    (0x08, "delay"),
    (0x10, "probe"),
    (0x20, "failed"),
    (0x40, "noarp"),
    (0x80, "permanent"),
];

/// The list, or a note that it could not be read or is not whole.
fn listed<T>(what: &str, read: io::Result<Vec<T>>, unread: &mut Vec<Unread>) -> Vec<T> {
    let mut all = read.unwrap_or_else(|e| {
        unread.push(super::unread(
            what,
            format!("the kernel does not list them: {e}"),
        ));
        Vec::new()
    });
    if all.len() > MOST {
        let why = format!("only the first {MOST} of {} were kept", all.len());
        unread.push(super::unread(what, why));
        all.truncate(MOST);
    }
    all
}

/// Links with their addresses.
pub(super) fn links(into: &mut Namespace) {
    let mut addrs: HashMap<u32, Vec<Addr>> = HashMap::new();
    for a in listed("addrs", netlink::addresses(), &mut into.unread) {
        addrs.entry(a.ifindex).or_default().push(Addr {
            addr: a.addr,
            prefix: a.prefix,
        });
    }
    let all = listed("links", netlink::links(), &mut into.unread);
    into.links = all
        .into_iter()
        .map(|l| state::Link {
            ifindex: l.ifindex,
            name: l.name,
            kind: l.kind,
            up: l.up,
            mtu: l.mtu,
            mac: l.mac.filter(|mac| &**mac != "00:00:00:00:00:00"),
            master: l.master,
            addrs: addrs.remove(&l.ifindex).unwrap_or_default(),
            vni: l.vxlan_id,
            vxlan_port: l.vxlan_port,
            local: l.local,
        })
        .collect();
}

/// The rest of what rtnetlink tells about forwarding; after [`links`].
pub(super) fn forwarding(into: &mut Namespace) {
    let devices: Devices = into
        .links
        .iter()
        .map(|l| (l.ifindex, Arc::clone(&l.name)))
        .collect();
    let unread = &mut into.unread;
    into.routes = listed("routes", netlink::routes(), unread)
        .into_iter()
        .map(|r| state::Route {
            dst: r.dst,
            prefix: r.len,
            kind: named(ROUTE_TYPES, u32::from(r.kind)),
            table: r.table,
            dev: devices.get(&r.oif).cloned(),
            via: r.gateway,
            src: r.src,
            metric: r.metric,
        })
        .collect();
    into.rules = listed("rules", netlink::rules(), unread)
        .into_iter()
        .map(|r| PolicyRule {
            priority: r.priority,
            ipv6: r.ipv6,
            src: r.src,
            dst: r.dst,
            iif: r.iif,
            oif: r.oif,
            fwmark: r.fwmark,
            invert: r.invert,
            table: (r.action == LOOKUP).then_some(r.table),
            action: named(RULE_ACTIONS, u32::from(r.action)),
        })
        .collect();
    let all = listed("neighbours", netlink::neighbours(), unread);
    into.neighbours = all
        .into_iter()
        .filter_map(|n| neighbour(n, &devices))
        .collect();
}

/// Without what the kernel makes for every group and for itself.
fn neighbour(n: Neighbour, devices: &Devices) -> Option<state::Neighbour> {
    let addr = n.addr?;
    let broadcast = matches!(addr, IpAddr::V4(v4) if v4.is_broadcast());
    if addr.is_multicast() || addr.is_loopback() || addr.is_unspecified() || broadcast {
        return None;
    }
    Some(state::Neighbour {
        addr,
        dev: Arc::clone(devices.get(&n.ifindex)?),
        mac: n.mac,
        state: named(NEIGHBOUR_STATES, u32::from(n.state)),
    })
}

/// Forwarding databases of bridges, their ports and VXLAN devices; other
/// Ethernet devices have one that forwards nothing.
pub(super) fn fdb(into: &mut Namespace) {
    let forwards = |n: &Neighbour| {
        let link = into.links.iter().find(|l| l.ifindex == n.ifindex);
        n.master.is_some() || link.is_some_and(|l| matches!(&*l.kind, "vxlan" | "bridge"))
    };
    if !into
        .links
        .iter()
        .any(|l| matches!(&*l.kind, "vxlan" | "bridge"))
    {
        return;
    }
    let read = netlink::forwarding().map(|all| {
        let kept = all.into_iter().filter(|n| forwards(n) && !is_group(n));
        kept.collect()
    });
    let all: Vec<Neighbour> = listed("fdb", read, &mut into.unread);
    into.fdb = all
        .into_iter()
        .filter_map(|n| {
            let link = into.links.iter().find(|l| l.ifindex == n.ifindex)?;
            Some(Fdb {
                mac: n.mac?,
                dev: Arc::clone(&link.name),
                dst: n.addr,
            })
        })
        .collect();
}

/// The lowest bit of the first byte is that of group addresses.
fn is_group(n: &Neighbour) -> bool {
    let second = n.mac.as_ref().and_then(|mac| mac.as_bytes().get(1));
    second
        .is_some_and(|digit| matches!(digit, b'1' | b'3' | b'5' | b'7' | b'9' | b'b' | b'd' | b'f'))
}

/// Queueing disciplines that somebody asked for or that dropped something,
/// classifiers on them, and TCX programs on the interfaces `on`. Without ours.
pub(super) fn qdiscs(reader: &Reader, on: &[Arc<str>], into: &mut Namespace) {
    let all = listed("qdiscs", netlink::qdiscs(), &mut into.unread);
    let mut found = Vec::new();
    for qdisc in all {
        let Some(link) = into.links.iter().find(|l| l.ifindex == qdisc.ifindex) else {
            continue;
        };
        // clsact and ingress are nothing but places for classifiers.
        let place = matches!(&*qdisc.kind, "clsact" | "ingress");
        if (qdisc.handle != 0 && !place) || qdisc.drops > 0 {
            found.push(public(&qdisc, &link.name));
        }
        if qdisc.handle == 0 || reader.is_late() {
            continue;
        }
        match netlink::filters(&qdisc) {
            Ok(filters) => found.extend(
                filters
                    .iter()
                    .filter(|f| !is_ours(&f.detail))
                    .map(|f| public(f, &link.name)),
            ),
            Err(e) => into.unread.push(super::unread(
                "qdiscs",
                format!("classifiers on {} cannot be listed: {e}", link.name),
            )),
        }
    }
    for dev in on {
        for (at, side) in [
            (TcAttachType::Ingress, "ingress"),
            (TcAttachType::Egress, "egress"),
        ] {
            // An error where the kernel has no TCX (before 6.6), or the interface is gone.
            let Ok((_, programs)) = SchedClassifier::query_tcx(dev, at) else {
                continue;
            };
            let names = programs.iter().map(|p| p.name_as_str().unwrap_or_default());
            found.extend(names.filter(|name| !is_ours(name)).map(|name| Qdisc {
                dev: Arc::clone(dev),
                at: Arc::from(side),
                kind: Arc::from("tcx"),
                detail: name.to_owned(),
                dropped: 0,
            }));
        }
    }
    into.qdiscs = found;
}

/// Whether a program's name is one of this tool's, in whichever run.
fn is_ours(name: &str) -> bool {
    catalog::TC_LINK.contains(&name) || catalog::TC_L3.contains(&name)
}

fn public(sched: &Sched, dev: &Arc<str>) -> Qdisc {
    Qdisc {
        dev: Arc::clone(dev),
        at: Arc::from(match sched.side {
            Side::Root => "root",
            Side::Ingress => "ingress",
            Side::Egress => "egress",
        }),
        kind: Arc::clone(&sched.kind),
        detail: sched.detail.clone(),
        dropped: u64::from(sched.drops),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(addr: &str, mac: &str) -> Neighbour {
        Neighbour {
            ifindex: 2,
            addr: addr.parse().ok(),
            mac: Some(Arc::from(mac)),
            state: 0x80,
            master: None,
        }
    }

    #[test]
    fn groups_are_no_neighbours() {
        let devices = HashMap::from([(2, Arc::from("eth0"))]);
        let known = neighbour(entry("10.0.0.1", "66:b0:94:1d:fb:92"), &devices).unwrap();
        assert_eq!((&*known.dev, &*known.state), ("eth0", "permanent"));
        for group in ["224.0.0.22", "ff02::1", "255.255.255.255", "127.0.0.1"] {
            assert_eq!(neighbour(entry(group, "33:33:00:00:00:01"), &devices), None);
        }
        assert!(is_group(&entry("", "33:33:00:00:00:01")));
        assert!(!is_group(&entry("", "00:00:00:00:00:00")));
    }

    #[test]
    fn unknown_constants_are_numbers() {
        assert_eq!(&*named(ROUTE_TYPES, 6), "blackhole");
        assert_eq!(&*named(ROUTE_TYPES, 77), "77");
    }

    #[test]
    fn long_lists_say_that_they_are_not_whole() {
        let mut unread = Vec::new();
        let kept = listed("routes", Ok(vec![0u8; MOST + 1]), &mut unread);
        assert_eq!((kept.len(), unread.len()), (MOST, 1));
        let failed: io::Result<Vec<u8>> = Err(io::Error::from_raw_os_error(libc::EPERM));
        assert!(listed("routes", failed, &mut unread).is_empty());
        assert_eq!(unread.len(), 2);
    }

    #[test]
    fn our_own_programs_are_not_other_peoples() {
        assert!(is_ours("tracer_in") && !is_ours("cil_from_netdev"));
    }
}
