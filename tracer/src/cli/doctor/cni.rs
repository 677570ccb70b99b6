//! The CNI plugin, told by the devices it makes.

use serde::Serialize;

use crate::netlink::Link;

/// What the devices say.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Cni {
    /// For people: the plugin and how it reaches other nodes.
    pub(super) name: String,
    /// What cannot be seen on such a node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) blind: Option<&'static str>,
}

const CILIUM: &str = "Services are translated in the client's socket (socket LB) and packets may go from device to device past \
     netfilter and tc (eBPF host routing): no rewrite is observed there, a ClusterIP may never appear on any \
     interface, and Cilium's own drops are no kfree_skb with a netfilter reason; ask `cilium monitor` or hubble as well";
const CALICO_EBPF: &str = "Calico's eBPF data plane translates and judges in its own tc programs: rewrites are worked out from the \
     change between two interfaces, and its drops name no rule";
const OVS: &str = "packets inside Open vSwitch pass no netfilter hook and no tc hook of ours until they leave it: its flow table's \
     drops and rewrites are not explained";
const WIREGUARD: &str = "between the nodes packets are encrypted: they are followed up to the tunnel device and from the one \
     on the other side, not on the uplink";

fn cni(name: impl Into<String>, blind: Option<&'static str>) -> Cni {
    Cni {
        name: name.into(),
        blind,
    }
}

/// Tells the plugin by its devices.
pub(super) fn judge(links: &[Link]) -> Cni {
    let named = |name: &str| links.iter().find(|l| &*l.name == name);
    let starts = |prefix: &str| links.iter().any(|l| l.name.starts_with(prefix));
    let kind = |kind: &str| links.iter().any(|l| &*l.kind == kind);
    if named("cilium_host").is_some() {
        let overlay = match named("cilium_vxlan").or_else(|| named("cilium_geneve")) {
            Some(link) => format!("overlay {}", vxlan(link)),
            None => "no overlay".to_owned(),
        };
        return cni(format!("Cilium, {overlay}"), Some(CILIUM));
    }
    let flannel =
        named("flannel.1").or_else(|| links.iter().find(|l| l.name.starts_with("flannel.")));
    if starts("cali") || named("vxlan.calico").is_some() {
        let ebpf = named("bpfin.cali").is_some() || named("bpfout.cali").is_some();
        let blind = ebpf.then_some(CALICO_EBPF);
        if let Some(link) = flannel {
            return cni(
                format!("Canal: Calico's policies over flannel, {}", vxlan(link)),
                blind,
            );
        }
        let wireguard = named("wireguard.cali").is_some_and(|l| l.up);
        let mut overlays = Vec::new();
        if let Some(link) = named("vxlan.calico") {
            overlays.push(vxlan(link));
        }
        if named("tunl0").is_some_and(|l| l.up) {
            overlays.push("IPIP (tunl0)".to_owned());
        }
        if wireguard {
            overlays.push("WireGuard (wireguard.cali)".to_owned());
        }
        if overlays.is_empty() {
            overlays.push("no overlay".to_owned());
        }
        let plane = if ebpf { "eBPF data plane, " } else { "" };
        let blind = blind.or(wireguard.then_some(WIREGUARD));
        return cni(format!("Calico, {plane}{}", overlays.join(" and ")), blind);
    }
    if let Some(link) = flannel {
        return cni(format!("flannel, {}", vxlan(link)), None);
    }
    if starts("flannel-wg") {
        return cni("flannel, WireGuard (flannel-wg)", Some(WIREGUARD));
    }
    if named("antrea-gw0").is_some() {
        return cni("Antrea (antrea-gw0)", Some(OVS));
    }
    if starts("ovn-k8s") {
        return cni("OVN-Kubernetes (ovn-k8s-mp0)", Some(OVS));
    }
    if named("weave").is_some() {
        return cni(
            "Weave (weave)",
            Some("Weave's fast data path runs in Open vSwitch, which passes no hook of ours"),
        );
    }
    if named("kube-bridge").is_some() {
        return cni("kube-router (kube-bridge)", None);
    }
    if named("cni0").is_some() {
        return cni("a bridge plugin (cni0), no overlay", None);
    }
    let pods = kind("veth") || kind("netkit");
    cni(
        if pods {
            "unknown (veths, but none with a known plugin's name)"
        } else {
            "unknown"
        },
        None,
    )
}

/// `VXLAN (vxlan.calico, VNI 4096, UDP port 4789)`
fn vxlan(link: &Link) -> String {
    if &*link.kind != "vxlan" {
        return format!("{} ({})", link.kind, link.name);
    }
    let vni = link
        .vxlan_id
        .map_or(String::new(), |id| format!(", VNI {id}"));
    let port = link
        .vxlan_port
        .map_or(String::new(), |port| format!(", UDP port {port}"));
    format!("VXLAN ({}{vni}{port})", link.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(name: &str, kind: &str) -> Link {
        Link {
            name: name.into(),
            kind: kind.into(),
            up: true,
            ..Link::default()
        }
    }

    #[track_caller]
    fn check(links: &[Link], expected: &str) {
        assert_eq!(judge(links).name, expected);
    }

    #[test]
    fn calico_by_its_overlay() {
        let veth = || link("cali747ff840379", "veth");
        check(&[veth()], "Calico, no overlay");
        let vxlan = Link {
            vxlan_id: Some(4096),
            vxlan_port: Some(4789),
            ..link("vxlan.calico", "vxlan")
        };
        check(
            &[veth(), vxlan],
            "Calico, VXLAN (vxlan.calico, VNI 4096, UDP port 4789)",
        );
        check(&[veth(), link("tunl0", "ipip")], "Calico, IPIP (tunl0)");
        // The module makes an idle tunl0 everywhere.
        let idle = Link {
            up: false,
            ..link("tunl0", "ipip")
        };
        check(&[veth(), idle], "Calico, no overlay");
        check(
            &[veth(), link("flannel.1", "vxlan")],
            "Canal: Calico's policies over flannel, VXLAN (flannel.1)",
        );
    }

    #[test]
    fn what_is_invisible_is_said() {
        let cilium = judge(&[link("cilium_host", "veth"), link("cilium_vxlan", "vxlan")]);
        assert!(cilium.name.starts_with("Cilium, overlay VXLAN"));
        assert!(cilium.blind.unwrap().contains("socket LB"));
        let ebpf = judge(&[link("cali1", "veth"), link("bpfin.cali", "veth")]);
        assert!(ebpf.name.contains("eBPF data plane") && ebpf.blind.is_some());
        assert!(judge(&[link("antrea-gw0", "internal")]).blind.is_some());
    }

    #[test]
    fn others_by_name() {
        check(
            &[link("flannel.1", "vxlan"), link("cni0", "bridge")],
            "flannel, VXLAN (flannel.1)",
        );
        check(
            &[link("cni0", "bridge")],
            "a bridge plugin (cni0), no overlay",
        );
        check(&[link("weave", "bridge")], "Weave (weave)");
        check(
            &[link("kube-bridge", "bridge")],
            "kube-router (kube-bridge)",
        );
        check(&[link("eth0", "")], "unknown");
    }
}
