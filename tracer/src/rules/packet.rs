//! The packet that is asked about.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use super::model::Direction;

/// A packet at a hook. What is not known is `None`; a rule that asks for it
/// makes the answer unknown.
#[derive(Clone, Debug, PartialEq)]
pub struct Packet {
    /// Source.
    pub src: IpAddr,
    /// Destination.
    pub dst: IpAddr,
    /// Protocol number.
    pub proto: u8,
    /// Source port.
    pub sport: Option<u16>,
    /// Destination port.
    pub dport: Option<u16>,
    /// ICMP type and code.
    pub icmp: Option<(u8, u8)>,
    /// TCP flags as in the header's 14th byte.
    pub tcp_flags: Option<u8>,
    /// A second or later fragment: it has no transport header.
    pub fragment: bool,
    /// Length of the IP packet.
    pub len: Option<u32>,
    /// Input interface; empty where there is none.
    pub iif: Option<Arc<str>>,
    /// Output interface; empty where there is none.
    pub oif: Option<Arc<str>>,
    /// Bridge port it came in through; empty where there is none.
    pub bridge_port: Option<Arc<str>>,
    /// Mark.
    pub mark: u32,
    /// What conntrack knows.
    pub ct: Ct,
}

/// What conntrack knows about a packet's connection.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ct {
    /// State of the packet in the connection.
    pub state: Option<CtState>,
    /// The connection's mark; a new one has 0.
    pub mark: Option<u32>,
    /// Its source is translated.
    pub snat: Option<bool>,
    /// Its destination is translated.
    pub dnat: Option<bool>,
    /// It is in the table.
    pub confirmed: Option<bool>,
    /// It was answered.
    pub seen_reply: Option<bool>,
    /// It is assured.
    pub assured: Option<bool>,
    /// The packet goes in the reply direction.
    pub reply: Option<bool>,
    /// Source of the original direction, and its port.
    pub original_src: Option<(IpAddr, Option<u16>)>,
    /// Destination of the original direction, before translation, and its port.
    pub original_dst: Option<(IpAddr, Option<u16>)>,
}

/// State of a packet in its connection (`enum ip_conntrack_info`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CtState {
    /// First of a connection.
    New,
    /// Of a connection that was answered, or an answer.
    Established,
    /// First of a connection that another expects, or an ICMP error.
    Related,
    /// Of no connection.
    Invalid,
    /// Not to be tracked.
    Untracked,
}

impl CtState {
    /// As rules name it.
    pub fn name(self) -> &'static str {
        match self {
            Self::New => "NEW",
            Self::Established => "ESTABLISHED",
            Self::Related => "RELATED",
            Self::Invalid => "INVALID",
            Self::Untracked => "UNTRACKED",
        }
    }
}

impl Packet {
    /// A packet of which no more is known.
    pub fn new(src: IpAddr, dst: IpAddr, proto: u8) -> Self {
        Self {
            src,
            dst,
            proto,
            sport: None,
            dport: None,
            icmp: None,
            tcp_flags: None,
            fragment: false,
            len: None,
            iif: None,
            oif: None,
            bridge_port: None,
            mark: 0,
            ct: Ct::default(),
        }
    }

    /// The first packet of a TCP connection: a SYN.
    pub fn tcp(src: SocketAddr, dst: SocketAddr) -> Self {
        let mut packet = Self::new(src.ip(), dst.ip(), 6).state(CtState::New);
        packet.sport = Some(src.port());
        packet.dport = Some(dst.port());
        packet.tcp_flags = Some(0x02);
        packet
    }

    /// The first packet of a UDP flow.
    pub fn udp(src: SocketAddr, dst: SocketAddr) -> Self {
        let mut packet = Self::tcp(src, dst);
        packet.proto = 17;
        packet.tcp_flags = None;
        packet
    }

    /// The same, come in through this interface.
    #[must_use]
    pub fn arriving(mut self, iif: &str) -> Self {
        self.iif = Some(iif.into());
        self
    }

    /// The same, going out through this interface.
    #[must_use]
    pub fn leaving(mut self, oif: &str) -> Self {
        self.oif = Some(oif.into());
        self
    }

    /// The same with this mark.
    #[must_use]
    pub fn marked(mut self, mark: u32) -> Self {
        self.mark = mark;
        self
    }

    /// The same in this state.
    #[must_use]
    pub fn state(mut self, state: CtState) -> Self {
        self.ct.state = Some(state);
        self
    }

    /// Whether its protocol has ports where sets and rules look for them.
    pub(super) fn has_ports(&self) -> bool {
        matches!(self.proto, 6 | 17 | 33 | 132 | 136)
    }

    /// The address on this side.
    pub(super) fn addr(&self, side: Direction) -> IpAddr {
        match side {
            Direction::Src => self.src,
            Direction::Dst => self.dst,
        }
    }

    /// The port on this side.
    pub(super) fn port(&self, side: Direction) -> Option<u16> {
        match side {
            Direction::Src => self.sport,
            Direction::Dst => self.dport,
        }
    }

    /// The interface on this side.
    pub(super) fn dev(&self, side: Direction) -> Option<&str> {
        match side {
            Direction::Src => self.iif.as_deref(),
            Direction::Dst => self.oif.as_deref(),
        }
    }

    /// The connection's mark; a connection begins with 0.
    pub(super) fn connmark(&self) -> Option<u32> {
        match self.ct.state {
            Some(CtState::New) => Some(self.ct.mark.unwrap_or(0)),
            _ => self.ct.mark,
        }
    }
}
