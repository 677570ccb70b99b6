//! Sets as `ipset save` writes them (`ipset(8)`), and whether a packet is in one.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use super::model::{Direction, Net, Ports, bits, prefix_mask, width};
use super::packet::Packet;
use super::parse::Problem;
use super::words::{protocol, split};

/// A set.
#[derive(Clone, Debug)]
pub struct IpSet {
    /// Name.
    pub name: Arc<str>,
    /// Type, as `hash:ip,port`.
    pub kind: Arc<str>,
    /// True for `family inet6`; absent where the type has no family.
    pub ipv6: Option<bool>,
    /// `netmask` of `hash:ip`: addresses are compared under it.
    pub netmask: Option<u32>,
    /// What of it was not understood, so that it cannot be asked.
    pub unknown: Option<Arc<str>>,
    /// Elements.
    pub elements: Vec<Element>,
}

/// An element.
#[derive(Clone, Debug, PartialEq)]
pub struct Element {
    /// Its parts, in the type's order.
    pub parts: Vec<Part>,
    /// An exception.
    pub nomatch: bool,
}

/// A part of an element.
#[derive(Clone, Debug, PartialEq)]
pub enum Part {
    /// Addresses.
    Net(Net),
    /// Addresses from the first to the second.
    Range(IpAddr, IpAddr),
    /// Ports of a protocol, or of any that has ports.
    Port(Option<u8>, Ports),
    /// ICMP type and code.
    Icmp(u8, u8, u8),
    /// A mark.
    Mark(u32),
    /// An interface.
    Interface(Arc<str>),
    /// Another set, in a `list:set`.
    Set(Arc<str>),
}

/// Reads the text; lines that are not understood become problems, and the sets
/// that they concern cannot be asked.
pub(super) fn parse(text: &str, problems: &mut Vec<Problem>) -> BTreeMap<Arc<str>, IpSet> {
    let mut sets: BTreeMap<Arc<str>, IpSet> = BTreeMap::new();
    for (number, line) in text.lines().enumerate() {
        let trimmed = line.trim();
        if trimmed.is_empty() || trimmed.starts_with('#') {
            continue;
        }
        if let Err(why) = read(trimmed, &mut sets) {
            problems.push(Problem {
                line: number + 1,
                text: line.to_owned(),
                why,
            });
        }
    }
    sets
}

fn read(line: &str, sets: &mut BTreeMap<Arc<str>, IpSet>) -> Result<(), String> {
    let words = split(line)?;
    let words: Vec<&str> = words.iter().map(|w| w.text.as_str()).collect();
    match *words.as_slice() {
        ["create", name, kind, ref options @ ..] => {
            let set = create(name, kind, options);
            let why = set.unknown.clone();
            sets.insert(Arc::clone(&set.name), set);
            why.map_or(Ok(()), |why| Err(why.to_string()))
        }
        ["add", name, value, ref options @ ..] => {
            let set = sets.get_mut(name).ok_or("the set was not created")?;
            if set.unknown.is_some() {
                // Said once, at its creation.
                return Ok(());
            }
            let Some(parts) = element(&set.kind, value) else {
                let why = format!("element {value} of {} is not understood", set.kind);
                set.unknown = Some(why.as_str().into());
                return Err(why);
            };
            set.elements.push(Element {
                parts,
                nomatch: options.contains(&"nomatch"),
            });
            Ok(())
        }
        _ => Err("neither create nor add".into()),
    }
}

fn create(name: &str, kind: &str, options: &[&str]) -> IpSet {
    let value = |option: &str| {
        let at = options.iter().position(|o| *o == option)?;
        options.get(at + 1).copied()
    };
    let netmask = value("netmask");
    let mut set = IpSet {
        name: name.into(),
        kind: kind.into(),
        ipv6: value("family").map(|family| family == "inet6"),
        netmask: netmask.and_then(|m| m.parse().ok()),
        unknown: None,
        elements: Vec::new(),
    };
    let known = parts_of(kind).is_some_and(|parts| {
        let all = ["ip", "net", "port", "mark", "iface", "set"];
        parts.iter().all(|part| all.contains(part))
    });
    if !known {
        set.unknown = Some(format!("sets of type {kind} are not understood").into());
    } else if value("bitmask").is_some() || (netmask.is_some() && set.netmask.is_none()) {
        set.unknown = Some("its mask is not understood".into());
    }
    set
}

