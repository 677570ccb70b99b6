//! Colours and emphasis. The terminal's own sixteen colours and no background:
//! what is readable is the terminal's theme's to say. Colour is never the only
//! sign of anything.

use ratatui::style::{Color, Modifier, Style};

use crate::trace::StepKind;

/// What a piece of text is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ink {
    Plain,
    Dim,
    Head,
    Rewrite,
    Tunnel,
    State,
    Good,
    Bad,
    Warn,
    /// A badge that must be seen first.
    GoodBadge,
    BadBadge,
    WarnBadge,
}

/// With or without colour.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Theme {
    pub(crate) color: bool,
}

impl Theme {
    /// The style of an ink.
    pub(crate) fn style(self, ink: Ink) -> Style {
        let plain = Style::new();
        let bold = plain.add_modifier(Modifier::BOLD);
        let badge = bold.add_modifier(Modifier::REVERSED);
        let (style, color) = match ink {
            Ink::Plain => (plain, None),
            Ink::Dim => (plain.add_modifier(Modifier::DIM), None),
            Ink::Head => (bold, None),
            Ink::Rewrite => (plain, Some(Color::Yellow)),
            Ink::Tunnel => (plain, Some(Color::Cyan)),
            Ink::State => (plain, Some(Color::Blue)),
            Ink::Good => (plain, Some(Color::Green)),
            Ink::Bad => (bold, Some(Color::Red)),
            Ink::Warn => (bold, Some(Color::Yellow)),
            Ink::GoodBadge => (badge, Some(Color::Green)),
            Ink::BadBadge => (badge, Some(Color::Red)),
            Ink::WarnBadge => (badge, Some(Color::Yellow)),
        };
        match color.filter(|_| self.color) {
            Some(color) => style.fg(color),
            None => style,
        }
    }

    /// The same on a selected line.
    pub(crate) fn selected(self, ink: Ink) -> Style {
        self.style(ink).add_modifier(Modifier::REVERSED)
    }
}

/// The ink of a kind of step.
pub(crate) fn ink(kind: StepKind) -> Ink {
    match kind {
        StepKind::Ingress | StepKind::Egress => Ink::Plain,
        StepKind::Dnat
        | StepKind::Snat
        | StepKind::Masquerade
        | StepKind::UnDnat
        | StepKind::UnSnat => Ink::Rewrite,
        StepKind::Encap | StepKind::Decap => Ink::Tunnel,
        StepKind::ConntrackNew | StepKind::Route | StepKind::Policy | StepKind::Hook => Ink::State,
        StepKind::Drop | StepKind::Reject | StepKind::FragmentNeeded => Ink::Bad,
        StepKind::Deliver => Ink::Good,
    }
}
