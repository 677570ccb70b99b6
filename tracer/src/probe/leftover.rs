//! What a killed run leaves on kernels before 6.6: clsact filters, and the
//! qdiscs that were added for them. Everything else (TCX, kprobe and tracepoint
//! links, maps) ends with the process.
//!
//! A run that uses clsact keeps a note in `/run/tracer` of the qdiscs it added,
//! so that removal takes exactly what is ours: filters by their program's name,
//! qdiscs only if noted and empty.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use aya::programs::tc::{self, TcAttachType};

use super::catalog::{TC_L3, TC_LINK};
use crate::netlink::{Attrs, Message, Socket};
use crate::netns::{self, NetNs};

/// Where notes are kept.
const DIR: &str = "/run/tracer";

/// `TC_H_CLSACT` and its two halves, `include/uapi/linux/pkt_sched.h`.
const CLSACT: u32 = 0xffff_fff1;
const INGRESS: u32 = 0xffff_fff2;
const EGRESS: u32 = 0xffff_fff3;
/// `TCA_KIND`, `TCA_OPTIONS`, `include/uapi/linux/rtnetlink.h`.
const TCA_KIND: u16 = 1;
const TCA_OPTIONS: u16 = 2;
/// `TCA_BPF_NAME`, `include/uapi/linux/pkt_cls.h`.
const TCA_BPF_NAME: u16 = 7;

/// A clsact qdisc that a run added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owned {
    /// Inode of the namespace.
    pub netns: u32,
    /// Interface.
    pub ifindex: u32,
}

/// Adds a clsact qdisc in the current namespace; false where there is one.
pub fn add_clsact(interface: &str) -> Result<bool, String> {
    match tc::qdisc_add_clsact(interface) {
        Ok(()) => Ok(true),
        Err(e) if exists(&e) => Ok(false),
        Err(e) => Err(format!("cannot add a clsact qdisc: {e}")),
    }
}

fn exists(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(e) = next {
        if e.downcast_ref::<io::Error>()
            .and_then(io::Error::raw_os_error)
            == Some(libc::EEXIST)
        {
            return true;
        }
        next = e.source();
    }
    false
}

/// `struct tcmsg`, `include/uapi/linux/rtnetlink.h`.
fn tcmsg(ifindex: u32, handle: u32, parent: u32) -> [u8; 20] {
    let mut body = [0; 20];
    body[4..8].copy_from_slice(&ifindex.to_ne_bytes());
    body[8..12].copy_from_slice(&handle.to_ne_bytes());
    body[12..16].copy_from_slice(&parent.to_ne_bytes());
    body
}

/// Names of the bpf filters at one side of an interface, `None` for others.
fn filters(ifindex: u32, parent: u32) -> io::Result<Vec<Option<String>>> {
    let mut socket = Socket::open(libc::NETLINK_ROUTE, 0)?;
    let mut names = Vec::new();
    let body = tcmsg(ifindex, 0, parent);
    socket.dump(libc::RTM_GETTFILTER, &body, &mut |message: Message<'_>| {
        let mut bpf = None;
        let mut whole = false;
        for (kind, value) in Attrs(message.body.get(20..).unwrap_or_default()) {
            match kind {
                TCA_KIND => whole |= &*value.text() == "bpf",
                TCA_OPTIONS => {
                    bpf = value
                        .nested()
                        .find(|(k, _)| *k == TCA_BPF_NAME)
                        .map(|(_, v)| v.text().to_string());
                    whole = true;
                }
                _ => {}
            }
        }
        if whole {
            names.push(bpf);
        }
    })?;
    Ok(names)
}

/// Removes an empty clsact qdisc in the current namespace.
pub fn remove_clsact_if_empty(ifindex: u32) -> bool {
    let empty = |side| filters(ifindex, side).is_ok_and(|f| f.is_empty());
    if !empty(INGRESS) || !empty(EGRESS) {
        return false;
    }
    let body = tcmsg(ifindex, CLSACT & 0xffff_0000, CLSACT);
    Socket::open(libc::NETLINK_ROUTE, 0)
        .and_then(|mut s| s.change(libc::RTM_DELQDISC, &body))
        .is_ok()
}

/// This run's note.
pub struct Record {
    path: PathBuf,
    lines: String,
}

/// When a process started, in clock ticks since boot: field 22 of
/// `/proc/PID/stat` (proc(5)); tells a process from a later one with its pid.
fn start_time(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The command's name may hold spaces and parentheses.
    stat.rsplit_once(')')?
        .1
        .split_ascii_whitespace()
        .nth(19)?
        .parse()
        .ok()
}

impl Record {
    /// A note for this process, not yet written.
    pub fn new() -> Self {
        let pid = std::process::id();
        let path = Path::new(DIR).join(format!("{pid}-{}", start_time(pid).unwrap_or(0)));
        Self {
            path,
            lines: String::new(),
        }
    }

