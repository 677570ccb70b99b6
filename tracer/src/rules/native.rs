//! What `nft list table` writes of kube-proxy's own tables (its nftables mode),
//! as far as one can tell without evaluating nftables: which Services have an
//! entry, which are refused for want of endpoints, where packets are translated
//! to. Its layout is kube-proxy's (`pkg/proxy/nftables/proxier.go`, from 1.29).

use std::net::{IpAddr, SocketAddr};

/// kube-proxy's table of one family.
#[derive(Clone, Copy, Debug)]
pub struct KubeProxy<'a> {
    text: &'a str,
}

/// kube-proxy's table, where the rules have one.
pub fn kube_proxy(nft: &str, ipv6: bool) -> Option<KubeProxy<'_>> {
    let family = if ipv6 { "ip6" } else { "ip" };
    let name = format!("table {family} kube-proxy");
    block(nft, &name, "}").map(|text| KubeProxy { text })
}

/// Whether a chain of nftables at this hook (in iptables' word) may stop a
/// packet. `None` of rules stops any.
pub fn may_deny(nft: Option<&str>, hook: &str) -> bool {
    let Some(nft) = nft else { return false };
    let wanted = format!("hook {} ", hook.to_ascii_lowercase());
    let stops = |word: &str| matches!(word, "drop" | "reject" | "queue" | "drop;");
    nft.contains(&wanted) && nft.split_whitespace().any(stops)
}

/// Whether nftables have a chain that translates addresses at this hook (in
/// iptables' word).
pub fn translates(nft: Option<&str>, hook: &str) -> bool {
    let wanted = format!("type nat hook {} ", hook.to_ascii_lowercase());
    nft.is_some_and(|text| text.contains(&wanted))
}

impl<'a> KubeProxy<'a> {
    /// The entry that sends this address and port of a Service on.
    pub fn service(&self, addr: IpAddr, proto: u8, port: u16) -> Option<&'a str> {
        self.entry("service-ips", Some(addr), proto, port)
            .or_else(|| self.node_port("service-nodeports", addr, proto, port))
    }

    /// The entry that refuses it, for it has no endpoints, or none on this node.
    pub fn no_endpoints(&self, addr: IpAddr, proto: u8, port: u16) -> Option<&'a str> {
        self.entry("no-endpoint-services", Some(addr), proto, port)
            .or_else(|| self.node_port("no-endpoint-nodeports", addr, proto, port))
    }

    /// The first rule that translates to this endpoint.
    pub fn to_endpoint(&self, addr: IpAddr, port: u16) -> Option<&'a str> {
        let wanted = format!("dnat to {}", SocketAddr::new(addr, port));
        let mut lines = self.text.lines().map(str::trim);
        lines.find(|line| {
            let rest = line.split_once(&wanted).map(|(_, rest)| rest);
            rest.is_some_and(|r| r.is_empty() || r.starts_with(' '))
        })
    }

    fn node_port(&self, map: &str, addr: IpAddr, proto: u8, port: u16) -> Option<&'a str> {
        let set = block(self.text, "\tset nodeport-ips", "\t}")?;
        let mut words = set.split([',', '{', '}', ' ', '\n', '\t']);
        let has = words.any(|w| w.parse() == Ok(addr));
        has.then(|| self.entry(map, None, proto, port)).flatten()
    }

    fn entry(&self, map: &str, addr: Option<IpAddr>, proto: u8, port: u16) -> Option<&'a str> {
        let map = block(self.text, &format!("\tmap {map}"), "\t}")?;
        let elements = map.split_once("elements = {")?.1;
        let name = match proto {
            6 => "tcp",
            17 => "udp",
            132 => "sctp",
            _ => return None,
        };
        let number = proto.to_string();
        let entries = elements.split([',', '}']).map(str::trim);
        entries.into_iter().find(|entry| {
            let key = entry.split(" : ").next().unwrap_or_default();
            let mut words = key.split_whitespace().filter(|w| *w != ".");
            addr.is_none_or(|a| words.next().and_then(|w| w.parse().ok()) == Some(a))
                && words.next().is_some_and(|w| w == name || w == number)
                && words.next().and_then(|w| w.parse().ok()) == Some(port)
        })
    }
}

