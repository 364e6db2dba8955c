//! The shell's side of a lane: its name, its way into the pool, its gauges.

use std::sync::Arc;
use std::time::Duration;

use super::acquire::{self, Acquire};
use super::call::Call;
use super::clock;
use super::key::{Kind, LaneKey};
use super::permit::Permit;
use super::pool::{Pool, seed};
use super::tokens::ReportedTokens;
use crate::config::{Charging, Guards, Policy, Quota};
use crate::engine::lane::LaneView;
use crate::engine::outcome::Outcome;
use crate::engine::priority::Priority;
use crate::engine::quota::{FollowHeaders, Spent, Tokens};
use crate::engine::step::LaneId;
use crate::engine::time::Time;
use crate::engine::totals::Reason;
use crate::error::Rejected;
use crate::meters::Meters;
use crate::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use crate::trace;
use crate::usage::Usage;

/// A lane, looked up once: for callers that make many calls on the same lane without HTTP.
///
/// A lane that somebody holds is never evicted.
///
/// ```
/// use tower_inflight::{LaneKey, Limiter, Outcome, Priority};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let limiter = Limiter::builder().max_inflight(2).build()?;
/// let lane = limiter.lane(&LaneKey::new("local", "gemma")).expect("the limiter is on");
/// let permit = lane.acquire(Priority::Default).await?;
/// permit.settle(Outcome::Success);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Lane {
    pub(crate) inner: Arc<LaneInner>,
}

impl Lane {
    /// The lane's name.
    #[must_use]
    pub fn key(&self) -> &LaneKey {
        &self.inner.key
    }

    /// Waits for a slot. See [`Limiter::acquire`](crate::Limiter::acquire).
    #[inline]
    pub fn acquire(&self, call: impl Into<Call>) -> Acquire {
        Acquire::new(self.inner.clone(), call.into())
    }

    /// A slot now or an error now. See [`Limiter::try_acquire`](crate::Limiter::try_acquire).
    ///
    /// # Errors
    /// [`RejectKind::Busy`](crate::RejectKind::Busy) when all slots are taken or others are first in line.
    pub fn try_acquire(&self, call: impl Into<Call>) -> Result<Permit, Rejected> {
        acquire::try_now(&self.inner, call.into())
    }
}

#[derive(Debug)]
pub(crate) struct LaneInner {
    /// Shared with what each call carries away.
    pub(crate) key: Arc<LaneKey>,
    pub(super) pool: Arc<Pool>,
    pub(super) id: LaneId,
    pub(super) meters: Arc<Meters>,
    guards: GuardCells,
    /// 0: calls are not charged.
    unsaid_output: AtomicU32,
    follows_headers: AtomicBool,
    /// Its controller is of the user's own making: a reload leaves it alone.
    is_steered_by_user: bool,
    /// What is charged where a call does not say has been told once.
    has_assumed: AtomicBool,
    pub(super) reported: ReportedTokens,
    /// Looked up since the registry last searched for lanes to evict.
    pub(super) is_recent: AtomicBool,
}

/// Where a lane is found.
pub(super) struct Place {
    pub(super) pool: Arc<Pool>,
    pub(super) id: LaneId,
    pub(super) is_steered_by_user: bool,
}

impl LaneInner {
    pub(super) fn new(key: LaneKey, place: Place, meters: Arc<Meters>, guards: Guards) -> Self {
        let Place { pool, id, is_steered_by_user } = place;
        let cells = GuardCells::default();
        cells.set(guards);
        let is_recent = AtomicBool::new(true);
        Self {
            key: Arc::new(key),
            pool,
            id,
            meters,
            guards: cells,
            unsaid_output: AtomicU32::new(0),
            follows_headers: AtomicBool::new(false),
            has_assumed: AtomicBool::new(false),
            reported: ReportedTokens::default(),
            is_steered_by_user,
            is_recent,
        }
    }

    /// What a call is charged for its answer that does not say how long it may be; `None`: calls here are not charged.
    pub(crate) fn unsaid_output(&self) -> Option<u32> {
        Some(self.unsaid_output.load(Ordering::Relaxed)).filter(|tokens| *tokens > 0)
    }

