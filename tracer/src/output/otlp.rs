//! `otlp`: OpenTelemetry's traces as JSON. A packet is a trace: a root span for
//! the whole of its way, and a span for each step, which lasts until the next.
//! Each line is one `ExportTraceServiceRequest`, which is what the file exporter
//! writes and what a collector takes.
//!
//! Encoding: <https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding>
//! (ids in hexadecimal, 64-bit numbers as strings, enumerations as numbers).
//! Attributes are those of the semantic conventions where they have one; the
//! others begin with `tracer.`.

use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::phrase;
use super::text::clean;
use crate::trace::{Endpoint, Flow, Packet, Role, Step, StepKind, Trace};

/// Spans in a request. Collectors take 4 MiB by default, and more.
const SPANS: usize = 1_000;
/// Longest text of an attribute, in characters.
const TEXT: usize = 4_096;
/// `SPAN_KIND_INTERNAL`, `STATUS_CODE_ERROR`.
const INTERNAL: u8 = 1;
const ERROR: u8 = 2;

/// Writes a request per line.
pub fn write(out: &mut dyn Write, trace: &Trace) -> io::Result<()> {
    let mut any = false;
    for (_, body) in batches(trace) {
        any = true;
        out.write_all(&body)?;
        out.write_all(b"\n")?;
    }
    if !any {
        out.write_all(b"{\"resourceSpans\":[]}\n")?;
    }
    out.flush()
}

/// The trace in requests: number of spans, body. None where nothing was seen.
pub fn batches(trace: &Trace) -> Box<dyn Iterator<Item = (usize, Vec<u8>)> + '_> {
    let spans = Spans {
        trace,
        flows: trace.flows.iter().map(|f| (f.id, f)).collect(),
        packets: trace.packets.iter().map(|p| (p.id, p)).collect(),
    };
    let mut rest = trace.packets.iter().filter(|p| !p.steps.is_empty());
    Box::new(std::iter::from_fn(move || {
        let mut batch: BTreeMap<Place<'_>, Vec<Value>> = BTreeMap::new();
        let mut n = 0;
        while n < SPANS {
            let Some(packet) = rest.next() else { break };
            n += 1 + packet.steps.len();
            spans.packet(packet, &mut batch);
        }
        (n > 0).then(|| (n, spans.request(batch).to_string().into_bytes()))
    }))
}

/// What a resource stands for: a node, or a pod on it.
type Place<'a> = (&'a str, Option<&'a str>);

struct Spans<'a> {
    trace: &'a Trace,
    flows: HashMap<u64, &'a Flow>,
    packets: HashMap<u64, &'a Packet>,
}

impl<'a> Spans<'a> {
    fn request(&self, batch: BTreeMap<Place<'a>, Vec<Value>>) -> Value {
        let resources = batch.into_iter().map(|(place, spans)| {
            json!({
                "resource": {"attributes": self.resource(place)},
                "scopeSpans": [{
                    "scope": {"name": "tracer", "version": clean(&self.trace.header.tool.version)},
                    "spans": spans,
                }],
            })
        });
        json!({"resourceSpans": resources.collect::<Vec<_>>()})
    }

    fn resource(&self, (node, pod): Place<'a>) -> Attributes {
        let tool = &self.trace.header.tool;
        let closing = &self.trace.closing;
        let mut all = Attributes::default();
        all.text("service.name", "tracer");
        all.text("service.version", &tool.version);
        all.text("os.type", "linux");
        all.text("os.version", &tool.kernel);
        all.text("k8s.node.name", node);
        if let Some((namespace, name)) = pod.and_then(|p| p.split_once('/')) {
            all.text("k8s.namespace.name", namespace);
            all.text("k8s.pod.name", name);
        }
        all.text("tracer.verdict.code", &closing.verdict.code);
        all.text("tracer.verdict.summary", &closing.verdict.summary);
        if closing.losses.any() {
            all.text("tracer.losses", &phrase::losses(closing.losses));
        }
        all.text("tracer.degraded", &tool.degraded.join("; "));
        all
    }

