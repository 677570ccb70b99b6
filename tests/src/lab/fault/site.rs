//! The tools that faults are made with.

use std::fs;
use std::net::{SocketAddr, SocketAddrV4};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::lab::client::{self, Options};
use crate::lab::state::State;
use crate::lab::topology::REMOTE_SERVICE;
use crate::lab::{Iptables, exclusive, loaded, netns, network, process, program};

/// How long a call that prepares a fault may take.
pub(super) const PATIENCE: Duration = Duration::from_mins(2);

/// A laboratory that is about to be broken.
#[derive(Debug)]
pub(super) struct Site {
    iptables: Iptables,
}

/// Both nodes: what kube-proxy does, it does on each.
pub(super) const BOTH: [&str; 2] = ["worker", "worker2"];

impl Site {
    pub(super) fn of(state: &State) -> Self {
        Self {
            iptables: state.options.iptables,
        }
    }

    /// Changes rules of one table; a chain that is declared (`:NAME - [0:0]`) is made, or emptied.
    pub(super) fn rules(&self, node: &str, table: &str, lines: &str) -> Result<()> {
        let input = format!("*{table}\n{}\nCOMMIT\n", lines.trim());
        netns::within(node, || {
            program::feed(self.iptables.restore(), &["-w", "10", "--noflush"], &input)
        })
    }

    /// The same on both nodes.
    pub(super) fn rules_everywhere(&self, table: &str, lines: &str) -> Result<()> {
        BOTH.iter()
            .try_for_each(|node| self.rules(node, table, lines))
    }

    /// Runs iptables with these words.
    pub(super) fn iptables(&self, node: &str, words: &str) -> Result<()> {
        run(node, self.iptables.program(), &format!("-w 10 {words}"))
    }
}

/// Lets the pod `client` call the Service once: in a cluster that was in use, neighbours know each other.
pub(super) fn warm_up() -> Result<()> {
    let options = Options::default().timeout(PATIENCE);
    client::get(Some("client"), SocketAddr::V4(REMOTE_SERVICE), &options).map(drop)
}

/// Runs a program in a namespace, its arguments written in one string.
pub(super) fn run(ns: &str, name: &str, words: &str) -> Result<()> {
    let args: Vec<&str> = words.split_whitespace().collect();
    netns::within(ns, || program::feed(name, &args, ""))
}

/// Gives `ip` these lines.
pub(super) fn ip(ns: &str, batch: &str) -> Result<()> {
    let batch = format!("{}\n", batch.trim());
    netns::within(ns, || program::feed("ip", &["-batch", "-"], &batch))
}

/// Sets a sysctl of a namespace.
pub(super) fn sysctl(ns: &str, key: &str, value: &str) -> Result<()> {
    netns::within(ns, || network::sysctl(key, value))
}

/// Sets what the whole machine has one of; it goes back when the laboratory goes.
pub(super) fn set_for_all(path: &Path, value: &str) -> Result<()> {
    let _lock = exclusive()?;
    let mut state = loaded()?;
    let before = fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
    state
        .settings
        .entry(path.to_owned())
        .or_insert_with(|| before.trim().to_owned());
    // Before it is changed: what a killed run leaves can be set back.
    state.save()?;
    fs::write(path, value).with_context(|| format!("setting {}", path.display()))
}

/// Starts a process of the laboratory and waits until it is ready.
pub(super) fn start(name: &str, ns: &str, words: &[&str]) -> Result<()> {
    let _lock = exclusive()?;
    let mut state = loaded()?;
    let starting = process::start(&mut state, name, ns, words)?;
    state.save()?;
    process::wait_until_ready(starting)
}

/// The rule with which kube-proxy sends a Service's traffic to an endpoint, for the endpoint's chain.
pub(super) fn dnat(service: &str, proto: &str, to: SocketAddrV4) -> String {
    format!(
        "-p {proto} -m comment --comment \"{service}\" -m {proto} -j DNAT --to-destination {to}"
    )
}

/// The whole chain of an endpoint.
pub(super) fn endpoint_chain(chain: &str, service: &str, proto: &str, to: SocketAddrV4) -> String {
    format!(
        ":{chain} - [0:0]\n\
         -A {chain} -s {}/32 -m comment --comment \"{service}\" -j KUBE-MARK-MASQ\n\
         -A {chain} {}\n",
        to.ip(),
        dnat(service, proto, to)
    )
}
