//! Moving about, by keys and by mouse.

use std::sync::Arc;

use ratatui::crossterm::event::{MouseButton, MouseEvent, MouseEventKind};

use super::{App, Pane, Phase, Top};
use crate::trace::{Outcome, Packet};
use crate::tui::layout;
use crate::tui::path;
use crate::tui::query::{Query, is_fault};
use crate::tui::theme::Ink;

/// Rows that a turn of the wheel moves.
const WHEEL: isize = 3;

impl App {
    /// Moves the selection of a pane; a hand on it ends following.
    pub(super) fn shift(&mut self, pane: Pane, by: isize) {
        let step = |list: &[u64], id: Option<u64>| -> Option<u64> {
            let at = id.map_or(0, |id| list.partition_point(|x| *x < id));
            let last = list.len().checked_sub(1)?;
            list.get(at.saturating_add_signed(by).min(last)).copied()
        };
        match pane {
            Pane::Flows => {
                self.follow = false;
                let flow = step(&self.model.visible, self.flow);
                if flow != self.flow {
                    self.flow = flow;
                    let first = self.model.shown(flow).first().copied();
                    if let Some(id) = first {
                        self.select(id);
                    }
                }
            }
            Pane::Packets => {
                self.follow = false;
                let packet = step(self.model.shown(self.flow), self.packet);
                if let Some(id) = packet.filter(|_| packet != self.packet) {
                    self.select(id);
                }
            }
            Pane::Path => {
                self.follow = false;
                let steps = self.chosen().map_or(0, |p| p.steps.len());
                let at = self.step.saturating_add_signed(by);
                self.step = at.min(steps.saturating_sub(1));
                self.offsets[Pane::Details as usize] = 0;
            }
            Pane::Details => {
                let offset = &mut self.offsets[Pane::Details as usize];
                *offset = offset.saturating_add_signed(by);
            }
        }
    }

    /// Moves in what lies on top, else in the pane.
    pub(super) fn go(&mut self, by: isize) {
        if self.top.is_some() {
            self.scroll = self.scroll.saturating_add_signed(by);
        } else {
            self.shift(self.focus, by);
        }
    }

    /// Rows of a page.
    pub(super) fn page(&self) -> isize {
        let areas = layout::areas(self);
        let rows = if self.top.is_some() {
            areas.main.height
        } else {
            areas.pane(self.focus).height
        };
        rows.saturating_sub(2).max(1) as isize
    }

    /// To the next pane that is there, or the previous.
    pub(super) fn cycle(&mut self, forward: bool) {
        let areas = layout::areas(self);
        let all = Pane::ALL;
        let zoomed = self.zoomed().is_some();
        let mut at = self.focus as usize;
        for _ in 0..all.len() {
            at = (at + if forward { 1 } else { all.len() - 1 }) % all.len();
            if zoomed || areas.pane(all[at]).height > 0 || all[at] == Pane::Details {
                break;
            }
        }
        self.enter(all[at]);
    }

    pub(super) fn enter(&mut self, pane: Pane) {
        self.focus = pane;
        match pane {
            Pane::Details => self.details = true,
            Pane::Flows | Pane::Packets => self.details = false,
            Pane::Path => {}
        }
    }

    pub(super) fn open(&mut self) {
        match self.focus {
            Pane::Flows => self.enter(Pane::Packets),
            Pane::Packets => self.enter(Pane::Path),
            Pane::Path => self.enter(Pane::Details),
            Pane::Details => {}
        }
    }

    pub(super) fn back(&mut self) {
        if self.top.take().is_some() {
            return;
        }
        match self.focus {
            Pane::Flows => {}
            Pane::Packets => self.enter(Pane::Flows),
            Pane::Path => self.enter(Pane::Packets),
            Pane::Details => {
                self.details = false;
                self.focus = Pane::Path;
            }
        }
    }

    fn say(&mut self, text: impl Into<String>) {
        self.message = Some((text.into(), Ink::Head));
    }

    /// To the first packet that ended badly; without one, to what the verdict
    /// is about, or, when all is over, to what was not seen again.
    pub(super) fn first_fault(&mut self) {
        let bad = self.model.packets().find(|p| is_fault(p)).map(|p| p.id);
        let told = self.judged.as_ref().and_then(|j| {
            let bad = !matches!(&*j.verdict.code, "delivered" | "undecided");
            j.verdict.packet.filter(|_| bad)
        });
        let told = told.filter(|id| self.model.packet(*id).is_some());
        let over = self.phase == Phase::Over;
        let open = |p: &&Arc<Packet>| over && p.outcome == Outcome::Pending;
        let open = self.model.packets().find(open).map(|p| p.id);
        let Some(id) = bad.or(told).or(open) else {
            self.say("no packet that ended badly is here");
            return;
        };
        self.reveal(id);
        self.follow = false;
        self.top = None;
        self.select(id);
        self.focus = Pane::Path;
    }

