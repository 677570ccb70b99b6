//! The state of the screen, and what changes it. Pure: messages in, effects out;
//! no clock, no terminal, no files.

use std::path::PathBuf;
use std::sync::Arc;

use ratatui::crossterm::event::{KeyEvent, MouseEvent};

use super::feed::Update;
use super::layout::{self, Areas};
use super::model::{LIVE_PACKETS, Model, Snapshot};
use super::path;
use super::query::{Query, is_fault};
use super::theme::Ink;
use super::top;
use crate::output::format::Format;
use crate::trace::{Closing, Finding, Losses, Packet, StepKind, Trace, Verdict};

mod input;
pub(crate) mod keys;
mod moves;

/// A part of the screen that can be worked in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pane {
    Flows,
    Packets,
    Path,
    Details,
}

impl Pane {
    pub(crate) const ALL: [Self; 4] = [Self::Flows, Self::Packets, Self::Path, Self::Details];
}

/// How far the trace is.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Phase {
    /// A file is being read: bytes done, and in all.
    Loading { done: u64, total: u64 },
    /// Events come in.
    Live,
    /// Hooks are being detached, the state is read.
    Finishing,
    /// Nothing more will come.
    Over,
}

/// What lies on top of the panes.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Top {
    Help,
    Verdict,
    Missing,
    Compare(Arc<Packet>, Arc<Packet>),
}

/// A line that is being typed.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Prompt {
    Search(String),
    Filter(String),
    /// Which of the formats, and the file's name.
    Export(usize, String),
}

/// The verdict that is shown.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Judged {
    pub(crate) verdict: Verdict,
    pub(crate) findings: Vec<Finding>,
    /// Not "so far".
    pub(crate) last: bool,
}

/// What happened.
#[derive(Debug)]
pub(crate) enum Msg {
    Key(KeyEvent),
    Mouse(MouseEvent),
    Paste(String),
    Resize(u16, u16),
    Update(Update),
    Judged(Verdict, Vec<Finding>),
    Progress(u64, u64),
    Note(String),
    Finishing,
    Ended(Box<Trace>),
    Exported(Result<String, String>),
    /// A signal asks for the end.
    Terminate,
}

/// What is to be done outside.
#[derive(Debug)]
pub(crate) enum Effect {
    /// End the trace; the screen stays until it has ended.
    Stop,
    /// Leave the screen.
    Leave,
    /// Hand the terminal to the shell.
    Suspend,
    /// Write a file.
    Export {
        format: &'static Format,
        path: PathBuf,
        snapshot: Box<Snapshot>,
    },
}

/// All of it.
#[derive(Debug)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "each is a switch of its own on the screen"
)]
pub(crate) struct App {
    pub(crate) model: Model,
    pub(crate) size: (u16, u16),
    pub(crate) phase: Phase,
    /// It was live once.
    pub(crate) live: bool,
    pub(crate) judged: Option<Judged>,
    pub(crate) losses: Losses,
    pub(crate) notes: Vec<String>,
    pub(crate) focus: Pane,
    pub(crate) flow: Option<u64>,
    pub(crate) packet: Option<u64>,
    pub(crate) step: usize,
    /// First row that is shown, by pane.
    pub(crate) offsets: [usize; 4],
    /// Whether the headers of the step are open where room is short.
    pub(crate) details: bool,
    zoom: bool,
    pub(crate) follow: bool,
    /// What came while the picture was held still.
    pub(crate) held: Option<Update>,
    pub(crate) paused: bool,
    pub(crate) top: Option<Top>,
    pub(crate) scroll: usize,
    pub(crate) prompt: Option<Prompt>,
    pub(crate) search: Query,
    pub(crate) mark: Option<Arc<Packet>>,
    pub(crate) message: Option<(String, Ink)>,
    leaving: bool,
    pub(crate) dirty: bool,
}

impl App {
    /// For a trace that is on.
    pub(crate) fn live(model: Model) -> Self {
        Self::new(model, Phase::Live)
    }

    /// For a file that is being read.
    pub(crate) fn loading(model: Model) -> Self {
        Self::new(model, Phase::Loading { done: 0, total: 0 })
    }

    fn new(model: Model, phase: Phase) -> Self {
        let live = phase == Phase::Live;
        Self {
            model,
            size: (80, 24),
            phase,
            live,
            judged: None,
            losses: Losses::default(),
            notes: Vec::new(),
            focus: Pane::Packets,
            flow: None,
            packet: None,
            step: 0,
            offsets: [0; 4],
            details: false,
            zoom: false,
            follow: live,
            held: None,
            paused: false,
            top: None,
            scroll: 0,
            prompt: None,
            search: Query::default(),
            mark: None,
            message: None,
            leaving: false,
            dirty: true,
        }
    }

