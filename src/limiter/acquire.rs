//! The future that waits for a slot.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use tokio::task::coop::{self, Coop};

use super::call::{Admission, Call, CallEvent, Life};
use super::clock;
use super::key::LaneKey;
use super::lane::LaneInner;
use super::of_run::OfRun;
use super::permit::Permit;
use super::pool;
use super::scope::Scope;
use crate::engine::queue::{Ask, Expiry};
use crate::engine::step::{Blocked, Effects, Grant, Look, Progress, Refusal, Ticket};
use crate::engine::time::Time;
use crate::engine::totals::Reason;
use crate::error::{Bound, QueueBound, RejectKind, Rejected, Rejection};

/// A call that arrived this short a while ago arrives when it is queued: it goes to the end of its line, as most do, and
/// not through the sorted part that is meant for retries.
const JUST_NOW: Duration = Duration::from_millis(10);

/// Waits for a slot of a lane. Made by [`Limiter::acquire`](crate::Limiter::acquire).
///
/// It stands in line from its first poll on.
///
/// # Cancel safety
/// Dropping it gives up its place, or passes its slot on if it had been granted one meanwhile. Nothing is left behind.
///
/// A slot that was granted and not collected for a second, because nobody polled the future, goes to the next waiter; the
/// future keeps its place in line.
#[must_use = "futures do nothing unless polled"]
#[pin_project::pin_project]
pub struct Acquire {
    /// Spends the task's budget, so that a loop that is always granted cannot starve its neighbours.
    #[pin]
    inner: Coop<Wait>,
}

pub(super) struct Wait {
    stage: Stage,
}

enum Stage {
    /// The limiter is off.
    Off,
    Arriving {
        lane: Arc<LaneInner>,
        call: Call,
    },
    Queued(Queued),
    /// A call of a run, which wants more than a slot.
    OfRun(Box<OfRun>),
    /// Such a call, when all else is settled.
    Due {
        lane: Arc<LaneInner>,
        call: Call,
    },
    Done,
}

struct Queued {
    lane: Arc<LaneInner>,
    ticket: Ticket,
    // The bounds, laid out flat: every waiter keeps them.
    expiry: Expiry,
    expires_at: Time,
    enqueued_at: Time,
    deadline: Time,
    life: Option<Arc<Life>>,
}

/// When waiting ends, and by which of its two bounds. Where both end together, the deadline is named.
#[derive(Clone, Copy)]
struct Bounds {
    expires_at: Time,
    expiry: Expiry,
}

/// A refusal in numbers, made under the lock; the error is built outside of it.
struct Refused {
    kind: RejectKind,
    bound: Bound,
    retry_after: Option<Duration>,
    in_flight: u32,
    limit: u32,
}

enum Arrival {
    Granted(Grant),
    Queued(Ticket, Bounds),
    Refused(Refused),
}

impl Acquire {
    pub(crate) fn new(lane: Arc<LaneInner>, mut call: Call) -> Self {
        Scope::complete(&mut call);
        Self { inner: coop::cooperative(Wait { stage: Stage::Arriving { lane, call } }) }
    }

    pub(crate) fn off() -> Self {
        Self { inner: coop::cooperative(Wait { stage: Stage::Off }) }
    }
}

/// A slot now or an error now.
pub(super) fn try_now(lane: &Arc<LaneInner>, mut call: Call) -> Result<Permit, Rejected> {
    Scope::complete(&mut call);
    if call.run.as_ref().is_some_and(|run| run.is_over()) {
        return Err(refuse_unasked(lane, RejectKind::RunOver));
    }
    let now = clock::now();
    let arrival = lane.pool.step(lane, |state, effects| match admit(lane, &call, now, state, effects) {
        Ok(grant) => Arrival::Granted(grant),
        Err(blocked) => Arrival::Refused(refuse_to_wait(lane, blocked, state)),
    });
    match arrival {
        Arrival::Granted(grant) => Ok(Permit::new(lane.clone(), grant, None, call.life.as_deref())),
        Arrival::Refused(refused) => Err(refused.on_arrival(lane)),
        Arrival::Queued(..) => unreachable!("a call that may not wait is not queued"),
    }
}

