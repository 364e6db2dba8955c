//! Runs that wait instead of being refused, and lend their slot while they wait.

mod budget;
mod builder;
mod call;
mod error;
mod event;
mod feed;
mod hub;
mod listen;
mod meters;
mod routes;
mod run;
mod start;
mod stats;
mod token_budget;

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

pub use self::budget::{Budget, BudgetAnswer, BudgetAsk, BudgetError, BudgetMoment};
pub use self::builder::RunQueueBuilder;
pub(crate) use self::call::{CallOfRun, RunCall, Whose};
pub use self::error::{Backpressure, BudgetFault, BudgetRefused, RunOver, StartError, UnknownRun};
pub use self::event::{RunEvent, RunNotice};
use self::hub::{Hub, RunState};
pub use self::listen::{RunEvents, RunNotices};
pub use self::run::{Run, RunHandle};
pub use self::start::{Once, StartRun};
pub use self::stats::{RunStats, UserRuns};
pub use self::token_budget::TokenBudget;
use crate::config::RunConfig;
use crate::engine::runs::{Ask, Door, Refusal, RunId};

/// Decides which run of an agent server goes next: a bounded line in which users take turns.
///
/// A *run* makes many model calls, with tool work between them. [`start`](Self::start) gives it its number, its place in
/// line and a way to cancel it at once, before it waits; [`Run::admitted`] waits for its slot. At most
/// [`max_concurrent_runs`](RunConfig::max_concurrent_runs) compute at a time. A run whose own call waits for a lane of a
/// [`Limiter`](crate::Limiter) lends its slot meanwhile ([`RunHandle::turn`]), so that runs which wait for one busy model
/// do not keep those from running that need an idle one.
///
/// A cheap handle: clones are the same queue.
///
/// ```
/// use tower_inflight::{LaneKey, Limiter, Priority, RunQueue, StartRun};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let limiter = Limiter::builder().max_inflight(1).build()?;
/// let queue = RunQueue::builder().max_concurrent_runs(4).max_concurrent_runs_per_user(2).build()?;
///
/// let mut run = queue.start(StartRun::new("acme", "ann"))?;
/// println!("run {} is {}, number {:?} in line", run.id(), run.status(), run.position());
///
/// run.admitted().await?;
/// for _ in 0..3 {
///     let permit = run.turn(limiter.acquire(&LaneKey::new("local", "gemma"), Priority::Default)).await?;
///     // … call the model, settle the permit, work with tools
///     # drop(permit);
/// }
/// run.finish()?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct RunQueue {
    hub: Arc<Hub>,
}

impl RunQueue {
    /// Starts with the defaults of [`RunConfig`].
    pub fn builder() -> RunQueueBuilder {
        RunQueueBuilder::default()
    }

    /// A new run: running if a slot is free, and in line if not. Never waits. The slot is the run's from the moment it is
    /// given, whether or not its owner awaits it.
    ///
    /// A budget that answers at once is heard here, and a run over budget is refused. One that does not is waited for in
    /// [`Run::admitted`]; until then the run is queued but stands in no line.
    ///
    /// # Errors
    /// A bound was met, the budget said no, or the queue is closed. Nothing is left of such a start.
    pub fn start(&self, start: StartRun) -> Result<Run, StartError> {
        match self.start_or_find(start, None)? {
            Once::New(run) => Ok(run),
            Once::There(_) => unreachable!("a start without a key finds nobody"),
        }
    }

    /// A new run, or the one of this user that carries the same key and is not over.
    ///
    /// ```
    /// use tower_inflight::{Once, RunQueue, StartRun};
    ///
    /// let queue = RunQueue::builder().build()?;
    /// let Once::New(run) = queue.start_once("nightly", StartRun::new("acme", "ann"))? else { panic!() };
    /// let Once::There(same) = queue.start_once("nightly", StartRun::new("acme", "ann"))? else { panic!() };
    /// assert_eq!(same.id(), run.id());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`start`](Self::start).
    pub fn start_once(&self, key: impl Into<Arc<str>>, start: StartRun) -> Result<Once, StartError> {
        let key = key.into();
        // Who is there already is not asked for its budget again.
        if let Some(state) = self.hub.read(|engine| engine.by_key(&start.user, &key).cloned()) {
            return Ok(Once::There(RunHandle { state }));
        }
        self.start_or_find(start, Some(key))
    }

