//! `tracer probe`.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::ValueEnum;

use super::follow::parse_duration;
use super::{ColorWhen, Failure, Outcome, export, say};
use crate::connect::{self, Client, Prober};
use crate::discover::{self, Override};
use crate::inventory::Inventory;
use crate::pipeline::{self, Job};
use crate::target::{self, Asked, Request, TargetError};
use crate::trace::probe::Resolver;

/// The longest that one connection may take.
const LONGEST: Duration = Duration::from_mins(1);
/// As `follow` has it.
const RING_BYTES: u32 = 16 << 20;

/// Arguments of `tracer probe`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The client's pod
    #[arg(long, value_name = "[NS/]NAME")]
    pod: String,
    /// What to call: ADDR:PORT, NAME[:PORT], svc/[NS/]NAME[:PORT] or pod/[NS/]NAME:PORT
    #[arg(long, value_name = "DST")]
    dst: String,
    /// Protocol
    #[arg(long, value_enum, default_value_t)]
    proto: Proto,
    /// How long one connection or query may take: 3s, 500ms
    #[arg(long, default_value = "3s", value_parser = parse_timeout)]
    timeout: Duration,
    /// Names and addresses of the cluster: the output of
    /// `kubectl get nodes,pods,services,endpointslices,networkpolicies -A -o json`
    #[arg(long, value_name = "FILE")]
    inventory: Option<PathBuf>,
    /// Ask no API server
    #[arg(long)]
    no_kube: bool,
    /// A node, by its network namespace (repeatable; replaces discovery)
    #[arg(long, value_name = "NAME=PATH", value_parser = discover::parse_override)]
    netns: Vec<Override>,
    /// Record to this file, compressed when its name ends in .zst
    #[arg(short, value_name = "FILE")]
    write: Option<PathBuf>,
    /// When the run ends, write the trace in another form, too (repeatable; see `tracer export`)
    #[arg(long, value_name = "FORMAT=OUT", value_parser = export::parse_export)]
    export: Vec<export::Export>,
    /// Attach the costly hooks, too: netfilter verdicts, routes, sockets
    #[arg(long)]
    deep: bool,
    /// Form of the result
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
    /// When to use colour
    #[arg(long, value_enum, default_value_t)]
    color: ColorWhen,
    /// Print nothing but the result, errors and the line that says `ready`
    #[arg(short, long)]
    quiet: bool,
}

/// What is sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Proto {
    /// Connections that are closed at once.
    #[default]
    Tcp,
    /// One datagram: a query to port 53, else an empty one.
    Udp,
}

/// The form of the result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// A table, and the verdict.
    #[default]
    Text,
    /// The trace, with a member `probe`.
    Json,
}

const EXAMPLES: &str = "Examples:
  tracer probe --pod client --dst svc/remote:80 --inventory cluster.json
  tracer probe --pod shop/web --dst orders.shop --inventory cluster.json -w orders.jsonl.zst
  tracer probe --pod client --dst svc/kube-system/kube-dns:53 --proto udp --inventory cluster.json

It sends from the pod's own network namespace: DNS queries to the pod's name servers, then connections that
are closed at once, by name, to the ClusterIP and to each backend. Every line `sending ...` on standard error
comes before what it tells.";

fn parse_timeout(text: &str) -> Result<Duration, String> {
    match parse_duration(text)? {
        time if time > LONGEST => Err("at most 1m for one connection".to_owned()),
        time => Ok(time),
    }
}

/// What was asked for. A name that the cluster does not know is the pod's
/// resolver's to tell, not this machine's: then only source and port are known.
fn request(args: &Args, inventory: Option<&Inventory>) -> Result<Request, Failure> {
    let asked = Asked {
        pod: Some(&args.pod),
        src: None,
        dst: Some(&args.dst),
        proto: Some(match args.proto {
            Proto::Tcp => "tcp",
            Proto::Udp => "udp",
        }),
    };
    let failed = |e: TargetError| Failure::with_code(e.exit_code(), &e);
    let not_here = |_: &str| Err(std::io::Error::other("left to the pod's resolver"));
    match target::resolve_with(asked, inventory, &not_here) {
        Err(TargetError::Resolve { name, .. }) => {
            let source = Asked { dst: None, ..asked };
            let mut request = target::resolve_with(source, inventory, &not_here).map_err(failed)?;
            let port = args.dst.split_once(':').map(|(_, port)| port);
            request.port = match port.map(str::parse) {
                Some(Ok(port)) => Some(port),
                Some(Err(_)) => {
                    let port = port.unwrap_or_default();
                    return Err(Failure::usage(format!(
                        "no service is called {name}, so port {port} is not known; give its number"
                    )));
                }
                None => None,
            };
            request.description = format!("{} by name, at the pod's resolver", args.dst);
            request.summary["dst_name"] = name.into();
            request.summary["port"] = request.port.into();
            Ok(request)
        }
        other => other.map_err(failed),
    }
}

/// Runs `tracer probe`.
pub fn run(args: &Args) -> Outcome {
    let inventory = match &args.inventory {
        Some(path) => Some(Arc::new(Inventory::load(path).map_err(Failure::new)?)),
        None => None,
    };
    let known = inventory.as_deref();
    let mut request = request(args, known)?;
    if let Some(missing) = crate::privilege::missing() {
        return Err(Failure::new(missing));
    }
    let discovery = discover::discover(&args.netns, known).map_err(Failure::new)?;
    let client = Client::find(&request, &discovery, known).map_err(Failure::new)?;
    drop(discovery);
    let plan = connect::plan(&request, &args.dst, known, &client).map_err(Failure::usage)?;
    connect::widen(&mut request, &plan, &client, known);
    if !args.quiet {
        say(&format!("probing {}", request.description));
        for note in request.notes.iter().chain(&plan.notes) {
            say(&format!("note: {note}"));
        }
        if plan.asks() {
            say(&names(client.resolver.as_ref()));
        }
    }
    let announce: Option<fn(&str)> = if args.quiet { None } else { Some(say) };
    let prober = Prober::new(client, plan, args.timeout, inventory.clone(), announce);
    pipeline::run(Job {
        request,
        inventory,
        overrides: args.netns.clone(),
        vxlan_ports: Vec::new(),
        deep: args.deep,
        btf: None,
        ring_bytes: RING_BYTES,
        count: None,
        duration: None,
        record: args.write.clone(),
        exports: args.export.clone(),
        rotation: None,
        output: match args.output {
            Output::Text => super::Output::Text,
            Output::Json => super::Output::Json,
        },
        color: args.color.on_stdout(),
        quiet: args.quiet,
        verbose: false,
        probe: Some(Arc::new(prober)),
    })
}

/// How the pod looks names up, in one line.
fn names(resolver: Option<&Resolver>) -> String {
    let Some(r) = resolver else {
        return "warning: neither the pod's resolv.conf nor a DNS Service was found; the name is not looked up".to_owned();
    };
    let servers: Vec<String> = r.nameservers.iter().map(ToString::to_string).collect();
    let settings = format!(
        "nameserver {}, search {}, ndots {}",
        servers.join(" "),
        r.search.join(" "),
        r.ndots
    );
    if r.assumed {
        format!(
            "warning: assumed resolver settings: {settings} (from {})",
            r.origin
        )
    } else {
        format!("resolver settings: {settings} (from {})", r.origin)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_are_bounded() {
        assert_eq!(parse_timeout("3s"), Ok(Duration::from_secs(3)));
        assert_eq!(parse_timeout("1m"), Ok(LONGEST));
        assert!(parse_timeout("61s").is_err());
        assert!(parse_timeout("0").is_err());
    }
}
