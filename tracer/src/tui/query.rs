//! What is searched and filtered by: words, each of which has to hold.

use std::net::IpAddr;

use crate::trace::{Direction, Endpoint, Outcome, Packet, Step, StepKind};

/// The words, as the help shows them.
pub(crate) const SYNTAX: &[(&str, &str)] = &[
    ("10.244.80.65", "an address; 10.244.0.0/16 a network"),
    (":80", "a port (or port:80)"),
    ("request, reply", "a direction"),
    ("dnat, drop, ...", "a kind of step (or kind:dnat)"),
    ("fault, ok", "how the packet ended"),
    ("node:worker", "a node; iface:eth0 an interface"),
    ("#12, flow:3", "a packet, a flow"),
    ("anything else", "part of a name, reason or rule"),
    ("-word", "not this"),
];

/// A query; without words everything matches.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Query {
    words: Vec<Word>,
    text: String,
}

#[derive(Clone, Debug, PartialEq)]
struct Word {
    not: bool,
    test: Test,
}

#[derive(Clone, Debug, PartialEq)]
enum Test {
    Addr(IpAddr),
    Net(IpAddr, u8),
    AddrPart(String),
    Port(u16),
    Direction(Direction),
    Kind(StepKind),
    Fault,
    Ok,
    Node(String),
    Iface(String),
    Packet(u64),
    Flow(u64),
    Text(String),
}

/// Whether a packet ended badly.
pub(crate) fn is_fault(packet: &Packet) -> bool {
    packet.outcome.is_bad()
}

/// The kind as the public form spells it.
pub(crate) fn kind_of(name: &str) -> Option<StepKind> {
    serde_json::from_value(serde_json::Value::from(name)).ok()
}

fn network(text: &str) -> Option<(IpAddr, u8)> {
    let (addr, bits) = text.split_once('/')?;
    let addr: IpAddr = addr.parse().ok()?;
    let bits: u8 = bits.parse().ok()?;
    let most = if addr.is_ipv4() { 32 } else { 128 };
    (bits <= most).then_some((addr, bits))
}

impl Test {
    fn parse(word: &str) -> Result<Self, String> {
        let lower = word.to_lowercase();
        let number = |text: &str| {
            text.parse::<u64>()
                .map_err(|_| format!("{text:?} is no number"))
        };
        if let Some(id) = lower.strip_prefix('#') {
            return number(id).map(Self::Packet);
        }
        if let Some(port) = lower.strip_prefix(':').filter(|p| !p.starts_with(':')) {
            return port
                .parse()
                .map(Self::Port)
                .map_err(|_| format!("{port:?} is no port"));
        }
        if let Some(test) = Self::address(&lower) {
            return Ok(test);
        }
        match lower.as_str() {
            "request" => return Ok(Self::Direction(Direction::Request)),
            "reply" => return Ok(Self::Direction(Direction::Reply)),
            "fault" | "faults" => return Ok(Self::Fault),
            "ok" => return Ok(Self::Ok),
            _ => {}
        }
        if let Some(kind) = kind_of(&lower) {
            return Ok(Self::Kind(kind));
        }
        let Some((key, value)) = lower.split_once(':') else {
            return Ok(Self::Text(lower));
        };
        Ok(match key {
            "addr" => Self::address(value).unwrap_or_else(|| Self::AddrPart(value.to_owned())),
            "port" => return Self::parse(&format!(":{value}")),
            "dir" | "direction" => match value {
                "request" => Self::Direction(Direction::Request),
                "reply" => Self::Direction(Direction::Reply),
                _ => return Err(format!("{value:?} is no direction: request or reply")),
            },
            "kind" => {
                Self::Kind(kind_of(value).ok_or_else(|| format!("{value:?} is no kind of step"))?)
            }
            "node" => Self::Node(value.to_owned()),
            "iface" => Self::Iface(value.to_owned()),
            "packet" => Self::Packet(number(value)?),
            "flow" => Self::Flow(number(value)?),
            _ => Self::Text(lower),
        })
    }

    fn address(text: &str) -> Option<Self> {
        if let Ok(addr) = text.parse() {
            return Some(Self::Addr(addr));
        }
        network(text).map(|(addr, bits)| Self::Net(addr, bits))
    }

    fn holds(&self, packet: &Packet) -> bool {
        let any = |f: &dyn Fn(&Step) -> bool| packet.steps.iter().any(f);
        match self {
            Self::Addr(addr) => any(&|s| addrs(s).any(|a| a == *addr)),
            Self::Net(net, bits) => any(&|s| addrs(s).any(|a| within(a, *net, *bits))),
            Self::AddrPart(part) => any(&|s| addrs(s).any(|a| a.to_string().contains(part))),
            Self::Port(port) => any(&|s| ports(s).any(|p| p == *port)),
            Self::Direction(direction) => packet.direction == *direction,
            Self::Kind(kind) => any(&|s| s.kind == *kind),
            Self::Fault => is_fault(packet),
            Self::Ok => packet.outcome == Outcome::Delivered,
            Self::Node(name) => any(&|s| has(&s.node, name)),
            Self::Iface(name) => any(&|s| has(&s.iface, name)),
            Self::Packet(id) => packet.id == *id,
            Self::Flow(id) => packet.flow == *id,
            Self::Text(text) => {
                let outcome = format!("{:?}", packet.outcome);
                has(&packet.summary, text)
                    || has(&outcome, text)
                    || any(&|s| texts(s).any(|t| has(t, text)))
                    || any(&|s| addrs(s).any(|a| a.to_string().contains(text.as_str())))
            }
        }
    }
}

