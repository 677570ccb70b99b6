//! Losses told while they happen: who looks at a trace that goes on for hours
//! should know now that it has holes.

use std::time::Duration;

use crate::trace::Losses;

/// Between two lines about it.
const PAUSE: Duration = Duration::from_secs(5);

/// What was told, and when.
#[derive(Debug, Default)]
pub(super) struct Teller {
    told: u64,
    last: Option<Duration>,
}

impl Teller {
    /// The line to say, `now` after the run's begin, if there is something new
    /// and it is not too soon.
    pub(super) fn tell(&mut self, losses: Losses, now: Duration) -> Option<String> {
        let total = losses.total();
        let early = self
            .last
            .is_some_and(|last| now.saturating_sub(last) < PAUSE);
        if total <= self.told || early {
            return None;
        }
        self.told = total;
        self.last = Some(now);
        let events = if total == 1 { "event" } else { "events" };
        Some(format!(
            "warning: {total} {events} lost so far ({} in the ring buffer, {} in user space, {} otherwise)",
            losses.ring_buffer, losses.user_space, losses.other
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn losses(ring_buffer: u64, other: u64) -> Losses {
        Losses {
            ring_buffer,
            other,
            user_space: 0,
        }
    }

    #[test]
    fn told_at_once_and_then_only_what_is_new_and_not_too_often() {
        let mut teller = Teller::default();
        let at = Duration::from_secs;
        assert_eq!(teller.tell(losses(0, 0), at(1)), None);
        let line = teller.tell(losses(0, 1), at(2)).unwrap();
        assert!(
            line.starts_with("warning: 1 event lost so far (0 in"),
            "{line}"
        );
        assert_eq!(teller.tell(losses(7, 1), at(6)), None);
        let line = teller.tell(losses(9, 1), at(7)).unwrap();
        assert!(
            line.contains("10 events lost so far (9 in the ring"),
            "{line}"
        );
        assert_eq!(teller.tell(losses(9, 1), at(60)), None);
    }
}
