//! The cases.

use crate::case::Case;
use crate::traffic::{self, Outcome};

const CLIENT_CHAIN: &str = "cali-fw-cali747ff840379";
const REMOTE_CHAIN: &str = "cali-tw-cali1b2c3d4e5f6";
const CLIENT_END: &str = "cali747ff840379";
const REMOTE_END: &str = "cali1b2c3d4e5f6";
const VIP: &str = "10.98.235.247:80";
const ASKING: &[&str] = &[
    "--pod",
    "client",
    "--dst",
    "10.96.0.10:53",
    "--proto",
    "udp",
];
const ANYTHING: &[&str] = &["--pod", "client"];
const NODE_PORT: &[&str] = &["--src", "172.31.0.5", "--dst", "172.31.0.2:30080"];
const LARGE_ANSWER: &[&str] = &[
    "--pod",
    "client",
    "--dst",
    "172.31.0.5:8080",
    "--proto",
    "udp",
];

/// A test for each row; what a row does not say is as in [`Case::SILENT`].
macro_rules! cases {
    ($($(#[$attribute:meta])* $name:ident { $($field:ident: $value:expr),+ $(,)? })+) => {$(
        #[test]
        $(#[$attribute])*
        fn $name() {
            Case { $($field: $value,)+ ..Case::SILENT }.run(stringify!($name));
        }
    )+};
}

// Services.
cases! {
    c01_no_endpoints {
        fault: "no-endpoints", witness: Outcome::Refused,
        code: "no-endpoints", nodes: &["worker"], words: &[VIP, "default/remote"],
    }
    c02_nat_flushed {
        fault: "nat-flushed", works: Some(traffic::remote_works),
        code: "service-not-translated", nodes: &["worker"], words: &[VIP, "default/remote"],
    }
    c03_endpoint_gone {
        fault: "endpoint-gone", works: Some(traffic::remote_works),
        code: "stale-backend", nodes: &["worker", "worker2"], words: &["10.244.158.99", "default/remote"],
    }
    c05_dns_entry_stale {
        fault: "dns-entry-stale", follow: ASKING, traffic: traffic::ask_from_kept_port,
        works: Some(traffic::new_question_works),
        code: "stale-backend", nodes: &["worker", "worker2"], words: &["10.244.158.66", "conntrack"],
    }
    c07_local_policy {
        fault: "local-policy", follow: NODE_PORT, traffic: traffic::call_node_port,
        works: Some(traffic::other_node_port_works),
        code: "no-local-endpoints", nodes: &["worker"], words: &["30080", "default/remote"],
    }
    c10_affinity_to_gone {
        fault: "affinity-to-gone", works: Some(traffic::service_works_on_node),
        code: "stale-backend", nodes: &["worker", "worker2"], words: &["10.244.158.65", "affinity"],
    }
    c13_hairpin {
        fault: "hairpin", works: Some(traffic::service_works_for_neighbour),
        code: "hairpin-not-masqueraded", nodes: &["worker"], words: &["10.244.80.65"],
    }
    #[ignore = "needs IPVS and dummy devices, which the other kernels of the matrix have"]
    c16_ipvs_no_destination {
        fault: "ipvs-no-destination", witness: Outcome::Refused,
        code: "no-endpoints", nodes: &["worker"], words: &[VIP, "IPVS"],
    }
    c20_two_resolvers {
        fault: "two-resolvers", follow: ASKING, traffic: traffic::ask_in_pairs,
        witness: Outcome::Answered, code: "delivered", exit: 0,
    }
}

// Endpoints.
cases! {
    c09_wrong_target_port {
        fault: "wrong-target-port", witness: Outcome::Refused,
        code: "backend-refused", nodes: &["worker2"], words: &["10.244.158.65:8081", "remote"],
    }
    c70_accept_queue_full {
        fault: "accept-queue-full", works: Some(traffic::remote_works),
        code: "accept-queue-full", nodes: &["worker2"], words: &["10.244.158.65:8082", "ListenOverflows"],
    }
}

// Network policies.
cases! {
    c11_node_port_source_hidden {
        fault: "node-port-source-hidden", follow: NODE_PORT, traffic: traffic::call_node_port,
        works: Some(traffic::other_node_port_works),
        code: "policy-drop", nodes: &["worker2"],
        words: &[REMOTE_CHAIN, "office", "172.31.0.5", "10.244.80.64"],
    }
    c58_ingress_denied {
        fault: "ingress-denied", works: Some(traffic::other_pod_works),
        code: "policy-drop", nodes: &["worker2"], words: &[REMOTE_CHAIN, "default-deny", "ingress"],
    }
    c59_egress_without_dns {
        fault: "egress-without-dns", follow: ASKING, traffic: traffic::ask,
        works: Some(traffic::service_works),
        code: "policy-drop", nodes: &["worker"], words: &[CLIENT_CHAIN, "allow-web", "egress", "DNS"],
    }
    c60_policy_of_service_port {
        fault: "policy-of-service-port",
        code: "policy-drop", nodes: &["worker"],
        words: &[CLIENT_CHAIN, "allow-svc", "egress", "10.244.158.65:8080", "10.98.235.247"],
    }
    c62_host_network_client {
        fault: "host-network-client", traffic: traffic::call_remote_from_node,
        follow: &["--src", "10.244.80.64", "--dst", "10.244.158.65:8080"],
        works: Some(traffic::remote_works),
        code: "policy-drop", nodes: &["worker2"], words: &[REMOTE_CHAIN, "from-client", "10.244.80.64"],
    }
}

// The way between the nodes.
cases! {
    c25_firewall_drops_vxlan {
        fault: "firewall-drops-vxlan", works: Some(traffic::neighbour_works),
        code: "host-firewall", nodes: &["worker2"], words: &["INPUT", "4789"],
    }
    c26_underlay_drops_vxlan {
        fault: "underlay-drops-vxlan",
        code: "underlay-loss", words: &["172.31.0.2", "172.31.0.3", "4789"],
    }
    c27_other_vxlan_port {
        fault: "other-vxlan-port",
        code: "tunnel-port-mismatch", nodes: &["worker2"], words: &["4789", "4799"],
    }
    c29_no_fdb_entry {
        fault: "no-fdb-entry",
        code: "tunnel-peer-missing", nodes: &["worker"], words: &["66:b0:94:1d:fb:92", "vxlan.calico"],
    }
    c30_wrong_fdb_entry {
        fault: "wrong-fdb-entry",
        code: "tunnel-peer-wrong", nodes: &["worker"], words: &["172.31.0.9", "172.31.0.3"],
    }
    c31_no_neighbour {
        fault: "no-neighbour", traffic: traffic::call_service_until_refused,
        witness: Outcome::Unreachable,
        code: "tunnel-peer-missing", nodes: &["worker"], words: &["10.244.158.64", "neighbour"],
    }
    c33_peer_not_allowed {
        fault: "peer-not-allowed",
        code: "tunnel-peer-refused", nodes: &["worker2"], words: &["172.31.0.2", "cali40all-vxlan-net"],
    }
    c36_no_block_route {
        fault: "no-block-route", works: Some(traffic::neighbour_works),
        code: "tunnel-peer-missing", nodes: &["worker"], words: &["10.244.158.65", "172.31.0.1", "route"],
    }
    c43_reverse_path {
        fault: "reverse-path",
        code: "rp-filter", nodes: &["worker2"], words: &["rp_filter", "vxlan.calico", "eth0"],
    }
    c47_borrowed_address {
        fault: "borrowed-address", traffic: traffic::call_borrowed_address,
        follow: &["--pod", "client", "--dst", "10.244.80.100:8080"],
        works: Some(traffic::borrowed_address_works_on_its_node),
        code: "address-not-assigned", nodes: &["worker"], words: &["10.244.80.100", "blackhole"],
    }
}

// The nodes themselves.
cases! {
    c19_conntrack_full {
        fault: "conntrack-full",
        code: "conntrack-full", nodes: &["worker"], words: &["nf_conntrack_max"],
    }
    c22_invalid_not_dropped {
        fault: "invalid-not-dropped", traffic: traffic::call_with_stray_segment,
        witness: Outcome::Reset,
        code: "conntrack-invalid", nodes: &["worker"],
        words: &["10.244.158.65:8080", "nf_conntrack_tcp_be_liberal"],
    }
    c41_forwarding_off {
        fault: "forwarding-off", works: Some(traffic::remote_works_from_node),
        code: "forwarding-off", nodes: &["worker"], words: &["ip_forward"],
    }
    c44_foreign_source {
        fault: "foreign-source", traffic: traffic::call_service_from_foreign_address,
        follow: &["--src", "10.99.0.5", "--dst", VIP],
        works: Some(traffic::service_works),
        code: "source-spoofed", nodes: &["worker"], words: &["10.99.0.5", CLIENT_END],
    }
    c45_no_proxy_arp {
        fault: "no-proxy-arp", traffic: traffic::call_service_until_refused,
        witness: Outcome::Unreachable,
        code: "pod-gateway-unreachable", nodes: &["worker"], words: &["169.254.1.1", "proxy_arp"],
    }
    c55_no_route_localnet {
        fault: "no-route-localnet", traffic: traffic::call_node_port_on_loopback,
        follow: &["--src", "127.0.0.1", "--dst", "127.0.0.1:30080"],
        works: Some(traffic::node_port_works_on_own_address),
        code: "route-localnet", nodes: &["worker"], words: &["route_localnet", "30080"],
    }
    c56_forward_policy {
        fault: "forward-policy", works: Some(traffic::neighbour_works),
        code: "forward-policy", nodes: &["worker2"], words: &["FORWARD", "policy DROP"],
    }
    c64_api_server_rejected {
        fault: "api-server-rejected", traffic: traffic::call_api_server,
        follow: &["--pod", "client", "--dst", "10.96.0.1:443"],
        witness: Outcome::Unreachable, works: Some(traffic::service_works),
        code: "host-firewall", nodes: &["worker"],
        words: &["INPUT", "172.31.0.2:6443", "icmp-host-prohibited"],
    }
    c65_no_masquerade {
        fault: "no-masquerade", traffic: traffic::call_outside,
        follow: &["--pod", "client", "--dst", "172.31.0.5:8080"],
        works: Some(traffic::service_works),
        code: "masquerade-missing", nodes: &["worker"], words: &["10.244.80.65"],
    }
}

// Ways that only the whole path shows.
cases! {
    c80_answer_by_another_way {
        fault: "answer-by-another-way",
        code: "asymmetric-path", nodes: &["worker2"], words: &["vxlan", "eth0"],
    }
    c81_short_ttl {
        fault: "short-ttl", witness: Outcome::Unreachable,
        code: "ttl-exceeded", nodes: &["worker"], words: &["time to live", "first seen with 1"],
    }
    c82_snat_port_taken {
        fault: "snat-port-taken", traffic: traffic::call_outside,
        follow: &["--pod", "client", "--dst", "172.31.0.5:8080"],
        works: Some(traffic::service_works),
        code: "conntrack-clash", nodes: &["worker"], words: &["insert_failed", "no free port"],
    }
    c84_larger_mtu {
        fault: "larger-mtu", traffic: traffic::upload_to_service, witness: Outcome::Answered,
        code: "delivered", also: &["warning mtu-exceeded"], exit: 0,
    }
}

cases! {
    c85_routing_loop {
        fault: "routing-loop", works: Some(traffic::neighbour_works),
        code: "ttl-exceeded", words: &["time to live", "loop"],
    }
}

// Two faults at once: the first on the path is the verdict, and the other is listed.
cases! {
    p01_no_masquerade_and_policy {
        fault: "no-masquerade", with: &["ingress-denied"], follow: ANYTHING,
        traffic: traffic::call_outside_then_service,
        code: "masquerade-missing", nodes: &["worker"], words: &["172.31.0.5"],
        also: &["fault policy-drop"],
    }
    p02_old_entry_and_blocked_tunnel {
        fault: "dns-entry-stale", with: &["underlay-drops-vxlan"], follow: ANYTHING,
        traffic: traffic::ask_then_call_service,
        code: "stale-backend", words: &["10.244.158.66", "conntrack"],
        also: &["fault underlay-loss"],
    }
    p03_firewall_and_policy {
        fault: "api-server-rejected", with: &["ingress-denied"], follow: ANYTHING,
        traffic: traffic::call_api_server_then_service,
        code: "host-firewall", nodes: &["worker"], words: &["172.31.0.2:6443"],
        also: &["fault policy-drop"],
    }
    p04_policy_and_no_listener {
        fault: "ingress-denied", follow: ANYTHING,
        traffic: traffic::call_service_then_closed_port, witness: Outcome::Refused,
        code: "policy-drop", nodes: &["worker2"], words: &["default-deny"],
        also: &["fault backend-refused"],
    }
}

// What happens to frames.
cases! {
    c15_bridge_skips_netfilter {
        fault: "bridge-skips-netfilter", traffic: traffic::call_service_from_extra,
        follow: &["--pod", "extra", "--dst", VIP],
        works: Some(traffic::service_works),
        code: "asymmetric-path", nodes: &["worker"], words: &["10.244.81.6", "bridge-nf-call-iptables"],
    }
    c24_inner_checksum {
        fault: "inner-checksum", works: Some(traffic::new_question_works),
        code: "checksum-fault", nodes: &["worker", "worker2"], words: &["checksum"],
    }
    c38_mtu_black_hole {
        fault: "mtu-black-hole", traffic: traffic::upload_to_service,
        works: Some(traffic::service_works),
        code: "mtu-exceeded", nodes: &["worker"], words: &["1450", "vxlan.calico"],
    }
    c40_fragments_dropped {
        fault: "fragments-dropped", traffic: traffic::ask_for_large_answer,
        follow: LARGE_ANSWER, works: Some(traffic::small_answer_works),
        // Every fragment is lost before it reaches a node, so none is seen and none may be spoken of.
        code: "no-reply", nodes: &["worker"], words: &["no answer", "eth0"],
    }
    c40b_later_fragments_dropped {
        fault: "later-fragments-dropped", traffic: traffic::ask_for_large_answer,
        follow: LARGE_ANSWER, works: Some(traffic::small_answer_works),
        code: "fragments-lost", words: &["fragment"],
    }
    c63_other_program {
        fault: "other-program", works: Some(traffic::other_pod_works),
        code: "bpf-drop", nodes: &["worker2"], words: &[REMOTE_END],
    }
    c68_rate_limit {
        fault: "rate-limit", traffic: traffic::download_from_service,
        witness: Outcome::Answered,
        code: "rate-limited", nodes: &["worker"], words: &["tbf", CLIENT_END], exit: 0,
    }
}
