//! What will happen, and when.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::time::Duration;

use super::call::CallId;
use crate::engine::outcome::Outcome;
use crate::engine::time::Time;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// A client makes a call that nobody waited for (open loads).
    Arrival { client: u32 },
    /// A busy time of a client gives way to a quiet one, or the reverse.
    Pace { client: u32 },
    /// A caller has thought, and makes its next call (closed loads).
    NextCall { client: u32 },
    /// A call is tried again.
    Retry(CallId),
    /// A call has crossed the network.
    Reached(CallId),
    /// Its prompt was read: here comes the first token.
    Prefilled(CallId),
    /// Some call of the batch has all its tokens, unless the batch has changed since.
    Decoded { stamp: u32 },
    /// A call ends without all its tokens.
    Ended(CallId, Outcome),
    /// Some call may have waited for its first token for too long.
    FirstByteTimeout,
    /// The engine wants to run.
    Timer { client: u32 },
    /// The gateway changes.
    Change { index: u32 },
    /// A line of the trajectory is due.
    Step,
}

/// Events by time; those of one moment in the order in which they were scheduled.
#[derive(Debug, Default)]
pub(super) struct Agenda {
    entries: BinaryHeap<Reverse<Entry>>,
    scheduled: u64,
}

#[derive(Debug)]
struct Entry {
    at: Time,
    turn: u64,
    event: Event,
}

impl Agenda {
    pub(super) fn schedule(&mut self, at: Time, event: Event) {
        self.scheduled += 1;
        self.entries.push(Reverse(Entry { at, turn: self.scheduled, event }));
    }

    pub(super) fn next(&mut self) -> Option<(Time, Event)> {
        self.entries.pop().map(|Reverse(entry)| (entry.at, entry.event))
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.at, self.turn).cmp(&(other.at, other.turn))
    }
}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.turn == other.turn
    }
}

impl Eq for Entry {}

/// Seconds of a scenario as the engine's time. Never negative, never beyond a century.
pub(super) fn secs(seconds: f64) -> Duration {
    const CENTURY_S: f64 = 3.2e9;
    Duration::from_secs_f64(seconds.clamp(0.0, CENTURY_S))
}
