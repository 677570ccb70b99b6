//! The active part of `tracer probe`: makes the connections itself, from the
//! pod's own network namespace and with the pod's resolver settings.
//!
//! `plan` says what is tried, `settings` and `resolv` how the pod looks names
//! up, `lookup` asks, `dial` connects, `layer` says what the results have in
//! common. Nothing here knows that it is being traced.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::discover::Discovery;
use crate::inventory::Inventory;
use crate::netns::NetNs;
use crate::target::Request;
use crate::time;
use crate::trace::Endpoint;
use crate::trace::probe::{Attempt, Lookup, Outcome, Report, Resolver, Way};

use dial::{Dialled, Limits};

mod dial;
mod layer;
mod lookup;
mod message;
mod plan;
mod resolv;
mod settings;

pub use plan::{Plan, PlanError, Target, plan, widen};

/// Where connections are made from.
pub struct Client {
    /// The namespace.
    pub ns: Arc<NetNs>,
    /// `NS/NAME` of the pod.
    pub pod: String,
    /// The pod's addresses.
    pub addrs: Vec<IpAddr>,
    /// How names are looked up there.
    pub resolver: Option<Resolver>,
}

/// The pod is not on this machine.
#[derive(Debug, thiserror::Error)]
#[error(
    "the network namespace of pod {pod} is not on this machine{}",
    node.as_ref().map_or_else(String::new, |n| format!("; it runs on node {n}: run tracer there"))
)]
pub struct NotHere {
    pod: String,
    node: Option<String>,
}

impl Client {
    /// Finds the pod that the request names.
    pub fn find(
        request: &Request,
        discovery: &Discovery,
        inventory: Option<&Inventory>,
    ) -> Result<Self, NotHere> {
        let pod = request.pod.clone().unwrap_or_default();
        let namespace = pod.split('/').next().unwrap_or_default().to_owned();
        let is_it = |addrs: &[IpAddr]| request.src.iter().any(|a| addrs.contains(a));
        let (ns, resolver) = if let Some(found) = discovery.pods.iter().find(|p| is_it(&p.addrs)) {
            let resolver = settings::of_pod(&found.ns, &namespace, inventory);
            (Arc::clone(&found.ns), resolver)
        } else if let Some(found) = discovery.nodes.iter().find(|n| is_it(&n.addrs)) {
            let resolver = settings::of_node(&found.ns);
            (Arc::clone(&found.ns), resolver)
        } else {
            let node = inventory.and_then(|i| i.node_of(*request.src.first()?));
            let node = node.map(ToString::to_string);
            return Err(NotHere { pod, node });
        };
        Ok(Self {
            ns,
            pod,
            addrs: request.src.clone(),
            resolver,
        })
    }

    fn has(&self, like: IpAddr) -> bool {
        self.addrs.iter().any(|a| a.is_ipv4() == like.is_ipv4())
    }
}

/// What came of it so far.
struct Progress {
    lookup: Option<Lookup>,
    attempts: Vec<Attempt>,
}

/// Makes the connections of a plan.
pub struct Prober {
    client: Client,
    plan: Plan,
    timeout: Duration,
    inventory: Option<Arc<Inventory>>,
    /// Is told, in one line, what will be sent.
    announce: Option<fn(&str)>,
    stop: AtomicBool,
    progress: Mutex<Progress>,
}

impl Prober {
    /// For a plan; nothing is sent yet.
    pub fn new(
        client: Client,
        plan: Plan,
        timeout: Duration,
        inventory: Option<Arc<Inventory>>,
        announce: Option<fn(&str)>,
    ) -> Self {
        let mut prober = Self {
            client,
            plan,
            timeout,
            inventory,
            announce,
            stop: AtomicBool::new(false),
            progress: Mutex::new(Progress {
                lookup: None,
                attempts: Vec::new(),
            }),
        };
        let attempts = prober.plan.targets.iter().map(|t| prober.untried(t));
        let attempts = attempts.collect();
        prober.progress = Mutex::new(Progress {
            lookup: None,
            attempts,
        });
        prober
    }

    /// The namespace that [`Self::run`] has to be called in.
    pub fn netns(&self) -> &Arc<NetNs> {
        &self.client.ns
    }

    /// Makes the connections one after another. They end at once when stopped.
    pub fn run(&self) {
        for (index, target) in self.plan.targets.iter().enumerate() {
            if self.limits().stopped() {
                return;
            }
            // What it is called when the run ends meanwhile.
            let mut attempt = self.untried(target);
            attempt.ts = now();
            "interrupted".clone_into(&mut attempt.detail);
            self.set(index, attempt);
            let attempt = match target.addr {
                Some(addr) => self.dial(self.untried(target), addr),
                None => self.by_name(target),
            };
            self.set(index, attempt);
        }
    }

    fn set(&self, index: usize, attempt: Attempt) {
        if let Some(slot) = self.progress().attempts.get_mut(index) {
            *slot = attempt;
        }
    }

