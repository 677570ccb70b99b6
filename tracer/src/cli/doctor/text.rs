//! The report as text: grouped, aligned, wrapped.

use std::io::{self, Write};

use super::hooks::Hook;
use super::nodes::Node;
use super::report::{Check, Report, State};
use crate::output::text::clean;
use crate::trace::Role;

/// Columns that a line may take.
const WIDTH: usize = 100;
/// Columns of the state and the gap behind it.
const STATE: usize = 9;
/// Pods named per node.
const PODS: usize = 8;
/// Interfaces named per role.
const INTERFACES: usize = 8;

/// Writes lines under one heading.
struct Section<'a> {
    out: &'a mut dyn Write,
    color: bool,
    /// Columns of the widest label.
    label: usize,
}

impl<'a> Section<'a> {
    fn open(
        out: &'a mut dyn Write,
        color: bool,
        heading: &str,
        labels: &[&str],
    ) -> io::Result<Self> {
        let heading = clean(heading);
        if color {
            writeln!(out, "\x1b[1m{heading}\x1b[0m")?;
        } else {
            writeln!(out, "{heading}")?;
        }
        let label = labels.iter().map(|l| l.chars().count()).max().unwrap_or(0);
        Ok(Self { out, color, label })
    }

    /// A line and what belongs to it, wrapped under its text.
    fn line(&mut self, state: Option<State>, label: &str, text: &str) -> io::Result<()> {
        let indent = 2 + STATE + self.label + 2;
        let mut lines = wrap(&clean(text), WIDTH.saturating_sub(indent).max(30)).into_iter();
        let first = lines.next().unwrap_or_default();
        let word = format!("{:STATE$}", state.map_or("", word));
        let word = match state.filter(|_| self.color) {
            Some(State::Ok) => format!("\x1b[32m{word}\x1b[0m"),
            Some(State::Missing) => format!("\x1b[1;31m{word}\x1b[0m"),
            Some(State::Note | State::Unknown) => format!("\x1b[33m{word}\x1b[0m"),
            None => word,
        };
        let line = format!("  {word}{label:width$}  {first}", width = self.label);
        writeln!(self.out, "{}", line.trim_end())?;
        for more in lines {
            writeln!(self.out, "{:indent$}{more}", "")?;
        }
        Ok(())
    }

    fn check(&mut self, check: &Check) -> io::Result<()> {
        self.line(Some(check.state), check.what, &check.found)?;
        if let Some(cost) = &check.cost {
            self.line(None, "", &format!("so {cost}"))?;
        }
        if let Some(remedy) = &check.remedy {
            self.line(None, "", &format!("to do: {remedy}"))?;
        }
        Ok(())
    }
}

fn word(state: State) -> &'static str {
    match state {
        State::Ok => "OK",
        State::Note => "note",
        State::Missing => "missing",
        State::Unknown => "unread",
    }
}

/// Breaks between words.
fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    let mut used = 0;
    for word in text.split(' ') {
        let n = word.chars().count();
        if used > 0 && used + 1 + n > width {
            lines.push(String::new());
            used = 0;
        }
        if let Some(line) = lines.last_mut() {
            if used > 0 {
                line.push(' ');
                used += 1;
            }
            line.push_str(word);
            used += n;
        }
    }
    lines
}

/// Writes the report. `deep`: list the hooks of `--deep`, too.
pub(super) fn write(
    out: &mut dyn Write,
    report: &Report,
    deep: bool,
    color: bool,
) -> io::Result<()> {
    let labels: Vec<&str> = report.kernel.iter().map(|c| c.what).collect();
    let mut section = Section::open(out, color, "kernel", &labels)?;
    for check in &report.kernel {
        section.check(check)?;
    }
    writeln!(out)?;
    let (default, costly): (Vec<&Hook>, Vec<&Hook>) = report.hooks.iter().partition(|h| !h.deep);
    hooks(out, color, "hooks", &default)?;
    writeln!(out)?;
    if deep {
        hooks(out, color, "hooks of --deep", &costly)?;
    } else {
        let there = costly.iter().filter(|h| h.state == State::Ok).count();
        let mut section = Section::open(out, color, "hooks of --deep", &[])?;
        let state = if there > 0 { State::Ok } else { State::Missing };
        let total = costly.len();
        section.line(
            Some(state),
            "",
            &format!("{there} of {total}; `tracer doctor --deep` lists them"),
        )?;
    }
    for found in &report.nodes {
        writeln!(out)?;
        node(out, color, found)?;
    }
    if !report.skipped.is_empty() {
        writeln!(out)?;
        let mut section =
            Section::open(out, color, "namespaces that could not be looked into", &[])?;
        for line in report.skipped.iter().take(PODS) {
            section.line(Some(State::Unknown), "", line)?;
        }
        if report.skipped.len() > PODS {
            section.line(
                None,
                "",
                &format!("and {} more", report.skipped.len() - PODS),
            )?;
        }
    }
    writeln!(out)?;
    for line in wrap(&clean(&report.verdict.summary), WIDTH) {
        writeln!(out, "{line}")?;
    }
    Ok(())
}

/// Hooks that stand alike share a line.
fn hooks(out: &mut dyn Write, color: bool, heading: &str, hooks: &[&Hook]) -> io::Result<()> {
    let mut section = Section::open(out, color, heading, &[])?;
    let mut told: Vec<&Hook> = Vec::new();
    for hook in hooks {
        let alike = |h: &Hook| h.state == hook.state && h.why == hook.why && h.cost == hook.cost;
        if told.iter().any(|t| alike(t)) {
            continue;
        }
        told.push(hook);
        let names: Vec<&str> = hooks
            .iter()
            .filter(|h| alike(h))
            .map(|h| h.target)
            .collect();
        section.line(Some(hook.state), "", &names.join(", "))?;
        match (&hook.why, hook.cost) {
            (Some(why), Some(cost)) if hook.state != State::Note => {
                section.line(None, "", &format!("{why}, so {cost}"))?;
            }
            (Some(why), _) => section.line(None, "", why)?,
            _ => {}
        }
    }
    Ok(())
}

