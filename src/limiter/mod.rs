//! The handle that everybody shares.

mod acquire;
mod builder;
mod call;
pub(crate) mod clock;
pub(crate) mod key;
mod lane;
#[cfg(all(test, inflight_loom))]
mod loom_models;
mod observer;
mod of_run;
mod permit;
mod pool;
mod refused;
mod registry;
mod scope;
mod shared;
mod timer;
pub(crate) mod tokens;

use std::fmt;
use std::sync::{Arc, RwLock};
use std::time::Duration;

pub use self::acquire::Acquire;
pub use self::builder::LimiterBuilder;
pub use self::call::{Admission, Call, CallEvent};
use self::key::{LaneKey, LaneRef};
pub use self::lane::Lane;
use self::lane::LaneInner;
use self::observer::{Hooks, OwnControllers};
pub use self::observer::{LimitChange, Subject};
pub use self::permit::{Admitted, Permit};
use self::registry::Registry;
pub use self::scope::{InCurrentScope, Scope, Scoped};
use self::shared::Shared;
use crate::config::{ConfigError, LimitConfig, Policy};
use crate::engine::priority::Priority;
use crate::error::Rejected;
use crate::snapshot::Snapshot;
use crate::sync::atomic::{AtomicBool, Ordering};

/// Decides which call goes next, for every client of the process that shares it.
///
/// A cheap handle: clones are the same limiter. Make one per process with [`Limiter::builder`], and give a clone to each
/// [`InflightLimitLayer`](crate::InflightLimitLayer) or adapter.
///
/// ```
/// use std::time::Duration;
/// use tower_inflight::{Call, LaneKey, Limiter, Priority};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let limiter = Limiter::builder()
///     .max_inflight(6)
///     .interactive_reserve(1)
///     .queue_timeout(Duration::from_secs(300))
///     .build()?;
///
/// let permit = limiter.acquire(&LaneKey::new("local", "gemma"), Call::new(Priority::Bulk)).await?;
/// println!("{}", serde_json::to_string(&limiter.snapshot())?);
/// drop(permit);
/// # Ok(()) }
/// ```
///
/// # Runtime
/// Queue timeouts, deadlines and pauses need a tokio runtime with its time driver enabled. Outside of one, acquiring
/// works, but a wait ends only with a slot.
#[derive(Clone)]
pub struct Limiter {
    core: Arc<Core>,
}

struct Core {
    /// Read on every call, so that a limiter that is off costs one branch.
    is_enabled: AtomicBool,
    policy: RwLock<Arc<Policy>>,
    registry: RwLock<Registry>,
    shared: Arc<Shared>,
}

impl Limiter {
    /// Starts with the defaults: off until [`max_inflight`](LimiterBuilder::max_inflight) is set.
    pub fn builder() -> LimiterBuilder {
        LimiterBuilder::default()
    }

    fn new(policy: Policy, prefix: &'static str, hooks: Hooks) -> Self {
        Self {
            core: Arc::new(Core {
                is_enabled: AtomicBool::new(policy.is_enabled() || hooks.make_controllers()),
                shared: Arc::new(Shared::new(policy.max_queue_total(), hooks)),
                policy: RwLock::new(Arc::new(policy)),
                registry: RwLock::new(Registry::new(prefix)),
            }),
        }
    }

    /// Waits for a slot of `lane`, in line by class and arrival, up to `queue_timeout` or the call's deadline.
    ///
    /// When the limiter is off, the permit comes at once and counts nowhere.
    ///
    /// # Errors
    /// A [`Rejected`] that says why, where, and which setting to look at.
    ///
    /// # Cancel safety
    /// See [`Acquire`].
    pub fn acquire(&self, lane: &LaneKey, call: impl Into<Call>) -> Acquire {
        self.acquire_ref(lane.as_ref(), call.into())
    }

    #[inline]
    pub(crate) fn acquire_ref(&self, lane: LaneRef<'_>, call: Call) -> Acquire {
        match self.find(lane) {
            Some(lane) => Acquire::new(lane, call),
            None => Acquire::off(),
        }
    }

    /// A slot now or an error now.
    ///
    /// # Errors
    /// [`RejectKind::Busy`](crate::RejectKind::Busy) when all slots are taken or others are first in line.
    pub fn try_acquire(&self, lane: &LaneKey, call: impl Into<Call>) -> Result<Permit, Rejected> {
        match self.find(lane.as_ref()) {
            Some(lane) => Lane { inner: lane }.try_acquire(call),
            None => Ok(Permit::off()),
        }
    }

    /// Whether a call of this class would not be sent at once. A moment later that may be different.
    pub(crate) fn would_wait(&self, lane: &LaneKey, class: Option<Priority>) -> bool {
        let Some(lane) = self.find(lane.as_ref()) else { return false };
        lane.pool.read(|engine| engine.would_wait(lane.id, class.unwrap_or_default(), clock::now()))
    }

    /// Looks a lane up, or makes it. `None` when the limiter is off.
    #[must_use]
    pub fn lane(&self, key: &LaneKey) -> Option<Lane> {
        self.find(key.as_ref()).map(|inner| Lane { inner })
    }

    /// False when every call passes: no limit is set anywhere.
    #[must_use]
    #[inline]
    pub fn is_enabled(&self) -> bool {
        self.core.is_enabled.load(Ordering::Relaxed)
    }

