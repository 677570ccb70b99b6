//! The laboratory: the cluster of the first seed article in network namespaces of one kernel.
//!
//! ```text
//!   worker 172.31.0.2                              worker2 172.31.0.3
//!     client 10.244.80.65  cali747ff840379           remote 10.244.158.65  cali1b2c3d4e5f6
//!     local  10.244.80.66  calid5f5981a8e0           dns    10.244.158.66  cali3f0e5a7b9c1
//!     vxlan.calico 10.244.80.64                      vxlan.calico 10.244.158.64
//!            └────────── underlay: bridge br0, 172.31.0.0/24 ──────────┘
//!                                  └─ outside 172.31.0.5
//! ```
//!
//! Nothing links it to the machine's own network. [`up`] builds it, [`down`] takes away what the
//! state file says is ours and nothing else.

pub mod client;
pub mod command;
pub mod dns;
mod extra;
pub mod fault;
pub mod inventory;
pub mod netns;
mod network;
mod process;
pub mod program;
mod rules;
pub mod server;
pub mod session;
pub mod state;
pub mod topology;
pub mod witness;

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use state::{Process, State};

pub use extra::{ExtraPod, extra_pod};

/// How iptables talks to the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Iptables {
    /// Through `nf_tables`.
    Nft,
    /// Through the old socket options.
    Legacy,
}

/// Whether the network policy default/remote-allow exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Policy {
    /// `remote` takes only TCP 8080, and only from pods labelled allowed=true.
    On,
    /// No policy selects `remote`.
    Off,
}

/// What kind of laboratory to build.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Options {
    /// The iptables variant for the rules.
    pub iptables: Iptables,
    /// Whether the network policy exists.
    pub policy: Policy,
    /// Whether pods and nodes have IPv6 addresses too.
    pub ipv6: bool,
    /// The program that runs as the pods' processes.
    pub launcher: Launcher,
}

impl Options {
    /// The healthy laboratory: nft, no policy, IPv4.
    pub fn new(launcher: Launcher) -> Self {
        Self {
            iptables: Iptables::Nft,
            policy: Policy::Off,
            ipv6: false,
            launcher,
        }
    }
}

/// How to start this crate's `lab` command as a process of its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Launcher {
    /// The executable.
    pub program: PathBuf,
    /// The words between it and the laboratory's own subcommand, such as `lab` for xtask.
    pub args: Vec<String>,
}

impl Launcher {
    /// The executable that is running, whose command line leads to the lab by these words.
    pub fn current(args: &[&str]) -> Result<Self> {
        Ok(Self {
            program: std::env::current_exe().context("finding this program's own file")?,
            args: args.iter().map(|&arg| arg.to_owned()).collect(),
        })
    }

    /// The `lab` executable at this path; in an integration test, `env!("CARGO_BIN_EXE_lab")`.
    pub fn binary(program: impl Into<PathBuf>) -> Self {
        Self {
            program: program.into(),
            args: Vec::new(),
        }
    }
}

/// Builds the laboratory; one that is already up is taken down first, so the result is always healthy.
pub fn up(options: &Options) -> Result<State> {
    let _lock = exclusive()?;
    take_down()?;
    let occupied: Vec<&str> = topology::namespaces()
        .filter(|name| netns::path(name).exists())
        .collect();
    if !occupied.is_empty() {
        bail!(
            "the laboratory did not make the network namespaces {}; remove them or their names first",
            occupied.join(", ")
        );
    }
    let built = build(options);
    if built.is_err() {
        // The first error is the one worth telling.
        let _ = take_down();
    }
    built
}

/// Returns the laboratory that is up, if it is whole and of this kind; builds it otherwise.
pub fn ensure(options: &Options) -> Result<State> {
    match State::load()? {
        Some(state) if state.options == *options && state.is_intact() => Ok(state),
        _ => up(options),
    }
}

/// Takes the laboratory down; does nothing when none is up.
pub fn down() -> Result<bool> {
    let _lock = exclusive()?;
    take_down()
}

/// Gives a pod the label `allowed`, or takes it away: in the inventory and, under the policy, in the rules.
pub fn label(pod: &str, allowed: Option<&str>) -> Result<()> {
    let _lock = exclusive()?;
    let pod =
        topology::pod(pod).with_context(|| format!("there is no pod {pod} in the laboratory"))?;
    let mut state = loaded()?;
    match allowed {
        Some(value) => state.allowed.insert(pod.name.to_owned(), value.to_owned()),
        None => state.allowed.remove(pod.name),
    };
    if state.options.policy == Policy::On && pod.namespace == "default" {
        rules::allow("worker2", pod.addr, allowed == Some("true"))?;
    }
    state.save()?;
    inventory::write(&state)
}

/// The state of the laboratory, or an error that says how to get one.
pub fn loaded() -> Result<State> {
    State::load()?.context("the laboratory is not up; start it with `lab up`")
}

