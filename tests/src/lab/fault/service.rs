//! Services: what kube-proxy wrote, or no longer writes, into the nat table.

use std::net::{Ipv4Addr, SocketAddrV4};

use anyhow::{Context, Result};
use serde_json::json;

use super::names::{DNS_SLICE, DNS_SVC, DNS_TCP_SVC, DNS2, EXT, SEP, SLICE, SVC, SVL};
use super::site::{BOTH, PATIENCE, Site, dnat, endpoint_chain, ip, run, sysctl, warm_up};
use super::{Fault, pods, unseen};
use crate::lab::client;
use crate::lab::network;
use crate::lab::topology::{POD_PORT, REMOTE_SERVICE, pod};

/// The port of the client that keeps its socket.
pub const KEPT_PORT: u16 = 40053;

const DNS_NAME: &str = "kube-system/kube-dns:dns";

pub(super) const NO_ENDPOINTS: Fault = Fault {
    id: "C01",
    name: "no-endpoints",
    about: "the only endpoint of default/remote is not ready, so kube-proxy rejects calls of the Service",
    shown_by: "lab get --ns client 10.98.235.247:80",
    make: |site| {
        forget_service(site)?;
        let none = "-m comment --comment \"default/remote has no endpoints\"";
        site.rules_everywhere(
            "filter",
            &format!(
                "-A KUBE-SERVICES -d {}/32 -p tcp {none} -m tcp --dport 80 \
                 -j REJECT --reject-with icmp-port-unreachable\n\
                 -A KUBE-EXTERNAL-SERVICES -p tcp {none} -m addrtype --dst-type LOCAL \
                 -m tcp --dport 30080 -j REJECT --reject-with icmp-port-unreachable",
                REMOTE_SERVICE.ip()
            ),
        )
    },
    show: |objects| objects.set_not_ready("remote", SLICE),
};

pub(super) const NAT_FLUSHED: Fault = Fault {
    id: "C02",
    name: "nat-flushed",
    about: "a firewall's reload on worker has emptied the nat table",
    shown_by: "lab get --ns client 10.98.235.247:80",
    make: |site| site.iptables("worker", "-t nat -F"),
    show: unseen,
};

pub(super) const ENDPOINT_GONE: Fault = Fault {
    id: "C03",
    name: "endpoint-gone",
    about: "kube-proxy on worker missed an update and sends to a pod address that nobody has any more",
    shown_by: "lab get --ns client 10.98.235.247:80",
    make: |site| {
        let gone = SocketAddrV4::new(Ipv4Addr::new(10, 244, 158, 99), POD_PORT);
        site.rules(
            "worker",
            "nat",
            &endpoint_chain(SEP, "default/remote", "tcp", gone),
        )
    },
    show: unseen,
};

pub(super) const DNS_ENTRY_STALE: Fault = Fault {
    id: "C05",
    name: "dns-entry-stale",
    about: "the resolver's pod was replaced, but a client's conntrack entry still leads to the old one",
    shown_by: "the client that asks from UDP port 40053",
    make: |site| {
        for node in BOTH {
            // So that the entry lives as long as a busy client would keep it alive.
            for key in ["udp_timeout", "udp_timeout_stream"] {
                sysctl(node, &format!("net/netfilter/nf_conntrack_{key}"), "1800")?;
            }
        }
        let name = "remote.default.svc.cluster.local";
        client::resolve_from(Some("client"), KEPT_PORT, name, PATIENCE)?;
        pods::add(&DNS2)?;
        pods::remove("dns")?;
        let (new, tcp) = ("KUBE-SEP-5N7QJ2ZC4LXWUHBD", "KUBE-SEP-EKQ3ZB6OMRAV7TUF");
        let to = SocketAddrV4::new(DNS2.addr, 53);
        site.rules_everywhere(
            "nat",
            &format!(
                "{}{}-R {DNS_SVC} 2 -m comment --comment \"{DNS_NAME} -> {to}\" -j {new}\n\
                 -R {DNS_TCP_SVC} 2 -m comment --comment \"{DNS_NAME}-tcp -> {to}\" -j {tcp}",
                endpoint_chain(new, DNS_NAME, "udp", to),
                endpoint_chain(tcp, "kube-system/kube-dns:dns-tcp", "tcp", to),
            ),
        )
    },
    show: |objects| {
        objects.remove_pod("dns");
        objects.add_pod(&DNS2);
        objects.set_endpoints(DNS_SLICE, &[&DNS2]);
    },
};

