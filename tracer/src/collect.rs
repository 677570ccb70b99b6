//! Reads what nodes and pods were set up to do ([`crate::state`]): through
//! netlink, `/proc` and the machine's own commands, inside each namespace.
//!
//! Reading changes nothing: no module is loaded, no table made, no socket of
//! another family opened. One thread for each namespace, bounded in time; what
//! is late is told as not read.

use std::collections::HashSet;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant, SystemTime};

use crate::discover::{Discovery, Names, Watch};
use crate::event::Namer;
use crate::netns::{self, NetNs};
use crate::state::{Namespace, NamespaceKind, Unread};

mod bound;
mod entries;
mod files;
mod firewall;
mod net;
mod run;

pub use bound::{bound, merge};
pub use entries::Wanted;

/// How long one command may take: `iptables-save` of ten thousands of rules, on a
/// node that is busy.
const COMMAND: Duration = Duration::from_secs(5);
/// How long all of it may take.
const WHOLE: Duration = Duration::from_secs(8);
/// For threads to say that they are late.
const GRACE: Duration = Duration::from_millis(500);
/// What commands may write, all namespaces together.
const TEXT: usize = 32 << 20;
/// Pods that are read.
const PODS: usize = 16;
/// Interfaces of a pod whose sysctls are read.
const POD_INTERFACES: usize = 4;

/// A namespace to read.
#[derive(Clone, Debug)]
pub struct Target {
    /// The node's name; for a pod `pod/NS/NAME` where known, else its address.
    pub name: Arc<str>,
    /// Node or pod.
    pub kind: NamespaceKind,
    /// For a pod, its node.
    pub node: Option<Arc<str>>,
    /// The open namespace.
    pub ns: Arc<NetNs>,
    /// Interfaces of interest; of a pod all of them.
    pub interfaces: Vec<Arc<str>>,
}

impl Target {
    fn blank(&self) -> Namespace {
        Namespace {
            name: Arc::clone(&self.name),
            kind: self.kind,
            node: self.node.clone(),
            netns: self.ns.inode,
            read_at: now(),
            links: Vec::new(),
            routes: Vec::new(),
            rules: Vec::new(),
            neighbours: Vec::new(),
            fdb: Vec::new(),
            sysctls: std::collections::BTreeMap::new(),
            counters: std::collections::BTreeMap::new(),
            counters_before: std::collections::BTreeMap::new(),
            iptables: Vec::new(),
            ipsets: None,
            nft: None,
            ipvs: None,
            conntrack: Vec::new(),
            qdiscs: Vec::new(),
            listeners: Vec::new(),
            unread: Vec::new(),
        }
    }
}

fn now() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |d| d.as_nanos() as u64)
}

fn unread(what: &str, why: String) -> Unread {
    Unread {
        what: Arc::from(what),
        why,
    }
}

/// Every node, and the pods that have an address which is wanted.
pub fn targets(
    discovery: &Discovery,
    watched: &[Watch],
    is_wanted: impl Fn(&IpAddr) -> bool,
    names: &Names,
) -> Vec<Target> {
    let nodes = discovery.nodes.iter().enumerate().map(|(index, node)| {
        let here = watched.iter().filter(|w| w.node == index);
        Target {
            name: Arc::clone(&node.name),
            kind: NamespaceKind::Node,
            node: None,
            ns: Arc::clone(&node.ns),
            interfaces: here.map(|w| Arc::clone(&w.name)).collect(),
        }
    });
    let mut seen = HashSet::new();
    let pods = discovery.pods.iter().filter_map(|pod| {
        let addr = pod.addrs.iter().find(|a| is_wanted(a))?;
        // A pod with two interfaces is listed once for each.
        if !seen.insert(pod.netns) {
            return None;
        }
        let name = names.endpoint(*addr, None).name;
        Some(Target {
            name: name.unwrap_or_else(|| addr.to_string().into()),
            kind: NamespaceKind::Pod,
            node: discovery.nodes.get(pod.node).map(|n| Arc::clone(&n.name)),
            ns: Arc::clone(&pod.ns),
            interfaces: Vec::new(),
        })
    });
    nodes.chain(pods.take(PODS)).collect()
}

/// Bounds of one reading, shared by its threads.
#[derive(Clone, Debug)]
struct Reader {
    deadline: Instant,
    stopped: Arc<AtomicBool>,
    /// `nf_tables` is built into the kernel.
    nft: bool,
    /// What the commands of one namespace may write.
    limit: usize,
}

impl Reader {
    fn is_late(&self) -> bool {
        self.stopped.load(Ordering::Relaxed) || Instant::now() >= self.deadline
    }

    /// What a command may take.
    fn left(&self) -> Duration {
        let left = self.deadline.saturating_duration_since(Instant::now());
        left.min(COMMAND)
    }

    fn has_nft(&self) -> bool {
        self.nft || firewall::has_nft_module()
    }
}

/// A reading under way, on threads of its own.
#[derive(Debug)]
pub struct Reading {
    reader: Reader,
    /// What each namespace is, until it was read.
    blank: Vec<Option<Namespace>>,
    done: Vec<Namespace>,
    from: mpsc::Receiver<(usize, Namespace)>,
}

/// What to read.
#[derive(Clone, Debug)]
pub struct Options {
    /// The kernel has `nf_tables` built in (its symbols tell).
    pub nft: bool,
    /// Give way to all other work.
    pub nice: bool,
    /// Entries to read from the conntrack tables.
    pub wanted: Wanted,
    /// Names for their addresses.
    pub names: Arc<Names>,
}

