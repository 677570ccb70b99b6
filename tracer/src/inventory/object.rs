//! The parts of Kubernetes objects that matter here, and reading them.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use serde::{Deserialize, Deserializer};
use serde_json::Value;
use tracer_common::tuple::proto;

/// Annotations that hold an address of a node's tunnel device or underlay.
pub(super) const VTEP_ANNOTATIONS: &[&str] = &[
    "projectcalico.org/IPv4VXLANTunnelAddr",
    "projectcalico.org/IPv6VXLANTunnelAddr",
    "projectcalico.org/IPv4IPIPTunnelAddr",
    "flannel.alpha.coreos.com/public-ip",
    "flannel.alpha.coreos.com/public-ipv6",
];

/// Label that ties a slice to its Service.
pub(super) const SERVICE_LABEL: &str = "kubernetes.io/service-name";

/// A Service port's protocol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Protocol {
    /// TCP, the default.
    #[default]
    Tcp,
    /// UDP.
    Udp,
    /// SCTP.
    Sctp,
}

impl Protocol {
    /// IP protocol number.
    pub fn number(self) -> u8 {
        match self {
            Self::Tcp => proto::TCP,
            Self::Udp => proto::UDP,
            Self::Sctp => proto::SCTP,
        }
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
            Self::Sctp => "sctp",
        })
    }
}

/// A node.
#[derive(Clone, Debug)]
pub struct Node {
    /// Name.
    pub name: Arc<str>,
    /// `InternalIP`s first, then other addresses.
    pub addrs: Vec<IpAddr>,
    /// The `InternalIP`s.
    pub internal: Vec<IpAddr>,
    /// Addresses of tunnel devices, from the CNI's annotations.
    pub vteps: Vec<IpAddr>,
    /// Pod ranges, as written.
    pub pod_cidrs: Vec<String>,
}

/// A pod.
#[derive(Clone, Debug)]
pub struct Pod {
    /// Namespace.
    pub namespace: Arc<str>,
    /// Name.
    pub name: Arc<str>,
    /// Node it was scheduled to.
    pub node: Option<Arc<str>>,
    /// Addresses; of a finished pod, those it had.
    pub addrs: Vec<IpAddr>,
    /// Uses the node's namespace and address.
    pub host_network: bool,
    /// Succeeded or failed: its addresses may belong to another by now.
    pub finished: bool,
    /// Labels.
    pub labels: BTreeMap<String, String>,
}

impl Pod {
    /// `NS/NAME`.
    pub fn full_name(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}

/// A Service.
#[derive(Clone, Debug)]
pub struct Service {
    /// Namespace.
    pub namespace: Arc<str>,
    /// Name.
    pub name: Arc<str>,
    /// `ClusterIP`s; none when headless.
    pub cluster_ips: Vec<IpAddr>,
    /// External and load balancer addresses.
    pub other_ips: Vec<IpAddr>,
    /// Ports.
    pub ports: Vec<ServicePort>,
    /// Labels that its pods bear.
    pub selector: BTreeMap<String, String>,
}

impl Service {
    /// `NS/NAME`.
    pub fn full_name(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}

/// A port of a Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServicePort {
    /// Name, empty where it has none.
    pub name: String,
    /// Protocol.
    pub protocol: Protocol,
    /// Port at the Service's address.
    pub port: u16,
    /// Port at the nodes' addresses.
    pub node_port: Option<u16>,
    /// `targetPort` as written: a number or a name.
    pub target: Option<String>,
}

/// One `EndpointSlice`.
#[derive(Clone, Debug)]
pub struct Endpoints {
    /// Namespace.
    pub namespace: Arc<str>,
    /// Service it belongs to.
    pub service: Option<Arc<str>>,
    /// Ports.
    pub ports: Vec<SlicePort>,
    /// Endpoints.
    pub endpoints: Vec<SliceEndpoint>,
}

/// A port of a slice.
#[derive(Clone, Debug)]
pub struct SlicePort {
    /// Name, empty where it has none.
    pub name: String,
    /// Protocol.
    pub protocol: Protocol,
    /// Port.
    pub port: Option<u16>,
}

/// An endpoint of a slice.
#[derive(Clone, Debug)]
pub struct SliceEndpoint {
    /// Addresses.
    pub addrs: Vec<IpAddr>,
    /// Ready, or not said to be otherwise.
    pub ready: bool,
    /// Node.
    pub node: Option<Arc<str>>,
}

/// `KIND NS/NAME` as far as an item tells.
pub(super) fn title(kind: &str, item: &Value) -> String {
    let field = |name| item.pointer(name).and_then(Value::as_str);
    let name = field("/metadata/name").unwrap_or("without a name");
    match field("/metadata/namespace") {
        Some(namespace) => format!("{kind} {namespace}/{name}"),
        None => format!("{kind} {name}"),
    }
}

/// null as the default, which Go's encoders write for empty lists.
fn nullable<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(d: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(d)?.unwrap_or_default())
}