    /// Takes a message.
    pub(crate) fn update(&mut self, msg: Msg) -> Vec<Effect> {
        self.dirty = true;
        let effects = match msg {
            Msg::Key(key) => self.key(key),
            Msg::Mouse(mouse) => {
                self.mouse(mouse);
                Vec::new()
            }
            Msg::Paste(text) => {
                self.paste(&text);
                Vec::new()
            }
            Msg::Resize(width, height) => {
                self.size = (width, height);
                Vec::new()
            }
            Msg::Update(update) => {
                self.news(update);
                Vec::new()
            }
            Msg::Judged(verdict, findings) => {
                self.judge(verdict, findings, false);
                Vec::new()
            }
            Msg::Progress(done, total) => {
                self.phase = Phase::Loading { done, total };
                Vec::new()
            }
            Msg::Note(note) => {
                // The hooks are told where they are degraded; this is beside it.
                if note.starts_with("warning") {
                    self.message = Some((note.clone(), Ink::Warn));
                }
                self.notes.push(note);
                Vec::new()
            }
            Msg::Finishing => {
                self.phase = Phase::Finishing;
                Vec::new()
            }
            Msg::Ended(trace) => self.ended(*trace),
            Msg::Exported(result) => {
                self.message = Some(match result {
                    Ok(done) => (done, Ink::Good),
                    Err(why) => (why, Ink::Bad),
                });
                Vec::new()
            }
            Msg::Terminate => self.quit(),
        };
        self.settle();
        effects
    }

    fn quit(&mut self) -> Vec<Effect> {
        self.leaving = true;
        match self.phase {
            Phase::Live => vec![Effect::Stop],
            Phase::Finishing => Vec::new(),
            Phase::Loading { .. } | Phase::Over => vec![Effect::Leave],
        }
    }

    /// Whether the user waits for the end.
    pub(crate) fn is_leaving(&self) -> bool {
        self.leaving
    }

    fn judge(&mut self, verdict: Verdict, findings: Vec<Finding>, last: bool) {
        if !last && self.judged.as_ref().is_some_and(|j| j.last) {
            return;
        }
        let closing = Closing {
            verdict: verdict.clone(),
            findings: findings.clone(),
            losses: self.losses,
            ..Closing::default()
        };
        if !last {
            self.model.closing = Arc::new(closing);
        }
        self.judged = Some(Judged {
            verdict,
            findings,
            last,
        });
    }

    /// Packets are held back while paused; losses never are.
    fn news(&mut self, update: Update) {
        self.losses = update.losses;
        self.model.seen = update.seen;
        if self.paused {
            match &mut self.held {
                Some(held) => held.merge(update, LIVE_PACKETS),
                None => self.held = Some(update),
            }
        } else {
            self.show(update);
        }
    }

    fn show(&mut self, update: Update) {
        for flow in update.flows.into_values() {
            self.model.flow_seen(flow);
        }
        for packet in update.packets.into_values() {
            self.model.packet_seen(Arc::new(packet));
        }
        self.model.make_room();
        if self.follow {
            self.choose_newest();
        }
    }

    fn choose_newest(&mut self) {
        let newest = self.model.visible.iter().rev();
        let newest = newest.filter_map(|f| self.model.shown(Some(*f)).last());
        if let Some(id) = newest.max().copied() {
            self.select(id);
        }
    }

    fn ended(&mut self, trace: Trace) -> Vec<Effect> {
        let closing = &trace.closing;
        self.losses = closing.losses;
        let (verdict, findings) = (closing.verdict.clone(), closing.findings.clone());
        self.resume();
        let was_loading = matches!(self.phase, Phase::Loading { .. });
        let seen = self.model.seen;
        self.model.load(trace);
        self.model.seen = seen.max(self.model.kept() as u64);
        self.judge(verdict, findings, true);
        self.phase = Phase::Over;
        self.follow = false;
        if was_loading {
            self.choose_verdict();
        }
        if self.leaving {
            vec![Effect::Leave]
        } else {
            Vec::new()
        }
    }

    /// To what the verdict is about.
    fn choose_verdict(&mut self) {
        let told = self.judged.as_ref().and_then(|j| j.verdict.packet);
        if let Some(id) = told.filter(|id| self.model.packet(*id).is_some()) {
            self.select(id);
        }
    }

