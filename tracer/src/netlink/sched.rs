//! Queueing disciplines and classifiers, what `tc qdisc` and `tc filter` show.

use std::fmt::Write as _;
use std::io;
use std::sync::Arc;

use super::route::word;
use super::{Attrs, Message, Value, collect};

// include/uapi/linux/rtnetlink.h, include/uapi/linux/gen_stats.h
const RTM_NEWQDISC: u16 = 36;
const RTM_GETQDISC: u16 = 38;
const RTM_NEWTFILTER: u16 = 44;
const RTM_GETTFILTER: u16 = 46;
const TCA_KIND: u16 = 1;
const TCA_OPTIONS: u16 = 2;
const TCA_STATS2: u16 = 7;
const TCA_STATS_QUEUE: u16 = 3;
// include/uapi/linux/pkt_sched.h
#[cfg(test)]
const ROOT: u32 = 0xffff_ffff;
const CLSACT: u32 = 0xffff_fff1;
const INGRESS: u32 = 0xffff_fff2;
const EGRESS: u32 = 0xffff_fff3;
const TCA_TBF_PARMS: u16 = 1;
const TCA_TBF_RATE64: u16 = 4;
const TCA_NETEM_LATENCY64: u16 = 10;
// include/uapi/linux/pkt_cls.h, include/uapi/linux/tc_act/tc_gact.h
const TCA_BPF_NAME: u16 = 7;
const TCA_ACT_KIND: u16 = 1;
const TCA_ACT_OPTIONS: u16 = 2;
const TCA_ACT_STATS: u16 = 4;
const TCA_GACT_PARMS: u16 = 2;

/// Where it acts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// On the way out, or a class of what is there.
    Root,
    /// On the way in.
    Ingress,
    /// On the way out, before the queue.
    Egress,
}

impl Side {
    fn of(parent: u32) -> Self {
        match parent {
            CLSACT | INGRESS => Self::Ingress,
            EGRESS => Self::Egress,
            _ => Self::Root,
        }
    }
}

/// A queueing discipline or a classifier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sched {
    /// Interface.
    pub ifindex: u32,
    /// Handle; that of a queueing discipline nobody asked for is 0.
    pub handle: u32,
    /// Where it acts.
    pub side: Side,
    /// `fq_codel`, `clsact`, `bpf`, ...
    pub kind: Arc<str>,
    /// A program's name, or a few words of the settings.
    pub detail: String,
    /// Packets dropped so far.
    pub drops: u32,
}

/// `struct tcmsg`, 20 bytes: family, three of padding, index, handle, parent,
/// info. `None` for the heads of lists of filters, which have no options.
fn parse(m: Message<'_>, wanted: u16) -> Option<Sched> {
    if m.kind != wanted {
        return None;
    }
    let mut sched = Sched {
        ifindex: word(m.body, 4)?,
        handle: word(m.body, 8)?,
        side: Side::of(word(m.body, 12)?),
        kind: Arc::from(""),
        detail: String::new(),
        drops: 0,
    };
    let mut options = None;
    for (kind, value) in Attrs(m.body.get(20..)?) {
        match kind {
            TCA_KIND => sched.kind = value.text(),
            TCA_OPTIONS => options = Some(value),
            TCA_STATS2 => sched.drops += drops(value),
            _ => {}
        }
    }
    if wanted == RTM_NEWTFILTER {
        filter_detail(&mut sched, options?);
    } else if let Some(options) = options {
        sched.detail = qdisc_detail(&sched.kind, options).unwrap_or_default();
    }
    Some(sched)
}

/// `struct gnet_stats_queue`: length, backlog, drops, requeues, overlimits.
fn drops(stats: Value<'_>) -> u32 {
    let mut parts = stats.nested();
    let queue = parts.find(|(kind, _)| *kind == TCA_STATS_QUEUE);
    queue.and_then(|(_, v)| word(v.0, 8)).unwrap_or(0)
}

