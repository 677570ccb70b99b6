//! What is tried: by name, by the Service's address, by each backend's.

use std::net::{IpAddr, SocketAddr};

use tracer_common::MAX_FILTER_RULES;
use tracer_common::config::{FilterRule, HAS_DST, HAS_SRC};
use tracer_common::tuple::proto;

use super::Client;
use super::settings::dns_service;
use crate::inventory::{Backend, Inventory, Lookup, Service, ServicePort};
use crate::target::{Request, to_addr};
use crate::trace::probe::Way;

/// Backends that are tried one by one.
const MOST_BACKENDS: usize = 8;
const DNS: u16 = 53;

/// One connection to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// In which way the server is addressed.
    pub way: Way,
    /// To where; absent where a name has to be looked up first.
    pub addr: Option<SocketAddr>,
    /// The cluster says that this backend is not ready.
    pub unready: bool,
}

/// All connections to be made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// The name to look up.
    pub name: Option<String>,
    /// The port at the name's address.
    pub port: u16,
    /// Datagrams instead of connections.
    pub udp: bool,
    /// In order.
    pub targets: Vec<Target>,
    /// Addresses that the name should have.
    pub expected: Vec<IpAddr>,
    /// Sentences about what is left out.
    pub notes: Vec<String>,
}

/// There is nothing to connect to.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// No port.
    #[error("to which port? write --dst {dst}:PORT{has}")]
    NoPort {
        /// As asked.
        dst: String,
        /// Ports that the Service has.
        has: String,
    },
}

impl Plan {
    /// Whether a name is looked up.
    pub fn asks(&self) -> bool {
        self.name.is_some()
    }
}

/// The name that a program in the pod would write for what `--dst` says: as it
/// stands there, or the Service's shortest one.
fn name(dst: &str, service: Option<&Service>, home: &str) -> Option<String> {
    let head = dst.split(':').next().unwrap_or_default();
    let is_addr =
        dst.starts_with('[') || head.parse::<IpAddr>().is_ok() || dst.parse::<IpAddr>().is_ok();
    if !is_addr && !head.contains('/') {
        return Some(head.to_owned());
    }
    let service = service?;
    Some(if *service.namespace == *home {
        service.name.to_string()
    } else {
        format!("{}.{}", service.name, service.namespace)
    })
}

/// Plans the connections for a request whose destination is `dst` as given.
pub fn plan(
    request: &Request,
    dst: &str,
    inventory: Option<&Inventory>,
    client: &Client,
) -> Result<Plan, PlanError> {
    let home = client.pod.split('/').next().unwrap_or_default();
    let service = inventory.and_then(|i| match i.service(request.service.as_ref()?, home) {
        Lookup::Found(service) => Some(service),
        _ => None,
    });
    let port = request.port.ok_or_else(|| PlanError::NoPort {
        dst: dst.to_owned(),
        has: service.map_or_else(String::new, ports),
    })?;
    let mut plan = Plan {
        port,
        udp: request.proto == Some(proto::UDP),
        ..Plan::default()
    };
    // Node ports and load balancers have addresses without the Service's name.
    let own = |s: &&Service| {
        request.dst.iter().all(|a| s.cluster_ips.contains(a)) || s.cluster_ips.is_empty()
    };
    let is_pod = |addr: IpAddr| inventory.is_some_and(|i| i.pod_at(addr).is_some());
    let headless = service.is_some_and(|s| s.cluster_ips.is_empty());
    let to_pod = service.is_none() && request.dst.iter().any(|a| is_pod(*a));
    plan.name = name(dst, service.filter(own), home).filter(|_| !to_pod);
    if plan.name.is_some() {
        plan.targets.push(Target {
            way: Way::Name,
            addr: None,
            unready: false,
        });
    }
    for addr in request.dst.iter().filter(|a| !headless && client.has(**a)) {
        let way = match service {
            Some(s) if s.cluster_ips.contains(addr) => Way::ClusterIp,
            None if is_pod(*addr) => Way::Pod,
            _ => Way::Address,
        };
        plan.targets.push(Target {
            way,
            addr: Some(SocketAddr::new(*addr, port)),
            unready: false,
        });
    }
    if let (Some(service), Some(inventory)) = (service, inventory) {
        backends(&mut plan, service, inventory, client, headless);
        if !headless {
            plan.expected.clone_from(&service.cluster_ips);
        }
    }
    Ok(plan)
}

