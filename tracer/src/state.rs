//! What the nodes and the cluster were set up to do: events say what happened,
//! state says why. Pure data, public in recordings and JSON under `state`.
//!
//! Never in it: environments, tokens, payload, anything of a pod's spec beyond
//! addresses, ports, labels and the node it runs on.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// All that was read.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct State {
    /// One for each node, and one for each followed pod's namespace.
    #[serde(default)]
    pub namespaces: Vec<Namespace>,
    /// The cluster's objects, as a `v1` `List` of stripped objects in the form
    /// that `kubectl get -o json` writes; absent where there was no inventory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<serde_json::Value>,
}

impl State {
    /// The state of the node with this name.
    pub fn node(&self, name: &str) -> Option<&Namespace> {
        self.namespaces
            .iter()
            .find(|n| n.kind == NamespaceKind::Node && &*n.name == name)
    }

    /// The state of the pod that has this address.
    pub fn pod(&self, addr: IpAddr) -> Option<&Namespace> {
        let has = |n: &&Namespace| {
            n.kind == NamespaceKind::Pod
                && n.links
                    .iter()
                    .any(|l| l.addrs.iter().any(|a| a.addr == addr))
        };
        self.namespaces.iter().find(has)
    }
}

/// What a namespace is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum NamespaceKind {
    /// Forwards for pods.
    Node,
    /// Belongs to a pod.
    Pod,
}

/// What was read in one network namespace.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Namespace {
    /// The node's name; for a pod `pod/NS/NAME` where known, else its address.
    pub name: Arc<str>,
    /// Node or pod.
    pub kind: NamespaceKind,
    /// For a pod, its node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<Arc<str>>,
    /// Inode.
    pub netns: u32,
    /// When it was read, in nanoseconds since the Unix epoch.
    pub read_at: u64,
    /// Interfaces.
    #[serde(default)]
    pub links: Vec<Link>,
    /// Routes of all tables, the local one included.
    #[serde(default)]
    pub routes: Vec<Route>,
    /// Routing policy.
    #[serde(default)]
    pub rules: Vec<PolicyRule>,
    /// Neighbours.
    #[serde(default)]
    pub neighbours: Vec<Neighbour>,
    /// Forwarding database of bridges and VXLAN devices.
    #[serde(default)]
    pub fdb: Vec<Fdb>,
    /// Sysctls that matter, by their name under `/proc/sys` with dots, as
    /// `net.ipv4.ip_forward`, `net.ipv4.conf.eth0.rp_filter`.
    #[serde(default)]
    pub sysctls: BTreeMap<String, String>,
    /// The kernel's own counters that matter, as `nstat` names them
    /// (`TcpExtListenOverflows`, `IpInAddrErrors`), and conntrack's
    /// (`conntrack.drop`, `conntrack.insert_failed`, `conntrack.invalid`, ...),
    /// summed over CPUs; `conntrack.count` is the table's fill.
    #[serde(default)]
    pub counters: BTreeMap<String, u64>,
    /// The same counters when the run began, where they were read twice.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub counters_before: BTreeMap<String, u64>,
    /// Rules as `iptables-save -c` writes them.
    #[serde(default)]
    pub iptables: Vec<IptablesDump>,
    /// What `ipset save` writes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ipsets: Option<String>,
    /// What `nft list ruleset` writes, where tables of others than iptables are in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nft: Option<String>,
    /// Virtual servers of IPVS, from `/proc/net/ip_vs`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ipvs: Option<String>,
    /// Conntrack entries of the flows that were followed.
    #[serde(default)]
    pub conntrack: Vec<ConntrackEntry>,
    /// Queueing disciplines and classifiers that other people attached.
    #[serde(default)]
    pub qdiscs: Vec<Qdisc>,
    /// Sockets that listen (TCP) or are bound (UDP).
    #[serde(default)]
    pub listeners: Vec<Listener>,
    /// What could not be read, and why.
    #[serde(default)]
    pub unread: Vec<Unread>,
}

impl Namespace {
    /// The interface with this name.
    pub fn link(&self, name: &str) -> Option<&Link> {
        self.links.iter().find(|l| &*l.name == name)
    }

    /// A sysctl's value as a number.
    pub fn sysctl(&self, name: &str) -> Option<i64> {
        self.sysctls.get(name)?.trim().parse().ok()
    }

    /// Whether the counters were read when the run began, too.
    pub fn read_twice(&self) -> bool {
        !self.counters_before.is_empty()
    }

    /// How much a counter grew during the run; nothing where it was not read
    /// before and after, for what it counted then may be years old.
    pub fn grew(&self, counter: &str) -> u64 {
        if !self.read_twice() {
            return 0;
        }
        let now = self.counters.get(counter).copied().unwrap_or(0);
        now.saturating_sub(self.counters_before.get(counter).copied().unwrap_or(0))
    }
}

