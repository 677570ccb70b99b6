//! The report's form (`-o json` shows it as it is) and the verdict.

use serde::Serialize;

use super::hooks::Hook;
use super::kernel::{self, Kernel};
use super::nodes::Node;

/// Name of the JSON form.
pub(super) const SCHEMA: &str = "tracer.doctor/1";

/// How well something stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum State {
    /// As it should be.
    Ok,
    /// Works, with something to know.
    Note,
    /// Not there, at a cost.
    Missing,
    /// Could not be read.
    Unknown,
}

/// One thing looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Check {
    pub(super) what: &'static str,
    pub(super) state: State,
    pub(super) found: String,
    /// What is lost.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) cost: Option<String>,
    /// What to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) remedy: Option<String>,
}

impl Check {
    pub(super) fn new(what: &'static str, state: State, found: impl Into<String>) -> Self {
        Self {
            what,
            state,
            found: found.into(),
            cost: None,
            remedy: None,
        }
    }

    pub(super) fn cost(mut self, cost: impl Into<String>) -> Self {
        self.cost = Some(cost.into());
        self
    }

    pub(super) fn remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = Some(remedy.into());
        self
    }
}

/// Whether `tracer follow` can work.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Verdict {
    pub(super) can_follow: bool,
    pub(super) summary: String,
}

/// All of it.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    pub(super) schema: &'static str,
    pub(super) version: &'static str,
    pub(super) kernel: Vec<Check>,
    pub(super) hooks: Vec<Hook>,
    pub(super) nodes: Vec<Node>,
    /// Namespaces that could not be looked into.
    pub(super) skipped: Vec<String>,
    pub(super) verdict: Verdict,
}

/// Puts the parts together.
pub(super) fn build(
    kernel: &Kernel,
    hooks: Vec<Hook>,
    nodes: Vec<Node>,
    skipped: Vec<String>,
    deep: bool,
) -> Report {
    let verdict = verdict(kernel, &hooks, &nodes, deep);
    Report {
        schema: SCHEMA,
        version: env!("CARGO_PKG_VERSION"),
        kernel: kernel::checks(kernel),
        hooks,
        nodes,
        skipped,
        verdict,
    }
}

/// The one reason why `follow` cannot work, or what it will work with. The
/// order of the reasons is that in which they have to be cured.
fn verdict(kernel: &Kernel, hooks: &[Hook], nodes: &[Node], deep: bool) -> Verdict {
    if let Some(reason) = blocker(kernel, nodes) {
        return Verdict {
            can_follow: false,
            summary: format!("tracer follow cannot work here: {reason}"),
        };
    }
    let tc = if kernel.tcx == Some(true) {
        "TCX"
    } else {
        "clsact"
    };
    let interfaces: usize = nodes.iter().map(Node::watchable).sum();
    let wanted: Vec<&Hook> = hooks.iter().filter(|h| deep || !h.deep).collect();
    let there = wanted.iter().filter(|h| h.state == State::Ok).count();
    let mut parts = vec![format!(
        "tc ({tc}) on {interfaces} {} of {} {}",
        plural(interfaces, "interface", "interfaces"),
        nodes.len(),
        plural(nodes.len(), "node", "nodes")
    )];
    if kernel.kprobes {
        parts.push(format!("{there} of {} hooks in the kernel", wanted.len()));
    } else {
        parts.push("the drop tracepoint".to_owned());
        parts.push(
            "no function hooks: rewrites, conntrack entries and encapsulation are worked out"
                .to_owned(),
        );
    }
    parts.push(match kernel.reasons {
        Some(n) if n > 0 => "drop reasons by name".to_owned(),
        _ => "no drop reasons".to_owned(),
    });
    Verdict {
        can_follow: true,
        summary: format!("tracer follow will work here, with: {}", parts.join("; ")),
    }
}

fn blocker(kernel: &Kernel, nodes: &[Node]) -> Option<String> {
    if let Some(missing) = &kernel.privileges {
        return Some(missing.clone());
    }
    if let Err(why) = &kernel.btf {
        return Some(why.clone());
    }
    if kernel.lockdown.as_deref() == Some("confidentiality") {
        return Some(
            "the kernel is locked down (confidentiality) and lets no eBPF program read its memory"
                .to_owned(),
        );
    }
    if kernel.symbols.is_none() {
        return Some("/proc/kallsyms cannot be read; run as root with /proc mounted".to_owned());
    }
    if nodes.is_empty() {
        return Some(
            "no node found: no network namespace here forwards for pods; run this on a node, or give --netns NAME=PATH"
                .to_owned(),
        );
    }
    if nodes.iter().all(|n| n.watchable() == 0) {
        return Some(
            "no node here has an interface to watch (uplink, tunnel, bridge or pod's veth)"
                .to_owned(),
        );
    }
    None
}

/// One or many.
pub(super) fn plural<'a>(n: usize, one: &'a str, many: &'a str) -> &'a str {
    if n == 1 { one } else { many }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::doctor::kernel::tests::healthy;
    use crate::cli::doctor::nodes::tests::node;

    fn told(kernel: &Kernel, nodes: &[Node]) -> Verdict {
        verdict(kernel, &[], nodes, false)
    }

    #[test]
    fn a_healthy_node_can_be_followed() {
        let verdict = told(&healthy(), &[node("worker")]);
        assert!(verdict.can_follow);
        assert!(
            verdict.summary.starts_with(
                "tracer follow will work here, with: tc (TCX) on 3 interfaces of 1 node;"
            ),
            "{}",
            verdict.summary
        );
    }

    #[test]
    fn without_kprobes_it_works_and_says_what_is_worked_out() {
        let mut kernel = healthy();
        (kernel.kprobes, kernel.tcx) = (false, Some(false));
        let verdict = told(&kernel, &[node("worker")]);
        assert!(verdict.can_follow);
        assert!(
            verdict.summary.contains("tc (clsact)")
                && verdict.summary.contains("no function hooks")
        );
    }

    #[test]
    fn one_reason_is_named_the_first_to_cure() {
        let nodes = [node("worker")];
        let mut kernel = healthy();
        kernel.symbols = None;
        assert!(told(&kernel, &nodes).summary.contains("/proc/kallsyms"));
        kernel.lockdown = Some("confidentiality".to_owned());
        assert!(told(&kernel, &nodes).summary.contains("locked down"));
        kernel.btf = Err("no BTF at /x".to_owned());
        assert!(
            told(&kernel, &nodes)
                .summary
                .ends_with("cannot work here: no BTF at /x")
        );
        kernel.privileges = Some("not permitted: ...".to_owned());
        let verdict = told(&kernel, &nodes);
        assert!(!verdict.can_follow && verdict.summary.ends_with("not permitted: ..."));
    }

    #[test]
    fn no_node_is_a_reason() {
        assert!(told(&healthy(), &[]).summary.contains("--netns NAME=PATH"));
        let mut bare = node("worker");
        bare.interfaces.clear();
        assert!(
            told(&healthy(), &[bare])
                .summary
                .contains("no node here has an interface")
        );
    }
}
