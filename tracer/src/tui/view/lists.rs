//! Flows, and the packets of the chosen one.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Modifier;

use super::{focused, more, pieces, put, restyle, rule};
use crate::output::text::{address, clean, endpoint};
use crate::trace::{Flow, Packet};
use crate::tui::app::{App, Pane, Phase};
use crate::tui::model::Entry;
use crate::tui::path::{direction, outcome};
use crate::tui::theme::{Ink, Theme};
use crate::tui::width::{pad, width};

/// Rows of a list that are on the screen, with their places in it.
fn window<T>(list: &[T], offset: usize, area: Rect) -> impl Iterator<Item = (u16, &T)> {
    let page = usize::from(area.height).saturating_sub(1);
    let shown = list.iter().skip(offset).take(page);
    shown.enumerate().map(|(i, item)| (i as u16 + 1, item))
}

pub(super) fn flows(app: &App, theme: Theme, area: Rect, buf: &mut Buffer) {
    if area.height == 0 {
        return;
    }
    let all = &app.model.visible;
    let place = app.flow.map_or(0, |f| all.partition_point(|x| *x <= f));
    let title = match app.model.flow_count() - all.len().min(app.model.flow_count()) {
        0 => format!("flows  {place}/{}", all.len()),
        hidden => format!("flows  {place}/{}, {hidden} hidden", all.len()),
    };
    rule(buf, area, &title, focused(app, Pane::Flows), theme);
    let offset = app.offsets[Pane::Flows as usize];
    for (row, id) in window(all, offset, area) {
        let Some(entry) = app.model.flow(*id) else {
            continue;
        };
        let chosen = app.flow == Some(*id);
        pieces(buf, area, row, &flow(entry, chosen, area.width), theme);
        mark(app, Pane::Flows, chosen, buf, area, row);
    }
    let page = usize::from(area.height).saturating_sub(1);
    more(buf, area, offset + page < all.len(), theme);
    if all.is_empty() {
        put(buf, area, 1, &nothing(app), theme.style(Ink::Dim));
    }
}

/// Why the lists are empty.
fn nothing(app: &App) -> String {
    let text = match app.phase {
        Phase::Loading { .. } => "  reading the recording ...",
        _ if app.model.filtered() && app.model.kept() > 0 => {
            "  no packet matches; f changes the filter, e shows all"
        }
        Phase::Live => "  no packet of it yet: waiting for traffic",
        _ => "  no packet was seen",
    };
    text.to_owned()
}

/// Where the selection is.
fn mark(app: &App, pane: Pane, chosen: bool, buf: &mut Buffer, area: Rect, row: u16) {
    if chosen && focused(app, pane) {
        restyle(buf, area, row, Modifier::REVERSED);
    } else if chosen {
        restyle(buf, area, row, Modifier::BOLD);
    }
}

fn select(chosen: bool) -> &'static str {
    if chosen { "> " } else { "  " }
}

fn flow(entry: &Entry, chosen: bool, columns: u16) -> Vec<(String, Ink)> {
    let Flow {
        proto,
        client,
        server,
        backend,
        state,
        ..
    } = &entry.flow;
    let faults = match entry.faults {
        0 => String::new(),
        1 => "  ✗ 1 fault".to_owned(),
        n => format!("  ✗ {n} faults"),
    };
    let state = clean(state);
    let tail = width(&state) + width(&faults) + 2;
    let behind = backend
        .as_ref()
        .map_or_else(String::new, |b| format!(" = {}", endpoint(b)));
    let ends = format!(
        "{proto} {} -> {}{behind}",
        endpoint(client),
        endpoint(server)
    );
    let room = usize::from(columns).saturating_sub(tail + 3);
    let short = format!("{proto} {} -> {}", address(client), address(server));
    // Names where there is room for them, else addresses.
    let ends = clean(&ends);
    let ends = if width(&ends) > room {
        clean(&short)
    } else {
        ends
    };
    let ink = match &*entry.flow.state {
        "dropped" | "rejected" | "unanswered" => Ink::Bad,
        _ => Ink::Plain,
    };
    vec![
        (select(chosen).to_owned(), Ink::Head),
        (pad(&ends, room), Ink::Plain),
        (format!(" {state}"), ink),
        (faults, Ink::Bad),
    ]
}

pub(super) fn packets(app: &App, theme: Theme, area: Rect, buf: &mut Buffer) {
    if area.height == 0 {
        return;
    }
    let all = app.model.shown(app.flow);
    let place = app.packet.map_or(0, |p| all.partition_point(|x| *x <= p));
    let of = app
        .flow
        .map_or_else(String::new, |f| format!(" of flow {f}"));
    let title = format!("packets{of}  {place}/{}", all.len());
    rule(buf, area, &title, focused(app, Pane::Packets), theme);
    let offset = app.offsets[Pane::Packets as usize];
    let first = app
        .model
        .packets()
        .next()
        .and_then(|p| p.steps.first())
        .map_or(0, |s| s.ts);
    for (row, id) in window(all, offset, area) {
        let Some(p) = app.model.packet(*id) else {
            continue;
        };
        let chosen = app.packet == Some(*id);
        pieces(buf, area, row, &packet(app, p, chosen, first), theme);
        mark(app, Pane::Packets, chosen, buf, area, row);
    }
    let page = usize::from(area.height).saturating_sub(1);
    more(buf, area, offset + page < all.len(), theme);
}

/// Seconds and milliseconds since the first packet that is kept.
fn since(packet: &Packet, first: u64) -> String {
    let at = packet.steps.first().map_or(first, |s| s.ts);
    let ms = at.saturating_sub(first) / 1_000_000;
    format!("{}.{:03} s", ms / 1000, ms % 1000)
}

fn packet(app: &App, p: &Packet, chosen: bool, first: u64) -> Vec<(String, Ink)> {
    let over = app.phase == Phase::Over;
    let (became, ink) = outcome(p, over);
    let tried = if p.attempt > 1 {
        format!("try {}  ", p.attempt)
    } else {
        String::new()
    };
    let marked = if app.mark.as_ref().is_some_and(|m| m.id == p.id) {
        "[A]  "
    } else {
        ""
    };
    let place = p.steps.last().map_or_else(String::new, |s| {
        clean(format!("{} {}", s.node, s.iface).trim())
    });
    let summary = clean(&p.summary);
    vec![
        (select(chosen).to_owned(), Ink::Head),
        (pad(&format!("#{}", p.id), 6), Ink::Plain),
        (pad(&since(p, first), 11), Ink::Dim),
        (pad(direction(p.direction), 11), Ink::Plain),
        (pad(&summary, 16), Ink::Plain),
        (pad(became, 17), ink),
        (format!("{tried}{marked}"), Ink::Warn),
        (place, Ink::Plain),
    ]
}
