//! resolv.conf(5) as glibc reads it, and the names that a look-up tries.

use std::net::IpAddr;

use crate::trace::probe::Resolver;

/// `MAXNS` in glibc's `resolv.h`.
const MOST_SERVERS: usize = 3;
/// What Kubernetes allows (`MaxDNSSearchPaths`).
const MOST_DOMAINS: usize = 32;
/// `RES_MAXNDOTS` in glibc's `resolv.h`.
const MOST_DOTS: usize = 15;
/// RFC 1035 section 2.3.4, without the length of the first label and the root.
const LONGEST_NAME: usize = 253;

/// Reads the text of a resolv.conf. What it does not understand it passes
/// over, as glibc does: `origin` says where the text is from.
pub(super) fn parse(text: &str, origin: &str) -> Resolver {
    let mut found = Resolver {
        ndots: 1,
        origin: origin.to_owned(),
        ..Resolver::default()
    };
    for line in text.lines() {
        let mut words = line.split([' ', '\t']).filter(|w| !w.is_empty());
        match words.next() {
            Some("nameserver") => {
                // A scope belongs to a link of the pod's; the address is what counts.
                let addr = words.next().and_then(|w| w.split('%').next()?.parse().ok());
                if let Some(addr) = addr.filter(|_| found.nameservers.len() < MOST_SERVERS) {
                    found.nameservers.push(addr);
                }
            }
            // The last one counts, and `domain` is a list of one.
            Some("search") => found.search = domains(words.take(MOST_DOMAINS)),
            Some("domain") => found.search = domains(words.take(1)),
            Some("options") => {
                for word in words {
                    if let Some(n) = word.strip_prefix("ndots:").and_then(|n| n.parse().ok()) {
                        found.ndots = usize::min(n, MOST_DOTS);
                    }
                }
            }
            _ => {}
        }
    }
    found
}

fn domains<'a>(words: impl Iterator<Item = &'a str>) -> Vec<String> {
    let bare = words.map(|w| w.trim_end_matches('.'));
    bare.filter(|w| !w.is_empty()).map(str::to_owned).collect()
}

/// What a pod gets by `dnsPolicy: ClusterFirst` (kubelet's `getPodDNSType`).
pub(super) fn assumed(server: IpAddr, namespace: &str, origin: &str) -> Resolver {
    let search = [
        format!("{namespace}.svc.cluster.local"),
        "svc.cluster.local".to_owned(),
        "cluster.local".to_owned(),
    ];
    Resolver {
        nameservers: vec![server],
        search: search.into(),
        ndots: 5,
        origin: origin.to_owned(),
        assumed: true,
    }
}

/// The names that are tried in turn, each with its final dot. In glibc's order
/// (`__res_context_search`): a name with enough dots is tried as it is first
/// and with the search list then, any other the other way round.
pub(super) fn candidates(name: &str, resolver: &Resolver) -> Vec<String> {
    let bare = name.trim_end_matches('.');
    let whole = format!("{bare}.");
    if name.ends_with('.') {
        return vec![whole];
    }
    let mut all: Vec<String> = resolver
        .search
        .iter()
        .map(|domain| format!("{bare}.{domain}."))
        .filter(|name| name.len() <= LONGEST_NAME + 1)
        .collect();
    let dots = bare.bytes().filter(|b| *b == b'.').count();
    let at = if dots >= resolver.ndots { 0 } else { all.len() };
    all.insert(at, whole);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    const POD: &str = "search default.svc.cluster.local svc.cluster.local cluster.local\n\
                       nameserver 10.96.0.10\noptions ndots:5\n";

    #[test]
    fn what_kubelet_writes() {
        let found = parse(POD, "a file");
        assert_eq!(found.nameservers, ["10.96.0.10".parse::<IpAddr>().unwrap()]);
        assert_eq!(found.ndots, 5);
        assert_eq!(found.search.len(), 3);
        assert_eq!(
            Resolver {
                assumed: true,
                ..found
            },
            assumed("10.96.0.10".parse().unwrap(), "default", "a file")
        );
    }

    #[test]
    fn odd_files() {
        let text = "# nameserver 1.1.1.1\n;x\nnameserver\nnameserver nonsense\r\n\
            domain a.example\nsearch b.example. . c.example\noptions ndots:99 edns0 ndots:x\n\
            nameserver fe80::1%eth0\nnameserver 10.0.0.1\n  nameserver 10.0.0.2\nnameserver 10.0.0.3\n";
        let found = parse(text, "");
        let addrs: Vec<String> = found.nameservers.iter().map(ToString::to_string).collect();
        assert_eq!(addrs, ["fe80::1", "10.0.0.1", "10.0.0.2"]);
        assert_eq!(found.search, ["b.example", "c.example"]);
        assert_eq!(found.ndots, MOST_DOTS);
        let empty = parse("", "");
        assert_eq!((empty.ndots, empty.nameservers.len()), (1, 0));
    }

    #[test]
    fn search_list() {
        let pod = parse(POD, "");
        assert_eq!(
            candidates("remote", &pod),
            [
                "remote.default.svc.cluster.local.",
                "remote.svc.cluster.local.",
                "remote.cluster.local.",
                "remote."
            ]
        );
        assert_eq!(candidates("example.com.", &pod), ["example.com."]);
        assert_eq!(candidates("a.b.c.d.e.f", &pod)[0], "a.b.c.d.e.f.");
        assert_eq!(candidates("a.b.c.d.e.f", &pod).len(), 4);
        assert_eq!(candidates("remote.default", &pod)[3], "remote.default.");
        let long = "a.".repeat(120);
        let long = long.trim_end_matches('.');
        assert_eq!(candidates(long, &pod).len(), 2, "too long with two of them");
    }
}
