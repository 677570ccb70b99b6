//! Which interfaces are watched, kept up to date: pods come and go while a
//! trace runs.

use std::collections::HashSet;
use std::sync::Arc;

use crate::cli::say;
use crate::decode::{Decoder, Place};
use crate::discover::{self, Discovery, Override, Watch, watch_list};
use crate::inventory::Inventory;
use crate::netlink::{LinkEvent, LinkEvents};
use crate::netns;
use crate::probe::Probes;
use crate::target::Request;
use crate::trace::{Flow, Node, Role};

use super::state::{Last, States};
use super::{Job, known_namespaces};

/// Discovery, and what follows from it for the request.
pub(super) struct Watcher {
    request: Request,
    inventory: Option<Arc<Inventory>>,
    overrides: Vec<Override>,
    discovery: Discovery,
    watched: Vec<Watch>,
    /// News about links, by node namespace.
    news: Vec<(u32, LinkEvents)>,
    stale: bool,
    known: HashSet<u32>,
}

impl Watcher {
    pub(super) fn new(job: &Job, discovery: Discovery) -> Self {
        let mut watcher = Self {
            request: job.request.clone(),
            inventory: job.inventory.clone(),
            overrides: job.overrides.clone(),
            discovery,
            watched: Vec::new(),
            news: Vec::new(),
            stale: false,
            known: HashSet::new(),
        };
        watcher.subscribe();
        watcher
    }

    fn subscribe(&mut self) {
        for node in &self.discovery.nodes {
            if self.news.iter().any(|(inode, _)| *inode == node.netns) {
                continue;
            }
            if let Ok(Ok(events)) = netns::run_in(&node.ns, LinkEvents::open) {
                self.news.push((node.netns, events));
            }
        }
        let nodes: HashSet<u32> = self.discovery.nodes.iter().map(|n| n.netns).collect();
        self.news.retain(|(inode, _)| nodes.contains(inode));
        self.known = known_namespaces(&self.discovery).collect();
    }

    /// Attaches to what is not yet attached; sentences about what failed.
    pub(super) fn attach(&mut self, probes: &mut Probes, decoder: &mut Decoder) -> Vec<String> {
        let mut failed = Vec::new();
        self.watched = watch_list(&self.discovery, &self.request, self.inventory.as_deref());
        for node in &self.discovery.nodes {
            decoder.set_node(node.netns, &node.name);
            for link in &node.links {
                decoder.set_place(
                    node.netns,
                    link.link.ifindex,
                    Place {
                        node: node.name.clone(),
                        iface: link.link.name.clone(),
                        role: link.role,
                    },
                );
            }
        }
        for pod in &self.discovery.pods {
            let Some(node) = self.discovery.nodes.get(pod.node) else {
                continue;
            };
            decoder.set_node(pod.netns, &node.name);
            decoder.set_place(
                pod.netns,
                pod.pod_ifindex,
                Place {
                    node: node.name.clone(),
                    iface: pod.pod_iface.clone(),
                    role: Role::PodEth0,
                },
            );
        }
        for watch in &self.watched {
            let Some(node) = self.discovery.nodes.get(watch.node) else {
                continue;
            };
            let done = probes.attach_interface(&node.ns, watch.ifindex, &watch.name, watch.l3);
            if let Err(why) = done {
                failed.push(format!(
                    "interface {} of {}: {why}, so nothing is seen there",
                    watch.name, node.name
                ));
            }
        }
        failed
    }

    /// Whether an event of this namespace is about the traced nodes and pods.
    pub(super) fn knows(&self, netns: u32) -> bool {
        self.known.contains(&netns)
    }

    /// Takes note of link changes. Cheap when there are none.
    pub(super) fn listen(&mut self, probes: &mut Probes) {
        for (inode, events) in &mut self.news {
            for event in events.read().unwrap_or_default() {
                match event {
                    LinkEvent::Deleted(link) => {
                        probes.forget_interface(*inode, link.ifindex);
                        self.stale = true;
                    }
                    LinkEvent::New(link) => {
                        self.stale |= !probes.is_attached(*inode, link.ifindex);
                    }
                    LinkEvent::Lost => self.stale = true,
                }
            }
        }
    }

    /// Looks again where links changed, or when `forced` (namespaces announce
    /// themselves nowhere). True where something new was attached.
    pub(super) fn refresh(
        &mut self,
        probes: &mut Probes,
        decoder: &mut Decoder,
        forced: bool,
    ) -> bool {
        if !self.stale && !forced {
            return false;
        }
        self.stale = false;
        let Ok(discovery) = discover::discover(&self.overrides, self.inventory.as_deref()) else {
            return false;
        };
        let before = probes.interfaces();
        self.discovery = discovery;
        self.subscribe();
        for line in self.attach(probes, decoder) {
            say(&format!("warning: {line}"));
        }
        probes.interfaces() > before
    }

    /// Starts the first reading of the state.
    pub(super) fn begin(&self, states: &mut States) {
        states.begin(&self.discovery, &self.watched);
    }

    /// Starts the last one.
    pub(super) fn end(&self, states: States, flows: &[Flow]) -> Last {
        states.end(&self.discovery, &self.watched, flows)
    }

    /// The nodes for the trace's header.
    pub(super) fn nodes(&self) -> Vec<Node> {
        self.discovery.public_nodes(&self.watched)
    }

    /// What is watched, to standard error.
    pub(super) fn describe(&self) {
        for node in self.nodes() {
            let links: Vec<String> = node
                .interfaces
                .iter()
                .map(|i| format!("{} ({})", i.name, role_name(i.role)))
                .collect();
            say(&format!("node {}: {}", node.name, links.join(", ")));
        }
        for line in &self.discovery.skipped {
            say(&format!("skipped: {line}"));
        }
    }
}

/// The role as the schema spells it.
pub(crate) fn role_name(role: Role) -> &'static str {
    match role {
        Role::PodVeth => "pod-veth",
        Role::PodEth0 => "pod-eth0",
        Role::Tunnel => "tunnel",
        Role::Uplink => "uplink",
        Role::Bridge => "bridge",
        Role::Other => "other",
    }
}