impl Future for Acquire {
    type Output = Result<Permit, Rejected>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.project().inner.poll(cx)
    }
}

impl Future for Wait {
    type Output = Result<Permit, Rejected>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let Stage::Queued(queued) = &self.stage {
            let found = ready!(queued.look(cx.waker()));
            self.stage = match (found, std::mem::replace(&mut self.stage, Stage::Done)) {
                (Ok(grant), Stage::Queued(queued)) => return Poll::Ready(Ok(queued.granted(grant))),
                (Err(rejected), _) => return Poll::Ready(Err(rejected)),
                (Ok(_), stage) => stage,
            };
        }
        match std::mem::replace(&mut self.stage, Stage::Done) {
            Stage::Off => Poll::Ready(Ok(Permit::off())),
            Stage::OfRun(mut of_run) => {
                let result = of_run.poll(cx);
                if result.is_pending() {
                    self.stage = Stage::OfRun(of_run);
                }
                result
            }
            Stage::Arriving { lane, mut call } => {
                // Once more: it may have been made before its scope was entered.
                Scope::complete(&mut call);
                match call.run.take() {
                    None => self.arrive(lane, call, cx.waker()),
                    Some(run) => {
                        let due = Self { stage: Stage::Due { lane: lane.clone(), call } };
                        self.stage = Stage::OfRun(Box::new(OfRun::new(due, lane, run)));
                        self.poll(cx)
                    }
                }
            }
            Stage::Due { lane, call } => self.arrive(lane, call, cx.waker()),
            Stage::Queued(_) | Stage::Done => panic!("polled after it was ready"),
        }
    }
}

impl Wait {
    /// Whether a slot is there to be collected. Hears of it if not.
    pub(super) fn look(&self, waker: &Waker) -> Look {
        let Stage::Queued(Queued { lane, ticket, .. }) = &self.stage else { return Look::Gone };
        let now = clock::now();
        lane.pool.step_polled(lane, |state, effects| state.engine.look(lane.id, ticket.id, waker, now, effects))
    }

    /// Passes on the slot that is there to be collected, and keeps its place in line.
    pub(super) fn decline(&self, waker: &Waker) {
        if let Stage::Queued(Queued { lane, ticket, .. }) = &self.stage {
            let now = clock::now();
            lane.pool.step_polled(lane, |state, effects| {
                state.engine.decline(lane.id, ticket.id, waker, now, effects);
            });
        }
    }

    /// Its place in line when it came, from 1.
    pub(super) fn position(&self) -> Option<u32> {
        match &self.stage {
            Stage::Queued(queued) => Some(queued.position()),
            _ => None,
        }
    }

    fn arrive(&mut self, lane: Arc<LaneInner>, mut call: Call, waker: &Waker) -> Poll<Result<Permit, Rejected>> {
        let now = clock::now();
        match lane.pool.step_polled(&lane, |state, effects| join(&lane, &mut call, waker, now, state, effects)) {
            Arrival::Granted(grant) => Poll::Ready(Ok(Permit::new(lane, grant, None, call.life.as_deref()))),
            Arrival::Refused(refused) => Poll::Ready(Err(refused.on_arrival(&lane))),
            Arrival::Queued(ticket, bounds) => {
                let Call { class, deadline, life, .. } = call;
                lane.report_queued(class.unwrap_or_default(), ticket.ahead);
                let Bounds { expires_at, expiry } = bounds;
                let queued = Queued { lane, ticket, expiry, expires_at, enqueued_at: now, deadline, life };
                // In place before the listener runs: if it panics, the place in line is given up like any other.
                self.stage = Stage::Queued(queued);
                self.tell_queued();
                Poll::Pending
            }
        }
    }

    fn tell_queued(&self) {
        if let Stage::Queued(Queued { lane, ticket, life: Some(life), .. }) = &self.stage {
            life.tell(CallEvent::Queued { lane: &lane.key, position: ticket.ahead + 1 });
        }
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        if let Stage::Queued(Queued { lane, ticket, .. }) = &self.stage {
            let was_there = lane.pool.step(lane, |state, effects| {
                let abandoned = state.engine.abandon(lane.id, ticket.id, effects);
                abandoned.unwrap_or_else(|| state.engine.cancel(lane.id, ticket.id, clock::now(), effects))
            });
            if was_there {
                lane.report_abandoned();
            }
        }
    }
}

