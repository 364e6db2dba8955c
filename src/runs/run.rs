//! One run: its owner, and handles for everybody else.

use std::fmt;
use std::future::{Future, poll_fn};
use std::ops::Deref;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::budget::{Asking, BudgetMoment};
use super::call::{CallOfRun, Whose};
use super::error::RunOver;
use super::hub::RunState;
use super::listen::RunEvents;
use crate::engine::runs::{Ending, RunId, RunStatus, Standing, Watch};
use crate::limiter::{Scope, Scoped};

/// A run, in the hands of whoever carries it out.
///
/// Dropped without [`finish`](Self::finish), it ends as cancelled. For everybody else there are [`RunHandle`]s, and a run
/// can do what its handle can.
///
/// ```
/// use tower_inflight::{RunQueue, RunStatus, StartRun};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let queue = RunQueue::builder().build()?;
/// let mut run = queue.start(StartRun::new("acme", "ann"))?;
/// let handle = run.handle().clone();
/// let work = tokio::spawn(async move {
///     run.admitted().await?;
///     tokio::select! {
///         () = async { /* the agent's loop */ } => run.finish(),
///         status = run.ended() => { println!("{status}"); Ok(()) }
///     }
/// });
/// assert!(!handle.status().is_over());
/// work.await??;
/// assert_eq!(handle.status(), RunStatus::Finished);
/// # Ok(()) }
/// ```
#[must_use = "a run that is dropped is cancelled"]
pub struct Run {
    handle: RunHandle,
    /// The budget, while it is being asked.
    asking: Option<Asking>,
}

/// Looks at a run, listens to it, or cancels it. Clones are handles of the same run, and stay valid after its end.
///
/// ```
/// use tower_inflight::{RunQueue, RunStatus, StartRun};
///
/// let queue = RunQueue::builder().build()?;
/// let run = queue.start(StartRun::new("acme", "ann"))?;
/// let handle = queue.run(run.id())?;
/// assert_eq!((handle.tenant(), handle.status()), ("acme", RunStatus::Running));
/// drop(run);
/// assert_eq!(handle.status(), RunStatus::Cancelled);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct RunHandle {
    pub(super) state: Arc<RunState>,
}

impl Run {
    pub(super) fn new(state: Arc<RunState>) -> Self {
        Self { handle: RunHandle { state }, asking: None }
    }

    pub(super) fn asking(mut self, asking: Option<Asking>) -> Self {
        self.asking = asking;
        self
    }

    /// For others to look at this run and to cancel it.
    #[must_use]
    pub fn handle(&self) -> &RunHandle {
        &self.handle
    }

    /// Waits until the run has its slot, as long as that takes. Ready at once when it has it, however often it is asked.
    ///
    /// # Errors
    /// The run is over: it was cancelled, or its budget refused it.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing: the run keeps its place in line, or its slot. Where a [`Budget`](crate::Budget)
    /// is asked, its question goes on with the next call.
    pub async fn admitted(&mut self) -> Result<(), RunOver> {
        let state = self.handle.state.clone();
        let mut watching = Watching { state: &state, watch: None };
        poll_fn(|cx| self.poll_admitted(&mut watching, cx)).await
    }

    fn poll_admitted(&mut self, watching: &mut Watching<'_>, cx: &mut Context<'_>) -> Poll<Result<(), RunOver>> {
        let state = &self.handle.state;
        loop {
            let standing = watching.look(cx);
            if let Some(over) = state.over() {
                return Poll::Ready(Err(over));
            }
            let asking = match standing {
                Standing::Running { .. } | Standing::Lent | Standing::Over => return Poll::Ready(Ok(())),
                Standing::Queued { .. } => return Poll::Pending,
                Standing::AtDoor | Standing::Starting => &mut self.asking,
            };
            if asking.is_none() {
                *asking = state.hub.ask(&state.user, BudgetMoment::Start);
            }
            match asking.as_mut().map(|asking| asking.poll(cx)) {
                Some(Poll::Pending) => return Poll::Pending,
                Some(Poll::Ready(Err(refused))) => state.refuse(refused.into()),
                Some(Poll::Ready(Ok(()))) | None => {
                    let passed = state.hub.step(|engine, now, effects| engine.pass(state.at, now, effects));
                    if let Err(bound) = passed {
                        state.refuse(state.hub.backpressure(bound).into());
                    }
                }
            }
            *asking = None;
        }
    }

    /// The run has come to its end. One that has not been admitted is cancelled.
    ///
    /// # Errors
    /// It was over already, cancelled by somebody.
    pub fn finish(self) -> Result<(), RunOver> {
        self.handle.state.end(Ending::Finished)
    }
}

impl Deref for Run {
    type Target = RunHandle;

    fn deref(&self) -> &RunHandle {
        &self.handle
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let _ = self.handle.state.end(Ending::Cancelled);
    }
}

impl RunHandle {
    /// Its number.
    #[must_use]
    pub fn id(&self) -> RunId {
        self.state.at.id
    }