pub(super) const LOCAL_POLICY: Fault = Fault {
    id: "C07",
    name: "local-policy",
    about: "externalTrafficPolicy of default/remote is Local, and worker has none of its pods",
    shown_by: "lab get --ns outside 172.31.0.2:30080",
    make: |site| {
        let local =
            "-m comment --comment \"route LOCAL traffic for default/remote external destinations\"";
        let to_service = format!(
            ":{EXT} - [0:0]\n:{SVL} - [0:0]\n\
             -A {EXT} -s 10.244.0.0/16 -m comment --comment \"pod traffic for default/remote external destinations\" -j {SVC}\n\
             -A {EXT} -m comment --comment \"masquerade LOCAL traffic for default/remote external destinations\" \
             -m addrtype --src-type LOCAL -j KUBE-MARK-MASQ\n\
             -A {EXT} {local} -m addrtype --src-type LOCAL -j {SVC}\n\
             -A {EXT} -j {SVL}\n"
        );
        site.rules("worker", "nat", &to_service)?;
        site.rules(
            "worker2",
            "nat",
            &format!(
                "{to_service}-A {SVL} -m comment --comment \"default/remote -> 10.244.158.65:8080\" -j {SEP}"
            ),
        )?;
        site.rules(
            "worker",
            "filter",
            "-A KUBE-EXTERNAL-SERVICES -p tcp -m comment --comment \"default/remote has no local endpoints\" \
             -m addrtype --dst-type LOCAL -m tcp --dport 30080 -j DROP",
        )
    },
    show: |objects| {
        objects.get("Service", "remote")["spec"]["externalTrafficPolicy"] = json!("Local");
    },
};

pub(super) const AFFINITY_TO_GONE: Fault = Fault {
    id: "C10",
    name: "affinity-to-gone",
    about: "session affinity on worker keeps sending a client to a pod that is gone; new clients get the other pod",
    shown_by: "lab get --ns client 10.98.235.247:80",
    make: |site| {
        let other = "KUBE-SEP-Q3A4BIYKKA5HH6NT";
        let to = |name: &str| {
            let pod = pod(name).context("a pod of the laboratory")?;
            anyhow::Ok(SocketAddrV4::new(pod.addr, POD_PORT))
        };
        let endpoint = |chain: &str, to: SocketAddrV4| {
            format!(
                ":{chain} - [0:0]\n\
                 -A {chain} -s {}/32 -m comment --comment \"default/remote\" -j KUBE-MARK-MASQ\n\
                 -A {chain} -p tcp -m comment --comment \"default/remote\" -m recent --name {chain} --set --rsource \
                 -m tcp -j DNAT --to-destination {to}\n",
                to.ip()
            )
        };
        let sticky = |chain: &str, to: SocketAddrV4| {
            format!(
                "-A {SVC} -m comment --comment \"default/remote -> {to}\" \
                 -m recent --name {chain} --rcheck --seconds 10800 --reap --rsource -j {chain}\n"
            )
        };
        let (gone, left) = (to("remote")?, to("local")?);
        site.rules(
            "worker",
            "nat",
            &format!(
                "{}{}:{SVC} - [0:0]\n\
                 -A {SVC} ! -s 10.244.0.0/16 -d {}/32 -p tcp -m comment --comment \"default/remote cluster IP\" \
                 -m tcp --dport 80 -j KUBE-MARK-MASQ\n{}{}\
                 -A {SVC} -m comment --comment \"default/remote -> {gone}\" -j {SEP}",
                endpoint(SEP, gone),
                endpoint(other, left),
                REMOTE_SERVICE.ip(),
                sticky(SEP, gone),
                sticky(other, left),
            ),
        )?;
        warm_up()?;
        site.rules(
            "worker",
            "nat",
            &format!("-R {SVC} 4 -m comment --comment \"default/remote -> {left}\" -j {other}"),
        )?;
        pods::remove("remote")
    },
    show: |objects| {
        let service = &mut objects.get("Service", "remote")["spec"];
        service["sessionAffinity"] = json!("ClientIP");
        service["sessionAffinityConfig"] = json!({"clientIP": {"timeoutSeconds": 10800}});
        objects.remove_pod("remote");
        objects.get("Pod", "local")["metadata"]["labels"]["app"] = json!("remote");
        let local: Vec<_> = pod("local").into_iter().collect();
        objects.set_endpoints(SLICE, &local);
    },
};