/// The packet counter of the rule in a node's filter table that ends a chain's tier: policy drops.
pub fn policy_drops(host_end: &str) -> Result<u64> {
    let state = loaded()?;
    let node = topology::PODS
        .iter()
        .find(|pod| pod.host_end == host_end)
        .with_context(|| format!("there is no interface {host_end} in the laboratory"))?
        .node;
    let listing = netns::within(node, || {
        program::run(state.options.iptables.save(), &["-c", "-t", "filter"], "")
    })?;
    listing
        .lines()
        .filter(|line| line.contains(&format!("-A cali-tw-{host_end} ")))
        .find(|line| line.contains("Drop if no policies passed packet"))
        .and_then(|line| line.strip_prefix('[')?.split_once(':')?.0.parse().ok())
        .with_context(|| format!("cali-tw-{host_end} has no policy drop rule"))
}

/// Has the decisions about packets to a pod logged, as Felix does it with flow logs: before the
/// drop at the end of the tier, and where the policy `default/remote-allow` lets a packet in.
pub fn log_policy(host_end: &str) -> Result<()> {
    let state = loaded()?;
    let node = topology::PODS
        .iter()
        .find(|pod| pod.host_end == host_end)
        .with_context(|| format!("there is no interface {host_end} in the laboratory"))?
        .node;
    rules::log_policy(node, state.options.iptables, host_end)
}

/// A rule's packet counter on a node, by its text as `iptables-save` writes it.
pub fn rule_packets(node: &str, table: &str, rule: &str) -> Result<u64> {
    let state = loaded()?;
    let listing = netns::within(node, || {
        program::run(state.options.iptables.save(), &["-c", "-t", table], "")
    })?;
    listing
        .lines()
        .filter_map(|line| line.strip_prefix('[')?.split_once("] "))
        .find(|(_, text)| *text == rule)
        .and_then(|(counted, _)| counted.split_once(':')?.0.parse().ok())
        .with_context(|| format!("{node} has no rule {rule}"))
}

fn build(options: &Options) -> Result<State> {
    let mut state = State::new(options);
    state.namespaces = topology::namespaces()
        .map(|name| (name.to_owned(), 0))
        .collect();
    fs::create_dir_all(witness::dir()).with_context(|| format!("making {}", state::DIR))?;
    state.save()?;
    network::load_modules();
    network::make_namespaces()?;
    for (name, inode) in &mut state.namespaces {
        *inode = netns::inode(name).with_context(|| format!("namespace {name} did not appear"))?;
    }
    state.save()?;
    network::configure(options)?;
    start_servers(&mut state)?;
    state.save()?;
    inventory::write(&state)?;
    Ok(state)
}

/// Starts all servers, then waits for each to say that it listens.
fn start_servers(state: &mut State) -> Result<()> {
    let mut starting = Vec::new();
    for name in topology::servers() {
        starting.push(process::start(state, name, name, &["serve", name])?);
    }
    state.save()?;
    starting.into_iter().try_for_each(process::wait_until_ready)
}

fn take_down() -> Result<bool> {
    let Some(state) = State::load()? else {
        return Ok(false);
    };
    for (path, value) in &state.settings {
        fs::write(path, value).with_context(|| format!("setting {} back", path.display()))?;
    }
    let owned = state.owned();
    let inodes: Vec<u64> = owned.iter().map(|&(_, inode)| inode).collect();
    let mut victims: Vec<Process> = state
        .processes
        .values()
        .filter(|process| process.is_alive())
        .cloned()
        .collect();
    victims.extend(
        netns::processes_in(&inodes)
            .into_iter()
            .filter(|&pid| pid != std::process::id() as i32)
            .filter_map(Process::of),
    );
    process::end(&victims);
    if !owned.is_empty() {
        let mut batch = String::new();
        for (name, _) in &owned {
            batch.extend(["netns del ", name, "\n"]);
        }
        program::feed("ip", &["-batch", "-"], &batch)?;
    }
    if state.made_netns_dir {
        remove_netns_dir();
    }
    fs::remove_dir_all(state::DIR).with_context(|| format!("removing {}", state::DIR))?;
    Ok(true)
}

/// Removes /run/netns, which `ip` mounts upon itself, unless somebody else uses it by now.
fn remove_netns_dir() {
    let empty = fs::read_dir(netns::DIR).is_ok_and(|mut entries| entries.next().is_none());
    if empty {
        // Not MNT_DETACH: a namespace that somebody names at this very moment makes it busy.
        // SAFETY: umount reads the path, a constant that ends with a zero byte.
        unsafe { libc::umount(c"/run/netns".as_ptr()) };
        let _ = fs::remove_dir(netns::DIR);
    }
}

/// Keeps two runs from building or removing the laboratory at once; held until dropped.
fn exclusive() -> Result<File> {
    // SAFETY: geteuid cannot fail and takes nothing.
    if unsafe { libc::geteuid() } != 0 {
        bail!("the laboratory makes network namespaces, so it needs root");
    }
    // A lock on the directory itself leaves no file behind.
    let run = File::open(Path::new(state::DIR).parent().unwrap_or(Path::new("/run")))
        .context("opening /run")?;
    run.lock()
        .context("waiting for another run of the laboratory")?;
    Ok(run)
}
