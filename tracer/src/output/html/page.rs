//! The only way into the page: tags are ours, text is escaped.

use std::fmt::Write as _;

use super::super::text::clean;

/// A page in the making.
#[derive(Default)]
pub(super) struct Page {
    html: String,
}

impl Page {
    /// Markup of ours; never text from outside.
    pub(super) fn raw(&mut self, markup: &str) -> &mut Self {
        self.html.push_str(markup);
        self
    }

    /// Text.
    pub(super) fn text(&mut self, text: &str) -> &mut Self {
        escape(text, false, &mut self.html);
        self
    }

    /// Text of several lines.
    pub(super) fn lines(&mut self, text: &str) -> &mut Self {
        escape(text, true, &mut self.html);
        self
    }

    /// `<tag class="class">text</tag>`.
    pub(super) fn tag(&mut self, tag: &str, class: &str, text: &str) -> &mut Self {
        let class = if class.is_empty() {
            String::new()
        } else {
            format!(" class=\"{class}\"")
        };
        let _ = write!(self.html, "<{tag}{class}>");
        self.text(text);
        let _ = write!(self.html, "</{tag}>");
        self
    }

    pub(super) fn finish(self) -> String {
        self.html
    }
}

/// Nothing of a text can be markup, in an element or in a quoted attribute.
fn escape(text: &str, lines: bool, out: &mut String) {
    for (i, line) in text.split('\n').enumerate() {
        if i > 0 {
            out.push_str(if lines { "\n" } else { "\\n" });
        }
        for c in clean(line).chars() {
            match c {
                '<' => out.push_str("&lt;"),
                '>' => out.push_str("&gt;"),
                '&' => out.push_str("&amp;"),
                '"' => out.push_str("&quot;"),
                '\'' => out.push_str("&#39;"),
                c => out.push(c),
            }
        }
    }
}
