//! Whether one match holds for a packet.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::net::IpAddr;
use std::sync::Arc;

use super::decision::Assumption;
use super::ipset::{self, IpSet};
use super::local::{Local, RouteBack};
use super::model::{Condition, CtStatus, CtTest, Direction, Limit, Match, Net, Ports};
use super::packet::{CtState, Packet};

/// Whether a match holds.
#[derive(Debug, PartialEq)]
pub(super) enum Answer {
    /// It does or does not.
    Is(bool),
    /// With this probability.
    Chance(f64),
    /// It depends on a list nobody has assumed anything about yet.
    Recent {
        /// The list.
        list: Arc<str>,
        /// How it is asked.
        options: Arc<str>,
    },
    /// It cannot be told, and what would be needed.
    Unknown(String),
}

/// What matches are asked about.
pub(super) struct Asked<'a> {
    pub(super) sets: &'a BTreeMap<Arc<str>, IpSet>,
    pub(super) packet: &'a Packet,
    pub(super) local: &'a dyn Local,
    pub(super) assuming: &'a [Assumption],
}

type Known = Result<bool, String>;

fn missing<T>(what: &str) -> Result<T, String> {
    Err(format!("the packet's {what}, which is not known"))
}

impl Asked<'_> {
    /// Whether the condition holds; the rule that it is of has all of these.
    pub(super) fn check(&self, condition: &Condition, of: &[Condition]) -> Answer {
        if let Some(holds) = self.regardless(&condition.test, of) {
            return Answer::Is(holds);
        }
        let known = match &condition.test {
            Match::Chance(p) => {
                return Answer::Chance(if condition.not { 1.0 - p } else { *p });
            }
            Match::Recent { list, options } => {
                let assumed = self
                    .assuming
                    .iter()
                    .find(|a| a.list == *list && a.options == *options);
                match assumed {
                    Some(assumed) => Ok(assumed.listed),
                    None => {
                        return Answer::Recent {
                            list: Arc::clone(list),
                            options: Arc::clone(options),
                        };
                    }
                }
            }
            test => self.test(test),
        };
        match known {
            Ok(holds) => Answer::Is(holds != condition.not),
            Err(what) => Answer::Unknown(what),
        }
    }

    /// What some matches answer, negated or not, where what they ask for is not
    /// there: a later fragment has no ports (`net/netfilter/xt_tcpudp.c`,
    /// `xt_multiport.c`); of a packet without connection the conntrack match
    /// knows the state alone (`xt_conntrack.c`), and connmark nothing.
    fn regardless(&self, test: &Match, of: &[Condition]) -> Option<bool> {
        let state = |c: &Condition| matches!(c.test, Match::Ct(CtTest::State(_)));
        match test {
            Match::SourcePort(_)
            | Match::DestinationPort(_)
            | Match::EitherPort(_)
            | Match::TcpFlags { .. }
            | Match::Icmp(..) => self.packet.fragment.then_some(false),
            Match::ConnMark(..) => no_connection(self.packet).then_some(false),
            Match::Ct(CtTest::State(_)) => None,
            Match::Ct(_) => no_connection(self.packet).then(|| of.iter().any(state)),
            _ => None,
        }
    }

    fn test(&self, test: &Match) -> Known {
        let packet = self.packet;
        Ok(match test {
            Match::Always => true,
            Match::Source(net) => net.contains(packet.src),
            Match::Destination(net) => net.contains(packet.dst),
            Match::In(name) => return interface(name, packet.iif.as_deref(), "input interface"),
            Match::Out(name) => return interface(name, packet.oif.as_deref(), "output interface"),
            Match::BridgePortIn(name) => {
                return match packet.bridge_port.as_deref() {
                    Some("") => Ok(false),
                    port => interface(name, port, "bridge port"),
                };
            }
            Match::Protocol(number) => *number == packet.proto,
            Match::Fragment => packet.fragment,
            Match::SourcePort(ports) => return self.port(ports, &[Direction::Src]),
            Match::DestinationPort(ports) => return self.port(ports, &[Direction::Dst]),
            Match::EitherPort(ports) => return self.port(ports, &[Direction::Src, Direction::Dst]),
            Match::TcpFlags { mask, set } => {
                if packet.proto != 6 {
                    return Ok(false);
                }
                match packet.tcp_flags {
                    Some(flags) => flags & mask == *set,
                    None => return missing("TCP flags"),
                }
            }
            Match::Icmp(kind, code) => {
                if !matches!(packet.proto, 1 | 58) {
                    return Ok(false);
                }
                match packet.icmp {
                    Some((k, c)) => k == *kind && code.is_none_or(|code| code == c),
                    None => return missing("ICMP type"),
                }
            }
            Match::Set { name, sides } => {
                return ipset::contains(self.sets, name, sides, packet);
            }
            Match::Mark(value, mask) => packet.mark & mask == *value,
            Match::ConnMark(value, mask) => match packet.connmark() {
                Some(mark) => mark & mask == *value,
                None => return missing("connection mark"),
            },
            Match::Ct(test) => return conntrack(test, packet),
            Match::AddrType { side, types, limit } => return self.addr_type(*side, types, *limit),
            Match::ReversePath { loose, validmark } => return self.rpfilter(*loose, *validmark),
            Match::Length(from, to) => match packet.len {
                Some(len) => (*from..=*to).contains(&len),
                None => return missing("length"),
            },
            Match::Unknown { name, args } => return Err(format!("match {name} {args}")),
            // Answered before.
            Match::Chance(_) | Match::Recent { .. } => return Err("chance".into()),
        })
    }

    fn port(&self, ports: &[Ports], sides: &[Direction]) -> Known {
        if !self.packet.has_ports() {
            return Ok(false);
        }
        for side in sides {
            match self.packet.port(*side) {
                Some(port) if ports.iter().any(|p| p.contains(port)) => return Ok(true),
                Some(_) => {}
                None => return missing("port"),
            }
        }
        Ok(false)
    }

    fn addr_type(&self, side: Direction, types: &[Arc<str>], limit: Option<Limit>) -> Known {
        let dev = match limit {
            None => None,
            Some(Limit::In) => Some(self.packet.iif.as_deref()),
            Some(Limit::Out) => Some(self.packet.oif.as_deref()),
        };
        let dev = match dev {
            Some(None) => return missing("interface"),
            Some(dev) => dev,
            None => None,
        };
        let addr = self.packet.addr(side);
        let kind = self
            .local
            .addr_type(addr, dev)
            .ok_or_else(|| format!("the type of address {addr}, for no routes were read"))?;
        Ok(types.iter().any(|t| **t == *kind.name()))
    }

    /// `rpfilter_mt`, `net/ipv4/netfilter/ipt_rpfilter.c` and its IPv6 twin.
    fn rpfilter(&self, loose: bool, validmark: bool) -> Known {
        let packet = self.packet;
        let Some(iif) = packet.iif.as_deref() else {
            return missing("input interface");
        };
        match (packet.src, packet.dst) {
            _ if iif == "lo" => return Ok(true),
            (IpAddr::V4(src), IpAddr::V4(dst)) if src.octets()[0] == 0 => {
                return Ok(dst.octets()[..3] == [224, 0, 0]);
            }
            (src, _) if src.is_unspecified() => return Ok(true),
            _ => {}
        }
        let mark = if validmark { packet.mark } else { 0 };
        match self.local.route_back(packet.src, packet.dst, mark) {
            Some(RouteBack::Devices(devs)) => Ok(loose || devs.iter().any(|d| **d == *iif)),
            Some(RouteBack::Local | RouteBack::None) => Ok(false),
            None => Err(format!("the route back to {}", packet.src)),
        }
    }

    /// Why the condition does not hold.
    pub(super) fn why(&self, condition: &Condition) -> String {
        let packet = self.packet;
        let not = condition.not;
        let is = |subject: &str, value: &dyn Display, wanted: &dyn Display| {
            let is = if not { "is" } else { "is not" };
            format!("{subject} {value} {is} {wanted}")
        };
        let port = |p: Option<u16>| p.map_or_else(|| "of no port".into(), |p| p.to_string());
        match &condition.test {
            Match::Source(net) => is("source", &packet.src, &within(net)),
            Match::Destination(net) => is("destination", &packet.dst, &within(net)),
            Match::In(name) => is("input interface", &text(packet.iif.as_ref()), name),
            Match::Out(name) => is("output interface", &text(packet.oif.as_ref()), name),
            Match::Protocol(number) => is("protocol", &packet.proto, number),
            Match::SourcePort(ports) => is("sport", &port(packet.sport), &list(ports)),
            Match::DestinationPort(ports) => is("dport", &port(packet.dport), &list(ports)),
            Match::Set { name, sides } => {
                let contains = if not { "contains" } else { "does not contain" };
                let names = sides.iter().map(|s| match s {
                    Direction::Src => "src",
                    Direction::Dst => "dst",
                });
                let names: Vec<&str> = names.collect();
                let asked = ipset::asked(self.sets.get(name), sides, packet);
                format!("set {name} {} {contains} {asked}", names.join(","))
            }
            Match::AddrType { side, types, .. } => {
                let subject = match side {
                    Direction::Src => "source",
                    Direction::Dst => "destination",
                };
                is(subject, &packet.addr(*side), &types.join(" or "))
            }
            Match::TcpFlags { mask, set } => {
                let flags = packet.tcp_flags.unwrap_or(0) & mask;
                is("TCP flags", &format!("{flags:#x}"), &format!("{set:#x}"))
            }
            test if not => format!("{test:?} holds"),
            test => format!("{test:?} does not hold"),
        }
    }
}

