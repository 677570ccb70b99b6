//! The chosen step's headers, before and after, side by side.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::{focused, more, pieces, rule};
use crate::output::text::{address, clean, endpoint, words};
use crate::trace::{Field, Role, Rule, Step, Tunnel};
use crate::tui::app::{App, Pane};
use crate::tui::theme::{Ink, Theme};
use crate::tui::top::Line;
use crate::tui::width::{pad, wrap};

/// Columns of the fields' names.
const NAMES: usize = 13;

pub(super) fn draw(app: &App, theme: Theme, area: Rect, buf: &mut Buffer) {
    if area.height == 0 {
        return;
    }
    let title = app.chosen().map_or_else(
        || "headers".to_owned(),
        |p| format!("headers at step {}/{}", app.step + 1, p.steps.len()),
    );
    rule(buf, area, &title, focused(app, Pane::Details), theme);
    let lines = lines(app, usize::from(area.width));
    let offset = app.offsets[Pane::Details as usize];
    let page = usize::from(area.height).saturating_sub(1);
    for (i, line) in lines.iter().skip(offset).take(page).enumerate() {
        pieces(buf, area, i as u16 + 1, line, theme);
    }
    more(buf, area, offset + page < lines.len(), theme);
}

/// All lines about the chosen step.
pub(crate) fn lines(app: &App, columns: usize) -> Vec<Line> {
    let Some(packet) = app.chosen() else {
        return Vec::new();
    };
    let Some(step) = packet.steps.get(app.step) else {
        return Vec::new();
    };
    let before = app.step.checked_sub(1).and_then(|i| packet.steps.get(i));
    let mut out = Vec::new();
    brief(step, columns, &mut out);
    let half = columns.saturating_sub(NAMES + 4) / 2;
    out.push(vec![
        (pad("", NAMES), Ink::Head),
        (pad("before", half), Ink::Head),
        ("   ".into(), Ink::Head),
        (pad("after", half), Ink::Head),
    ]);
    for (name, old, new) in fields(before, step) {
        if old.is_none() && new.is_none() {
            continue;
        }
        let changed = before.is_some() && old != new;
        let show = |text: Option<String>| text.map_or_else(|| "-".to_owned(), |t| clean(&t));
        let (ink, sign) = if changed {
            (Ink::Rewrite, " ! ")
        } else {
            (Ink::Plain, "   ")
        };
        let old = if before.is_some() {
            show(old)
        } else {
            "(first seen here)".to_owned()
        };
        let (old, new) = (wrap(&old, half), wrap(&show(new), half));
        for n in 0..old.len().max(new.len()) {
            let part = |lines: &[String]| pad(lines.get(n).map_or("", String::as_str), half);
            out.push(vec![
                (pad(if n == 0 { name } else { "" }, NAMES), Ink::Head),
                (part(&old), ink),
                (if n == 0 { sign.into() } else { "   ".into() }, Ink::Bad),
                (part(&new), ink),
            ]);
        }
    }
    rest(step, columns, &mut out);
    out
}

/// What an interface is to its node.
fn role_words(role: Role) -> &'static str {
    match role {
        Role::PodVeth => "the node's end of a pod's veth",
        Role::PodEth0 => "the pod's own interface",
        Role::Tunnel => "tunnel",
        Role::Uplink => "uplink",
        Role::Bridge => "bridge",
        Role::Other => "",
    }
}

/// Adds a named text, broken into lines.
fn adding(columns: usize, out: &mut Vec<Line>) -> impl FnMut(&str, String, Ink) {
    move |name, text, ink| {
        let room = columns.saturating_sub(NAMES + 1);
        for (i, part) in wrap(&clean(&text), room).into_iter().enumerate() {
            let name = pad(if i == 0 { name } else { "" }, NAMES);
            out.push(vec![(name, Ink::Head), (part, ink)]);
        }
    }
}

/// What step it is, why it ended the way, from what it was worked out.
fn brief(step: &Step, columns: usize, out: &mut Vec<Line>) {
    let mut add = adding(columns, out);
    let kind = serde_json::to_value(step.kind).ok();
    let kind = kind.as_ref().and_then(|k| k.as_str()).unwrap_or_default();
    let place = format!("{} {}", step.node, step.iface);
    let role = step.role.map_or("", role_words);
    let role = if role.is_empty() {
        String::new()
    } else {
        format!(" ({role})")
    };
    add(
        "step",
        format!("{kind}  {}{role}", place.trim()),
        super::super::theme::ink(step.kind),
    );
    if let Some(d) = &step.drop {
        let reason = d.reason.as_deref().unwrap_or("no reason given");
        let hook = d
            .hook
            .as_ref()
            .map_or_else(String::new, |h| format!(", in netfilter's {h}"));
        add(
            "DROPPED",
            format!("{reason}{hook}, by {}", d.function),
            Ink::Bad,
        );
    }
    if step.inferred {
        let from = step.from.as_deref().unwrap_or("other steps");
        add(
            "~ worked out",
            format!("not observed; from: {from}"),
            Ink::Warn,
        );
    } else {
        add("observed", "at this hook".to_owned(), Ink::Plain);
    }
}

