//! The timeline's own words: steps, packets, flows, verdict. Pure data, in the
//! form of the public JSON schema `tracer.trace/1`.

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use fold::Fold;
pub(crate) use intern::{intern, known as word};
pub use run::{Clock, Merged, Run, Source};

mod connection;
pub mod fold;
mod intern;
pub mod outcome;
pub mod probe;
pub mod run;
pub mod summary;

/// Name and version of the public form.
pub const SCHEMA: &str = "tracer.trace/1";

fn is_empty(s: &Arc<str>) -> bool {
    s.is_empty()
}

#[allow(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde asks for a reference"
)]
fn is_false(b: &bool) -> bool {
    !*b
}

/// An address, with its port and name where there are any.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct Endpoint {
    /// IP address.
    pub addr: IpAddr,
    /// Port, absent where the protocol has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// `pod/NS/NAME`, `svc/NS/NAME`, `node/NAME`, absent where unknown.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "intern::maybe"
    )]
    pub name: Option<Arc<str>>,
}

/// What an interface is to its node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// The host end of a pod's veth pair.
    PodVeth,
    /// A pod's own interface.
    #[serde(rename = "pod-eth0")]
    PodEth0,
    /// VXLAN, IP-in-IP and the like.
    Tunnel,
    /// Carries the node's own address.
    Uplink,
    /// A Linux bridge.
    Bridge,
    /// Anything else.
    #[default]
    Other,
}

/// What happened to the packet in one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum StepKind {
    /// Entered the stack at this interface.
    Ingress,
    /// Left the stack at this interface.
    Egress,
    /// Had its new conntrack entry confirmed.
    ConntrackNew,
    /// Destination rewritten in the entry's original direction.
    Dnat,
    /// Source rewritten in the entry's original direction.
    Snat,
    /// The same, to the address of the outgoing interface by MASQUERADE.
    Masquerade,
    /// A DNAT undone on the way back.
    UnDnat,
    /// An SNAT or MASQUERADE undone on the way back.
    UnSnat,
    /// Was given a next hop.
    Route,
    /// Was put into a tunnel.
    Encap,
    /// Was taken out of a tunnel.
    Decap,
    /// Was judged by a policy chain.
    Policy,
    /// Passed a netfilter hook.
    Hook,
    /// Was dropped.
    Drop,
    /// Was answered with an RST or ICMP error instead of going on.
    Reject,
    /// Was too big for the next link.
    FragmentNeeded,
    /// Reached a socket.
    Deliver,
}

/// TCP's part of a step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Tcp {
    /// As tcpdump writes them: `S`, `S.`, `.`, `P.`, `F.`, `R`, ...
    #[serde(deserialize_with = "intern::word")]
    pub flags: Cow<'static, str>,
    /// Sequence number.
    pub seq: u32,
    /// Acknowledgement number.
    pub ack: u32,
}

/// IP's part of a step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Ip {
    /// Identification.
    pub id: u32,
    /// Time to live or hop limit.
    pub ttl: u8,
    /// Fragment offset in bytes, absent in whole packets and first fragments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frag_offset: Option<u32>,
    /// More fragments follow.
    #[serde(default, skip_serializing_if = "is_false")]
    pub more_fragments: bool,
}

/// ICMP's part of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Icmp {
    /// Type.
    #[serde(rename = "type")]
    pub kind: u8,
    /// Code.
    pub code: u8,
    /// MTU told by "fragmentation needed" or "packet too big".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
}

/// Outer headers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Tunnel {
    /// `vxlan` or `ipip`.
    #[serde(deserialize_with = "intern::word")]
    pub kind: Cow<'static, str>,
    /// VXLAN network identifier.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vni: Option<u32>,
    /// Outer source.
    pub src: IpAddr,
    /// Outer destination.
    pub dst: IpAddr,
    /// Outer UDP source port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sport: Option<u16>,
    /// Outer UDP destination port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dport: Option<u16>,
}

/// Which side of the packet was rewritten.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Field {
    /// Destination.
    Dst,
    /// Source.
    Src,
    /// Both.
    Both,
}

