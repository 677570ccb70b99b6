//! Wires the stages of a live trace: source, decode, assemble, fold, diagnose,
//! output. The only module that waits.

mod existing;
mod live;
mod lost;
mod sink;
mod state;
mod watcher;
mod work;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::btf::Btf;
use crate::cli::export::Export;
use crate::cli::{Failure, Outcome, Output, say};
use crate::connect::Prober;
use crate::decode::{Decoder, Stacks};
use crate::discover::{self, Discovery, Names, Override};
use crate::inventory::Inventory;
use crate::kallsyms::Kallsyms;
use crate::probe::{Options, Probes, load};
use crate::recording::Rotation;
use crate::target::Request;
use crate::time;
use crate::trace::{Header, Run, Tool};

/// A live trace, as asked for.
#[allow(
    clippy::struct_excessive_bools,
    reason = "one for each switch of the command line"
)]
pub struct Job {
    /// What to follow.
    pub request: Request,
    /// The cluster's objects, where given.
    pub inventory: Option<Arc<Inventory>>,
    /// Nodes given by hand.
    pub overrides: Vec<Override>,
    /// VXLAN ports besides the known ones.
    pub vxlan_ports: Vec<u16>,
    /// Attach the costly hooks.
    pub deep: bool,
    /// BTF file instead of the kernel's own.
    pub btf: Option<PathBuf>,
    /// Size of the ring buffer in bytes, a power of two.
    pub ring_bytes: u32,
    /// Connections after which to stop.
    pub count: Option<u64>,
    /// Time after which to stop.
    pub duration: Option<Duration>,
    /// Where to record.
    pub record: Option<PathBuf>,
    /// What else to write when the run ends.
    pub exports: Vec<Export>,
    /// Into several files of a bounded size.
    pub rotation: Option<Rotation>,
    /// Form of the result.
    pub output: Output,
    /// Colour on standard output.
    pub color: bool,
    /// Only the result and errors.
    pub quiet: bool,
    /// More about what is attached.
    pub verbose: bool,
    /// Connections to make once every hook is attached; the run ends with them.
    pub probe: Option<Arc<Prober>>,
}

/// Type information and symbols, read side by side: both take long.
fn kernel_facts(job: &Job) -> Result<(Btf, Arc<Kallsyms>), Failure> {
    let (btf, symbols) = std::thread::scope(|scope| {
        let symbols = scope.spawn(|| Kallsyms::load(&load::wanted_symbols()));
        let btf = match &job.btf {
            Some(path) => Btf::load(path),
            None => Btf::load_system(),
        };
        (btf, symbols.join())
    });
    let btf = btf.map_err(Failure::new)?;
    let symbols = symbols.ok().and_then(Result::ok).ok_or_else(|| {
        Failure::new("cannot read /proc/kallsyms; run as root with /proc mounted")
    })?;
    Ok((btf, Arc::new(symbols)))
}

/// Runs a live trace to its end.
pub fn run(mut job: Job) -> Outcome {
    crate::privilege::hold_signals(true);
    let (btf, symbols) = kernel_facts(&job)?;
    let discovery =
        discover::discover(&job.overrides, job.inventory.as_deref()).map_err(Failure::new)?;
    if discovery.nodes.is_empty() {
        return Err(Failure::new(
            "no node found: no network namespace here forwards for pods; run this on a node, or give --netns NAME=PATH",
        ));
    }
    if let Some(inventory) = &job.inventory {
        let watched: Vec<&str> = discovery.nodes.iter().map(|n| &*n.name).collect();
        let before = job.request.notes.len();
        job.request.watch_from(&watched, inventory);
        for note in job.request.notes[before..].iter().filter(|_| !job.quiet) {
            say(&format!("note: {note}"));
        }
    }
    let mut vxlan_ports = job.vxlan_ports.clone();
    for port in discovery.vxlan_ports() {
        if ![4789, 8472].contains(&port) && !vxlan_ports.contains(&port) && vxlan_ports.len() < 6 {
            vxlan_ports.push(port);
        }
    }
    let options = Options {
        rules: job.request.rules.clone(),
        vxlan_ports,
        deep: job.deep,
        ring_bytes: job.ring_bytes,
    };
    let mut probes = Probes::load(&options, &btf, &symbols).map_err(Failure::new)?;
    let names = Arc::new(Names::new(job.inventory.clone(), &discovery));
    // Beside what follows, which takes longer.
    let mut states = state::States::new(&job, &names, &discovery, symbols.has("nft_do_chain"));
    // A probe is about its own connections, which are new.
    let before = if job.probe.is_some() {
        existing::Existing::default()
    } else {
        existing::find(&discovery, &job.request)
    };
    for tagged in &before.tags {
        probes.tag(&tagged.0, tagged.1).map_err(Failure::new)?;
    }
    let mut decoder = decoder(&mut probes, &btf, symbols);
    let mut watcher = watcher::Watcher::new(&job, discovery);
    let failed = watcher.attach(&mut probes, &mut decoder);
    if probes.interfaces() == 0 {
        return Err(Failure::new(format!(
            "cannot attach to any interface: {}",
            failed
                .first()
                .map_or("none is left to watch", String::as_str)
        )));
    }
    let mut degraded = probes.degraded.clone();
    degraded.extend(failed);
    degraded.extend(before.missing);
    let header = header(&job, &probes, &watcher, degraded);
    let sink = sink::Sink::new(&job, &header, states.learnt())?;
    if let Err(e) = crate::privilege::reduce() {
        say(&format!("warning: cannot give up privileges: {e}"));
    }
    // By the privileges that are left when they are written.
    for export in &job.exports {
        export.check()?;
    }
    watcher.begin(&mut states);
    if !job.quiet {
        for reason in &header.tool.degraded {
            say(&format!("warning: {reason}"));
        }
    }
    if job.verbose {
        watcher.describe();
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| Failure::new(format!("cannot start the event loop: {e}")))?;
    runtime.block_on(
        live::Live::prepare(
            job,
            probes,
            decoder,
            watcher,
            names,
            sink,
            header,
            states,
            before.events,
        )?
        .run(),
    )
}

fn decoder(probes: &mut Probes, btf: &Btf, symbols: Arc<Kallsyms>) -> Decoder {
    let stacks = probes.take_stacks();
    let stacks: Stacks = Box::new(move |id| {
        stacks
            .as_ref()
            .and_then(|map| map.get(&id, 0).ok())
            .map(|trace| trace.frames().iter().map(|f| f.ip).collect())
            .unwrap_or_default()
    });
    Decoder::new(
        symbols,
        btf.drop_reasons(),
        stacks,
        time::boot_to_epoch_ns(),
    )
}

fn header(job: &Job, probes: &Probes, watcher: &watcher::Watcher, degraded: Vec<String>) -> Header {
    let mut hooks = vec![format!("tc ({})", probes.tc_kind())];
    hooks.extend(probes.hooks.iter().cloned());
    Header {
        schema: crate::trace::SCHEMA.into(),
        tool: Tool {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            kernel: time::kernel_release(),
            hooks,
            degraded,
        },
        request: job.request.summary.clone(),
        nodes: watcher.nodes(),
        run: Some(Run {
            boot: time::boot_id().into(),
            began: time::epoch_now_ns(),
            part: None,
        }),
        merged: None,
    }
}

/// Namespaces of interest by inode.
fn known_namespaces(discovery: &Discovery) -> impl Iterator<Item = u32> {
    let nodes = discovery.nodes.iter().map(|n| n.netns);
    nodes.chain(discovery.pods.iter().map(|p| p.netns))
}
