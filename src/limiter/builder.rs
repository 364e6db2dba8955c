//! Builds a limiter.

use std::sync::Arc;
use std::time::Duration;

use super::Limiter;
use super::key::LaneKey;
use super::observer::{Hooks, LimitChange};
use crate::config::{
    Aging, BreakerConfig, ConfigError, LaneOverride, Limit, LimitConfig, Policy, PoolLimit, Quota, RetryBudget, Shares,
};
use crate::engine::controller::{Controller, KneeConfig};
use crate::engine::forecast::PredictDeadlines;

/// Builds a [`Limiter`]. Every setting is a field of [`LimitConfig`], where its meaning, unit and default are told.
///
/// ```
/// use std::time::Duration;
/// use tower_inflight::{LaneOverride, Limiter, PoolLimit};
///
/// let limiter = Limiter::builder()
///     .max_inflight(6)
///     .queue_timeout(Duration::from_secs(120))
///     .lane(LaneOverride::new("*|acme/huge").max_inflight(2))
///     .pool(PoolLimit::new("https://gw.example/*", 12))
///     .build()?;
///
/// let error = Limiter::builder().max_inflight(2).interactive_reserve(5).build().unwrap_err();
/// assert_eq!(error.key(), "interactive_reserve");
/// # Ok::<(), tower_inflight::ConfigError>(())
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct LimiterBuilder {
    config: LimitConfig,
    prefix: &'static str,
    hooks: Hooks,
}

impl Default for LimiterBuilder {
    fn default() -> Self {
        Self { config: LimitConfig::default(), prefix: "llm", hooks: Hooks::default() }
    }
}

impl LimiterBuilder {
    /// Replaces every setting made so far.
    pub fn config(self, config: LimitConfig) -> Self {
        Self { config, ..self }
    }

    /// Most calls in flight per lane; 0 = off.
    pub fn max_inflight(mut self, slots: u32) -> Self {
        self.config.max_inflight = slots;
        self
    }

    /// Every lane finds its limit by itself: the same as [`Limit::Adaptive`] with its defaults.
    ///
    /// ```
    /// use tower_inflight::{LaneKey, Limiter, PoolLimit};
    ///
    /// // Nobody knows how many calls this gateway takes. It is never sent more than 64.
    /// let limiter = Limiter::builder().adaptive().max_inflight(64).build()?;
    /// let _lane = limiter.lane(&LaneKey::new("https://gw.example/v1", "acme/smart"));
    /// assert_eq!(limiter.snapshot().lanes[0].limit, 16); // where it begins
    /// # Ok::<(), tower_inflight::ConfigError>(())
    /// ```
    pub fn adaptive(self) -> Self {
        self.limit(Limit::Adaptive(KneeConfig::default()))
    }

    /// What decides the limit of each lane.
    pub fn limit(mut self, limit: Limit) -> Self {
        self.config.limit = limit;
        self
    }

    /// What each lane may use per minute.
    pub fn quota(mut self, quota: Quota) -> Self {
        self.config.quota = Some(quota);
        self
    }

    /// Keeps calls from lanes whose upstream is broken.
    pub fn breaker(mut self, breaker: BreakerConfig) -> Self {
        self.config.breaker = Some(breaker);
        self
    }

    /// Holds the retries of each lane back.
    pub fn retry_budget(mut self, budget: RetryBudget) -> Self {
        self.config.retry_budget = Some(budget);
        self
    }

    /// Controllers of your own making: asked for each lane when it is first used; `None` leaves the lane to the
    /// configuration. Callers who meet at a new lane may each ask, since no lock is held meanwhile: one controller is taken,
    /// the others are dropped before they hear of anything. What it asks for is clamped to 1 and
    /// [`max_inflight`](Self::max_inflight), and a panic in it leaves the limit where it was; both are told to
    /// [`on_change`](Self::on_change).
    ///
    /// ```
    /// use std::num::NonZeroU32;
    /// use tower_inflight::Limiter;
    /// use tower_inflight::controller::Fixed;
    ///
    /// let limiter = Limiter::builder()
    ///     .adaptive()
    ///     .lane_controller(|lane| match lane.model() {
    ///         Some("acme/metered") => Some(Box::new(Fixed::new(NonZeroU32::MIN))),
    ///         _ => None,
    ///     })
    ///     .build()?;
    /// # let _ = limiter;
    /// # Ok::<(), tower_inflight::ConfigError>(())
    /// ```
    pub fn lane_controller(
        mut self,
        make: impl Fn(&LaneKey) -> Option<Box<dyn Controller>> + Send + Sync + 'static,
    ) -> Self {
        self.hooks.lane_controller = Some(Arc::new(make));
        self
    }

