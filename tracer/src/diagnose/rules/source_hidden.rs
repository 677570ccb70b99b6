//! `source-hidden`: the server sees a node's address instead of the client's.

use std::borrow::Cow;

use crate::diagnose::{Case, Found, Page, Rule, sentence};
use crate::trace::{Direction, Finding, Severity, StepKind};

pub(super) struct SourceHidden;

static PAGE: Page = Page {
    code: "source-hidden",
    title: "the server sees a node's address as client",
    meaning: "The source was translated on the way to a pod, so the pod, its logs and the policies on its node see a node's address. That is how NodePort with externalTrafficPolicy Cluster and hairpin traffic work; it matters where policies or logs go by the client's address.",
    told: "A masquerade or SNAT step on a request whose server is a pod.",
    ruled_out: "No such step.",
    next: &["kubectl get service -n NS NAME -o jsonpath='{.spec.externalTrafficPolicy}'"],
};

impl Rule for SourceHidden {
    fn page(&self) -> &'static Page {
        &PAGE
    }

    fn whole(&self, case: &Case<'_>) -> Option<Found> {
        case.trace.packets.iter().find_map(|packet| {
            if packet.direction != Direction::Request {
                return None;
            }
            let step = packet
                .steps
                .iter()
                .find(|s| matches!(s.kind, StepKind::Masquerade | StepKind::Snat))?;
            let flow = case.trace.flows.iter().find(|f| f.id == packet.flow)?;
            let server = flow.backend.as_ref().unwrap_or(&flow.server);
            sentence::named(server, "pod")?;
            let rewrite = step.rewrite.as_ref()?;
            let summary = format!(
                "{} sees {} as its client instead of {}: the source was translated on {}",
                sentence::who(server),
                rewrite.to.addr,
                rewrite.from.addr,
                step.node
            );
            Some(Found {
                ts: step.ts,
                node: (!step.node.is_empty()).then(|| step.node.clone()),
                iface: None,
                packet: Some(packet.id),
                part: String::new(),
                unsure: false,
                finding: Finding {
                    code: Cow::Borrowed(PAGE.code),
                    severity: Severity::Note,
                    summary,
                    evidence: vec![sentence::evidence(packet, step)],
                    next: Vec::new(),
                },
            })
        })
    }
}
