//! The laboratory's command line, for the `lab` binary and for `cargo xtask lab`.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::io::Write;
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};

use super::client::{self, Load, Transport};
use super::dns::{TYPE_A, TYPE_AAAA};
use super::state::State;
use super::{Iptables, Launcher, Options, Policy, fault, inventory, netns, server, topology};

/// The laboratory's arguments.
#[derive(Debug, Args)]
pub struct LabArgs {
    #[command(subcommand)]
    action: Action,
    /// The words between the program's name and the laboratory's subcommand.
    #[arg(skip)]
    words: &'static [&'static str],
}

impl LabArgs {
    /// For a program that offers the laboratory under a subcommand of its own, such as `lab`.
    #[must_use]
    pub fn reached_by(self, words: &'static [&'static str]) -> Self {
        Self { words, ..self }
    }
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Build the laboratory; one that is up is replaced by a healthy one
    Up(UpArgs),
    /// Take the laboratory down and leave nothing of it
    Down,
    /// Show namespaces, addresses and processes
    Status,
    /// Run a program in a node's, pod's or host's network namespace
    Exec {
        /// worker, worker2, client, local, remote, dns, outside or underlay
        ns: String,
        /// The program and its arguments
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
        command: Vec<OsString>,
    },
    /// Set or remove a pod's label `allowed`, which the network policy selects
    Label {
        /// client, local, remote or dns
        pod: String,
        /// allowed=VALUE to set it, - to remove it
        label: String,
    },
    /// Make HTTP requests, from this namespace or from another
    Get(GetArgs),
    /// Send one datagram to a pod's UDP echo
    Echo {
        /// The address and port
        addr: SocketAddr,
        #[command(flatten)]
        from: FromArgs,
    },
    /// Look a name up at the cluster's resolver, with a pod's search list
    Resolve {
        /// The name
        name: String,
        /// Ask for AAAA instead of A
        #[arg(long)]
        aaaa: bool,
        /// How the question travels
        #[arg(long, value_enum, default_value = "udp")]
        transport: Transport,
        #[command(flatten)]
        from: FromArgs,
    },
    /// Break something in a healthy laboratory that is up; without a name, list what can be broken
    Fault {
        /// The fault's name or number
        name: Option<String>,
    },
    /// Be the process of a pod (started by `up`)
    #[command(hide = true)]
    Serve {
        name: String,
        #[arg(long)]
        port: Option<u16>,
        #[arg(long)]
        lab_id: String,
    },
    /// Listen and accept nothing (started by `fault`)
    #[command(hide = true)]
    Stall {
        port: u16,
        #[arg(long)]
        lab_id: String,
    },
    /// Hold connections open (started by `fault`)
    #[command(hide = true)]
    Hold {
        addr: SocketAddr,
        count: usize,
        #[arg(long)]
        lab_id: String,
    },
}

#[derive(Debug, Args)]
struct UpArgs {
    /// The iptables variant that loads the rules
    #[arg(long, value_enum, default_value = "nft")]
    iptables: Iptables,
    /// Whether the network policy default/remote-allow protects the pod remote
    #[arg(long, value_enum, default_value = "off")]
    policy: Policy,
    /// Give nodes and pods IPv6 addresses too
    #[arg(long)]
    ipv6: bool,
    /// Leave a laboratory alone that is up, whole and of this kind
    #[arg(long)]
    keep: bool,
}

#[derive(Debug, Args)]
struct FromArgs {
    /// The namespace to speak from
    #[arg(long, value_name = "NAME")]
    ns: Option<String>,
    /// Seconds to wait for an answer
    #[arg(long, default_value = "3", value_parser = seconds)]
    timeout: Duration,
}

#[derive(Debug, Args)]
struct GetArgs {
    /// The address and port
    addr: SocketAddr,
    #[command(flatten)]
    from: FromArgs,
    /// The path to ask for
    #[arg(long, default_value = "/")]
    path: String,
    /// Requests in all
    #[arg(long, default_value = "1")]
    count: u32,
    /// Requests at a time
    #[arg(long, default_value = "1")]
    parallel: u32,
    /// Make all requests of one client on one connection
    #[arg(long)]
    keep_alive: bool,
    /// Download this many bytes
    #[arg(long, value_name = "BYTES", conflicts_with_all = ["path", "up"])]
    down: Option<u64>,
    /// Upload this many bytes
    #[arg(long, value_name = "BYTES", conflicts_with = "path")]
    up: Option<u64>,
    /// The port to speak from
    #[arg(long, value_name = "PORT")]
    source_port: Option<u16>,
    /// Seconds to keep the connection open after the answer
    #[arg(long, value_name = "SECONDS", default_value = "0", value_parser = seconds)]
    hold: Duration,
}

