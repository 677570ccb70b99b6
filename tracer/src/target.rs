//! From what the user asked for to addresses and filter rules.
//!
//! Names are looked up in the inventory first, then with the system's resolver.

use std::io;
use std::net::{IpAddr, ToSocketAddrs};

use serde_json::Value;
use tracer_common::MAX_FILTER_RULES;
use tracer_common::config::FilterRule;
use tracer_common::tuple::proto;

use crate::event::CtTuple;
use crate::inventory::{Inventory, Lookup, Pod, Service, ServicePort};

mod error;
mod rules;
mod spec;
#[cfg(test)]
mod tests;

pub use error::TargetError;
pub(crate) use rules::proto_name;
pub use rules::to_addr;
use rules::{at_port, describe, list_ports, rules};
use spec::{DstKind, DstSpec, PortSpec};

/// Namespace of names without one.
const DEFAULT_NAMESPACE: &str = "default";

/// What was asked for, as the command line gave it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Asked<'a> {
    /// `--pod`.
    pub pod: Option<&'a str>,
    /// `--src`.
    pub src: Option<&'a str>,
    /// `--dst`.
    pub dst: Option<&'a str>,
    /// `--proto`.
    pub proto: Option<&'a str>,
}

/// What to follow.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// Client addresses; none for any.
    pub src: Vec<IpAddr>,
    /// Server addresses as the client uses them; none for any.
    pub dst: Vec<IpAddr>,
    /// Server port.
    pub port: Option<u16>,
    /// IP protocol; of ICMP, that of the first rule's family.
    pub proto: Option<u8>,
    /// Filter rules, one per pair of addresses of one family.
    pub rules: Vec<FilterRule>,
    /// Where connections may end up when `dst` is a Service: its ready
    /// endpoints. `None` when `dst` is no Service, or when it is not known.
    pub backends: Option<Vec<(IpAddr, u16)>>,
    /// Backends whose own addresses the packets carry when they come here: the
    /// client's node, which translates, is not watched.
    pub translated: Vec<(IpAddr, u16)>,
    /// `NS/NAME` of the client's pod, where asked for by name.
    pub pod: Option<String>,
    /// `NS/NAME` of the Service that `dst` is, where it is one.
    pub service: Option<String>,
    /// Sentences that the user should see: a port that the Service lacks, ...
    pub notes: Vec<String>,
    /// For the trace: what was asked for, as resolved.
    pub summary: Value,
    /// One line for people.
    pub description: String,
}

impl Request {
    /// Whether a connection with these addresses and ports is what was asked for.
    pub fn is_met_by(&self, t: &CtTuple) -> bool {
        let any = |list: &[IpAddr], addr: IpAddr| list.is_empty() || list.contains(&addr);
        let called = any(&self.dst, t.dst) && self.port.is_none_or(|p| p == t.dport);
        any(&self.src, t.src)
            && (called || self.translated.contains(&(t.dst, t.dport)))
            && self.proto.is_none_or(|p| p == t.proto)
    }

    /// Follows the client's calls of a Service on their way to the backends, too,
    /// where the client is on a node that is not `watched`: what comes from there
    /// no longer has the Service's address.
    pub fn watch_from(&mut self, watched: &[&str], inventory: &Inventory) {
        let elsewhere = |addr: &IpAddr| {
            let node = inventory.node_of(*addr);
            node.is_some_and(|node| !watched.contains(&&**node))
        };
        let Some(backends) = self.backends.as_ref() else {
            return;
        };
        if self.src.is_empty() || backends.is_empty() || !self.src.iter().all(elsewhere) {
            return;
        }
        let rules = rules::translated(self, backends);
        if rules.is_empty() || self.rules.len() + rules.len() > MAX_FILTER_RULES as usize {
            return;
        }
        self.translated.clone_from(backends);
        self.rules.extend(rules);
        self.notes.push(
            "the client's node is not watched here: its calls of the Service are followed by the addresses of the backends"
                .to_owned(),
        );
    }
}

