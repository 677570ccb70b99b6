//! `no-reply`: the request went its way, and nothing came back. What is left
//! when nothing more particular explains it.

use super::tell::tale;
use crate::diagnose::stop::{How, Stop};
use crate::diagnose::{Case, Found, Page, Rule, sentence};
use crate::trace::{Direction, Severity};

pub(super) struct NoReply;

static PAGE: Page = Page {
    code: "no-reply",
    title: "no answer was seen",
    meaning: "The request was followed as far as can be seen, and nothing came back. If it was handed to the pod, the process or the pod's own rules are silent; if it left for somewhere that is not watched, the answer is missing there.",
    told: "A request's last step is its delivery or its leaving, and no packet of the other direction followed within a second.",
    ruled_out: "Any answer, or a drop, reject or loss that explains the silence.",
    next: &[
        "kubectl logs -n NS POD --tail=50",
        "kubectl exec -n NS POD -- ip route get CLIENT",
        "tcpdump -ni IFACE host SERVER",
    ],
};

impl Rule for NoReply {
    fn page(&self) -> &'static Page {
        &PAGE
    }

    fn explain(&self, case: &Case<'_>, stop: &Stop<'_>) -> Option<Found> {
        if !matches!(stop.how, How::Unanswered | How::Vanished | How::Lost) {
            return None;
        }
        let flow = stop.flow;
        let cause = match (stop.how, stop.packet.direction) {
            (How::Unanswered, _) => "nothing seen on the way explains it".to_owned(),
            (_, Direction::Request) => "and no answer came back".to_owned(),
            (_, Direction::Reply) => "the answer did not get back to the client".to_owned(),
        };
        // Many a UDP protocol does not answer; DNS does.
        let may_be_silent =
            flow.proto == "udp" && flow.server.port != Some(53) && stop.how == How::Unanswered;
        let server = flow.backend.as_ref().unwrap_or(&flow.server);
        let mut told = tale(case, stop, PAGE.code, &cause);
        if may_be_silent {
            told = told.only(Severity::Warning);
        }
        if let Some((ns, name)) = sentence::named(server, "pod") {
            let (ns, name) = (sentence::word(ns), sentence::word(name));
            told = told
                .ask(format!("kubectl logs -n {ns} {name} --tail=50"))
                .ask(format!(
                    "kubectl exec -n {ns} {name} -- ip route get {}",
                    flow.client.addr
                ));
        } else {
            told = told.check(&format!("ip route get {}", server.addr));
        }
        told.done()
    }
}