pub(super) const HAIRPIN: Fault = Fault {
    id: "C13",
    name: "hairpin",
    about: "the Service's endpoint calls its own Service, and the rule that would masquerade it is missing",
    shown_by: "lab get --ns client 10.98.235.247:80",
    make: |site| {
        let client = pod("client").context("a pod of the laboratory")?;
        let to = SocketAddrV4::new(client.addr, POD_PORT);
        site.rules_everywhere(
            "nat",
            &format!(
                ":{SEP} - [0:0]\n-A {SEP} {}",
                dnat("default/remote", "tcp", to)
            ),
        )
    },
    show: |objects| {
        objects.get("Pod", "client")["metadata"]["labels"]["app"] = json!("remote");
        objects.get("Pod", "remote")["metadata"]["labels"]["app"] = json!("remote-old");
        let client: Vec<_> = pod("client").into_iter().collect();
        objects.set_endpoints(SLICE, &client);
    },
};

pub(super) const IPVS_NO_DESTINATION: Fault = Fault {
    id: "C16",
    name: "ipvs-no-destination",
    about: "kube-proxy uses IPVS on worker, and the Service's only real server has weight 0 (needs IPVS and dummy devices)",
    shown_by: "lab get --ns client 10.98.235.247:80",
    make: |site| {
        network::modprobe(&["ip_vs", "ip_vs_rr"]);
        // No device in the first namespace: older kernels then refuse its index in every other one.
        network::modprobe_with("dummy", "numdummies=0");
        site.rules(
            "worker",
            "nat",
            &format!(
                "-D KUBE-SERVICES -d {}/32 -p tcp -m comment --comment \"default/remote cluster IP\" \
                 -m tcp --dport 80 -j {SVC}",
                REMOTE_SERVICE.ip()
            ),
        )?;
        ip(
            "worker",
            &format!(
                "link add kube-ipvs0 type dummy\naddr add {}/32 dev kube-ipvs0",
                REMOTE_SERVICE.ip()
            ),
        )?;
        sysctl("worker", "net/ipv4/vs/conntrack", "1")?;
        run(
            "worker",
            "ipvsadm",
            &format!("-A -t {REMOTE_SERVICE} -s rr"),
        )?;
        run(
            "worker",
            "ipvsadm",
            &format!("-a -t {REMOTE_SERVICE} -r 10.244.158.65:8080 -m -w 0"),
        )
    },
    show: |objects| objects.set_not_ready("remote", SLICE),
};

pub(super) const TWO_RESOLVERS: Fault = Fault {
    id: "C20",
    name: "two-resolvers",
    about: "two resolvers behind kube-dns: two questions of one socket at one instant may be sent to different ones",
    shown_by: "a client that asks for A and AAAA at once",
    make: |site| {
        pods::add(&DNS2)?;
        let (new, to) = (
            "KUBE-SEP-5N7QJ2ZC4LXWUHBD",
            SocketAddrV4::new(DNS2.addr, 53),
        );
        site.rules_everywhere(
            "nat",
            &format!(
                "{}-I {DNS_SVC} 2 -m comment --comment \"{DNS_NAME} -> {to}\" \
                 -m statistic --mode random --probability 0.5 -j {new}",
                endpoint_chain(new, DNS_NAME, "udp", to),
            ),
        )
    },
    show: |objects| {
        objects.add_pod(&DNS2);
        let dns: Vec<_> = pod("dns").into_iter().chain([&DNS2]).collect();
        objects.set_endpoints(DNS_SLICE, &dns);
    },
};

pub(super) const OLD_DNS_RECORD: Fault = Fault {
    id: "C83",
    name: "old-dns-record",
    about: "the Service was made anew with another ClusterIP, and the resolver still answers with the old one",
    shown_by: "tracer probe --pod client --dst remote:80",
    make: |_| Ok(()),
    show: |objects| {
        let service = &mut objects.get("Service", "remote")["spec"];
        service["clusterIP"] = json!("10.98.235.250");
        service["clusterIPs"] = json!(["10.98.235.250"]);
    },
};

/// Takes away what kube-proxy wrote for `default/remote` into the nat tables.
fn forget_service(site: &Site) -> Result<()> {
    site.rules_everywhere(
        "nat",
        &format!(
            "-D KUBE-SERVICES -d {address}/32 -p tcp -m comment --comment \"default/remote cluster IP\" \
             -m tcp --dport 80 -j {SVC}\n\
             -D KUBE-NODEPORTS -p tcp -m comment --comment \"default/remote\" -m tcp --dport 30080 -j {EXT}\n\
             -F {EXT}\n-F {SVC}\n-F {SEP}\n-X {EXT}\n-X {SVC}\n-X {SEP}",
            address = REMOTE_SERVICE.ip()
        ),
    )
}
