//! What `/proc` tells about the thread's namespace: sysctls, counters, sockets
//! that listen, IPVS.
//!
//! `/proc/sys/net` and `/proc/thread-self/net` show the namespace of the thread
//! that opens a file there; `/proc/net` is the process's.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use crate::netlink::{Attrs, Message, collect};
use crate::state::{Listener, Namespace};

/// Longest file that is read.
const LIMIT: u64 = 8 << 20;
/// Sockets beyond this are left out.
const MOST_LISTENERS: usize = 4096;

/// Sysctls by their name without `net.`.
const SYSCTLS: &[&str] = &[
    "ipv4.ip_forward",
    "netfilter.nf_conntrack_max",
    "netfilter.nf_conntrack_count",
    "netfilter.nf_conntrack_tcp_be_liberal",
    "bridge.bridge-nf-call-iptables",
    "bridge.bridge-nf-call-ip6tables",
];
/// Those of each interface.
const INTERFACE_SYSCTLS: &[(&str, &str)] = &[
    ("ipv4", "forwarding"),
    ("ipv4", "rp_filter"),
    ("ipv4", "proxy_arp"),
    ("ipv4", "accept_local"),
    ("ipv4", "src_valid_mark"),
    ("ipv4", "route_localnet"),
    ("ipv6", "forwarding"),
    ("ipv6", "disable_ipv6"),
];

/// Counters of `/proc/net/{netstat,snmp,snmp6}` that findings use, as `nstat`
/// names them.
const COUNTERS: &[&str] = &[
    "TcpExtListenOverflows",
    "TcpExtListenDrops",
    "TcpExtIPReversePathFilter",
    "TcpExtTCPBacklogDrop",
    "TcpExtTCPReqQFullDrop",
    "IpInHdrErrors",
    "IpInAddrErrors",
    "IpForwDatagrams",
    "IpInDiscards",
    "IpOutDiscards",
    "IpOutNoRoutes",
    "IpReasmTimeout",
    "IpReasmReqds",
    "IpReasmFails",
    "IpFragFails",
    "IpFragCreates",
    "IpExtInNoRoutes",
    "IpExtInCsumErrors",
    "IcmpInDestUnreachs",
    "IcmpOutDestUnreachs",
    "IcmpInTimeExcds",
    "IcmpOutTimeExcds",
    "TcpOutRsts",
    "TcpInCsumErrors",
    "TcpRetransSegs",
    "UdpNoPorts",
    "UdpRcvbufErrors",
    "UdpInCsumErrors",
    "Ip6InHdrErrors",
    "Ip6InTooBigErrors",
    "Ip6InNoRoutes",
    "Ip6InAddrErrors",
    "Ip6InDiscards",
    "Ip6OutForwDatagrams",
    "Ip6OutDiscards",
    "Ip6OutNoRoutes",
    "Ip6ReasmReqds",
    "Ip6ReasmFails",
    "Ip6FragFails",
    "Ip6FragCreates",
    "Icmp6InDestUnreachs",
    "Icmp6OutDestUnreachs",
    "Icmp6OutPktTooBigs",
    "Udp6NoPorts",
    "Udp6RcvbufErrors",
    "Udp6InCsumErrors",
];

/// Columns of `/proc/net/stat/nf_conntrack` that are sums of events, and the
/// counter's name. "chainlength" is the number of chains that were too long.
const CONNTRACK: &[(&str, &str)] = &[
    ("invalid", "invalid"),
    ("insert_failed", "insert_failed"),
    ("drop", "drop"),
    ("early_drop", "early_drop"),
    ("icmp_error", "icmp_error"),
    ("clashres", "clashres"),
    ("chainlength", "chaintoolong"),
];

/// `IPCTNL_MSG_CT_GET_STATS_CPU` of `NFNL_SUBSYS_CTNETLINK`, and the type of its
/// answers, which is the same; with `CTA_STATS_*`, all in
/// `include/uapi/linux/netfilter/nfnetlink_conntrack.h`.
const CT_STATS: u16 = 1 << 8 | 4;
const CT_STATS_NAMES: &[(u16, &str)] = &[
    (4, "invalid"),
    (9, "insert_failed"),
    (10, "drop"),
    (11, "early_drop"),
    (12, "icmp_error"),
    (14, "clashres"),
    (15, "chaintoolong"),
];

