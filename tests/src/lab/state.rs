//! What the laboratory made and may therefore take down: `/run/tracer-lab/state.json`.
//!
//! The file is written before the first namespace is made and completed afterwards, so that even a
//! run that was killed half-way can be taken down. Its servers watch it and leave when it goes.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::{Options, netns};

/// Everything the laboratory keeps on disk.
pub const DIR: &str = "/run/tracer-lab";

/// A process that the laboratory started.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Process {
    /// Its process id.
    pub pid: i32,
    /// Its start time in clock ticks since boot; tells it from a later process with the same id.
    pub started: u64,
}

impl Process {
    /// The process of that id, as it is now; `None` when it is gone or a zombie.
    pub fn of(pid: i32) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name in parentheses may hold spaces; the fields after it do not.
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        if matches!(fields.first(), Some(&("Z" | "X"))) {
            return None;
        }
        Some(Self {
            pid,
            started: fields.get(19)?.parse().ok()?,
        })
    }

    /// Whether this very process still runs.
    pub fn is_alive(&self) -> bool {
        Self::of(self.pid).is_some_and(|now| now.started == self.started)
    }
}

/// The content of the state file.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct State {
    /// Tells one `up` from the next.
    pub id: String,
    /// What was asked for.
    pub options: Options,
    /// Whether /run/netns was made for the laboratory.
    pub made_netns_dir: bool,
    /// Each namespace and its inode number; 0 while it is being made.
    pub namespaces: BTreeMap<String, u64>,
    /// The server processes, by namespace.
    pub processes: BTreeMap<String, Process>,
    /// The `allowed` label of each pod that has one.
    pub allowed: BTreeMap<String, String>,
    /// The faults that were made, in that order.
    #[serde(default)]
    pub faults: Vec<String>,
    /// Settings of the whole machine that a fault changed, and what they were: they go back when the laboratory goes.
    #[serde(default)]
    pub settings: BTreeMap<PathBuf, String>,
}

impl State {
    /// A state that owns nothing yet.
    pub fn new(options: &Options) -> Self {
        let since_epoch = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        Self {
            id: format!("{}-{}", std::process::id(), since_epoch.as_nanos()),
            options: options.clone(),
            made_netns_dir: !Path::new(netns::DIR).exists(),
            namespaces: BTreeMap::new(),
            processes: BTreeMap::new(),
            allowed: BTreeMap::from([("client".to_owned(), "true".to_owned())]),
            faults: Vec::new(),
            settings: BTreeMap::new(),
        }
    }

    /// Where the state is kept.
    pub fn path() -> PathBuf {
        Path::new(DIR).join("state.json")
    }

    /// The state of the laboratory that is up, if one is.
    pub fn load() -> Result<Option<Self>> {
        let path = Self::path();
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => {
                return Err(error).with_context(|| format!("reading {}", path.display()));
            }
        };
        serde_json::from_slice(&text)
            .map(Some)
            .with_context(|| format!("{} is not a state file of this version", path.display()))
    }

    /// Writes the state so that a reader sees either the old or the new one.
    pub fn save(&self) -> Result<()> {
        write_whole(&Self::path(), &serde_json::to_vec_pretty(self)?)
    }

    /// The namespaces that exist and are the laboratory's own.
    pub fn owned(&self) -> Vec<(&str, u64)> {
        self.namespaces
            .iter()
            .filter_map(|(name, &recorded)| {
                let inode = netns::inode(name)?;
                (recorded == 0 || recorded == inode).then_some((name.as_str(), inode))
            })
            .collect()
    }

    /// Whether every namespace and process that was made is still there.
    pub fn is_intact(&self) -> bool {
        !self.processes.is_empty()
            && self.owned().len() == self.namespaces.len()
            && self.processes.values().all(Process::is_alive)
    }
}

/// Replaces a file in one step.
pub(super) fn write_whole(path: &Path, content: &[u8]) -> Result<()> {
    let partial = path.with_extension("partial");
    fs::write(&partial, content)
        .and_then(|()| fs::rename(&partial, path))
        .with_context(|| format!("writing {}", path.display()))
}
