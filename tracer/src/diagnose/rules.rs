//! All rules, in the order in which they are asked about a packet that
//! stopped: the particular before the general.

use super::{Page, Rule};

mod accept_queue_full;
mod address_not_assigned;
mod asymmetric_path;
mod backend_refused;
mod bpf_drop;
mod checksum_fault;
mod conntrack_clash;
mod conntrack_full;
mod conntrack_invalid;
mod delivered;
mod forward_policy;
mod forwarding_off;
mod fragments_lost;
mod hairpin;
mod host_firewall;
mod masquerade_missing;
mod mtu_exceeded;
mod netfilter_drop;
mod no_endpoints;
mod no_local_endpoints;
mod no_reply;
mod no_traffic;
mod packet_drop;
mod pod_gateway;
mod policy_drop;
pub(super) mod probed;
mod rate_limited;
mod rejected;
mod route_localnet;
mod rp_filter;
mod service_not_translated;
mod source_hidden;
mod source_spoofed;
mod stale_backend;
mod tell;
mod ttl_exceeded;
mod tunnel_peer_missing;
mod tunnel_peer_refused;
mod tunnel_peer_wrong;
mod tunnel_port_mismatch;
mod undecided;
mod underlay_loss;

/// Every rule.
pub static RULES: &[&dyn Rule] = &[
    &no_traffic::NoTraffic,
    // Told by the kernel's own words.
    &bpf_drop::BpfDrop,
    &rate_limited::RateLimited,
    &mtu_exceeded::MtuExceeded,
    &ttl_exceeded::TtlExceeded,
    &pod_gateway::PodGateway,
    &tunnel_port_mismatch::TunnelPortMismatch,
    // Told by walking the node's netfilter rules.
    &checksum_fault::ChecksumFault,
    &conntrack_invalid::ConntrackInvalid,
    &no_endpoints::NoEndpoints,
    &no_local_endpoints::NoLocalEndpoints,
    &source_spoofed::SourceSpoofed,
    &tunnel_peer_refused::TunnelPeerRefused,
    &policy_drop::PolicyDrop,
    &forward_policy::ForwardPolicy,
    &host_firewall::HostFirewall,
    &route_localnet::RouteLocalnet,
    &conntrack_full::ConntrackFull,
    &conntrack_clash::ConntrackClash,
    // Told by routes, neighbours and what was translated.
    &hairpin::Hairpin,
    &rp_filter::RpFilter,
    &forwarding_off::ForwardingOff,
    &stale_backend::StaleBackend,
    &address_not_assigned::AddressNotAssigned,
    &tunnel_peer_wrong::TunnelPeerWrong,
    &tunnel_peer_missing::TunnelPeerMissing,
    &service_not_translated::ServiceNotTranslated,
    &backend_refused::BackendRefused,
    &accept_queue_full::AcceptQueueFull,
    &fragments_lost::FragmentsLost,
    &asymmetric_path::AsymmetricPath,
    &masquerade_missing::MasqueradeMissing,
    // What is left.
    &underlay_loss::UnderlayLoss,
    &netfilter_drop::NetfilterDrop,
    &packet_drop::PacketDrop,
    &rejected::Rejected,
    &no_reply::NoReply,
    &source_hidden::SourceHidden,
    &delivered::Delivered,
    &undecided::Undecided,
];

/// Pages of what only `tracer probe` finds, by asking itself.
pub(super) static MORE_PAGES: &[Page] = probed::PAGES;
