//! OTLP: what is written and sent, read with OpenTelemetry's own types.

use std::collections::{HashMap, HashSet};
use std::process::Output;
use std::thread;
use std::time::Duration;

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value::Value};
use opentelemetry_proto::tonic::trace::v1::Span;
use tracer::trace::Trace;

use crate::samples::{self, empty, export, hostile, recordings, tracer};
use crate::server::{Answer, answer, serve};

fn text<'a>(attributes: &'a [KeyValue], key: &str) -> Option<&'a str> {
    let found = attributes.iter().find(|a| a.key == key)?;
    match found.value.as_ref()?.value.as_ref()? {
        Value::StringValue(s) => Some(s),
        other => panic!("{key} is {other:?}"),
    }
}

/// All spans with the attributes of their resource.
fn decode(lines: &[u8]) -> Vec<(Vec<KeyValue>, Span)> {
    let mut spans = Vec::new();
    for line in lines.split(|b| *b == b'\n').filter(|l| !l.is_empty()) {
        let request: ExportTraceServiceRequest = serde_json::from_slice(line).unwrap();
        for resource in request.resource_spans {
            let attributes = resource.resource.unwrap().attributes;
            for scope in resource.scope_spans {
                assert_eq!(scope.scope.unwrap().name, "tracer");
                spans.extend(scope.spans.into_iter().map(|s| (attributes.clone(), s)));
            }
        }
    }
    spans
}

fn check(name: &str, trace: &Trace, lines: &[u8]) {
    let spans = decode(lines);
    let steps: usize = trace.packets.iter().map(|p| p.steps.len()).sum();
    let packets = trace.packets.iter().filter(|p| !p.steps.is_empty()).count();
    assert_eq!(spans.len(), steps + packets, "{name}");
    let mut ids = HashSet::new();
    let mut roots: HashMap<&[u8], &Span> = HashMap::new();
    for (resource, span) in &spans {
        assert_eq!(text(resource, "service.name"), Some("tracer"), "{name}");
        assert_eq!((span.trace_id.len(), span.span_id.len()), (16, 8), "{name}");
        assert!(span.trace_id.iter().any(|b| *b != 0) && span.span_id.iter().any(|b| *b != 0));
        assert!(
            ids.insert((&span.trace_id, &span.span_id)),
            "{name}: an id twice"
        );
        assert!(!span.name.is_empty() && span.kind == 1, "{name}");
        assert!(span.start_time_unix_nano > 0, "{name}");
        assert!(
            span.end_time_unix_nano >= span.start_time_unix_nano,
            "{name}"
        );
        if span.parent_span_id.is_empty() {
            let before = roots.insert(&span.trace_id, span);
            assert!(before.is_none(), "{name}: two roots in a trace");
        }
    }
    assert_eq!(roots.len(), packets, "{name}");
    for (_, span) in spans.iter().filter(|(_, s)| !s.parent_span_id.is_empty()) {
        let root = roots[span.trace_id.as_slice()];
        assert_eq!(span.parent_span_id, root.span_id, "{name}");
        let inside = root.start_time_unix_nano <= span.start_time_unix_nano
            && span.end_time_unix_nano <= root.end_time_unix_nano;
        assert!(inside, "{name}: a step outside its packet");
        assert!(
            text(&span.attributes, "tracer.step.kind").is_some(),
            "{name}"
        );
        assert!(text(&span.attributes, "source.address").is_some(), "{name}");
    }
    for span in spans.iter().map(|(_, s)| s) {
        for link in &span.links {
            let original = roots[link.trace_id.as_slice()];
            assert_eq!(original.span_id, link.span_id, "{name}");
        }
    }
}

/// Spans that stand for a step at this node.
fn at_node(spans: &[(Vec<KeyValue>, Span)], node: &str) -> usize {
    let steps = spans.iter().filter(|(_, s)| !s.parent_span_id.is_empty());
    let node = (!node.is_empty()).then_some(node);
    steps
        .filter(|(r, _)| text(r, "k8s.node.name") == node)
        .count()
}

#[test]
fn every_recording_is_what_opentelemetry_reads() {
    for (name, trace) in recordings() {
        let lines = export(&trace, "otlp");
        check(&name, &trace, &lines);
        let spans = decode(&lines);
        for node in ["worker", "worker2", ""] {
            let steps = trace.packets.iter().flat_map(|p| &p.steps);
            let wanted = steps.filter(|s| &*s.node == node).count();
            assert_eq!(at_node(&spans, node), wanted, "{name}: steps at {node:?}");
        }
    }
    check("hostile", &hostile(), &export(&hostile(), "otlp"));
    check("empty", &empty(), &export(&empty(), "otlp"));
}

