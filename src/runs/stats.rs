//! How many runs are doing what.

use std::sync::Arc;

use serde::Serialize;

use super::hub::Engine;

/// Runs by what they are doing, at one moment. Made by [`RunQueue::stats`](crate::RunQueue::stats).
///
/// ```
/// use tower_inflight::{RunQueue, StartRun};
///
/// let queue = RunQueue::builder().max_concurrent_runs(1).build()?;
/// let _running = queue.start(StartRun::new("acme", "ann"))?;
/// let _waiting = queue.start(StartRun::new("acme", "ann"))?;
/// let json = serde_json::to_value(queue.stats())?;
/// assert_eq!((&json["running"], &json["queued"], &json["lent"]), (&1.into(), &1.into(), &0.into()));
/// assert_eq!(json["users"][0]["queued"], 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct RunStats {
    /// Runs that hold a slot.
    pub running: u32,
    /// Runs that wait for one, or whose budget is being asked.
    pub queued: u32,
    /// Runs that have lent theirs.
    pub lent: u32,
    /// Most that may hold a slot: `max_concurrent_runs`.
    pub max_concurrent_runs: u32,
    /// Most that may be queued or lent: `max_queue_depth`.
    pub max_queue_depth: u32,
    /// The same by user, for those who have any; in no particular order.
    pub users: Vec<UserRuns>,
}

/// The runs of one user. A part of [`RunStats`], where its example is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct UserRuns {
    /// Who pays.
    pub tenant: Arc<str>,
    /// Whose runs they are within the tenant.
    pub user: Arc<str>,
    /// Runs that hold a slot.
    pub running: u32,
    /// Runs that wait for one.
    pub queued: u32,
    /// Runs that have lent theirs.
    pub lent: u32,
}

impl RunStats {
    pub(super) fn of(engine: &Engine) -> Self {
        let counts = engine.counts();
        let users = engine.by_user().map(|(key, counts)| UserRuns {
            tenant: key.tenant.clone(),
            user: key.user.clone(),
            running: counts.running,
            queued: counts.queued,
            lent: counts.lent,
        });
        Self {
            running: counts.running,
            queued: counts.queued,
            lent: counts.lent,
            max_concurrent_runs: engine.limits().concurrent,
            max_queue_depth: engine.limits().depth,
            users: users.collect(),
        }
    }
}