fn has(text: &str, part: &str) -> bool {
    text.to_lowercase().contains(part)
}

fn ends(s: &Step) -> impl Iterator<Item = &Endpoint> {
    let rewritten = s.rewrite.iter().flat_map(|r| [&r.from, &r.to]);
    [&s.src, &s.dst].into_iter().chain(rewritten)
}

fn addrs(s: &Step) -> impl Iterator<Item = IpAddr> + '_ {
    let outer = s.tunnel.iter().flat_map(|t| [t.src, t.dst]);
    ends(s).map(|e| e.addr).chain(outer)
}

fn ports(s: &Step) -> impl Iterator<Item = u16> + '_ {
    let outer = s.tunnel.iter().flat_map(|t| [t.sport, t.dport]);
    ends(s).map(|e| e.port).chain(outer).flatten()
}

fn texts(s: &Step) -> impl Iterator<Item = &str> {
    let names = ends(s).filter_map(|e| e.name.as_deref());
    let dropped = s.drop.iter().flat_map(|d| {
        let hook = d.hook.as_deref();
        [Some(&*d.function), d.reason.as_deref(), hook]
    });
    let rule = s.rule.iter().flat_map(|r| {
        [&r.table, &r.chain, &r.text, &r.comment, &r.policy].map(|part| part.as_deref())
    });
    [&*s.node, &*s.iface, &*s.proto]
        .into_iter()
        .chain(names)
        .chain(dropped.flatten())
        .chain(rule.flatten())
}

fn within(addr: IpAddr, net: IpAddr, bits: u8) -> bool {
    let same = |a: u128, b: u128, width: u32| {
        let shift = width.saturating_sub(u32::from(bits));
        a.checked_shr(shift).unwrap_or(0) == b.checked_shr(shift).unwrap_or(0)
    };
    match (addr, net) {
        (IpAddr::V4(a), IpAddr::V4(b)) => same(a.to_bits().into(), b.to_bits().into(), 32),
        (IpAddr::V6(a), IpAddr::V6(b)) => same(a.to_bits(), b.to_bits(), 128),
        _ => false,
    }
}

impl Query {
    /// Reads a query; a sentence where a word cannot be understood.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let words = text.split_whitespace().map(|word| {
            let (not, word) = match word.strip_prefix('-').filter(|w| !w.is_empty()) {
                Some(rest) => (true, rest),
                None => (false, word),
            };
            Test::parse(word).map(|test| Word { not, test })
        });
        Ok(Self {
            words: words.collect::<Result<_, _>>()?,
            text: text.trim().to_owned(),
        })
    }

    /// As it was written.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Whether it asks for nothing.
    pub(crate) fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// Whether every word holds.
    pub(crate) fn matches(&self, packet: &Packet) -> bool {
        self.words.iter().all(|w| w.test.holds(packet) != w.not)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tui::samples;

    fn found(case: &str, query: &str) -> usize {
        let trace = samples::recording(case);
        let query = Query::parse(query).unwrap();
        trace.packets.iter().filter(|p| query.matches(p)).count()
    }

    #[test]
    fn words_narrow_down() {
        let all = samples::recording("c38").packets.len();
        assert_eq!(found("c38", ""), all);
        let faults = found("c38", "fault");
        assert!(faults > 0);
        assert_eq!(found("c38", "-fault"), all - faults);
        assert_eq!(found("c38", "fault :80"), found("c38", "fault port:80"));
        assert_eq!(found("c38", "10.98.235.247"), found("c38", "10.98.0.0/16"));
        assert!(found("c38", "10.98.235.247") > 0);
        assert_eq!(found("c38", "9.9.9.9"), 0);
        assert_eq!(found("c38", "#1"), 1);
        let both = found("c38", "request") + found("c38", "reply");
        assert_eq!(both, all);
        assert!(found("c38", "kind:drop") > 0);
        assert_eq!(found("c38", "drop"), found("c38", "kind:drop"));
        assert!(found("c38", "NODE:worker") > 0);
        assert!(found("c38", "pod/default/CLIENT") > 0);
    }

    #[test]
    fn what_cannot_be_understood_is_said() {
        for bad in ["port:x", ":99999", "#x", "kind:nothing", "dir:up"] {
            assert!(Query::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn networks_end_at_their_bits() {
        let at = |a: &str, n: &str, bits| within(a.parse().unwrap(), n.parse().unwrap(), bits);
        assert!(at("10.1.2.3", "10.0.0.0", 8));
        assert!(!at("11.1.2.3", "10.0.0.0", 8));
        assert!(at("11.1.2.3", "10.0.0.0", 0));
        assert!(at("fd00::1", "fd00::", 64));
        assert!(!at("fd01::1", "fd00::", 64));
        assert!(at("fd01::1", "::", 0));
        assert!(!at("fd01::1", "0.0.0.0", 0));
    }
}
