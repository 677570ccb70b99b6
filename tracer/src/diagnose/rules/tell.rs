//! How a finding about a stop is put into words.

use std::borrow::Cow;

use crate::diagnose::stop::{How, Stop};
use crate::diagnose::{Case, Found, sentence};
use crate::trace::{Finding, Severity, Step};

/// A finding about a packet that stopped, being written.
pub(super) struct Tale<'a, 'b> {
    case: &'b Case<'a>,
    stop: &'b Stop<'a>,
    found: Found,
}

/// Begins with the packet and where it stopped; `cause` is the part after the
/// colon. A fault, or a warning where a later try arrived.
pub(super) fn tale<'a, 'b>(
    case: &'b Case<'a>,
    stop: &'b Stop<'a>,
    code: &'static str,
    cause: &str,
) -> Tale<'a, 'b> {
    let went_on = if stop.made_good {
        "; the connection went on"
    } else {
        ""
    };
    let summary = format!(
        "{} {}: {cause}{}{went_on}",
        sentence::packet(stop.packet),
        whereabouts(stop),
        sentence::tried(case.trace, stop.packet),
    );
    let mut evidence = Vec::new();
    for step in [stop.last, stop.end].into_iter().flatten() {
        evidence.push(sentence::evidence(stop.packet, step));
    }
    let place = stop.place();
    let iface = place
        .filter(|s| !s.iface.is_empty())
        .or(stop.last)
        .filter(|s| *s.node == *stop.node());
    let found = Found {
        ts: place.map_or(0, |s| s.ts),
        node: (!stop.node().is_empty()).then(|| stop.node().into()),
        iface: iface
            .filter(|s| !s.iface.is_empty())
            .map(|s| s.iface.clone()),
        packet: Some(stop.packet.id),
        part: String::new(),
        unsure: !stop.was_seen(),
        finding: Finding {
            code: Cow::Borrowed(code),
            severity: if stop.made_good {
                Severity::Warning
            } else {
                Severity::Fault
            },
            summary,
            evidence,
            next: Vec::new(),
        },
    };
    Tale { case, stop, found }
}

/// Where the packet got to, as the predicate of a sentence.
fn whereabouts(stop: &Stop<'_>) -> String {
    let node = stop.node();
    let first = stop.packet.steps.first();
    let elsewhere = first.is_some_and(|s| !s.node.is_empty() && *s.node != *node);
    let ended = match stop.how {
        How::Dropped => "dropped",
        How::Rejected => "refused",
        How::Lost | How::Vanished => return left(stop),
        How::Unanswered => {
            let at = stop.last.map_or_else(String::new, |s| {
                let to = sentence::who(&s.dst);
                format!("was handed to {to} on {}", s.node)
            });
            return format!("{at}, and no answer was seen");
        }
    };
    if node.is_empty() {
        format!("was {ended}")
    } else if elsewhere {
        format!("reached {node} and was {ended} there")
    } else {
        format!("was {ended} on {node}")
    }
}

fn left(stop: &Stop<'_>) -> String {
    let Some(last) = stop.last else {
        return "was not seen again".into();
    };
    let verb = match last.kind {
        crate::trace::StepKind::Egress => "left",
        _ => "entered",
    };
    let place = match (last.node.is_empty(), last.iface.is_empty()) {
        (false, false) => format!("{} through {}", last.node, last.iface),
        (false, true) => last.node.to_string(),
        _ => "this machine".into(),
    };
    format!("{verb} {place} and was not seen again")
}

impl<'a> Tale<'a, '_> {
    /// A line of evidence.
    pub(super) fn shows(mut self, text: impl Into<String>) -> Self {
        self.found.finding.evidence.push(text.into());
        self
    }

    /// A line of evidence, where there is one.
    pub(super) fn also(self, text: Option<String>) -> Self {
        match text {
            Some(text) => self.shows(text),
            None => self,
        }
    }

    /// A command to run on the node.
    pub(super) fn check(self, command: &str) -> Self {
        let node = self.found.node.clone();
        self.check_on(node.as_deref().unwrap_or(""), command)
    }

    /// A command to run on another node.
    pub(super) fn check_on(mut self, node: &str, command: &str) -> Self {
        let line = sentence::on(&node.into(), command);
        self.found.finding.next.push(line);
        self
    }

    /// A command to run anywhere.
    pub(super) fn ask(mut self, command: impl Into<String>) -> Self {
        self.found.finding.next.push(command.into());
        self
    }

    /// Which of its kind it is, where a node may have several.
    pub(super) fn part(mut self, part: &str) -> Self {
        part.clone_into(&mut self.found.part);
        self
    }

    /// It rests on something not having been seen.
    pub(super) fn unsure(mut self) -> Self {
        self.found.unsure = true;
        self
    }

    /// No fault, but worth knowing.
    pub(super) fn only(mut self, severity: Severity) -> Self {
        self.found.finding.severity = severity;
        self
    }

    /// Shows at another place than where the packet stopped.
    pub(super) fn at(mut self, step: &Step) -> Self {
        self.found.node = (!step.node.is_empty()).then(|| step.node.clone());
        self.found.iface = (!step.iface.is_empty()).then(|| step.iface.clone());
        self
    }

    /// Shows on another node.
    pub(super) fn on(mut self, node: &str, iface: Option<&str>) -> Self {
        self.found.node = Some(node.into());
        self.found.iface = iface.map(Into::into);
        self
    }

    /// A line of evidence from the state of the node it stopped on.
    pub(super) fn state(
        self,
        line: impl FnOnce(&'a crate::state::Namespace) -> Option<String>,
    ) -> Self {
        let text = self.case.node(self.stop.node()).and_then(line);
        self.also(text)
    }

    /// The finding.
    pub(super) fn finding(self) -> Found {
        self.found
    }

    /// The finding, as a rule answers.
    #[allow(clippy::unnecessary_wraps, reason = "the form in which a rule answers")]
    pub(super) fn done(self) -> Option<Found> {
        Some(self.found)
    }
}