/// A slot, or a place in line, or a refusal.
fn join(
    lane: &LaneInner,
    call: &mut Call,
    waker: &Waker,
    now: Time,
    state: &mut pool::State,
    effects: &mut Effects,
) -> Arrival {
    let blocked = match admit(lane, call, now, state, effects) {
        Ok(grant) => return Arrival::Granted(grant),
        Err(blocked) => blocked,
    };
    if call.admission == Admission::Reject || matches!(blocked, Blocked::Closed | Blocked::PastDeadline) {
        return Arrival::Refused(refuse_to_wait(lane, blocked, state));
    }
    if !state.reserve_place(&lane.pool.shared) {
        let most = u32::try_from(lane.pool.shared.max_waiting()).unwrap_or(u32::MAX);
        let kind = RejectKind::QueueFull(QueueBound::Total);
        return Arrival::Refused(refuse(lane, kind, Bound::Count(most), None, state));
    }
    let bounds = Bounds::of(call, state.engine.lane_policy(lane.id).queue_timeout, now);
    let ask = Ask {
        class: call.class.unwrap_or_default(),
        tenant: call.tenant.take(),
        arrived_at: if now.since(call.arrived_at) < JUST_NOW { now } else { call.arrived_at },
        expires_at: bounds.expires_at,
        expiry: bounds.expiry,
    };
    match state.engine.enqueue(lane.id, ask, waker.clone(), now) {
        Ok(ticket) => Arrival::Queued(ticket, bounds),
        Err(refusal) => Arrival::Refused(refuse_place(lane, refusal, bounds, state)),
    }
}

/// A slot now, or what is in the way.
fn admit(
    lane: &LaneInner,
    call: &Call,
    now: Time,
    state: &mut pool::State,
    effects: &mut Effects,
) -> Result<Grant, Blocked> {
    state.engine.try_acquire(lane.id, call.class.unwrap_or_default(), call.deadline, now, effects)
}

/// For a call that is refused before it asks for a slot.
pub(super) fn refuse_unasked(lane: &LaneInner, kind: RejectKind) -> Rejected {
    let refused = lane.pool.step(lane, |state, _| {
        state.engine.refuse(lane.id, kind.reason());
        Refused::new(lane, kind, Bound::None, None, state)
    });
    refused.on_arrival(lane)
}

/// For a call that leaves its line, and is counted as having given up there.
pub(super) fn refuse_waiting(lane: &LaneInner, kind: RejectKind, position: Option<u32>) -> Rejected {
    let refused = lane.pool.step(lane, |state, _| Refused::new(lane, kind, Bound::None, None, state));
    refused.after(lane, Duration::ZERO, position)
}

fn refuse_to_wait(lane: &LaneInner, blocked: Blocked, state: &mut pool::State) -> Refused {
    match blocked {
        Blocked::Busy => refuse(lane, RejectKind::Busy, Bound::None, None, state),
        Blocked::Paused(left) => refuse(lane, RejectKind::Paused, Bound::None, Some(left), state),
        Blocked::PastDeadline => refuse(lane, RejectKind::Deadline, Bound::None, None, state),
        Blocked::Closed => refuse(lane, RejectKind::Closed, Bound::None, None, state),
    }
}

fn refuse_place(lane: &LaneInner, refusal: Refusal, bounds: Bounds, state: &mut pool::State) -> Refused {
    let policy = *state.engine.lane_policy(lane.id);
    let full = |bound, most: u32| (RejectKind::QueueFull(bound), Bound::Count(most), None);
    let (kind, bound, retry_after) = match refusal {
        Refusal::LaneFull => full(QueueBound::Lane, policy.max_queue),
        Refusal::ClassFull => full(QueueBound::Class, policy.max_queue_per_class.unwrap_or_default()),
        Refusal::TenantFull => full(QueueBound::Tenant, policy.max_queue_per_tenant.unwrap_or_default()),
        Refusal::Expired => (bounds.kind(), Bound::None, None),
        Refusal::Paused(left) => (RejectKind::Paused, Bound::None, Some(left)),
    };
    refuse(lane, kind, bound, retry_after, state)
}

