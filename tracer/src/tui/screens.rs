//! Whole screens, kept as text in `testdata/screens`, with their colours and
//! emphasis below. `UPDATE_SCREENS=1 cargo test -p tracer --lib screens` writes
//! them anew; look at the difference before it is committed.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use proptest::prelude::*;
use ratatui::buffer::Buffer;
use ratatui::crossterm::event::{
    KeyCode, KeyEvent, KeyModifiers, MouseButton, MouseEvent, MouseEventKind,
};
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier};

use super::app::{App, Msg};
use super::feed::Update;
use super::model::{LIVE_PACKETS, Model};
use super::theme::Theme;
use super::{samples, view};
use crate::diagnose;
use crate::trace::{Losses, Trace};

const SIZES: [(u16, u16); 3] = [(80, 24), (120, 40), (200, 60)];

fn render(app: &App, color: bool) -> Buffer {
    let mut buf = Buffer::empty(Rect::new(0, 0, app.size.0, app.size.1));
    view::draw(app, Theme { color }, &mut buf);
    buf
}

fn text(buf: &Buffer) -> String {
    let mut out = String::new();
    for y in 0..buf.area.height {
        let mut line = String::new();
        let mut skip = 0;
        for x in 0..buf.area.width {
            if skip > 0 {
                skip -= 1;
                continue;
            }
            let symbol = buf[(x, y)].symbol();
            skip = super::width::width(symbol).saturating_sub(1);
            line.push_str(symbol);
        }
        let _ = writeln!(out, "{}", line.trim_end());
    }
    out
}

/// A letter for each cell's style: colour, upper case where bold; then where it
/// is reversed or dim.
fn styles(buf: &Buffer) -> String {
    let mut out = String::new();
    for y in 0..buf.area.height {
        let mut line = String::new();
        for x in 0..buf.area.width {
            let style = buf[(x, y)].style();
            let letter = match style.fg {
                Some(Color::Red) => 'r',
                Some(Color::Green) => 'g',
                Some(Color::Yellow) => 'y',
                Some(Color::Blue) => 'b',
                Some(Color::Cyan) => 'c',
                _ => '.',
            };
            let has = |m| style.add_modifier.contains(m);
            line.push(match letter {
                '.' if has(Modifier::REVERSED) => '#',
                '.' if has(Modifier::BOLD) => '+',
                '.' if has(Modifier::DIM) => '-',
                c if has(Modifier::REVERSED) || has(Modifier::BOLD) => c.to_ascii_uppercase(),
                c => c,
            });
        }
        let _ = writeln!(out, "{}", line.trim_end_matches('.'));
    }
    out
}

#[track_caller]
fn check(name: &str, found: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("testdata/screens")
        .join(format!("{name}.txt"));
    if std::env::var_os("UPDATE_SCREENS").is_some() {
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, found).unwrap();
        return;
    }
    let kept = fs::read_to_string(&file).unwrap_or_default();
    assert!(
        kept == found,
        "{} differs (UPDATE_SCREENS=1 writes it anew); now it is\n{found}",
        file.display()
    );
}

/// Checks a screen at three sizes, with colour and without; the text must be
/// the same.
#[track_caller]
fn screen(name: &str, make: impl Fn() -> App, keys: &str) {
    for (width, height) in SIZES {
        let mut app = make();
        app.update(Msg::Resize(width, height));
        type_keys(&mut app, keys);
        let (color, plain) = (render(&app, true), render(&app, false));
        assert_eq!(text(&color), text(&plain), "colour changes no text");
        let uncoloured = styles(&plain);
        assert!(!uncoloured.contains(['r', 'g', 'y', 'b', 'c', 'R', 'G', 'Y', 'B', 'C']));
        for cell in plain.content() {
            assert_eq!(cell.bg, Color::Reset, "no background is assumed");
        }
        let found = format!("{}\n{}", text(&color), styles(&color));
        check(&format!("{name}-{width}x{height}"), &found);
        if width == 80 {
            let found = format!("{}\n{uncoloured}", text(&plain));
            check(&format!("{name}-{width}x{height}-plain"), &found);
        }
    }
}