    fn resume(&mut self) {
        self.paused = false;
        if let Some(held) = self.held.take() {
            self.show(held);
        }
    }

    /// Chooses a packet, and in it the place where it stopped.
    pub(crate) fn select(&mut self, id: u64) {
        let Some(packet) = self.model.packet(id) else {
            return;
        };
        self.flow = Some(packet.flow);
        let stopped = |kind| {
            matches!(
                kind,
                StepKind::Drop | StepKind::Reject | StepKind::FragmentNeeded
            )
        };
        let bad = is_fault(packet);
        let stop = packet.steps.iter().rposition(|s| stopped(s.kind));
        self.step = match stop.filter(|_| bad) {
            Some(at) => at,
            None if bad => packet.steps.len().saturating_sub(1),
            None => 0,
        };
        self.packet = Some(id);
        self.offsets[Pane::Path as usize] = 0;
        self.offsets[Pane::Details as usize] = 0;
    }

    /// The pane that has all the room.
    pub(crate) fn zoomed(&self) -> Option<Pane> {
        self.zoom.then_some(self.focus)
    }

    /// The chosen packet.
    pub(crate) fn chosen(&self) -> Option<&Arc<Packet>> {
        self.packet.and_then(|id| self.model.packet(id))
    }

    /// The chosen packet's rows in a part of this width.
    pub(crate) fn path_rows(&self, width: u16) -> Vec<path::Row> {
        self.chosen().map_or_else(Vec::new, |packet| {
            path::rows(packet, &self.model.watched, usize::from(width))
        })
    }

    /// Brings selection and scroll positions into what there is.
    fn settle(&mut self) {
        let near = |list: &[u64], id: Option<u64>| -> Option<u64> {
            let id = id?;
            let at = list.partition_point(|x| *x < id);
            list.get(at).or(list.last()).copied()
        };
        let visible = &self.model.visible;
        self.flow = near(visible, self.flow).or(visible.first().copied());
        let shown = self.model.shown(self.flow);
        let packet = near(shown, self.packet).or(shown.first().copied());
        if packet == self.packet {
            let steps = self.chosen().map_or(0, |p| p.steps.len());
            self.step = self.step.min(steps.saturating_sub(1));
        } else {
            self.packet = None;
            self.step = 0;
            if let Some(id) = packet {
                self.select(id);
            }
        }
        let areas = layout::areas(self);
        self.scroll_panes(&areas);
        if let Some(top) = &self.top {
            let lines = top::lines(self, top, usize::from(areas.main.width)).len();
            let page = usize::from(areas.main.height).saturating_sub(1);
            self.scroll = self.scroll.min(lines.saturating_sub(page));
        }
    }

    fn scroll_panes(&mut self, areas: &Areas) {
        let place =
            |list: &[u64], id: Option<u64>| id.map_or(0, |id| list.partition_point(|x| *x < id));
        let page = |pane| usize::from(areas.pane(pane).height).saturating_sub(1);
        let flows = (
            place(&self.model.visible, self.flow),
            self.model.visible.len(),
        );
        let shown = self.model.shown(self.flow);
        let packets = (place(shown, self.packet), shown.len());
        let rows = self.path_rows(areas.path.width);
        let first = rows
            .iter()
            .position(|r| r.kind == path::Kind::Step(self.step));
        let last = rows.iter().rposition(
            |r| matches!(r.kind, path::Kind::Step(i) | path::Kind::More(i) if i == self.step),
        );
        // The last step is shown with what became of the packet, the first with its node.
        let steps = self.chosen().map_or(0, |p| p.steps.len());
        let at = if self.step + 1 == steps {
            rows.len().saturating_sub(1)
        } else if self.step == 0 {
            0
        } else {
            last.or(first).unwrap_or(0)
        };
        let lists = [
            (Pane::Flows, flows),
            (Pane::Packets, packets),
            (Pane::Path, (at, rows.len())),
        ];
        for (pane, (at, len)) in lists {
            let page = page(pane);
            let offset = &mut self.offsets[pane as usize];
            if page == 0 {
                continue;
            }
            *offset = (*offset).min(len.saturating_sub(page)).min(at);
            if at >= *offset + page {
                *offset = at + 1 - page;
            }
        }
        let lines = super::view::details::lines(self, usize::from(areas.details.width)).len();
        let most = lines.saturating_sub(page(Pane::Details));
        let offset = &mut self.offsets[Pane::Details as usize];
        *offset = (*offset).min(most);
    }
}

#[cfg(test)]
mod tests;