fn canonical<'a>(all: impl IntoIterator<Item = &'a String>) -> Vec<IpAddr> {
    let mut addrs = Vec::new();
    for text in all {
        // "None" (headless), "", and host names are no addresses.
        if let Ok(addr) = text.parse::<IpAddr>()
            && !addrs.contains(&addr.to_canonical())
        {
            addrs.push(addr.to_canonical());
        }
    }
    addrs
}

#[derive(Deserialize)]
struct Object<S, T> {
    metadata: Meta,
    #[serde(default = "Option::default")]
    spec: Option<S>,
    #[serde(default = "Option::default")]
    status: Option<T>,
}

#[derive(Deserialize)]
struct Meta {
    name: Arc<str>,
    #[serde(default)]
    namespace: Option<Arc<str>>,
    #[serde(default, deserialize_with = "nullable")]
    labels: BTreeMap<String, String>,
    #[serde(default, deserialize_with = "nullable")]
    annotations: BTreeMap<String, String>,
}

impl Meta {
    fn namespace(&self) -> Arc<str> {
        self.namespace.clone().unwrap_or_else(|| "default".into())
    }
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct NodeSpec {
    #[serde(default, deserialize_with = "nullable", rename = "podCIDRs")]
    pod_cidrs: Vec<String>,
}

#[derive(Default, Deserialize)]
struct NodeStatus {
    #[serde(default, deserialize_with = "nullable")]
    addresses: Vec<NodeAddress>,
}

#[derive(Deserialize)]
struct NodeAddress {
    #[serde(rename = "type")]
    kind: String,
    address: String,
}

impl Node {
    pub(super) fn from_value(item: Value) -> Result<Self, serde_json::Error> {
        let object: Object<NodeSpec, NodeStatus> = serde_json::from_value(item)?;
        let all = object.status.unwrap_or_default().addresses;
        let (internal, other): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|a| a.kind == "InternalIP");
        let internal: Vec<String> = internal.into_iter().map(|a| a.address).collect();
        let other: Vec<String> = other.into_iter().map(|a| a.address).collect();
        let annotations = &object.metadata.annotations;
        let internal_addrs = canonical(&internal);
        let mut vteps = canonical(VTEP_ANNOTATIONS.iter().filter_map(|a| annotations.get(*a)));
        vteps.retain(|a| !internal_addrs.contains(a));
        Ok(Self {
            name: object.metadata.name,
            addrs: canonical(internal.iter().chain(&other)),
            internal: internal_addrs,
            vteps,
            pod_cidrs: object.spec.unwrap_or_default().pod_cidrs,
        })
    }
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PodSpec {
    #[serde(default)]
    node_name: Option<Arc<str>>,
    #[serde(default, deserialize_with = "nullable")]
    host_network: bool,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PodStatus {
    #[serde(default, deserialize_with = "nullable")]
    phase: String,
    #[serde(default, rename = "podIP")]
    pod_ip: Option<String>,
    #[serde(default, deserialize_with = "nullable", rename = "podIPs")]
    pod_ips: Vec<PodIp>,
}

#[derive(Deserialize)]
struct PodIp {
    #[serde(default, deserialize_with = "nullable")]
    ip: String,
}

impl Pod {
    pub(super) fn from_value(item: Value) -> Result<Self, serde_json::Error> {
        let object: Object<PodSpec, PodStatus> = serde_json::from_value(item)?;
        let spec = object.spec.unwrap_or_default();
        let status = object.status.unwrap_or_default();
        let ips = status.pod_ips.iter().map(|p| &p.ip);
        Ok(Self {
            namespace: object.metadata.namespace(),
            name: object.metadata.name,
            node: spec.node_name.filter(|n| !n.is_empty()),
            addrs: canonical(status.pod_ip.iter().chain(ips)),
            host_network: spec.host_network,
            finished: matches!(&*status.phase, "Succeeded" | "Failed"),
            labels: object.metadata.labels,
        })
    }
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ServiceSpec {
    #[serde(default, rename = "clusterIP")]
    cluster_ip: Option<String>,
    #[serde(default, deserialize_with = "nullable", rename = "clusterIPs")]
    cluster_ips: Vec<String>,
    #[serde(default, deserialize_with = "nullable", rename = "externalIPs")]
    external_ips: Vec<String>,
    #[serde(default, deserialize_with = "nullable")]
    ports: Vec<RawPort>,
    #[serde(default, deserialize_with = "nullable")]
    selector: BTreeMap<String, String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawPort {
    #[serde(default, deserialize_with = "nullable")]
    name: String,
    #[serde(default, deserialize_with = "nullable")]
    protocol: Protocol,
    #[serde(default)]
    port: Option<u16>,
    #[serde(default)]
    node_port: Option<u16>,
    #[serde(default)]
    target_port: Value,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ServiceStatus {
    #[serde(default, deserialize_with = "nullable")]
    load_balancer: LoadBalancer,
}

#[derive(Default, Deserialize)]
struct LoadBalancer {
    #[serde(default, deserialize_with = "nullable")]
    ingress: Vec<PodIp>,
}

impl Service {
    pub(super) fn from_value(item: Value) -> Result<Self, serde_json::Error> {
        let object: Object<ServiceSpec, ServiceStatus> = serde_json::from_value(item)?;
        let spec = object.spec.unwrap_or_default();
        let ingress = object.status.unwrap_or_default().load_balancer.ingress;
        let ports = spec.ports.into_iter().filter_map(|p| {
            Some(ServicePort {
                name: p.name,
                protocol: p.protocol,
                port: p.port?,
                node_port: p.node_port.filter(|n| *n != 0),
                target: match p.target_port {
                    Value::String(s) => Some(s),
                    Value::Number(n) => Some(n.to_string()),
                    _ => None,
                },
            })
        });
        let others = spec.external_ips.iter();
        Ok(Self {
            namespace: object.metadata.namespace(),
            name: object.metadata.name,
            cluster_ips: canonical(spec.cluster_ip.iter().chain(&spec.cluster_ips)),
            other_ips: canonical(others.chain(ingress.iter().map(|i| &i.ip))),
            ports: ports.collect(),
            selector: spec.selector,
        })
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawSlice {
    metadata: Meta,
    #[serde(default, deserialize_with = "nullable")]
    ports: Vec<RawPort>,
    #[serde(default, deserialize_with = "nullable")]
    endpoints: Vec<RawEndpoint>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawEndpoint {
    #[serde(default, deserialize_with = "nullable")]
    addresses: Vec<String>,
    #[serde(default, deserialize_with = "nullable")]
    conditions: Conditions,
    #[serde(default)]
    node_name: Option<Arc<str>>,
}

#[derive(Default, Deserialize)]
struct Conditions {
    #[serde(default)]
    ready: Option<bool>,
}

impl Endpoints {
    pub(super) fn from_value(item: Value) -> Result<Self, serde_json::Error> {
        let raw: RawSlice = serde_json::from_value(item)?;
        let ports = raw.ports.into_iter().map(|p| SlicePort {
            name: p.name,
            protocol: p.protocol,
            port: p.port,
        });
        let endpoints = raw.endpoints.into_iter().map(|e| SliceEndpoint {
            addrs: canonical(&e.addresses),
            ready: e.conditions.ready.unwrap_or(true),
            node: e.node_name,
        });
        Ok(Self {
            namespace: raw.metadata.namespace(),
            service: raw
                .metadata
                .labels
                .get(SERVICE_LABEL)
                .map(|s| Arc::from(&**s)),
            ports: ports.collect(),
            endpoints: endpoints.collect(),
        })
    }
}