fn press(app: &mut App, code: KeyCode) {
    app.update(Msg::Key(KeyEvent::new(code, KeyModifiers::NONE)));
}

/// Keys as text; `\n` is Enter, `\t` Tab.
pub(super) fn type_keys(app: &mut App, keys: &str) {
    for c in keys.chars() {
        press(
            app,
            match c {
                '\n' => KeyCode::Enter,
                '\t' => KeyCode::Tab,
                '\x1b' => KeyCode::Esc,
                c => KeyCode::Char(c),
            },
        );
    }
}

/// A recording that has been read.
pub(super) fn loaded(trace: Trace) -> App {
    let mut app = App::loading(Model::new(samples::header(), usize::MAX));
    app.update(Msg::Progress(1, 2));
    app.update(Msg::Ended(Box::new(trace)));
    app
}

/// A live trace that has seen half of a recording.
pub(super) fn live(losses: Losses) -> App {
    let mut trace = samples::recording("c11");
    let mut header = trace.header.clone();
    header.nodes = samples::recording("c11").header.nodes;
    let mut app = App::live(Model::new(header, LIVE_PACKETS));
    let half = trace.packets.len() / 2 + 1;
    trace.packets.truncate(half);
    let update = Update {
        packets: trace.packets.iter().cloned().map(|p| (p.id, p)).collect(),
        flows: trace.flows.iter().cloned().map(|f| (f.id, f)).collect(),
        losses,
        seen: 40_000,
    };
    app.update(Msg::Update(update));
    trace.closing.losses = losses;
    trace.closing.state = None;
    let now = trace.packets.iter().flat_map(|p| &p.steps).map(|s| s.ts);
    let (verdict, findings) = diagnose::diagnose_live(&trace, now.max().unwrap());
    app.update(Msg::Judged(verdict, findings));
    app
}

fn lossy() -> App {
    live(Losses {
        ring_buffer: 1_234,
        user_space: 5,
        other: 0,
    })
}

fn empty() -> App {
    App::live(Model::new(samples::header(), LIVE_PACKETS))
}

#[test]
fn healthy_cluster_ip_call() {
    screen("healthy", || loaded(samples::recording("healthy")), "g");
}

#[test]
fn policy_drop() {
    screen("policy-drop", || loaded(samples::recording("c11")), "x");
}

#[test]
fn tunnel_loss() {
    screen("tunnel-loss", || loaded(samples::recording("c26")), "x");
}

#[test]
fn live_with_losses() {
    screen("live-losses", lossy, "");
}

#[test]
fn nothing_yet() {
    screen("empty", empty, "");
}

#[test]
fn help() {
    screen("help", empty, "?");
}

#[test]
fn compare() {
    let make = || {
        let mut app = loaded(samples::recording("c38"));
        type_keys(&mut app, "gc");
        app
    };
    screen("compare", make, "xc");
}

#[test]
fn headers_of_a_rewrite() {
    screen("headers", || loaded(samples::recording("c38")), "g\nj\n");
}

#[test]
fn verdict_in_full() {
    screen("verdict", || loaded(samples::recording("c11")), "v");
}

#[test]
fn too_small_is_a_plain_line() {
    let mut app = empty();
    app.update(Msg::Resize(40, 8));
    assert_eq!(
        text(&render(&app, true)).trim_end(),
        "too small: tracer needs 50x14 (q quits)"
    );
}

/// The verdict, what was lost and what is degraded: on every screen.
#[test]
fn what_matters_is_always_there() {
    for (width, height) in [(50, 14), (80, 24), (139, 33), (140, 34), (200, 60)] {
        for keys in ["", "?", "v", "d", "z", "\n\n\n", "/abc", "ft\n", "e", "p"] {
            let mut app = lossy();
            app.update(Msg::Resize(width, height));
            type_keys(&mut app, keys);
            let shown = text(&render(&app, false));
            let at = format!("{width}x{height} {keys:?}\n{shown}");
            assert!(shown.contains("SO FAR"), "{at}");
            assert!(shown.contains("LOST 1239 events"), "{at}");
            assert!(shown.contains("degraded"), "{at}");
        }
    }
}