fn within(net: &Net) -> String {
    if matches!(net.prefix(), 32 | 128) {
        net.to_string()
    } else {
        format!("in {net}")
    }
}

fn text(name: Option<&Arc<str>>) -> &str {
    name.map_or("", |n| n)
}

fn list(ports: &[Ports]) -> String {
    let ports: Vec<String> = ports.iter().map(Ports::to_string).collect();
    ports.join(",")
}

/// Names compare up to a final `+`; no interface has an empty name.
fn interface(pattern: &str, name: Option<&str>, what: &str) -> Known {
    let Some(name) = name else {
        return missing(what);
    };
    Ok(match pattern.strip_suffix('+') {
        Some(start) => name.starts_with(start),
        None => name == pattern,
    })
}

fn no_connection(packet: &Packet) -> bool {
    matches!(packet.ct.state, Some(CtState::Invalid | CtState::Untracked))
}

/// `conntrack_mt`, `net/netfilter/xt_conntrack.c`.
fn conntrack(test: &CtTest, packet: &Packet) -> Known {
    let ct = &packet.ct;
    let port = |end: Option<(IpAddr, Option<u16>)>, ports: Ports| match end {
        Some((_, Some(port))) => Ok(ports.contains(port)),
        _ => missing("connection's original port"),
    };
    let addr = |end: Option<(IpAddr, Option<u16>)>, net: &Net| match end {
        Some((addr, _)) => Ok(net.contains(addr)),
        None => missing("connection's original address"),
    };
    if let CtTest::State(states) = test {
        return ct_state(states, packet);
    }
    match test {
        CtTest::State(_) => Ok(false),
        CtTest::Status(wanted) => {
            let mut unknown = false;
            for status in wanted {
                let bit = match status {
                    CtStatus::SeenReply => ct.seen_reply,
                    CtStatus::Assured => ct.assured,
                    CtStatus::Confirmed => ct.confirmed,
                    CtStatus::None | CtStatus::Expected => None,
                };
                match bit {
                    Some(true) => return Ok(true),
                    Some(false) => {}
                    None => unknown = true,
                }
            }
            if unknown {
                missing("connection status")
            } else {
                Ok(false)
            }
        }
        CtTest::Protocol(number) => Ok(*number == packet.proto),
        CtTest::OriginalSource(net) => addr(ct.original_src, net),
        CtTest::OriginalDestination(net) => addr(ct.original_dst, net),
        CtTest::OriginalSourcePort(ports) => port(ct.original_src, *ports),
        CtTest::OriginalDestinationPort(ports) => port(ct.original_dst, *ports),
        CtTest::Reply(reply) => match ct.reply {
            Some(is) => Ok(is == *reply),
            None => missing("direction in its connection"),
        },
    }
}

fn ct_state(states: &[Arc<str>], packet: &Packet) -> Known {
    let wants = |name: &str| states.iter().any(|s| **s == *name);
    let Some(state) = packet.ct.state else {
        return missing("connection state");
    };
    if wants(state.name()) {
        return Ok(true);
    }
    if no_connection(packet) {
        return Ok(false);
    }
    let mut unknown = false;
    for (name, bit) in [("SNAT", packet.ct.snat), ("DNAT", packet.ct.dnat)] {
        match bit {
            Some(true) if wants(name) => return Ok(true),
            None if wants(name) => unknown = true,
            _ => {}
        }
    }
    if unknown {
        return missing("connection's translation");
    }
    Ok(false)
}
