//! One lane: its slots, its queue and what it remembers of the last five minutes.

use std::time::Duration;

use super::asked::KeptOfWaiters;
use super::breaker::{Breaker, BreakerState};
use super::health::Health;
use super::policy::LanePolicy;
use super::pool::LEASE;
use super::queue::Queue;
use super::quota::{Quota, QuotaView};
use super::retry_budget::Retries;
use super::steering::Steering;
use super::time::Time;
use super::totals::Totals;
use super::valve::{Valve, ValveView};
use super::window::Window;

/// A lane is called saturated when something has waited in it without a break for this long.
const SATURATED_AFTER: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(crate) struct Lane {
    pub(super) policy: LanePolicy,
    pub(super) valve: Valve,
    pub(super) queue: Queue,
    pub(super) window: Window,
    pub(super) health: Health,
    /// Its budgets per minute.
    pub(super) quota: Option<Box<Quota>>,
    pub(super) kept: KeptOfWaiters,
    pub(super) breaker: Breaker,
    /// When it last opened on those who waited.
    pub(super) tripped_at: Option<Time>,
    pub(super) retries: Retries,
    /// Somebody wants to hear of its calls, or they are charged or held back: kept by the pool, for every call to ask.
    pub(super) is_followed: bool,
    pub(super) totals: Totals,
    queued_since: Option<Time>,
    /// Where the pool lists this lane while its queue is not empty.
    pub(super) listed_at: Option<usize>,
}

/// The figures of a lane at one moment.
#[derive(Clone, Debug)]
pub(crate) struct LaneView {
    pub(crate) valve: ValveView,
    pub(crate) waiting: [u32; 3],
    pub(crate) oldest_wait: Duration,
    pub(crate) wait_p50: Duration,
    pub(crate) wait_p90: Duration,
    pub(crate) timeouts: u32,
    pub(crate) is_saturated: bool,
    /// Refusals and failures are many: see [`Health::is_degraded`].
    pub(crate) is_degraded: bool,
    pub(crate) breaker: BreakerState,
    /// Of its own budgets per minute.
    pub(crate) quota: Option<QuotaView>,
    pub(crate) totals: Totals,
}

impl Lane {
    pub(super) fn new(policy: LanePolicy, steering: Option<Steering>) -> Self {
        Self {
            valve: Valve::new(policy.slots, steering),
            queue: Queue::new(policy.aging_step),
            window: Window::default(),
            health: Health::default(),
            quota: None,
            kept: KeptOfWaiters::default(),
            breaker: Breaker::new(None),
            tripped_at: None,
            retries: Retries::new(None),
            is_followed: false,
            totals: Totals::default(),
            queued_since: None,
            listed_at: None,
            policy,
        }
    }

    /// Puts another policy in force, all of it but the slots, which are the valve's.
    pub(super) fn set_policy(&mut self, policy: LanePolicy) {
        if policy.aging_step != self.policy.aging_step {
            self.queue.set_aging_step(policy.aging_step);
        }
        self.policy = policy;
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
        let opens_at = if self.queue.waiting() > 0 {
            self.valve.next_timeout(now).min(self.breaker.next_timeout(now))
        } else {
            Time::NEVER
        };
        self.queue.next_timeout(LEASE).min(opens_at)
    }

    /// Nothing in flight, nobody waiting, nothing to remember.
    pub(super) fn is_idle(&mut self, now: Time) -> bool {
        self.queue.is_empty()
            && self.valve.is_idle(now)
            && self.breaker.is_idle(now)
            && self.quota.as_mut().is_none_or(|quota| quota.is_full(now))
    }

    pub(super) fn view(&mut self, now: Time) -> LaneView {
        LaneView {
            valve: self.valve.view(now),
            waiting: self.queue.waiting_by_class(),
            oldest_wait: self.queue.oldest().map_or(Duration::ZERO, |since| now.since(since)),
            wait_p50: self.window.wait(0.5, now).unwrap_or_default(),
            wait_p90: self.window.wait(0.9, now).unwrap_or_default(),
            timeouts: self.window.timeouts(now),
            is_saturated: self.queued_since.is_some_and(|since| now.since(since) >= SATURATED_AFTER),
            is_degraded: self.health.is_degraded(now),
            breaker: self.breaker.state(now),
            quota: self.quota.as_mut().map(|quota| quota.view(now)),
            totals: self.totals,
        }
    }
}
