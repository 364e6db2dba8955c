//! The future that waits for a slot.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use tokio::task::coop;

use super::call::{Admission, Call, CallEvent, Life};
use super::clock;
use super::lane::LaneInner;
use super::of_run::OfRun;
use super::permit::Permit;
use super::pool;
use super::refused::{Refused, refuse, refuse_to_wait, refuse_unasked};
use super::scope::{Open, Scope};
use crate::engine::asked::Asked;
use crate::engine::priority::Priority;
use crate::engine::queue::{Ask, Expiry};
use crate::engine::quota::WhenShort;
use crate::engine::step::{Blocked, Grant, Look, Progress, Refusal, Request, Sight, Ticket};
use crate::engine::time::Time;
use crate::engine::totals::Reason;
use crate::error::{Bound, QueueBound, RejectKind, Rejected};
use crate::runs::CallOfRun;

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
pub struct Acquire {
    /// Goes with the slot, in the end. `None` before that: the limiter is off.
    lane: Option<Arc<LaneInner>>,
    life: Option<Arc<Life>>,
    deadline: Time,
    /// When the call arrived; once it is queued, when that was.
    since: Time,
    stage: Stage,
}

enum Stage {
    Arriving(Arriving),
    Queued(Ticket, Bounds),
    /// A call of a run, which wants more than a slot.
    OfRun(Box<OfRun>),
    Done,
}

struct Arriving {
    tenant: Option<Arc<str>>,
    class: Option<Priority>,
    admission: Admission,
    scope: ScopeSays,
    asked: Asked,
    /// The run that makes it.
    run: Option<Arc<CallOfRun>>,
}

/// Whether the scope in which it is polled has been heard.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ScopeSays {
    NotYet,
    NoMore,
}

/// When waiting ends, and by which of its two bounds. Where both end together, the deadline is named.
#[derive(Clone, Copy)]
struct Bounds {
    expires_at: Time,
    expiry: Expiry,
}

/// Of a call that found no free slot.
enum Arrival {
    Queued(Ticket, Bounds),
    Refused(Refused),
}

impl Acquire {
    #[inline]
    pub(crate) fn new(lane: Arc<LaneInner>, call: Call) -> Self {
        Self::of(Some(lane), call)
    }

    pub(crate) fn off() -> Self {
        Self::of(None, Call::unnamed())
    }

    /// For a call that is not limited, and may have a deadline all the same.
    pub(crate) fn passing(call: Option<&Call>) -> Self {
        let deadline = call.map_or(Time::NEVER, |call| call.deadline);
        Self::of(None, Call { deadline, ..Call::unnamed() })
    }

    /// `NEVER`: none. The scope that it is polled in has its say with the first poll.
    #[inline]
    pub(crate) fn deadline(&self) -> Time {
        self.deadline
    }

    #[inline]
    fn of(lane: Option<Arc<LaneInner>>, mut call: Call) -> Self {
        Scope::complete(&mut call);
        let Call { class, tenant, deadline, arrived_at, admission, asked, life, run } = call;
        let asked = retried(asked, life.as_deref());
        let arriving = Arriving { tenant, class, admission, scope: ScopeSays::NotYet, asked, run };
        Self { lane, life, deadline, since: arrived_at, stage: Stage::Arriving(arriving) }
    }
}

/// A call of which an attempt was sent before asks again.
#[inline]
fn retried(asked: Asked, life: Option<&Life>) -> Asked {
    if life.is_some_and(Life::was_tried) { Asked { facts: asked.facts.of_a_retry(), ..asked } } else { asked }
}

/// A slot now or an error now.
pub(super) fn try_now(lane: &Arc<LaneInner>, mut call: Call) -> Result<Permit, Rejected> {
    Scope::complete(&mut call);
    if call.run.as_ref().is_some_and(|run| run.is_over()) {
        return Err(refuse_unasked(lane, RejectKind::RunOver));
    }
    let now = clock::now();
    let class = call.class.unwrap_or_default();
    let granted = lane.pool.step(lane, |state, effects| {
        let asked = retried(call.asked, call.life.as_deref());
        let request = Request { class, asked, deadline: call.deadline };
        let granted = state.engine.try_acquire(lane.id, request, now, effects);
        granted.map_err(|blocked| refuse_to_wait(lane, blocked, state))
    });
    match granted {
        Ok(grant) => Ok(Permit::new(lane.clone(), grant, None, call.life.as_ref())),
        Err(refused) => Err(refused.on_arrival(lane, call.asked.tokens)),
    }
}

