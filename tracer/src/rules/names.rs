//! Whose a chain is, and what its name stands for.

use sha2::{Digest, Sha256};

use super::Ruleset;

/// Who made a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// kube-proxy.
    KubeProxy,
    /// The kubelet.
    Kubelet,
    /// kube-router.
    KubeRouter,
    /// Calico's Felix.
    Calico,
    /// Cilium.
    Cilium,
    /// flannel.
    Flannel,
    /// CNI's own plugins: `portmap`, `bridge` and their kin.
    Cni,
    /// Docker.
    Docker,
    /// Istio.
    Istio,
    /// Built in: its rules are the host's, or of anyone who put them there.
    Host,
    /// Nobody known.
    Other,
}

/// Who made the chain with this name.
pub fn owner(chain: &str) -> Owner {
    // The first that fits; the more specific ones come before.
    const PREFIXES: [(&str, Owner); 12] = [
        ("KUBE-KUBELET-", Owner::Kubelet),
        ("KUBE-ROUTER-", Owner::KubeRouter),
        ("KUBE-NWPLCY-", Owner::KubeRouter),
        ("KUBE-POD-FW-", Owner::KubeRouter),
        ("KUBE-", Owner::KubeProxy),
        ("cali-", Owner::Calico),
        ("CILIUM_", Owner::Cilium),
        ("OLD_CILIUM_", Owner::Cilium),
        ("FLANNEL-", Owner::Flannel),
        ("CNI-", Owner::Cni),
        ("DOCKER", Owner::Docker),
        ("ISTIO_", Owner::Istio),
    ];
    let built_in = ["PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"];
    if built_in.contains(&chain) {
        return Owner::Host;
    }
    let fits = |(prefix, _): &&(&str, Owner)| chain.starts_with(prefix);
    PREFIXES.iter().find(fits).map_or(Owner::Other, |p| p.1)
}

/// A port of a Service.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ServicePort {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// The port's name, empty where it has none.
    pub port: String,
    /// `tcp`, `udp`, `sctp`.
    pub proto: &'static str,
}

/// Name of a kube-proxy chain of a Service's port, as `KUBE-SVC-WTUWVVJNNKPUFNHY`:
/// the prefix and 16 characters of a hash (`portProtoHash` and
/// `servicePortPolicyClusterChainName`, `pkg/proxy/iptables/proxier.go`).
/// Prefixes: `KUBE-SVC-` for all endpoints, `KUBE-SVL-` for those of this node,
/// `KUBE-EXT-` for traffic from outside, `KUBE-FW-` for allowed source ranges.
pub fn service_chain(prefix: &str, service: &ServicePort) -> String {
    format!("{prefix}{}", kube_hash(&identity(service)))
}

/// Name of the chain of one endpoint, `addr:port`, of a Service's port.
pub fn endpoint_chain(service: &ServicePort, endpoint: &str) -> String {
    let identity = identity(service);
    format!("KUBE-SEP-{}", kube_hash(&format!("{identity}{endpoint}")))
}

fn identity(service: &ServicePort) -> String {
    let ServicePort {
        namespace,
        name,
        port,
        proto,
    } = service;
    if port.is_empty() {
        format!("{namespace}/{name}{proto}")
    } else {
        format!("{namespace}/{name}:{port}{proto}")
    }
}

fn kube_hash(text: &str) -> String {
    let mut hash = encode(&Sha256::digest(text), 5, BASE32);
    hash.truncate(16);
    hash
}

/// The Service's port that a kube-proxy chain is for. Names cannot be undone, but
/// the rules' comments tell of Services, and a guess can be checked by its hash.
pub fn service_of_chain(rules: &Ruleset, chain: &str) -> Option<ServicePort> {
    const SERVICE: [&str; 4] = ["KUBE-SVC-", "KUBE-SVL-", "KUBE-EXT-", "KUBE-FW-"];
    let prefix = SERVICE.into_iter().find(|p| chain.starts_with(p));
    if prefix.is_none() && !chain.starts_with("KUBE-SEP-") {
        return None;
    }
    for table in rules.tables().iter().filter(|t| &*t.name == "nat") {
        for rule in table.chains.values().flat_map(|c| &c.rules) {
            let mentions = |c: &str| rule.text.contains(c);
            if !mentions(chain) {
                continue;
            }
            let target = match &rule.target {
                super::Target::Dnat(to) => Some(to.to_string()),
                _ => None,
            };
            let words = rule.comments.iter().flat_map(|c| c.split_whitespace());
            for service in words.filter_map(mentioned).flatten() {
                let name = match (prefix, &target) {
                    (Some(prefix), _) => service_chain(prefix, &service),
                    (None, Some(endpoint)) => endpoint_chain(&service, endpoint),
                    (None, None) => continue,
                };
                if name == chain {
                    return Some(service);
                }
            }
        }
    }
    None
}

/// The ports that a word of a comment, `ns/name[:port]`, may stand for.
fn mentioned(word: &str) -> Option<[ServicePort; 3]> {
    let (namespace, rest) = word.split_once('/')?;
    let (name, port) = rest.split_once(':').unwrap_or((rest, ""));
    Some(["tcp", "udp", "sctp"].map(|proto| ServicePort {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        port: port.to_owned(),
        proto,
    }))
}