/// Resolves a host name to addresses.
pub type Resolver<'a> = &'a dyn Fn(&str) -> io::Result<Vec<IpAddr>>;

fn system_resolver(name: &str) -> io::Result<Vec<IpAddr>> {
    Ok((name, 0).to_socket_addrs()?.map(|a| a.ip()).collect())
}

/// Resolves what was asked for with the system's resolver for host names.
pub fn resolve(asked: Asked<'_>, inventory: Option<&Inventory>) -> Result<Request, TargetError> {
    resolve_with(asked, inventory, &system_resolver)
}

/// The same with another resolver.
pub fn resolve_with(
    asked: Asked<'_>,
    inventory: Option<&Inventory>,
    resolver: Resolver<'_>,
) -> Result<Request, TargetError> {
    let asked_proto = asked.proto.map(spec::parse_proto).transpose()?;
    let mut request = Request::default();
    let source = source(asked, inventory, &mut request)?;
    let home = request.pod.as_deref().and_then(|p| p.split('/').next());
    let home = home.unwrap_or(DEFAULT_NAMESPACE).to_owned();
    let mut dst = Destination::default();
    if let Some(text) = asked.dst {
        dst = destination(&spec::parse_dst(text)?, inventory, &home, resolver)?;
    } else if asked.pod.is_none() && asked.src.is_none() {
        return Err(TargetError::Nothing);
    }
    if asked_proto == Some(proto::ICMP) && dst.asked_port {
        return Err(TargetError::IcmpPort);
    }
    settle(&mut request, &mut dst, asked_proto, inventory);
    request.rules = rules(&request)?;
    if asked_proto == Some(proto::ICMP) {
        request.proto = request.rules.first().map(|r| r.proto);
    }
    describe(&mut request, source.as_deref(), dst.name.as_deref());
    Ok(request)
}

/// Fills in the source; returns its name.
fn source(
    asked: Asked<'_>,
    inventory: Option<&Inventory>,
    request: &mut Request,
) -> Result<Option<String>, TargetError> {
    match (asked.pod, asked.src) {
        (Some(_), Some(_)) => Err(TargetError::TwoSources),
        (None, None) => Ok(None),
        (None, Some(text)) => {
            let addr = spec::parse_addr(text)?;
            request.src = vec![addr];
            Ok(inventory
                .and_then(|i| i.name(addr))
                .map(ToString::to_string))
        }
        (Some(name), None) => {
            let name = name.strip_prefix("pod/").unwrap_or(name);
            spec::check_name(name)?;
            let asked = || format!("--pod {name}");
            let pod = live_pod(name, DEFAULT_NAMESPACE, inventory, asked)?;
            request.src.clone_from(&pod.addrs);
            request.notes.extend(host_network_note(pod));
            request.pod = Some(pod.full_name());
            Ok(Some(format!("pod/{}", pod.full_name())))
        }
    }
}

/// What `--dst` came to.
#[derive(Debug, Default)]
struct Destination<'a> {
    addrs: Vec<IpAddr>,
    port: Option<u16>,
    asked_port: bool,
    name: Option<String>,
    note: Option<String>,
    /// The Service and those of its ports that are meant.
    service: Option<(&'a Service, Vec<&'a ServicePort>)>,
}

fn unwrap_lookup<'a, T>(
    found: Lookup<'a, T>,
    kind: &'static str,
    name: &str,
) -> Result<&'a T, TargetError> {
    let name = name.to_owned();
    match found {
        Lookup::Found(object) => Ok(object),
        Lookup::Ambiguous(all) => Err(TargetError::Ambiguous { kind, name, all }),
        Lookup::Missing(close) => Err(TargetError::Unknown { kind, name, close }),
    }
}

/// A pod that has addresses now.
fn live_pod<'a>(
    name: &str,
    home: &str,
    inventory: Option<&'a Inventory>,
    asked: impl Fn() -> String,
) -> Result<&'a Pod, TargetError> {
    let inventory = inventory.ok_or_else(|| TargetError::NoInventory { asked: asked() })?;
    let pod = unwrap_lookup(inventory.pod(name, home), "pod", name)?;
    let why = match pod {
        p if p.finished => "it has finished",
        p if p.addrs.is_empty() => "it is not running yet",
        _ => return Ok(pod),
    };
    let what = format!("pod {}", pod.full_name());
    Err(TargetError::NoAddress { what, why })
}