    fn packet(&self, packet: &'a Packet, batch: &mut BTreeMap<Place<'a>, Vec<Value>>) {
        let (Some(first), trace_id) = (packet.steps.first(), trace_id(packet)) else {
            return;
        };
        let root = span_id(&trace_id, u64::MAX);
        let begin = packet.steps.iter().map(|s| s.ts).min().unwrap_or(first.ts);
        let end = packet.steps.iter().map(|s| s.ts).max().unwrap_or(first.ts);
        let sender: Place<'a> = (&first.node, pod(&first.src));
        let mut span = json!({
            "traceId": trace_id,
            "spanId": root,
            "name": name(&packet.summary),
            "kind": INTERNAL,
            "startTimeUnixNano": begin.to_string(),
            "endTimeUnixNano": end.to_string(),
            "attributes": self.of_packet(packet, first),
        });
        if phrase::is_bad(packet) {
            let last = packet.steps.iter().rposition(phrase::is_end);
            let why = last.map_or_else(
                || phrase::outcome(packet.outcome).to_owned(),
                |i| phrase::step(&packet.steps[i], &packet.steps[..i]),
            );
            span["status"] = json!({"code": ERROR, "message": text(&why)});
        }
        if let Some(original) = packet.retransmits.and_then(|id| self.packets.get(&id)) {
            let id = self::trace_id(original);
            let mut what = Attributes::default();
            what.text("tracer.link", "retransmits");
            span["links"] =
                json!([{"spanId": span_id(&id, u64::MAX), "traceId": id, "attributes": what}]);
        }
        if self.trace.closing.verdict.packet == Some(packet.id) {
            let verdict = &self.trace.closing.verdict;
            let mut what = Attributes::default();
            what.text("tracer.verdict.code", &verdict.code);
            what.text("tracer.verdict.summary", &verdict.summary);
            span["events"] =
                json!([{"name": "verdict", "timeUnixNano": end.to_string(), "attributes": what}]);
        }
        batch.entry(sender).or_default().push(span);
        for (i, step) in packet.steps.iter().enumerate() {
            let next = packet.steps.get(i + 1).map_or(step.ts, |s| s.ts);
            let mut span = json!({
                "traceId": trace_id,
                "spanId": span_id(&trace_id, i as u64),
                "parentSpanId": root,
                "name": phrase::kind(step.kind),
                "kind": INTERNAL,
                "startTimeUnixNano": step.ts.to_string(),
                "endTimeUnixNano": next.max(step.ts).to_string(),
                "attributes": of_step(step, &packet.steps[..i]),
            });
            if phrase::is_end(step) {
                span["status"] = json!({"code": ERROR});
            }
            batch.entry(place(step)).or_default().push(span);
        }
    }

    fn of_packet(&self, packet: &Packet, first: &Step) -> Attributes {
        let mut all = Attributes::default();
        network(&mut all, first);
        if let Some(flow) = self.flows.get(&packet.flow) {
            all.endpoint("client", &flow.client);
            all.endpoint("server", &flow.server);
            all.text("tracer.flow.state", &flow.state);
        }
        all.number("tracer.packet.id", packet.id);
        all.number("tracer.flow.id", packet.flow);
        all.text(
            "tracer.packet.direction",
            phrase::direction(packet.direction),
        );
        all.text("tracer.packet.summary", &packet.summary);
        all.text("tracer.packet.outcome", phrase::outcome(packet.outcome));
        all.number("tracer.packet.try", u64::from(packet.attempt));
        all
    }
}

fn of_step(step: &Step, before: &[Step]) -> Attributes {
    let mut all = Attributes::default();
    network(&mut all, step);
    all.text("network.interface.name", &step.iface);
    match step.kind {
        StepKind::Ingress => all.text("network.io.direction", "receive"),
        StepKind::Egress => all.text("network.io.direction", "transmit"),
        _ => {}
    }
    all.text("tracer.step.kind", phrase::kind(step.kind));
    all.text("tracer.step.text", &phrase::step(step, before));
    all.flag("tracer.step.inferred", step.inferred);
    all.text(
        "tracer.step.inferred_from",
        step.from.as_deref().unwrap_or_default(),
    );
    all.number("tracer.packet.size", u64::from(step.len));
    if let Some(tcp) = &step.tcp {
        all.text("tracer.tcp.flags", &tcp.flags);
        all.number("tracer.tcp.seq", u64::from(tcp.seq));
        all.number("tracer.tcp.ack", u64::from(tcp.ack));
    }
    if let Some(ip) = &step.ip {
        all.number("tracer.ip.id", u64::from(ip.id));
        all.number("tracer.ip.ttl", u64::from(ip.ttl));
    }
    if let Some(t) = &step.tunnel {
        all.text("tracer.tunnel.kind", &t.kind);
        if let Some(vni) = t.vni {
            all.number("tracer.tunnel.vni", u64::from(vni));
        }
        all.text("tracer.tunnel.source", &t.src.to_string());
        all.text("tracer.tunnel.destination", &t.dst.to_string());
    }
    if let Some(r) = &step.rewrite {
        all.text("tracer.rewrite.from", &phrase::address(&r.from));
        all.text("tracer.rewrite.to", &phrase::address(&r.to));
    }
    if let Some(d) = &step.drop {
        all.text(
            "tracer.drop.reason",
            d.reason.as_deref().unwrap_or_default(),
        );
        all.text("tracer.drop.function", &d.function);
        all.text("tracer.drop.hook", d.hook.as_deref().unwrap_or_default());
    }
    if let Some(r) = &step.rule {
        let parts = [
            ("table", &r.table),
            ("chain", &r.chain),
            ("text", &r.text),
            ("comment", &r.comment),
            ("policy", &r.policy),
        ];
        for (name, part) in parts {
            all.text(
                &format!("tracer.rule.{name}"),
                part.as_deref().unwrap_or_default(),
            );
        }
    }
    all
}

