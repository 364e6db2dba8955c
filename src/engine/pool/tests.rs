//! The engine by the cases that it alone decides, and by random operations against its invariants.

mod cases;
mod charged;
mod foreseen;
mod guarded;
mod order;
mod random;
mod shared;
mod steered;
mod waited;
mod world;

use std::task::Waker;
use std::time::Duration;

use super::*;
use crate::engine::asked::Asked;
use crate::engine::forecast::PredictDeadlines;
use crate::engine::outcome::{Outcome, Pause, Verdict};
use crate::engine::pause::PauseBounds;
use crate::engine::queue::{Ask, Expiry, WaiterId};
use crate::engine::quota::WhenShort;
use crate::engine::step::{Look, Progress, Refusal};

const SECOND: Duration = Duration::from_secs(1);

fn policy(limit: u32) -> LanePolicy {
    LanePolicy {
        slots: SlotPolicy { limit, reserve: 0 },
        shares: None,
        queue_timeout: 300 * SECOND,
        max_queue: 1_000_000,
        max_queue_per_class: None,
        max_queue_per_tenant: None,
        aging_step: Some(60 * SECOND),
        pauses: PauseBounds { min: SECOND, max: 600 * SECOND },
        predict_deadlines: PredictDeadlines::On,
        when_short: WhenShort::Queue,
    }
}

fn reserving(reserve: u32, limit: u32) -> LanePolicy {
    LanePolicy { slots: SlotPolicy { limit, reserve }, ..policy(limit) }
}

fn look_until(deadline: Time) -> Look<'static> {
    Look { waker: Waker::noop(), deadline }
}

/// How an arrival went.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Came {
    Sent(Grant),
    Queued(WaiterId),
    Blocked(Blocked),
    Refused(Refusal),
}

impl Came {
    fn id(self) -> WaiterId {
        match self {
            Self::Queued(id) => id,
            other => panic!("not queued: {other:?}"),
        }
    }

    fn grant(self) -> Grant {
        match self {
            Self::Sent(grant) => grant,
            other => panic!("not sent: {other:?}"),
        }
    }

    fn is_sent(self) -> bool {
        matches!(self, Self::Sent(_))
    }
}

/// A pool, the time, and what the last step asked for.
struct Bench {
    pool: Pool,
    now: Time,
    effects: Effects,
}

impl Bench {
    fn new(cap: u32) -> Self {
        let pool = Pool::new(SlotPolicy { limit: cap, reserve: 0 }, None, 1);
        Self { pool, now: Time::from_epoch(100_000 * SECOND), effects: Effects::default() }
    }

    /// A pool without a cap, and one lane.
    fn of(policy: LanePolicy) -> (Self, LaneId) {
        let mut bench = Self::new(0);
        let lane = bench.pool.add_lane(policy, None);
        (bench, lane)
    }

    fn wait(&mut self, time: Duration) {
        self.now = self.now + time;
    }

    fn step<R>(&mut self, step: impl FnOnce(&mut Pool, Time, &mut Effects) -> R) -> R {
        self.effects = Effects::default();
        step(&mut self.pool, self.now, &mut self.effects)
    }

    /// Comes now, and waits for as long as it takes.
    fn come(&mut self, lane: LaneId, class: Priority) -> Came {
        self.come_until(lane, class, Time::NEVER, Expiry::QueueTimeout)
    }

    fn come_until(&mut self, lane: LaneId, class: Priority, expires_at: Time, expiry: Expiry) -> Came {
        let deadline = if expiry == Expiry::Deadline { expires_at } else { Time::NEVER };
        self.step(|pool, now, effects| {
            match pool.try_acquire(lane, Request { deadline, ..Request::of(class) }, now, effects) {
                Ok(grant) => Came::Sent(grant),
                Err(blocked @ (Blocked::Closed | Blocked::PastDeadline)) => {
                    pool.note_refused(lane, Reason::Closed);
                    Came::Blocked(blocked)
                }
                Err(_) => {
                    let ask = Ask { class, tenant: None, arrived_at: now, expires_at, expiry };
                    match pool.enqueue(lane, ask, Asked::default(), Waker::noop().clone(), now) {
                        Ok(ticket) => Came::Queued(ticket.id),
                        Err(refusal) => {
                            pool.note_refused(lane, Reason::QueueFull);
                            Came::Refused(refusal)
                        }
                    }
                }
            }
        })
    }

    fn try_now(&mut self, lane: LaneId, class: Priority) -> Result<Grant, Blocked> {
        self.step(|pool, now, effects| {
            pool.try_acquire(lane, Request { deadline: Time::NEVER, ..Request::of(class) }, now, effects)
        })
    }

    fn poll(&mut self, lane: LaneId, id: WaiterId) -> Progress {
        self.step(|pool, now, effects| pool.collect(lane, id, look_until(Time::NEVER), now, effects))
    }

    fn collect(&mut self, lane: LaneId, id: WaiterId) -> Grant {
        match self.poll(lane, id) {
            Progress::Granted(grant) => grant,
            other => panic!("not granted: {other:?}"),
        }
    }

    fn is_granted(&mut self, lane: LaneId, id: WaiterId) -> bool {
        matches!(self.poll(lane, id), Progress::Granted(_))
    }

    fn cancel(&mut self, lane: LaneId, id: WaiterId) -> bool {
        self.step(|pool, now, effects| pool.cancel(lane, id, now, effects))
    }

    fn settle(&mut self, lane: LaneId, grant: Grant, verdict: impl Into<Verdict>) {
        let ending = Ending::from(verdict.into());
        self.step(|pool, now, effects| pool.settle(lane, &grant, ending, now, effects));
    }

    fn succeed(&mut self, lane: LaneId, grant: Grant) {
        self.settle(lane, grant, Outcome::Success);
    }

    fn pause(&mut self, lane: LaneId, grant: Grant, pause: Duration) {
        self.settle(lane, grant, Verdict::new(Outcome::Overload).with_pause(Pause::For(pause)));
    }

    fn tick(&mut self) {
        self.step(|pool, now, effects| pool.handle_timeout(now, effects));
    }

    fn set_limit(&mut self, lane: LaneId, limit: u32) {
        let policy = *self.pool.lane_policy(lane);
        let policy = LanePolicy { slots: SlotPolicy { limit, ..policy.slots }, ..policy };
        self.step(|pool, now, effects| {
            pool.set_lane_policy(lane, policy, effects);
            pool.dispatch_all(now, effects);
        });
    }

    fn in_use(&self, lane: LaneId) -> u32 {
        self.pool.figures(lane).in_use
    }

    fn waiting(&self, lane: LaneId) -> u32 {
        self.pool.figures(lane).waiting.iter().sum()
    }

    fn reasons(&self) -> Vec<Reason> {
        self.effects.dropped.iter().map(|dropped| dropped.reason).collect()
    }
}
