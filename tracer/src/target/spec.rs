//! The grammar of `--src`, `--dst` and `--proto`.

use std::net::IpAddr;

use tracer_common::tuple::proto;

use super::TargetError;
use crate::inventory::{Inventory, Lookup, Pod, Service};

/// What stands before the port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum DstKind {
    Addr(IpAddr),
    Service(String),
    Pod(String),
    /// A Service, a pod, or a host name.
    Name(String),
}

/// A port by number or by its name in the Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PortSpec {
    Number(u16),
    Name(String),
}

/// A parsed `--dst`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DstSpec {
    pub(super) text: String,
    pub(super) kind: DstKind,
    pub(super) port: Option<PortSpec>,
}

impl DstSpec {
    pub(super) fn number(&self) -> Option<u16> {
        match self.port {
            Some(PortSpec::Number(n)) => Some(n),
            _ => None,
        }
    }
}

pub(super) fn parse_addr(text: &str) -> Result<IpAddr, TargetError> {
    let bare = text.strip_prefix('[').and_then(|t| t.strip_suffix(']'));
    let addr: IpAddr = bare
        .unwrap_or(text)
        .parse()
        .map_err(|_| TargetError::Address(text.to_owned()))?;
    Ok(addr.to_canonical())
}

fn parse_port(text: &str) -> Result<PortSpec, TargetError> {
    let bad = || TargetError::Port(text.to_owned());
    if text.bytes().all(|b| b.is_ascii_digit()) {
        let number = text.parse().ok().filter(|n| *n != 0).ok_or_else(bad)?;
        return Ok(PortSpec::Number(number));
    }
    // RFC 6335 service names, as Kubernetes has them.
    let named = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    if text.bytes().all(named) && !text.starts_with('-') {
        return Ok(PortSpec::Name(text.to_owned()));
    }
    Err(bad())
}

pub(super) fn parse_proto(text: &str) -> Result<u8, TargetError> {
    Ok(match text.to_ascii_lowercase().as_str() {
        "tcp" => proto::TCP,
        "udp" => proto::UDP,
        "icmp" => proto::ICMP,
        "sctp" => proto::SCTP,
        _ => return Err(TargetError::Protocol(text.to_owned())),
    })
}

/// `NAME` or `NS/NAME`, of letters, digits, dots, dashes, underscores.
pub(super) fn check_name(name: &str) -> Result<(), TargetError> {
    let part = |p: &str| {
        let ok = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_');
        !p.is_empty() && p.len() <= 253 && p.bytes().all(ok)
    };
    if name.split('/').count() <= 2 && name.split('/').all(part) {
        return Ok(());
    }
    Err(TargetError::Name(name.to_owned()))
}

pub(super) fn parse_dst(text: &str) -> Result<DstSpec, TargetError> {
    let spec = |kind, port| {
        Ok(DstSpec {
            text: text.to_owned(),
            kind,
            port,
        })
    };
    if let Ok(addr) = parse_addr(text) {
        return spec(DstKind::Addr(addr), None);
    }
    let bad = || TargetError::Address(text.to_owned());
    if text.starts_with('[') {
        let (addr, port) = text.rsplit_once("]:").ok_or_else(bad)?;
        let addr = parse_addr(addr.trim_start_matches('['))?;
        return spec(DstKind::Addr(addr), Some(numeric(port)?));
    }
    let (head, port) = match text.split_once(':') {
        Some((_, rest)) if rest.contains(':') => return Err(bad()),
        Some((head, port)) => (head, Some(port)),
        None => (text, None),
    };
    if let Ok(addr) = parse_addr(head) {
        return spec(DstKind::Addr(addr), port.map(numeric).transpose()?);
    }
    let digits = |b: u8| b.is_ascii_digit() || b == b'.';
    if head.is_empty() || head.bytes().all(digits) {
        return Err(bad());
    }
    let port = port.map(parse_port).transpose()?;
    let kind = match head.split_once('/') {
        Some(("svc" | "service" | "services", name)) => DstKind::Service(name.to_owned()),
        Some(("pod" | "pods" | "po", name)) => DstKind::Pod(name.to_owned()),
        _ => DstKind::Name(head.to_owned()),
    };
    let (DstKind::Service(name) | DstKind::Pod(name) | DstKind::Name(name)) = &kind else {
        return Err(bad());
    };
    check_name(name)?;
    spec(kind, port)
}

fn numeric(text: &str) -> Result<PortSpec, TargetError> {
    match parse_port(text)? {
        number @ PortSpec::Number(_) => Ok(number),
        PortSpec::Name(name) => Err(TargetError::Port(name)),
    }
}

/// The Service that a bare name means to a client in namespace `home`: `NAME`,
/// `NS/NAME`, or as DNS has it `NAME.NS`, `NAME.NS.svc`, `NAME.NS.svc.DOMAIN`.
pub(super) fn service_by_name<'a>(
    inventory: &'a Inventory,
    name: &str,
    home: &str,
) -> Option<&'a Service> {
    let full = match name.split('.').collect::<Vec<_>>().as_slice() {
        _ if name.contains('/') => name.to_owned(),
        [one] => format!("{home}/{one}"),
        [one, namespace] | [one, namespace, "svc", ..] => format!("{namespace}/{one}"),
        _ => return None,
    };
    match inventory.service(&full, home) {
        Lookup::Found(service) => Some(service),
        _ => None,
    }
}

/// The pod that a bare name means: `NAME` in `home`, or `NS/NAME`.
pub(super) fn pod_by_name<'a>(inventory: &'a Inventory, name: &str, home: &str) -> Option<&'a Pod> {
    let full = if name.contains('/') {
        name.to_owned()
    } else {
        format!("{home}/{name}")
    };
    match inventory.pod(&full, home) {
        Lookup::Found(pod) => Some(pod),
        _ => None,
    }
}
