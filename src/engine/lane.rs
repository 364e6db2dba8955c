//! One lane: its slots, its queue and what it remembers of the last five minutes.

use std::time::Duration;

use super::asked::KeptOfWaiters;
use super::breaker::{Breaker, BreakerState};
use super::capacity::ClassSet;
use super::forecast::Past;
use super::health::Health;
use super::policy::LanePolicy;
use super::pool::LEASE;
use super::priority::Priority;
use super::queue::{Next, Queue};
use super::quota::{Quota, QuotaView};
use super::retry_budget::Retries;
use super::shares::Shares;
use super::steering::Steering;
use super::time::Time;
use super::totals::Totals;
use super::valve::{Valve, ValveView};
use super::waits::Waits;
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
    pub(super) waits: Waits,
    /// Since the first call with a deadline had to wait here.
    pub(super) past: Option<Box<Past>>,
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
    /// By what calls waited for.
    pub(crate) waited: [Duration; 4],
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
            waits: Waits::default(),
            past: None,
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

    /// The waiter that goes next among those whose own class is in `open`.
    #[inline]
    pub(super) fn next(&mut self, open: ClassSet, now: Time) -> Option<Next> {
        match self.policy.shares {
            None => self.queue.next(open, now),
            Some(shares) => self.next_by_shares(shares, open, now),
        }
    }

    #[cold]
    fn next_by_shares(&mut self, shares: Shares, open: ClassSet, now: Time) -> Option<Next> {
        let first = self.queue.next(open, now)?;
        let below = shares.below(self.valve.limit(), self.valve.in_use_by_class());
        if self.claims(below, first) {
            return Some(first);
        }
        self.queue.next(open.intersect(below), now).or(Some(first))
    }

    /// Whether a waiter goes before those of classes that have their shares. One that has risen to the first class, or is of
    /// it, does so also where its class has no share, but holds no slot either: otherwise such a class could wait for ever.
    fn claims(&self, below: ClassSet, first: Next) -> bool {
        let holds_none = || self.valve.in_use_by_class()[first.class.index()] == 0;
        below.contains(first.class) || (first.rank.0 == Priority::Interactive as u8 && holds_none())
    }

    /// Whether `next`, who waits, goes before a newcomer of this class.
    pub(super) fn goes_before(&self, next: Next, newcomer: Priority) -> bool {
        let is_above = next.rank.0 <= newcomer as u8;
        let Some(shares) = self.policy.shares else { return is_above };
        let below = shares.below(self.valve.limit(), self.valve.in_use_by_class());
        match (self.claims(below, next), below.contains(newcomer)) {
            (true, false) => true,
            (false, true) => false,
            _ => is_above,
        }
    }

    /// By class, those who run or wait.
    pub(super) fn present(&self) -> [u32; 3] {
        let (running, waiting) = (self.valve.in_use_by_class(), self.queue.waiting_by_class());
        [0, 1, 2].map(|class| running[class] + waiting[class])
    }

    /// Slots that the shares of the other classes leave to this one, by what these hold or want. `None`: there are no
    /// shares, or none that say so.
    pub(super) fn slots_left_to(&self, class: Priority) -> Option<u32> {
        let limit = self.valve.limit();
        let due = self.policy.shares?.slots(limit);
        let present = self.present();
        let others = Priority::ALL.into_iter().map(Priority::index).filter(|&other| other != class.index());
        let theirs: u32 = others.map(|other| due[other].min(present[other])).sum();
        let withheld = self.valve.slots_for(class)?.withheld.saturating_sub(theirs);
        Some(limit - theirs - withheld).filter(|&left| left > 0)
    }

    #[inline]
    pub(super) fn note_queue(&mut self, now: Time) {
        let waiting = self.queue.waiting();
        self.waits.note_waiting(waiting, now);
        if waiting == 0 {
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
            waited: self.waits.spent(now),
        }
    }
}
