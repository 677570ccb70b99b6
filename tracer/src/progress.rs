//! A line on standard error that says how far long work is.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use crate::interrupt::{self, Caring};

/// Work that is done sooner shows nothing.
const PATIENCE: Duration = Duration::from_millis(500);
/// Between two looks at the same line.
const EVERY: Duration = Duration::from_millis(100);
/// Longest name in the line, in characters.
const NAME: usize = 40;

/// Goes to the line's start and empties it.
pub(crate) const CLEAR: &str = "\r\x1b[K";

/// How far some work is. The line goes away when this is dropped.
#[derive(Debug)]
pub struct Progress {
    what: String,
    total: Option<u64>,
    begun: Instant,
    shown: Option<Instant>,
    caring: Option<Caring>,
    on: bool,
    done: u64,
}

impl Progress {
    /// Work such as `reading trace.jsonl`, of so many bytes or items where that
    /// is known. Nothing is shown when `quiet`, and nothing but on a terminal.
    pub fn new(what: &str, total: Option<u64>, quiet: bool) -> Self {
        let dumb = || std::env::var_os("TERM").is_none_or(|t| t == "dumb");
        Self {
            what: named(what),
            total: total.filter(|n| *n > 0),
            begun: Instant::now(),
            shown: None,
            caring: None,
            on: !quiet && io::stderr().is_terminal() && !dumb(),
            done: 0,
        }
    }

    /// Tells that so much is done. Cheap, but not free: once in a thousand
    /// items is often enough.
    pub fn at(&mut self, done: u64) {
        self.done = done;
        if !self.on || !due(self.begun.elapsed(), self.shown.map(|t| t.elapsed())) {
            return;
        }
        self.shown = Some(Instant::now());
        self.caring.get_or_insert_with(interrupt::care);
        let text = line(&self.what, done, self.total, self.begun.elapsed());
        interrupt::line(true);
        let mut err = io::stderr().lock();
        let _ = err.write_all(format!("{CLEAR}{text}").as_bytes());
        let _ = err.flush();
    }

    /// What was told last, and of how much, where that is known.
    pub fn told(&self) -> (u64, Option<u64>) {
        (self.done, self.total)
    }

    /// Shows nothing from now on: the result is being printed.
    pub fn hush(&mut self) {
        if self.on {
            clear();
        }
        self.on = false;
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.shown.is_some() {
            clear();
        }
    }
}

/// Takes the line away, so that something else can be said.
pub fn clear() {
    if interrupt::line(false) {
        let _ = io::stderr().write_all(CLEAR.as_bytes());
    }
}

fn due(since: Duration, shown: Option<Duration>) -> bool {
    match shown {
        None => since >= PATIENCE,
        Some(ago) => ago >= EVERY,
    }
}

fn line(what: &str, done: u64, total: Option<u64>, since: Duration) -> String {
    match total {
        Some(total) => {
            let percent = u128::from(done.min(total)) * 100 / u128::from(total);
            format!("{what}: {percent} %")
        }
        None => format!("{what}: {} s", since.as_secs()),
    }
}

/// Shortened, and without what could move the cursor.
fn named(what: &str) -> String {
    let text: String = what
        .chars()
        .map(|c| {
            let plain = c.is_ascii_graphic() || c == ' ' || c.is_alphanumeric();
            if plain { c } else { '?' }
        })
        .collect();
    let over = text.chars().count().saturating_sub(NAME);
    if over == 0 {
        return text;
    }
    // The end of a path tells more than its beginning; the verb stays.
    let (verb, rest) = text.split_once(' ').unwrap_or(("", &text));
    let tail: String = rest.chars().skip(over + 1).collect();
    format!("{verb} …{tail}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_work_shows_nothing_and_long_work_not_too_often() {
        let ms = Duration::from_millis;
        assert!(!due(ms(499), None));
        assert!(due(ms(500), None));
        assert!(!due(ms(900), Some(ms(99))));
        assert!(due(ms(900), Some(ms(100))));
    }

    #[test]
    fn the_line_says_how_far_it_is() {
        let since = Duration::from_secs(3);
        assert_eq!(line("reading a", 1, Some(3), since), "reading a: 33 %");
        assert_eq!(line("reading a", 9, Some(3), since), "reading a: 100 %");
        assert_eq!(line("reading a", 9, None, since), "reading a: 3 s");
        let huge = line("reading a", u64::MAX - 1, Some(u64::MAX), since);
        assert_eq!(huge, "reading a: 99 %");
    }

    #[test]
    fn names_are_short_and_harmless() {
        assert_eq!(named("reading a\x1b[2Jb\u{202e}"), "reading a?[2Jb?");
        let long = named(&format!("reading {}/trace.jsonl", "x".repeat(300)));
        assert!(
            long.starts_with("reading …") && long.ends_with("/trace.jsonl"),
            "{long}"
        );
        assert_eq!(long.chars().count(), NAME);
    }

    #[test]
    fn nothing_without_a_terminal_or_when_quiet() {
        assert!(!Progress::new("reading a", Some(1), true).on);
    }
}
