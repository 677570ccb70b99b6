//! `accept-queue-full`: the pod's listening socket has no room.

use super::tell::tale;
use crate::diagnose::stop::{How, Stop};
use crate::diagnose::{Case, Found, Page, Rule, sentence};
use crate::state::Listener;
use crate::trace::Direction;

pub(super) struct AcceptQueueFull;

static PAGE: Page = Page {
    code: "accept-queue-full",
    title: "the listening socket's queue is full",
    meaning: "The connection request reached the pod, where a process listens, but its queue of connections waiting to be accepted is full: the process is stuck or too slow, or its backlog is too small. The kernel drops the request without an answer, and the client tries again.",
    told: "A SYN was handed to the pod and got no SYN-ACK, and ListenOverflows or ListenDrops grew in the pod's namespace.",
    ruled_out: "TcpExtListenOverflows does not grow in the pod.",
    next: &[
        "kubectl exec -n NS POD -- ss -lnt  # Recv-Q against Send-Q",
        "kubectl exec -n NS POD -- nstat -az TcpExtListenOverflows",
        "sysctl net.core.somaxconn",
    ],
};

impl Rule for AcceptQueueFull {
    fn page(&self) -> &'static Page {
        &PAGE
    }

    fn explain(&self, case: &Case<'_>, stop: &Stop<'_>) -> Option<Found> {
        let in_tcp = stop.how == How::Dropped && stop.function().starts_with("tcp_");
        let syn = stop.packet.summary == "SYN" && stop.packet.direction == Direction::Request;
        if !syn || !(in_tcp || stop.how == How::Unanswered) {
            return None;
        }
        let step = stop.place()?;
        let pod = case.pod(step.dst.addr)?;
        let this = |l: &Listener| l.tcp && Some(l.port) == step.dst.port;
        // Another port's queue, if nobody listens on this one.
        if !pod.listeners.is_empty() && !pod.listeners.iter().any(this) {
            return None;
        }
        let overflows = pod.grew("TcpExtListenOverflows");
        let drops = pod.grew("TcpExtListenDrops");
        if overflows == 0 && drops == 0 {
            return None;
        }
        let port = step.dst.port.unwrap_or(0);
        let cause = format!(
            "the accept queue of {}:{port} is full, the process does not accept connections fast enough",
            sentence::who(&step.dst)
        );
        let mut told = tale(case, stop, PAGE.code, &cause).shows(format!(
            "ListenOverflows grew by {overflows}, ListenDrops by {drops} in the pod"
        ));
        if let Some(last) = stop.last {
            told = told.at(last);
        }
        if let Some((ns, name)) = sentence::named(&step.dst, "pod") {
            told = told.ask(format!(
                "kubectl exec -n {} {} -- ss -lnt 'sport = :{port}'",
                sentence::word(ns),
                sentence::word(name)
            ));
        }
        told.done()
    }
}
