//! The rules that Felix and kube-proxy write on each node, loaded through iptables and ipset.
//!
//! The data files are real dumps (see their first line), cut down to the Services that the
//! laboratory has; the `cali:` hashes are the ones Felix computes for just these chains.

use anyhow::{Context, Result, bail};

use super::topology::{ALLOWED_SET, Node};
use super::{Iptables, Policy, netns, program};

const WORKER: (&str, &str) = (
    include_str!("../../data/worker.ipset"),
    include_str!("../../data/worker.iptables"),
);
const WORKER2: (&str, &str) = (
    include_str!("../../data/worker2.ipset"),
    include_str!("../../data/worker2.iptables"),
);

/// Loads the rules of one node; the calling thread may be in any namespace.
pub(super) fn load(node: &Node, iptables: Iptables, policy: Policy) -> Result<()> {
    let (sets, rules) = match node.name {
        "worker" => WORKER,
        "worker2" => WORKER2,
        other => bail!("no rules are known for node {other}"),
    };
    netns::within(node.name, || {
        program::feed("ipset", &["restore"], &select(sets, policy))?;
        // The legacy variant has one lock for all namespaces, and the nodes load side by side.
        program::feed(iptables.restore(), &["-w", "10"], &select(rules, policy))
    })
}

/// Puts a pod into the set of pods that `default/remote-allow` lets in, or takes it out.
pub(super) fn allow(node: &str, addr: std::net::Ipv4Addr, allowed: bool) -> Result<()> {
    let verb = if allowed { "add" } else { "del" };
    netns::within(node, || {
        program::feed(
            "ipset",
            &["-exist", verb, ALLOWED_SET, &addr.to_string()],
            "",
        )
    })
}

/// Sends one more pod's packets through the chains of a pod that the node already has.
pub(super) fn admit(node: &str, iptables: Iptables, host_end: &str, like: &str) -> Result<()> {
    let rules = format!(
        "*filter\n-I cali-from-wl-dispatch 1 -i {host_end} -g cali-fw-{like}\n\
         -I cali-to-wl-dispatch 1 -o {host_end} -g cali-tw-{like}\nCOMMIT\n"
    );
    netns::within(node, || {
        program::feed(iptables.restore(), &["-w", "10", "--noflush"], &rules)
    })
}

/// The chain of `default/remote-allow`.
const ALLOW_CHAIN: &str = "cali-pi-_noDcsEKNIIN94h2rZk1";

/// Adds the logging rules of Felix's flow logs (Calico 3.30) to the chains of a pod with a policy.
pub(super) fn log_policy(node: &str, iptables: Iptables, host_end: &str) -> Result<()> {
    let chain = format!("cali-tw-{host_end}");
    let nflog =
        |prefix| format!("-j NFLOG --nflog-prefix \"{prefix}\" --nflog-group 1 --nflog-size 80");
    netns::within(node, || {
        let rules = program::run(iptables.save(), &["-t", "filter"], "")?;
        let own = rules
            .lines()
            .filter(|l| l.starts_with(&format!("-A {chain} ")));
        let at = own
            .enumerate()
            .find(|(_, l)| l.contains("Drop if no policies passed packet"))
            .map(|(at, _)| at + 1)
            .with_context(|| format!("{chain} has no policy drop rule"))?;
        let (denied, allowed) = (nflog("DPI|default"), nflog("API0|knp/default/remote-allow"));
        let rules = format!(
            "*filter\n-I {chain} {at} -m mark --mark 0x0/0x20000 {denied}\n\
             -A {ALLOW_CHAIN} -m mark --mark 0x10000/0x10000 {allowed}\nCOMMIT\n"
        );
        program::feed(iptables.restore(), &["-w", "10", "--noflush"], &rules)
    })
}

/// Keeps the lines that are for this policy and takes the comments out.
fn select(text: &str, policy: Policy) -> String {
    let marker = match policy {
        Policy::On => "#policy-on ",
        Policy::Off => "#policy-off ",
    };
    let mut selected = String::with_capacity(text.len());
    for line in text.lines() {
        let line = line.strip_prefix(marker).unwrap_or(line);
        if !line.starts_with('#') {
            selected.push_str(line);
            selected.push('\n');
        }
    }
    selected
}

#[cfg(test)]
mod tests {
    use super::{Policy, WORKER2, select};

    #[test]
    fn the_policy_chain_is_there_only_with_the_policy() {
        let chain = "cali-pi-_noDcsEKNIIN94h2rZk1";
        assert!(select(WORKER2.1, Policy::On).contains(chain));
        assert!(!select(WORKER2.1, Policy::Off).contains(chain));
        assert!(!select(WORKER2.1, Policy::On).contains('#'));
    }

    #[test]
    fn no_set_needs_a_new_kernel() {
        assert!(!WORKER2.0.contains("bucketsize") && !WORKER2.0.contains("initval"));
    }
}
