//! Conntrack entries of the flows that were followed.

use std::collections::HashSet;
use std::net::IpAddr;
use std::sync::Arc;

use super::unread;
use crate::conntrack::{self, Entry};
use crate::event::{CtTuple, Namer};
use crate::state::{ConntrackEntry, Namespace};
use crate::target::Request;
use crate::trace::{self, Flow};

/// Entries of one namespace beyond this are left out.
const MOST: usize = 2048;

/// `IPS_*` by bit, `include/uapi/linux/netfilter/nf_conntrack_common.h`.
const STATUS: &[&str] = &[
    "EXPECTED",
    "SEEN_REPLY",
    "ASSURED",
    "CONFIRMED",
    "SRC_NAT",
    "DST_NAT",
    "SEQ_ADJUST",
    "SRC_NAT_DONE",
    "DST_NAT_DONE",
    "DYING",
    "FIXED_TIMEOUT",
    "TEMPLATE",
    "NAT_CLASH",
    "HELPER",
    "OFFLOAD",
    "HW_OFFLOAD",
];

/// Source, its port, destination, its port.
type Ends = (IpAddr, u16, IpAddr, u16);

/// Which entries are wanted.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    request: Request,
    ends: HashSet<Ends>,
}

impl Wanted {
    /// Those of the flows, under whatever addresses they were seen, and all
    /// that the request asks for.
    pub fn new(request: &Request, flows: &[Flow]) -> Self {
        let mut ends = HashSet::new();
        for tuple in flows.iter().flat_map(|f| &f.tuples) {
            let port = |end: &trace::Endpoint| end.port.unwrap_or(0);
            let (src, dst) = (&tuple.src, &tuple.dst);
            ends.insert((src.addr, port(src), dst.addr, port(dst)));
        }
        Self {
            request: request.clone(),
            ends,
        }
    }

    fn is_flow(&self, entry: &Entry) -> bool {
        let original = ends(&entry.original);
        let (src, sport, dst, dport) = ends(&entry.reply);
        self.ends.contains(&original) || self.ends.contains(&(dst, dport, src, sport))
    }

    fn takes(&self, entry: &Entry) -> bool {
        self.is_flow(entry) || self.request.is_met_by(&entry.original)
    }
}

fn ends(t: &CtTuple) -> Ends {
    (t.src, t.sport, t.dst, t.dport)
}

/// Reads the thread's namespace.
pub(super) fn read(wanted: &Wanted, names: &dyn Namer, into: &mut Namespace) {
    // Without connection tracking there is nothing, and asking would load it.
    if !into.counters.contains_key("conntrack.count") {
        return;
    }
    let mut entries = match conntrack::dump_here(|e| wanted.takes(e)) {
        Ok(dump) => {
            if let Some(why) = dump.missing {
                into.unread.push(unread("conntrack", why));
            }
            dump.entries
        }
        Err(e) => {
            let why = format!("the table cannot be read: {e}");
            return into.unread.push(unread("conntrack", why));
        }
    };
    if entries.len() > MOST {
        let why = format!("only {MOST} of {} entries were kept", entries.len());
        into.unread.push(unread("conntrack", why));
        // Stable: those of the flows first.
        entries.sort_by_key(|e| !wanted.is_flow(e));
        entries.truncate(MOST);
    }
    into.conntrack = entries.iter().map(|e| public(e, names)).collect();
}

fn public(entry: &Entry, names: &dyn Namer) -> ConntrackEntry {
    let tuple = |t: &CtTuple| trace::CtTuple {
        src: names.endpoint(t.src, Some(t.sport)),
        dst: names.endpoint(t.dst, Some(t.dport)),
    };
    let set = |bit: usize| entry.status & 1 << bit != 0;
    ConntrackEntry {
        entry: trace::Conntrack {
            original: tuple(&entry.original),
            reply: tuple(&entry.reply),
            zone: entry.zone,
            mark: entry.mark,
        },
        proto: proto_name(entry.original.proto),
        state: entry.tcp_state.map(Arc::from),
        status: STATUS
            .iter()
            .enumerate()
            .filter(|(bit, _)| set(*bit))
            .map(|(_, name)| Arc::from(*name))
            .collect(),
    }
}

fn proto_name(number: u8) -> Arc<str> {
    crate::target::proto_name(number).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::discover::Names;

    fn tuple(src: &str, sport: u16, dst: &str, dport: u16) -> CtTuple {
        CtTuple {
            src: src.parse().unwrap(),
            sport,
            dst: dst.parse().unwrap(),
            dport,
            proto: 6,
        }
    }

    fn entry(port: u16) -> Entry {
        Entry {
            original: tuple("10.244.80.65", port, "10.96.0.10", 80),
            reply: tuple("10.244.2.10", 8080, "10.244.80.65", port),
            status: 0x1ae,
            mark: 0,
            zone: 0,
            timeout: 9,
            tcp_state: Some("ESTABLISHED"),
        }
    }

    fn end(addr: &str, port: u16) -> trace::Endpoint {
        trace::Endpoint {
            addr: addr.parse().unwrap(),
            port: Some(port),
            name: None,
        }
    }

    #[test]
    fn entries_of_flows_and_of_the_request_are_wanted() {
        // The other node sees the translated connection only.
        let flow = Flow {
            id: 1,
            proto: "tcp".into(),
            client: end("10.244.80.65", 40_000),
            server: end("10.96.0.10", 80),
            backend: None,
            tuples: vec![trace::FlowTuple {
                src: end("10.244.80.65", 40_000),
                dst: end("10.244.2.10", 8080),
            }],
            state: "closed".into(),
        };
        let request = Request {
            dst: vec!["10.9.9.9".parse().unwrap()],
            ..Request::default()
        };
        let wanted = Wanted::new(&request, std::slice::from_ref(&flow));
        assert!(wanted.takes(&entry(40_000)));
        assert!(!wanted.takes(&entry(40_001)));
        let request = Request {
            dst: vec!["10.96.0.10".parse().unwrap()],
            port: Some(80),
            ..Request::default()
        };
        assert!(Wanted::new(&request, &[]).takes(&entry(40_001)));
    }

    #[test]
    fn the_public_form_has_names_for_numbers() {
        let public = public(&entry(40_000), &Names::default());
        assert_eq!(
            (&*public.proto, public.state.as_deref()),
            ("tcp", Some("ESTABLISHED"))
        );
        let status: Vec<&str> = public.status.iter().map(|s| &**s).collect();
        assert_eq!(
            status,
            [
                "SEEN_REPLY",
                "ASSURED",
                "CONFIRMED",
                "DST_NAT",
                "SRC_NAT_DONE",
                "DST_NAT_DONE"
            ]
        );
    }
}
