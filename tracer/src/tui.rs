//! The terminal interface of `follow` and `show`.
//!
//! A pure core (`app`: state and messages; `layout`, `view`: the screen from
//! the state) in a thin shell (`run`: the loop; `term`: the terminal). Beside a
//! live trace it runs on a thread of its own; `feed` is all that the two share,
//! and the pipeline never waits for it.

use std::io;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::trace::{Closing, Header, Trace};

pub use feed::{UPDATE_PACKETS, Update};
pub use notes::keep;
pub use run::Left;
pub use term::available;

use app::{App, Phase};
use feed::Feed;
use model::{LIVE_PACKETS, Model};
use theme::Theme;

mod app;
mod compare;
mod export;
mod feed;
mod layout;
mod model;
mod notes;
mod path;
mod query;
mod run;
#[cfg(test)]
mod samples;
#[cfg(test)]
mod screens;
mod term;
mod theme;
mod top;
mod view;
mod width;

/// The screen's thread.
const THREAD: &str = "screen";
/// How long a screen that was told to close is waited for: a terminal that
/// takes nothing any more must not keep the process.
const CLOSING: Duration = Duration::from_secs(2);
/// Between two looks at the screen's thread.
const LOOK: Duration = Duration::from_millis(20);
/// Between two snapshots that are judged, at least.
const JUDGE: Duration = Duration::from_secs(1);
/// And so many times as long as making one took.
const JUDGE_SHARE: u32 = 50;

/// What the screen showed when it was left.
#[derive(Clone, Debug)]
pub struct Seen {
    /// How it was left.
    pub left: Left,
    /// The end of the trace, if it was reached.
    pub closing: Option<(Arc<Closing>, Header)>,
}

type Screen = JoinHandle<Result<Seen, String>>;

/// Runs the screen; a panic in it becomes a sentence.
fn screen(mut app: App, color: bool, feed: &Arc<Feed>) -> Result<Seen, String> {
    let theme = Theme { color };
    let run = AssertUnwindSafe(|| run::run(&mut app, theme, feed));
    let left = panic::catch_unwind(run);
    // However it ended: the trace must not go on unseen.
    feed.ask_to_stop();
    let left = match left {
        Ok(Ok(left)) => left,
        // The terminal went away in the middle of a frame.
        Ok(Err(e)) if e.raw_os_error() == Some(libc::EIO) => Left::Gone,
        Ok(Err(e)) if e.kind() == io::ErrorKind::BrokenPipe => Left::Gone,
        Ok(Err(e)) => return Err(format!("the terminal cannot be used: {e}; try -o text")),
        Err(_) => {
            let why = "the terminal interface failed; this is a bug, -o text works without it";
            return Err(why.into());
        }
    };
    let over = app.phase == Phase::Over;
    let closing = over.then(|| {
        let header = app.model.header.clone();
        (Arc::clone(&app.model.closing), header)
    });
    Ok(Seen { left, closing })
}

fn start(app: App, color: bool, feed: &Arc<Feed>) -> io::Result<Screen> {
    let feed = Arc::clone(feed);
    thread::Builder::new()
        .name(THREAD.into())
        .spawn(move || screen(app, color, &feed))
}

/// Waits for the screen's end; once it was told to close, not for ever.
fn join(thread: Screen, feed: &Feed) -> Result<Seen, String> {
    let mut told: Option<Instant> = None;
    while !thread.is_finished() {
        let asked = feed.asked_to_stop() || feed.signalled.load(Ordering::Acquire);
        if asked && told.is_none() {
            told = Some(Instant::now());
        }
        if told.is_some_and(|t| t.elapsed() >= CLOSING) {
            term::give_back();
            return Ok(Seen {
                left: Left::Gone,
                closing: None,
            });
        }
        thread::sleep(LOOK);
    }
    let left = thread.join();
    left.unwrap_or_else(|_| Err("the terminal interface failed".into()))
}

/// The screen beside a live trace.
#[derive(Debug)]
pub struct Live {
    feed: Arc<Feed>,
    thread: Option<Screen>,
    judged: Instant,
    pause: Duration,
}