impl Future for Acquire {
    type Output = Result<Permit, Rejected>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        // Spends the task's budget, so that a loop that is always granted cannot starve its neighbours.
        let budget = ready!(coop::poll_proceed(cx));
        let polled = self.advance(cx);
        if polled.is_ready() {
            budget.made_progress();
        }
        polled
    }
}

impl Acquire {
    #[inline(always)]
    pub(super) fn advance(&mut self, cx: &mut Context<'_>) -> Poll<Result<Permit, Rejected>> {
        match self.stage {
            Stage::Arriving(_) => self.arrive(cx),
            Stage::Queued(ticket, bounds) => self.look(ticket, bounds, cx.waker()),
            Stage::OfRun(ref mut of_run) => {
                let polled = of_run.poll(cx);
                if polled.is_ready() {
                    self.stage = Stage::Done;
                }
                polled
            }
            Stage::Done => panic!("polled after it was ready"),
        }
    }

    #[inline(always)]
    fn arrive(&mut self, cx: &mut Context<'_>) -> Poll<Result<Permit, Rejected>> {
        if let Stage::Arriving(Arriving { tenant, class, run, scope: ScopeSays::NotYet, .. }) = &mut self.stage {
            // Once more: it may have been made before its scope was entered.
            Scope::complete_late(Open { class, tenant, deadline: &mut self.deadline, run });
            if let Some(run) = run.take() {
                return self.enter_run(run, cx);
            }
        }
        self.ask(cx.waker())
    }

    #[inline(always)]
    fn ask(&mut self, waker: &Waker) -> Poll<Result<Permit, Rejected>> {
        let (Some(lane), Stage::Arriving(arriving)) = (&self.lane, &mut self.stage) else {
            self.stage = Stage::Done;
            return Poll::Ready(Ok(Permit::off()));
        };
        let now = clock::now();
        let (class, asked, deadline) = (arriving.class.unwrap_or_default(), arriving.asked, self.deadline);
        let (request, since) = (Request { class, asked, deadline }, self.since);
        let granted = lane.pool.step_polled_or(
            lane,
            |state, effects| state.engine.try_acquire(lane.id, request, now, effects),
            |blocked, state| {
                if arriving.admission == Admission::Reject || blocked.is_final() || may_not_wait(lane, blocked, state) {
                    Arrival::Refused(refuse_to_wait(lane, blocked, state))
                } else {
                    join(lane, arriving, deadline, since, waker, now, state)
                }
            },
        );
        match granted {
            Ok(grant) => Poll::Ready(Ok(self.granted(grant, None))),
            Err(Arrival::Refused(refused)) => {
                let refused = refused.on_arrival(lane, asked.tokens);
                self.stage = Stage::Done;
                Poll::Ready(Err(refused))
            }
            Err(Arrival::Queued(ticket, bounds)) => {
                // In place before anybody hears of it: if a listener panics, the place in line is given up like any other.
                self.since = now;
                self.stage = Stage::Queued(ticket, bounds);
                lane.report_queued(class, ticket.ahead);
                if let Some(life) = &self.life {
                    life.tell(CallEvent::Queued { lane: &lane.key, position: position(ticket) });
                }
                Poll::Pending
            }
        }
    }

