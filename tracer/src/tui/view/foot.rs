//! The last line: a line that is typed, a message, or the keys.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::{put, put_at};
use crate::output::format::FORMATS;
use crate::tui::app::keys::KEYS;
use crate::tui::app::{App, Prompt};
use crate::tui::theme::{Ink, Theme};
use crate::tui::width::width;

pub(super) fn draw(app: &App, theme: Theme, area: Rect, buf: &mut Buffer) {
    if let Some(prompt) = &app.prompt {
        let why = app.message.as_ref().map(|(text, _)| text.as_str());
        typed(prompt, why, theme, area, buf);
        return;
    }
    if let Some((text, ink)) = &app.message {
        put(buf, area, 0, text, theme.style(*ink));
        return;
    }
    let mut column = 0;
    for (keys, what) in KEYS.iter().filter_map(|b| Some((b.keys, b.footer?))) {
        let room = usize::from(area.width.saturating_sub(column));
        if width(keys) + width(what) + 1 > room {
            break;
        }
        column = put_at(buf, area, column, 0, keys, theme.selected(Ink::Head));
        column = put_at(
            buf,
            area,
            column,
            0,
            &format!(" {what}  "),
            theme.style(Ink::Plain),
        );
    }
}

fn typed(prompt: &Prompt, why: Option<&str>, theme: Theme, area: Rect, buf: &mut Buffer) {
    let (lead, text) = match prompt {
        Prompt::Search(text) => ("search: ".to_owned(), text),
        Prompt::Filter(text) => ("show only: ".to_owned(), text),
        Prompt::Export(format, name) => {
            let formats: Vec<String> = FORMATS
                .iter()
                .enumerate()
                .map(|(i, f)| {
                    if i == *format {
                        format!("[{}]", f.name)
                    } else {
                        f.name.to_owned()
                    }
                })
                .collect();
            (format!("export (Tab) {} to: ", formats.join(" ")), name)
        }
    };
    let lead = match why {
        Some(why) => format!("{why}  {lead}"),
        None => lead,
    };
    // The end of a long line is what is being typed.
    let room = usize::from(area.width).saturating_sub(2);
    let lead = if width(&lead) > room / 2 && width(&lead) + width(text) > room {
        crate::tui::width::clip(&lead, room / 2)
    } else {
        lead
    };
    let column = put(buf, area, 0, &lead, theme.style(Ink::Head));
    let room = usize::from(area.width.saturating_sub(column)).saturating_sub(1);
    let mut tail = text.as_str();
    while width(tail) > room {
        let mut rest = tail.chars();
        rest.next();
        tail = rest.as_str();
    }
    let column = put_at(buf, area, column, 0, tail, theme.style(Ink::Plain));
    put_at(buf, area, column, 0, " ", theme.selected(Ink::Plain));
}