/// A rewrite.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Rewrite {
    /// Which side.
    pub field: Field,
    /// Before.
    pub from: Endpoint,
    /// After.
    pub to: Endpoint,
}

/// A rule that decided.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Rule {
    /// Table.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "intern::maybe"
    )]
    pub table: Option<Arc<str>>,
    /// Chain.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "intern::maybe"
    )]
    pub chain: Option<Arc<str>>,
    /// The rule as it is written.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "intern::maybe"
    )]
    pub text: Option<Arc<str>>,
    /// Its comment.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "intern::maybe"
    )]
    pub comment: Option<Arc<str>>,
    /// The policy behind it, `NAMESPACE/NAME`, or as its engine logged it.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "intern::maybe"
    )]
    pub policy: Option<Arc<str>>,
    /// The chains that led to the rule, from the hook's own to the rule's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub path: Vec<Arc<str>>,
    /// The Service whose chains these are, `NAMESPACE/NAME[:PORT]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<Arc<str>>,
    /// Who set the mark that the rule asks for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mark: Option<MarkedBy>,
    /// Why rules that could have let the packet pass did not, as `set X src
    /// does not contain 10.0.0.1`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missed: Vec<Arc<str>>,
    /// Worked out, not observed.
    #[serde(default, skip_serializing_if = "is_false")]
    pub inferred: bool,
    /// How it was told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<Cow<'static, str>>,
}

/// A mark on a packet, and the rule that asked for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MarkedBy {
    /// The bits that were set.
    pub bits: u32,
    /// Chain of the rule that asked for it: the caller of the chain that sets it.
    pub chain: Arc<str>,
    /// That rule.
    pub text: Arc<str>,
    /// Its comment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comment: Option<Arc<str>>,
}

/// How a packet ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Drop {
    /// `SKB_DROP_REASON_*` without the prefix; absent on kernels without.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "intern::maybe"
    )]
    pub reason: Option<Arc<str>>,
    /// Kernel function that freed it.
    #[serde(deserialize_with = "intern::shared")]
    pub function: Arc<str>,
    /// Netfilter hook it was dropped in: PREROUTING, INPUT, FORWARD, ...
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hook: Option<Cow<'static, str>>,
}

/// A conntrack entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Conntrack {
    /// Original direction.
    pub original: CtTuple,
    /// Reply direction.
    pub reply: CtTuple,
    /// Zone.
    pub zone: u16,
    /// Mark.
    pub mark: u32,
}

/// One direction of a conntrack entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CtTuple {
    /// Source.
    pub src: Endpoint,
    /// Destination.
    pub dst: Endpoint,
}

/// A next hop.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Route {
    /// Output interface.
    #[serde(deserialize_with = "intern::shared")]
    pub dev: Arc<str>,
    /// Gateway, absent where the destination is on the link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub via: Option<IpAddr>,
    /// Routing table, where known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table: Option<u32>,
    /// unicast, local, blackhole, ...
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<Cow<'static, str>>,
}

/// A netfilter hook's verdict.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Hook {
    /// PREROUTING, INPUT, FORWARD, OUTPUT, POSTROUTING.
    #[serde(deserialize_with = "intern::word")]
    pub hook: Cow<'static, str>,
    /// Table, absent for the hook as a whole.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "intern::maybe"
    )]
    pub table: Option<Arc<str>>,
    /// ACCEPT, DROP, STOLEN, ...
    #[serde(deserialize_with = "intern::word")]
    pub verdict: Cow<'static, str>,
    /// Packet mark at return.
    pub mark: u32,
    /// Chains entered, in order, where the kernel lets them be seen.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub chains: Vec<Arc<str>>,
}

