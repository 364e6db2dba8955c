//! What runs are called.

use std::fmt;
use std::num::ParseIntError;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Names one run of a queue for ever: numbers count up from 1 and are never used twice.
///
/// ```
/// use tower_inflight::RunId;
///
/// let id: RunId = "17".parse()?;
/// assert_eq!(id.to_string(), "17");
/// # Ok::<(), std::num::ParseIntError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RunId(pub(crate) u64);

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for RunId {
    type Err = ParseIntError;

    fn from_str(text: &str) -> Result<Self, ParseIntError> {
        text.parse().map(Self)
    }
}

/// What a run is doing.
///
/// ```text
///             ┌─────────── cancelled, refused ◀──────────┐
///             │                                          │
///  start ▶ queued ──▶ running ──▶ lent ──▶ running … ──▶ finished
/// ```
///
/// ```
/// use tower_inflight::RunStatus;
///
/// assert!(RunStatus::Cancelled.is_over());
/// assert_eq!(serde_json::to_string(&RunStatus::Lent)?, r#""lent""#);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum RunStatus {
    /// It waits for its user's cap or for a run slot, or its budget is being asked.
    Queued,
    /// It holds a run slot.
    Running,
    /// Its own call waits for a lane, and its run slot is somebody else's meanwhile.
    Lent,
    /// It has come to its end.
    Finished,
    /// It was cancelled, or dropped before its end.
    Cancelled,
    /// Its budget did not let it start.
    Refused,
}

impl RunStatus {
    /// The name used in JSON and labels.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Lent => "lent",
            Self::Finished => "finished",
            Self::Cancelled => "cancelled",
            Self::Refused => "refused",
        }
    }

    /// Nothing will happen to it any more.
    #[must_use]
    pub const fn is_over(self) -> bool {
        matches!(self, Self::Finished | Self::Cancelled | Self::Refused)
    }
}

impl fmt::Display for RunStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Which of the two lines a run stands in.
///
/// ```
/// use tower_inflight::QueuedFor;
///
/// assert_eq!(serde_json::to_string(&QueuedFor::UserCap)?, r#""user_cap""#);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum QueuedFor {
    /// Behind its own user's runs, for `max_concurrent_runs_per_user`.
    UserCap,
    /// Among everybody's runs, for `max_concurrent_runs`.
    GlobalCap,
}

/// The bound that kept a run out.
///
/// ```
/// use tower_inflight::RunBound;
///
/// assert_eq!(RunBound::QueueDepth.setting(), "max_queue_depth");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum RunBound {
    /// Every run slot is taken, and the start was not to wait.
    ConcurrentRuns,
    /// Its user has as many runs as it may, and the start was not to wait.
    ConcurrentRunsPerUser,
    /// As many runs as may are queued or lent.
    QueueDepth,
    /// As many runs of its user as may are queued.
    QueuedRunsPerUser,
}

impl RunBound {
    pub(crate) const ALL: [Self; 4] =
        [Self::ConcurrentRuns, Self::ConcurrentRunsPerUser, Self::QueueDepth, Self::QueuedRunsPerUser];

    /// The setting that says how many.
    #[must_use]
    pub const fn setting(self) -> &'static str {
        match self {
            Self::ConcurrentRuns => "max_concurrent_runs",
            Self::ConcurrentRunsPerUser => "max_concurrent_runs_per_user",
            Self::QueueDepth => "max_queue_depth",
            Self::QueuedRunsPerUser => "max_queued_runs_per_user",
        }
    }
}