fn parts_of(kind: &str) -> Option<Vec<&str>> {
    Some(kind.split_once(':')?.1.split(',').collect())
}

fn element(kind: &str, value: &str) -> Option<Vec<Part>> {
    let kinds = parts_of(kind)?;
    let values: Vec<&str> = value.split(',').collect();
    if kinds.len() != values.len() {
        return None;
    }
    kinds.into_iter().zip(values).map(part).collect()
}

fn part((kind, value): (&str, &str)) -> Option<Part> {
    Some(match kind {
        "ip" | "net" => match value.split_once('-') {
            Some((from, to)) => Part::Range(from.parse().ok()?, to.parse().ok()?),
            None => Part::Net(Net::parse(value)?),
        },
        "port" => match value.split_once(':') {
            None => Part::Port(None, Ports::parse(value)?),
            Some((name, rest)) => {
                let number = protocol(name)?;
                match (number, rest.split_once('/')) {
                    (_, Some((kind, code))) => {
                        Part::Icmp(number, kind.parse().ok()?, code.parse().ok()?)
                    }
                    (1 | 58, None) => {
                        let (kind, code) = icmp(number, rest)?;
                        Part::Icmp(number, kind, code)
                    }
                    _ => Part::Port(Some(number), Ports::parse(rest)?),
                }
            }
        },
        "mark" => Part::Mark(super::words::number(value)?),
        "iface" => Part::Interface(value.into()),
        "set" => Part::Set(value.into()),
        _ => return None,
    })
}

/// Type and code of the ICMP messages that are worth a rule, as ipset names them
/// (`lib/icmp.c`, `lib/icmpv6.c`).
fn icmp(proto: u8, name: &str) -> Option<(u8, u8)> {
    Some(match (proto, name) {
        (1, "echo-reply") => (0, 0),
        (1, "network-unreachable") | (58, "ttl-zero-during-transit") => (3, 0),
        (1, "host-unreachable") => (3, 1),
        (1, "protocol-unreachable") => (3, 2),
        (1, "port-unreachable") => (3, 3),
        (1, "fragmentation-needed") => (3, 4),
        (1, "echo-request") => (8, 0),
        (1, "ttl-zero-during-transit") => (11, 0),
        (58, "no-route") => (1, 0),
        (58, "port-unreachable") => (1, 4),
        (58, "packet-too-big") => (2, 0),
        (58, "echo-request") => (128, 0),
        (58, "echo-reply") => (129, 0),
        _ => return None,
    })
}

/// How deep lists of sets are followed; the kernel allows no lists in lists.
const DEPTH: u32 = 2;

/// Whether the packet is in the set, its sides compared with the parts in this
/// order; an error says what is missing to tell.
pub(super) fn contains(
    sets: &BTreeMap<Arc<str>, IpSet>,
    name: &str,
    sides: &[Direction],
    packet: &Packet,
) -> Result<bool, String> {
    inner(sets, name, sides, packet, DEPTH)
}