    /// A call of a run: what is left of it goes on inside, beside what the run does meanwhile.
    #[cold]
    fn enter_run(&mut self, run: Arc<CallOfRun>, cx: &mut Context<'_>) -> Poll<Result<Permit, Rejected>> {
        let Stage::Arriving(arriving) = std::mem::replace(&mut self.stage, Stage::Done) else {
            unreachable!("it arrives just now")
        };
        let Some(lane) = self.lane.take() else { return Poll::Ready(Ok(Permit::off())) };
        let stage = Stage::Arriving(Arriving { scope: ScopeSays::NoMore, ..arriving });
        let (lane_of_run, life) = (lane.clone(), self.life.take());
        let wait = Self { lane: Some(lane), life, deadline: self.deadline, since: self.since, stage };
        self.stage = Stage::OfRun(Box::new(OfRun::new(wait, lane_of_run, run)));
        self.advance(cx)
    }

    /// Whether a slot is there to be collected. Hears of it if not.
    pub(super) fn sight(&self, waker: &Waker) -> Sight {
        let (Some(lane), Stage::Queued(ticket, _)) = (&self.lane, &self.stage) else { return Sight::Gone };
        let now = clock::now();
        lane.pool.step_polled(lane, |state, effects| state.engine.look(lane.id, ticket.id, waker, now, effects))
    }

    /// Passes on the slot that is there to be collected, and keeps its place in line.
    pub(super) fn decline(&self, waker: &Waker) {
        if let (Some(lane), Stage::Queued(ticket, _)) = (&self.lane, &self.stage) {
            let now = clock::now();
            lane.pool.step_polled(lane, |state, effects| {
                state.engine.decline(lane.id, ticket.id, waker, now, effects);
            });
        }
    }

    /// Its place in line when it came, from 1.
    pub(super) fn position(&self) -> Option<u32> {
        match self.stage {
            Stage::Queued(ticket, _) => Some(position(ticket)),
            _ => None,
        }
    }

    /// The slot, or why there is none.
    #[inline(always)]
    fn look(&mut self, ticket: Ticket, bounds: Bounds, waker: &Waker) -> Poll<Result<Permit, Rejected>> {
        let Some(lane) = &self.lane else { unreachable!("who is queued has a lane") };
        // Nearly always: a waiter is woken for its slot. Without a deadline there is nothing to ask the clock.
        if self.deadline == Time::NEVER {
            if let Some(grant) = lane.pool.pick_up(lane, ticket.id) {
                return Poll::Ready(Ok(self.granted(grant, Some(position(ticket)))));
            }
        }
        self.look_again(ticket, bounds, waker)
    }

    fn look_again(&mut self, ticket: Ticket, bounds: Bounds, waker: &Waker) -> Poll<Result<Permit, Rejected>> {
        let Some(lane) = &self.lane else { unreachable!("who is queued has a lane") };
        let look = Look { waker, deadline: self.deadline };
        let now = clock::now();
        let progress = lane.pool.step_polled(lane, |state, effects| {
            match state.engine.collect(lane.id, ticket.id, look, now, effects) {
                Progress::Granted(grant) => Ok(Some(grant)),
                Progress::Waiting => Ok(None),
                Progress::PastDeadline => Err((refuse(lane, RejectKind::Deadline, Bound::None, None, state), true)),
                Progress::Gone => Err((self.gone(lane, bounds, state), false)),
            }
        });
        match progress {
            Ok(Some(grant)) => Poll::Ready(Ok(self.granted(grant, Some(position(ticket))))),
            Ok(None) => Poll::Pending,
            Err((refused, is_new)) => {
                if is_new {
                    lane.report_refused(refused.kind.reason());
                }
                let waited = now.min(bounds.expires_at).since(self.since);
                let rejected = refused.after(lane, waited, Some(position(ticket)));
                self.stage = Stage::Done;
                Poll::Ready(Err(rejected))
            }
        }
    }

    /// Why the engine has removed this waiter. It has counted the refusal already.
    fn gone(&self, lane: &LaneInner, bounds: Bounds, state: &pool::State) -> Refused {
        let kind = match state.engine.reason_gone(lane.id, self.since, bounds.expires_at, bounds.expiry) {
            Reason::Closed => RejectKind::Closed,
            Reason::BreakerOpen => RejectKind::BreakerOpen,
            _ => bounds.kind(),
        };
        let left = state.engine.breaker_left(lane.id).filter(|_| kind == RejectKind::BreakerOpen);
        let bound = match kind {
            RejectKind::QueueTimeout => Bound::Time(bounds.expires_at.since(self.since)),
            _ => Bound::None,
        };
        Refused::new(lane, kind, bound, left, state)
    }

