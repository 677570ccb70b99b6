//! What the nodes were set up to do, folded up: a line for each entry of each
//! list, and other people's listings as they are.

use serde_json::Value;

use super::page::Page;
use crate::state::State;

/// Lines of a list, characters of a listing.
const LINES: usize = 1_000;
const TEXT: usize = 200_000;

/// Writes the section.
pub(super) fn write(page: &mut Page, state: &State) {
    page.raw("<section>\n<h2>State of nodes and pods</h2>\n");
    for namespace in state.namespaces.iter().take(100) {
        page.raw("<details><summary>")
            .text(&namespace.name)
            .raw("</summary><div class=\"in\">\n");
        if let Ok(Value::Object(members)) = serde_json::to_value(namespace) {
            for (name, value) in members.iter().filter(|(n, v)| *n != "name" && !is_empty(v)) {
                member(page, name, value);
            }
        }
        page.raw("</div></details>\n");
    }
    if let Some(items) = state.cluster.as_ref().and_then(|c| c["items"].as_array()) {
        page.raw("<details><summary>The cluster's objects</summary><div class=\"in\">\n");
        let name = |v: &Value| {
            let part = |p: &str| {
                v.pointer(p)
                    .and_then(Value::as_str)
                    .unwrap_or_default()
                    .to_owned()
            };
            format!(
                "{} {}/{}",
                part("/kind"),
                part("/metadata/namespace"),
                part("/metadata/name")
            )
        };
        let lines: Vec<String> = items.iter().take(LINES).map(name).collect();
        text(page, &lines.join("\n"));
        super::left_out(page, items.len(), LINES, "objects");
        page.raw("</div></details>\n");
    }
    page.raw("</section>\n");
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(a) => a.is_empty(),
        Value::Object(o) => o.is_empty(),
        Value::String(s) => s.is_empty(),
        _ => false,
    }
}

fn member(page: &mut Page, name: &str, value: &Value) {
    let lines: Vec<String> = match value {
        Value::Array(all) if name == "iptables" => {
            for dump in all {
                let family = if dump["ipv6"] == true { "IPv6" } else { "IPv4" };
                let variant = dump["variant"].as_str().unwrap_or_default();
                fold(
                    page,
                    &format!("iptables ({variant}, {family})"),
                    dump["text"].as_str().unwrap_or_default(),
                );
            }
            return;
        }
        Value::Array(all) => all.iter().map(line).collect(),
        Value::Object(all) => all
            .iter()
            .map(|(k, v)| format!("{k} = {}", line(v)))
            .collect(),
        Value::String(s) => s.lines().map(str::to_owned).collect(),
        other => {
            page.tag("p", "", &format!("{name}: {}", line(other)));
            return;
        }
    };
    let n = lines.len();
    if n == 1 && lines[0].len() < 100 {
        page.tag("p", "", &format!("{name}: {}", lines[0]));
        return;
    }
    let kept: Vec<String> = lines.into_iter().take(LINES).collect();
    fold(page, &format!("{name} ({n})"), &kept.join("\n"));
    super::left_out(page, n, LINES, "lines");
}

fn fold(page: &mut Page, title: &str, content: &str) {
    page.raw("<details><summary>")
        .text(title)
        .raw("</summary><div class=\"in\">");
    text(page, content);
    page.raw("</div></details>\n");
}

/// A listing, cut where it is too long.
pub(super) fn text(page: &mut Page, content: &str) {
    page.raw("<pre>");
    match content.char_indices().nth(TEXT) {
        None => page.lines(content),
        Some((cut, _)) => page
            .lines(&content[..cut])
            .text("… cut here, the rest is in the recording"),
    };
    page.raw("</pre>");
}

/// An entry in a line: `name=eth0 up=true`.
fn line(value: &Value) -> String {
    match value {
        Value::Object(all) => {
            let parts = all.iter().filter(|(_, v)| !is_empty(v));
            let parts: Vec<String> = parts.map(|(k, v)| format!("{k}={}", line(v))).collect();
            parts.join(" ")
        }
        Value::Array(all) => all.iter().map(line).collect::<Vec<_>>().join(","),
        Value::String(s) => s.clone(),
        other => other.to_string(),
    }
}