fn host_network_note(pod: &Pod) -> Option<String> {
    let name = pod.full_name();
    pod.host_network.then(|| {
        format!(
            "pod {name} uses its node's network: other traffic of the node has the same address"
        )
    })
}

fn by_pod(dst: &mut Destination<'_>, pod: &Pod) {
    dst.addrs.clone_from(&pod.addrs);
    dst.name = Some(format!("pod/{}", pod.full_name()));
    dst.note = host_network_note(pod);
}

fn destination<'a>(
    spec: &DstSpec,
    inventory: Option<&'a Inventory>,
    home: &str,
    resolver: Resolver<'_>,
) -> Result<Destination<'a>, TargetError> {
    let asked = || format!("--dst {}", spec.text);
    let mut dst = Destination {
        asked_port: spec.port.is_some(),
        port: spec.number(),
        ..Destination::default()
    };
    match &spec.kind {
        DstKind::Addr(addr) => {
            dst.addrs = vec![*addr];
            at_address(&mut dst, *addr, inventory);
        }
        DstKind::Service(name) => {
            let inventory = inventory.ok_or_else(|| TargetError::NoInventory { asked: asked() })?;
            let service = unwrap_lookup(inventory.service(name, home), "service", name)?;
            by_service(&mut dst, service, spec.port.as_ref(), inventory)?;
        }
        DstKind::Pod(name) => {
            by_pod(&mut dst, live_pod(name, home, inventory, asked)?);
        }
        DstKind::Name(name) => {
            let found = inventory.and_then(|i| Some((i, spec::service_by_name(i, name, home)?)));
            if let Some((inventory, service)) = found {
                by_service(&mut dst, service, spec.port.as_ref(), inventory)?;
            } else if let Some(pod) = inventory.and_then(|i| spec::pod_by_name(i, name, home)) {
                by_pod(
                    &mut dst,
                    live_pod(&pod.full_name(), home, inventory, asked)?,
                );
            } else if name.contains('/') {
                let inventory =
                    inventory.ok_or_else(|| TargetError::NoInventory { asked: asked() })?;
                unwrap_lookup(inventory.service(name, home), "service or pod", name)?;
            } else {
                by_dns(&mut dst, name, inventory, resolver)?;
            }
        }
    }
    if let (None, Some(PortSpec::Name(port))) = (&dst.service, &spec.port) {
        return Err(TargetError::Port(port.clone()));
    }
    Ok(dst)
}

fn by_dns<'a>(
    dst: &mut Destination<'a>,
    name: &str,
    inventory: Option<&'a Inventory>,
    resolver: Resolver<'_>,
) -> Result<(), TargetError> {
    let resolved = resolver(name).and_then(|addrs| {
        if addrs.is_empty() {
            return Err(io::Error::other("no address"));
        }
        Ok(addrs)
    });
    let addrs = resolved.map_err(|source| TargetError::Resolve {
        name: name.to_owned(),
        source,
    })?;
    for addr in addrs.iter().map(IpAddr::to_canonical) {
        if !dst.addrs.contains(&addr) {
            dst.addrs.push(addr);
        }
    }
    dst.name = Some(name.to_owned());
    if let [only] = dst.addrs.as_slice() {
        at_address(dst, *only, inventory);
    }
    Ok(())
}

/// An address may be a `ClusterIP`, or a node's with a node port.
fn at_address<'a>(dst: &mut Destination<'a>, addr: IpAddr, inventory: Option<&'a Inventory>) {
    let Some(inventory) = inventory else { return };
    dst.name = dst
        .name
        .take()
        .or_else(|| inventory.name(addr).map(ToString::to_string));
    let found = inventory.services_at(addr, dst.port);
    if let Some((service, _)) = found.first() {
        dst.service = Some((service, found.iter().map(|(_, p)| *p).collect()));
    } else if let Some((service, _)) = inventory.services_at(addr, None).first() {
        // A ClusterIP, but not this port of it: nothing will translate it.
        dst.service = Some((service, Vec::new()));
    }
}

