//! The rules of a node, read and applied in thought: which rule of iptables
//! decides about a packet, which route and next hop it gets, whose chains they
//! are. Pure: no I/O, no clock.
//!
//! ```text
//! words < model, ipset < parse (matches, targets) < packet < check < walk < traverse
//! route, names, native
//! ```
//!
//! Nothing is guessed. A match that is not known, or that asks for what the
//! packet given does not say, makes the answer [`Verdict::Unknown`] and names
//! itself, unless the answer is the same whether it holds or not.

mod check;
mod decision;
mod ipset;
mod local;
mod matches;
mod model;
pub mod names;
pub mod native;
mod packet;
mod parse;
pub mod route;
mod targets;
#[cfg(test)]
mod tests;
mod traverse;
mod walk;
mod words;

use std::collections::BTreeMap;
use std::sync::Arc;

pub use decision::{
    Alternative, Assumption, ChainVisit, Decision, MarkChange, NearMiss, RuleRef, Translation,
    Verdict,
};
pub use ipset::{Element, IpSet, Part};
pub use local::{AddrType, Local, RouteBack};
pub use model::{
    Chain, Condition, CtStatus, CtTest, Direction, Limit, MarkOp, Match, Net, Policy, Ports, Rule,
    Table, Target,
};
pub use packet::{Ct, CtState, Packet};
pub use parse::Problem;
pub use traverse::{Hook, Traversal, Way};

use crate::state::IptablesDump;

/// The rules of one node: IPv4 and IPv6, nft and legacy variant, and the sets
/// that they ask.
#[derive(Clone, Debug, Default)]
pub struct Ruleset {
    tables: Vec<Table>,
    sets: BTreeMap<Arc<str>, IpSet>,
}

impl Ruleset {
    /// Reads what `iptables-save -c`, `ip6tables-save -c` and `ipset save` wrote.
    /// A line that cannot be read is a problem, and so that nobody relies on
    /// what is missing, its rule stays in its chain with a match that is unknown.
    pub fn parse(iptables: &[IptablesDump], ipsets: Option<&str>) -> (Self, Vec<Problem>) {
        let mut problems = Vec::new();
        let mut tables = Vec::new();
        for dump in iptables {
            tables.extend(parse::tables(dump, &mut problems));
        }
        let sets = ipset::parse(ipsets.unwrap_or_default(), &mut problems);
        (Self { tables, sets }, problems)
    }

    /// The tables, as they were read.
    pub fn tables(&self) -> &[Table] {
        &self.tables
    }

    /// The set with this name.
    pub fn set(&self, name: &str) -> Option<&IpSet> {
        self.sets.get(name)
    }
}
