//! A run that writes several files, each of which is a recording by itself.

use std::fs;
use std::path::{Path, PathBuf};

use tracer_tests::lab::client;

use crate::run::{Done, LIMIT, Tool, evidence, follow_service};
use crate::trace::{Step, Trace};
use crate::world::{get_with, lab, server_saw, service};

const CALLS: usize = 12;

/// Calls to the Service, recorded to files of 64 KiB; the files in their order.
fn recorded(name: &str, more: &[&str]) -> (Done, Vec<PathBuf>) {
    let folder = evidence().join(name);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir(&folder).expect("a folder");
    let _lab = lab();
    let run = follow_service(name)
        .arg("-w")
        .arg(folder.join("long.jsonl"))
        .args(&["--rotate-size", "64K"])
        .args(more)
        .start();
    let options = client::Options::default().timeout(LIMIT);
    for _ in 0..CALLS {
        let saw = get_with("client", service(), &options).saw().expect("saw");
        server_saw("remote", saw);
    }
    let done = run.stop();
    done.exit(0);
    let listing = fs::read_dir(&folder).expect("the folder");
    let mut files: Vec<PathBuf> = listing.map(|f| f.expect("a file").path()).collect();
    files.sort();
    (done, files)
}

/// Each file is shown as what it is: a healthy part of a run that goes on in the next.
#[track_caller]
fn each_is_healthy(files: &[PathBuf]) {
    for (at, file) in files.iter().enumerate() {
        let shown = show(file);
        shown.exit(0).trace().lossless();
        let next = files.get(at + 1).and_then(|f| f.file_name()?.to_str());
        let told = next.is_some_and(|next| shown.stderr.contains(next));
        assert_eq!(told, next.is_some(), "{}: {}", file.display(), shown.stderr);
    }
}

fn show(file: &Path) -> Done {
    Tool::new("long-show", &["show", "-o", "json"])
        .arg(file)
        .run()
}

fn merged(name: &str, files: &[PathBuf]) -> Done {
    let tool = Tool::new(name, &["merge", "-o", "json"]);
    files.iter().fold(tool, Tool::arg).run()
}

#[test]
fn files_of_a_long_run_are_healthy_and_together_the_run() {
    let (done, files) = recorded("long", &[]);
    let live = done.trace();
    live.lossless().healthy();
    assert_eq!(live.flows.len(), CALLS);
    assert!(files.len() >= 4, "{files:?}");
    each_is_healthy(&files);
    let whole = merged("long-merged", &files);
    assert_eq!(whole.exit(0).trace().content(), live.content());
}

#[test]
fn of_a_long_run_the_newest_files_are_kept() {
    let (done, files) = recorded("long-kept", &["--rotate-count", "3"]);
    let live = done.trace();
    assert_eq!(files.len(), 3, "{files:?}");
    each_is_healthy(&files);
    let kept = merged("long-kept-merged", &files);
    let kept = kept.exit(0).trace();
    kept.lossless();
    let last = live.flows.last().expect("a flow").line();
    kept.require(kept.flows.len() < live.flows.len(), "the oldest are gone");
    let (all, some) = (live.flow(&last), kept.flow(&last));
    // The packets' numbers are those of the merge.
    let ways = |trace: &Trace, flow| -> Vec<String> {
        let of = ["request", "reply"].map(|way| trace.packets_of(flow, way));
        let steps = of.concat().into_iter().flat_map(|p| &p.steps);
        steps.map(Step::describe).collect()
    };
    assert_eq!(
        ways(&kept, some),
        ways(&live, all),
        "the last call is whole"
    );
}
