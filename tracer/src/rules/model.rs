//! Tables, chains and rules as data.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

/// One table of one variant.
#[derive(Clone, Debug)]
pub struct Table {
    /// True for `ip6tables`.
    pub ipv6: bool,
    /// `nft` or `legacy`.
    pub variant: Arc<str>,
    /// `raw`, `mangle`, `nat`, `filter`, `security`.
    pub name: Arc<str>,
    /// Why the rules in it are not all known, if so: then nothing is decided by it.
    pub opaque: Option<Arc<str>>,
    /// Chains by name.
    pub chains: BTreeMap<Arc<str>, Chain>,
}

/// A chain.
#[derive(Clone, Debug)]
pub struct Chain {
    /// Name.
    pub name: Arc<str>,
    /// Policy of a built-in chain, absent for the others.
    pub policy: Option<Policy>,
    /// Packets and bytes that reached the policy.
    pub counters: Option<(u64, u64)>,
    /// Rules in order.
    pub rules: Vec<Rule>,
}

/// What a built-in chain does with what no rule decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// Lets it pass.
    Accept,
    /// Drops it.
    Drop,
}

/// A rule.
#[derive(Clone, Debug)]
pub struct Rule {
    /// As it was written, without counters.
    pub text: Arc<str>,
    /// Position in the chain, 1 first, as `iptables -L --line-numbers` counts.
    pub index: usize,
    /// Packets and bytes, where the dump had them.
    pub counters: Option<(u64, u64)>,
    /// Comments in order.
    pub comments: Vec<Arc<str>>,
    /// All must hold.
    pub conditions: Vec<Condition>,
    /// What is done then.
    pub target: Target,
}

impl Rule {
    /// What the rule's author wrote about it; Felix's rule ids (`cali:` and 16
    /// characters) are left out.
    pub fn comment(&self) -> Option<Arc<str>> {
        let is_id = |c: &str| c.len() == 21 && c.starts_with("cali:");
        self.comments.iter().rfind(|c| !is_id(c)).cloned()
    }
}

/// A match, perhaps negated.
#[derive(Clone, Debug, PartialEq)]
pub struct Condition {
    /// Negated.
    pub not: bool,
    /// What is asked.
    pub test: Match,
}

/// What a match asks.
#[derive(Clone, Debug, PartialEq)]
pub enum Match {
    /// `-s`.
    Source(Net),
    /// `-d`.
    Destination(Net),
    /// `-i`; a final `+` stands for any rest.
    In(Arc<str>),
    /// `-o`.
    Out(Arc<str>),
    /// `-p`.
    Protocol(u8),
    /// `-f`: second and later fragments.
    Fragment,
    /// `--sport`, `--sports`.
    SourcePort(Vec<Ports>),
    /// `--dport`, `--dports`.
    DestinationPort(Vec<Ports>),
    /// `--ports`: either.
    EitherPort(Vec<Ports>),
    /// `--tcp-flags`, `--syn`: of the bits in the mask, exactly these are set.
    TcpFlags {
        /// Bits looked at.
        mask: u8,
        /// Bits set.
        set: u8,
    },
    /// `--icmp-type`, `--icmpv6-type`: type and code.
    Icmp(u8, Option<u8>),
    /// `-m set --match-set`.
    Set {
        /// Name.
        name: Arc<str>,
        /// Which side of the packet each part of an element is compared with.
        sides: Vec<Direction>,
    },
    /// `-m mark`: value and mask.
    Mark(u32, u32),
    /// `-m connmark`.
    ConnMark(u32, u32),
    /// `-m conntrack`, `-m state`.
    Ct(CtTest),
    /// `-m statistic`: the probability that it holds.
    Chance(f64),
    /// `-m addrtype`.
    AddrType {
        /// Of the source, else the destination.
        side: Direction,
        /// Types, in capital letters.
        types: Vec<Arc<str>>,
        /// `--limit-iface-in`, `--limit-iface-out`: only as seen by that interface.
        limit: Option<Limit>,
    },
    /// `-m rpfilter`: the source is routed back to where the packet came from.
    ReversePath {
        /// `--loose`: any route will do.
        loose: bool,
        /// `--validmark`: the mark takes part in routing.
        validmark: bool,
    },
    /// `-m recent` that asks a list: whether the address is in it.
    Recent {
        /// Its name.
        list: Arc<str>,
        /// All options, to tell two questions to one list apart.
        options: Arc<str>,
    },
    /// `-m length`, in bytes.
    Length(u32, u32),
    /// `-m physdev --physdev-in`; `+` alone for `--physdev-is-in`.
    BridgePortIn(Arc<str>),
    /// Always holds: it only notes something (`recent --set`, `nfacct`).
    Always,
    /// Not known, or not known in this form.
    Unknown {
        /// The match's name.
        name: Arc<str>,
        /// Its options.
        args: Arc<str>,
    },
}

