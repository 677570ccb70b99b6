//! Keys and messages, and the state after them.

use ratatui::crossterm::event::{
    KeyCode, KeyEvent, KeyModifiers, MouseButton, MouseEvent, MouseEventKind,
};

use super::*;
use crate::trace::{Losses, Outcome};
use crate::tui::layout::areas;
use crate::tui::samples;
use crate::tui::screens::{live, loaded, type_keys};

fn recorded(case: &str) -> App {
    let mut app = loaded(samples::recording(case));
    app.update(Msg::Resize(80, 24));
    app
}

fn on() -> App {
    let mut app = live(Losses::default());
    app.update(Msg::Resize(80, 24));
    app
}

fn newer(id: u64, bad: bool) -> Update {
    let flow = samples::flow(9);
    Update {
        packets: [(id, samples::packet(id, 9, bad))].into(),
        flows: [(9, flow)].into(),
        losses: Losses {
            ring_buffer: id,
            ..Losses::default()
        },
        seen: id,
    }
}

#[test]
fn a_recording_opens_at_what_its_verdict_is_about() {
    let app = recorded("c11");
    let verdict = samples::recording("c11").closing.verdict;
    assert_eq!(app.packet, verdict.packet);
    let step = &app.chosen().unwrap().steps[app.step];
    assert_eq!(step.kind, StepKind::Drop);
}

#[test]
fn pausing_holds_the_picture_and_nothing_else() {
    let mut app = on();
    let before = app.model.kept();
    type_keys(&mut app, "p");
    for id in 1000..1010 {
        app.update(Msg::Update(newer(id, false)));
    }
    assert_eq!(app.model.kept(), before);
    assert_eq!(app.losses.ring_buffer, 1009, "losses are told at once");
    assert_eq!(app.model.seen, 1009);
    type_keys(&mut app, "p");
    assert_eq!(app.model.kept(), before + 10);
}

#[test]
fn what_is_held_is_bounded() {
    let mut app = on();
    type_keys(&mut app, "p");
    for id in 0..(LIVE_PACKETS as u64 + 500) {
        app.update(Msg::Update(newer(1000 + id, false)));
    }
    assert!(app.held.as_ref().unwrap().packets.len() <= LIVE_PACKETS);
}

#[test]
fn following_ends_when_a_hand_moves_and_comes_back() {
    let mut app = on();
    app.update(Msg::Update(newer(1000, false)));
    assert_eq!((app.flow, app.packet), (Some(9), Some(1000)));
    type_keys(&mut app, "k");
    let chosen = app.packet;
    app.update(Msg::Update(newer(1001, false)));
    assert_eq!(app.packet, chosen);
    type_keys(&mut app, "t");
    assert_eq!(app.packet, Some(1001));
}

#[test]
fn quitting_a_live_trace_waits_for_its_end() {
    let mut app = on();
    let effects = app.update(Msg::Key(KeyEvent::new(
        KeyCode::Char('q'),
        KeyModifiers::NONE,
    )));
    assert!(matches!(effects[..], [Effect::Stop]), "{effects:?}");
    assert!(app.update(Msg::Finishing).is_empty());
    let effects = app.update(Msg::Ended(Box::new(samples::recording("c11"))));
    assert!(matches!(effects[..], [Effect::Leave]), "{effects:?}");
}

#[test]
fn a_trace_that_ends_by_itself_stays_on_the_screen() {
    let mut app = on();
    app.update(Msg::Finishing);
    let effects = app.update(Msg::Ended(Box::new(samples::recording("c11"))));
    assert!(effects.is_empty(), "{effects:?}");
    assert!(app.judged.as_ref().unwrap().last);
    let effects = app.update(Msg::Terminate);
    assert!(matches!(effects[..], [Effect::Leave]), "{effects:?}");
}

#[test]
fn a_verdict_so_far_never_replaces_the_last_one() {
    let mut app = on();
    assert!(!app.judged.as_ref().unwrap().last);
    app.update(Msg::Ended(Box::new(samples::recording("c11"))));
    app.update(Msg::Judged(Verdict::default(), Vec::new()));
    assert!(app.judged.as_ref().unwrap().last);
    assert_eq!(app.judged.as_ref().unwrap().verdict.code, "policy-drop");
}

#[test]
fn the_first_fault_is_found_behind_a_filter() {
    let mut app = recorded("c38");
    type_keys(&mut app, "fok\n");
    assert!(app.model.filtered());
    let hidden = app.chosen().is_none_or(|p| p.outcome == Outcome::Delivered);
    assert!(hidden);
    type_keys(&mut app, "x");
    assert!(is_fault(app.chosen().unwrap()));
    assert!(!app.model.filtered());
    assert_eq!(app.focus, Pane::Path);
}

#[test]
fn only_faults_and_back() {
    let mut app = recorded("c38");
    let all = app.model.shown_count();
    type_keys(&mut app, "e");
    assert!(app.model.shown_count() < all);
    assert!(is_fault(app.chosen().unwrap()));
    type_keys(&mut app, "e");
    assert_eq!(app.model.shown_count(), all);
}