    /// Waits in the same line as a run of one call, and runs `call` when it is its turn. What `call` asks of a limiter is
    /// the run's own turn, see [`RunHandle::turn`].
    ///
    /// ```
    /// use tower_inflight::{RunQueue, StartRun};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # async fn summarise() -> &'static str { "short" }
    /// let queue = RunQueue::builder().build()?;
    /// let summary = queue.call(StartRun::new("acme", "ann"), summarise()).await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// It was not started, or was cancelled before its turn.
    ///
    /// # Cancel safety
    /// Dropping it ends the run as cancelled.
    pub async fn call<F: Future>(&self, start: StartRun, call: F) -> Result<F::Output, StartError> {
        let mut run = self.start(start)?;
        if let Err(over) = run.admitted().await {
            return Err(over.refused.unwrap_or(StartError::Cancelled));
        }
        let output = run.turn(call).await;
        let _ = run.finish();
        Ok(output)
    }

    /// A handle of a run that is not over.
    ///
    /// # Errors
    /// No such run is here.
    pub fn run(&self, id: RunId) -> Result<RunHandle, UnknownRun> {
        let state = self.hub.read(|engine| engine.by_id(id).cloned());
        state.map(|state| RunHandle { state }).ok_or(UnknownRun { id })
    }

    /// Ends a run as cancelled, whatever it is doing. See [`RunHandle::cancel`].
    ///
    /// # Errors
    /// No such run is here.
    pub fn cancel(&self, id: RunId) -> Result<(), UnknownRun> {
        self.run(id)?.cancel().map_err(|_| UnknownRun { id })
    }

    /// Hears of everything that happens to any run from now on, in the order in which it happens. Who does not keep up
    /// misses the oldest, and is told so; nobody waits for it.
    pub fn subscribe(&self) -> RunNotices {
        RunNotices::new(self.hub.clone())
    }

    /// How many runs are doing what, in all and by user: from memory alone.
    #[must_use]
    pub fn stats(&self) -> RunStats {
        self.hub.read(RunStats::of)
    }

    /// The configuration in force.
    #[must_use]
    pub fn config(&self) -> &RunConfig {
        &self.hub.config
    }

    /// Refuses newcomers and cancels the runs that have not started. The others go on to their end. Closing twice is the
    /// same as once.
    pub fn close(&self) {
        self.hub.step(|engine, now, effects| engine.close(now, effects));
    }

    fn start_or_find(&self, start: StartRun, key: Option<Arc<str>>) -> Result<Once, StartError> {
        let StartRun { user, patience } = start;
        let mut asking = self.hub.ask(&user, BudgetMoment::Door);
        let door = match asking.as_mut().map(|asking| asking.peek(&mut Context::from_waker(Waker::noop()))) {
            None | Some(Poll::Ready(Ok(()))) => Door::Open,
            Some(Poll::Ready(Err(refused))) => return Err(refused.into()),
            Some(Poll::Pending) => Door::Asking,
        };
        let asking = asking.filter(|_| door == Door::Asking);
        let ask = Ask { user: user.clone(), key: key.clone(), patience, door };
        let started = self.hub.step(|engine, now, effects| {
            let there = key.as_ref().and_then(|key| engine.by_key(&user, key).cloned());
            match there {
                Some(state) => Ok(Once::There(RunHandle { state })),
                None => {
                    let make = |at| Arc::new(RunState::new(self.hub.clone(), at, user, key));
                    engine.start(ask, make, now, effects).map(|state| Once::New(Run::new(state)))
                }
            }
        });
        match started {
            Ok(Once::New(run)) => Ok(Once::New(run.asking(asking))),
            Ok(there) => Ok(there),
            Err(Refusal::Bound(bound)) => Err(self.hub.backpressure(bound).into()),
            Err(Refusal::Closed) => Err(StartError::Closed),
        }
    }
}

impl fmt::Debug for RunQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunQueue").field("config", &self.hub.config).finish_non_exhaustive()
    }
}
