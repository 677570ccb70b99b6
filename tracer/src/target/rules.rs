//! Filter rules for a resolved request, and its description.

use std::net::IpAddr;

use serde_json::{Value, json};
use tracer_common::MAX_FILTER_RULES;
use tracer_common::config::{FilterRule, HAS_DST, HAS_SRC};
use tracer_common::tuple::{Addr, from_bytes, mapped, proto};

use super::{Request, TargetError};
use crate::inventory::Service;

/// An address in the form that the kernel side compares.
pub fn to_addr(addr: IpAddr) -> Addr {
    match addr {
        IpAddr::V4(v4) => mapped(u32::from_ne_bytes(v4.octets())),
        IpAddr::V6(v6) => from_bytes(v6.octets()),
    }
}

fn join<T: ToString>(all: &[T]) -> String {
    let all: Vec<_> = all.iter().map(T::to_string).collect();
    all.join(", ")
}

pub(super) fn rules(request: &Request) -> Result<Vec<FilterRule>, TargetError> {
    let options = |addrs: &[IpAddr]| -> Vec<Option<IpAddr>> {
        match addrs {
            [] => vec![None],
            some => some.iter().copied().map(Some).collect(),
        }
    };
    let mut rules = Vec::new();
    for src in options(&request.src) {
        for dst in options(&request.dst) {
            let v6 = [src, dst].map(|a| a.map(|a| a.is_ipv6()));
            if let [Some(a), Some(b)] = v6
                && a != b
            {
                continue;
            }
            let is_v6 = v6.contains(&Some(true));
            let given = u8::from(src.is_some()) * HAS_SRC + u8::from(dst.is_some()) * HAS_DST;
            rules.push(FilterRule {
                src: src.map(to_addr).unwrap_or_default(),
                dst: dst.map(to_addr).unwrap_or_default(),
                dport: request.port.unwrap_or(0),
                proto: match request.proto {
                    Some(proto::ICMP) if is_v6 => proto::ICMPV6,
                    other => other.unwrap_or(0),
                },
                given,
                pad: 0,
            });
        }
    }
    // A node port on the loopback: no interface sees the packet before it is
    // translated, and it may be dropped right then.
    let loopback: Vec<IpAddr> = request
        .dst
        .iter()
        .copied()
        .filter(IpAddr::is_loopback)
        .collect();
    let backends = request.backends.as_deref().unwrap_or_default();
    rules.extend(pairs(&loopback, backends, request.proto));
    match rules.len() {
        0 => Err(TargetError::Family {
            src: join(&request.src),
            dst: join(&request.dst),
        }),
        n if n > MAX_FILTER_RULES as usize => Err(TargetError::TooMany(n)),
        _ => Ok(rules),
    }
}

/// From each address to each backend of its family.
fn pairs<'a>(
    from: &'a [IpAddr],
    to: &'a [(IpAddr, u16)],
    proto: Option<u8>,
) -> impl Iterator<Item = FilterRule> + 'a {
    from.iter().flat_map(move |src| {
        let family = to.iter().filter(|to| to.0.is_ipv6() == src.is_ipv6());
        family.map(move |(dst, port)| FilterRule {
            src: to_addr(*src),
            dst: to_addr(*dst),
            dport: *port,
            proto: proto.unwrap_or(0),
            given: HAS_SRC + HAS_DST,
            pad: 0,
        })
    })
}

/// The calls of a Service as they are when their address was translated.
pub(super) fn translated(request: &Request, backends: &[(IpAddr, u16)]) -> Vec<FilterRule> {
    pairs(&request.src, backends, request.proto).collect()
}

/// `tcp`, `udp`, ...; a number where it has no name here.
pub(crate) fn proto_name(number: u8) -> String {
    match number {
        proto::TCP => "tcp".to_owned(),
        proto::UDP => "udp".to_owned(),
        proto::SCTP => "sctp".to_owned(),
        proto::ICMP | proto::ICMPV6 => "icmp".to_owned(),
        other => other.to_string(),
    }
}

pub(super) fn at_port(port: Option<u16>, proto: Option<u8>) -> String {
    match (port, proto.map(proto_name)) {
        (Some(port), Some(proto)) => format!("{port}/{proto}"),
        (Some(port), None) => format!("port {port}"),
        (None, Some(proto)) => proto,
        (None, None) => "any protocol".to_owned(),
    }
}

pub(super) fn describe(request: &mut Request, src: Option<&str>, dst: Option<&str>) {
    let end = |addrs: &[IpAddr], name: Option<&str>| match (name, addrs) {
        (Some(name), []) => name.to_owned(),
        (Some(name), addrs) => format!("{name} ({})", join(addrs)),
        (None, []) => "anyone".to_owned(),
        (None, addrs) => join(addrs),
    };
    let (from, to) = (end(&request.src, src), end(&request.dst, dst));
    let what = at_port(request.port, request.proto);
    request.description = format!("{from} -> {to}, {what}");
    let mut summary = json!({"src": request.src, "dst": request.dst});
    let backends = request.backends.as_ref().map(|all| {
        let each = all
            .iter()
            .map(|(addr, port)| json!({"addr": addr, "port": port}));
        Value::from(each.collect::<Vec<_>>())
    });
    for (key, value) in [
        ("src_name", src.map(Value::from)),
        ("dst_name", dst.map(Value::from)),
        ("service", request.service.clone().map(Value::from)),
        ("port", request.port.map(Value::from)),
        ("proto", request.proto.map(|p| proto_name(p).into())),
        ("backends", backends),
    ] {
        if let Some(value) = value {
            summary[key] = value;
        }
    }
    request.summary = summary;
}

/// The ports of a Service in words.
pub(super) fn list_ports(service: &Service) -> String {
    let each = service.ports.iter().map(|p| match &*p.name {
        "" => format!("{}/{}", p.port, p.protocol),
        name => format!("{}/{} ({name})", p.port, p.protocol),
    });
    let all: Vec<_> = each.collect();
    if all.is_empty() {
        return "no ports".to_owned();
    }
    all.join(", ")
}
