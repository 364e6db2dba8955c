//! Why a run did not start, did not go on, or is not there.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use crate::engine::runs::{RunBound, RunId, RunStatus};

/// The one refusal of a full queue: which bound was met, and what it is set to.
///
/// A refused start leaves no trace: a scheduler fires it again on its next tick.
///
/// ```
/// use tower_inflight::{RunBound, RunQueue, StartError, StartRun};
///
/// let queue = RunQueue::builder().max_concurrent_runs(1).max_queue_depth(0).build()?;
/// let _running = queue.start(StartRun::new("acme", "ann"))?;
/// let Err(StartError::Backpressure(full)) = queue.start(StartRun::new("acme", "bob")) else { panic!() };
/// assert_eq!((full.bound(), full.limit()), (RunBound::QueueDepth, 0));
/// assert_eq!(full.to_string(), "too many runs are queued or lent, at most 0 may be; see `max_queue_depth`");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backpressure {
    bound: RunBound,
    limit: u32,
}

impl Backpressure {
    pub(super) fn new(bound: RunBound, limit: u32) -> Self {
        Self { bound, limit }
    }

    /// The bound that was met.
    #[must_use]
    pub fn bound(&self) -> RunBound {
        self.bound
    }

    /// Its value, as configured.
    #[must_use]
    pub fn limit(&self) -> u32 {
        self.limit
    }
}

impl fmt::Display for Backpressure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.bound {
            RunBound::ConcurrentRuns => "all run slots are taken and the start was not to wait",
            RunBound::ConcurrentRunsPerUser => "the user's runs fill its cap and the start was not to wait",
            RunBound::QueueDepth => "too many runs are queued or lent",
            RunBound::QueuedRunsPerUser => "too many runs of this user are queued",
        };
        write!(f, "{what}, at most {} may be; see `{}`", self.limit, self.bound.setting())
    }
}

impl Error for Backpressure {}

/// Why a run did not start.
///
/// ```
/// fn status(error: &tower_inflight::StartError) -> u16 {
///     match error {
///         tower_inflight::StartError::Backpressure(_) => 503,
///         tower_inflight::StartError::Budget(_) => 402,
///         _ => 500,
///     }
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StartError {
    /// A bound was met.
    Backpressure(Backpressure),
    /// The budget said no, or said nothing.
    Budget(BudgetRefused),
    /// The queue was closed.
    Closed,
    /// It was cancelled while it waited. Only [`RunQueue::call`](crate::RunQueue::call) says so: elsewhere that is a
    /// [`RunOver`].
    Cancelled,
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Backpressure(full) => full.fmt(f),
            Self::Budget(refused) => refused.fmt(f),
            Self::Closed => f.write_str("the run queue is closed"),
            Self::Cancelled => f.write_str("the run was cancelled while it waited"),
        }
    }
}

impl Error for StartError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Backpressure(full) => Some(full),
            Self::Budget(refused) => Some(refused),
            Self::Closed | Self::Cancelled => None,
        }
    }
}

impl From<Backpressure> for StartError {
    fn from(full: Backpressure) -> Self {
        Self::Backpressure(full)
    }
}

impl From<BudgetRefused> for StartError {
    fn from(refused: BudgetRefused) -> Self {
        Self::Budget(refused)
    }
}

/// A budget that did not say yes. Whatever goes wrong with it, the run or call does not go on.
///
/// ```
/// use tower_inflight::{BudgetError, BudgetFault, RunQueue, StartError, StartRun};
///
/// let queue = RunQueue::builder().budget(|_| async { Err(BudgetError::over("nothing left for today")) }).build()?;
/// let Err(StartError::Budget(refused)) = queue.start(StartRun::new("acme", "ann")) else { panic!() };
/// assert_eq!(refused.fault(), BudgetFault::Over);
/// assert_eq!(refused.to_string(), "over budget: nothing left for today");
/// # Ok::<(), tower_inflight::ConfigError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BudgetRefused {
    fault: BudgetFault,
    message: String,
}

/// What was wrong with a budget.
///
/// ```
/// assert_ne!(tower_inflight::BudgetFault::Over, tower_inflight::BudgetFault::Failed);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BudgetFault {
    /// It is used up.
    Over,
    /// It could not tell.
    Failed,
    /// It did not answer within `budget_timeout`.
    TimedOut,
    /// It panicked.
    Panicked,
}

impl BudgetRefused {
    pub(super) fn over(why: String) -> Self {
        Self { fault: BudgetFault::Over, message: format!("over budget: {why}") }
    }

    pub(super) fn failed(error: &dyn Error) -> Self {
        Self { fault: BudgetFault::Failed, message: format!("the budget could not be asked: {error}") }
    }

    pub(super) fn timed_out(after: Duration) -> Self {
        let after = humantime::format_duration(after);
        let message = format!("the budget did not answer within {after}; see `budget_timeout`");
        Self { fault: BudgetFault::TimedOut, message }
    }

    pub(super) fn panicked() -> Self {
        Self { fault: BudgetFault::Panicked, message: "the budget panicked".to_owned() }
    }

    /// What was wrong.
    #[must_use]
    pub fn fault(&self) -> BudgetFault {
        self.fault
    }
}

impl fmt::Display for BudgetRefused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Error for BudgetRefused {}

/// Something was asked of a run that is over.
///
/// ```
/// use tower_inflight::{RunQueue, RunStatus, StartRun};
///
/// let queue = RunQueue::builder().build()?;
/// let run = queue.start(StartRun::new("acme", "ann"))?;
/// run.cancel()?;
/// let error = run.cancel().unwrap_err();
/// assert_eq!(error.status(), RunStatus::Cancelled);
/// assert_eq!(error.to_string(), "run 1 is over: cancelled");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunOver {
    pub(super) id: RunId,
    pub(super) status: RunStatus,
    pub(super) refused: Option<StartError>,
}

impl RunOver {
    /// Which run.
    #[must_use]
    pub fn id(&self) -> RunId {
        self.id
    }

    /// How it ended.
    #[must_use]
    pub fn status(&self) -> RunStatus {
        self.status
    }

    /// Why it was refused, if it was.
    #[must_use]
    pub fn refused(&self) -> Option<&StartError> {
        self.refused.as_ref()
    }
}

impl fmt::Display for RunOver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "run {} is over: {}", self.id, self.status)?;
        self.refused.as_ref().map_or(Ok(()), |refused| write!(f, ", {refused}"))
    }
}

impl Error for RunOver {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.refused.as_ref().map(|refused| refused as _)
    }
}

/// No such run is here: it is over, or never was.
///
/// ```
/// use tower_inflight::RunQueue;
///
/// let queue = RunQueue::builder().build()?;
/// let error = queue.cancel("17".parse()?).unwrap_err();
/// assert_eq!(error.to_string(), "no run 17 is here: it is over, or never was");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownRun {
    pub(super) id: RunId,
}

impl UnknownRun {
    /// The number that was asked for.
    #[must_use]
    pub fn id(&self) -> RunId {
        self.id
    }
}

impl fmt::Display for UnknownRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no run {} is here: it is over, or never was", self.id)
    }
}

impl Error for UnknownRun {}
