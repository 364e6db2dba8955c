//! What happens to runs, for those who listen.

use std::sync::Arc;
use std::time::Duration;

use serde::{Serialize, Serializer};

use crate::engine::runs::{Ending, Fact, QueuedFor, RunId, Standing};
use crate::limiter::key::LaneKey;

/// Something that happened to a run. As JSON it has a field `event` with its name:
///
/// ```
/// use std::time::Duration;
/// use tower_inflight::{QueuedFor, RunEvent};
///
/// let event = RunEvent::Queued { reason: QueuedFor::GlobalCap, position: 3 };
/// assert_eq!(serde_json::to_string(&event)?, r#"{"event":"queued","reason":"global_cap","position":3}"#);
/// let event = RunEvent::Admitted { wait: Duration::from_millis(1_500) };
/// assert_eq!(serde_json::to_string(&event)?, r#"{"event":"admitted","wait_ms":1500}"#);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
#[non_exhaustive]
pub enum RunEvent {
    /// It stands in line.
    Queued {
        /// Which line.
        reason: QueuedFor,
        /// Its place there, from 1. See [`RunHandle::position`](crate::RunHandle::position).
        position: u32,
    },
    /// It has a run slot.
    Admitted {
        /// Since it was started. In JSON `wait_ms`.
        #[serde(rename = "wait_ms", serialize_with = "millis")]
        wait: Duration,
    },
    /// It waits for a lane and has lent its slot.
    Lent,
    /// It has its slot back.
    Resumed {
        /// How long it was without. In JSON `away_ms`.
        #[serde(rename = "away_ms", serialize_with = "millis")]
        away: Duration,
    },
    /// A call of it waits for a lane.
    CallQueued {
        /// Which lane.
        #[serde(serialize_with = "shown")]
        lane: Arc<LaneKey>,
        /// Its place there when it came, from 1.
        position: u32,
    },
    /// A call of it has its slot of the lane, and is sent now.
    CallAdmitted {
        /// Which lane.
        #[serde(serialize_with = "shown")]
        lane: Arc<LaneKey>,
        /// For that slot. In JSON `wait_ms`.
        #[serde(rename = "wait_ms", serialize_with = "millis")]
        wait: Duration,
    },
    /// It has come to its end.
    Finished,
    /// It was cancelled, or dropped before its end.
    Cancelled,
    /// Its budget did not let it start.
    Refused {
        /// Why, for whoever started it.
        why: String,
    },
    /// The listener did not keep up: so many events before this one are lost.
    Missed {
        /// How many.
        events: u64,
    },
}

impl RunEvent {
    /// The last of its run.
    #[must_use]
    pub fn is_last(&self) -> bool {
        matches!(self, Self::Finished | Self::Cancelled | Self::Refused { .. })
    }

    pub(super) fn of(fact: Fact, why: impl FnOnce() -> String) -> Self {
        match fact {
            Fact::Queued { reason, position } => Self::Queued { reason, position },
            Fact::Admitted { waited } => Self::Admitted { wait: waited },
            Fact::Lent => Self::Lent,
            Fact::Resumed { away } => Self::Resumed { away },
            Fact::Over(Ending::Finished) => Self::Finished,
            Fact::Over(Ending::Cancelled) => Self::Cancelled,
            Fact::Over(Ending::Refused) => Self::Refused { why: why() },
        }
    }

    /// Where a run stands, as the event that would have told of it. Nothing is told of a run whose budget is being asked.
    pub(super) fn of_standing(standing: Standing) -> Option<Self> {
        match standing {
            Standing::Queued { reason, position } => Some(Self::Queued { reason, position }),
            Standing::Running { waited } => Some(Self::Admitted { wait: waited }),
            Standing::Lent => Some(Self::Lent),
            Standing::AtDoor | Standing::Starting | Standing::Over => None,
        }
    }
}

/// An event, and the run that it happened to.
///
/// ```
/// use std::pin::pin;
/// use futures_util::StreamExt;
/// use tower_inflight::{RunQueue, StartRun};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let queue = RunQueue::builder().build()?;
/// let mut notices = queue.subscribe();
/// let run = queue.start(StartRun::new("acme", "ann"))?;
/// let notice = notices.next().await.expect("it never ends");
/// assert_eq!(serde_json::to_string(&notice)?, r#"{"run":1,"tenant":"acme","user":"ann","event":"admitted","wait_ms":0}"#);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct RunNotice {
    /// Which run; 0 for [`RunEvent::Missed`], which may be about many.
    pub run: RunId,
    /// Whose.
    pub tenant: Arc<str>,
    /// Whose, within the tenant.
    pub user: Arc<str>,
    /// What happened.
    #[serde(flatten)]
    pub event: RunEvent,
}

fn millis<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
}

fn shown<S: Serializer>(lane: &Arc<LaneKey>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(lane)
}
