//! What the pipeline hands to the view. It never waits for it: it leaves what
//! changed in a slot, and takes up again what was not fetched.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::query::is_fault;
use crate::trace::{Flow, Losses, Packet, Trace};

/// Packets of one update; more are not copied for a picture that nobody could
/// read in a twentieth of a second.
pub const UPDATE_PACKETS: usize = 500;

/// What changed since the last one.
#[derive(Debug, Default)]
pub struct Update {
    /// Packets, new or changed, by their ids.
    pub packets: BTreeMap<u64, Packet>,
    /// Their flows.
    pub flows: BTreeMap<u64, Flow>,
    /// What was lost until now.
    pub losses: Losses,
    /// Packets seen until now, those included that are not told here.
    pub seen: u64,
}

impl Update {
    /// Takes what is newer. Of more than `most` packets those that arrived go
    /// first, the oldest of them.
    pub(crate) fn merge(&mut self, newer: Self, most: usize) {
        self.packets.extend(newer.packets);
        self.flows.extend(newer.flows);
        self.losses = newer.losses;
        self.seen = newer.seen;
        let mut surplus = self.packets.len().saturating_sub(most);
        for bad in [false, true] {
            if surplus > 0 {
                self.packets.retain(|_, p| {
                    let goes = surplus > 0 && is_fault(p) == bad;
                    surplus -= usize::from(goes);
                    !goes
                });
            }
        }
        let packets = &self.packets;
        if self.flows.len() > most {
            let kept: std::collections::BTreeSet<u64> = packets.values().map(|p| p.flow).collect();
            self.flows.retain(|id, _| kept.contains(id));
        }
    }
}

/// What the view has not fetched yet.
#[derive(Debug, Default)]
pub(crate) struct News {
    pub(crate) update: Option<Update>,
    /// To be judged, with the time that it was taken at.
    pub(crate) snapshot: Option<(Trace, u64)>,
    pub(crate) finishing: bool,
    pub(crate) ended: Option<Box<Trace>>,
    /// How far loading is: bytes done, and in all.
    pub(crate) progress: Option<(u64, u64)>,
    /// Messages of the run.
    pub(crate) notes: Vec<String>,
    /// Why there will be no trace.
    pub(crate) failed: Option<String>,
}

/// The slot between a trace and its view.
#[derive(Debug, Default)]
pub(crate) struct Feed {
    news: Mutex<News>,
    /// Whether the judge is free.
    pub(crate) judge_waits: AtomicBool,
    /// The user wants the trace to end.
    stop: AtomicBool,
    stopped: Notify,
    /// A signal asks for the end, whether or not the view hears it.
    pub(crate) signalled: Arc<AtomicBool>,
    /// The view has to end, whatever it shows.
    pub(crate) close: AtomicBool,
}

impl Feed {
    /// Held for moments only, on either side.
    pub(crate) fn news(&self) -> MutexGuard<'_, News> {
        self.news.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes all there is.
    pub(crate) fn fetch(&self) -> News {
        std::mem::take(&mut *self.news())
    }

    /// Leaves an update.
    pub(crate) fn publish(&self, update: Update) {
        let mut news = self.news();
        match &mut news.update {
            Some(waiting) => waiting.merge(update, 4 * UPDATE_PACKETS),
            None => news.update = Some(update),
        }
    }

    /// Asks the trace to end.
    pub(crate) fn ask_to_stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.stopped.notify_one();
    }

    /// Whether it was asked to end.
    pub(crate) fn asked_to_stop(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    /// Waits until it is asked to end.
    pub(crate) async fn stop(&self) {
        while !self.asked_to_stop() {
            self.stopped.notified().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tui::samples;

    #[test]
    fn what_was_not_fetched_is_kept_within_bounds() {
        let feed = Feed::default();
        for round in 0..100u64 {
            let mut update = Update {
                seen: (round + 1) * 500,
                ..Update::default()
            };
            for id in round * 500..(round + 1) * 500 {
                let packet = samples::packet(id, 1, id % 1000 == 0);
                update.packets.insert(id, packet);
            }
            feed.publish(update);
        }
        let update = feed.fetch().update.unwrap();
        assert!(update.packets.len() <= 4 * UPDATE_PACKETS);
        assert_eq!(update.seen, 50_000);
        let bad = update.packets.values().filter(|p| is_fault(p)).count();
        assert_eq!(bad, 50);
        assert!(feed.fetch().update.is_none());
    }
}
