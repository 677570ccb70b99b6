//! Several readings as one, and bounds on the whole.

use std::io::{self, Write};
use std::sync::Arc;

use crate::state::{Namespace, State, Unread};

/// The last reading, with the counters of `before`. Of namespaces that are gone
/// or could not be read again, what was `first` read of them.
pub fn merge(
    last: Vec<Namespace>,
    mut first: Vec<Namespace>,
    before: &[Namespace],
) -> Vec<Namespace> {
    first.retain(|n| !is_missed(n));
    let mut all = Vec::with_capacity(last.len());
    for namespace in last {
        let earlier = first.iter().position(|n| n.netns == namespace.netns);
        let earlier = earlier.map(|at| first.swap_remove(at));
        all.push(match earlier {
            Some(mut earlier) if is_missed(&namespace) => {
                let again = |u: Unread| Unread {
                    what: Arc::from("again"),
                    why: u.why,
                };
                earlier
                    .unread
                    .extend(namespace.unread.into_iter().map(again));
                earlier
            }
            _ => namespace,
        });
    }
    all.extend(first);
    for namespace in &mut all {
        if let Some(before) = before.iter().find(|n| n.netns == namespace.netns) {
            namespace.counters_before.clone_from(&before.counters);
        }
    }
    all
}

/// Nothing of it was read.
fn is_missed(n: &Namespace) -> bool {
    n.unread.iter().any(|u| &*u.what == "everything")
}

struct Count(usize);

impl Write for Count {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn size(state: &State) -> usize {
    let mut count = Count(0);
    // Neither the counter nor the state can fail.
    let _ = serde_json::to_writer(&mut count, state);
    count.0
}

/// Leaves out the longest parts until it takes no more than `limit` bytes.
pub fn bound(state: &mut State, limit: usize) {
    if size(state) <= limit {
        return;
    }
    state.cluster = None;
    if size(state) <= limit {
        return;
    }
    for namespace in &mut state.namespaces {
        let why = "all that was read was too long to keep".to_owned();
        let left_out = ["iptables", "ipsets", "nft", "routes", "neighbours", "fdb"];
        namespace.iptables.clear();
        namespace.ipsets = None;
        namespace.nft = None;
        namespace.routes.clear();
        namespace.neighbours.clear();
        namespace.fdb.clear();
        namespace
            .unread
            .extend(left_out.map(|what| super::unread(what, why.clone())));
    }
}