/// One line of a packet's timeline. What few steps have is boxed: steps are made, kept and moved by the million.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Step {
    /// Packet id, from 1; 0 only while being built.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packet: Option<u64>,
    /// Flow id, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flow: Option<u64>,
    /// Nanoseconds since the Unix epoch.
    pub ts: u64,
    /// Node name, absent where unknown.
    #[serde(
        default = "empty",
        skip_serializing_if = "is_empty",
        deserialize_with = "intern::shared"
    )]
    pub node: Arc<str>,
    /// Interface name, absent where there is none.
    #[serde(
        default = "empty",
        skip_serializing_if = "is_empty",
        deserialize_with = "intern::shared"
    )]
    pub iface: Arc<str>,
    /// What the interface is to its node, absent without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<Role>,
    /// What happened.
    pub kind: StepKind,
    /// Direction within the flow: true from the server to the client.
    #[serde(default, skip_serializing_if = "is_false")]
    pub reply: bool,
    /// Source at this step (after a rewrite, in a rewrite's step).
    pub src: Endpoint,
    /// Destination at this step.
    pub dst: Endpoint,
    /// tcp, udp, icmp, icmpv6, sctp, or the protocol's number.
    #[serde(deserialize_with = "intern::word")]
    pub proto: Cow<'static, str>,
    /// `skb->len` in bytes; at interfaces with the link-layer header.
    pub len: u32,
    /// Bytes behind the L4 header.
    pub payload: u32,
    /// TCP only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tcp: Option<Tcp>,
    /// IP identification and time to live.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ip: Option<Ip>,
    /// ICMP only, or the ICMP error that answers in a reject step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub icmp: Option<Icmp>,
    /// Outer headers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tunnel: Option<Tunnel>,
    /// Of a rewrite.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rewrite: Option<Box<Rewrite>>,
    /// Deciding rule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<Box<Rule>>,
    /// Of a drop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drop: Option<Box<Drop>>,
    /// Of a new conntrack entry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conntrack: Option<Box<Conntrack>>,
    /// Of a routing decision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub route: Option<Box<Route>>,
    /// Of a netfilter hook.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hook: Option<Box<Hook>>,
    /// Packets that one skb carried here (GRO, GSO), absent for one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub merged: Option<u32>,
    /// Worked out, not observed.
    #[serde(default, skip_serializing_if = "is_false")]
    pub inferred: bool,
    /// What it was worked out from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<Cow<'static, str>>,
}

fn empty() -> Arc<str> {
    intern::intern("")
}

/// Direction of a packet in its flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// From the client.
    Request,
    /// To the client.
    Reply,
}

/// What became of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// Reached the end of the path that can be seen.
    Delivered,
    /// Freed as dropped.
    Dropped,
    /// Answered with an RST or ICMP error.
    Rejected,
    /// Left one observation point and never arrived at the next.
    Lost,
    /// Still on its way, or out of sight.
    Pending,
}

impl Outcome {
    /// Whether it is known that the packet did not arrive.
    pub fn is_bad(self) -> bool {
        matches!(self, Self::Dropped | Self::Rejected | Self::Lost)
    }
}

/// One packet as sent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Packet {
    /// From 1, in order of first sight.
    pub id: u64,
    /// Flow id.
    pub flow: u64,
    /// Direction.
    pub direction: Direction,
    /// `SYN`, `SYN-ACK`, `ACK`, `PSH-ACK 1400 B`, `DNS`, `echo request`, ...
    pub summary: String,
    /// What became of it.
    pub outcome: Outcome,
    /// Which transmission of the same segment this is, from 1.
    #[serde(rename = "try")]
    pub attempt: u32,
    /// The packet that this one retransmits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retransmits: Option<u64>,
    /// Its timeline, in order of time.
    pub steps: Vec<Step>,
}

/// A five-tuple that a flow was seen under.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct FlowTuple {
    /// Source.
    pub src: Endpoint,
    /// Destination.
    pub dst: Endpoint,
}

/// One connection, or one conversation of a connectionless protocol.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Flow {
    /// From 1, in order of first sight.
    pub id: u64,
    /// tcp, udp, ...
    pub proto: Cow<'static, str>,
    /// Who opened it.
    pub client: Endpoint,
    /// The server as the client addressed it.
    pub server: Endpoint,
    /// The server as it really is, where that differs.
    pub backend: Option<Endpoint>,
    /// Every five-tuple of the request direction the flow was seen under.
    pub tuples: Vec<FlowTuple>,
    /// established, closed, reset, unanswered, dropped, rejected, answered.
    pub state: Cow<'static, str>,
}