/// Starts to read the counters alone.
pub fn counters(targets: Vec<Target>) -> Reading {
    start(targets, false, |_, _, into| files::counters(into))
}

/// Starts to read everything.
pub fn all(targets: Vec<Target>, options: &Options) -> Reading {
    let options = options.clone();
    start(targets, options.nft, move |reader, target, into| {
        if options.nice {
            // SAFETY: plain integers. Concerns this thread and what it starts.
            unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, 10) };
        }
        files::counters(into);
        entries::read(&options.wanted, &*options.names, into);
        net::links(into);
        net::forwarding(into);
        net::fdb(into);
        let interfaces = interfaces(target, into);
        files::sysctls(&interfaces, into);
        files::listeners(into);
        net::qdiscs(reader, &interfaces, into);
        if target.kind == NamespaceKind::Node {
            files::ipvs(into);
            firewall::read(reader, into);
        }
    })
}

fn interfaces(target: &Target, read: &Namespace) -> Vec<Arc<str>> {
    if target.kind == NamespaceKind::Node {
        return target.interfaces.clone();
    }
    let links = read.links.iter().filter(|l| &*l.name != "lo");
    let names = links.map(|l| Arc::clone(&l.name));
    names.take(POD_INTERFACES).collect()
}

fn start(
    targets: Vec<Target>,
    nft: bool,
    work: impl Fn(&Reader, &Target, &mut Namespace) + Send + Sync + 'static,
) -> Reading {
    let nodes = targets.iter().filter(|t| t.kind == NamespaceKind::Node);
    let reader = Reader {
        deadline: Instant::now() + WHOLE,
        stopped: Arc::new(AtomicBool::new(false)),
        nft,
        limit: TEXT / nodes.count().max(1),
    };
    let (tell, from) = mpsc::channel();
    let mut reading = Reading {
        reader: reader.clone(),
        blank: targets.iter().map(|t| Some(t.blank())).collect(),
        done: Vec::new(),
        from,
    };
    let work = Arc::new(work);
    for (index, target) in targets.into_iter().enumerate() {
        let (reader, tell, work) = (reader.clone(), tell.clone(), Arc::clone(&work));
        let ns = Arc::clone(&target.ns);
        let started = netns::spawn_in(ns, "state", move |entered| {
            let mut into = target.blank();
            match entered {
                Ok(()) => work(&reader, &target, &mut into),
                Err(e) => {
                    let why = format!("its namespace cannot be entered: {e}");
                    into.unread.push(unread("everything", why));
                }
            }
            // An open namespace outlives its pod; a reading must not keep it.
            drop(target);
            // Nobody waits any more where this fails.
            let _ = tell.send((index, into));
        });
        if let Err(e) = started
            && let Some(mut blank) = reading.blank.get_mut(index).and_then(Option::take)
        {
            let why = format!("no thread can be started: {e}");
            blank.unread.push(unread("everything", why));
            reading.done.push(blank);
        }
    }
    reading
}

impl Reading {
    fn take(&mut self, (index, namespace): (usize, Namespace)) {
        if let Some(blank) = self.blank.get_mut(index) {
            *blank = None;
        }
        self.done.push(namespace);
    }

    /// Waits for all namespaces, each of which is told of, read or not.
    pub fn finish(mut self) -> Vec<Namespace> {
        let end = self.reader.deadline + GRACE;
        while self.blank.iter().any(Option::is_some) {
            let left = end.saturating_duration_since(Instant::now());
            let Ok(read) = self.from.recv_timeout(left) else {
                break;
            };
            self.take(read);
        }
        for mut late in self.blank.iter_mut().filter_map(Option::take) {
            let why = format!("it took longer than {} s", WHOLE.as_secs());
            late.unread.push(unread("everything", why));
            self.done.push(late);
        }
        self.done.sort_by_key(order);
        std::mem::take(&mut self.done)
    }

    /// Waits for all namespaces and hands over those that were read, as they come.
    pub fn each(mut self, mut take: impl FnMut(Namespace)) {
        let end = self.reader.deadline + GRACE;
        self.done.drain(..).for_each(&mut take);
        let mut left = self.blank.iter().flatten().count();
        while left > 0 && !self.reader.stopped.load(Ordering::Relaxed) {
            let wait = end.saturating_duration_since(Instant::now());
            let Ok((_, namespace)) = self.from.recv_timeout(wait) else {
                break;
            };
            left -= 1;
            take(namespace);
        }
    }

    /// Setting it ends the reading early.
    pub fn stop(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.reader.stopped)
    }

    /// What has been read by now, without waiting.
    pub fn so_far(mut self) -> Vec<Namespace> {
        while let Ok(read) = self.from.try_recv() {
            self.take(read);
        }
        std::mem::take(&mut self.done)
    }
}

impl Drop for Reading {
    /// Threads that nobody waits for do no more than what they are at.
    fn drop(&mut self) {
        self.reader.stopped.store(true, Ordering::Relaxed);
    }
}

/// Nodes first, each kind by name.
fn order(n: &Namespace) -> (bool, Arc<str>, u32) {
    (n.kind == NamespaceKind::Pod, Arc::clone(&n.name), n.netns)
}

#[cfg(test)]
mod tests;
