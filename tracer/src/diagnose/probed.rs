//! Joins what `tracer probe` sent with what the trace saw of it.

use std::collections::HashMap;

use super::stop::{How, stops};
use crate::trace::probe::{Outcome, Place};
use crate::trace::{Endpoint, Flow, Trace};

/// The flow between these two, as the client addresses the server.
pub(super) fn flow<'a>(
    flows: &'a [Flow],
    client: Option<&Endpoint>,
    server: Option<&Endpoint>,
) -> Option<&'a Flow> {
    let (client, server) = (client?, server?);
    let same = |a: &Endpoint, b: &Endpoint| (a.addr, a.port) == (b.addr, b.port);
    // Ports are used again: the last one is this run's.
    flows
        .iter()
        .rev()
        .find(|f| same(&f.client, client) && same(&f.server, server))
}

/// Fills in, for each attempt of the probe, its flow and where it stopped.
pub fn locate(trace: &mut Trace) {
    let Some(mut report) = trace.closing.probe.take() else {
        return;
    };
    let mut places: HashMap<u64, Place> = HashMap::new();
    for stop in stops(trace, None).into_iter().filter(|s| !s.made_good) {
        places.entry(stop.flow.id).or_insert_with(|| Place {
            packet: stop.packet.id,
            node: stop.node().to_owned(),
            iface: stop
                .last
                .or(stop.end)
                .map_or_else(String::new, |s| s.iface.to_string()),
            how: words(stop.how).to_owned(),
        });
    }
    let queries = report.lookup.iter().flat_map(|l| &l.queries);
    let asked: Vec<u64> = queries
        .filter(|q| !q.reply.is_answer())
        .filter_map(|q| flow(&trace.flows, q.client.as_ref(), Some(&q.server)))
        .map(|f| f.id)
        .collect();
    for attempt in &mut report.attempts {
        let found = flow(
            &trace.flows,
            attempt.client.as_ref(),
            attempt.server.as_ref(),
        );
        attempt.flow = found.map(|f| f.id);
        attempt.stopped = match attempt.result {
            r if r.is_good() => None,
            Outcome::Unresolved => asked.iter().find_map(|id| places.get(id)).cloned(),
            _ => attempt.flow.and_then(|id| places.get(&id)).cloned(),
        };
    }
    trace.closing.probe = Some(report);
}

fn words(how: How) -> &'static str {
    match how {
        How::Dropped => "dropped",
        How::Rejected => "rejected",
        How::Lost => "lost",
        How::Vanished => "last seen",
        How::Unanswered => "not answered",
    }
}
