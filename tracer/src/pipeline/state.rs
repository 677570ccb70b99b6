//! When the state is read: counters while hooks are being attached, everything
//! once a run has begun, everything again when it ends. Never on the loop's
//! thread. What the first reading finds names the rules behind steps as they
//! come.

use std::collections::HashSet;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Instant;

use crate::cli::say;
use crate::collect::{self, Options, Reading, Wanted};
use crate::diagnose::naming::Namer;
use crate::discover::{self, Discovery, Names, Watch};
use crate::inventory::Inventory;
use crate::recording::LINE_LIMIT;
use crate::state::{Namespace, State};
use crate::target::Request;
use crate::trace::Flow;

/// What a closing line may hold besides the state.
const REST: usize = 8 << 20;

/// What has been read so far.
pub(super) struct States {
    request: Request,
    inventory: Option<Arc<Inventory>>,
    names: Arc<Names>,
    /// `nf_tables` is built into the kernel.
    nft: bool,
    verbose: bool,
    before: Reading,
    first: Learnt,
    /// Ends the first reading.
    stop: Option<Arc<AtomicBool>>,
}

/// What the first reading has found by now.
#[derive(Clone, Default)]
pub(super) struct Learnt(Arc<Found>);

#[derive(Default)]
struct Found {
    read: Mutex<Vec<Namespace>>,
    namer: OnceLock<Namer>,
}

impl Learnt {
    /// Names rules, once all of them were read.
    pub(super) fn namer(&self) -> Option<&Namer> {
        self.0.namer.get()
    }

    fn take(&self) -> Vec<Namespace> {
        let mut read = self.0.read.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut read)
    }

    /// Waits for the reading, on a thread of its own: rules take long to parse.
    fn follow(&self, reading: Reading, inventory: Option<Arc<Inventory>>) {
        let found = Arc::clone(&self.0);
        let work = move || {
            // SAFETY: plain integers. Concerns this thread alone.
            unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, 10) };
            let push = |namespace| {
                let mut read = found.read.lock().unwrap_or_else(PoisonError::into_inner);
                read.push(namespace);
            };
            reading.each(push);
            let read = found.read.lock().unwrap_or_else(PoisonError::into_inner);
            let namespaces = read.clone();
            drop(read);
            let _ = found.namer.set(Namer::new(namespaces, inventory));
        };
        // Without it steps are named when the run ends.
        let _ = std::thread::Builder::new().name("rules".into()).spawn(work);
    }
}

/// The last reading, under way.
pub(super) struct Last {
    states: States,
    first: Vec<Namespace>,
    reading: Reading,
    started: Instant,
}

impl States {
    /// Starts to read the counters of what the request is about.
    pub(super) fn new(
        job: &super::Job,
        names: &Arc<Names>,
        discovery: &Discovery,
        nft: bool,
    ) -> Self {
        let inventory = job.inventory.clone();
        let addrs = addrs(&job.request, inventory.as_deref(), &[]);
        let targets = collect::targets(discovery, &[], |a| addrs.contains(a), names);
        Self {
            request: job.request.clone(),
            inventory,
            names: Arc::clone(names),
            nft,
            verbose: job.verbose,
            before: collect::counters(targets),
            first: Learnt::default(),
            stop: None,
        }
    }

    /// Starts the first reading: of what is gone or cannot be read when the run
    /// ends, nothing else tells. It gives way to all other work.
    pub(super) fn begin(&mut self, discovery: &Discovery, watched: &[Watch]) {
        let reading = self.read(discovery, watched, &[], true);
        self.stop = Some(reading.stop());
        self.first.follow(reading, self.inventory.clone());
    }

    /// What the first reading finds.
    pub(super) fn learnt(&self) -> Learnt {
        self.first.clone()
    }

    fn read(
        &self,
        discovery: &Discovery,
        watched: &[Watch],
        flows: &[Flow],
        nice: bool,
    ) -> Reading {
        let addrs = addrs(&self.request, self.inventory.as_deref(), flows);
        let targets = collect::targets(discovery, watched, |a| addrs.contains(a), &self.names);
        let options = Options {
            nft: self.nft,
            nice,
            wanted: Wanted::new(&self.request, flows),
            names: Arc::clone(&self.names),
        };
        collect::all(targets, &options)
    }

    /// Starts the last reading; the first is not waited for.
    pub(super) fn end(self, discovery: &Discovery, watched: &[Watch], flows: &[Flow]) -> Last {
        if let Some(stop) = &self.stop {
            stop.store(true, Ordering::Relaxed);
        }
        Last {
            first: self.first.take(),
            started: Instant::now(),
            reading: self.read(discovery, watched, flows, false),
            states: self,
        }
    }
}

impl Last {
    /// Waits for it, for a few seconds at most; the state for the trace.
    pub(super) fn finish(self) -> State {
        let last = self.reading.finish();
        if self.states.verbose {
            say(&format!(
                "state of {} namespaces read in {:.0} ms",
                last.len(),
                self.started.elapsed().as_secs_f64() * 1e3
            ));
        }
        let before = self.states.before.so_far();
        let inventory = self.states.inventory;
        let mut state = State {
            namespaces: collect::merge(last, self.first, &before),
            cluster: inventory.map(|inventory| inventory.to_list()),
        };
        collect::bound(&mut state, LINE_LIMIT - REST);
        state
    }
}

/// Addresses of the pods that matter: the clients', the servers', and those
/// that traffic was seen of.
fn addrs(request: &Request, inventory: Option<&Inventory>, flows: &[Flow]) -> HashSet<IpAddr> {
    let mut addrs: HashSet<IpAddr> = request.src.iter().chain(&request.dst).copied().collect();
    addrs.extend(request.backends.iter().flatten().map(|(addr, _)| *addr));
    addrs.extend(discover::endpoints(request, inventory));
    for flow in flows {
        let ends = [
            Some(&flow.client),
            Some(&flow.server),
            flow.backend.as_ref(),
        ];
        addrs.extend(ends.into_iter().flatten().map(|end| end.addr));
    }
    addrs
}