fn ports(service: &Service) -> String {
    let all = service.ports.iter();
    let all: Vec<String> = all.map(|p| format!("{}/{}", p.port, p.protocol)).collect();
    format!("; service {} has {}", service.full_name(), all.join(", "))
}

fn backends(
    plan: &mut Plan,
    service: &Service,
    inventory: &Inventory,
    client: &Client,
    headless: bool,
) {
    let wanted = if plan.udp { proto::UDP } else { proto::TCP };
    let meant = |p: &&ServicePort| {
        let here = p.port == plan.port || p.node_port == Some(plan.port) || headless;
        here && p.protocol.number() == wanted
    };
    let mut all: Vec<Backend> = Vec::new();
    for port in service.ports.iter().filter(meant) {
        for backend in inventory.backends(service, port) {
            if client.has(backend.addr) && !all.contains(&backend) {
                all.push(backend);
            }
        }
    }
    all.sort_by_key(|b| !b.ready);
    if headless {
        plan.expected = all.iter().map(|b| b.addr).collect();
    }
    if all.is_empty() {
        let text = format!("service {} has no endpoints", service.full_name());
        plan.notes.push(text);
    } else if all.len() > MOST_BACKENDS {
        plan.notes.push(format!(
            "service {} has {} endpoints; the first {MOST_BACKENDS} are tried, ready ones first",
            service.full_name(),
            all.len()
        ));
    }
    let targets = all.iter().take(MOST_BACKENDS).map(|b| Target {
        way: Way::Backend,
        addr: Some(SocketAddr::new(b.addr, b.port)),
        unready: !b.ready,
    });
    plan.targets.extend(targets);
}

/// Makes the request follow all that the plan sends, and watch where it goes.
pub fn widen(request: &mut Request, plan: &Plan, client: &Client, inventory: Option<&Inventory>) {
    let sends = if plan.udp { proto::UDP } else { proto::TCP };
    let mut ends: Vec<(Option<IpAddr>, u16, u8)> = Vec::new();
    let mut add = |end| {
        if !ends.contains(&end) {
            ends.push(end);
        }
    };
    for addr in plan.targets.iter().filter_map(|t| t.addr) {
        add((Some(addr.ip()), addr.port(), sends));
    }
    if plan.asks() {
        let servers = client.resolver.iter().flat_map(|r| &r.nameservers);
        for server in servers {
            add((Some(*server), DNS, proto::UDP));
            request
                .dst
                .extend((!request.dst.is_empty()).then_some(*server));
        }
        // Only the answer will tell where it is.
        if plan.expected.is_empty() {
            add((None, plan.port, sends));
        }
    }
    let mut rules = Vec::new();
    for src in &request.src {
        for (dst, port, number) in &ends {
            if dst.is_some_and(|d| d.is_ipv4() != src.is_ipv4()) {
                continue;
            }
            rules.push(FilterRule {
                src: to_addr(*src),
                dst: dst.map(to_addr).unwrap_or_default(),
                dport: *port,
                proto: *number,
                given: HAS_SRC + u8::from(dst.is_some()) * HAS_DST,
                pad: 0,
            });
        }
    }
    rules.truncate(MAX_FILTER_RULES as usize);
    request.rules = rules;
    watch(request, plan, inventory);
}

