//! The keys: one table, from which the footer and the help are made.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

/// What a key asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Quit,
    Back,
    Open,
    Next,
    Previous,
    Up,
    Down,
    PageUp,
    PageDown,
    First,
    Last,
    Fault,
    OnlyFaults,
    Search,
    SearchNext,
    SearchPrevious,
    Filter,
    Follow,
    Pause,
    Compare,
    Verdict,
    Missing,
    Export,
    Zoom,
    Help,
    Suspend,
}

/// A line of the help.
pub(crate) struct Binding {
    pub(crate) action: Action,
    /// As it is shown.
    pub(crate) keys: &'static str,
    /// What it does.
    pub(crate) help: &'static str,
    /// In the footer, if it is worth its place there: the most needed first.
    pub(crate) footer: Option<&'static str>,
    matches: fn(KeyCode) -> bool,
}

macro_rules! key {
    ($action:ident, $keys:literal, $footer:expr, $help:literal, $pattern:pat) => {
        Binding {
            action: Action::$action,
            keys: $keys,
            help: $help,
            footer: $footer,
            matches: |code| matches!(code, $pattern),
        }
    };
}

/// All keys, in the order of the help; the footer takes as many as it has room
/// for.
#[rustfmt::skip]
pub(crate) const KEYS: &[Binding] = &[
    key!(Quit, "q", Some("quit"), "quit; a live trace ends in good order and prints its verdict", KeyCode::Char('q')),
    key!(Help, "?", Some("help"), "this help", KeyCode::Char('?')),
    key!(Fault, "x", Some("first fault"), "to the first packet that ended badly, and the place", KeyCode::Char('x')),
    key!(Verdict, "v", Some("why"), "the verdict in full: evidence, and what to check next", KeyCode::Char('v')),
    key!(Next, "Tab", Some("pane"), "next pane: flows, packets, path, details", KeyCode::Tab),
    key!(Previous, "Shift-Tab", None, "previous pane", KeyCode::BackTab),
    key!(Open, "Enter", Some("open"), "into the flow, the packet, the step's headers", KeyCode::Enter | KeyCode::Right | KeyCode::Char('l')),
    key!(Back, "Esc", None, "back, or close what lies on top", KeyCode::Esc | KeyCode::Left | KeyCode::Backspace | KeyCode::Char('h')),
    key!(Search, "/", Some("search"), "search packets; n and N for the next and the previous", KeyCode::Char('/')),
    key!(Filter, "f", Some("filter"), "show only packets that match; empty shows all", KeyCode::Char('f')),
    key!(OnlyFaults, "e", Some("only faults"), "show only packets that ended badly; again shows all", KeyCode::Char('e')),
    key!(Compare, "c", Some("compare"), "mark this packet; on another one: compare both step by step", KeyCode::Char('c')),
    key!(Export, "w", Some("export"), "write the trace to a file", KeyCode::Char('w')),
    key!(Pause, "p", Some("pause"), "hold the picture still; the capture goes on", KeyCode::Char('p' | ' ')),
    key!(Follow, "t", Some("follow"), "follow the newest packet", KeyCode::Char('t')),
    key!(Missing, "d", None, "what may be missing: losses, degraded hooks, messages", KeyCode::Char('d')),
    key!(Zoom, "z", None, "give the pane all the room; again gives it back", KeyCode::Char('z')),
    key!(Up, "Up, k", None, "up (mouse wheel, too)", KeyCode::Up | KeyCode::Char('k')),
    key!(Down, "Down, j", None, "down (a click selects)", KeyCode::Down | KeyCode::Char('j')),
    key!(PageUp, "PageUp", None, "a page up", KeyCode::PageUp),
    key!(PageDown, "PageDown", None, "a page down", KeyCode::PageDown),
    key!(First, "Home, g", None, "to the first", KeyCode::Home | KeyCode::Char('g')),
    key!(Last, "End, G", None, "to the last", KeyCode::End | KeyCode::Char('G')),
    key!(SearchNext, "n", None, "next match", KeyCode::Char('n')),
    key!(SearchPrevious, "N", None, "previous match", KeyCode::Char('N')),
    key!(Suspend, "Ctrl-Z", None, "to the shell; `fg` comes back (events wait in the kernel's buffer)", KeyCode::F(63)),
];

/// What a key asks for, outside of a line that is being typed.
pub(crate) fn action(key: KeyEvent) -> Option<Action> {
    if key.modifiers.contains(KeyModifiers::CONTROL) {
        return match key.code {
            KeyCode::Char('c') => Some(Action::Quit),
            KeyCode::Char('z') => Some(Action::Suspend),
            KeyCode::Char('f') => Some(Action::PageDown),
            KeyCode::Char('b') => Some(Action::PageUp),
            _ => None,
        };
    }
    KEYS.iter()
        .find(|b| (b.matches)(key.code))
        .map(|b| b.action)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_key_means_two_things() {
        let printable = (32..127u8).map(|c| KeyCode::Char(c as char));
        let others = [KeyCode::Tab, KeyCode::Enter, KeyCode::Esc, KeyCode::Up];
        for code in printable.chain(others) {
            let meant = KEYS.iter().filter(|b| (b.matches)(code)).count();
            assert!(meant <= 1, "{code:?}");
        }
    }

    #[test]
    fn the_first_key_shown_does_what_the_help_says() {
        for binding in KEYS.iter().filter(|b| b.keys.len() == 1) {
            let code = KeyCode::Char(binding.keys.chars().next().unwrap());
            let key = KeyEvent::new(code, KeyModifiers::NONE);
            assert_eq!(action(key), Some(binding.action), "{}", binding.keys);
        }
        let stop = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert_eq!(action(stop), Some(Action::Quit));
    }
}