    /// Ends it: what was not tried yet will not be.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// What came of it so far.
    pub fn report(&self) -> Report {
        let progress = self.progress();
        let (lookup, attempts) = (progress.lookup.clone(), progress.attempts.clone());
        drop(progress);
        let layer = layer::layer(lookup.as_ref(), &attempts);
        Report {
            client: self.end(None),
            resolver: self
                .plan
                .asks()
                .then(|| self.client.resolver.clone())
                .flatten(),
            lookup,
            attempts,
            notes: self.plan.notes.clone(),
            layer,
        }
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        // Each change is whole.
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn limits(&self) -> Limits<'_> {
        Limits {
            timeout: self.timeout,
            stop: &self.stop,
        }
    }

    fn endpoint(&self, addr: SocketAddr) -> Endpoint {
        let known = self.inventory.as_ref();
        Endpoint {
            addr: addr.ip(),
            port: Some(addr.port()),
            name: known.and_then(|i| i.name(addr.ip()).cloned()),
        }
    }

    /// The client's end of a connection; its address alone without one.
    fn end(&self, local: Option<SocketAddr>) -> Endpoint {
        let own = self.client.addrs.first().copied();
        Endpoint {
            addr: local
                .map(|l| l.ip())
                .or(own)
                .unwrap_or(IpAddr::from([0, 0, 0, 0])),
            port: local.map(|l| l.port()),
            name: Some(format!("pod/{}", self.client.pod).into()),
        }
    }

    fn untried(&self, target: &Target) -> Attempt {
        Attempt {
            ts: 0,
            way: target.way,
            name: self.plan.name.clone().filter(|_| target.way == Way::Name),
            client: None,
            server: target.addr.map(|a| self.endpoint(a)),
            unready: target.unready,
            result: Outcome::NotTried,
            detail: "not tried".to_owned(),
            took: 0,
            flow: None,
            stopped: None,
        }
    }

    /// Says what is about to be sent.
    fn say(&self, to: SocketAddr, what: &str) {
        let Some(announce) = self.announce else {
            return;
        };
        let own = self
            .client
            .addrs
            .iter()
            .find(|a| a.is_ipv4() == to.is_ipv4());
        let from = own.map_or_else(String::new, |a| format!(" ({a})"));
        let name = self.inventory.as_ref().and_then(|i| i.name(to.ip()));
        let name = name.map_or_else(String::new, |n| format!(" ({n})"));
        announce(&format!(
            "sending from pod/{}{from} to {to}{name}: {what}",
            self.client.pod
        ));
    }

    fn by_name(&self, target: &Target) -> Attempt {
        let mut attempt = self.untried(target);
        attempt.ts = now();
        let Some(resolver) = &self.client.resolver else {
            attempt.result = Outcome::Failed;
            "no resolv.conf of the pod and no DNS Service was found"
                .clone_into(&mut attempt.detail);
            return attempt;
        };
        let name = self.plan.name.as_deref().unwrap_or_default();
        let found = lookup::lookup(self, name, resolver);
        let addr = found.addrs.first().copied();
        let (detail, over) = (lookup::summary(&found), self.limits().stopped());
        self.progress().lookup = Some(found);
        match addr {
            Some(addr) => self.dial(attempt, SocketAddr::new(addr, self.plan.port)),
            None if over => {
                "interrupted".clone_into(&mut attempt.detail);
                attempt
            }
            None => {
                attempt.result = Outcome::Unresolved;
                attempt.took = now().saturating_sub(attempt.ts);
                attempt.detail = detail;
                attempt
            }
        }
    }

    fn dial(&self, mut attempt: Attempt, to: SocketAddr) -> Attempt {
        attempt.ts = now();
        attempt.server = Some(self.endpoint(to));
        let done = if self.plan.udp {
            self.datagram(to)
        } else {
            self.say(to, "TCP, a connection that is closed at once");
            dial::tcp(to, &self.limits())
        };
        attempt.client = done.client.map(|c| self.end(Some(c)));
        attempt.result = done.result;
        attempt.detail = done.detail;
        attempt.took = nanoseconds(done.took);
        attempt
    }

    /// A question where name servers listen; an empty datagram elsewhere.
    fn datagram(&self, to: SocketAddr) -> Dialled {
        const NAME: &str = "kubernetes.default.svc.cluster.local.";
        const KIND: crate::trace::probe::Kind = crate::trace::probe::Kind::A;
        let id = lookup::id();
        if to.port() == 53
            && let Ok(question) = message::question(id, NAME, KIND)
        {
            self.say(to, &format!("UDP, DNS query {KIND} {NAME}"));
            let take = |m: &[u8]| message::answer(m, id, NAME, KIND);
            let (mut done, _) = dial::udp(to, &question, &self.limits(), take);
            if done.result == Outcome::NoAnswer {
                // A name server answers.
                done.result = Outcome::TimedOut;
            }
            return done;
        }
        self.say(
            to,
            "UDP, an empty datagram; that nothing answers proves nothing",
        );
        let (mut done, _) = dial::udp(to, b"", &self.limits(), |_| Some(()));
        if done.result == Outcome::NoAnswer {
            done.detail.push_str(" (proves nothing)");
        }
        done
    }
}

/// Nanoseconds since the epoch by the clock that the trace has.
fn now() -> u64 {
    time::boot_now_ns().wrapping_add_signed(time::boot_to_epoch_ns())
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
