//! A trace as its public JSON form describes it, and the few words in which tests speak of it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use serde::Deserialize;

/// Steps that only the costly hooks tell.
const DEEP: [&str; 4] = ["hook", "route", "deliver", "policy"];
/// Steps that without kprobes are worked out.
const BY_KPROBE: [&str; 6] = [
    "conntrack-new",
    "dnat",
    "snat",
    "masquerade",
    "un-dnat",
    "un-snat",
];

/// Whether this kernel has kprobes.
pub(crate) fn kprobes() -> bool {
    Path::new("/sys/bus/event_source/devices/kprobe/type").exists()
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(crate) struct Endpoint {
    pub(crate) addr: String,
    pub(crate) port: Option<u16>,
    pub(crate) name: Option<String>,
}

impl std::fmt::Display for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.port {
            Some(port) if self.addr.contains(':') => write!(f, "[{}]:{port}", self.addr),
            Some(port) => write!(f, "{}:{port}", self.addr),
            None => f.write_str(&self.addr),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(crate) struct Tcp {
    pub(crate) flags: String,
    pub(crate) seq: u32,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(crate) struct Ip {
    pub(crate) frag_offset: Option<u32>,
    #[serde(default)]
    pub(crate) more_fragments: bool,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(crate) struct Tunnel {
    kind: String,
    vni: Option<u32>,
    src: String,
    dst: String,
    sport: Option<u16>,
    dport: Option<u16>,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(crate) struct Rewrite {
    pub(crate) field: String,
    pub(crate) from: Endpoint,
    pub(crate) to: Endpoint,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(crate) struct Tuple {
    pub(crate) src: Endpoint,
    pub(crate) dst: Endpoint,
}

impl std::fmt::Display for Tuple {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} > {}", self.src, self.dst)
    }
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(crate) struct Conntrack {
    pub(crate) original: Tuple,
    pub(crate) reply: Tuple,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(crate) struct Dropped {
    pub(crate) reason: Option<String>,
    pub(crate) function: String,
    pub(crate) hook: Option<String>,
}

#[allow(clippy::struct_field_names, reason = "named as in the JSON")]
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(crate) struct Hook {
    pub(crate) hook: String,
    pub(crate) verdict: String,
    #[serde(default)]
    pub(crate) chains: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(crate) struct MarkedBy {
    pub(crate) bits: u32,
    pub(crate) chain: String,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(crate) struct Rule {
    pub(crate) table: Option<String>,
    pub(crate) chain: Option<String>,
    pub(crate) text: Option<String>,
    pub(crate) comment: Option<String>,
    pub(crate) policy: Option<String>,
    #[serde(default)]
    pub(crate) path: Vec<String>,
    pub(crate) service: Option<String>,
    pub(crate) mark: Option<MarkedBy>,
    #[serde(default)]
    pub(crate) missed: Vec<String>,
    #[serde(default)]
    pub(crate) inferred: bool,
    pub(crate) from: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(crate) struct Route {
    pub(crate) dev: String,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(crate) struct Step {
    packet: Option<u64>,
    flow: Option<u64>,
    pub(crate) ts: u64,
    #[serde(default)]
    pub(crate) node: String,
    #[serde(default)]
    pub(crate) iface: String,
    pub(crate) role: Option<String>,
    pub(crate) kind: String,
    pub(crate) src: Endpoint,
    pub(crate) dst: Endpoint,
    pub(crate) payload: u32,
    pub(crate) tcp: Option<Tcp>,
    pub(crate) ip: Option<Ip>,
    tunnel: Option<Tunnel>,
    pub(crate) rewrite: Option<Rewrite>,
    pub(crate) conntrack: Option<Conntrack>,
    pub(crate) drop: Option<Dropped>,
    pub(crate) hook: Option<Hook>,
    pub(crate) rule: Option<Rule>,
    pub(crate) route: Option<Route>,
    merged: Option<u32>,
    #[serde(default)]
    pub(crate) inferred: bool,
    from: Option<String>,
}

impl Step {
    /// `KIND IFACE@NODE`; the interface only where the kind is about one.
    pub(crate) fn place(&self) -> String {
        if matches!(self.kind.as_str(), "ingress" | "egress") {
            format!("{} {}@{}", self.kind, self.iface, self.node)
        } else {
            format!("{}@{}", self.kind, self.node)
        }
    }

    /// Whether TCP freed a bare acknowledgement because its timestamp was old: where a machine's CPUs
    /// are slow, the packets of one connection pass each other between them.
    fn came_late(&self) -> bool {
        let bare = self.payload == 0 && self.tcp.as_ref().is_some_and(|tcp| tcp.flags == ".");
        let reason = self.drop.as_ref().and_then(|drop| drop.reason.as_deref());
        bare && reason.is_some_and(|reason| reason.starts_with("TCP_RFC7323_PAWS"))
    }

    /// The place, the addresses, and the outer addresses in brackets.
    fn line(&self) -> String {
        let mut line = format!("{}: {} > {}", self.place(), self.src, self.dst);
        if let Some(tunnel) = &self.tunnel {
            // Writing to a String cannot fail.
            let _ = write!(line, " [{} > {}]", tunnel.src, tunnel.dst);
        }
        line
    }

    /// Whether it shows an outer header.
    pub(crate) fn in_tunnel(&self) -> bool {
        self.tunnel.is_some()
    }

    /// The id of its packet, in JSON lines.
    pub(crate) fn packet(&self) -> u64 {
        self.packet.expect("a packet id")
    }

    pub(crate) fn describe(&self) -> String {
        let mut line = format!(
            "{} {}{}",
            self.ts,
            if self.inferred { "~" } else { " " },
            self.line()
        );
        if !matches!(self.kind.as_str(), "ingress" | "egress") && !self.iface.is_empty() {
            let _ = write!(line, " (at {})", self.iface);
        }
        if let Some(merged) = self.merged {
            let _ = write!(line, " merged {merged}");
        }
        if let Some(tcp) = &self.tcp {
            let _ = write!(
                line,
                " {} seq {} payload {}",
                tcp.flags, tcp.seq, self.payload
            );
        }
        if let Some(hook) = &self.hook {
            let _ = write!(line, " {} {}", hook.hook, hook.verdict);
        }
        if let Some(drop) = &self.drop {
            let _ = write!(line, " {drop:?}");
        }
        line
    }

    /// What holds of every step, whatever the test.
    fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        let mut check = |holds: bool, what: &str| {
            if !holds {
                faults.push(format!("{what}: {}", self.describe()));
            }
        };
        let sight = matches!(self.kind.as_str(), "ingress" | "egress");
        if sight {
            let role = match self.iface.as_str() {
                "vxlan.calico" => "tunnel",
                "eth0" => "uplink",
                iface if iface.starts_with("cali") => "pod-veth",
                _ => "",
            };
            check(
                role.is_empty() || self.role.as_deref() == Some(role),
                &format!("role {:?} instead of {role:?}", self.role),
            );
            check(!self.inferred, "a sight is observed");
        }
        if BY_KPROBE.contains(&self.kind.as_str()) {
            check(
                self.inferred != kprobes(),
                if kprobes() {
                    "observed where there are kprobes"
                } else {
                    "inferred where there are no kprobes"
                },
            );
        }
        if matches!(self.kind.as_str(), "encap" | "decap") {
            check(
                kprobes() || self.inferred,
                "inferred where there are no kprobes",
            );
            check(self.tunnel.is_some(), "with the outer header");
        }
        check(
            self.inferred == self.from.as_ref().is_some_and(|from| !from.is_empty()),
            "says from what exactly when inferred",
        );
        if let Some(tunnel) = &self.tunnel {
            check(
                tunnel.kind == "vxlan"
                    && tunnel.vni == Some(4096)
                    && tunnel.dport == Some(4789)
                    && tunnel.sport.is_some_and(|port| port > 0),
                &format!("VXLAN 4096 to port 4789, not {tunnel:?}"),
            );
        }
        if let Some(rewrite) = &self.rewrite {
            let (dst, src) = (rewrite.to == self.dst, rewrite.to == self.src);
            let right = match rewrite.field.as_str() {
                "dst" => dst,
                "src" => src,
                _ => dst || src,
            };
            check(right, &format!("addresses are those after {rewrite:?}"));
            check(rewrite.from != rewrite.to, "a rewrite changes something");
        }
        faults
    }
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(crate) struct Packet {
    pub(crate) id: u64,
    pub(crate) flow: u64,
    pub(crate) direction: String,
    pub(crate) summary: String,
    pub(crate) outcome: String,
    #[serde(rename = "try")]
    pub(crate) attempt: u32,
    pub(crate) retransmits: Option<u64>,
    pub(crate) steps: Vec<Step>,
    #[serde(skip)]
    origin: Arc<str>,
}

impl Packet {
    pub(crate) fn describe(&self) -> String {
        let mut text = format!(
            "#{} flow {} {} {:?} {} try {}{}\n",
            self.id,
            self.flow,
            self.direction,
            self.summary,
            self.outcome,
            self.attempt,
            self.retransmits
                .map(|first| format!(" of #{first}"))
                .unwrap_or_default()
        );
        for step in &self.steps {
            let _ = writeln!(text, "    {}", step.describe());
        }
        text
    }

    #[track_caller]
    fn fail(&self, what: &str) -> ! {
        panic!("{what}\n{}of {}", self.describe(), self.origin);
    }

    #[track_caller]
    pub(crate) fn require(&self, holds: bool, what: &str) {
        if !holds {
            self.fail(what);
        }
    }

    /// Checks the whole way of the packet.
    ///
    /// Each line is `KIND [IFACE]@NODE`, and optionally `: SRC > DST` and ` [OUTER > OUTER]`; one
    /// that starts with `?` may be missing. Steps of the costly hooks are passed over, and so is the
    /// end of an acknowledgement that came to its socket too late.
    #[track_caller]
    pub(crate) fn path(&self, expected: &[&str]) -> &Self {
        let mut seen = self
            .steps
            .iter()
            .filter(|step| !DEEP.contains(&step.kind.as_str()))
            .peekable();
        for &line in expected {
            let (optional, line) = match line.strip_prefix('?') {
                Some(rest) => (true, rest),
                None => (false, line),
            };
            let matches = seen.peek().is_some_and(|step| {
                if line.contains(": ") {
                    step.line() == line
                } else {
                    step.place() == line
                }
            });
            if matches {
                seen.next();
            } else if !optional {
                let got = seen
                    .peek()
                    .map_or_else(|| "the end".to_owned(), |step| step.line());
                self.fail(&format!("expected  {line}\ninstead of {got}"));
            }
        }
        seen.next_if(|step| step.came_late());
        if let Some(step) = seen.next() {
            self.fail(&format!("expected  the end\ninstead of {}", step.line()));
        }
        self
    }

    /// The step at that place.
    #[track_caller]
    pub(crate) fn at(&self, place: &str) -> &Step {
        match self.steps.iter().find(|step| step.place() == place) {
            Some(step) => step,
            None => self.fail(&format!("no {place}")),
        }
    }

    #[track_caller]
    pub(crate) fn outcome(&self, outcome: &str) -> &Self {
        self.require(
            self.outcome == outcome,
            &format!("outcome {} instead of {outcome}", self.outcome),
        );
        self
    }
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(crate) struct Flow {
    pub(crate) id: u64,
    pub(crate) proto: String,
    pub(crate) client: Endpoint,
    pub(crate) server: Endpoint,
    pub(crate) backend: Option<Endpoint>,
    tuples: Vec<Tuple>,
    pub(crate) state: String,
}

impl Flow {
    /// `PROTO CLIENT > SERVER`, and `= BACKEND` where there is one.
    pub(crate) fn line(&self) -> String {
        let mut line = format!("{} {} > {}", self.proto, self.client, self.server);
        if let Some(backend) = &self.backend {
            let _ = write!(line, " = {backend}");
        }
        line
    }
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(crate) struct Verdict {
    pub(crate) code: String,
    pub(crate) summary: String,
    pub(crate) node: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
pub(crate) struct Losses {
    ring_buffer: u64,
    user_space: u64,
    other: u64,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
struct ToolInfo {
    kernel: String,
    hooks: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
struct Node {
    name: String,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(crate) struct Trace {
    schema: String,
    tool: ToolInfo,
    nodes: Vec<Node>,
    pub(crate) flows: Vec<Flow>,
    pub(crate) packets: Vec<Packet>,
    pub(crate) verdict: Verdict,
    pub(crate) findings: Vec<serde_json::Value>,
    losses: Losses,
    #[serde(skip)]
    origin: Arc<str>,
}

impl Trace {
    /// Remembers the run for messages, and checks what holds of every trace.
    #[track_caller]
    pub(crate) fn told_by(mut self, origin: &str) -> Self {
        self.origin = Arc::from(origin);
        for packet in &mut self.packets {
            packet.origin = Arc::clone(&self.origin);
        }
        self.require(self.schema == "tracer.trace/1", "schema");
        self.require(!self.tool.kernel.is_empty(), "the kernel's release");
        self.require(!self.tool.hooks.is_empty(), "names of hooks");
        let names: Vec<&str> = self.nodes.iter().map(|node| node.name.as_str()).collect();
        self.require(
            names.contains(&"worker") && names.contains(&"worker2"),
            &format!("both nodes, not {names:?}"),
        );
        let flows: BTreeMap<u64, &Flow> = self.flows.iter().map(|flow| (flow.id, flow)).collect();
        self.require(flows.len() == self.flows.len(), "one id per flow");
        for packet in &self.packets {
            packet.require(flows.contains_key(&packet.flow), "a flow that is listed");
            packet.require(!packet.steps.is_empty(), "a packet has steps");
            packet.require(
                packet.steps.is_sorted_by_key(|step| step.ts),
                "steps in order of time",
            );
            let faults: Vec<String> = packet.steps.iter().flat_map(Step::faults).collect();
            packet.require(faults.is_empty(), &faults.join("\n"));
        }
        self
    }

    #[track_caller]
    pub(crate) fn require(&self, holds: bool, what: &str) {
        if !holds {
            self.fail(what);
        }
    }

    #[track_caller]
    pub(crate) fn fail(&self, what: &str) -> ! {
        let mut text = String::new();
        for flow in &self.flows {
            let _ = writeln!(text, "flow {} {} {}", flow.id, flow.line(), flow.state);
        }
        for packet in self.packets.iter().take(40) {
            text += &packet.describe();
        }
        let Verdict { code, summary, .. } = &self.verdict;
        panic!(
            "{what}\n{text}{} packets, {code}: {summary}\n{:?}\nof {}",
            self.packets.len(),
            self.losses,
            self.origin
        );
    }

    /// The trace's one flow, which is this (see [`Flow::line`]).
    #[track_caller]
    pub(crate) fn only_flow(&self, line: &str) -> &Flow {
        self.require(self.flows.len() == 1, "exactly one flow");
        self.flow(line)
    }

    #[track_caller]
    pub(crate) fn flow(&self, line: &str) -> &Flow {
        match self.flows.iter().find(|flow| flow.line() == line) {
            Some(flow) => flow,
            None => self.fail(&format!("no flow {line}")),
        }
    }

    pub(crate) fn packets_of(&self, flow: &Flow, direction: &str) -> Vec<&Packet> {
        self.packets
            .iter()
            .filter(|packet| packet.flow == flow.id && packet.direction == direction)
            .collect()
    }

    /// The flow's first packet of that summary.
    #[track_caller]
    pub(crate) fn packet(&self, flow: &Flow, summary: &str) -> &Packet {
        match self
            .packets
            .iter()
            .find(|packet| packet.flow == flow.id && packet.summary == summary)
        {
            Some(packet) => packet,
            None => self.fail(&format!("no packet {summary:?}")),
        }
    }

    /// Checks that nothing was lost between the kernel and the reader.
    #[track_caller]
    pub(crate) fn lossless(&self) -> &Self {
        let nothing = Losses {
            ring_buffer: 0,
            user_space: 0,
            other: 0,
        };
        self.require(self.losses == nothing, "losses");
        self
    }

    #[track_caller]
    pub(crate) fn verdict(&self, code: &str) -> &Self {
        self.require(
            self.verdict.code == code,
            &format!("verdict {} instead of {code}", self.verdict.code),
        );
        self
    }

    /// Delivered, and nothing at all to complain of.
    #[track_caller]
    pub(crate) fn healthy(&self) -> &Self {
        self.verdict("delivered");
        let worth_knowing = |finding: &serde_json::Value| finding["severity"] == "note";
        self.require(
            self.findings.iter().all(worth_knowing),
            &format!("no fault and no warning, but {:?}", self.findings),
        );
        self
    }

    /// Everything about the trace that a recording has to keep, as text.
    pub(crate) fn content(&self) -> String {
        let mut text = String::new();
        for flow in &self.flows {
            let _ = writeln!(text, "flow {} {} {}", flow.id, flow.line(), flow.state);
        }
        for packet in &self.packets {
            text += &packet.describe();
        }
        let _ = writeln!(
            text,
            "{:?}\n{:?}\n{:?}",
            self.verdict, self.findings, self.losses
        );
        text
    }
}

/// Checks JSON lines: the header, every step with its packet and flow, the closing; returns the steps.
#[track_caller]
pub(crate) fn lines(text: &str, closed: bool) -> Vec<Step> {
    let mut lines: Vec<&str> = text.lines().collect();
    let parse = |line: &str| -> serde_json::Value {
        serde_json::from_str(line).unwrap_or_else(|error| panic!("{error} in {line}"))
    };
    assert!(!lines.is_empty(), "a header line");
    let header = parse(lines.remove(0));
    assert_eq!(header["schema"], "tracer.trace/1");
    if closed {
        let closing = parse(lines.pop().expect("a closing line"));
        for key in ["verdict", "findings", "losses"] {
            assert!(!closing[key].is_null(), "no {key} in {closing}");
        }
    }
    lines
        .into_iter()
        .map(|line| {
            let step: Step = serde_json::from_str(line)
                .unwrap_or_else(|error| panic!("not a step: {error} in {line}"));
            assert!(
                step.packet.is_some() && step.flow.is_some(),
                "no packet or flow in {line}"
            );
            step
        })
        .collect()
}

/// The bytes of a stream that steps at one place account for: sorted, joined ranges of offsets
/// from `start` (the SYN's sequence number plus one).
pub(crate) fn coverage<'a>(steps: impl Iterator<Item = &'a Step>, start: u32) -> Vec<(u64, u64)> {
    let mut ranges: Vec<(u64, u64)> = steps
        .filter(|step| step.payload > 0)
        .filter_map(|step| {
            let from = u64::from(step.tcp.as_ref()?.seq.wrapping_sub(start));
            Some((from, from + u64::from(step.payload)))
        })
        .collect();
    ranges.sort_unstable();
    let mut joined: Vec<(u64, u64)> = Vec::new();
    for (from, to) in ranges {
        match joined.last_mut() {
            Some(last) if from <= last.1 => last.1 = last.1.max(to),
            _ => joined.push((from, to)),
        }
    }
    joined
}