/// The lines after one that opens with `name`, up to one that is `end`.
fn block<'a>(text: &'a str, name: &str, end: &str) -> Option<&'a str> {
    let opening = format!("{name} {{");
    let mut from = None;
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        let bare = line.trim_end();
        match from {
            None if bare == opening => from = Some(at + line.len()),
            Some(from) if bare == end => return text.get(from..at),
            _ => {}
        }
        at += line.len();
    }
    // Cut off: what is there may be told, what is missing may not.
    None
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that panics has failed")]
mod tests {
    use super::*;

    const REAL: &str = include_str!("../../testdata/rules/kube-proxy-1.30.3-nftables-full.nft");

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn entries_of_services_and_node_ports() {
        let table = kube_proxy(REAL, false).unwrap();
        let entry = table.service(ip("10.98.235.247"), 6, 80).unwrap();
        assert_eq!(
            entry,
            "10.98.235.247 . tcp . 80 : goto service-QFUP7MMD-default/remote/tcp/"
        );
        assert!(table.service(ip("10.96.0.10"), 17, 53).is_some());
        // The last of the list, and one that also has a node port.
        assert!(table.service(ip("10.96.0.10"), 6, 9153).is_some());
        assert!(table.service(ip("172.31.0.2"), 6, 30084).is_some());
        for (addr, proto, port) in [
            ("10.98.235.247", 17, 80),
            ("10.98.235.247", 6, 8),
            ("10.98.235.24", 6, 80),
            ("10.103.9.9", 6, 80),
            ("10.98.235.247", 1, 80),
            ("10.98.235.247", 6, 30084),
        ] {
            assert_eq!(table.service(ip(addr), proto, port), None, "{addr} {port}");
        }
    }

    #[test]
    fn services_without_endpoints() {
        let table = kube_proxy(REAL, false).unwrap();
        let refused = table.no_endpoints(ip("10.103.9.9"), 6, 80).unwrap();
        assert!(refused.ends_with("goto reject-chain"), "{refused}");
        let dropped = table.no_endpoints(ip("172.31.0.2"), 6, 30083).unwrap();
        assert!(dropped.ends_with(": drop"), "{dropped}");
        assert_eq!(table.no_endpoints(ip("10.98.235.247"), 6, 80), None);
    }

    #[test]
    fn endpoints() {
        let table = kube_proxy(REAL, false).unwrap();
        assert!(table.to_endpoint(ip("10.244.158.65"), 8080).is_some());
        assert_eq!(table.to_endpoint(ip("10.244.158.65"), 80), None);
        assert_eq!(table.to_endpoint(ip("10.244.158.6"), 8080), None);
    }

    #[test]
    fn the_other_family_and_a_text_cut_off_tell_nothing() {
        let table = kube_proxy(REAL, true).unwrap();
        assert_eq!(table.service(ip("10.98.235.247"), 6, 80), None);
        let cut = REAL.split_once("\tmap service-nodeports").unwrap().0;
        assert!(kube_proxy(cut, false).is_none());
        assert!(kube_proxy("table ip other {\n}\n", false).is_none());
    }

    #[test]
    fn what_may_stop_or_translate() {
        for hook in ["PREROUTING", "INPUT", "FORWARD", "OUTPUT"] {
            assert!(may_deny(Some(REAL), hook), "{hook}");
        }
        assert!(!may_deny(None, "FORWARD"));
        let harmless = "table ip t {\n\tchain c {\n\t\ttype filter hook forward priority 0; policy accept;\n\t\tcounter\n\t}\n}\n";
        assert!(!may_deny(Some(harmless), "FORWARD"));
        let strict = harmless.replace("policy accept", "policy drop");
        assert!(may_deny(Some(&strict), "FORWARD"));
        assert!(!may_deny(Some(&strict), "INPUT"));
        assert!(translates(Some(REAL), "PREROUTING"));
        assert!(translates(Some(REAL), "POSTROUTING"));
        assert!(!translates(Some(harmless), "PREROUTING"));
        assert!(!translates(None, "PREROUTING"));
    }
}