/// The pods behind everything that is addressed, for the interfaces to watch.
/// Where none stands behind the Service, all interfaces are.
fn watch(request: &mut Request, plan: &Plan, inventory: Option<&Inventory>) {
    if request.backends.as_ref().is_some_and(Vec::is_empty) || request.dst.is_empty() {
        return;
    }
    let direct = plan.targets.iter().filter_map(|t| t.addr);
    let pods = direct.filter(|a| inventory.is_some_and(|i| i.pod_at(a.ip()).is_some()));
    let mut behind: Vec<(IpAddr, u16)> = pods.map(|a| (a.ip(), a.port())).collect();
    if let (true, Some(inventory)) = (plan.asks(), inventory)
        && let Some(dns) = dns_service(inventory)
    {
        let ports = dns.ports.iter().filter(|p| p.port == DNS);
        let servers = ports.flat_map(|p| inventory.backends(dns, p));
        behind.extend(servers.filter(|b| b.ready).map(|b| (b.addr, b.port)));
    }
    let known = request.backends.get_or_insert_default();
    for end in behind {
        if !known.contains(&end) {
            known.push(end);
        }
    }
    if known.is_empty() {
        request.backends = None;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::inventory::tests::sample;
    use crate::netns::NetNs;
    use crate::target::{Asked, resolve_with};

    fn planned(dst: &str, proto: &str) -> Result<(Request, Plan), String> {
        let inventory = sample();
        let asked = Asked {
            pod: Some("client"),
            src: None,
            dst: Some(dst),
            proto: Some(proto),
        };
        let no_dns = |_: &str| Err(std::io::Error::other("not asked"));
        let mut request = resolve_with(asked, Some(&inventory), &no_dns).unwrap();
        let client = Client {
            ns: Arc::new(NetNs::current().unwrap()),
            pod: "default/client".to_owned(),
            addrs: vec!["10.244.80.65".parse().unwrap()],
            resolver: Some(super::super::resolv::parse("nameserver 10.96.0.53", "")),
        };
        let plan = plan(&request, dst, Some(&inventory), &client).map_err(|e| e.to_string())?;
        widen(&mut request, &plan, &client, Some(&inventory));
        Ok((request, plan))
    }

    fn ways(plan: &Plan) -> Vec<String> {
        let all = plan.targets.iter();
        all.map(|t| {
            let addr = t.addr.map_or_else(String::new, |a| a.to_string());
            format!(
                "{:?} {addr}{}",
                t.way,
                if t.unready { " unready" } else { "" }
            )
        })
        .collect()
    }

    #[test]
    fn three_ways_to_a_service() {
        for (dst, name) in [
            ("svc/web", "web"),
            ("10.96.0.10:80", "web"),
            ("web.default", "web.default"),
        ] {
            let (request, plan) = planned(dst, "tcp").unwrap();
            assert_eq!(plan.name.as_deref(), Some(name), "{dst}");
            assert_eq!(
                ways(&plan),
                [
                    "Name ",
                    "ClusterIp 10.96.0.10:80",
                    "Backend 10.244.2.10:8080",
                    "Backend 10.244.2.11:8080 unready"
                ]
            );
            // The Service, two backends and the name server, from two addresses of which one is IPv6.
            assert_eq!(request.rules.len(), 4);
            assert!(request.rules.iter().all(|r| r.given == HAS_SRC + HAS_DST));
        }
        let (_, plan) = planned("svc/kube-system/dns:53", "udp").unwrap();
        assert_eq!(plan.name.as_deref(), Some("dns.kube-system"));
        assert!(plan.udp);
        assert_eq!(plan.notes, ["service kube-system/dns has no endpoints"]);
    }

    #[test]
    fn other_destinations() {
        let (_, plan) = planned("pod/server:8080", "tcp").unwrap();
        assert_eq!(ways(&plan), ["Pod 10.244.2.10:8080"]);
        let (_, plan) = planned("server:8080", "tcp").unwrap();
        assert_eq!(plan.name, None, "pods have no names in DNS");
        let (_, plan) = planned("172.18.0.2:30080", "tcp").unwrap();
        assert_eq!(ways(&plan)[0], "Address 172.18.0.2:30080");
        assert_eq!(plan.name, None, "a node port has no name");
        let (_, plan) = planned("headless:8080", "tcp").unwrap();
        assert_eq!(ways(&plan), ["Name ", "Backend 10.244.2.10:8080"]);
        assert_eq!(plan.expected, ["10.244.2.10".parse::<IpAddr>().unwrap()]);
        let (_, plan) = planned("192.0.2.1:443", "tcp").unwrap();
        assert_eq!(ways(&plan), ["Address 192.0.2.1:443"]);
        let e = planned("svc/kube-system/dns", "tcp").unwrap_err();
        assert!(e.contains("53/"), "{e}");
        let e = planned("10.96.0.10", "tcp").unwrap_err();
        assert!(
            e.contains("10.96.0.10:PORT; service default/web has 80/"),
            "{e}"
        );
    }
}
