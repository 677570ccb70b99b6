//! The nodes themselves: their firewall, their settings, their conntrack table.

use std::path::Path;

use serde_json::json;

use super::names::CLIENT_END;
use super::site::{BOTH, ip, run, set_for_all, start, sysctl, warm_up};
use super::{Fault, unseen};

/// The other connections on the nodes when their tables are full, and the limit then.
const HELD: &str = "8";
const LIMIT: &str = "6";

/// The API server's port on its node.
const API_PORT: u16 = 6443;

pub(super) const CONNTRACK_FULL: Fault = Fault {
    id: "C19",
    name: "conntrack-full",
    about: "the conntrack tables of the nodes are full of connections that are in use",
    shown_by: "lab get --ns client 10.98.235.247:80",
    make: |_| {
        start("local:hold", "local", &["hold", "10.244.158.65:8080", HELD])?;
        set_for_all(Path::new("/proc/sys/net/netfilter/nf_conntrack_max"), LIMIT)
    },
    show: unseen,
};

pub(super) const INVALID_NOT_DROPPED: Fault = Fault {
    id: "C22",
    name: "invalid-not-dropped",
    about: "the nodes let packets pass that conntrack finds invalid, and those it does not translate",
    shown_by: "a segment far outside the window on an open connection of the Service",
    make: |site| {
        for (node, end) in [
            ("worker", CLIENT_END),
            ("worker2", super::names::REMOTE_END),
        ] {
            // The second rule of each of the pod's chains, and the first of kube-proxy's.
            site.rules(
                node,
                "filter",
                &format!("-D cali-tw-{end} 2\n-D cali-fw-{end} 2\n-D KUBE-FORWARD 1"),
            )?;
        }
        Ok(())
    },
    show: unseen,
};

pub(super) const FIREWALL_DROPS_VXLAN: Fault = Fault {
    id: "C25",
    name: "firewall-drops-vxlan",
    about: "worker2's own firewall drops VXLAN",
    shown_by: "lab get --ns client 10.98.235.247:80",
    make: |site| {
        site.rules(
            "worker2",
            "filter",
            "-I INPUT 1 -p udp -m udp --dport 4789 -j DROP",
        )
    },
    show: unseen,
};

pub(super) const FORWARDING_OFF: Fault = Fault {
    id: "C41",
    name: "forwarding-off",
    about: "net.ipv4.ip_forward is 0 on worker",
    shown_by: "lab get --ns client 10.98.235.247:80",
    make: |_| {
        warm_up()?;
        sysctl("worker", "net/ipv4/ip_forward", "0")
    },
    show: unseen,
};

pub(super) const FOREIGN_SOURCE: Fault = Fault {
    id: "C44",
    name: "foreign-source",
    about: "the pod client has one more address, 10.99.0.5, that its node knows nothing of",
    shown_by: "a client in the pod that speaks from 10.99.0.5",
    make: |_| {
        warm_up()?;
        ip("client", "addr add 10.99.0.5/32 dev lo")
    },
    show: unseen,
};

pub(super) const NO_PROXY_ARP: Fault = Fault {
    id: "C45",
    name: "no-proxy-arp",
    about: "worker does not answer for the gateway 169.254.1.1 on the pod client's veth",
    shown_by: "lab get --ns client 10.98.235.247:80",
    make: |_| {
        sysctl(
            "worker",
            &format!("net/ipv4/conf/{CLIENT_END}/proxy_arp"),
            "0",
        )?;
        ip("client", "neigh flush dev eth0")
    },
    show: unseen,
};

pub(super) const NO_ROUTE_LOCALNET: Fault = Fault {
    id: "C55",
    name: "no-route-localnet",
    about: "route_localnet is 0 on worker, so a node port does not work on 127.0.0.1",
    shown_by: "lab get --ns worker 127.0.0.1:30080",
    make: |_| sysctl("worker", "net/ipv4/conf/all/route_localnet", "0"),
    show: unseen,
};

pub(super) const FORWARD_POLICY: Fault = Fault {
    id: "C56",
    name: "forward-policy",
    about: "the policy of FORWARD on worker2 is DROP, and no rule accepts the pods' packets",
    shown_by: "lab get --ns client 10.98.235.247:80",
    make: |site| {
        site.iptables("worker2", "-P FORWARD DROP")?;
        // Where the CNI plugin accepts what its policies let pass.
        site.iptables("worker2", "-D FORWARD 6")
    },
    show: unseen,
};

