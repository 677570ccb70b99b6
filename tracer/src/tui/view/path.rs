//! The chosen packet's way.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Modifier;

use super::{focused, more, put_at, restyle, rule};
use crate::output::text::clean;
use crate::trace::Step;
use crate::tui::app::{App, Pane};
use crate::tui::path::{BESIDE, Kind, Row, TIME, outcome};
use crate::tui::theme::{Ink, Theme};
use crate::tui::width::{pad, width};

pub(super) fn draw(app: &App, theme: Theme, area: Rect, buf: &mut Buffer) {
    if area.height == 0 {
        return;
    }
    let Some(packet) = app.chosen() else {
        rule(buf, area, "path", focused(app, Pane::Path), theme);
        return;
    };
    let over = app.phase == crate::tui::app::Phase::Over;
    let guessed = |s: &Step| s.inferred || s.rule.as_ref().is_some_and(|r| r.inferred);
    let legend = if packet.steps.iter().any(guessed) {
        "   ~ worked out, not observed"
    } else {
        ""
    };
    let title = format!(
        "path of #{} {}  {}{legend}",
        packet.id,
        clean(&packet.summary),
        outcome(packet, over).0
    );
    rule(buf, area, &title, focused(app, Pane::Path), theme);
    let rows = app.path_rows(area.width);
    let offset = app.offsets[Pane::Path as usize];
    let page = usize::from(area.height).saturating_sub(1);
    for (i, row) in rows.iter().skip(offset).take(page).enumerate() {
        line(app, row, i as u16 + 1, theme, area, buf);
    }
    more(buf, area, offset + page < rows.len(), theme);
}

fn line(app: &App, row: &Row, at: u16, theme: Theme, area: Rect, buf: &mut Buffer) {
    let chosen = matches!(row.kind, Kind::Step(i) | Kind::More(i) if i == app.step);
    let here = chosen && matches!(row.kind, Kind::Step(_)) && focused(app, Pane::Path);
    let select = if here { "> " } else { "  " };
    let ink = if row.stop { Ink::BadBadge } else { row.ink };
    let rail = if row.line == "│" {
        Ink::Dim
    } else {
        Ink::Tunnel
    };
    let mut column = put_at(buf, area, 0, at, select, theme.style(Ink::Head));
    column = put_at(buf, area, column, at, row.line, theme.style(rail));
    if row.kind == Kind::Node {
        let text = format!("─ {} ", row.text);
        let column = put_at(buf, area, column, at, &text, theme.style(Ink::Head));
        let rest = usize::from(area.width.saturating_sub(column)).min(24);
        put_at(
            buf,
            area,
            column,
            at,
            &"─".repeat(rest),
            theme.style(Ink::Dim),
        );
        return;
    }
    let inferred = if row.inferred { " ~" } else { "  " };
    column = put_at(buf, area, column, at, inferred, theme.style(Ink::Warn));
    column = put_at(buf, area, column, at, &pad(row.sign, 2), theme.style(ink));
    let room = usize::from(area.width).saturating_sub(BESIDE + TIME);
    let text = if row.stop {
        row.text.clone()
    } else {
        pad(&row.text, room)
    };
    put_at(buf, area, column, at, &text, theme.style(ink));
    if let Some(ns) = row.since {
        let time = format!("+{}.{:03} ms", ns / 1_000_000, ns / 1000 % 1000);
        let place = area.width.saturating_sub(width(&time) as u16 + 1);
        put_at(buf, area, place, at, &time, theme.style(Ink::Dim));
    }
    if chosen && focused(app, Pane::Path) && !row.stop {
        restyle(buf, area, at, Modifier::REVERSED);
    }
}