    /// What every lane is doing now, from memory alone.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        if !self.is_enabled() {
            return Snapshot::off(clock::wall());
        }
        let (lanes, pools) = {
            let registry = self.read_registry();
            (registry.lanes(), registry.pools())
        };
        let now = clock::now();
        let lanes = lanes.iter().map(|lane| (&*lane.key, lane.view(now), lane.reported.totals()));
        let pools = pools.iter().map(|pool| (&pool.key, pool.view(now)));
        Snapshot::of(clock::wall(), now, lanes, pools)
    }

    /// Puts another configuration in force. Held slots stay held and waiters keep their place and their bounds; a raised
    /// limit grants at once, a lowered one drains. A controller keeps what it has learnt where its own settings are the
    /// same as before; else another one starts from its `initial_limit`.
    ///
    /// # Errors
    /// The configuration is refused as a whole, and the old one stays.
    pub fn reconfigure(&self, config: LimitConfig) -> Result<(), ConfigError> {
        let policy = Policy::compile(config)?;
        let (policy, lanes, pools) = {
            let mut current = self.core.policy.write().unwrap_or_else(std::sync::PoisonError::into_inner);
            let policy = Arc::new(policy.after(&current));
            *current = policy.clone();
            let shared = &self.core.shared;
            shared.set_max_waiting(policy.max_queue_total());
            let is_enabled = policy.is_enabled() || shared.hooks.make_controllers();
            self.core.is_enabled.store(is_enabled, Ordering::Relaxed);
            let registry = self.read_registry();
            (policy, registry.lanes(), registry.pools())
        };
        // Without a lock: what changes is told on the way. Where another reload has been, it may be the newer one.
        for lane in &lanes {
            lane.reconfigure(&policy);
        }
        for pool in pools {
            pool.reconfigure(&policy);
        }
        Ok(())
    }

    /// The configuration in force.
    #[must_use]
    pub fn config(&self) -> LimitConfig {
        self.policy().config().clone()
    }

    /// Refuses everybody who waits or comes from now on with [`RejectKind::Closed`](crate::RejectKind::Closed). Calls in
    /// flight go on to their end. Closing twice is the same as once.
    pub fn close(&self) {
        let pools = {
            // Under the registry's lock: a pool made later sees that it is closed.
            let registry = self.read_registry();
            self.core.shared.close();
            registry.pools()
        };
        for pool in pools {
            pool.close();
        }
    }

    /// Closes, and waits until nothing is in flight.
    ///
    /// # Errors
    /// [`StillInFlight`] with the number of calls that were not over within `timeout`. They go on.
    ///
    /// # Cancel safety
    /// Dropping it stops the waiting; the limiter stays closed.
    pub async fn drain(&self, timeout: Duration) -> Result<(), StillInFlight> {
        self.close();
        let drained = self.drained();
        tokio::time::timeout(timeout, drained).await.map_err(|_| StillInFlight { calls: self.in_flight() })
    }

    /// Nothing is in flight. Only a closed limiter tells when.
    async fn drained(&self) {
        loop {
            // Hears from here on: a release between the look and the wait is not missed.
            let notified = self.core.shared.drained.notified();
            if self.in_flight() == 0 {
                return;
            }
            notified.await;
        }
    }

    fn in_flight(&self) -> usize {
        let pools = self.read_registry().pools();
        pools.iter().map(|pool| pool.in_flight()).sum()
    }

    pub(crate) fn find(&self, key: LaneRef<'_>) -> Option<Arc<LaneInner>> {
        if !self.is_enabled() {
            return None;
        }
        let known = self.read_registry().find(&key);
        Some(known.unwrap_or_else(|| self.make(key)))
    }

    #[cold]
    fn make(&self, key: LaneRef<'_>) -> Arc<LaneInner> {
        let lane_key = key.to_key();
        let pool_key = lane_key.pool();
        // Held until the lane is made: a pool that is known stays.
        let known = self.read_registry().pool(&pool_key);
        // The user's code: it runs while no lock is held.
        let hooks = &self.core.shared.hooks;
        let of_pool = if known.is_none() { hooks.steer_pool(&pool_key) } else { None };
        let mut own = OwnControllers { lane: hooks.steer_lane(&lane_key), pool: of_pool };
        let lane = {
            // Lock order: policy, registry, pool. The policy's lock is held so that a reload cannot miss the new lane.
            let policy = self.core.policy.read().unwrap_or_else(std::sync::PoisonError::into_inner);
            let mut registry = self.core.registry.write().unwrap_or_else(std::sync::PoisonError::into_inner);
            registry.make(&key, &mut own, &policy, &self.core.shared)
        };
        lane.meters.publish_limit();
        lane.pool.meters.publish_limit();
        lane
    }

    fn policy(&self) -> Arc<Policy> {
        self.core.policy.read().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
    }

    fn read_registry(&self) -> std::sync::RwLockReadGuard<'_, Registry> {
        self.core.registry.read().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl fmt::Debug for Limiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limiter").field("is_enabled", &self.is_enabled()).finish_non_exhaustive()
    }
}

/// [`Limiter::drain`] ended before the calls did.
///
/// ```
/// # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::time::Duration;
/// use tower_inflight::{LaneKey, Limiter, Priority};
///
/// let limiter = Limiter::builder().max_inflight(2).build()?;
/// let permit = limiter.acquire(&LaneKey::new("local", "gemma"), Priority::Default).await?;
/// let error = limiter.drain(Duration::from_secs(30)).await.unwrap_err();
/// assert_eq!(error.to_string(), "1 calls are still in flight");
/// drop(permit);
/// assert!(limiter.drain(Duration::from_secs(30)).await.is_ok());
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StillInFlight {
    calls: usize,
}

impl StillInFlight {
    /// How many.
    #[must_use]
    pub fn calls(&self) -> usize {
        self.calls
    }
}

impl fmt::Display for StillInFlight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} calls are still in flight", self.calls)
    }
}

impl std::error::Error for StillInFlight {}
