//! `tracer explain`: what a finding means.

use std::io::{self, Write};

use super::{Failure, Outcome};
use crate::diagnose::{self, Page};

/// Arguments of `tracer explain`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// A finding's code, as `policy-drop`; none lists all
    code: Option<String>,
}

/// Width of the text in columns.
const WIDTH: usize = 78;

/// Runs `tracer explain`.
pub fn run(args: &Args) -> Outcome {
    let mut out = Vec::new();
    match &args.code {
        None => list(&mut out)?,
        Some(code) => {
            let page = diagnose::page(code).ok_or_else(|| {
                Failure::usage(format!(
                    "no finding has the code {code:?}; `tracer explain` lists all"
                ))
            })?;
            write(&mut out, page)?;
        }
    }
    io::stdout().write_all(&out)?;
    Ok(0)
}

fn list(out: &mut dyn Write) -> io::Result<()> {
    let longest = diagnose::pages().map(|p| p.code.len()).max().unwrap_or(0);
    for page in diagnose::pages() {
        writeln!(out, "{:longest$}  {}", page.code, page.title)?;
    }
    Ok(())
}

fn write(out: &mut dyn Write, page: &Page) -> io::Result<()> {
    writeln!(out, "{}: {}", page.code, page.title)?;
    for (title, text) in [
        ("What it means", page.meaning),
        ("How it is told", page.told),
        ("What rules it out", page.ruled_out),
    ] {
        writeln!(out, "\n{title}")?;
        for line in wrapped(text) {
            writeln!(out, "  {line}")?;
        }
    }
    if !page.next.is_empty() {
        writeln!(out, "\nWhat to check next")?;
        for command in page.next {
            writeln!(out, "  {command}")?;
        }
    }
    Ok(())
}

/// Lines of at most [`WIDTH`] columns; a longer word has a line of its own.
fn wrapped(text: &str) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.is_empty() => line.push_str(word),
            Some(line) if line.len() + 1 + word.len() <= WIDTH => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_code_has_one_whole_page() {
        let mut codes = BTreeSet::new();
        for page in diagnose::pages() {
            assert!(codes.insert(page.code), "{} twice", page.code);
            let plain = |c: char| c.is_ascii_lowercase() || c == '-';
            assert!(page.code.chars().all(plain), "{}", page.code);
            for text in [page.title, page.meaning, page.told, page.ruled_out] {
                assert!(!text.trim().is_empty(), "{}", page.code);
            }
        }
        assert!(codes.len() > 40, "{codes:?}");
    }

    #[test]
    fn lines_are_wrapped() {
        let text = "word ".repeat(40);
        let lines = wrapped(&text);
        assert!(lines.iter().all(|l| l.len() <= WIDTH), "{lines:?}");
        assert_eq!(lines.join(" "), text.trim());
    }
}
