//! One lane: its slots, its queue, its pause and what it remembers of the last five minutes.

use std::time::Duration;

use super::capacity::{Capacity, ClassSet};
use super::outcome::{OutcomeKind, Verdict};
use super::pause::Gate;
use super::policy::LanePolicy;
use super::pool::LEASE;
use super::queue::Queue;
use super::time::Time;
use super::totals::Totals;
use super::window::Window;

/// A lane is called saturated when something has waited in it without a break for this long.
const SATURATED_AFTER: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(crate) struct Lane {
    pub(super) policy: LanePolicy,
    pub(super) capacity: Capacity,
    pub(super) queue: Queue,
    pub(super) gate: Gate,
    pub(super) window: Window,
    pub(super) totals: Totals,
    queued_since: Option<Time>,
    /// Where the pool lists this lane while its queue is not empty.
    pub(super) listed_at: Option<usize>,
}

/// The figures of a lane at one moment.
#[derive(Clone, Debug)]
pub(crate) struct LaneView {
    /// 0: unlimited.
    pub(crate) limit: u32,
    pub(crate) reserve: u32,
    pub(crate) in_use: u32,
    pub(crate) waiting: [u32; 3],
    pub(crate) oldest_wait: Duration,
    pub(crate) wait_p50: Duration,
    pub(crate) wait_p90: Duration,
    pub(crate) timeouts: u32,
    pub(crate) is_saturated: bool,
    pub(crate) paused_for: Option<Duration>,
    pub(crate) totals: Totals,
}

impl Lane {
    pub(super) fn new(policy: LanePolicy) -> Self {
        Self {
            capacity: Capacity::new(policy.limit, policy.reserve),
            queue: Queue::new(policy.aging_step),
            gate: Gate::default(),
            window: Window::default(),
            totals: Totals::default(),
            queued_since: None,
            listed_at: None,
            policy,
        }
    }

    pub(super) fn set_policy(&mut self, policy: LanePolicy) {
        self.capacity.resize(policy.limit, policy.reserve);
        if policy.aging_step != self.policy.aging_step {
            self.queue.set_aging_step(policy.aging_step);
        }
        self.policy = policy;
    }

    /// The classes that may be granted a slot of this lane now.
    #[inline]
    pub(super) fn open_to(&self, now: Time) -> ClassSet {
        if self.gate.is_open(now) { self.capacity.open_to() } else { ClassSet::NONE }
    }

    /// Takes in what the end of a call says about the upstream.
    pub(super) fn learn(&mut self, verdict: Verdict, granted_at: Time, now: Time) {
        if let Some(pause) = verdict.pause() {
            self.gate.close(pause, granted_at, now, self.policy.min_pause, self.policy.max_pause);
        } else if verdict.outcome().kind() == OutcomeKind::Success {
            self.gate.forget_refusals(granted_at);
        }
    }

    #[inline]
    pub(super) fn note_queue(&mut self, now: Time) {
        if self.queue.waiting() == 0 {
            self.queued_since = None;
        } else {
            self.queued_since.get_or_insert(now);
        }
    }

    /// When this lane next has something to do by itself.
    pub(super) fn next_timeout(&self, now: Time) -> Time {
        let opens_at = self.gate.opens_at(now).filter(|_| self.queue.waiting() > 0);
        self.queue.next_timeout(LEASE).min(opens_at.unwrap_or(Time::NEVER))
    }

    /// Nothing in flight, nobody waiting, nothing to remember.
    pub(super) fn is_idle(&self, now: Time) -> bool {
        self.queue.is_empty() && self.capacity.in_use() == 0 && self.gate.is_open(now)
    }

    pub(super) fn view(&mut self, now: Time) -> LaneView {
        LaneView {
            limit: self.capacity.limit().unwrap_or(0),
            reserve: self.capacity.reserve(),
            in_use: self.capacity.in_use(),
            waiting: self.queue.waiting_by_class(),
            oldest_wait: self.queue.oldest().map_or(Duration::ZERO, |since| now.since(since)),
            wait_p50: self.window.wait(0.5, now).unwrap_or_default(),
            wait_p90: self.window.wait(0.9, now).unwrap_or_default(),
            timeouts: self.window.timeouts(now),
            is_saturated: self.queued_since.is_some_and(|since| now.since(since) >= SATURATED_AFTER),
            paused_for: self.gate.opens_at(now).map(|at| at.since(now)),
            totals: self.totals,
        }
    }
}