    /// The same for pools: the lanes of one endpoint and kind together, asked when the first of them is used. The key has no
    /// model.
    pub fn pool_controller(
        mut self,
        make: impl Fn(&LaneKey) -> Option<Box<dyn Controller>> + Send + Sync + 'static,
    ) -> Self {
        self.hooks.pool_controller = Some(Arc::new(make));
        self
    }

    /// Hears of every change of a limit, of every pause, and of controllers that ask for nonsense.
    ///
    /// Called outside of every lock, by whichever thread caused the change: it may use the limiter, and should be quick. A
    /// panic in it goes no further.
    ///
    /// ```
    /// let limiter = tower_inflight::Limiter::builder()
    ///     .adaptive()
    ///     .on_change(|change| eprintln!("{}: {} ({})", change.subject, change.kind, change.cause))
    ///     .build()?;
    /// # let _ = limiter;
    /// # Ok::<(), tower_inflight::ConfigError>(())
    /// ```
    pub fn on_change(mut self, listener: impl Fn(&LimitChange<'_>) + Send + Sync + 'static) -> Self {
        self.hooks.on_change = Some(Arc::new(listener));
        self
    }

    /// Slots that only interactive calls may take.
    pub fn interactive_reserve(mut self, slots: u32) -> Self {
        self.config.interactive_reserve = slots;
        self
    }

    /// What part of its limit each class may count on.
    pub fn shares(mut self, shares: Shares) -> Self {
        self.config.shares = Some(shares);
        self
    }

    /// Whether calls are refused whose deadlines cannot be kept.
    pub fn predict_deadlines(mut self, predict: PredictDeadlines) -> Self {
        self.config.predict_deadlines = predict;
        self
    }

    /// Longest wait for a slot.
    pub fn queue_timeout(mut self, timeout: Duration) -> Self {
        self.config.queue_timeout = timeout;
        self
    }

    /// Most waiters in a lane; 0 = nobody waits.
    pub fn max_queue(mut self, waiters: u32) -> Self {
        self.config.max_queue = waiters;
        self
    }

    /// Most waiters in all lanes together.
    pub fn max_queue_total(mut self, waiters: u32) -> Self {
        self.config.max_queue_total = waiters;
        self
    }

    /// How long a waiter waits until it rises a class.
    pub fn aging_step(mut self, step: Aging) -> Self {
        self.config.aging_step = step;
        self
    }

    /// Most lanes kept.
    pub fn max_lanes(mut self, lanes: u32) -> Self {
        self.config.max_lanes = lanes;
        self
    }

    /// Longest silence from the grant to the first byte of the body.
    pub fn first_byte_timeout(mut self, timeout: Duration) -> Self {
        self.config.first_byte_timeout = Some(timeout);
        self
    }

    /// Longest silence within a body.
    pub fn idle_timeout(mut self, timeout: Duration) -> Self {
        self.config.idle_timeout = Some(timeout);
        self
    }

    /// Other values for the lanes that match.
    pub fn lane(mut self, lane: LaneOverride) -> Self {
        self.config.overrides.push(lane);
        self
    }

    /// A cap over all lanes of a provider and kind.
    pub fn pool(mut self, pool: PoolLimit) -> Self {
        self.config.pools.push(pool);
        self
    }

    /// What metric names start with. Default `llm`, as in `llm_inflight`. Give limiters of one process different
    /// prefixes: they would set the same gauges.
    pub fn metrics_prefix(self, prefix: &'static str) -> Self {
        Self { prefix, ..self }
    }

    /// # Errors
    /// A setting that could never admit a call, or that makes no sense: named, with its value and what is allowed.
    pub fn build(self) -> Result<Limiter, ConfigError> {
        Ok(Limiter::new(Policy::compile(self.config)?, self.prefix, self.hooks))
    }
}