#[test]
fn search_goes_round() {
    let mut app = recorded("c38");
    type_keys(&mut app, "g/SYN\n");
    let first = app.packet;
    type_keys(&mut app, "n");
    let second = app.packet;
    assert_ne!(first, second);
    type_keys(&mut app, "N");
    assert_eq!(app.packet, first);
    type_keys(&mut app, "N");
    let last = app.packet;
    type_keys(&mut app, "n");
    assert_eq!(app.packet, first);
    assert!(last > first);
    type_keys(&mut app, "/no-such-thing\n");
    assert!(
        app.message
            .as_ref()
            .unwrap()
            .0
            .contains("no packet matches")
    );
    assert_eq!(app.packet, first);
}

#[test]
fn a_query_that_cannot_be_read_is_typed_on() {
    let mut app = recorded("c20");
    type_keys(&mut app, "fport:x\n");
    assert_eq!(app.prompt, Some(Prompt::Filter("port:x".into())));
    assert!(app.message.is_some());
    type_keys(&mut app, "\x1b");
    assert_eq!(app.prompt, None);
    assert!(!app.model.filtered());
}

#[test]
fn two_packets_are_compared() {
    let mut app = recorded("c11");
    type_keys(&mut app, "gcGc");
    assert!(matches!(app.top, Some(Top::Compare(..))));
    type_keys(&mut app, "q");
    assert_eq!(app.top, None, "q closes what lies on top first");
    type_keys(&mut app, "gc");
    assert_eq!(app.mark, None, "the same packet again unmarks it");
}

#[test]
fn escape_and_a_key_close_behind_it_are_both_heard() {
    let mut app = recorded("c11");
    type_keys(&mut app, "v");
    let key = KeyEvent::new(KeyCode::Char('q'), KeyModifiers::ALT);
    let effects = app.update(Msg::Key(key));
    assert_eq!(app.top, None);
    assert!(matches!(effects[..], [Effect::Leave]), "{effects:?}");
}

#[test]
fn export_names_format_and_file() {
    let mut app = recorded("c11");
    type_keys(&mut app, "w\t");
    let Some(Prompt::Export(1, name)) = &app.prompt else {
        panic!("{:?}", app.prompt);
    };
    assert_eq!(name, "tracer-export.json");
    let enter = Msg::Key(KeyEvent::new(KeyCode::Enter, KeyModifiers::NONE));
    let effects = app.update(enter);
    let [Effect::Export { format, path, .. }] = &effects[..] else {
        panic!("{effects:?}");
    };
    assert_eq!(format.name, "json");
    assert_eq!(path.to_str(), Some("tracer-export.json"));
}

fn mouse(app: &mut App, kind: MouseEventKind, column: u16, row: u16) {
    app.update(Msg::Mouse(MouseEvent {
        kind,
        column,
        row,
        modifiers: KeyModifiers::NONE,
    }));
}

#[test]
fn a_click_chooses_and_the_wheel_moves() {
    let mut app = recorded("c38");
    app.update(Msg::Resize(200, 60));
    let at = areas(&app);
    let click = MouseEventKind::Down(MouseButton::Left);
    mouse(&mut app, click, at.packets.x + 4, at.packets.y + 3);
    assert_eq!(app.focus, Pane::Packets);
    let third = app.model.shown(app.flow)[2];
    assert_eq!(app.packet, Some(third));
    mouse(&mut app, click, at.path.x + 4, at.path.y + 3);
    assert_eq!((app.focus, app.step), (Pane::Path, 1));
    mouse(&mut app, MouseEventKind::ScrollDown, at.path.x, at.path.y);
    assert_eq!(app.step, 4);
    mouse(&mut app, click, 3, 0);
    assert_eq!(app.top, Some(Top::Verdict));
}

/// What a frame costs does not grow with what came before: only the packets of
/// an update are looked at.
#[test]
fn work_is_bounded_in_a_flood() {
    use crate::tui::feed::UPDATE_PACKETS;
    let mut app = on();
    let most = UPDATE_PACKETS as u64;
    let rounds = 200;
    let mut worst = 0;
    let before = app.model.touched;
    for round in 0..rounds {
        let mut update = newer(1000, false);
        update.packets = (0..most)
            .map(|i| {
                let id = 1000 + round * most + i;
                (id, samples::packet(id, 9, i % 100 == 0))
            })
            .collect();
        let before = app.model.touched;
        app.update(Msg::Update(update));
        worst = worst.max(app.model.touched - before);
        assert!(app.model.kept() <= LIVE_PACKETS);
    }
    // Now and then room is made, by a look at all that is kept.
    assert!(worst <= most + LIVE_PACKETS as u64 + most, "{worst}");
    let mean = (app.model.touched - before) / rounds;
    assert!(mean <= 12 * most, "{mean} packets a frame");
}