/// What conntrack is asked.
#[derive(Clone, Debug, PartialEq)]
pub enum CtTest {
    /// `--ctstate`, `--state`: one of these, in capital letters.
    State(Vec<Arc<str>>),
    /// `--ctstatus`: one of these.
    Status(Vec<CtStatus>),
    /// `--ctproto`.
    Protocol(u8),
    /// `--ctorigsrc`.
    OriginalSource(Net),
    /// `--ctorigdst`.
    OriginalDestination(Net),
    /// `--ctorigsrcport`.
    OriginalSourcePort(Ports),
    /// `--ctorigdstport`.
    OriginalDestinationPort(Ports),
    /// `--ctdir REPLY`, else `ORIGINAL`.
    Reply(bool),
}

/// A status bit of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CtStatus {
    /// No bit at all.
    None,
    /// Expected by another connection.
    Expected,
    /// Answered.
    SeenReply,
    /// Not to be evicted early.
    Assured,
    /// In the table.
    Confirmed,
}

/// Source or destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Source.
    Src,
    /// Destination.
    Dst,
}

/// Which interface an address type is limited to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// Input.
    In,
    /// Output.
    Out,
}

/// Addresses: those that equal `addr` under `mask`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Net {
    /// Address.
    pub addr: IpAddr,
    /// Mask as bits; need not be a prefix.
    pub mask: u128,
}

/// Ports from the first to the second, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ports(pub u16, pub u16);

/// What a rule does.
#[derive(Clone, Debug, PartialEq)]
pub enum Target {
    /// Nothing: the rule counts, or has matches that note something.
    None,
    /// `ACCEPT`.
    Accept,
    /// `DROP`.
    Drop,
    /// `RETURN`.
    Return,
    /// `REJECT`, and with what.
    Reject(Arc<str>),
    /// `-j` to a chain.
    Jump(Arc<str>),
    /// `-g` to a chain: it returns to this chain's caller.
    Goto(Arc<str>),
    /// `MARK`: bits to clear, then bits to turn over.
    Mark(MarkOp),
    /// `CONNMARK --set-*`.
    SetConnMark(MarkOp),
    /// `CONNMARK --save-mark`: the packet's mark becomes the connection's.
    SaveMark {
        /// Bits of the packet's mark.
        nf: u32,
        /// Bits of the connection's mark.
        ct: u32,
    },
    /// `CONNMARK --restore-mark`.
    RestoreMark {
        /// Bits of the packet's mark.
        nf: u32,
        /// Bits of the connection's mark.
        ct: u32,
    },
    /// `DNAT`.
    Dnat(super::Translation),
    /// `SNAT`.
    Snat(super::Translation),
    /// `MASQUERADE`.
    Masquerade(super::Translation),
    /// `REDIRECT`.
    Redirect(super::Translation),
    /// `NOTRACK`, `CT --notrack`.
    NoTrack,
    /// `NFQUEUE`, `QUEUE`.
    Queue,
    /// Goes on with the next rule: `LOG`, `NFLOG`, `TCPMSS`, ...
    Continue(Arc<str>),
    /// Not known, or not known in this form.
    Unknown {
        /// Name.
        name: Arc<str>,
        /// Options.
        args: Arc<str>,
    },
}