impl Live {
    /// Takes the terminal, with or without colour.
    pub fn start(header: &Header, color: bool) -> io::Result<Self> {
        let feed = Arc::new(Feed::default());
        let app = App::live(Model::new(header.clone(), LIVE_PACKETS));
        notes::begin();
        let thread = start(app, color, &feed)?;
        Ok(Self {
            feed,
            thread: Some(thread),
            judged: Instant::now(),
            pause: Duration::ZERO,
        })
    }

    /// Waits until the user has had enough.
    pub async fn quit(&self) {
        self.feed.stop().await;
    }

    /// Hands over what changed. Costs what is in it, and waits for nobody.
    pub fn publish(&self, update: Update) {
        self.feed.publish(update);
    }

    /// Hands over the whole, made by `make`, to be judged as of `now` in
    /// nanoseconds since the epoch, if that is due: once a second at most, and
    /// never more than a fiftieth of the caller's time.
    pub fn snapshot(&mut self, now: u64, make: impl FnOnce() -> Trace) {
        let due = self.judged.elapsed() >= self.pause;
        if !due || !self.feed.judge_waits.swap(false, Ordering::AcqRel) {
            return;
        }
        let begun = Instant::now();
        let trace = make();
        self.feed.news().snapshot = Some((trace, now));
        self.judged = Instant::now();
        self.pause = JUDGE.max(begun.elapsed() * JUDGE_SHARE);
    }

    /// Tells that the trace is being ended.
    pub fn finishing(&self) {
        self.feed.news().finishing = true;
    }

    /// Hands over the whole trace, judged for good, and waits until the user
    /// has seen it; at once where they asked for the end.
    pub fn end(&mut self, trace: Trace) -> Result<Left, String> {
        self.feed.news().ended = Some(Box::new(trace));
        let seen = self.thread.take().map(|thread| join(thread, &self.feed));
        seen.map_or(Ok(Left::Asked), |seen| seen.map(|s| s.left))
    }
}

impl Drop for Live {
    /// A trace that fails gives the terminal back first.
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            self.feed.close.store(true, Ordering::Release);
            self.feed.ask_to_stop();
            let _ = join(thread, &self.feed);
        }
    }
}

/// The terminal is given back: what was said meanwhile, to be said now.
pub fn kept() -> Vec<String> {
    notes::end()
}

/// Tells how far loading is; cheap enough for every line.
#[derive(Debug)]
pub struct Progress {
    feed: Arc<Feed>,
}

impl Progress {
    /// So many bytes of so many are read.
    pub fn at(&self, done: u64, total: u64) {
        self.feed.news().progress = Some((done, total));
    }
}

/// Shows a recorded trace. The screen is there at once; `load` runs beside it
/// and gives the trace, judged, and what is worth telling of it.
pub fn show<F>(color: bool, load: F) -> Result<Seen, String>
where
    F: FnOnce(&Progress) -> Result<(Trace, Vec<String>), String> + Send + 'static,
{
    let feed = Arc::new(Feed::default());
    let header = Header {
        schema: crate::trace::SCHEMA.into(),
        ..Header::default()
    };
    let app = App::loading(Model::new(header, usize::MAX));
    notes::begin();
    let progress = Progress {
        feed: Arc::clone(&feed),
    };
    let loader = thread::Builder::new().name("load".into()).spawn(move || {
        let loaded = panic::catch_unwind(AssertUnwindSafe(|| load(&progress)));
        let loaded = loaded.unwrap_or_else(|_| Err("reading it failed; this is a bug".into()));
        let mut news = progress.feed.news();
        match loaded {
            Ok((trace, notes)) => {
                news.notes = notes;
                news.ended = Some(Box::new(trace));
            }
            Err(why) => news.failed = Some(why),
        }
    });
    let thread = loader.and_then(|_| start(app, color, &feed));
    let thread = thread.map_err(|e| format!("cannot start a thread: {e}"))?;
    let left = join(thread, &feed);
    // The loader, if it is still at work, ends with the process.
    feed.close.store(true, Ordering::Release);
    left
}
