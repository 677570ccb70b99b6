//! The screen, from the state. Pure: it draws into a buffer and changes nothing.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};

use super::app::{App, Pane};
use super::layout::{self, LEAST};
use super::theme::{Ink, Theme};
use super::top;
use super::width::{clip, width};
use crate::output::text::clean;

pub(crate) mod details;
mod foot;
pub(crate) mod head;
mod lists;
mod path;

/// Draws all of it.
pub(crate) fn draw(app: &App, theme: Theme, buf: &mut Buffer) {
    let areas = layout::areas(app);
    if areas.small {
        let (columns, rows) = LEAST;
        let text = format!("too small: tracer needs {columns}x{rows} (q quits)");
        put(buf, buf.area, 0, &text, theme.style(Ink::Head));
        return;
    }
    head::draw(app, theme, &areas, buf);
    foot::draw(app, theme, areas.footer, buf);
    if let Some(top) = &app.top {
        rule(buf, areas.main, &top::title(top), true, theme);
        let lines = top::lines(app, top, usize::from(areas.main.width));
        let page = usize::from(areas.main.height).saturating_sub(1);
        let shown = lines.iter().skip(app.scroll).take(page);
        for (i, line) in shown.enumerate() {
            pieces(buf, areas.main, i as u16 + 1, line, theme);
        }
        more(buf, areas.main, app.scroll + page < lines.len(), theme);
        return;
    }
    lists::flows(app, theme, areas.flows, buf);
    lists::packets(app, theme, areas.packets, buf);
    path::draw(app, theme, areas.path, buf);
    details::draw(app, theme, areas.details, buf);
}

/// Text in a row of a part; nothing of it can leave the part or be obeyed by
/// the terminal. The column after it.
fn put(buf: &mut Buffer, area: Rect, row: u16, text: &str, style: Style) -> u16 {
    put_at(buf, area, 0, row, text, style)
}

fn put_at(buf: &mut Buffer, area: Rect, column: u16, row: u16, text: &str, style: Style) -> u16 {
    if row >= area.height || column >= area.width {
        return column;
    }
    let room = usize::from(area.width - column);
    let text = clip(&clean(text), room);
    let (end, _) = buf.set_stringn(area.x + column, area.y + row, &text, room, style);
    end - area.x
}

/// A row of pieces.
fn pieces(buf: &mut Buffer, area: Rect, row: u16, line: &[(String, Ink)], theme: Theme) {
    let mut column = 0;
    for (text, ink) in line {
        column = put_at(buf, area, column, row, text, theme.style(*ink));
    }
}

/// Gives a whole row a style on top of what is there.
fn restyle(buf: &mut Buffer, area: Rect, row: u16, modifier: Modifier) {
    if row < area.height {
        let line = Rect {
            y: area.y + row,
            height: 1,
            ..area
        };
        buf.set_style(line, Style::new().add_modifier(modifier));
    }
}

/// A pane's title: a rule, its name in it; the one that keys go to stands out
/// without colour, too.
fn rule(buf: &mut Buffer, area: Rect, title: &str, focused: bool, theme: Theme) {
    if area.height == 0 {
        return;
    }
    let line = "─".repeat(usize::from(area.width));
    put(buf, area, 0, &line, theme.style(Ink::Dim));
    let (text, style) = if focused {
        (format!("[ {title} ]"), theme.selected(Ink::Head))
    } else {
        (format!("  {title}  "), theme.style(Ink::Head))
    };
    put_at(buf, area, 1, 0, &text, style);
}

/// Says that there is more below.
fn more(buf: &mut Buffer, area: Rect, there_is: bool, theme: Theme) {
    if there_is && area.height > 1 {
        let text = " more below ";
        let column = area.width.saturating_sub(width(text) as u16 + 1);
        put_at(buf, area, column, 0, text, theme.style(Ink::Head));
    }
}

/// Whether the keys go to this pane.
fn focused(app: &App, pane: Pane) -> bool {
    app.focus == pane && app.top.is_none()
}