    /// What a call is charged that does not say how long its answer may be: `unsaid`, which is told once. An embedding has
    /// no such answer.
    pub(crate) fn assume_output(&self, unsaid: u32) -> u32 {
        if self.key.kind() == Kind::Embedding {
            return 0;
        }
        if !self.has_assumed.load(Ordering::Relaxed) && !self.has_assumed.swap(true, Ordering::Relaxed) {
            trace::assumed(&self.key, unsaid);
        }
        unsaid
    }

    pub(crate) fn follows_headers(&self) -> bool {
        self.follows_headers.load(Ordering::Relaxed)
    }

    /// Calls are charged like this from now on.
    pub(super) fn charge(&self, charging: Charging) {
        self.unsaid_output.store(charging.unsaid_output, Ordering::Relaxed);
        self.follows_headers.store(charging.follow_headers == FollowHeaders::On, Ordering::Relaxed);
    }

    pub(crate) fn guards(&self) -> Guards {
        self.guards.get()
    }

    /// Puts other rules in force; the pool then grants what they allow.
    pub(super) fn reconfigure(&self, policy: &Arc<Policy>) {
        let rules = policy.lane(&self.key);
        let now = clock::now();
        self.pool.step(self, |state, effects| {
            let Some(before) = state.adopt_for_lane(self.id, policy) else { return };
            self.guards.set(rules.guards);
            self.charge(policy.charging(&self.key));
            state.engine.handle_timeout(now, effects);
            if self.is_steered_by_user || before.lane_limit(&self.key) == policy.lane_limit(&self.key) {
                state.engine.set_lane_policy(self.id, rules.admission, effects);
            } else {
                let steering = policy.steer_lane(&self.key, seed());
                state.engine.steer_lane(self.id, steering, rules.admission, effects);
            }
            state.engine.set_lane_quota(self.id, policy.lane_quota(&self.key).map(Quota::policy), now);
            state.engine.set_breaker(self.id, policy.lane_breaker(&self.key), now, effects);
            state.engine.set_retry_budget(self.id, policy.lane_retry_budget(&self.key));
        });
    }

    pub(super) fn view(&self, now: Time) -> LaneView {
        self.pool.step(self, |state, effects| state.engine.view(self.id, now, effects))
    }

    pub(super) fn report_queued(&self, class: Priority, ahead: u32) {
        trace::queued(&self.key, class, ahead);
    }

    pub(super) fn report_granted(&self, class: Priority, waited: Duration) {
        self.meters.granted(class, waited);
        trace::granted(&self.key, class, waited);
    }

    pub(super) fn report_refused(&self, reason: Reason) {
        self.meters.refused(reason);
        trace::refused(&self.key, reason);
    }

    pub(super) fn report_abandoned(&self) {
        self.meters.abandoned();
        trace::abandoned(&self.key);
    }

    pub(super) fn report_usage(&self, usage: Usage) {
        self.reported.add(usage);
        self.meters.used(usage);
    }

    #[cold]
    pub(super) fn report_after_hangup(&self, tokens: u64) {
        self.reported.add_after_hangup(tokens);
        self.meters.after_hangup(tokens);
    }

    #[inline]
    pub(super) fn report_spent(&self, spent: Spent) {
        if !spent.is_nothing() {
            self.meters.spent(spent);
        }
    }

    /// A call was refused because of its tokens.
    #[cold]
    pub(super) fn report_rejected(&self, tokens: Tokens) {
        self.meters.rejected(tokens);
    }

    pub(super) fn report_settled(&self, outcome: Outcome, held: Duration, first_byte: Option<Duration>) {
        self.meters.settled(outcome, held, first_byte);
        trace::settled(&self.key, outcome, held);
    }
}

/// Guards change on reload and are read on each call: nanoseconds, 0 = off.
#[derive(Debug, Default)]
struct GuardCells {
    first_byte: AtomicU64,
    idle: AtomicU64,
}

impl GuardCells {
    fn get(&self) -> Guards {
        let read = |cell: &AtomicU64| Some(cell.load(Ordering::Relaxed)).filter(|n| *n > 0).map(Duration::from_nanos);
        Guards { first_byte: read(&self.first_byte), idle: read(&self.idle) }
    }

    fn set(&self, guards: Guards) {
        let write = |cell: &AtomicU64, guard: Option<Duration>| {
            let nanos = guard.map_or(0, |guard| u64::try_from(guard.as_nanos()).unwrap_or(u64::MAX));
            cell.store(nanos, Ordering::Relaxed);
        };
        write(&self.first_byte, guards.first_byte);
        write(&self.idle, guards.idle);
    }
}