/// What a shaper or an emulator is set to, as `tc` words it.
fn qdisc_detail(kind: &str, options: Value<'_>) -> Option<String> {
    let mut text = String::new();
    match kind {
        // struct tc_netem_qopt (latency, limit, loss, gap, duplicate, jitter), then attributes.
        "netem" => {
            let loss = f64::from(word(options.0, 8)?) * 100.0 / f64::from(u32::MAX);
            let mut rest = Attrs(options.0.get(24..).unwrap_or_default());
            let latency = rest.find(|(kind, _)| *kind == TCA_NETEM_LATENCY64);
            let delay = latency.and_then(|(_, v)| v.u64()).unwrap_or(0);
            // Writing to a String cannot fail.
            if delay > 0 {
                let _ = write!(text, "delay {} ms ", delay as f64 / 1e6);
            }
            if loss > 0.0 {
                let _ = write!(text, "loss {loss:.3}% ");
            }
            let _ = write!(text, "limit {}", word(options.0, 4)?);
        }
        // struct tc_tbf_qopt begins with a struct tc_ratespec, the last word of which are bytes a second.
        "tbf" => {
            let mut rate = 0;
            for (kind, value) in options.nested() {
                match kind {
                    TCA_TBF_PARMS if rate == 0 => rate = u64::from(word(value.0, 8)?),
                    TCA_TBF_RATE64 => rate = value.u64()?,
                    _ => {}
                }
            }
            let _ = write!(text, "rate {} bit/s", rate.saturating_mul(8));
        }
        _ => {}
    }
    Some(text)
}

/// The attribute that holds a classifier's actions, `TCA_*_ACT`.
fn actions_of(kind: &str) -> Option<u16> {
    match kind {
        "bpf" => Some(1),
        "matchall" => Some(2),
        "flower" | "basic" => Some(3),
        "fw" => Some(4),
        "u32" => Some(7),
        _ => None,
    }
}

fn filter_detail(sched: &mut Sched, options: Value<'_>) {
    let actions = actions_of(&sched.kind);
    let mut words: Vec<String> = Vec::new();
    for (kind, value) in options.nested() {
        if &*sched.kind == "bpf" && kind == TCA_BPF_NAME {
            words.insert(0, value.text().to_string());
        } else if Some(kind) == actions {
            // Numbered from 1 in the order in which they act.
            for (_, action) in value.nested() {
                words.extend(action_words(action));
                let mut parts = action.nested();
                let stats = parts.find(|(kind, _)| *kind == TCA_ACT_STATS);
                sched.drops += stats.map_or(0, |(_, stats)| drops(stats));
            }
        }
    }
    sched.detail = words.join(", ");
}

/// An action's kind; of the generic one, what it decides.
fn action_words(action: Value<'_>) -> Option<String> {
    let mut name = None;
    let mut decides = None;
    for (kind, value) in action.nested() {
        match kind {
            TCA_ACT_KIND => name = Some(value.text()),
            // struct tc_gact: index, capabilities, action.
            TCA_ACT_OPTIONS => {
                let mut parts = value.nested();
                let parms = parts.find(|(kind, _)| *kind == TCA_GACT_PARMS);
                decides = parms.and_then(|(_, v)| word(v.0, 8));
            }
            _ => {}
        }
    }
    let name = name?;
    let verdict = match decides.filter(|_| &*name == "gact")? as i32 {
        -1 => "continue",
        0 => "pass",
        1 => "reclassify",
        2 => "drop",
        3 => "pipe",
        4 => "stolen",
        7 => "redirect",
        _ => return Some(name.to_string()),
    };
    Some(format!("{name} {verdict}"))
}

/// Queueing disciplines of the thread's namespace.
pub fn qdiscs() -> io::Result<Vec<Sched>> {
    collect(libc::NETLINK_ROUTE, RTM_GETQDISC, &[0; 20], |m| {
        parse(m, RTM_NEWQDISC)
    })
}

/// Classifiers on one queueing discipline; of clsact, on both sides.
pub fn filters(on: &Sched) -> io::Result<Vec<Sched>> {
    let parents: &[u32] = match (&*on.kind, on.side) {
        ("clsact", _) => &[INGRESS, EGRESS],
        (_, Side::Ingress) => &[INGRESS],
        _ => &[on.handle],
    };
    let mut all = Vec::new();
    for parent in parents {
        let mut body = [0; 20];
        body[4..8].copy_from_slice(&on.ifindex.to_ne_bytes());
        body[12..16].copy_from_slice(&parent.to_ne_bytes());
        let parse = |m: Message<'_>| {
            let mut filter = parse(m, RTM_NEWTFILTER)?;
            filter.side = Side::of(*parent);
            Some(filter)
        };
        all.extend(collect(libc::NETLINK_ROUTE, RTM_GETTFILTER, &body, parse)?);
    }
    Ok(all)
}

#[cfg(test)]
mod tests;