fn inner(
    sets: &BTreeMap<Arc<str>, IpSet>,
    name: &str,
    sides: &[Direction],
    packet: &Packet,
    depth: u32,
) -> Result<bool, String> {
    let set = sets
        .get(name)
        .ok_or_else(|| format!("set {name} was not read"))?;
    if let Some(unknown) = &set.unknown {
        return Err(format!("set {name}: {unknown}"));
    }
    if set.ipv6.is_some_and(|v6| v6 != packet.dst.is_ipv6()) {
        return Ok(false);
    }
    if &*set.kind == "list:set" {
        for element in &set.elements {
            let [Part::Set(member)] = &*element.parts else {
                continue;
            };
            if depth > 0 && inner(sets, member, sides, packet, depth - 1)? {
                return Ok(!element.nomatch);
            }
        }
        return Ok(false);
    }
    // Fewer sides than parts never match (`ip_set_test`, net/netfilter/ipset/ip_set_core.c).
    if parts_of(&set.kind).is_none_or(|parts| parts.len() > sides.len()) {
        return Ok(false);
    }
    // The most specific element decides.
    let mut best: Option<(Vec<u32>, bool)> = None;
    for element in &set.elements {
        if let Some(weight) = holds(element, sides, packet, set.netmask)?
            && best.as_ref().is_none_or(|(w, _)| weight > *w)
        {
            best = Some((weight, !element.nomatch));
        }
    }
    Ok(best.is_some_and(|(_, is_in)| is_in))
}

/// How specific the element is, if the packet is in it.
fn holds(
    element: &Element,
    sides: &[Direction],
    packet: &Packet,
    netmask: Option<u32>,
) -> Result<Option<Vec<u32>>, String> {
    let mut weight = Vec::with_capacity(element.parts.len());
    for (part, side) in element.parts.iter().zip(sides) {
        let addr = packet.addr(*side);
        let specific = match part {
            Part::Net(net) => net.contains(masked(addr, netmask)).then(|| net.prefix()),
            Part::Range(from, to) => (from.is_ipv4() == addr.is_ipv4()
                && (bits(*from)..=bits(*to)).contains(&bits(addr)))
            .then(|| width(addr)),
            Part::Port(proto, ports) => {
                if proto.is_some_and(|p| p != packet.proto) || packet.fragment {
                    None
                } else if proto.is_some() && !packet.has_ports() {
                    // A protocol without ports has port 0.
                    ports.contains(0).then_some(0)
                } else if packet.has_ports() {
                    let port = packet.port(*side).ok_or("the packet's port is not given")?;
                    ports.contains(port).then_some(0)
                } else {
                    None
                }
            }
            Part::Icmp(proto, kind, code) if *proto == packet.proto => {
                let icmp = packet.icmp.ok_or("the packet's ICMP type is not given")?;
                (icmp == (*kind, *code)).then_some(0)
            }
            Part::Mark(mark) => (*mark == packet.mark).then_some(0),
            Part::Interface(name) => {
                let dev = packet.dev(*side).ok_or("the interface is not given")?;
                (*dev == **name).then_some(0)
            }
            Part::Icmp(..) | Part::Set(_) => None,
        };
        match specific {
            Some(n) => weight.push(n),
            None => return Ok(None),
        }
    }
    Ok(Some(weight))
}

fn masked(addr: IpAddr, prefix: Option<u32>) -> IpAddr {
    let Some(prefix) = prefix else {
        return addr;
    };
    match addr {
        IpAddr::V4(a) => IpAddr::V4((a.to_bits() & prefix_mask(prefix, 32) as u32).into()),
        IpAddr::V6(a) => IpAddr::V6((a.to_bits() & prefix_mask(prefix, 128)).into()),
    }
}

/// What of the packet the set was asked for, as an element would be written.
pub(super) fn asked(set: Option<&IpSet>, sides: &[Direction], packet: &Packet) -> String {
    let kinds = set.and_then(|s| parts_of(&s.kind)).unwrap_or_default();
    let mut parts = Vec::new();
    for (at, side) in sides.iter().enumerate() {
        let port = packet.port(*side);
        parts.push(match (kinds.get(at).copied(), port) {
            (Some("port"), Some(port)) => port.to_string(),
            (Some("iface"), _) => packet.dev(*side).unwrap_or_default().to_owned(),
            _ => packet.addr(*side).to_string(),
        });
    }
    parts.join(",")
}
