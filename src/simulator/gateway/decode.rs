//! The batch that is being decoded: every call in it gets its next token at the same moment.
//!
//! A virtual clock counts tokens, faster or slower as the batch is small or large. A call that joins at token 1,000 and
//! wants 200 is done at token 1,200, whatever happens to the pace meanwhile; so a change of pace moves one event only.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use crate::engine::time::Time;
use crate::simulator::agenda::{Agenda, Event, secs};
use crate::simulator::call::CallId;

#[derive(Debug, Default)]
pub(super) struct Decode {
    tokens: f64,
    as_of: Time,
    done_at: BinaryHeap<Reverse<Done>>,
    expected_at: Option<Time>,
    stamp: u32,
}

#[derive(Debug)]
struct Done {
    tokens: f64,
    call: CallId,
}

/// Rounding to nanoseconds may let an event come this much early.
const TOLERATED_TOKENS: f64 = 1e-3;
/// An event that moves by less is left where it is.
const TOLERATED_S: f64 = 1e-6;

impl Decode {
    /// Counts the tokens up to now, at the pace that held until now.
    pub(super) fn advance(&mut self, token_s: f64, now: Time) {
        self.tokens += now.since(self.as_of).as_secs_f64() / token_s;
        self.as_of = now;
    }

    pub(super) fn join(&mut self, call: CallId, tokens: f64) {
        self.done_at.push(Reverse(Done { tokens: self.tokens + tokens, call }));
    }

    /// The call that is next to have all its tokens.
    pub(super) fn first(&self) -> Option<CallId> {
        self.done_at.peek().map(|Reverse(done)| done.call)
    }

    pub(super) fn is_first_done(&self) -> bool {
        self.done_at.peek().is_some_and(|Reverse(done)| done.tokens <= self.tokens + TOLERATED_TOKENS)
    }

    pub(super) fn drop_first(&mut self) {
        self.done_at.pop();
    }

    /// Schedules the end of the first, at the pace that holds from now on.
    pub(super) fn schedule(&mut self, token_s: f64, agenda: &mut Agenda) {
        let Some(Reverse(first)) = self.done_at.peek() else {
            self.forget_schedule();
            return;
        };
        let at = self.as_of + secs((first.tokens - self.tokens) * token_s);
        let is_there = self.expected_at.is_some_and(|expected_at| {
            at.since(expected_at).max(expected_at.since(at)) <= secs(TOLERATED_S) && expected_at > self.as_of
        });
        if !is_there {
            self.forget_schedule();
            self.expected_at = Some(at);
            agenda.schedule(at, Event::Decoded { stamp: self.stamp });
        }
    }

    /// True for the event that was scheduled last; it counts once.
    pub(super) fn take_event(&mut self, stamp: u32) -> bool {
        let is_current = stamp == self.stamp && self.expected_at.is_some();
        if is_current {
            self.expected_at = None;
        }
        is_current
    }

    pub(super) fn clear(&mut self) {
        self.done_at.clear();
        self.forget_schedule();
    }

    fn forget_schedule(&mut self) {
        self.expected_at = None;
        self.stamp = self.stamp.wrapping_add(1);
    }
}

impl Ord for Done {
    fn cmp(&self, other: &Self) -> Ordering {
        self.tokens.total_cmp(&other.tokens).then(self.call.index.cmp(&other.call.index))
    }
}

impl PartialOrd for Done {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Done {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Done {}
