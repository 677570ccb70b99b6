//! The loop of the screen: messages in, frames out. It draws when something
//! changed, and at most twenty times a second.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::{Duration, Instant};

use ratatui::crossterm::event::{self, Event};

use super::app::{App, Effect, Msg};
use super::export;
use super::feed::Feed;
use super::term::{Input, Screen, Signals, wait};
use super::theme::Theme;
use super::{notes, view};
use crate::diagnose;
use crate::trace::{Finding, Trace, Verdict};

/// Between two frames.
const FRAME: Duration = Duration::from_millis(50);
/// Events that are read before the next frame: a paste, a wheel.
const EVENTS: usize = 256;

/// How the screen was left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Left {
    /// By the user, or by a signal.
    Asked,
    /// The terminal went away.
    Gone,
    /// There is no trace to show.
    Failed(String),
}

/// Judges what has come so far, beside the screen.
struct Judge {
    work: Sender<(Trace, u64)>,
    told: Receiver<(Verdict, Vec<Finding>)>,
}

impl Judge {
    fn start(feed: Arc<Feed>) -> io::Result<Self> {
        let (work, jobs) = mpsc::channel::<(Trace, u64)>();
        let (tell, told) = mpsc::channel();
        thread::Builder::new().name("judge".into()).spawn(move || {
            feed.judge_waits.store(true, Ordering::Release);
            for (trace, now) in jobs {
                if tell.send(diagnose::diagnose_live(&trace, now)).is_err() {
                    return;
                }
                feed.judge_waits.store(true, Ordering::Release);
            }
        })?;
        Ok(Self { work, told })
    }
}

/// Runs until it is left.
pub(super) fn run(app: &mut App, theme: Theme, feed: &Arc<Feed>) -> io::Result<Left> {
    let signals = Signals::listen(&feed.signalled)?;
    let judge = Judge::start(Arc::clone(feed))?;
    let (exported, exports) = mpsc::channel();
    let mut screen = Screen::open()?;
    let size = screen.terminal.size()?;
    app.update(Msg::Resize(size.width, size.height));
    let mut drawn: Option<Instant> = None;
    loop {
        let pause = match drawn {
            Some(at) if app.dirty => FRAME.saturating_sub(at.elapsed()),
            Some(_) => FRAME,
            None => Duration::ZERO,
        };
        let mut effects = Vec::new();
        match wait(pause) {
            Input::Gone => {
                feed.ask_to_stop();
                return Ok(Left::Gone);
            }
            Input::Ready | Input::Quiet => {
                for _ in 0..EVENTS {
                    // A change of size comes by a signal, not by the keys.
                    if !event::poll(Duration::ZERO)? {
                        break;
                    }
                    effects.extend(message(event::read()?).map(|m| app.update(m)));
                }
            }
        }
        let mut effects: Vec<Effect> = effects.into_iter().flatten().collect();
        if signals.ended() {
            effects.extend(app.update(Msg::Terminate));
        }
        if feed.close.load(Ordering::Acquire) {
            return Ok(Left::Asked);
        }
        if let Some(why) = fetch(app, feed, &judge, &mut effects) {
            return Ok(Left::Failed(why));
        }
        while let Ok(result) = exports.try_recv() {
            effects.extend(app.update(Msg::Exported(result)));
        }
        app.dirty |= screen.job_control(&signals)?;
        for effect in effects {
            match effect {
                Effect::Stop => feed.ask_to_stop(),
                Effect::Leave => return Ok(Left::Asked),
                Effect::Suspend => {
                    screen.suspend(&signals)?;
                    app.dirty = true;
                }
                Effect::Export {
                    format,
                    path,
                    snapshot,
                } => export::begin(format, path, *snapshot, &exported),
            }
        }
        let due = drawn.is_none_or(|at| at.elapsed() >= FRAME);
        if app.dirty && due {
            app.dirty = false;
            drawn = Some(Instant::now());
            screen.terminal.draw(|frame| {
                let area = frame.area();
                if (area.width, area.height) != app.size {
                    app.update(Msg::Resize(area.width, area.height));
                    app.dirty = false;
                }
                view::draw(app, theme, frame.buffer_mut());
            })?;
        }
    }
}

fn message(event: Event) -> Option<Msg> {
    match event {
        Event::Key(key) => Some(Msg::Key(key)),
        Event::Mouse(mouse) => Some(Msg::Mouse(mouse)),
        Event::Paste(text) => Some(Msg::Paste(text)),
        Event::Resize(width, height) => Some(Msg::Resize(width, height)),
        Event::FocusGained | Event::FocusLost => None,
    }
}

/// Takes what the trace has left; why there is none, if so.
fn fetch(app: &mut App, feed: &Feed, judge: &Judge, effects: &mut Vec<Effect>) -> Option<String> {
    let news = feed.fetch();
    if news.failed.is_some() {
        return news.failed;
    }
    for note in notes::fresh().into_iter().chain(news.notes) {
        effects.extend(app.update(Msg::Note(note)));
    }
    if let Some((done, total)) = news.progress {
        effects.extend(app.update(Msg::Progress(done, total)));
    }
    if let Some(update) = news.update {
        effects.extend(app.update(Msg::Update(update)));
    }
    if let Some(snapshot) = news.snapshot {
        // A judge that died says nothing more; the last verdict comes anyhow.
        let _ = judge.work.send(snapshot);
    }
    while let Ok((verdict, findings)) = judge.told.try_recv() {
        effects.extend(app.update(Msg::Judged(verdict, findings)));
    }
    if news.finishing {
        effects.extend(app.update(Msg::Finishing));
    }
    if let Some(trace) = news.ended {
        effects.extend(app.update(Msg::Ended(trace)));
    }
    None
}