    /// Takes the filter away where it hides this packet.
    fn reveal(&mut self, id: u64) {
        let hidden = |p: &Arc<_>| !self.model.is_shown(p);
        if self.model.packet(id).is_some_and(hidden) {
            self.model.set_filter(Query::default(), false);
            self.say("the filter hid it and was taken away");
        }
    }

    pub(super) fn only_faults(&mut self) {
        let on = !self.model.only_faults();
        let filter = self.model.filter().clone();
        self.model.set_filter(filter, on);
    }

    /// To the next packet that the search matches, round the end.
    pub(super) fn find(&mut self, forward: bool, stay: bool) {
        if self.search.is_empty() {
            self.say("nothing is searched for; press /");
            return;
        }
        let hits = self.model.packets().filter(|p| self.model.is_shown(p));
        let hits = hits.filter(|p| self.search.matches(p)).map(|p| p.id);
        let hits: Vec<u64> = hits.collect();
        let here = self.packet.unwrap_or(0);
        let next = if forward {
            let after = |id: &&u64| **id > here || stay && **id == here;
            hits.iter().find(after).or(hits.first())
        } else {
            hits.iter().rev().find(|id| **id < here).or(hits.last())
        };
        match next.copied() {
            Some(id) => {
                let at = hits.partition_point(|x| *x < id) + 1;
                self.say(format!("match {at} of {}", hits.len()));
                self.follow = false;
                self.select(id);
            }
            None => self.say(format!("no packet matches {:?}", self.search.text())),
        }
    }

    /// Marks a packet, then compares another with it.
    pub(super) fn compare(&mut self) {
        let Some(packet) = self.chosen().cloned() else {
            return;
        };
        self.follow = false;
        match self.mark.clone() {
            None => {
                self.say(format!(
                    "#{} is A; choose another packet and press c again",
                    packet.id
                ));
                self.mark = Some(packet);
            }
            Some(mark) if mark.id == packet.id => {
                self.mark = None;
                self.say("nothing is marked any more");
            }
            Some(mark) => {
                let pairs = crate::tui::compare::align(&mark, &packet);
                let first = crate::tui::compare::first_difference(&pairs);
                self.scroll = first.map_or(0, |at| at.saturating_sub(4));
                self.top = Some(Top::Compare(mark, packet));
            }
        }
    }

    pub(super) fn mouse(&mut self, mouse: MouseEvent) {
        let areas = layout::areas(self);
        let (x, y) = (mouse.column, mouse.row);
        let wheel = match mouse.kind {
            MouseEventKind::ScrollUp => -WHEEL,
            MouseEventKind::ScrollDown => WHEEL,
            MouseEventKind::Down(MouseButton::Left) => 0,
            _ => return,
        };
        if wheel != 0 {
            if self.top.is_some() {
                self.go(wheel);
            } else if let Some(pane) = areas.at(x, y) {
                self.shift(pane, wheel);
            }
            return;
        }
        self.message = None;
        if areas.head.contains((x, y).into()) {
            self.scroll = 0;
            self.top = Some(Top::Verdict);
            return;
        }
        if self.top.is_some() {
            return;
        }
        let Some(pane) = areas.at(x, y) else { return };
        self.follow = false;
        self.enter(pane);
        let area = areas.pane(pane);
        let Some(row) = (y - area.y).checked_sub(1) else {
            return;
        };
        let row = usize::from(row) + self.offsets[pane as usize];
        match pane {
            Pane::Flows => {
                if let Some(flow) = self.model.visible.get(row).copied()
                    && Some(flow) != self.flow
                {
                    self.flow = Some(flow);
                    self.packet = None;
                }
            }
            Pane::Packets => {
                if let Some(id) = self.model.shown(self.flow).get(row).copied() {
                    self.select(id);
                }
            }
            Pane::Path => {
                let rows = self.path_rows(area.width);
                if let Some(path::Kind::Step(i) | path::Kind::More(i)) =
                    rows.get(row).map(|r| r.kind)
                {
                    self.step = i;
                }
            }
            Pane::Details => {}
        }
    }
}
