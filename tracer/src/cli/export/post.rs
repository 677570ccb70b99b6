//! Sending to a collector: OTLP over HTTP with JSON
//! (<https://opentelemetry.io/docs/specs/otlp/#otlphttp>).

use std::time::Duration;

use serde_json::Value;
use ureq::Agent;
use ureq::http::Uri;

use crate::output::format::Format;
use crate::output::text::clean;
use crate::trace::Trace;

/// For reaching the collector.
const CONNECT: Duration = Duration::from_secs(5);
/// For one request with its answer; the variable, in milliseconds, changes it
/// (<https://opentelemetry.io/docs/specs/otel/protocol/exporter/>).
const WHOLE: Duration = Duration::from_secs(10);
const VARIABLE: &str = "OTEL_EXPORTER_OTLP_TIMEOUT";
/// Most that is read of an answer, in bytes.
const ANSWER: u64 = 64 << 10;
/// Most that is told of an answer, in characters.
const TOLD: usize = 200;
/// Where a collector takes traces, if the address does not say.
const PATH: &str = "/v1/traces";

/// The address to send to, checked.
pub(super) fn endpoint(text: &str) -> Result<String, String> {
    let wrong = || format!("{text} is no address of a collector; give http://HOST[:PORT]");
    let uri: Uri = text.parse().map_err(|_| wrong())?;
    let authority = uri.authority().filter(|a| !a.host().is_empty());
    let authority = authority.ok_or_else(wrong)?;
    let path = match uri.path_and_query().map_or("/", |p| p.as_str()) {
        "/" => PATH,
        path => path,
    };
    Ok(format!("http://{authority}{path}"))
}

/// Sends the trace in as many requests as it takes; with a sentence on what the
/// collector had to say. It is not tried again: what was taken would be there twice.
pub(super) fn send(url: &str, format: &Format, trace: &Trace) -> Result<Option<String>, String> {
    let Some(batches) = format.batches else {
        return Err(format!("{} is not for sending", format.name));
    };
    let patience = std::env::var(VARIABLE)
        .ok()
        .and_then(|v| v.parse().ok())
        .filter(|ms| *ms > 0)
        .map_or(WHOLE, Duration::from_millis);
    let agent: Agent = Agent::config_builder()
        .timeout_connect(Some(CONNECT.min(patience)))
        .timeout_global(Some(patience))
        .http_status_as_error(false)
        .max_redirects(0)
        .proxy(None)
        .user_agent(concat!("tracer/", env!("CARGO_PKG_VERSION")))
        .build()
        .into();
    let (mut sent, mut warning) = (0, None);
    for (items, body) in batches(trace) {
        let before = if sent == 0 {
            String::new()
        } else {
            format!(" (it has taken {sent} spans before that)")
        };
        let said = request(&agent, url, &body)
            .and_then(|answer| partial(&answer, items))
            .map_err(|why| format!("cannot send to {url}: {why}{before}"))?;
        warning = warning.or(said);
        sent += items;
    }
    Ok(Some(match warning {
        Some(said) => format!("warning: the collector took all {sent} spans and says: {said}"),
        None => format!("sent {sent} spans to {url}"),
    }))
}

/// The body of an answer that says yes.
fn request(agent: &Agent, url: &str, body: &[u8]) -> Result<Vec<u8>, String> {
    let sent = agent.post(url).content_type("application/json").send(body);
    let mut response = sent.map_err(|e| reason(&e))?;
    let status = response.status();
    let answer = response
        .body_mut()
        .with_config()
        .limit(ANSWER)
        .read_to_vec()
        .map_err(|e| reason(&e));
    if status.is_success() {
        return answer;
    }
    let told = told(&answer.unwrap_or_default());
    let hint = match status.as_u16() {
        404 | 405 => "; is this an OTLP/HTTP receiver?",
        429 | 502..=504 => "; try again later",
        300..=399 => "; give the address that it points to",
        _ => "",
    };
    Err(format!("it answers {status}{told}{hint}"))
}

fn reason(e: &ureq::Error) -> String {
    match e {
        ureq::Error::Timeout(_) => "no answer in time".into(),
        ureq::Error::BodyExceedsLimit(_) => "its answer is too long for one of a collector".into(),
        ureq::Error::HostNotFound => "no such host".into(),
        ureq::Error::Io(e) => e.to_string(),
        other => other.to_string(),
    }
}

/// What a collector did not take is a failure; what it only remarks is not.
fn partial(answer: &[u8], items: usize) -> Result<Option<String>, String> {
    if answer.iter().all(u8::is_ascii_whitespace) {
        return Ok(None);
    }
    let value: Value = serde_json::from_slice(answer)
        .ok()
        .filter(Value::is_object)
        .ok_or_else(|| format!("its answer is not that of a collector{}", told(answer)))?;
    let partial = &value["partialSuccess"];
    let rejected = match &partial["rejectedSpans"] {
        // 64-bit numbers are strings in this JSON, and not everybody keeps to it.
        Value::String(n) => n.parse().unwrap_or(0),
        n => n.as_u64().unwrap_or(0),
    };
    let said = partial["errorMessage"].as_str().unwrap_or_default();
    let said: String = clean(said).chars().take(TOLD).collect();
    match (rejected, said.is_empty()) {
        (0, true) => Ok(None),
        (0, false) => Ok(Some(said)),
        (n, true) => Err(format!("the collector rejected {n} of {items} spans")),
        (n, false) => Err(format!(
            "the collector rejected {n} of {items} spans: {said}"
        )),
    }
}

/// An answer's own words, shortened.
fn told(answer: &[u8]) -> String {
    let text = String::from_utf8_lossy(answer);
    let message = serde_json::from_slice::<Value>(answer)
        .ok()
        .and_then(|v| v["message"].as_str().map(str::to_owned));
    let text = message.unwrap_or_else(|| text.into_owned());
    let text: String = clean(text.trim()).chars().take(TOLD).collect();
    if text.is_empty() {
        text
    } else {
        format!(" ({text})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_completed_or_refused() {
        let full = |s| endpoint(s).unwrap();
        assert_eq!(full("http://c"), "http://c/v1/traces");
        assert_eq!(full("http://c:4318/"), "http://c:4318/v1/traces");
        assert_eq!(
            full("http://[::1]:4318/a/b?c=d"),
            "http://[::1]:4318/a/b?c=d"
        );
        for bad in ["http://", "http:///a", "http://a b", "http://:1"] {
            assert!(endpoint(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn answers_are_read_as_they_are_meant() {
        assert_eq!(partial(b"", 5), Ok(None));
        assert_eq!(partial(b"{}", 5), Ok(None));
        assert_eq!(partial(b"{\"partialSuccess\":{}}", 5), Ok(None));
        let note = br#"{"partialSuccess":{"errorMessage":"slow down"}}"#;
        assert_eq!(partial(note, 5), Ok(Some("slow down".into())));
        let some =
            br#"{"partialSuccess":{"rejectedSpans":"2","errorMessage":"too\u001b[31m old"}}"#;
        let error = partial(some, 5).unwrap_err();
        assert!(
            error.contains("2 of 5") && !error.contains('\x1b'),
            "{error}"
        );
        for garbage in [&b"<html>"[..], b"[]", b"\xff\xfe", b"null"] {
            assert!(partial(garbage, 5).is_err());
        }
    }
}
