//! Whoever wants to hear of changes, and controllers of the user's own making.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::key::LaneKey;
use crate::engine::change::{Cause, ChangeKind};
use crate::engine::controller::Controller;
use crate::engine::steering::{LimitBounds, Steering};

/// A change of what a lane or a pool lets through: see [`LimiterBuilder::on_change`](crate::LimiterBuilder::on_change).
///
/// ```
/// use tower_inflight::{ChangeKind, LimitChange};
///
/// fn alert(change: &LimitChange<'_>) {
///     if let ChangeKind::Limit { from, to } = change.kind {
///         println!("{}: {from} -> {to} because of {}", change.subject, change.cause);
///     }
/// }
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct LimitChange<'a> {
    /// Whose.
    pub subject: Subject<'a>,
    /// What changed.
    pub kind: ChangeKind,
    /// What it was due to.
    pub cause: Cause,
}

/// A lane, or the pool of all lanes of one endpoint and kind.
///
/// ```
/// use tower_inflight::{LaneKey, Subject};
///
/// let pool = LaneKey::without_model("https://gw.example/v1");
/// assert_eq!(Subject::Pool(&pool).to_string(), "pool https://gw.example/v1|*");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject<'a> {
    /// This lane.
    Lane(&'a LaneKey),
    /// All lanes of this endpoint and kind together; the key has no model.
    Pool(&'a LaneKey),
}

impl fmt::Display for Subject<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lane(key) => key.fmt(f),
            Self::Pool(key) => write!(f, "pool {key}"),
        }
    }
}

type Listener = dyn Fn(&LimitChange<'_>) + Send + Sync;
type Make = dyn Fn(&LaneKey) -> Option<Box<dyn Controller>> + Send + Sync;

/// What the user's code is asked and told.
#[derive(Clone, Default)]
pub(super) struct Hooks {
    pub(super) on_change: Option<Arc<Listener>>,
    pub(super) lane_controller: Option<Arc<Make>>,
    pub(super) pool_controller: Option<Arc<Make>>,
}

/// Controllers that the user's code made for a new lane and its pool, until they are taken. What is left over is dropped
/// where it was made: outside of every lock.
#[derive(Debug, Default)]
pub(super) struct OwnControllers {
    pub(super) lane: Option<Steering>,
    pub(super) pool: Option<Steering>,
}

/// Of controllers that say nothing of theirs.
const ANY: LimitBounds = LimitBounds { min: 1, max: 1_000_000 };

impl Hooks {
    pub(super) fn make_controllers(&self) -> bool {
        self.lane_controller.is_some() || self.pool_controller.is_some()
    }

    pub(super) fn steer_lane(&self, lane: &LaneKey) -> Option<Steering> {
        make(self.lane_controller.as_deref(), lane)
    }

    pub(super) fn steer_pool(&self, pool: &LaneKey) -> Option<Steering> {
        make(self.pool_controller.as_deref(), pool)
    }

    /// A panic in the listener ends here: the thread may be dropping a permit.
    pub(super) fn tell(&self, change: &LimitChange<'_>) {
        if let Some(listener) = &self.on_change {
            let _ = catch_unwind(AssertUnwindSafe(|| listener(change)));
        }
    }
}

fn make(make: Option<&Make>, key: &LaneKey) -> Option<Steering> {
    make.and_then(|make| make(key)).map(|controller| Steering::new(controller, ANY))
}

impl fmt::Debug for Hooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hooks").finish_non_exhaustive()
    }
}