/// A whole file; `None` where there is no such file.
fn read(path: &str) -> io::Result<Option<String>> {
    let mut bytes = Vec::new();
    let done = File::open(path).and_then(|f| f.take(LIMIT).read_to_end(&mut bytes));
    match done {
        Ok(_) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        // A protocol that was turned off at boot has its files, not their content.
        Err(e) if e.raw_os_error() == Some(libc::EAFNOSUPPORT) => Ok(None),
        Err(e) => Err(e),
    }
}

/// A file below the namespace's own `/proc/net`; failures are noted.
pub(super) fn net(name: &str, what: &str, into: &mut Namespace) -> Option<String> {
    read(&format!("/proc/thread-self/net/{name}")).unwrap_or_else(|e| {
        let why = format!("/proc/net/{name} cannot be read: {e}");
        into.unread.push(super::unread(what, why));
        None
    })
}

/// Sysctls of the namespace and of the interfaces.
pub(super) fn sysctls(interfaces: &[Arc<str>], into: &mut Namespace) {
    let mut wanted: Vec<(String, String)> = SYSCTLS
        .iter()
        .map(|name| {
            (
                format!("net.{name}"),
                format!("net/{}", name.replace('.', "/")),
            )
        })
        .collect();
    let interfaces = interfaces.iter().map(|i| &**i);
    for interface in ["all", "default"].into_iter().chain(interfaces) {
        for (family, name) in INTERFACE_SYSCTLS {
            wanted.push((
                format!("net.{family}.conf.{interface}.{name}"),
                format!("net/{family}/conf/{interface}/{name}"),
            ));
        }
    }
    for (name, path) in wanted {
        // What is not there is not known to this kernel or namespace.
        if let Ok(value) = fs::read_to_string(format!("/proc/sys/{path}")) {
            into.sysctls.insert(name, value.trim().to_owned());
        }
    }
}

/// `/proc/net/snmp` and `netstat`: lines in pairs, names and values, each with
/// the group's prefix.
fn paired(text: &str, into: &mut BTreeMap<String, u64>) {
    let mut lines = text.lines();
    while let (Some(names), Some(values)) = (lines.next(), lines.next()) {
        let (Some((group, names)), Some((_, values))) =
            (names.split_once(':'), values.split_once(':'))
        else {
            continue;
        };
        for (name, value) in names.split_whitespace().zip(values.split_whitespace()) {
            keep(&format!("{group}{name}"), value, into);
        }
    }
}

/// `/proc/net/snmp6`: a name and a value on each line.
fn listed(text: &str, into: &mut BTreeMap<String, u64>) {
    for line in text.lines() {
        if let Some((name, value)) = line.split_once(char::is_whitespace) {
            keep(name, value.trim(), into);
        }
    }
}

fn keep(name: &str, value: &str, into: &mut BTreeMap<String, u64>) {
    if COUNTERS.contains(&name)
        && let Ok(value) = value.parse()
    {
        into.insert(name.to_owned(), value);
    }
}

/// `/proc/net/stat/nf_conntrack`: a line of names, then a line of hexadecimal
/// numbers for each CPU (`ct_cpu_seq_show`, `nf_conntrack_standalone.c`).
fn per_cpu(text: &str, into: &mut BTreeMap<String, u64>) {
    let mut lines = text.lines();
    let names: Vec<&str> = lines
        .next()
        .unwrap_or_default()
        .split_whitespace()
        .collect();
    for line in lines {
        for (name, value) in names.iter().zip(line.split_whitespace()) {
            if let Some((_, counter)) = CONNTRACK.iter().find(|(column, _)| column == name)
                && let Ok(value) = u64::from_str_radix(value, 16)
            {
                *into.entry(format!("conntrack.{counter}")).or_default() += value;
            }
        }
    }
}

/// The same over ctnetlink: `struct nfgenmsg`, 4 bytes, then the numbers of one
/// CPU in network order.
fn ct_stats(m: Message<'_>) -> Vec<(&'static str, u32)> {
    if m.kind != CT_STATS {
        return Vec::new();
    }
    let attrs = Attrs(m.body.get(4..).unwrap_or_default());
    attrs
        .filter_map(|(kind, value)| {
            let (_, name) = CT_STATS_NAMES.iter().find(|(k, _)| *k == kind)?;
            Some((*name, value.be32()?))
        })
        .collect()
}

