//! `tracer export` itself.

use std::fs;
use std::process::{Output, Stdio};

use tracer::output::format::FORMATS;

use crate::samples::{self, empty, export, hostile, scratch, tracer};

fn run(args: &[&str]) -> Output {
    tracer()
        .arg("export")
        .args(args)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

fn refused(args: &[&str], code: i32, words: &[&str]) {
    let done = run(args);
    let said = String::from_utf8_lossy(&done.stderr);
    assert_eq!(done.status.code(), Some(code), "{args:?}: {said}");
    assert!(
        !said.contains("panicked") && !said.contains('\x1b'),
        "{said}"
    );
    for word in words {
        assert!(said.contains(word), "{word} in {said}");
    }
}

#[test]
fn every_form_goes_to_a_file_and_to_standard_output_alike() {
    let recording = samples::path("c38");
    let recording = recording.to_str().unwrap();
    for format in FORMATS {
        let file = scratch(&format!("command.{}", format.name));
        let _ = fs::remove_file(&file);
        let done = run(&[recording, "--to", format.name, "-o", file.to_str().unwrap()]);
        assert_eq!(done.status.code(), Some(0), "{}: {done:?}", format.name);
        assert!(done.stdout.is_empty() && done.stderr.is_empty(), "{done:?}");
        let piped = run(&[recording, "--to", format.name]);
        assert_eq!(piped.status.code(), Some(0));
        assert_eq!(piped.stdout, fs::read(&file).unwrap(), "{}", format.name);
    }
}

#[test]
fn hostile_and_empty_recordings_come_out_of_every_form() {
    for (name, trace) in [("hostile", hostile()), ("empty", empty())] {
        let file = scratch(&format!("command-{name}.json"));
        fs::write(&file, export(&trace, "json")).unwrap();
        for format in FORMATS {
            let done = run(&[file.to_str().unwrap(), "--to", format.name]);
            let said = String::from_utf8_lossy(&done.stderr).into_owned();
            assert_eq!(
                done.status.code(),
                Some(0),
                "{name} {}: {said}",
                format.name
            );
            assert!(!said.contains("panicked"), "{said}");
            if !format.binary {
                assert!(!done.stdout.contains(&0x1b), "{name} {}", format.name);
            }
        }
    }
}

#[test]
fn what_was_there_stays_when_the_export_fails() {
    let file = scratch("kept.html");
    fs::write(&file, "the old one").unwrap();
    let damaged = scratch("damaged.jsonl");
    fs::write(&damaged, "{\"schema\":\"tracer.trace/1\"}\n").unwrap();
    let args = [
        damaged.to_str().unwrap(),
        "--to",
        "html",
        "-o",
        file.to_str().unwrap(),
    ];
    refused(&args, 1, &["cannot export", "damaged.jsonl"]);
    assert_eq!(fs::read_to_string(&file).unwrap(), "the old one");
}

#[test]
fn a_recording_cut_short_is_exported_as_far_as_it_goes() {
    let (trace, _) = tracer::recording::read(&samples::path("c58")).unwrap();
    let mut lines = tracer::output::jsonl::Lines::start(Vec::new(), &trace.header).unwrap();
    lines.steps(&trace.packets[0].steps).unwrap();
    let mut whole = lines.finish(&trace.closing).unwrap();
    let steps = trace.packets[0].steps.len();
    let ends: Vec<usize> = (0..whole.len()).filter(|i| whole[*i] == b'\n').collect();
    whole.truncate(ends[steps] + 30);
    let file = scratch("cut.jsonl");
    fs::write(&file, whole).unwrap();
    let done = run(&[file.to_str().unwrap(), "--to", "html"]);
    let said = String::from_utf8_lossy(&done.stderr);
    assert_eq!(done.status.code(), Some(0), "{said}");
    assert!(said.contains("cut short"), "{said}");
    let page = String::from_utf8(done.stdout).unwrap();
    assert!(page.contains(">DROPPED<"), "it is judged by what is there");
}

#[test]
fn refusals() {
    let recording = samples::path("c11");
    let recording = recording.to_str().unwrap();
    refused(&[recording, "--to", "xml"], 2, &["xml", "pcapng"]);
    refused(&[recording], 2, &["--to"]);
    refused(
        &[recording, "--to", "json", "-o", "http://localhost"],
        2,
        &["otlp"],
    );
    refused(
        &[recording, "--to", "otlp", "-o", "https://localhost"],
        2,
        &["https"],
    );
    refused(
        &[recording, "--to", "otlp", "-o", "http://"],
        2,
        &["http://"],
    );
    refused(&["/no-such-file", "--to", "json"], 1, &["/no-such-file"]);
    let nowhere = "/no-such-folder/out.json";
    refused(&[recording, "--to", "json", "-o", nowhere], 1, &[nowhere]);
    refused(&[recording, "--to", "json", "-o", "/tmp"], 1, &["/tmp"]);
}

#[test]
fn live_commands_take_exports_and_refuse_wrong_ones() {
    for command in ["follow", "probe"] {
        for (export, word) in [
            ("xml=a", "pcapng"),
            ("html", "FORMAT=OUT"),
            ("html=-", "standard output"),
        ] {
            let done = tracer()
                .args([command, "--dst", "10.0.0.1:80", "--export", export])
                .output()
                .unwrap();
            let said = String::from_utf8_lossy(&done.stderr);
            assert_eq!(done.status.code(), Some(2), "{said}");
            assert!(said.contains(word), "{word} in {said}");
        }
    }
}