#[test]
fn a_drop_is_told_by_the_conventions_names() {
    let (trace, _) = tracer::recording::read(&samples::path("c58")).unwrap();
    let spans = decode(&export(&trace, "otlp"));
    let (resource, drop) = spans.iter().find(|(_, s)| s.name == "drop").unwrap();
    assert_eq!(text(resource, "k8s.node.name"), Some("worker2"));
    assert_eq!(text(&drop.attributes, "network.transport"), Some("tcp"));
    assert_eq!(text(&drop.attributes, "network.type"), Some("ipv4"));
    assert_eq!(
        text(&drop.attributes, "tracer.drop.reason"),
        Some("NETFILTER_DROP")
    );
    assert_eq!(drop.status.as_ref().unwrap().code, 2);
    let (resource, root) = spans
        .iter()
        .find(|(_, s)| s.parent_span_id.is_empty())
        .unwrap();
    assert_eq!(root.name, "SYN");
    assert_eq!(text(resource, "k8s.pod.name"), Some("client"));
    assert_eq!(text(resource, "k8s.namespace.name"), Some("default"));
    assert_eq!(root.events[0].name, "verdict");
    let links = spans.iter().flat_map(|(_, s)| &s.links).count();
    assert!(links >= 2, "retransmissions lead to what they retransmit");
}

fn send(to: &str, recording: &str) -> Output {
    tracer()
        .args(["export", "--to", "otlp", "-o", to])
        .arg(samples::path(recording))
        .env("OTEL_EXPORTER_OTLP_TIMEOUT", "3000")
        .output()
        .unwrap()
}

#[test]
fn a_collector_gets_the_whole_trace() {
    let good = br#"{"partialSuccess":{}}"#;
    let (address, requests) = serve(|_| answer("200 OK", "application/json", good));
    let done = send(&address, "c20");
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success() && said.contains("sent"), "{said}");
    let (trace, _) = tracer::recording::read(&samples::path("c20")).unwrap();
    let mut all = Vec::new();
    for request in requests.try_iter() {
        assert_eq!(
            (request.method.as_str(), request.path.as_str()),
            ("POST", "/v1/traces")
        );
        assert_eq!(request.header("content-type"), Some("application/json"));
        assert!(request.header("user-agent").unwrap().starts_with("tracer/"));
        all.extend(request.body);
        all.push(b'\n');
    }
    check("sent", &trace, &all);
}

fn refused(handle: impl Fn() -> Answer + Send + Sync + 'static, words: &[&str]) {
    let (address, _requests) = serve(move |_| handle());
    let done = send(&address, "c11");
    let said = String::from_utf8_lossy(&done.stderr);
    assert_eq!(done.status.code(), Some(1), "{said}");
    assert_eq!(said.trim_end().lines().count(), 1, "{said}");
    assert!(
        !said.contains('\x1b') && !said.contains("panicked"),
        "{said}"
    );
    for word in words {
        assert!(said.contains(word), "{word} in {said}");
    }
}

#[test]
fn what_a_collector_refuses_is_told_in_a_sentence() {
    let json = "application/json";
    refused(
        move || {
            answer(
                "400 Bad Request",
                json,
                b"{\"code\":3,\"message\":\"no \x1b[31mgood\"}",
            )
        },
        &["400"],
    );
    refused(
        move || answer("400 Bad Request", json, br#"{"message":"no good"}"#),
        &["400", "no good"],
    );
    refused(
        || answer("404 Not Found", "text/html", b"<h1>nothing here</h1>"),
        &["404", "OTLP/HTTP"],
    );
    refused(
        move || answer("503 Service Unavailable", json, b""),
        &["503", "later"],
    );
    refused(
        move || answer("500 Internal Server Error", json, &vec![b'x'; 200_000]),
        &["500"],
    );
    refused(|| answer("302 Found", "text/plain", b""), &["302"]);
    refused(
        || answer("200 OK", "text/html", b"<html>a login page</html>"),
        &["not that of a collector"],
    );
    let some = br#"{"partialSuccess":{"rejectedSpans":"7","errorMessage":"too old"}}"#;
    refused(
        move || answer("200 OK", json, some),
        &["rejected 7 of", "too old"],
    );
    refused(|| b"\x00\xff garbage \r\n\r\n".to_vec(), &["cannot send"]);
    refused(Vec::new, &["cannot send"]);
}

#[test]
fn a_remark_of_the_collector_is_passed_on() {
    let note = br#"{"partialSuccess":{"errorMessage":"use gzip"}}"#;
    let (address, _requests) = serve(move |_| answer("200 OK", "application/json", note));
    let done = send(&address, "c11");
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success() && said.contains("use gzip"), "{said}");
}

#[test]
fn nobody_and_silence_are_told_in_time() {
    let (address, _requests) = serve(|_| {
        thread::sleep(Duration::from_secs(50));
        Vec::new()
    });
    let done = send(&address, "c11");
    let said = String::from_utf8_lossy(&done.stderr);
    assert_eq!(done.status.code(), Some(1));
    assert!(said.contains("no answer in time"), "{said}");
    // A port that was free a moment ago.
    let free = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let done = send(&format!("http://{free}"), "c11");
    let said = String::from_utf8_lossy(&done.stderr);
    assert_eq!(done.status.code(), Some(1));
    assert!(said.contains("refused"), "{said}");
}