/// What is done to a mark: `(mark & !clear) ^ xor` (`net/netfilter/xt_mark.c`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MarkOp {
    /// Bits to clear.
    pub clear: u32,
    /// Bits to turn over after that.
    pub xor: u32,
}

impl MarkOp {
    /// The mark after it.
    pub fn apply(self, mark: u32) -> u32 {
        (mark & !self.clear) ^ self.xor
    }
}

impl Net {
    /// Parses an address, `addr/prefix` or `addr/mask`.
    pub fn parse(text: &str) -> Option<Self> {
        let (addr, mask) = match text.split_once('/') {
            Some((addr, mask)) => (addr.parse().ok()?, Some(mask)),
            None => (text.parse().ok()?, None),
        };
        let width = width(addr);
        let mask = match mask {
            None => prefix_mask(width, width),
            Some(mask) => match mask.parse::<u32>() {
                Ok(prefix) if prefix <= width => prefix_mask(prefix, width),
                Ok(_) => return None,
                Err(_) => bits(same_family(mask.parse().ok()?, addr)?),
            },
        };
        Some(Self { addr, mask })
    }

    /// Whether the address is one of them.
    pub fn contains(&self, addr: IpAddr) -> bool {
        self.addr.is_ipv4() == addr.is_ipv4() && (bits(self.addr) ^ bits(addr)) & self.mask == 0
    }

    /// How many bits are compared.
    pub fn prefix(&self) -> u32 {
        self.mask.count_ones()
    }
}

impl fmt::Display for Net {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.prefix() == width(self.addr) {
            write!(f, "{}", self.addr)
        } else {
            write!(f, "{}/{}", self.addr, self.prefix())
        }
    }
}

impl Ports {
    /// Parses `80`, `80:90`, `:90`, `80:`, and with a dash.
    pub fn parse(text: &str) -> Option<Self> {
        let Some((from, to)) = text.split_once([':', '-']) else {
            let port = text.parse().ok()?;
            return Some(Self(port, port));
        };
        let end = |text: &str, open: u16| match text {
            "" => Some(open),
            text => text.parse().ok(),
        };
        let (from, to) = (end(from, 0)?, end(to, u16::MAX)?);
        (from <= to).then_some(Self(from, to))
    }

    /// Whether the port is among them.
    pub fn contains(self, port: u16) -> bool {
        (self.0..=self.1).contains(&port)
    }
}

impl fmt::Display for Ports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == self.1 {
            write!(f, "{}", self.0)
        } else {
            write!(f, "{}-{}", self.0, self.1)
        }
    }
}

fn same_family(mask: IpAddr, addr: IpAddr) -> Option<IpAddr> {
    (mask.is_ipv4() == addr.is_ipv4()).then_some(mask)
}

/// How many bits an address has.
pub(super) fn width(addr: IpAddr) -> u32 {
    if addr.is_ipv4() { 32 } else { 128 }
}

/// An address as a number.
pub(super) fn bits(addr: IpAddr) -> u128 {
    match addr {
        IpAddr::V4(a) => u128::from(a.to_bits()),
        IpAddr::V6(a) => a.to_bits(),
    }
}

/// The mask of a prefix in an address of this many bits.
pub(super) fn prefix_mask(prefix: u32, width: u32) -> u128 {
    let all = if width == 32 {
        u128::from(u32::MAX)
    } else {
        u128::MAX
    };
    let host = width - prefix.min(width);
    all & u128::MAX.checked_shl(host).unwrap_or(0)
}
