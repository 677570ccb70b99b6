//! Which part of the screen is whose. Pure: from size and state.

use ratatui::layout::Rect;

use super::app::{App, Pane};
use super::view::head;

/// Below this there is only a line that says so.
pub(crate) const LEAST: (u16, u16) = (50, 14);
/// From this width on, two columns.
const WIDE: u16 = 140;
/// From this height on, details are always there.
const TALL: u16 = 34;

/// The parts; empty where they are not shown. Each pane's first row is its
/// title.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Areas {
    pub(crate) head: Rect,
    pub(crate) status: Rect,
    pub(crate) main: Rect,
    pub(crate) flows: Rect,
    pub(crate) packets: Rect,
    pub(crate) path: Rect,
    pub(crate) details: Rect,
    pub(crate) footer: Rect,
    /// Too small for anything.
    pub(crate) small: bool,
}

impl Areas {
    /// A pane's part.
    pub(crate) fn pane(&self, pane: Pane) -> Rect {
        match pane {
            Pane::Flows => self.flows,
            Pane::Packets => self.packets,
            Pane::Path => self.path,
            Pane::Details => self.details,
        }
    }

    /// The pane at a place.
    pub(crate) fn at(&self, column: u16, row: u16) -> Option<Pane> {
        Pane::ALL
            .into_iter()
            .find(|p| self.pane(*p).contains((column, row).into()))
    }
}

/// Cuts `rows` from the top of `rest`.
fn cut(rest: &mut Rect, rows: u16) -> Rect {
    let rows = rows.min(rest.height);
    let part = Rect {
        height: rows,
        ..*rest
    };
    rest.y += rows;
    rest.height -= rows;
    part
}

/// The parts for this state.
pub(crate) fn areas(app: &App) -> Areas {
    let (width, height) = app.size;
    let mut rest = Rect::new(0, 0, width, height);
    let mut out = Areas::default();
    if width < LEAST.0 || height < LEAST.1 {
        out.small = true;
        return out;
    }
    let most = if height < 30 { 3 } else { 5 };
    let lines = head::lines(app, width).len().min(most);
    out.head = cut(&mut rest, lines as u16);
    out.status = cut(&mut rest, 1);
    let rows = rest.height - 1;
    let main = cut(&mut rest, rows);
    out.footer = rest;
    out.main = main;
    if let Some(pane) = app.zoomed() {
        match pane {
            Pane::Flows => out.flows = main,
            Pane::Packets => out.packets = main,
            Pane::Path => out.path = main,
            Pane::Details => out.details = main,
        }
        return out;
    }
    if width >= WIDE {
        wide(app, main, &mut out);
    } else {
        stacked(app, main, &mut out);
    }
    out
}

fn wide(app: &App, main: Rect, out: &mut Areas) {
    let column = (main.width * 9 / 20).min(96);
    let mut left = Rect {
        width: column - 1,
        ..main
    };
    let mut right = Rect {
        x: column,
        width: main.width - column,
        ..main
    };
    let flows = (app.model.visible.len() as u16).clamp(2, main.height / 3) + 1;
    out.flows = cut(&mut left, flows);
    out.packets = left;
    let details = (main.height * 2 / 5).min(18);
    out.path = cut(&mut right, main.height - details);
    out.details = right;
}

fn stacked(app: &App, main: Rect, out: &mut Areas) {
    let mut rest = main;
    let tall = main.height + 5 >= TALL;
    if app.details && !tall {
        // Headers need room: the lists give way.
        out.path = cut(&mut rest, main.height / 2 - 1);
        out.details = rest;
        return;
    }
    let flows = app.model.visible.len() as u16;
    let packets = app.model.shown(app.flow).len() as u16;
    let focused = |pane, more, less| if app.focus == pane { more } else { less };
    let room = main.height / 4;
    out.flows = cut(
        &mut rest,
        flows.clamp(1, focused(Pane::Flows, room.max(3), 2)) + 1,
    );
    let most = focused(Pane::Packets, room.max(5), (room - 1).max(4));
    out.packets = cut(&mut rest, packets.clamp(1, most) + 1);
    if tall {
        let details = (main.height / 3).min(16);
        let rows = rest.height - details;
        out.path = cut(&mut rest, rows);
        out.details = rest;
    } else {
        out.path = rest;
    }
}
