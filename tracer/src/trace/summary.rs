//! What a packet is, in a few words.

use crate::trace::{Icmp, Step};

/// The packet that a step shows: `SYN`, `PSH-ACK 77 B`, `UDP 38 B`, ...
pub fn summary(step: &Step) -> String {
    if let Some(tcp) = &step.tcp {
        return tcp_summary(&tcp.flags, step.payload);
    }
    if let (Some(icmp), "icmp" | "icmpv6") = (step.icmp, &*step.proto) {
        return icmp_summary(icmp, step.proto == "icmpv6");
    }
    let fragment = step
        .ip
        .as_ref()
        .is_some_and(|ip| ip.more_fragments || ip.frag_offset.is_some());
    let name = step.proto.to_uppercase();
    let tail = if fragment { " fragment" } else { "" };
    format!("{name}{tail} {} B", step.payload)
}

fn tcp_summary(flags: &str, payload: u32) -> String {
    if flags.contains('R') {
        return "RST".into();
    }
    let names = [
        ('F', "FIN"),
        ('S', "SYN"),
        ('P', "PSH"),
        ('U', "URG"),
        ('.', "ACK"),
    ];
    let set: Vec<&str> = names
        .iter()
        .filter(|(c, _)| flags.contains(*c))
        .map(|(_, name)| *name)
        .collect();
    let name = if set.is_empty() {
        "TCP without flags".into()
    } else {
        set.join("-")
    };
    if payload > 0 {
        format!("{name} {payload} B")
    } else {
        name
    }
}

/// An ICMP message: RFC 792, RFC 4443.
pub fn icmp_summary(icmp: Icmp, v6: bool) -> String {
    let Icmp { kind, code, mtu } = icmp;
    if let Some(mtu) = mtu {
        return if v6 {
            format!("ICMPv6 packet too big (mtu {mtu})")
        } else {
            format!("ICMP fragmentation needed (mtu {mtu})")
        };
    }
    let what = if v6 {
        icmp6_name(kind, code)
    } else {
        icmp4_name(kind, code)
    };
    let family = if v6 { "ICMPv6" } else { "ICMP" };
    match what {
        Some(what) => format!("{family} {what}"),
        None => format!("{family} type {kind} code {code}"),
    }
}

fn icmp4_name(kind: u8, code: u8) -> Option<&'static str> {
    Some(match (kind, code) {
        (0, _) => "echo reply",
        (3, 0) => "network unreachable",
        (3, 1) => "host unreachable",
        (3, 2) => "protocol unreachable",
        (3, 3) => "port unreachable",
        (3, 4) => "fragmentation needed",
        (3, 9 | 10 | 13) => "administratively prohibited",
        (5, _) => "redirect",
        (8, _) => "echo request",
        (11, 0) => "time exceeded",
        (11, 1) => "fragment reassembly time exceeded",
        (12, _) => "parameter problem",
        _ => return None,
    })
}

fn icmp6_name(kind: u8, code: u8) -> Option<&'static str> {
    Some(match (kind, code) {
        (1, 0) => "no route to destination",
        (1, 1) => "administratively prohibited",
        (1, 3) => "address unreachable",
        (1, 4) => "port unreachable",
        (2, _) => "packet too big",
        (3, 0) => "time exceeded",
        (3, 1) => "fragment reassembly time exceeded",
        (4, _) => "parameter problem",
        (128, _) => "echo request",
        (129, _) => "echo reply",
        _ => return None,
    })
}