    /// Notes a qdisc.
    pub fn add(&mut self, owned: &Owned) -> Result<(), String> {
        // Writing to a String cannot fail.
        let _ = writeln!(self.lines, "{} {}", owned.netns, owned.ifindex);
        self.touch()
    }

    /// Says that this run is alive and uses clsact.
    pub fn touch(&mut self) -> Result<(), String> {
        fs::create_dir_all(DIR)
            .and_then(|()| fs::write(&self.path, &self.lines))
            .map_err(|e| format!("cannot note what is attached in {DIR}: {e}"))
    }

    /// Takes the note away.
    pub fn remove(&self) {
        let _ = fs::remove_file(&self.path);
        let _ = fs::remove_dir(DIR);
    }
}

impl Default for Record {
    fn default() -> Self {
        Self::new()
    }
}

/// What a clean-up did.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Cleaned {
    /// Filters removed, as `interface side` per namespace.
    pub filters: Vec<String>,
    /// Qdiscs removed.
    pub qdiscs: Vec<String>,
    /// Runs that are alive and were left alone.
    pub alive: Vec<u32>,
    /// What could not be removed, and why.
    pub failed: Vec<String>,
}

struct Note {
    path: PathBuf,
    pid: u32,
    alive: bool,
    owned: Vec<Owned>,
}

fn notes() -> Vec<Note> {
    let mut notes = Vec::new();
    for entry in fs::read_dir(DIR).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let Some((pid, start)) = name.split_once('-') else {
            continue;
        };
        let (Ok(pid), Ok(start)) = (pid.parse(), start.parse::<u64>()) else {
            continue;
        };
        let text = fs::read_to_string(entry.path()).unwrap_or_default();
        let owned = text
            .lines()
            .filter_map(|line| {
                let (netns, ifindex) = line.split_once(' ')?;
                Some(Owned {
                    netns: netns.parse().ok()?,
                    ifindex: ifindex.parse().ok()?,
                })
            })
            .collect();
        notes.push(Note {
            path: entry.path(),
            pid,
            alive: start_time(pid) == Some(start),
            owned,
        });
    }
    notes
}

/// Removes what killed runs left in all namespaces. Filters of a run that is
/// alive stay: while there is one, filters are removed only from interfaces
/// that a dead run noted and no live one did.
pub fn clean() -> io::Result<Cleaned> {
    let mut cleaned = Cleaned::default();
    let notes = notes();
    cleaned.alive = notes.iter().filter(|n| n.alive).map(|n| n.pid).collect();
    let noted = |alive: bool, at: &Owned| {
        notes
            .iter()
            .filter(|n| n.alive == alive)
            .any(|n| n.owned.contains(at))
    };
    for ns in netns::list().found {
        let work = || -> io::Result<Vec<crate::netlink::Link>> { crate::netlink::links() };
        let _inside = match netns::enter(&ns) {
            Ok(inside) => inside,
            Err(e) => {
                cleaned.failed.push(format!("{}: {e}", label(&ns)));
                continue;
            }
        };
        for link in work()? {
            let at = Owned {
                netns: ns.inode,
                ifindex: link.ifindex,
            };
            if !cleaned.alive.is_empty() && (noted(true, &at) || !noted(false, &at)) {
                continue;
            }
            let place = format!("{} in {}", link.name, label(&ns));
            clean_link(&link, &place, noted(false, &at), &mut cleaned);
        }
    }
    for note in notes.iter().filter(|n| !n.alive) {
        let _ = fs::remove_file(&note.path);
    }
    let _ = fs::remove_dir(DIR);
    Ok(cleaned)
}

fn label(ns: &NetNs) -> String {
    ns.name
        .clone()
        .unwrap_or_else(|| format!("netns-{}", ns.inode))
}

fn clean_link(link: &crate::netlink::Link, place: &str, owned: bool, cleaned: &mut Cleaned) {
    let sides = [
        (INGRESS, TcAttachType::Ingress, "ingress"),
        (EGRESS, TcAttachType::Egress, "egress"),
    ];
    for (parent, at, side) in sides {
        let Ok(found) = filters(link.ifindex, parent) else {
            continue;
        };
        for program in TC_LINK.into_iter().chain(TC_L3) {
            if !found.iter().any(|f| f.as_deref() == Some(program)) {
                continue;
            }
            match tc::qdisc_detach_program(&link.name, at, program) {
                Ok(()) => cleaned
                    .filters
                    .push(format!("{side} filter {program} on {place}")),
                Err(e) => cleaned
                    .failed
                    .push(format!("{side} filter {program} on {place}: {e}")),
            }
        }
    }
    if owned && remove_clsact_if_empty(link.ifindex) {
        cleaned.qdiscs.push(format!("clsact qdisc on {place}"));
    }
}