/// The answer to "what happened".
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Verdict {
    /// A finding code.
    pub code: Cow<'static, str>,
    /// One sentence.
    pub summary: String,
    /// Where, absent where there is no one place.
    #[serde(default)]
    pub node: Option<Arc<str>>,
    /// Interface.
    #[serde(default)]
    pub iface: Option<Arc<str>>,
    /// The packet that shows it.
    #[serde(default)]
    pub packet: Option<u64>,
}

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Broken.
    Fault,
    /// May be.
    Warning,
    /// Worth knowing.
    Note,
}

/// Something found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Finding {
    /// A stable code.
    pub code: Cow<'static, str>,
    /// How bad.
    pub severity: Severity,
    /// One sentence.
    pub summary: String,
    /// What shows it.
    pub evidence: Vec<String>,
    /// Commands to run next.
    pub next: Vec<String>,
}

/// What was lost on the way to the reader.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Losses {
    /// Events that found the kernel's ring buffer full.
    pub ring_buffer: u64,
    /// Events or steps that user space had no room for.
    pub user_space: u64,
    /// Everything else: tags evicted, calls without a return, headers not read.
    pub other: u64,
}

impl Losses {
    /// Whether anything was lost.
    pub fn any(&self) -> bool {
        self.total() > 0
    }

    /// All of them.
    pub fn total(&self) -> u64 {
        let sum = self.ring_buffer.saturating_add(self.user_space);
        sum.saturating_add(self.other)
    }

    /// What came after `before`.
    #[must_use]
    pub fn since(self, before: Self) -> Self {
        Self {
            ring_buffer: self.ring_buffer.saturating_sub(before.ring_buffer),
            user_space: self.user_space.saturating_sub(before.user_space),
            other: self.other.saturating_sub(before.other),
        }
    }
}

/// Who made the trace.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Tool {
    /// Of tracer.
    pub version: String,
    /// `uname -r`.
    pub kernel: String,
    /// Names of the hooks that were attached.
    pub hooks: Vec<String>,
    /// What is missing and why; empty when nothing is.
    pub degraded: Vec<String>,
}

/// An interface of a node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Interface {
    /// Name.
    pub name: Arc<str>,
    /// Index.
    pub ifindex: u32,
    /// What it is.
    pub role: Role,
}

/// A network namespace that forwards for pods.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Node {
    /// Name.
    pub name: Arc<str>,
    /// Inode of the namespace.
    pub netns: u32,
    /// Addresses.
    pub addrs: Vec<IpAddr>,
    /// Interfaces that are watched.
    pub interfaces: Vec<Interface>,
}

/// First line of a recording.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Header {
    /// [`SCHEMA`].
    pub schema: Cow<'static, str>,
    /// Who made it.
    pub tool: Tool,
    /// What was asked for, as resolved.
    pub request: serde_json::Value,
    /// Where it looked.
    pub nodes: Vec<Node>,
    /// Which run it is of; absent in a merged trace and in what the
    /// first versions wrote.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<Run>,
    /// What it was merged from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub merged: Option<Box<Merged>>,
}

/// Last line of a recording.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Closing {
    /// The answer.
    pub verdict: Verdict,
    /// All that was found.
    pub findings: Vec<Finding>,
    /// What was lost.
    pub losses: Losses,
    /// What the nodes were set up to do, where it was read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<Box<crate::state::State>>,
    /// What was sent to find out, by `tracer probe`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probe: Option<Box<probe::Report>>,
    /// When it ended, nanoseconds since the Unix epoch; absent in what was not
    /// ended in good order and in what the first versions wrote.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<u64>,
    /// Name of the file in which the run goes on, of a run that wrote several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub continues: Option<String>,
}

/// The whole, `-o json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Trace {
    /// Schema, tool, request, nodes.
    #[serde(flatten)]
    pub header: Header,
    /// Flows in order of first sight.
    pub flows: Vec<Flow>,
    /// Packets in order of first sight.
    pub packets: Vec<Packet>,
    /// Verdict, findings, losses.
    #[serde(flatten)]
    pub closing: Closing,
}
