use super::page;
use crate::output::samples;

#[test]
fn a_drop_cannot_be_missed() {
    let html = page(&samples::recording("c11"));
    for word in [
        "class=\"verdict bad\"",
        "policy-drop",
        ">DROPPED<",
        "stop end",
        "What to do next",
    ] {
        assert!(html.contains(word), "{word}");
    }
}

#[test]
fn losses_and_missing_hooks_are_at_the_top() {
    let mut trace = samples::recording("c20");
    trace.closing.losses.ring_buffer = 7;
    let html = page(&trace);
    let top = html.split("</header>").next().unwrap();
    assert!(top.contains("7 events in the ring buffer"));
    assert!(top.contains("! degraded"));
}

#[test]
fn there_is_no_markup_but_ours() {
    let html = page(&samples::hostile());
    for bad in [
        "<script",
        "<img",
        "onerror=\"",
        "href=\"javascript",
        "src=\"",
        "url(",
        "@import",
    ] {
        assert!(!html.contains(bad), "{bad}");
    }
    assert!(html.contains("&lt;script&gt;"));
    let tags = html
        .split('<')
        .skip(1)
        .map(|t| t.split('>').next().unwrap());
    for tag in tags.filter(|t| t.contains("href")) {
        assert!(tag.starts_with("a href=\"#p"), "{tag}");
    }
}

#[test]
fn large_traces_are_shown_in_part() {
    let trace = samples::synthetic(1_000);
    let html = page(&trace);
    assert_eq!(
        html.matches("<details class=\"packet\"").count(),
        super::PACKETS
    );
    assert!(html.contains(&format!("200 of {} packets are shown", trace.packets.len())));
    assert!(html.len() < 2_000_000, "{}", html.len());
}

#[test]
fn elements_are_closed_in_order() {
    for (name, trace) in samples::recordings().chain([("hostile".to_owned(), samples::hostile())]) {
        let html = page(&trace);
        let body = html.split("</style>").nth(1).unwrap();
        let mut open: Vec<&str> = Vec::new();
        for tag in body.split('<').skip(1) {
            let tag = tag.split('>').next().unwrap();
            let word = tag.split([' ', '/']).find(|w| !w.is_empty()).unwrap();
            if let Some(end) = tag.strip_prefix('/') {
                let last = open.pop();
                let above = matches!(end, "head" | "body" | "html");
                assert!(above || last == Some(end), "{name}: {end} closes {last:?}");
            } else if !tag.ends_with('/') && word != "body" {
                open.push(word);
            }
        }
        assert!(open.is_empty(), "{name}: {open:?}");
    }
}
