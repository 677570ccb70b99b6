//! The forms of the result: text, JSON lines, recordings.

use std::fs;

use tracer_tests::lab::session::Session;

use crate::run::{Done, Tool, eventually, evidence, follow_service, slurp};
use crate::trace::{kprobes, lines};
use crate::world::{get, lab, server_saw, service};

/// A call to the Service under this tool, up to its orderly end.
fn followed(tool: Tool) -> (Session, Done) {
    let lab = lab();
    let run = tool.start();
    let saw = get("client", service()).saw().expect("saw");
    server_saw("remote", saw);
    let done = run.stop();
    (lab, done)
}

#[test]
fn text_of_a_syn_fits_in_sixteen_lines() {
    let (_lab, done) = followed(follow_service("text").output("text"));
    done.exit(0);
    let text = &done.stdout;
    let bad = text.chars().find(|c| c.is_control() && *c != '\n');
    assert_eq!(bad, None, "a control character in {text}");
    let syn: Vec<&str> = text
        .lines()
        .skip_while(|line| !(line.starts_with('#') && line.contains("SYN ")))
        .enumerate()
        .take_while(|(at, line)| *at == 0 || line.starts_with(' '))
        .map(|(_, line)| line)
        .collect();
    let block = syn.join("\n");
    assert!(
        (11..=16).contains(&syn.len()),
        "{} lines:\n{block}\nof\n{text}",
        syn.len()
    );
    for word in [
        "10.244.80.65:45266",
        "10.98.235.247:80",
        "10.244.158.65:8080",
        "vxlan.calico",
        "172.31.0.2",
        "172.31.0.3",
        "4096",
        "worker2",
    ] {
        assert!(block.contains(word), "no {word} in\n{block}");
    }
    assert!(
        kprobes() || block.contains('~'),
        "what was worked out is marked:\n{block}"
    );
    assert!(text.contains("delivered: "), "the verdict in\n{text}");
}

#[test]
fn colour_only_when_asked_for() {
    let tool = follow_service("colour").output("text");
    let (_lab, done) = followed(tool.args(&["--color", "always"]));
    done.exit(0);
    assert!(done.stdout.contains("\u{1b}["), "{}", done.stdout);
}

#[test]
fn recordings_show_the_same() {
    for ending in ["jsonl", "jsonl.zst"] {
        let file = evidence().join(format!("recorded.{ending}"));
        let _ = fs::remove_file(&file);
        let name = format!("record-{ending}");
        let (_lab, done) = followed(follow_service(&name).arg("-w").arg(&file));
        let live = done.exit(0).trace();
        live.require(live.packets.len() >= 8, "a whole call");
        let bytes = slurp(&file);
        let compressed = bytes.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]);
        assert_eq!(compressed, ending.ends_with("zst"), "{ending}");
        if !compressed {
            lines(&String::from_utf8_lossy(&bytes), true);
        }
        let shown = Tool::new(&format!("show-{ending}"), &["show", "-o", "json"])
            .arg(&file)
            .run();
        let shown = shown.exit(0).trace();
        assert_eq!(shown.content(), live.content(), "{ending}");
    }
}

#[test]
fn cut_recording_is_shown_up_to_the_cut() {
    let file = evidence().join("cut.jsonl");
    let _ = fs::remove_file(&file);
    let (_lab, done) = followed(follow_service("record-cut").arg("-w").arg(&file));
    let live = done.exit(0).trace();
    let mut text = slurp(&file);
    // In the middle of the fourth line from the end.
    let ends: Vec<usize> = (0..text.len()).filter(|&at| text[at] == b'\n').collect();
    assert!(ends.len() > 20, "{} lines", ends.len());
    let cut = ends[ends.len() - 5] + 40;
    text.truncate(cut);
    fs::write(&file, &text).expect("the cut file");
    let shown = Tool::new("show-cut", &["show", "-o", "json"])
        .arg(&file)
        .run();
    assert!(
        shown.stderr.contains("cut short") && shown.stderr.contains("line"),
        "{}",
        shown.stderr
    );
    let shown = shown.exit(0).trace();
    let flow = shown.only_flow(&live.flows[0].line());
    assert_eq!(
        shown.packet(flow, "SYN").describe(),
        live.packet(flow, "SYN").describe()
    );
}

#[test]
fn json_lines_are_readable_while_they_come() {
    let _lab = lab();
    let run = follow_service("lines").output("jsonl").start();
    let saw = get("client", service()).saw().expect("saw");
    server_saw("remote", saw);
    eventually("steps while the tool runs", || {
        let text = run.stdout();
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        !whole.is_empty()
            && lines(whole, false)
                .iter()
                .any(|step| step.place() == "egress cali1b2c3d4e5f6@worker2")
    });
    let done = run.stop();
    done.exit(0);
    let steps = lines(&done.stdout, true);
    assert!(steps.len() > 40, "{} steps of a whole call", steps.len());
}

#[test]
fn exports_are_whole_when_the_run_has_ended() {
    let folder = evidence();
    let (page, packets) = (folder.join("live.html"), folder.join("live.pcapng"));
    for file in [&page, &packets] {
        let _ = fs::remove_file(file);
    }
    let tool = follow_service("live-export")
        .args(&["--export"])
        .arg(format!("html={}", page.display()))
        .args(&["--export"])
        .arg(format!("pcapng={}", packets.display()));
    let lab = lab();
    let run = tool.start();
    let saw = get("client", service()).saw().expect("saw");
    server_saw("remote", saw);
    assert!(!page.exists(), "nothing is there before it is whole");
    let done = run.stop();
    done.exit(0);
    let html = String::from_utf8_lossy(&slurp(&page)).into_owned();
    assert!(html.ends_with("</html>\n") && html.contains("vxlan.calico"));
    assert!(slurp(&packets).starts_with(&[0x0a, 0x0d, 0x0d, 0x0a]));
    let rest: Vec<_> = fs::read_dir(&folder)
        .expect("the folder")
        .filter_map(Result::ok)
        .filter(|f| f.file_name().to_string_lossy().ends_with(".tmp"))
        .collect();
    assert!(rest.is_empty(), "{rest:?}");
    drop(lab);
}

#[test]
fn an_export_that_cannot_be_written_fails_before_the_run() {
    let _lab = lab();
    follow_service("export-nowhere")
        .args(&["--export", "html=/no-such-directory/file.html"])
        .run()
        .refused(1, &["/no-such-directory/file.html"]);
}
