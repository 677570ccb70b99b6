//! One case: break the laboratory, follow the traffic, compare.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

use serde::Deserialize;
use tracer_tests::lab::fault;

use crate::run::{Done, follow};
use crate::traffic::Outcome;
use crate::world::lab;

/// A row of the table.
pub(crate) struct Case {
    /// The fault's name.
    pub(crate) fault: &'static str,
    /// What else is wrong at the same time.
    pub(crate) with: &'static [&'static str],
    /// What is followed.
    pub(crate) follow: &'static [&'static str],
    /// The traffic that shows the fault, and what the client lives through.
    pub(crate) traffic: fn() -> Outcome,
    pub(crate) witness: Outcome,
    /// What works all the same, if anything is worth telling apart.
    pub(crate) works: Option<fn() -> Outcome>,
    /// The code of the verdict.
    pub(crate) code: &'static str,
    /// Findings that are listed beside it, as `SEVERITY CODE`.
    pub(crate) also: &'static [&'static str],
    /// The nodes that the verdict may name; it names one of them. None where there is no one place.
    pub(crate) nodes: &'static [&'static str],
    /// What the verdict's sentence or its evidence mentions.
    pub(crate) words: &'static [&'static str],
    pub(crate) exit: i32,
}

impl Case {
    /// A call of the Service `remote` by the pod `client` that gets no answer.
    pub(crate) const SILENT: Self = Self {
        fault: "",
        with: &[],
        follow: &["--pod", "client", "--dst", "10.98.235.247:80"],
        traffic: crate::traffic::call_service,
        witness: Outcome::TimedOut,
        works: None,
        code: "",
        also: &[],
        nodes: &[],
        words: &[],
        exit: 3,
    };

    /// Runs it under the test's name, which starts with the case's number.
    #[track_caller]
    pub(crate) fn run(&self, name: &str) {
        let id = name.split('_').next().expect("a name");
        let _lab = lab();
        let fault = fault::named(self.fault).expect("a fault of the laboratory");
        if id.starts_with('c') {
            assert_eq!(id, fault.id.to_lowercase(), "the test's number");
        }
        fault.apply().expect("the fault is made");
        for other in self.with {
            let other = fault::named(other).expect("a fault of the laboratory");
            other.apply().expect("the other fault is made");
        }

        let file = recordings().join(format!("{id}.jsonl"));
        let run = follow(&format!("case-{id}"), &["-w"])
            .arg(&file)
            .args(self.follow)
            .start();
        let outcome = (self.traffic)();
        let done = run.stop();
        let works = self.works.map(|traffic| traffic());

        assert_eq!(outcome, self.witness, "what the client lived through");
        if let Some(works) = works {
            assert_eq!(works, Outcome::Answered, "what works all the same");
        }
        let told = Told::of(&done);
        println!("{id}: {}", told.describe());
        self.compare(&told);
        done.nothing_refused().exit(self.exit);
    }

    #[track_caller]
    fn compare(&self, told: &Told) {
        let said = told.describe();
        let verdict = &told.verdict;
        assert_eq!(verdict.code, self.code, "the verdict's code\n{said}");
        if !self.nodes.is_empty() {
            let node = verdict.node.as_deref().unwrap_or_default();
            assert!(
                self.nodes.contains(&node),
                "the verdict's node {node:?} is none of {:?}\n{said}",
                self.nodes
            );
        }
        let mut text = verdict.summary.clone();
        for finding in &told.findings {
            if finding.code == verdict.code {
                text += &finding.evidence.join("\n");
            }
        }
        for listed in self.also {
            let listed = listed.split_once(' ').expect("severity and code");
            let there = |f: &Finding| (f.severity.as_str(), f.code.as_str()) == listed;
            assert!(told.findings.iter().any(there), "no {listed:?} in\n{said}");
        }
        for word in self.words {
            assert!(text.contains(word), "no {word:?} in\n{said}");
        }
    }
}

/// What this test needs of the tool's result.
#[derive(Debug, Deserialize)]
pub(crate) struct Told {
    pub(crate) verdict: Verdict,
    pub(crate) findings: Vec<Finding>,
    pub(crate) losses: BTreeMap<String, u64>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Verdict {
    pub(crate) code: String,
    pub(crate) summary: String,
    node: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Finding {
    pub(crate) severity: String,
    pub(crate) code: String,
    summary: String,
    evidence: Vec<String>,
}

impl Told {
    #[track_caller]
    pub(crate) fn of(done: &Done) -> Self {
        match serde_json::from_str(&done.stdout) {
            Ok(told) => told,
            Err(error) => panic!("{error}\n{}\n{}", done.stdout, done.stderr),
        }
    }

    pub(crate) fn describe(&self) -> String {
        let Verdict {
            code,
            summary,
            node,
        } = &self.verdict;
        let node = node.as_deref().unwrap_or("nowhere");
        let mut text = format!("{code} at {node}: {summary}");
        for finding in &self.findings {
            // Writing to a String cannot fail.
            let Finding {
                severity,
                code,
                summary,
                ..
            } = finding;
            let _ = write!(text, "\n  {severity} {code}: {summary}");
            for line in &finding.evidence {
                let _ = write!(text, "\n    {line}");
            }
        }
        text
    }
}

/// Where the recordings go.
pub(crate) fn recordings() -> PathBuf {
    let dir = std::env::var_os("TRACER_CASES").map_or_else(
        || {
            // target/debug/deps/cases-HASH
            let own = std::env::current_exe().expect("this executable's path");
            let target = own.ancestors().nth(3).expect("a target directory");
            target.join("cases/native")
        },
        PathBuf::from,
    );
    fs::create_dir_all(&dir).expect("a directory for recordings");
    dir
}
