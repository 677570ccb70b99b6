//! Why a request cannot be followed.

use std::io;

use tracer_common::MAX_FILTER_RULES;

/// Why a request cannot be followed.
#[derive(Debug, thiserror::Error)]
pub enum TargetError {
    /// Neither end given.
    #[error("nothing to follow: give a source (--pod or --src), a destination (--dst), or both")]
    Nothing,
    /// Two sources.
    #[error("--pod and --src both name a source; give one of them")]
    TwoSources,
    /// Not an address.
    #[error("malformed address {0:?}; write 10.0.0.1, 10.0.0.1:80, fd00::1 or [fd00::1]:80")]
    Address(String),
    /// Not a port.
    #[error("bad port {0:?}; a port is a number from 1 to 65535")]
    Port(String),
    /// Not a name.
    #[error("malformed name {0:?}; write NAME or NAMESPACE/NAME")]
    Name(String),
    /// Unknown protocol.
    #[error("unknown protocol {0:?}; one of tcp, udp, icmp, sctp")]
    Protocol(String),
    /// ICMP has no ports.
    #[error("icmp has no ports; leave out the port or --proto icmp")]
    IcmpPort,
    /// Names need an inventory.
    #[error(
        "{asked} needs the cluster's objects; give --inventory FILE, or use --src ADDR and --dst ADDR[:PORT]"
    )]
    NoInventory {
        /// What was asked for.
        asked: String,
    },
    /// No such object.
    #[error("no {kind} {name}{}", did_you_mean(close))]
    Unknown {
        /// pod or service.
        kind: &'static str,
        /// As asked.
        name: String,
        /// Names that are close.
        close: Vec<String>,
    },
    /// More than one object.
    #[error("{kind} {name} exists in several namespaces: {}; say which", all.join(", "))]
    Ambiguous {
        /// pod or service.
        kind: &'static str,
        /// As asked.
        name: String,
        /// All there are.
        all: Vec<String>,
    },
    /// The object has no address now.
    #[error("{what} has no address: {why}")]
    NoAddress {
        /// `pod NS/NAME`, ...
        what: String,
        /// Why.
        why: &'static str,
    },
    /// A port by a name the Service lacks.
    #[error("service {service} has no port named {port}; it has {has}")]
    NoSuchPort {
        /// `NS/NAME`.
        service: String,
        /// As asked.
        port: String,
        /// What it has.
        has: String,
    },
    /// The ends speak different families.
    #[error(
        "no such address family: source {src} and destination {dst} have none in common; give the other end in the same family"
    )]
    Family {
        /// Source addresses.
        src: String,
        /// Destination addresses.
        dst: String,
    },
    /// Too many combinations.
    #[error(
        "{0} pairs of addresses are more than the {MAX_FILTER_RULES} that can be followed at once; give one --src or --dst address"
    )]
    TooMany(usize),
    /// The name resolves to nothing.
    #[error(
        "cannot resolve {name:?}: {source}; give an address, NAMESPACE/NAME of a service, or pod/NAMESPACE/NAME"
    )]
    Resolve {
        /// As asked.
        name: String,
        /// What the resolver said.
        source: io::Error,
    },
}

fn did_you_mean(close: &[String]) -> String {
    match close {
        [] => "; `kubectl get pods,services -A` lists what there is".to_owned(),
        some => format!("; did you mean {}?", some.join(" or ")),
    }
}

impl TargetError {
    /// 2 where the command line is wrong whatever the cluster looks like, else 1.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Nothing
            | Self::TwoSources
            | Self::Address(_)
            | Self::Port(_)
            | Self::Name(_)
            | Self::Protocol(_)
            | Self::IcmpPort
            | Self::NoInventory { .. } => 2,
            Self::Unknown { .. }
            | Self::Ambiguous { .. }
            | Self::NoAddress { .. }
            | Self::NoSuchPort { .. }
            | Self::Family { .. }
            | Self::TooMany(_)
            | Self::Resolve { .. } => 1,
        }
    }
}
