//! What `tracer probe` sent, and what came of it: the member `probe` of a trace.

use std::net::IpAddr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Endpoint;

/// Everything that was tried.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Report {
    /// The pod that the connections were made from.
    pub client: Endpoint,
    /// How the pod is set up to look names up, absent where no name was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolver: Option<Resolver>,
    /// The look-up of the name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lookup: Option<Lookup>,
    /// Connections in the order in which they were made.
    pub attempts: Vec<Attempt>,
    /// Sentences about what was left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// The layer that the results point at.
    pub layer: Layer,
}

/// Settings of a resolver, as in resolv.conf(5).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Resolver {
    /// Servers in the order in which they are asked.
    pub nameservers: Vec<IpAddr>,
    /// Domains that a short name is tried with.
    pub search: Vec<String>,
    /// Dots from which on a name is tried as it is first.
    pub ndots: usize,
    /// Where this was read.
    pub origin: String,
    /// Not read, but what Kubernetes sets a pod up with by default.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub assumed: bool,
}

/// A name that was looked up.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Lookup {
    /// As a program in the pod would write it.
    pub name: String,
    /// Addresses that it was resolved to.
    pub addrs: Vec<IpAddr>,
    /// Addresses that it should have, where the cluster's objects say.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub expected: Vec<IpAddr>,
    /// Each query as it was sent.
    pub queries: Vec<Query>,
}

impl Lookup {
    /// Whether the name was resolved to something else than it stands for.
    pub fn is_wrong(&self) -> bool {
        !self.addrs.is_empty()
            && !self.expected.is_empty()
            && !self.addrs.iter().any(|a| self.expected.contains(a))
    }
}

/// Type of a query: RFC 1035 section 3.2.2, RFC 3596 section 2.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Kind {
    /// IPv4 addresses.
    A,
    /// IPv6 addresses.
    #[serde(rename = "AAAA")]
    Aaaa,
}

impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::A => "A",
            Self::Aaaa => "AAAA",
        })
    }
}

/// What a server said.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Reply {
    /// Addresses.
    Addresses,
    /// There is no such name (NXDOMAIN).
    NoSuchName,
    /// The name exists and has no address of this kind.
    NoAddress,
    /// It cannot or will not tell (SERVFAIL, REFUSED, ...).
    Error,
    /// Nothing in time.
    NoAnswer,
    /// Nothing listens there, or something rejected the query.
    Rejected,
    /// The query could not be sent.
    NotSent,
}

impl Reply {
    /// Whether a name server said it.
    pub fn is_answer(self) -> bool {
        !matches!(self, Self::NoAnswer | Self::Rejected | Self::NotSent)
    }
}

/// One query.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Query {
    /// When it was sent, in nanoseconds since the Unix epoch.
    pub ts: u64,
    /// The whole name, with the final dot.
    pub name: String,
    /// Type.
    #[serde(rename = "type")]
    pub kind: Kind,
    /// Who was asked.
    pub server: Endpoint,
    /// From where, absent where nothing could be sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<Endpoint>,
    /// What was said.
    pub reply: Reply,
    /// The same in words: NXDOMAIN, SERVFAIL, ...
    pub detail: String,
    /// Addresses in the answer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addrs: Vec<IpAddr>,
    /// How long it took, in nanoseconds.
    pub took: u64,
}

/// The way in which the server was addressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    /// By name, as programs do.
    Name,
    /// By the Service's address.
    ClusterIp,
    /// By an address that is no `ClusterIP`: of a node, a load balancer, a host.
    Address,
    /// By the address of an endpoint of the Service.
    Backend,
    /// By the pod's own address.
    Pod,
}

/// What came of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// TCP: connected.
    Connected,
    /// UDP: something came back.
    Answered,
    /// A reset or "port unreachable" came back.
    Refused,
    /// TCP: nothing in time.
    TimedOut,
    /// UDP: nothing in time, which proves nothing.
    NoAnswer,
    /// "Host unreachable" and the like.
    Unreachable,
    /// The name has no address, so there was nothing to connect to.
    Unresolved,
    /// The system would not do it.
    Failed,
    /// The run ended before.
    NotTried,
}

impl Outcome {
    /// The server was reached.
    pub fn is_good(self) -> bool {
        matches!(self, Self::Connected | Self::Answered)
    }

    /// The server was certainly not reached.
    pub fn is_bad(self) -> bool {
        !self.is_good() && !matches!(self, Self::NoAnswer | Self::NotTried)
    }
}

/// One connection.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Attempt {
    /// When it began, in nanoseconds since the Unix epoch; 0 where it did not.
    pub ts: u64,
    /// How the server was addressed.
    pub way: Way,
    /// The name that was looked up, of [`Way::Name`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// From where.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<Endpoint>,
    /// To where, absent where the name was not resolved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<Endpoint>,
    /// Of a backend: the cluster says that it is not ready.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unready: bool,
    /// What came of it.
    pub result: Outcome,
    /// The same in words.
    pub detail: String,
    /// How long it took, in nanoseconds.
    pub took: u64,
    /// Flow id in the trace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flow: Option<u64>,
    /// Where its first packet stopped, by the trace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped: Option<Place>,
}

/// Where a packet stopped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Place {
    /// The packet.
    pub packet: u64,
    /// Node, empty where unknown.
    pub node: String,
    /// Interface it was last seen at, empty where unknown.
    pub iface: String,
    /// dropped, rejected, lost, ...
    pub how: String,
}

/// What the results have in common.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Layer {
    /// Its code.
    pub code: LayerCode,
    /// One sentence.
    pub summary: String,
}

/// A layer between a program and the one it calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum LayerCode {
    /// All of them work.
    None,
    /// The look-up of names.
    Dns,
    /// From the Service's address to a pod's.
    Service,
    /// The Service has nothing behind it.
    Endpoints,
    /// One pod or its node.
    Backend,
    /// The way between pods.
    Network,
    /// It cannot be told.
    Unclear,
}