/// Nothing that a recording says moves the cursor.
#[test]
fn hostile_names_are_shown_not_obeyed() {
    let evil = "\x1b]0;x\x07\u{9b}2J\u{202e}\r\n日本";
    let mut trace = samples::recording("c11");
    for packet in &mut trace.packets {
        packet.summary = evil.into();
        for step in &mut packet.steps {
            step.node = evil.into();
            step.iface = evil.into();
            step.src.name = Some(evil.into());
            step.dst.name = Some(evil.into());
            if let Some(drop) = &mut step.drop {
                drop.reason = Some(evil.into());
                drop.function = evil.into();
            }
            step.from = Some(evil.into());
        }
    }
    for flow in &mut trace.flows {
        flow.client.name = Some(evil.into());
        flow.state = evil.into();
    }
    trace.closing.verdict.summary = evil.into();
    trace.closing.findings[0].evidence = vec![evil.into()];
    trace.closing.findings[0].next = vec![evil.into()];
    trace.header.tool.degraded = vec![evil.into()];
    for keys in ["", "x", "\n\n", "v", "d", "c?", "jcx", "cjc"] {
        for (width, height) in SIZES {
            let mut app = loaded(trace.clone());
            app.update(Msg::Note(evil.into()));
            app.update(Msg::Resize(width, height));
            type_keys(&mut app, keys);
            let shown = text(&render(&app, true));
            let harmless = |c: char| c == '\n' || !c.is_control() && c != '\u{202e}';
            assert!(shown.chars().all(harmless), "{keys:?}: {shown:?}");
            app.update(Msg::Paste(evil.into()));
            let shown = text(&render(&app, true));
            assert!(shown.chars().all(harmless), "{keys:?}: {shown:?}");
        }
    }
}

fn any_message() -> impl Strategy<Value = (u8, u16, u16)> {
    (any::<u8>(), 0..220u16, 0..70u16)
}

fn message((kind, x, y): (u8, u16, u16)) -> Msg {
    let mouse = |kind| {
        Msg::Mouse(MouseEvent {
            kind,
            column: x,
            row: y,
            modifiers: KeyModifiers::NONE,
        })
    };
    let key = |code| Msg::Key(KeyEvent::new(code, KeyModifiers::NONE));
    match kind {
        0..=126 => key(KeyCode::Char(char::from(kind.max(32)))),
        127..=140 => Msg::Resize(x, y),
        141..=150 => mouse(MouseEventKind::Down(MouseButton::Left)),
        151..=158 => mouse(MouseEventKind::ScrollDown),
        159..=165 => mouse(MouseEventKind::ScrollUp),
        166..=180 => key(KeyCode::Enter),
        181..=190 => key(KeyCode::Esc),
        191..=200 => key(KeyCode::Tab),
        201..=205 => key(KeyCode::BackTab),
        206..=212 => key(KeyCode::Down),
        213..=216 => key(KeyCode::PageDown),
        217..=220 => key(KeyCode::End),
        221..=224 => key(KeyCode::Backspace),
        225..=230 => Msg::Paste("drop -:80 #1 日本".into()),
        231..=236 => {
            let id = u64::from(x);
            let flow = samples::flow(u64::from(y % 7) + 1);
            let packet = samples::packet(id, flow.id, x % 3 == 0);
            Msg::Update(Update {
                packets: [(id, packet)].into(),
                flows: [(flow.id, flow)].into(),
                losses: Losses::default(),
                seen: id,
            })
        }
        237..=238 => Msg::Finishing,
        239..=240 => Msg::Ended(Box::new(samples::recording("c26"))),
        241..=245 => Msg::Exported(Err("no".into())),
        _ => Msg::Note("warning: something".into()),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Whatever is pressed, clicked and resized: it draws, and never panics.
    #[test]
    fn any_input_draws(inputs in proptest::collection::vec(any_message(), 1..60), case in 0..3u8) {
        let mut app = match case {
            0 => empty(),
            1 => lossy(),
            _ => loaded(samples::recording("c40b")),
        };
        for input in inputs {
            app.update(message(input));
            if app.size.0 > 0 && app.size.1 > 0 {
                let buf = render(&app, true);
                prop_assert_eq!(buf.area.width, app.size.0);
            }
        }
    }
}