fn node(out: &mut dyn Write, color: bool, node: &Node) -> io::Result<()> {
    let labels = ["addresses", "interfaces", "pods", "CNI", "kube-proxy"];
    let heading = format!("node {} (netns {})", node.name, node.netns);
    let mut section = Section::open(out, color, &heading, &labels)?;
    let list = |items: &mut dyn Iterator<Item = String>| items.collect::<Vec<_>>().join(", ");
    let addrs = list(&mut node.addrs.iter().map(ToString::to_string));
    section.line(
        Some(State::Ok),
        "addresses",
        if addrs.is_empty() { "none" } else { &addrs },
    )?;
    let state = if node.watchable() > 0 {
        State::Ok
    } else {
        State::Missing
    };
    section.line(Some(state), "interfaces", &interfaces(node))?;
    let mut pods: Vec<String> = node.pods.iter().take(PODS).map(pod).collect();
    if node.pods.len() > PODS {
        pods.push(format!(
            "and {} more (-o json lists all)",
            node.pods.len() - PODS
        ));
    }
    if pods.is_empty() {
        section.line(Some(State::Note), "pods", "none found on this machine")?;
    }
    for (i, pod) in pods.iter().enumerate() {
        let (state, label) = if i == 0 {
            (Some(State::Ok), "pods")
        } else {
            (None, "")
        };
        section.line(state, label, pod)?;
    }
    let unknown = node.cni.name.starts_with("unknown");
    let state = if node.cni.blind.is_some() || unknown {
        State::Note
    } else {
        State::Ok
    };
    section.line(Some(state), "CNI", &node.cni.name)?;
    if let Some(blind) = node.cni.blind {
        section.line(None, "", blind)?;
    }
    let proxy = &node.kube_proxy;
    let state = match proxy.mode {
        super::proxy::Mode::Unknown => State::Unknown,
        _ if proxy.note.is_some() => State::Note,
        _ => State::Ok,
    };
    section.line(Some(state), "kube-proxy", proxy.mode.words())?;
    if let Some(note) = &proxy.note {
        section.line(None, "", note)?;
    }
    Ok(())
}

fn interfaces(node: &Node) -> String {
    let mut parts = Vec::new();
    let roles = [
        (Role::Uplink, "uplink"),
        (Role::Tunnel, "tunnel"),
        (Role::Bridge, "bridge"),
        (Role::PodVeth, "pods' veths"),
        (Role::Other, "not watched"),
    ];
    for (role, words) in roles {
        let names: Vec<&str> = node
            .interfaces
            .iter()
            .filter(|i| i.role == role)
            .map(|i| &*i.name)
            .collect();
        let shown = names
            .get(..names.len().min(INTERFACES))
            .unwrap_or_default()
            .join(", ");
        match names.len() {
            0 => {}
            n if n > INTERFACES => {
                parts.push(format!("{words} {shown} and {} more", n - INTERFACES));
            }
            _ => parts.push(format!("{words} {shown}")),
        }
    }
    if parts.is_empty() {
        "none".to_owned()
    } else {
        parts.join("; ")
    }
}

fn pod(pod: &super::nodes::Pod) -> String {
    let addrs: Vec<String> = pod.addrs.iter().map(ToString::to_string).collect();
    let name = pod
        .name
        .clone()
        .unwrap_or_else(|| format!("netns {}", pod.netns));
    format!("{name}  {}  on {}", addrs.join(" "), pod.interface)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::doctor::kernel::tests::healthy;
    use crate::cli::doctor::nodes::tests::node;
    use crate::cli::doctor::{hooks, report};

    fn text(deep: bool) -> String {
        let mut kernel = healthy();
        kernel.kprobes = false;
        let judged = hooks::judge(false, None, kernel.reasons);
        let report = report::build(
            &kernel,
            judged,
            vec![node("worker\x1b[2J")],
            Vec::new(),
            deep,
        );
        let mut out = Vec::new();
        write(&mut out, &report, deep, false).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn lines_are_short_and_aligned() {
        for line in text(true).lines() {
            assert!(line.chars().count() <= WIDTH, "{line}");
        }
        let text = text(false);
        let columns: Vec<_> = [
            "172.31.0.2",
            "uplink eth0",
            "default/client",
            "iptables (nf_tables)",
        ]
        .map(|w| text.lines().find_map(|l| l.find(w)).unwrap())
        .to_vec();
        assert!(columns.windows(2).all(|c| c[0] == c[1]), "{text}");
    }

    #[test]
    fn names_cannot_move_the_cursor() {
        assert!(!text(false).contains('\x1b'));
    }

    #[test]
    fn what_is_missing_says_what_it_costs_and_what_to_do() {
        let text = text(false);
        assert!(text.contains("missing  kprobes"), "{text}");
        assert!(text.contains("so rewrites, conntrack entries"), "{text}");
        assert!(
            text.contains("to do: use a kernel with CONFIG_KPROBES=y"),
            "{text}"
        );
        assert!(text.contains("OK         kfree_skb"), "{text}");
    }

    #[test]
    fn words_are_wrapped_whole() {
        assert_eq!(wrap("one two three", 7), ["one two", "three"]);
        assert_eq!(wrap("longer-than-that", 4), ["longer-than-that"]);
        assert_eq!(wrap("", 4), [""]);
    }
}
