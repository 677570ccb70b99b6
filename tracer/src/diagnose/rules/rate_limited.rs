//! `rate-limited`: a queueing discipline dropped packets.

use super::tell::tale;
use crate::diagnose::stop::{How, Stop};
use crate::diagnose::{Case, Found, Page, Rule, sentence};
use crate::trace::Severity;

pub(super) struct RateLimited;

static PAGE: Page = Page {
    code: "rate-limited",
    title: "dropped by a queueing discipline",
    meaning: "The queue of an interface was full or its rate limit was reached, as with a pod's bandwidth annotation (tbf). TCP sends again, and the transfer is slow rather than broken.",
    told: "The kernel freed the packet with reason QDISC_DROP, or in a queueing discipline's own function.",
    ruled_out: "`tc -s qdisc show` counts no drops on the interface.",
    next: &[
        "tc -s qdisc show dev IFACE",
        "kubectl get pod -n NS NAME -o jsonpath='{.metadata.annotations}'",
    ],
};

impl Rule for RateLimited {
    fn page(&self) -> &'static Page {
        &PAGE
    }

    fn explain(&self, case: &Case<'_>, stop: &Stop<'_>) -> Option<Found> {
        if stop.how != How::Dropped {
            return None;
        }
        let step = stop.end?;
        // What has no queue drops all: its device is down. netem loses on purpose.
        let no_limit = ["noop_", "noqueue_", "netem_"];
        let enqueue = stop.function().ends_with("_enqueue")
            && !no_limit.iter().any(|f| stop.function().starts_with(f));
        if !matches!(
            stop.reason(),
            Some(
                "QDISC_DROP"
                    | "QDISC_OVERLIMIT"
                    | "QDISC_EDT_HORIZON"
                    | "FQ_BAND_LIMIT"
                    | "FQ_FLOW_LIMIT"
                    | "FQ_HORIZON_LIMIT"
            )
        ) && !enqueue
        {
            return None;
        }
        let iface = if step.iface.is_empty() {
            stop.last.map_or("", |s| &*s.iface)
        } else {
            &*step.iface
        };
        let qdisc = case.node(stop.node()).and_then(|n| {
            n.qdiscs
                .iter()
                .find(|q| *q.dev == *iface && &*q.at == "root")
        });
        let what = qdisc.map_or_else(
            || "the queueing discipline".to_owned(),
            |q| format!("the queueing discipline {}", q.kind),
        );
        let cause = format!(
            "{what} of {iface} dropped it: a rate limit or a full queue, no fault of the path"
        );
        let same = case.stops.iter().filter(|s| {
            s.end
                .is_some_and(|e| e.iface == step.iface && s.how == How::Dropped)
        });
        let others = same.clone().count();
        let told = tale(case, stop, PAGE.code, &cause)
            .part(iface)
            .shows(format!("{others} packets of this trace were dropped there"))
            .also(qdisc.map(|q| format!("{} {} counts {} drops", q.kind, q.detail, q.dropped)))
            .check(&format!("tc -s qdisc show dev {}", sentence::word(iface)));
        let told = match sentence::named(&step.dst, "pod").or(sentence::named(&step.src, "pod")) {
            Some((ns, name)) => told.ask(format!(
                "kubectl get pod -n {} {} -o jsonpath='{{.metadata.annotations}}'",
                sentence::word(ns),
                sentence::word(name)
            )),
            None => told,
        };
        let open = matches!(&*stop.flow.state, "established" | "closed");
        if open {
            told.only(Severity::Warning).done()
        } else {
            told.done()
        }
    }
}
