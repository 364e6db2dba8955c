//! What goes into a step of [`Runs`](super::Runs), and what comes out of it.

use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use smallvec::SmallVec;

use super::words::{QueuedFor, RunBound, RunId};

/// Names one run for ever: the index is used again, the number never.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RunRef {
    pub(super) index: u32,
    pub(crate) id: RunId,
}

/// Whose run it is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct UserKey {
    pub(crate) tenant: Arc<str>,
    pub(crate) user: Arc<str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    pub(crate) concurrent: u32,
    pub(crate) concurrent_per_user: Option<u32>,
    pub(crate) depth: u32,
    pub(crate) queued_per_user: u32,
}

#[derive(Clone, Debug)]
pub(crate) struct Ask {
    pub(crate) user: UserKey,
    pub(crate) key: Option<Arc<str>>,
    pub(crate) patience: Patience,
    pub(crate) door: Door,
}

/// Whether a start may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patience {
    Wait,
    Reject,
}

/// What the budget said before the run may queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Door {
    Open,
    /// It has not answered yet.
    Asking,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    Bound(RunBound),
    Closed,
}

/// Where a run stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Its budget is being asked; it stands in no line yet.
    AtDoor,
    Queued {
        reason: QueuedFor,
        position: u32,
    },
    /// It holds a slot, and its budget is being asked.
    Starting,
    Running {
        waited: Duration,
    },
    Lent,
    Over,
}

/// What a run finds when it wants its slot back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Back {
    Held,
    Waiting,
    Over,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    Finished,
    Cancelled,
    Refused,
}

/// Something that happened to a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fact {
    Queued { reason: QueuedFor, position: u32 },
    Admitted { waited: Duration },
    Lent,
    Resumed { away: Duration },
    Over(Ending),
}

/// What a step did beyond its answer, for the shell to carry out.
#[derive(Debug)]
pub(crate) struct Effects<R> {
    /// In the order in which they happened.
    pub(crate) facts: SmallVec<[(R, Fact); 4]>,
    pub(crate) wakes: SmallVec<[Waker; 4]>,
    /// Wakers that nobody needs any more. Dropping one may drop a task, and with it a run.
    pub(crate) spent: SmallVec<[Waker; 1]>,
}

impl<R> Default for Effects<R> {
    fn default() -> Self {
        Self { facts: SmallVec::new(), wakes: SmallVec::new(), spent: SmallVec::new() }
    }
}

/// Runs by what they are doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) running: u32,
    pub(crate) queued: u32,
    pub(crate) lent: u32,
}
