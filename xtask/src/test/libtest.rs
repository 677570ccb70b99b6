//! Reads what Rust's own test runner prints.

use std::process::Command;

use anyhow::Result;

use crate::process;

/// Tests, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) passed: usize,
    pub(crate) failed: usize,
    pub(crate) ignored: usize,
    /// The runner ended badly; with no failed test it did not get to the end, or was not even built.
    pub(crate) crashed: bool,
}

impl Counts {
    pub(crate) fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.ignored += other.ignored;
        self.crashed |= other.crashed;
    }

    /// Adds what a line of output says, if it is a runner's last:
    /// `test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.01s`.
    pub(crate) fn read(&mut self, line: &str) {
        let Some((_, numbers)) = line
            .trim()
            .strip_prefix("test result: ")
            .and_then(|rest| rest.split_once(". "))
        else {
            return;
        };
        for part in numbers.split(';') {
            let mut words = part.split_whitespace();
            let (Some(Ok(number)), Some(what)) =
                (words.next().map(str::parse::<usize>), words.next())
            else {
                continue;
            };
            match what {
                "passed" => self.passed += number,
                "failed" => self.failed += number,
                "ignored" => self.ignored += number,
                _ => {}
            }
        }
    }
}

/// Runs a test runner (or `cargo test`), shows what it says, and counts.
pub(crate) fn run(command: &mut Command) -> Result<Counts> {
    let mut counts = Counts::default();
    let ended_well = process::stream(command, |line| {
        println!("{line}");
        counts.read(line);
    })?;
    counts.crashed = !ended_well;
    Ok(counts)
}

#[cfg(test)]
mod tests {
    use super::Counts;

    #[test]
    fn reads_the_last_line_of_a_runner_only() {
        let mut counts = Counts::default();
        counts.read("test lab::two_nodes ... ok");
        counts.read("test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 2 filtered out; finished in 0.01s");
        counts.read("test result: FAILED. 0 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1s");
        assert_eq!(counts.passed, 3);
        assert_eq!(counts.failed, 2);
        assert_eq!(counts.ignored, 1);
    }
}
