//! Text of a known width in columns.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Columns of a text.
pub(crate) fn width(text: &str) -> usize {
    UnicodeWidthStr::width(text)
}

/// At most so many columns, with a sign where something was left out.
pub(crate) fn clip(text: &str, room: usize) -> String {
    if width(text) <= room {
        return text.to_owned();
    }
    let mut out = String::new();
    let mut used = 0;
    for c in text.chars() {
        let w = c.width().unwrap_or(0);
        if used + w + 1 > room {
            break;
        }
        used += w;
        out.push(c);
    }
    if room > 0 {
        out.push('…');
    }
    out
}

/// Exactly so many columns.
pub(crate) fn pad(text: &str, room: usize) -> String {
    let mut out = clip(text, room);
    let used = width(&out);
    out.extend(std::iter::repeat_n(' ', room.saturating_sub(used)));
    out
}

/// Lines of at most so many columns, broken between words where that is
/// possible. Never empty.
pub(crate) fn wrap(text: &str, room: usize) -> Vec<String> {
    let room = room.max(8);
    let mut lines = Vec::new();
    let mut line = String::new();
    let mut used = 0;
    for (i, word) in text.split(' ').enumerate() {
        let wide = width(word);
        if used > 0 && used + 1 + wide > room {
            lines.push(std::mem::take(&mut line));
            used = 0;
        } else if i > 0 {
            line.push(' ');
            used += 1;
        }
        for c in word.chars() {
            let w = c.width().unwrap_or(0);
            if used + w > room {
                lines.push(std::mem::take(&mut line));
                used = 0;
            }
            line.push(c);
            used += w;
        }
    }
    lines.push(line);
    lines.into_iter().map(|l| l.trim_end().to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wide_characters_count_twice() {
        assert_eq!(width("日本"), 4);
        assert_eq!(clip("日本語", 5), "日本…");
        assert_eq!(pad("日", 4), "日  ");
        assert_eq!(wrap("日本語日本語 ab", 8), ["日本語日", "本語 ab"]);
    }

    #[test]
    fn lines_keep_to_their_room() {
        assert_eq!(wrap("", 10), [""]);
        assert_eq!(wrap("one two three", 8), ["one two", "three"]);
        assert_eq!(wrap("0123456789ab", 8), ["01234567", "89ab"]);
        assert_eq!(wrap("  a  b", 8), ["  a  b"]);
    }
}