/// Counts the refusal and takes down the figures that its error shows.
fn refuse(
    lane: &LaneInner,
    kind: RejectKind,
    bound: Bound,
    retry_after: Option<Duration>,
    state: &mut pool::State,
) -> Refused {
    state.engine.note_refused(lane.id, kind.reason());
    Refused::new(lane, kind, bound, retry_after, state)
}

impl Bounds {
    fn of(call: &Call, queue_timeout: Duration, now: Time) -> Self {
        let timeout_at = now + queue_timeout;
        if call.deadline <= timeout_at {
            Self { expires_at: call.deadline, expiry: Expiry::Deadline }
        } else {
            Self { expires_at: timeout_at, expiry: Expiry::QueueTimeout }
        }
    }

    fn kind(self) -> RejectKind {
        match self.expiry {
            Expiry::QueueTimeout => RejectKind::QueueTimeout,
            Expiry::Deadline => RejectKind::Deadline,
        }
    }
}

impl Queued {
    /// The slot, or why there is none.
    fn look(&self, waker: &Waker) -> Poll<Result<Grant, Rejected>> {
        let Self { lane, ticket, .. } = self;
        // Nearly always: a waiter is woken for its slot. Without a deadline there is nothing to ask the clock.
        if self.deadline == Time::NEVER {
            if let Some(grant) = lane.pool.pick_up(lane, ticket.id) {
                return Poll::Ready(Ok(grant));
            }
        }
        let now = clock::now();
        let progress = lane.pool.step_polled(lane, |state, effects| {
            match state.engine.collect(lane.id, ticket.id, waker, self.deadline, now, effects) {
                Progress::Granted(grant) => Ok(Some(grant)),
                Progress::Waiting => Ok(None),
                Progress::PastDeadline => Err((refuse(lane, RejectKind::Deadline, Bound::None, None, state), true)),
                Progress::Gone => Err((self.refusal(state), false)),
            }
        });
        match progress {
            Ok(Some(grant)) => Poll::Ready(Ok(grant)),
            Ok(None) => Poll::Pending,
            Err((refused, is_new)) => {
                if is_new {
                    lane.report_refused(refused.kind.reason());
                }
                let waited = now.min(self.expires_at).since(self.enqueued_at);
                Poll::Ready(Err(refused.after(lane, waited, Some(self.position()))))
            }
        }
    }

    fn granted(self, grant: Grant) -> Permit {
        let position = Some(self.position());
        Permit::new(self.lane, grant, position, self.life.as_deref())
    }

    /// Counted from 1.
    fn position(&self) -> u32 {
        self.ticket.ahead + 1
    }

    /// Why the engine has removed this waiter. It has counted the refusal already.
    fn refusal(&self, state: &pool::State) -> Refused {
        let kind = match state.engine.reason_gone(self.expires_at, self.expiry) {
            Reason::Closed => RejectKind::Closed,
            _ => Bounds { expires_at: self.expires_at, expiry: self.expiry }.kind(),
        };
        let bound = match kind {
            RejectKind::QueueTimeout => Bound::Time(self.expires_at.since(self.enqueued_at)),
            _ => Bound::None,
        };
        Refused::new(&self.lane, kind, bound, None, state)
    }
}

impl Refused {
    fn new(
        lane: &LaneInner,
        kind: RejectKind,
        bound: Bound,
        retry_after: Option<Duration>,
        state: &pool::State,
    ) -> Self {
        let (in_flight, _) = state.engine.figures(lane.id);
        Self { kind, bound, retry_after, in_flight, limit: state.engine.limit(lane.id) }
    }

    fn on_arrival(self, lane: &LaneInner) -> Rejected {
        lane.report_refused(self.kind.reason());
        self.after(lane, Duration::ZERO, None)
    }

    fn after(self, lane: &LaneInner, waited: Duration, position: Option<u32>) -> Rejected {
        let Self { kind, bound, retry_after, in_flight, limit } = self;
        let lane = LaneKey::clone(&lane.key);
        Rejected::new(Rejection { lane, kind, waited, position, in_flight, limit, retry_after, bound })
    }
}

impl fmt::Debug for Acquire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Acquire").finish_non_exhaustive()
    }
}