/// Counters of the namespace.
pub(super) fn counters(into: &mut Namespace) {
    for name in ["netstat", "snmp"] {
        if let Some(text) = net(name, "counters", into) {
            paired(&text, &mut into.counters);
        }
    }
    if let Some(text) = net("snmp6", "counters", into) {
        listed(&text, &mut into.counters);
    }
    // Without connection tracking there is no count, and asking would load it.
    let count = fs::read_to_string("/proc/sys/net/netfilter/nf_conntrack_count");
    let Some(count) = count.ok().and_then(|text| text.trim().parse().ok()) else {
        return;
    };
    into.counters.insert("conntrack.count".to_owned(), count);
    if let Some(text) = net("stat/nf_conntrack", "counters", into) {
        per_cpu(&text, &mut into.counters);
        return;
    }
    // The kernel was built without CONFIG_NF_CONNTRACK_PROCFS.
    match collect(libc::NETLINK_NETFILTER, CT_STATS, &[0; 4], ct_stats) {
        Ok(all) => {
            for (name, value) in all {
                let sum = into
                    .counters
                    .entry(format!("conntrack.{name}"))
                    .or_default();
                *sum += u64::from(value);
            }
        }
        Err(e) => into.unread.push(super::unread(
            "counters",
            format!("connection tracking does not tell its statistics: {e}"),
        )),
    }
}

/// A line of `/proc/net/{tcp,udp}{,6}` (`proc_net_tcp.rst`): local address and
/// state. The address is in words of four bytes, each as the CPU has it.
fn socket(line: &str) -> Option<(IpAddr, u16, u8)> {
    let mut fields = line.split_whitespace().skip(1);
    let (addr, port) = fields.next()?.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let state = u8::from_str_radix(fields.nth(1)?, 16).ok()?;
    let word = |at: usize| {
        let digits = addr.get(at * 8..at * 8 + 8)?;
        Some(u32::from_str_radix(digits, 16).ok()?.to_ne_bytes())
    };
    let addr: IpAddr = match addr.len() {
        8 => Ipv4Addr::from(word(0)?).into(),
        32 => {
            let mut bytes = [0; 16];
            for (at, part) in bytes.chunks_exact_mut(4).enumerate() {
                part.copy_from_slice(&word(at)?);
            }
            Ipv6Addr::from(bytes).into()
        }
        _ => return None,
    };
    Some((addr, port, state))
}

/// `TCP_LISTEN`, and `TCP_CLOSE`, which UDP uses for sockets without a peer
/// (`include/net/tcp_states.h`).
const LISTEN: u8 = 10;
const UNCONNECTED: u8 = 7;

/// Sockets in the state wanted. Of TCP, the kernel lists those that listen before all
/// others (`tcp_seek_last_pos`, `net/ipv4/tcp_ipv4.c`): the rest, which may be
/// long, is not even produced.
fn sockets(from: impl BufRead, tcp: bool) -> Vec<Listener> {
    let wanted = if tcp { LISTEN } else { UNCONNECTED };
    let all = from.lines().skip(1).map_while(Result::ok);
    all.map_while(|line| socket(&line))
        .take_while(|(.., state)| !tcp || *state == wanted)
        .filter(|(.., state)| *state == wanted)
        .map(|(addr, port, _)| Listener { tcp, addr, port })
        .take(MOST_LISTENERS)
        .collect()
}

/// Sockets that listen or are bound.
pub(super) fn listeners(into: &mut Namespace) {
    for (name, tcp) in [
        ("tcp", true),
        ("tcp6", true),
        ("udp", false),
        ("udp6", false),
    ] {
        match File::open(format!("/proc/thread-self/net/{name}")) {
            Ok(file) => into.listeners.extend(sockets(BufReader::new(file), tcp)),
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => {
                let why = format!("/proc/net/{name} cannot be read: {e}");
                into.unread.push(super::unread("listeners", why));
            }
        }
    }
}

/// Virtual servers of IPVS, where there are any.
pub(super) fn ipvs(into: &mut Namespace) {
    // Three lines of headings; the file is not there unless IPVS is.
    let text = net("ip_vs", "ipvs", into);
    into.ipvs = text.filter(|text| text.lines().nth(3).is_some());
}

#[cfg(test)]
mod tests;