/// What else is known of it: the rule behind it, whole, and what it left behind.
fn rest(step: &Step, columns: usize, out: &mut Vec<Line>) {
    let mut add = adding(columns, out);
    if let Some(r) = &step.rule {
        behind(r, words::rule(step), &mut add);
    }
    if let Some(r) = &step.rewrite {
        let field = match r.field {
            Field::Dst => "destination",
            Field::Src => "source",
            Field::Both => "source and destination",
        };
        let text = format!("{field}  {} -> {}", endpoint(&r.from), endpoint(&r.to));
        add("rewritten", text, Ink::Rewrite);
    }
    if let Some(c) = &step.conntrack {
        let one = |t: &crate::trace::CtTuple| format!("{} -> {}", address(&t.src), address(&t.dst));
        add(
            "conntrack",
            format!("original  {}", one(&c.original)),
            Ink::State,
        );
        add(
            "",
            format!(
                "reply     {}  zone {} mark {:#x}",
                one(&c.reply),
                c.zone,
                c.mark
            ),
            Ink::State,
        );
    }
    if let Some(r) = &step.route {
        let via = r.via.map_or_else(String::new, |v| format!(" via {v}"));
        let table = r.table.map_or_else(String::new, |t| format!(" table {t}"));
        add("route", format!("dev {}{via}{table}", r.dev), Ink::State);
    }
    if let Some(h) = &step.hook {
        let table = h.table.as_deref().unwrap_or("all tables");
        let text = format!(
            "{} {table}: {}  mark {:#x}  {}",
            h.hook,
            h.verdict,
            h.mark,
            h.chains.join(" ")
        );
        add("hook", text, Ink::State);
    }
    if let Some(n) = step.merged {
        add(
            "merged",
            format!("one of {n} packets in one buffer"),
            Ink::Plain,
        );
    }
}

/// The rule behind it, whole; what was worked out is marked.
fn behind(r: &Rule, words: Option<String>, add: &mut impl FnMut(&str, String, Ink)) {
    let name = if r.inferred { "~ rule" } else { "rule" };
    if let Some(words) = words {
        add(name, words, Ink::State);
    } else if let Some(policy) = &r.policy {
        add(name, format!("policy {policy}"), Ink::State);
    }
    if let Some(text) = &r.text {
        let table = r.table.as_deref().unwrap_or_default();
        add("", format!("{table} {text}"), Ink::State);
    }
    // The first is told in the words above.
    for missed in r.missed.iter().skip(1) {
        add(
            "",
            format!("could have let it pass, but {missed}"),
            Ink::State,
        );
    }
    if r.inferred {
        let from = r.from.as_deref().unwrap_or("the node's rules");
        add(
            "",
            format!("the rule is worked out; from: {from}"),
            Ink::Warn,
        );
    }
}

type Pair = (&'static str, Option<String>, Option<String>);

/// Header fields before and after.
fn fields(before: Option<&Step>, after: &Step) -> Vec<Pair> {
    let both = |name, f: &dyn Fn(&Step) -> Option<String>| (name, before.and_then(f), f(after));
    let outer = |f: &dyn Fn(&Tunnel) -> Option<String>| {
        let of = |s: &Step| s.tunnel.as_ref().and_then(f);
        (before.and_then(of), of(after))
    };
    let mut out = vec![
        both("source", &|s| Some(address(&s.src))),
        both("  name", &|s| s.src.name.as_ref().map(ToString::to_string)),
        both("destination", &|s| Some(address(&s.dst))),
        both("  name", &|s| s.dst.name.as_ref().map(ToString::to_string)),
        both("proto", &|s| Some(s.proto.to_string())),
        both("TCP", &|s| {
            s.tcp
                .as_ref()
                .map(|t| format!("[{}] seq {} ack {}", t.flags, t.seq, t.ack))
        }),
        both("ICMP", &|s| {
            s.icmp.map(|i| {
                let mtu = i.mtu.map_or_else(String::new, |m| format!(" mtu {m}"));
                format!("type {} code {}{mtu}", i.kind, i.code)
            })
        }),
        both("TTL", &|s| s.ip.as_ref().map(|ip| ip.ttl.to_string())),
        both("IP id", &|s| s.ip.as_ref().map(|ip| ip.id.to_string())),
        both("fragment", &|s| {
            let ip = s.ip.as_ref()?;
            let offset = ip.frag_offset.unwrap_or(0);
            let more = if ip.more_fragments {
                ", more follow"
            } else {
                ""
            };
            (offset > 0 || ip.more_fragments).then(|| format!("at {offset}{more}"))
        }),
        both("length", &|s| {
            Some(format!("{} B, payload {} B", s.len, s.payload))
        }),
    ];
    let pair = |name, (old, new)| (name, old, new);
    out.push(pair(
        "tunnel",
        outer(&|t| {
            let vni = t.vni.map_or_else(String::new, |v| format!(" vni {v}"));
            Some(format!("{}{vni}", t.kind))
        }),
    ));
    let end = |addr: std::net::IpAddr, port| {
        address(&crate::trace::Endpoint {
            addr,
            port,
            name: None,
        })
    };
    out.push(pair("  outer src", outer(&|t| Some(end(t.src, t.sport)))));
    out.push(pair("  outer dst", outer(&|t| Some(end(t.dst, t.dport)))));
    out.push(both("interface", &|s| {
        (!s.iface.is_empty()).then(|| format!("{} {}", s.node, s.iface))
    }));
    out
}