/// Longest name of a chain that Felix makes with iptables.
const FELIX_CHAIN: usize = 28;

/// What Felix calls a chain: prefix and identity, or if that is too long, the
/// prefix, `_` and as much of a hash as there is room for
/// (`GetLengthLimitedID`, `libcalico-go/lib/hash/unique_id.go`).
pub fn felix_chain(prefix: &str, identity: &str) -> String {
    let whole = prefix.len() + identity.len();
    if whole < FELIX_CHAIN || (whole == FELIX_CHAIN && !identity.starts_with('_')) {
        return format!("{prefix}{identity}");
    }
    let mut name = format!("{prefix}_{}", encode(&Sha256::digest(identity), 6, BASE64));
    name.truncate(FELIX_CHAIN);
    name
}

/// Names that the chains of a Kubernetes `NetworkPolicy` may have, ingress
/// (`cali-pi-`) and egress (`cali-po-`), by Felix's versions: the policy's
/// identity is `knp/NAMESPACE/NAME` since 3.32 and was `NAMESPACE/knp.default.NAME`.
pub fn policy_chain_candidates(namespace: &str, policy: &str) -> Vec<String> {
    let identities = [
        format!("knp/{namespace}/{policy}"),
        format!("{namespace}/knp.default.{policy}"),
    ];
    let chains = identities
        .iter()
        .flat_map(|identity| ["cali-pi-", "cali-po-"].map(|prefix| felix_chain(prefix, identity)));
    chains.collect()
}

/// What a policy engine said in the prefix of a logging rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Logged {
    /// What is done with the packet.
    pub action: LoggedAction,
    /// To the pod, else from it; not known of all.
    pub ingress: Option<bool>,
    /// Whose rule it is: `policy default/deny`, `tier default`, ...
    pub by: String,
}

/// What is done with a logged packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoggedAction {
    /// Goes on.
    Allow,
    /// Is dropped or rejected.
    Deny,
    /// The next tier decides.
    Pass,
}

impl std::fmt::Display for Logged {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let action = match self.action {
            LoggedAction::Allow => "allowed",
            LoggedAction::Deny => "denied",
            LoggedAction::Pass => "passed on",
        };
        let side = match self.ingress {
            Some(true) => " (ingress)",
            Some(false) => " (egress)",
            None => "",
        };
        write!(f, "{action} by {}{side}", self.by)
    }
}

/// Reads the prefix of an NFLOG rule: Felix's, `DPI0|knp/default/deny`, as
/// action, owner, direction, the rule's index and the owner's identity
/// (`felix/rules/nflogprefix.go`, Calico 3.30); kube-router's, `DROP by policy
/// default/deny`. None where it is somebody else's.
pub fn logged(prefix: &str) -> Option<Logged> {
    if let Some(policy) = prefix.strip_prefix("DROP by policy ") {
        return Some(Logged {
            action: LoggedAction::Deny,
            ingress: None,
            by: format!("policy {policy}"),
        });
    }
    let (code, id) = prefix.split_once('|').unwrap_or((prefix, ""));
    let mut letters = code.chars();
    let action = match letters.next()? {
        'A' => LoggedAction::Allow,
        'D' => LoggedAction::Deny,
        'P' => LoggedAction::Pass,
        _ => return None,
    };
    let profile = match letters.next()? {
        'P' => false,
        'R' => true,
        _ => return None,
    };
    let ingress = match letters.next()? {
        'I' => true,
        'E' => false,
        _ => return None,
    };
    let index = letters.as_str();
    if !index.chars().all(|c| c.is_ascii_digit()) {
        return None;
    }
    let by = match (profile, index.is_empty(), id.split_once('/')) {
        (true, _, _) if id.is_empty() => "the end of all profiles: none matched".into(),
        (true, ..) => format!("profile {id}"),
        // A policy has a kind, `knp` of Kubernetes; a tier's end has no index.
        (false, false, Some((_, name))) => format!("policy {name}, rule {index}"),
        (false, false, None) => format!("policy {id}, rule {index}"),
        (false, true, _) => format!("the end of tier {id}: no policy let it pass"),
    };
    Some(Logged {
        action,
        ingress: Some(ingress),
        by,
    })
}

/// The interface whose workload a Felix chain is for: `cali-tw-` to it,
/// `cali-fw-` from it.
pub fn workload_of_chain(chain: &str) -> Option<&str> {
    let name = chain
        .strip_prefix("cali-tw-")
        .or_else(|| chain.strip_prefix("cali-fw-"))?;
    (!name.starts_with('_')).then_some(name)
}

const BASE32: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
const BASE64: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// RFC 4648 without padding: so many bits a character.
fn encode(bytes: &[u8], bits: u32, alphabet: &[u8]) -> String {
    let mask = (1 << bits) - 1;
    let mut text = String::new();
    let (mut held, mut count) = (0u32, 0);
    for byte in bytes {
        held = held << 8 | u32::from(*byte);
        count += 8;
        while count >= bits {
            count -= bits;
            text.push(char::from(alphabet[(held >> count & mask) as usize]));
        }
        held &= (1 << count) - 1;
    }
    if count > 0 {
        text.push(char::from(
            alphabet[(held << (bits - count) & mask) as usize],
        ));
    }
    text
}