/// Runs the laboratory's command.
pub fn run(args: LabArgs) -> Result<ExitCode> {
    let words = args.words;
    match args.action {
        Action::Up(args) => up(&args, words)?,
        Action::Down if super::down()? => say("the laboratory is down\n")?,
        Action::Down => say("the laboratory was not up\n")?,
        Action::Status => return status(),
        Action::Exec { ns, command } => return exec(&ns, &command),
        Action::Label { pod, label } => {
            let value = match label.split_once('=') {
                Some(("allowed", value)) => Some(value),
                None if label == "-" || label == "allowed-" => None,
                _ => bail!("the label is allowed=VALUE, or - to remove it"),
            };
            super::label(&pod, value)?;
        }
        Action::Get(args) => return get(args),
        Action::Echo { addr, from } => {
            inside(from.ns.as_deref())?;
            say(&client::echo(from.ns.as_deref(), addr, from.timeout)?)?;
        }
        Action::Resolve {
            name,
            aaaa,
            transport,
            from,
        } => {
            inside(from.ns.as_deref())?;
            let kind = if aaaa { TYPE_AAAA } else { TYPE_A };
            let (name, answer) = client::resolve(
                from.ns.as_deref(),
                &name,
                kind,
                &client::SEARCH,
                transport,
                from.timeout,
            )?;
            let addrs: Vec<String> = answer.addrs.iter().map(ToString::to_string).collect();
            say(&format!("{name} {} {}\n", answer.rcode, addrs.join(" ")))?;
        }
        Action::Fault { name: Some(name) } => {
            let fault = fault::named(&name)
                .with_context(|| format!("there is no fault {name}; `lab fault` lists them"))?;
            fault.apply()?;
            say(&format!("{}\nto see it: {}\n", fault.about, fault.shown_by))?;
        }
        Action::Fault { name: None } => {
            for fault in fault::ALL {
                say(&format!(
                    "{} {:<24} {}\n",
                    fault.id, fault.name, fault.about
                ))?;
            }
        }
        Action::Serve { name, port, lab_id } => server::serve(&name, port, &lab_id)?,
        Action::Stall { port, lab_id } => server::stall(port, &lab_id)?,
        Action::Hold {
            addr,
            count,
            lab_id,
        } => server::hold(addr, count, &lab_id)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn up(args: &UpArgs, words: &[&str]) -> Result<()> {
    let options = Options {
        iptables: args.iptables,
        policy: args.policy,
        ipv6: args.ipv6,
        launcher: Launcher::current(words)?,
    };
    let since = Instant::now();
    let state = if args.keep {
        super::ensure(&options)?
    } else {
        super::up(&options)?
    };
    let took = since.elapsed();
    say(&table(&state))?;
    say(&format!(
        "inventory: {}\nup in {:.2} s\n",
        inventory::path().display(),
        took.as_secs_f64()
    ))
}

fn status() -> Result<ExitCode> {
    let Some(state) = State::load()? else {
        say("the laboratory is not up\n")?;
        return Ok(ExitCode::FAILURE);
    };
    say(&table(&state))?;
    Ok(if state.is_intact() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn table(state: &State) -> String {
    let owned = state.owned();
    let mut text = format!(
        "{:<9} {:<11} {:<14} {}\n",
        "NAMESPACE", "NETNS", "PROCESS", "WHAT"
    );
    for name in topology::namespaces() {
        let netns = owned
            .iter()
            .find(|&&(owned, _)| owned == name)
            .map_or_else(|| "missing".to_owned(), |(_, inode)| inode.to_string());
        let process = match state.processes.get(name) {
            Some(process) if process.is_alive() => format!("{} alive", process.pid),
            Some(process) => format!("{} dead", process.pid),
            None => "-".to_owned(),
        };
        let what = topology::describe(name);
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{name:<9} {netns:<11} {process:<14} {what}");
    }
    let Options {
        iptables,
        policy,
        ipv6,
        ..
    } = &state.options;
    text += &format!("iptables: {iptables:?}, policy: {policy:?}, IPv6: {ipv6}\n").to_lowercase();
    text
}

fn exec(ns: &str, command: &[OsString]) -> Result<ExitCode> {
    let state = super::loaded()?;
    if !state.namespaces.contains_key(ns) {
        let names: Vec<&str> = topology::namespaces().collect();
        bail!(
            "the laboratory has no namespace {ns}; it has {}",
            names.join(", ")
        );
    }
    netns::enter(ns)?;
    let Some((program, args)) = command.split_first() else {
        bail!("no program to run");
    };
    let error = Command::new(program).args(args).exec();
    Err(error).with_context(|| format!("running {}", program.display()))
}

fn get(args: GetArgs) -> Result<ExitCode> {
    inside(args.from.ns.as_deref())?;
    let base = match (args.up, args.down) {
        (Some(bytes), _) => client::Options::up(bytes),
        (None, Some(bytes)) => client::Options::down(bytes),
        (None, None) => client::Options {
            path: args.path,
            ..client::Options::default()
        },
    };
    let options = client::Options {
        source_port: args.source_port,
        timeout: args.from.timeout,
        hold: args.hold,
        ..base
    };
    let load = Load {
        count: args.count,
        parallel: args.parallel,
        keep_alive: args.keep_alive,
    };
    let outcomes = client::load(args.from.ns.as_deref(), args.addr, &options, load)?;
    let mut failed = false;
    for outcome in outcomes {
        match outcome {
            Ok(response) if args.down.is_some() => say(&format!("{} bytes\n", response.body_len))?,
            Ok(response) => {
                failed |= response.status != 200;
                say(&response.body)?;
            }
            Err(error) => {
                failed = true;
                eprintln!("lab: {error:#}");
            }
        }
    }
    Ok(if failed {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

/// Keeps the laboratory's addresses off the machine's own network.
fn inside(ns: Option<&str>) -> Result<()> {
    let state = super::loaded()?;
    match ns {
        Some(name) if state.namespaces.contains_key(name) => Ok(()),
        Some(name) => bail!("the laboratory has no namespace {name}"),
        None => {
            let here = netns::current_inode()?;
            if state.owned().iter().any(|&(_, inode)| inode == here) {
                return Ok(());
            }
            bail!(
                "this is not a namespace of the laboratory; name one with --ns or use `lab exec`"
            );
        }
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    text.parse::<f64>()
        .ok()
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .filter(|time| *time <= Duration::from_hours(1))
        .ok_or_else(|| "not a number of seconds up to 3600".to_owned())
}

/// Prints to standard output; a reader that has gone is no failure.
fn say(text: &str) -> Result<()> {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}
