//! What an evaluation answers.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use super::model::{Policy, Ports};

/// What one table does with a packet at a hook.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// The table.
    pub table: Arc<str>,
    /// `nft` or `legacy`; where both have the table, the one that decided.
    pub variant: Arc<str>,
    /// What is done.
    pub verdict: Verdict,
    /// The rule that decided; absent for a policy, and where chance decides.
    pub rule: Option<RuleRef>,
    /// Chains gone through, and the rule that led to each. The last is where it
    /// was decided. Chains that were left again are in it.
    pub path: Vec<ChainVisit>,
    /// Rules that changed the packet's mark.
    pub marks: Vec<MarkChange>,
    /// The packet's mark afterwards.
    pub mark: u32,
    /// The connection's mark afterwards, if known.
    pub connmark: Option<u32>,
    /// The rule that took it out of conntrack's sight.
    pub untracked: Option<RuleRef>,
    /// Where the packet is denied: rules that would nearly have let it pass.
    pub failed: Vec<NearMiss>,
    /// What each outcome of chance, or of a list that is not known, leads to;
    /// empty where there is but one way.
    pub alternatives: Vec<Alternative>,
}

/// One of several ways.
#[derive(Clone, Debug, PartialEq)]
pub struct Alternative {
    /// Its probability among those with the same assumptions; they sum to 1.
    pub probability: f64,
    /// What has to be so for it.
    pub assuming: Vec<Assumption>,
    /// What is decided then; without alternatives of its own.
    pub decision: Decision,
}

/// Whether the packet's address is in a list of the `recent` match, which is
/// not in any dump: session affinity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assumption {
    /// The list, as in `/proc/net/xt_recent`.
    pub list: Arc<str>,
    /// How the rule asks it.
    pub options: Arc<str>,
    /// It is in the list.
    pub listed: bool,
}

/// What is done with a packet.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// A rule lets it pass.
    Accept,
    /// A rule drops it.
    Drop,
    /// A rule answers with an error.
    Reject {
        /// As `icmp-port-unreachable`, `tcp-reset`.
        with: Arc<str>,
    },
    /// No rule decided; the chain's policy did.
    Policy(Policy),
    /// The destination is rewritten.
    Dnat(Translation),
    /// The source is rewritten.
    Snat(Translation),
    /// The source becomes an address of the output interface.
    Masquerade(Translation),
    /// The destination becomes this host.
    Redirect(Translation),
    /// A program decides.
    Queue,
    /// Chance or a list decides, see the alternatives.
    Depends,
    /// It cannot be told.
    Unknown {
        /// The match or target that is not known, or what is missing to tell.
        what: Arc<str>,
    },
}

impl Verdict {
    /// The packet ends here.
    pub fn denies(&self) -> bool {
        matches!(
            self,
            Self::Drop | Self::Reject { .. } | Self::Policy(Policy::Drop)
        )
    }

    /// The packet certainly goes on.
    pub fn passes(&self) -> bool {
        !self.denies() && !matches!(self, Self::Queue | Self::Depends | Self::Unknown { .. })
    }

    /// Addresses or ports are rewritten.
    pub fn translates(&self) -> Option<&Translation> {
        match self {
            Self::Dnat(t) | Self::Snat(t) | Self::Masquerade(t) | Self::Redirect(t) => Some(t),
            _ => None,
        }
    }

    /// How much it decides, of two variants of one table.
    pub(super) fn weight(&self) -> u8 {
        match self {
            Self::Drop | Self::Reject { .. } => 6,
            Self::Policy(Policy::Drop) => 5,
            Self::Unknown { .. } => 4,
            Self::Queue => 3,
            Self::Dnat(_) | Self::Snat(_) | Self::Masquerade(_) | Self::Redirect(_) => 2,
            Self::Accept | Self::Depends => 1,
            Self::Policy(Policy::Accept) => 0,
        }
    }
}

/// What an address and a port become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Translation {
    /// First and last address; absent where it is kept or the kernel chooses it.
    pub addrs: Option<(IpAddr, IpAddr)>,
    /// Ports; absent where it is kept if possible.
    pub ports: Option<Ports>,
    /// The port is chosen at random.
    pub random: bool,
}

impl Translation {
    /// The address, where there is but one.
    pub fn addr(&self) -> Option<IpAddr> {
        self.addrs.filter(|(a, b)| a == b).map(|(a, _)| a)
    }

    /// The port, where there is but one.
    pub fn port(&self) -> Option<u16> {
        self.ports.filter(|p| p.0 == p.1).map(|p| p.0)
    }
}

impl fmt::Display for Translation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.addrs {
            Some((a, b)) if a != b => write!(f, "{a}-{b}")?,
            Some((IpAddr::V6(a), _)) if self.ports.is_some() => write!(f, "[{a}]")?,
            Some((a, _)) => write!(f, "{a}")?,
            None => {}
        }
        match self.ports {
            Some(ports) => write!(f, ":{ports}"),
            None => Ok(()),
        }
    }
}

/// A rule, by where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleRef {
    /// True for `ip6tables`.
    pub ipv6: bool,
    /// `nft` or `legacy`.
    pub variant: Arc<str>,
    /// Table.
    pub table: Arc<str>,
    /// Chain.
    pub chain: Arc<str>,
    /// Position in the chain, 1 first.
    pub index: usize,
    /// As it was written, without counters.
    pub text: Arc<str>,
    /// What its author wrote about it.
    pub comment: Option<Arc<str>>,
    /// Packets it matched, where the dump had counters.
    pub packets: Option<u64>,
    /// Their bytes.
    pub bytes: Option<u64>,
}

/// A chain on the way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChainVisit {
    /// Name.
    pub chain: Arc<str>,
    /// The rule that led there; absent for the hook's own chain.
    pub via: Option<Arc<str>>,
}

/// A rule that changed the packet's mark.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MarkChange {
    /// The rule.
    pub rule: RuleRef,
    /// Before.
    pub before: u32,
    /// After.
    pub after: u32,
}

/// A rule that would have let the packet pass, or would have marked it so, but
/// for one match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NearMiss {
    /// The rule.
    pub rule: RuleRef,
    /// Why it did not match, as `set cali40s:xyz src does not contain 10.0.0.1`.
    pub why: Arc<str>,
}