/// An interface.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Link {
    /// Index.
    pub ifindex: u32,
    /// Name.
    pub name: Arc<str>,
    /// `veth`, `vxlan`, `bridge`, ...; empty for hardware.
    pub kind: Arc<str>,
    /// Administratively up.
    pub up: bool,
    /// MTU in bytes.
    pub mtu: u32,
    /// Link-layer address, `aa:bb:cc:dd:ee:ff`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<Arc<str>>,
    /// Index of the bridge or bond it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub master: Option<u32>,
    /// Addresses with prefix length.
    #[serde(default)]
    pub addrs: Vec<Addr>,
    /// VXLAN network identifier.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vni: Option<u32>,
    /// VXLAN's UDP port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vxlan_port: Option<u16>,
    /// VXLAN's or IP-in-IP's own outer address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local: Option<IpAddr>,
}

/// An address of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Addr {
    /// Address.
    pub addr: IpAddr,
    /// Prefix length.
    pub prefix: u8,
}

/// A route.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Route {
    /// Destination.
    pub dst: IpAddr,
    /// Prefix length.
    pub prefix: u8,
    /// `unicast`, `local`, `broadcast`, `blackhole`, `unreachable`, `prohibit`, `throw`.
    #[serde(rename = "type")]
    pub kind: Arc<str>,
    /// Table: 254 is main, 255 local.
    pub table: u32,
    /// Output interface.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dev: Option<Arc<str>>,
    /// Next hop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub via: Option<IpAddr>,
    /// Preferred source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub src: Option<IpAddr>,
    /// Priority, 0 first.
    #[serde(default)]
    pub metric: u32,
}

/// A rule of `ip rule`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PolicyRule {
    /// Lowest first.
    pub priority: u32,
    /// True for IPv6.
    pub ipv6: bool,
    /// Source prefix.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub src: Option<(IpAddr, u8)>,
    /// Destination prefix.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dst: Option<(IpAddr, u8)>,
    /// Input interface.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iif: Option<Arc<str>>,
    /// Output interface.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oif: Option<Arc<str>>,
    /// Packet mark and mask.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fwmark: Option<(u32, u32)>,
    /// Matches what the selectors do not.
    #[serde(default)]
    pub invert: bool,
    /// Table to look in; absent where the rule's action is another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table: Option<u32>,
    /// `lookup`, `blackhole`, `unreachable`, `prohibit`, `goto`, `nop`.
    pub action: Arc<str>,
}

/// A neighbour.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Neighbour {
    /// Address.
    pub addr: IpAddr,
    /// Interface.
    pub dev: Arc<str>,
    /// Link-layer address, absent while unresolved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<Arc<str>>,
    /// `permanent`, `reachable`, `stale`, `delay`, `probe`, `incomplete`, `failed`, `noarp`.
    pub state: Arc<str>,
}

/// An entry of a forwarding database.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Fdb {
    /// Link-layer address.
    pub mac: Arc<str>,
    /// Interface.
    pub dev: Arc<str>,
    /// Remote VTEP, on VXLAN devices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dst: Option<IpAddr>,
}

/// One table dump.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct IptablesDump {
    /// True for `ip6tables-save`.
    pub ipv6: bool,
    /// `nft` or `legacy`.
    pub variant: Arc<str>,
    /// The text, with counters.
    pub text: String,
}

/// A conntrack entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ConntrackEntry {
    /// The entry itself.
    #[serde(flatten)]
    pub entry: crate::trace::Conntrack,
    /// `tcp`, `udp`, ...
    pub proto: Arc<str>,
    /// TCP's state, as conntrack names it (`SYN_SENT`, `ESTABLISHED`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<Arc<str>>,
    /// `SEEN_REPLY`, `ASSURED`, `SRC_NAT`, `DST_NAT`, ...
    #[serde(default)]
    pub status: Vec<Arc<str>>,
}

/// A queueing discipline, or a classifier or eBPF program on one or on TCX.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Qdisc {
    /// Interface.
    pub dev: Arc<str>,
    /// `root`, `ingress`, `egress`.
    pub at: Arc<str>,
    /// `tbf`, `netem`, `htb`, `bpf`, `flower`, `matchall`, `tcx`, ...
    pub kind: Arc<str>,
    /// Program name or a few words of its settings.
    #[serde(default)]
    pub detail: String,
    /// Packets that it dropped so far.
    #[serde(default)]
    pub dropped: u64,
}

/// A listening socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Listener {
    /// TCP, else UDP.
    pub tcp: bool,
    /// Address; unspecified for all.
    pub addr: IpAddr,
    /// Port.
    pub port: u16,
}

/// Something that could not be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Unread {
    /// A field's name, or the command.
    pub what: Arc<str>,
    /// A sentence.
    pub why: String,
}