pub(super) const API_SERVER_REJECTED: Fault = Fault {
    id: "C64",
    name: "api-server-rejected",
    about: "worker runs the API server, and its own firewall rejects pods that call it",
    shown_by: "lab get --ns client 10.96.0.1:443",
    make: |site| {
        start(
            "apiserver",
            "worker",
            &["serve", "apiserver", "--port", &API_PORT.to_string()],
        )?;
        let (svc, sep) = ("KUBE-SVC-NPX46M4PTMTKRN6Y", "KUBE-SEP-U6OLVDV2QWNHCGSD");
        let name = "default/kubernetes:https";
        site.rules_everywhere(
            "nat",
            &format!(
                ":{svc} - [0:0]\n:{sep} - [0:0]\n\
                 -A {sep} -s 172.31.0.2/32 -m comment --comment \"{name}\" -j KUBE-MARK-MASQ\n\
                 -A {sep} -p tcp -m comment --comment \"{name}\" -m tcp -j DNAT --to-destination 172.31.0.2:{API_PORT}\n\
                 -A {svc} ! -s 10.244.0.0/16 -d 10.96.0.1/32 -p tcp -m comment --comment \"{name} cluster IP\" \
                 -m tcp --dport 443 -j KUBE-MARK-MASQ\n\
                 -A {svc} -m comment --comment \"{name} -> 172.31.0.2:{API_PORT}\" -j {sep}\n\
                 -I KUBE-SERVICES 1 -d 10.96.0.1/32 -p tcp -m comment --comment \"{name} cluster IP\" \
                 -m tcp --dport 443 -j {svc}"
            ),
        )?;
        site.rules(
            "worker",
            "filter",
            "-I INPUT 1 -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT\n\
             -I INPUT 2 -i lo -j ACCEPT\n\
             -I INPUT 3 -p udp -m udp --dport 4789 -j ACCEPT\n\
             -I INPUT 4 -p tcp -m tcp --dport 22 -j ACCEPT\n\
             -I INPUT 5 -j REJECT --reject-with icmp-host-prohibited",
        )
    },
    show: |objects| {
        objects.add(json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "kubernetes", "namespace": "default"},
            "spec": {
                "type": "ClusterIP",
                "clusterIP": "10.96.0.1",
                "clusterIPs": ["10.96.0.1"],
                "ipFamilies": ["IPv4"],
                "internalTrafficPolicy": "Cluster",
                "sessionAffinity": "None",
                "ports": [{"name": "https", "port": 443, "targetPort": API_PORT, "protocol": "TCP"}],
            },
        }));
        objects.add(json!({
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {
                "name": "kubernetes",
                "namespace": "default",
                "labels": {"kubernetes.io/service-name": "kubernetes"},
            },
            "addressType": "IPv4",
            "endpoints": [{"addresses": ["172.31.0.2"], "conditions": {"ready": true}}],
            "ports": [{"name": "https", "port": API_PORT, "protocol": "TCP"}],
        }));
    },
};

pub(super) const NO_MASQUERADE: Fault = Fault {
    id: "C65",
    name: "no-masquerade",
    about: "natOutgoing is off, so pods leave the cluster with their own addresses",
    shown_by: "lab get --ns client 172.31.0.5:8080",
    make: |_| {
        BOTH.iter()
            .try_for_each(|node| run(node, "ipset", "del cali40masq-ipam-pools 10.244.0.0/16"))
    },
    show: unseen,
};

pub(super) const SHORT_TTL: Fault = Fault {
    id: "C81",
    name: "short-ttl",
    about: "the pod client sends its packets with a time to live of 1, so none gets past its own node",
    shown_by: "lab get --ns client 10.98.235.247:80",
    make: |_| sysctl("client", "net/ipv4/ip_default_ttl", "1"),
    show: unseen,
};

pub(super) const SNAT_PORT_TAKEN: Fault = Fault {
    id: "C82",
    name: "snat-port-taken",
    about: "worker translates the source of calls to 172.31.0.5:8080 to one port only, and another pod holds it",
    shown_by: "lab get --ns client 172.31.0.5:8080",
    make: |site| {
        site.iptables(
            "worker",
            "-t nat -I POSTROUTING -p tcp -d 172.31.0.5 --dport 8080 -j SNAT --to-source 172.31.0.2:41000-41000",
        )?;
        start("local:hold", "local", &["hold", "172.31.0.5:8080", "1"])
    },
    show: unseen,
};
