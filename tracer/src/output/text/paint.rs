//! Colour: never the only sign of anything.

/// What a piece of text is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ink {
    Plain,
    Dim,
    Head,
    Rewrite,
    Tunnel,
    State,
    Good,
    Bad,
}

/// Puts colour on, or not.
#[derive(Clone, Copy, Debug)]
pub(super) struct Paint {
    on: bool,
}

impl Paint {
    pub(super) fn new(on: bool) -> Self {
        Self { on }
    }

    pub(super) fn on(self, ink: Ink, text: &str) -> String {
        // ECMA-48 SGR; the eight old colours follow the terminal's theme.
        let code = match ink {
            _ if !self.on => return text.to_owned(),
            Ink::Plain => return text.to_owned(),
            Ink::Dim => "2",
            Ink::Head => "1",
            Ink::Rewrite => "33",
            Ink::Tunnel => "36",
            Ink::State => "34",
            Ink::Good => "32",
            Ink::Bad => "1;31",
        };
        format!("\x1b[{code}m{text}\x1b[0m")
    }
}
