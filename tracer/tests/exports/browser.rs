//! `html` and `mermaid`, in Chromium: pages that report what they see.

use std::collections::HashMap;
use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tracer::trace::Trace;

use crate::samples::{empty, export, hostile, recordings, scratch};
use crate::server::{answer, serve};

/// All of it: Chromium may have to start on a busy machine.
const PATIENCE: Duration = Duration::from_mins(4);
/// Names that Chromium has in distributions.
const CHROMIUM: [&str; 4] = [
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
];

/// A browser that dies with the test.
struct Browser(Child, PathBuf);

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
        let _ = fs::remove_dir_all(&self.1);
    }
}

fn chromium(name: &str, args: &[String]) -> Browser {
    let profile = scratch(&format!("profile-{name}-{}", std::process::id()));
    let flags = "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking \
        --disable-component-update --disable-sync --hide-scrollbars";
    for program in CHROMIUM {
        let started = Command::new(program)
            .args(flags.split_whitespace())
            .arg(format!("--user-data-dir={}", profile.display()))
            .args(args)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        if let Ok(child) = started {
            return Browser(child, profile);
        }
    }
    panic!(
        "no Chromium found ({}); cargo xtask setup --exports installs it on Debian",
        CHROMIUM.join(", ")
    );
}

/// Opens the page `/` of these files in a browser, and returns what it posts
/// to `/result`, and what else was asked for.
fn see(name: &str, files: HashMap<String, (&'static str, Vec<u8>)>) -> (Value, Vec<String>) {
    let known: Vec<String> = files.keys().cloned().collect();
    let (address, requests) = serve(move |request| match files.get(&request.path) {
        _ if request.path == "/result" => answer("200 OK", "text/plain", b""),
        Some((kind, body)) => answer("200 OK", kind, body),
        None => answer("404 Not Found", "text/plain", b""),
    });
    let open = [
        format!("{address}/"),
        "--remote-debugging-port=0".to_owned(),
    ];
    let mut browser = chromium(name, &open);
    let (begun, mut strange) = (Instant::now(), Vec::new());
    while begun.elapsed() < PATIENCE {
        let Ok(request) = requests.recv_timeout(Duration::from_millis(500)) else {
            if let Ok(Some(status)) = browser.0.try_wait() {
                panic!("{name}: Chromium ended with {status} before it said anything");
            }
            continue;
        };
        if request.path == "/result" {
            return (serde_json::from_slice(&request.body).unwrap(), strange);
        }
        if !known.contains(&request.path) && request.path != "/favicon.ico" {
            strange.push(request.path);
        }
    }
    panic!("{name}: Chromium said nothing in {} s", PATIENCE.as_secs());
}

fn all() -> Vec<(String, Trace)> {
    let mut all = recordings();
    all.push(("hostile".to_owned(), hostile()));
    all.push(("empty".to_owned(), empty()));
    all
}

/// Looks at each page, narrow and wide.
const LOOK: &str = r#"<!DOCTYPE html><meta charset="utf-8"><body><script>
window.pwned = 0;
const look = (name, width) => new Promise(done => {
  const frame = document.createElement('iframe');
  frame.style.cssText = `border:0;width:${width}px;height:800px`;
  frame.onload = () => {
    const page = frame.contentDocument, root = page.documentElement;
    page.querySelectorAll('details').forEach(d => d.open = true);
    const shown = e => e.getClientRects().length > 0;
    const pictures = [...page.querySelectorAll('svg')].filter(shown);
    const outside = pictures.flatMap(svg => {
      const box = svg.getBoundingClientRect();
      return [...svg.querySelectorAll('text')].filter(t => {
        const b = t.getBoundingClientRect();
        return b.left < box.left - 1 || b.right > box.right + 1 || b.bottom > box.bottom + 1 || b.top < box.top - 1;
      }).map(t => t.textContent);
    });
    const smallest = Math.min(...pictures.flatMap(svg => [...svg.querySelectorAll('text')].map(t => t.getBoundingClientRect().height)));
    done({ name, width, scroll: root.scrollWidth, pictures: pictures.length, outside, smallest,
      scripts: page.querySelectorAll('script, img, iframe, object, embed, link').length,
      handlers: [...page.querySelectorAll('*')].filter(e => [...e.attributes].some(a => a.name.startsWith('on'))).length,
      verdict: page.querySelector('.verdict')?.innerText ?? '', ends: pictures.flatMap(s => [...s.querySelectorAll('.stop.end')]).length });
    frame.remove();
  };
  frame.src = '/' + name + '.html';
  document.body.append(frame);
});
(async () => {
  const seen = [];
  for (const name of NAMES) for (const width of [360, 1200]) seen.push(await look(name, width));
  await fetch('/result', { method: 'POST', body: JSON.stringify({ pwned: window.pwned, seen }) });
})();
</script>"#;

#[test]
fn pages_are_whole_on_a_phone_and_on_a_desk_and_ask_for_nothing() {
    let all = all();
    let names: Vec<&str> = all.iter().map(|(n, _)| n.as_str()).collect();
    let look = LOOK.replace("NAMES", &json!(names).to_string());
    let mut files = HashMap::from([("/".to_owned(), ("text/html", look.into_bytes()))]);
    for (name, trace) in &all {
        files.insert(
            format!("/{name}.html"),
            ("text/html", export(trace, "html")),
        );
    }
    let (result, strange) = see("pages", files);
    assert_eq!(strange, Vec::<String>::new(), "pages ask for nothing");
    assert_eq!(result["pwned"], 0, "an enemy's script ran");
    let seen = result["seen"].as_array().unwrap();
    assert_eq!(seen.len(), 2 * all.len());
    for page in seen {
        let width = page["width"].as_u64().unwrap();
        assert!(
            page["scroll"].as_u64().unwrap() <= width,
            "wider than the screen: {page}"
        );
        assert_eq!(
            page["outside"],
            json!([]),
            "text outside its picture: {page}"
        );
        assert_eq!(
            (page["scripts"].as_u64(), page["handlers"].as_u64()),
            (Some(0), Some(0)),
            "{page}"
        );
        assert_ne!(page["verdict"], "", "{page}");
        if page["name"] != "empty" {
            assert!(page["pictures"].as_u64().unwrap() >= 1, "{page}");
            assert!(
                page["smallest"].as_f64().unwrap() > 10.0,
                "too small to read: {page}"
            );
        }
        if page["name"] == "c58" || page["name"] == "c26" {
            assert!(
                page["ends"].as_u64().unwrap() >= 1,
                "where it ended: {page}"
            );
        }
    }
}

#[test]
fn a_screenshot_is_left_to_be_looked_at() {
    let page = scratch("looked-at.html");
    let (_, trace) = recordings().into_iter().find(|(n, _)| n == "c58").unwrap();
    fs::write(&page, export(&trace, "html")).unwrap();
    let picture = scratch("looked-at.png");
    let _ = fs::remove_file(&picture);
    let args = [
        "--window-size=1280,1600".to_owned(),
        format!("--screenshot={}", picture.display()),
        format!("file://{}", page.display()),
    ];
    let mut browser = chromium("screenshot", &args);
    let begun = Instant::now();
    while browser.0.try_wait().unwrap().is_none() {
        assert!(begun.elapsed() < PATIENCE, "Chromium does not end");
        std::thread::sleep(Duration::from_millis(100));
    }
    let png = fs::read(&picture).unwrap();
    assert!(
        png.starts_with(b"\x89PNG") && png.len() > 20_000,
        "{} bytes",
        png.len()
    );
}

/// Mermaid's own parser and renderer.
const DRAW: &str = r#"<!DOCTYPE html><meta charset="utf-8"><body><script src="/mermaid.min.js"></script><script>
window.pwned = 0;
(async () => {
  const drawn = [];
  if (!window.mermaid) drawn.push({ name: 'mermaid', error: 'it was not loaded' });
  else mermaid.initialize({ startOnLoad: false, securityLevel: 'strict' });
  const diagrams = await (await fetch('/diagrams.json')).json();
  for (const [name, text] of Object.entries(diagrams)) {
    const one = { name, error: '' };
    try {
      const kind = await mermaid.parse(text);
      one.kind = kind.diagramType;
      const { svg } = await mermaid.render('d' + drawn.length, text);
      const box = document.createElement('div');
      box.innerHTML = svg;
      document.body.append(box);
      one.text = box.innerText || box.textContent;
      one.crosses = box.querySelectorAll('[marker-end*=cross]').length;
      one.scripts = box.querySelectorAll('script, img, a, iframe').length;
      one.actors = new Set([...box.querySelectorAll('text.actor')].map(a => a.textContent)).size;
      box.remove();
    } catch (e) { one.error = String(e); }
    drawn.push(one);
  }
  await fetch('/result', { method: 'POST', body: JSON.stringify({ pwned: window.pwned, drawn }) });
})();
</script>"#;

/// Where `cargo xtask setup --exports` leaves it.
fn mermaid() -> Vec<u8> {
    let cache = std::env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .filter(|dir| dir.is_absolute())
        .or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache")))
        .unwrap_or_else(|| "/var/cache".into());
    let file = cache.join("tracer-xtask/mermaid/package/dist/mermaid.min.js");
    fs::read(&file).unwrap_or_else(|e| {
        panic!(
            "{}: {e}; cargo xtask setup --exports fetches it",
            file.display()
        )
    })
}

#[test]
fn every_diagram_is_read_and_drawn_by_mermaid() {
    let all = all();
    let diagrams: HashMap<&str, String> = all
        .iter()
        .map(|(name, trace)| {
            (
                name.as_str(),
                String::from_utf8(export(trace, "mermaid")).unwrap(),
            )
        })
        .collect();
    let files = HashMap::from([
        ("/".to_owned(), ("text/html", DRAW.as_bytes().to_vec())),
        ("/mermaid.min.js".to_owned(), ("text/javascript", mermaid())),
        (
            "/diagrams.json".to_owned(),
            ("application/json", json!(diagrams).to_string().into_bytes()),
        ),
    ]);
    let (result, strange) = see("mermaid", files);
    assert_eq!(strange, Vec::<String>::new(), "diagrams ask for nothing");
    assert_eq!(result["pwned"], 0, "an enemy's script ran");
    let drawn = result["drawn"].as_array().unwrap();
    assert_eq!(drawn.len(), all.len(), "{drawn:?}");
    for one in drawn {
        assert_eq!(
            one["error"],
            "",
            "{one}\n{}",
            diagrams[one["name"].as_str().unwrap()]
        );
        assert_eq!(one["kind"], "sequence", "{one}");
        assert_eq!(one["scripts"], 0, "{one}");
        let text = one["text"].as_str().unwrap();
        assert!(!text.contains("Syntax error"), "{one}");
        // What is escaped is shown as what it was, not as an entity.
        assert!(!text.contains("#58;") && !text.contains("ﬂ"), "{one}");
        if one["name"] == "c58" {
            assert!(
                text.contains("DROP") && text.contains("10.98.235.247:80"),
                "{one}"
            );
            assert!(one["crosses"].as_u64().unwrap() >= 1, "{one}");
            assert!(one["actors"].as_u64().unwrap() >= 3, "{one}");
        }
        if one["name"] == "hostile" {
            assert!(text.contains("<script>"), "shown as it is: {one}");
        }
    }
}
