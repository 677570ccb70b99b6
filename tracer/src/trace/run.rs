//! Which run a recording is of, and what a merged trace was made of.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::intern;

/// One run of `tracer follow` or `tracer probe`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Run {
    /// The kernel's `/proc/sys/kernel/random/boot_id`: recordings with the same
    /// one have the same clock. Empty where unknown.
    #[serde(default, deserialize_with = "intern::shared")]
    pub boot: Arc<str>,
    /// When every hook was attached, nanoseconds since the Unix epoch.
    pub began: u64,
    /// Number of this file among those that the run wrote, from 1; absent where
    /// it wrote one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<u32>,
}

/// What `tracer merge` made of several recordings.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Merged {
    /// One for each run; the clock of the first is that of the merged trace.
    pub sources: Vec<Source>,
    /// Packets that may be among others that look the same: nothing is
    /// concluded from their not being seen again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unsure: Vec<u64>,
    /// Sentences about what is not known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// One run that was merged; times by the merged trace's clock.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Source {
    /// Names of its files, without folders.
    pub files: Vec<String>,
    /// Nodes that it watched.
    pub nodes: Vec<Arc<str>>,
    /// When it began to record, or its first step where that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub began: Option<u64>,
    /// When it ended, or its last step where that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<u64>,
    /// Its clock.
    pub clock: Clock,
}

/// A source's clock against that of the first source, in nanoseconds. What is
/// known of the difference comes from packets that are in both recordings: none
/// can arrive before it left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Clock {
    /// What was added to its times.
    pub offset: i64,
    /// The difference is not less than this; absent where no packet shows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub low: Option<i64>,
    /// Nor more than this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub high: Option<i64>,
    /// How much the difference grows, in nanoseconds a second, where packets
    /// show that it does; `offset`, `low` and `high` are those of the source's
    /// beginning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drift: Option<i64>,
    /// Packets that left this source's nodes and arrived at another's.
    #[serde(default)]
    pub left: u64,
    /// And the other way round.
    #[serde(default)]
    pub arrived: u64,
}

/// How far off an offset may be that packets of one direction show, or none: a
/// second, as between clocks that NTP keeps.
pub const ASSUMED: u64 = 1_000_000_000;

impl Clock {
    /// Half the width of what the offset may be, where packets of both
    /// directions bound it.
    pub fn uncertainty(&self) -> Option<u64> {
        let (low, high) = (self.low?, self.high?);
        Some(high.abs_diff(low).div_ceil(2))
    }

    /// Whether packets of at least one direction bound the offset.
    pub fn known(&self) -> bool {
        self.low.is_some() || self.high.is_some()
    }
}
