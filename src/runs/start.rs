//! What a start says about its run.

use std::sync::Arc;

use super::run::{Run, RunHandle};
use crate::engine::runs::{Patience, UserKey};
use crate::limiter::Admission;

/// Whose run is to start, and whether it may wait.
///
/// ```
/// use tower_inflight::{Admission, RunBound, RunQueue, StartError, StartRun};
///
/// let queue = RunQueue::builder().max_concurrent_runs(1).build()?;
/// let _running = queue.start(StartRun::new("acme", "ann"))?;
///
/// let now_or_never = StartRun::new("acme", "bob").with_admission(Admission::Reject);
/// let Err(StartError::Backpressure(full)) = queue.start(now_or_never) else { panic!() };
/// assert_eq!(full.bound(), RunBound::ConcurrentRuns);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct StartRun {
    pub(super) user: UserKey,
    pub(super) patience: Patience,
}

impl StartRun {
    /// A run of this user of this tenant. Any texts that tell them apart will do; the same user name in two tenants is
    /// two users.
    #[must_use]
    pub fn new(tenant: impl Into<Arc<str>>, user: impl Into<Arc<str>>) -> Self {
        Self { user: UserKey { tenant: tenant.into(), user: user.into() }, patience: Patience::Wait }
    }

    /// Whether it may wait. With [`Admission::Reject`] it gets a slot now or
    /// [`Backpressure`](crate::Backpressure) now.
    #[must_use]
    pub fn with_admission(self, admission: Admission) -> Self {
        let patience = match admission {
            Admission::Wait => Patience::Wait,
            Admission::Reject => Patience::Reject,
        };
        Self { patience, ..self }
    }
}

/// What a start with a key found.
///
/// ```
/// use tower_inflight::{RunQueue, StartRun};
///
/// let queue = RunQueue::builder().build()?;
/// let tick = queue.start_once("nightly", StartRun::new("acme", "cron"))?;
/// println!("{} is {}", tick.handle().id(), tick.handle().status());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub enum Once {
    /// Nobody: here is the new run.
    New(Run),
    /// The run that carries the key.
    There(RunHandle),
}

impl Once {
    /// Of either.
    #[must_use]
    pub fn handle(&self) -> &RunHandle {
        match self {
            Self::New(run) => run,
            Self::There(handle) => handle,
        }
    }
}