fn network(all: &mut Attributes, step: &Step) {
    all.text("network.transport", &step.proto);
    let v6 = step.src.addr.is_ipv6();
    all.text("network.type", if v6 { "ipv6" } else { "ipv4" });
    all.endpoint("source", &step.src);
    all.endpoint("destination", &step.dst);
}

/// Whose step it is: the pod's at its veth and in it, else the node's.
fn place(step: &Step) -> Place<'_> {
    let own = match (step.kind, step.role) {
        (StepKind::Ingress, Some(Role::PodVeth)) | (StepKind::Egress, Some(Role::PodEth0)) => {
            pod(&step.src)
        }
        (StepKind::Egress, Some(Role::PodVeth)) | (StepKind::Ingress, Some(Role::PodEth0)) => {
            pod(&step.dst)
        }
        _ => None,
    };
    (&step.node, own)
}

/// `NS/NAME` of a pod.
fn pod(e: &Endpoint) -> Option<&str> {
    e.name.as_deref()?.strip_prefix("pod/")
}

/// A span's name says what it is, not how much: `PSH-ACK`, not `PSH-ACK 77 B`.
fn name(summary: &str) -> String {
    let name = summary
        .strip_suffix(" B")
        .and_then(|s| s.rsplit_once(' '))
        .map_or(summary, |(name, _)| name);
    if name.is_empty() {
        "packet".to_owned()
    } else {
        text(name)
    }
}

/// The same packet has the same id whenever it is exported.
fn trace_id(packet: &Packet) -> String {
    let mut hash = Sha256::new();
    hash.update(packet.id.to_be_bytes());
    if let Some(first) = packet.steps.first() {
        hash.update(first.ts.to_be_bytes());
        hash.update(first.node.as_bytes());
        for end in [&first.src, &first.dst] {
            hash.update(phrase::address(end));
        }
        hash.update(first.ip.as_ref().map_or(0, |ip| ip.id).to_be_bytes());
    }
    hex(&hash.finalize()[..16])
}

fn span_id(trace_id: &str, number: u64) -> String {
    let mut hash = Sha256::new();
    hash.update(trace_id.as_bytes());
    hash.update(number.to_be_bytes());
    hex(&hash.finalize()[..8])
}

fn hex(bytes: &[u8]) -> String {
    let digit = |n: u8| char::from_digit(u32::from(n), 16).unwrap_or('0');
    let pair = |b: &u8| [digit(b >> 4), digit(b & 15)];
    bytes.iter().flat_map(pair).collect()
}

fn text(s: &str) -> String {
    clean(s).chars().take(TEXT).collect()
}

/// Attributes in the making; empty ones are left out.
#[derive(Default, serde::Serialize)]
#[serde(transparent)]
struct Attributes(Vec<Value>);

impl Attributes {
    fn push(&mut self, key: &str, value: &Value) {
        self.0.push(json!({"key": key, "value": value}));
    }

    fn text(&mut self, key: &str, value: &str) {
        if !value.is_empty() {
            self.push(key, &json!({"stringValue": text(value)}));
        }
    }

    /// Numbers are signed here; larger ones stay as large as they can.
    fn number(&mut self, key: &str, value: u64) {
        let value = i64::try_from(value).unwrap_or(i64::MAX);
        self.push(key, &json!({"intValue": value.to_string()}));
    }

    fn flag(&mut self, key: &str, value: bool) {
        self.push(key, &json!({"boolValue": value}));
    }

    fn endpoint(&mut self, side: &str, e: &Endpoint) {
        self.text(&format!("{side}.address"), &e.addr.to_string());
        if let Some(port) = e.port {
            self.number(&format!("{side}.port"), u64::from(port));
        }
        if let Some(name) = &e.name {
            self.text(&format!("tracer.{side}.name"), name);
        }
    }
}