    #[inline(always)]
    fn granted(&mut self, grant: Grant, position: Option<u32>) -> Permit {
        self.stage = Stage::Done;
        let Some(lane) = self.lane.take() else { unreachable!("a grant is one of a lane") };
        Permit::new(lane, grant, position, self.life.as_ref())
    }
}

/// Counted from 1.
fn position(ticket: Ticket) -> u32 {
    ticket.ahead + 1
}

impl Drop for Acquire {
    #[inline]
    fn drop(&mut self) {
        if let (Stage::Queued(ticket, _), Some(lane)) = (&self.stage, &self.lane) {
            leave(lane, *ticket);
        }
    }
}

fn leave(lane: &LaneInner, ticket: Ticket) {
    let was_there = lane.pool.step(lane, |state, effects| {
        let now = state.engine.asks_time(lane.id).then(clock::now);
        let abandoned = state.engine.abandon(lane.id, ticket.id, now, effects);
        let cancel = || state.engine.cancel(lane.id, ticket.id, now.unwrap_or_else(clock::now), effects);
        abandoned.unwrap_or_else(cancel)
    });
    if was_there {
        lane.report_abandoned();
    }
}

/// A place in line, or a refusal.
fn join(
    lane: &LaneInner,
    arriving: &mut Arriving,
    deadline: Time,
    since: Time,
    waker: &Waker,
    now: Time,
    state: &mut pool::State,
) -> Arrival {
    let class = arriving.class.unwrap_or_default();
    let arrived_at = if now.since(since) < JUST_NOW { now } else { since };
    if deadline != Time::NEVER {
        let request = Request { class, asked: arriving.asked, deadline };
        if let Some(refused) = foresee(lane, request, arrived_at, now, state) {
            return Arrival::Refused(refused);
        }
    }
    if !state.reserve_place(&lane.pool.shared) {
        let most = u32::try_from(lane.pool.shared.max_waiting()).unwrap_or(u32::MAX);
        let kind = RejectKind::QueueFull(QueueBound::Total);
        return Arrival::Refused(refuse(lane, kind, Bound::Count(most), None, state));
    }
    let bounds = Bounds::of(deadline, state.engine.lane_policy(lane.id).queue_timeout, now);
    let ask =
        Ask { class, tenant: arriving.tenant.take(), arrived_at, expires_at: bounds.expires_at, expiry: bounds.expiry };
    match state.engine.enqueue(lane.id, ask, arriving.asked, waker.clone(), now) {
        Ok(ticket) => Arrival::Queued(ticket, bounds),
        Err(refusal) => Arrival::Refused(refuse_place(lane, refusal, bounds, state)),
    }
}

/// A refusal, where the deadline cannot be kept.
#[cold]
#[inline(never)]
fn foresee(
    lane: &LaneInner,
    request: Request,
    arrived_at: Time,
    now: Time,
    state: &mut pool::State,
) -> Option<Refused> {
    let foreseen = state.engine.foresee_miss(lane.id, request, arrived_at, now)?;
    Some(refuse(lane, RejectKind::DeadlineUnreachable, Bound::Foreseen(foreseen), None, state))
}

/// Where a call is not to wait for tokens.
#[cold]
fn may_not_wait(lane: &LaneInner, blocked: Blocked, state: &pool::State) -> bool {
    matches!(blocked, Blocked::Short(..)) && state.engine.lane_policy(lane.id).when_short == WhenShort::Refuse
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

impl Bounds {
    fn of(deadline: Time, queue_timeout: Duration, now: Time) -> Self {
        let timeout_at = now + queue_timeout;
        if deadline <= timeout_at {
            Self { expires_at: deadline, expiry: Expiry::Deadline }
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

impl fmt::Debug for Acquire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Acquire").finish_non_exhaustive()
    }
}
