//! The time that calls spend in a lane's line, by what they wait for.
//!
//! At each moment all of a line wait for the same: for what its first lacks, of those who may go. So the time spent is the
//! length of the line, summed over time, and each part of it the same over the moments at which the cause was that one.
//! Nothing is kept of a waiter, and what the causes come to is what all waited.
//!
//! | cause | |
//! |---|---|
//! | pause | the lane or its pool is paused |
//! | slot | no slot is free for anybody in line |
//! | breaker | there is one, and the breaker lets nobody in |
//! | tokens | a budget is short for the first of them, or for the first of the pool |

use std::time::Duration;

use super::time::Time;

/// What those in line wait for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum WaitsFor {
    #[default]
    Slot,
    Pause,
    Tokens,
    Breaker,
}

impl WaitsFor {
    pub(crate) const ALL: [Self; 4] = [Self::Slot, Self::Pause, Self::Tokens, Self::Breaker];

    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Slot => "slot",
            Self::Pause => "pause",
            Self::Tokens => "tokens",
            Self::Breaker => "breaker",
        }
    }
}

#[derive(Debug)]
pub(super) struct Waits {
    waiting: u32,
    cause: WaitsFor,
    /// When the cause is over by itself, and they wait for a slot: it is a pause. Else `NEVER`.
    until: Time,
    /// Up to here it is counted.
    at: Time,
    /// Nanoseconds for the present cause, not yet in `spent`: what a change of the line costs is this sum.
    open: u64,
    spent: [Duration; 4],
    /// It is more than it was when last asked for news.
    has_grown: bool,
    /// Of these, whole seconds that were told.
    told: [u64; 4],
}

impl Default for Waits {
    fn default() -> Self {
        Self {
            waiting: 0,
            cause: WaitsFor::Slot,
            until: Time::NEVER,
            at: Time::ZERO,
            open: 0,
            spent: [Duration::ZERO; 4],
            has_grown: false,
            told: [0; 4],
        }
    }
}

const SECOND: u64 = 1_000_000_000;

impl Waits {
    /// So many wait from now on.
    #[inline]
    pub(super) fn note_waiting(&mut self, waiting: u32, now: Time) {
        self.count_to(now);
        self.waiting = waiting;
    }

    /// So many, when that was last noted.
    #[inline]
    pub(super) fn waiting(&self) -> u32 {
        self.waiting
    }

    /// They wait for this from now on.
    pub(super) fn note_cause(&mut self, cause: WaitsFor, now: Time) {
        if cause != self.cause {
            self.change(cause, Time::NEVER, now);
        }
    }

    /// They wait for the end of a pause.
    pub(super) fn note_pause(&mut self, until: Time, now: Time) {
        if until != self.until {
            self.change(WaitsFor::Pause, until, now);
        }
    }

    /// By cause, up to now.
    pub(super) fn spent(&mut self, now: Time) -> [Duration; 4] {
        self.count_to(now);
        self.close();
        self.spent
    }

    /// By cause, whole seconds that were not told before; `None`: there are none.
    #[inline]
    pub(super) fn news(&mut self) -> Option<[u64; 4]> {
        if self.open >= SECOND {
            self.close();
        }
        if self.has_grown { self.whole_seconds() } else { None }
    }

    #[cold]
    fn whole_seconds(&mut self) -> Option<[u64; 4]> {
        self.has_grown = false;
        let told = std::mem::replace(&mut self.told, self.spent.map(|spent| spent.as_secs()));
        (told != self.told).then(|| [0, 1, 2, 3].map(|at| self.told[at] - told[at]))
    }

    #[inline]
    fn count_to(&mut self, now: Time) {
        if now >= self.until {
            self.change(WaitsFor::Slot, Time::NEVER, self.until);
        }
        self.open = self.open.saturating_add(now.nanos_since(self.at).saturating_mul(u64::from(self.waiting)));
        self.at = self.at.max(now);
    }

    #[cold]
    fn change(&mut self, cause: WaitsFor, until: Time, now: Time) {
        let ended = std::mem::replace(&mut self.until, Time::NEVER).min(now);
        self.count_to(ended);
        self.close();
        self.cause = WaitsFor::Slot;
        self.count_to(now);
        self.close();
        (self.cause, self.until) = (cause, until);
    }

    fn close(&mut self) {
        self.has_grown = true;
        self.spent[self.cause as usize] += Duration::from_nanos(std::mem::take(&mut self.open));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(secs: u64) -> Time {
        Time::from_epoch(Duration::from_secs(secs))
    }

    fn secs(spent: [Duration; 4]) -> [u64; 4] {
        spent.map(|spent| spent.as_secs())
    }

    #[test]
    fn each_second_of_each_waiter_is_counted_once_for_the_cause_of_then() {
        let mut waits = Waits::default();
        waits.note_waiting(2, at(10));
        waits.note_cause(WaitsFor::Tokens, at(13));
        waits.note_waiting(5, at(14));
        waits.note_cause(WaitsFor::Breaker, at(15));
        waits.note_waiting(0, at(16));
        waits.note_cause(WaitsFor::Slot, at(100));
        assert_eq!(secs(waits.spent(at(200))), [6, 0, 2 + 5, 5]);
    }

    #[test]
    fn a_pause_ends_when_it_does_however_late_that_is_noted() {
        let mut waits = Waits::default();
        waits.note_pause(at(20), at(10));
        waits.note_waiting(1, at(12));
        waits.note_pause(at(30), at(15));
        waits.note_waiting(3, at(40));
        assert_eq!(secs(waits.spent(at(41))), [10 + 3, 18, 0, 0]);
        waits.note_pause(at(50), at(41));
        waits.note_cause(WaitsFor::Tokens, at(60));
        assert_eq!(secs(waits.spent(at(61))), [13 + 30, 18 + 27, 3, 0]);
    }

    #[test]
    fn what_is_told_is_whole_seconds_and_nothing_twice() {
        let mut waits = Waits::default();
        let millis = |millis| Time::from_epoch(Duration::from_millis(millis));
        waits.note_waiting(1, millis(0));
        waits.note_waiting(1, millis(900));
        assert_eq!(waits.news(), None);
        waits.note_cause(WaitsFor::Tokens, millis(1_100));
        assert_eq!(waits.news(), Some([1, 0, 0, 0]));
        waits.note_waiting(1, millis(3_500));
        assert_eq!(waits.news(), Some([0, 0, 2, 0]));
        assert_eq!(waits.news(), None);
        waits.note_cause(WaitsFor::Slot, millis(3_500));
        waits.note_waiting(1, millis(4_400));
        waits.spent(millis(4_400));
        assert_eq!(waits.news(), Some([1, 0, 0, 0]));
    }
}
