//! Faults of real clusters, each made on a healthy laboratory that is up.
//!
//! A fault changes what runs in the namespaces (rules, routes, devices, settings, pods) and, where the API server
//! would know of it, what the inventory says. [`down`](super::down) takes it all away; there is no other way back.

mod endpoint;
mod filter;
mod host;
mod names;
mod objects;
mod pods;
mod policy;
mod service;
mod site;
pub mod stray;
mod tunnel;
mod wire;

use anyhow::{Context, Result, ensure};

use super::{exclusive, inventory, loaded};
use objects::Objects;
use site::Site;

pub use service::KEPT_PORT;

/// What can be wrong with a cluster.
#[derive(Debug)]
pub struct Fault {
    /// Its number among the cases, such as `C01`.
    pub id: &'static str,
    /// Its name on the command line.
    pub name: &'static str,
    /// What is wrong, in one line.
    pub about: &'static str,
    /// The traffic that shows it, as a command of the laboratory.
    pub shown_by: &'static str,
    make: fn(&Site) -> Result<()>,
    show: fn(&mut Objects),
}

/// Every fault, in the order of the numbers.
pub const ALL: &[Fault] = &[
    service::NO_ENDPOINTS,
    service::NAT_FLUSHED,
    service::ENDPOINT_GONE,
    service::DNS_ENTRY_STALE,
    service::LOCAL_POLICY,
    endpoint::WRONG_TARGET_PORT,
    service::AFFINITY_TO_GONE,
    policy::NODE_PORT_SOURCE_HIDDEN,
    service::HAIRPIN,
    wire::BRIDGE_SKIPS_NETFILTER,
    service::IPVS_NO_DESTINATION,
    host::CONNTRACK_FULL,
    service::TWO_RESOLVERS,
    host::INVALID_NOT_DROPPED,
    wire::INNER_CHECKSUM,
    host::FIREWALL_DROPS_VXLAN,
    wire::UNDERLAY_DROPS_VXLAN,
    tunnel::OTHER_PORT,
    tunnel::NO_FDB_ENTRY,
    tunnel::WRONG_FDB_ENTRY,
    tunnel::NO_NEIGHBOUR,
    tunnel::PEER_NOT_ALLOWED,
    tunnel::NO_ROUTE,
    wire::MTU_BLACK_HOLE,
    wire::FRAGMENTS_DROPPED,
    wire::LATER_FRAGMENTS_DROPPED,
    host::FORWARDING_OFF,
    tunnel::REVERSE_PATH,
    host::FOREIGN_SOURCE,
    host::NO_PROXY_ARP,
    tunnel::BORROWED_ADDRESS,
    host::NO_ROUTE_LOCALNET,
    host::FORWARD_POLICY,
    policy::INGRESS_DENIED,
    policy::EGRESS_WITHOUT_DNS,
    policy::SERVICE_PORT,
    policy::HOST_NETWORK_CLIENT,
    wire::OTHER_PROGRAM,
    host::API_SERVER_REJECTED,
    host::NO_MASQUERADE,
    wire::RATE_LIMIT,
    endpoint::ACCEPT_QUEUE_FULL,
    tunnel::ANSWER_BY_ANOTHER_WAY,
    host::SHORT_TTL,
    host::SNAT_PORT_TAKEN,
    service::OLD_DNS_RECORD,
    wire::LARGER_MTU,
    tunnel::ROUTING_LOOP,
];

/// The fault of that name or number.
pub fn named(name: &str) -> Option<&'static Fault> {
    ALL.iter()
        .find(|fault| fault.name == name || fault.id.eq_ignore_ascii_case(name))
}

impl Fault {
    /// Makes it, on the laboratory that is up.
    pub fn apply(&self) -> Result<()> {
        let site = Site::of(&loaded()?);
        ensure!(
            !loaded()?.faults.iter().any(|made| made == self.name),
            "the laboratory has the fault {} already",
            self.name
        );
        (self.make)(&site).with_context(|| format!("making the fault {}", self.name))?;
        let _lock = exclusive()?;
        let mut state = loaded()?;
        state.faults.push(self.name.to_owned());
        state.save()?;
        inventory::write(&state)
    }

    /// Writes into the API server's objects what it knows of the fault.
    pub(super) fn show_in(&self, items: &mut Vec<serde_json::Value>) {
        (self.show)(&mut Objects(items));
    }
}

/// For a fault that the API server knows nothing of.
fn unseen(_: &mut Objects) {}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{ALL, named};
    use crate::lab::state::State;
    use crate::lab::{Launcher, Options, inventory};

    #[test]
    fn names_and_numbers_are_unique() {
        let names: BTreeSet<&str> = ALL.iter().flat_map(|it| [it.id, it.name]).collect();
        assert_eq!(names.len(), 2 * ALL.len());
        assert!(ALL.is_sorted_by_key(|fault| fault.id));
        assert_eq!(named("c01").map(|fault| fault.name), Some(ALL[0].name));
    }

    #[test]
    fn objects_stay_well_formed() {
        for fault in ALL {
            let mut state = State::new(&Options::new(Launcher::binary("lab")));
            state.faults.push(fault.name.to_owned());
            let list = inventory::list(&state);
            for item in list["items"].as_array().expect("a list") {
                assert!(item["kind"].is_string(), "{}: {item}", fault.name);
                assert!(item["metadata"]["name"].is_string(), "{}", fault.name);
            }
        }
    }
}