fn by_service<'a>(
    dst: &mut Destination<'a>,
    service: &'a Service,
    port: Option<&PortSpec>,
    inventory: &'a Inventory,
) -> Result<(), TargetError> {
    let ports: Vec<&ServicePort> = match port {
        Some(PortSpec::Number(n)) => service.ports.iter().filter(|p| p.port == *n).collect(),
        Some(PortSpec::Name(n)) => {
            let named: Vec<_> = service.ports.iter().filter(|p| p.name == *n).collect();
            if named.is_empty() {
                return Err(TargetError::NoSuchPort {
                    service: service.full_name(),
                    port: n.clone(),
                    has: list_ports(service),
                });
            }
            named
        }
        None => service.ports.iter().collect(),
    };
    dst.name = Some(format!("svc/{}", service.full_name()));
    dst.addrs.clone_from(&service.cluster_ips);
    let numbers = |ports: &[&ServicePort]| {
        let first = ports.first()?.port;
        ports.iter().all(|p| p.port == first).then_some(first)
    };
    dst.port = dst.port.or_else(|| numbers(&ports));
    if dst.addrs.is_empty() {
        // Headless: clients use the endpoints' own addresses and ports.
        let behind: Vec<_> = ports
            .iter()
            .flat_map(|p| inventory.backends(service, p))
            .collect();
        for backend in &behind {
            if !dst.addrs.contains(&backend.addr) {
                dst.addrs.push(backend.addr);
            }
        }
        if let [first, rest @ ..] = behind.as_slice()
            && rest.iter().all(|b| b.port == first.port)
        {
            dst.port = Some(first.port);
        }
        if dst.addrs.is_empty() {
            return Err(TargetError::NoAddress {
                what: format!("headless service {}", service.full_name()),
                why: "it has no endpoints",
            });
        }
    }
    dst.service = Some((service, ports));
    Ok(())
}

/// Decides port, protocol and backends.
fn settle(
    request: &mut Request,
    dst: &mut Destination<'_>,
    asked_proto: Option<u8>,
    inventory: Option<&Inventory>,
) {
    let offered = |number: u8| {
        let ports = dst.service.iter().flat_map(|(_, ports)| ports);
        ports.into_iter().any(|p| p.protocol.number() == number)
    };
    let service_proto = || {
        let mut all = dst.service.iter().flat_map(|(_, ports)| ports);
        all.next().map(|p| p.protocol.number())
    };
    // TCP unless the Service offers only something else at this port.
    let by_default = || match service_proto() {
        Some(other) if !offered(proto::TCP) => other,
        _ => proto::TCP,
    };
    request.proto = asked_proto.or_else(|| dst.port.map(|_| by_default()));
    request.port = dst.port.filter(|_| request.proto != Some(proto::ICMP));
    request.dst = std::mem::take(&mut dst.addrs);
    request.notes.extend(dst.note.take());
    let Some((service, ports)) = &dst.service else {
        return;
    };
    request.service = Some(service.full_name());
    let chosen: Vec<_> = ports
        .iter()
        .filter(|p| request.proto.is_none_or(|n| p.protocol.number() == n))
        .collect();
    if chosen.is_empty() && request.proto != Some(proto::ICMP) {
        request.notes.push(format!(
            "service {} does not serve {}; it has {}",
            service.full_name(),
            at_port(request.port, request.proto),
            list_ports(service)
        ));
    }
    let Some(inventory) = inventory.filter(|i| i.knows_endpoints()) else {
        return;
    };
    let mut backends = Vec::new();
    for backend in chosen.iter().flat_map(|p| inventory.backends(service, p)) {
        if backend.ready && !backends.contains(&(backend.addr, backend.port)) {
            backends.push((backend.addr, backend.port));
        }
    }
    request.backends = Some(backends);
}