    /// Who pays.
    #[must_use]
    pub fn tenant(&self) -> &str {
        &self.state.user.tenant
    }

    /// Whose run it is within the tenant.
    #[must_use]
    pub fn user(&self) -> &str {
        &self.state.user.user
    }

    /// The key that it was started with.
    #[must_use]
    pub fn key(&self) -> Option<&str> {
        self.state.key.as_deref()
    }

    /// What it is doing now.
    #[must_use]
    pub fn status(&self) -> RunStatus {
        if let Some(over) = self.state.over() {
            return over.status();
        }
        match self.standing() {
            Standing::AtDoor | Standing::Queued { .. } => RunStatus::Queued,
            Standing::Starting | Standing::Running { .. } => RunStatus::Running,
            Standing::Lent => RunStatus::Lent,
            // It ended between the two looks.
            Standing::Over => self.state.over().map_or(RunStatus::Cancelled, |over| over.status()),
        }
    }

    /// Its place in line now, from 1: one more than the runs that go first if nobody else comes. `None` when it does not
    /// stand in line.
    ///
    /// In its user's line that is its place among the user's own runs. In the line for slots, where users take turns, it is
    /// exact for the first run of each user, and for later ones at most one round of turns too high. It is worked out when
    /// it is asked for, in O(log n) and a step for each run of the same user before it.
    #[must_use]
    pub fn position(&self) -> Option<u32> {
        match self.standing() {
            Standing::Queued { position, .. } => Some(position),
            _ => None,
        }
    }

    /// Ends the run as cancelled, whatever it is doing: queued, it never makes a call; running, its slot goes to the next
    /// at once, its calls that wait for a lane end, and no further ones are sent. Its owner hears of it by
    /// [`ended`](Self::ended) and stops its work.
    ///
    /// # Errors
    /// It is over already.
    pub fn cancel(&self) -> Result<(), RunOver> {
        self.state.end(Ending::Cancelled)
    }

    /// Waits until the run is over, and says how it ended.
    pub async fn ended(&self) -> RunStatus {
        let mut watching = Watching { state: &self.state, watch: None };
        poll_fn(|cx| {
            watching.look(cx);
            self.state.over().map_or(Poll::Pending, |over| Poll::Ready(over.status()))
        })
        .await
    }

    /// Hears of everything that happens to this run, from where it stands now on. The stream ends with the run.
    ///
    /// While the run is queued and the stream is polled, it tells of a new place in line at most once a second.
    pub fn events(&self) -> RunEvents {
        RunEvents::new(self.state.clone())
    }

    /// Runs `future` as the run's *own turn*: the call that it cannot go on without. While such a call waits for a lane,
    /// the run lends its slot to the next run in line, and takes it back before every new run and before the call is sent.
    ///
    /// Only for calls that the run itself waits for, one after the other, when it does nothing else. A tool's call, an
    /// embedding or a sub-agent's call is none: the run goes on computing beside it, and would do so without a slot. Wrap
    /// those in [`beside`](Self::beside). Calls of lanes of kind [`Embedding`](crate::Kind::Embedding) never lend.
    ///
    /// A call that is dropped while it waits takes the slot back as soon as one is free; the run's next call waits for it.
    ///
    /// # Errors
    /// A call of a run that is over fails with [`RejectKind::RunOver`](crate::RejectKind::RunOver).
    pub fn turn<F: Future>(&self, future: F) -> Scoped<F> {
        Scope::new().in_run(self.call(Whose::OwnTurn)).run(future)
    }

    /// Runs `future` as something that the run does beside its own turns: a tool, a sub-agent. Its calls are the run's, so
    /// they are reported, end with it, and are subject to a strict budget; they never lend its slot. Goes inside of
    /// [`turn`](Self::turn) as well.
    pub fn beside<F: Future>(&self, future: F) -> Scoped<F> {
        Scope::new().in_run(self.call(Whose::Beside)).run(future)
    }

    pub(crate) fn call(&self, whose: Whose) -> CallOfRun {
        CallOfRun::new(self.state.clone(), whose)
    }

    fn standing(&self) -> Standing {
        self.state.hub.read(|engine| engine.standing(self.state.at))
    }
}

/// A future's place among those who are woken when something happens to a run.
struct Watching<'a> {
    state: &'a RunState,
    watch: Option<Watch>,
}

impl Watching<'_> {
    fn look(&mut self, cx: &mut Context<'_>) -> Standing {
        let Self { state, watch } = self;
        state.hub.step(|engine, _, effects| {
            engine.watch(state.at, watch, cx.waker(), &mut effects.spent);
            engine.standing(state.at)
        })
    }
}

impl Drop for Watching<'_> {
    fn drop(&mut self) {
        if let Some(watch) = self.watch {
            self.state.hub.step(|engine, _, effects| engine.unwatch(self.state.at, watch, &mut effects.spent));
        }
    }
}

impl fmt::Debug for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.handle.fmt(f)
    }
}

impl fmt::Debug for RunHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Run").field(&self.state.at.id).finish()
    }
}
