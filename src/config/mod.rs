//! What users may set, what of it is refused, and what the engine gets to read.

mod aging;
mod breaker;
mod check;
pub(crate) mod duration;
mod error;
mod lane;
mod limit;
mod pattern;
mod policy;
mod pool;
#[cfg(test)]
mod proptests;
mod quota;
mod retry_budget;
mod runs;
mod shares;
mod switch;
#[cfg(test)]
mod tests;

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::engine::forecast::PredictDeadlines;

pub use self::aging::Aging;
pub use self::breaker::BreakerConfig;
pub use self::error::ConfigError;
pub use self::lane::LaneOverride;
pub use self::limit::Limit;
pub(crate) use self::policy::{Charging, Guards, Policy};
pub use self::pool::PoolLimit;
pub use self::quota::Quota;
pub use self::retry_budget::{GrpcThrottling, RetryBudget, RetryRatio, SreThrottling};
pub use self::runs::{BudgetChecks, RunConfig};
pub use self::shares::Shares;

/// Every limit of a [`Limiter`](crate::Limiter): for each lane, for the lanes of a provider together, and in all.
///
/// The default is off: [`max_inflight`](Self::max_inflight) is 0 and every call passes. Start from it and set what you
/// need, or read the whole from a file. Each key may be left out, an unknown one is an error that names the known ones.
///
/// Durations in files are text with units: `"300s"`, `"1m 30s"`, `"250ms"`. A bare number is refused, since nothing
/// says whether it means seconds or milliseconds.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tower_inflight::{Aging, LimitConfig};
///
/// let config: LimitConfig = toml::from_str(
///     r#"
///     max_inflight = 6
///     interactive_reserve = 2
///     queue_timeout = "2m"
///     aging_step = "off"
///     idle_timeout = "90s"
///
///     [[overrides]]
///     lane = "https://gw.example/v1|acme/smart*"
///     max_inflight = 2
///
///     [[pools]]
///     endpoint = "https://gw.example/*"
///     max_inflight = 12
///     "#,
/// )?;
///
/// assert_eq!(config.queue_timeout, Duration::from_secs(120));
/// assert_eq!(config.aging_step, Aging::Off);
/// assert_eq!(config.max_queue, 1_000); // left out, so the default
/// # Ok::<(), toml::de::Error>(())
/// ```
///
/// In code:
///
/// ```
/// use tower_inflight::{LaneOverride, LimitConfig, Limiter};
///
/// let mut config = LimitConfig::default();
/// config.max_inflight = 6;
/// config.overrides = vec![LaneOverride::new("*|acme/smart").max_inflight(2)];
///
/// let limiter = Limiter::builder().config(config).build()?;
/// # Ok::<(), tower_inflight::ConfigError>(())
/// ```
///
/// # Errors
///
/// Values that could never admit a call, or that make no sense together, are refused with a [`ConfigError`] when the
/// limiter is built or reconfigured. No count may be above 1,000,000 and no duration longer than 30 days: such a value
/// is a slip of the pen.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct LimitConfig {
    /// Most calls in flight at once in each lane of this process. Default 0: no limit.
    ///
    /// With no limit here, in [`overrides`](Self::overrides) or in [`pools`](Self::pools), a fixed
    /// [`limit`](Self::limit), and without any [`quota`](Self::quota), [`breaker`](Self::breaker) or
    /// [`retry_budget`](Self::retry_budget), the limiter is off.
    pub max_inflight: u32,

    /// What decides how many calls may be in flight in each lane: a fixed number, which is the default, or a controller
    /// that finds and follows the capacity of the upstream. [`max_inflight`](Self::max_inflight) bounds what it finds.
    #[serde(skip_serializing_if = "Limit::is_fixed")]
    pub limit: Limit,

    /// What each lane may use per minute, in requests and tokens. Default: no such budget.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quota: Option<Quota>,

    /// How many of a lane's slots only interactive calls may take. Default 1.
    ///
    /// Refused above [`max_inflight`](Self::max_inflight), unless that is 0. In use it is at most one less than the
    /// limit, so that the other classes always have a slot: with a limit of 1, nothing is reserved.
    pub interactive_reserve: u32,

    /// What part of its limit each class may count on: see [`Shares`] for the exact rule. Default `None`, in files `"off"`:
    /// slots go by class and age alone.
    #[serde(with = "switch", skip_serializing_if = "Option::is_none")]
    pub shares: Option<Shares>,

    /// Whether a call that would have to wait is refused at once when its deadline cannot be kept. Default: it is.
    ///
    /// On by default, because it concerns only calls that carry a deadline, refuses nothing before enough is known (30 calls
    /// that ended well in the last five minutes, since the first call with a deadline had to wait), and because a call that
    /// is sent too late to be of use takes a slot from one that is not.
    ///
    /// A call is refused when the predicted wait and the predicted service end after its deadline:
    ///
    /// - the wait is the number of those ahead of it over the slots per second that become free for its class: its lane's
    ///   slots over the mean time for which the last 256 calls held theirs, without what the classes above it take by their
    ///   present arrivals. Reserve, shares, a pause, a breaker that is not closed, the cap of the pool and missing tokens count.
    /// - the service is the median time for which those of these calls that ended well held their slots.
    ///
    /// A call has the benefit of half of the doubt about its wait. Under a steady load with deadlines that differ, at most one
    /// in twenty goes otherwise than foreseen. More do where all calls have the same deadline, since then each of them is a close
    /// case, and in a class that gets only the little which others leave.
    ///
    /// A call that finds a free slot is sent, whatever its deadline, as long as that has not passed.
    pub predict_deadlines: PredictDeadlines,

    /// Longest wait for a slot. Default 300 s. Zero is refused: for no waiting, set [`max_queue`](Self::max_queue) to 0.
    #[serde(with = "duration::text")]
    pub queue_timeout: Duration,

    /// Most waiters in a lane; each keeps its request in memory. Default 1,000. With 0 nobody waits: a slot now or an
    /// error now.
    pub max_queue: u32,

    /// Most waiters of one class in a lane. Default: only the other bounds apply. Zero is refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_queue_per_class: Option<u32>,

    /// Most waiters of one tenant in a lane. Default: only the other bounds apply. Zero is refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_queue_per_tenant: Option<u32>,

    /// Most waiters in all lanes together. Default 10,000. May be below [`max_queue`](Self::max_queue), and then binds
    /// first; with 0 nobody waits anywhere.
    pub max_queue_total: u32,

    /// How long a waiter waits until it rises to the next class, counted from its first arrival. Default 60 s.
    pub aging_step: Aging,

    /// Most lanes kept: idle ones make room for new ones, busy ones stay. Default 1,024. Zero is refused.
    pub max_lanes: u32,

    /// The pause after a refusal in which the upstream says "0" or names a moment in the past. It doubles while such
    /// refusals go on. Default 1 s. Refused when zero or above [`max_pause`](Self::max_pause).
    #[serde(with = "duration::text")]
    pub min_pause: Duration,

    /// Longest pause, whatever the upstream asks for. Default 600 s.
    #[serde(with = "duration::text")]
    pub max_pause: Duration,

    /// Longest silence from the grant of a slot to the first byte of the answer's body; past it the call ends as
    /// stalled. Waiting for the slot does not count. Default `None`, in files `"off"`: no such guard. Zero is refused.
    #[serde(with = "duration::or_off", skip_serializing_if = "Option::is_none")]
    pub first_byte_timeout: Option<Duration>,

    /// Longest silence of the upstream within an answer's body; past it the call ends as stalled. A caller that reads
    /// slowly does not count. Default `None`, in files `"off"`: no such guard. Zero is refused.
    #[serde(with = "duration::or_off", skip_serializing_if = "Option::is_none")]
    pub idle_timeout: Option<Duration>,

    /// Stops calls to a lane whose calls fail, or begin late. Default `None`, in files `"off"`: they go on.
    #[serde(with = "switch", skip_serializing_if = "Option::is_none")]
    pub breaker: Option<BreakerConfig>,

    /// Holds retries back when there are many for the calls that are made. Default `None`, in files `"off"`: every retry
    /// passes.
    #[serde(with = "switch", skip_serializing_if = "Option::is_none")]
    pub retry_budget: Option<RetryBudget>,

    /// Other values for some lanes. Every matching entry applies, in order: the later wins, field by field. Default
    /// none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub overrides: Vec<LaneOverride>,

    /// Caps over all lanes of a provider and kind. Of several that match, only the last applies. Default none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pools: Vec<PoolLimit>,
}

impl Default for LimitConfig {
    fn default() -> Self {
        Self {
            max_inflight: 0,
            limit: Limit::Fixed,
            quota: None,
            interactive_reserve: 1,
            shares: None,
            predict_deadlines: PredictDeadlines::On,
            queue_timeout: Duration::from_secs(300),
            max_queue: 1_000,
            max_queue_per_class: None,
            max_queue_per_tenant: None,
            max_queue_total: 10_000,
            aging_step: Aging::default(),
            max_lanes: 1_024,
            min_pause: Duration::from_secs(1),
            max_pause: Duration::from_secs(600),
            first_byte_timeout: None,
            idle_timeout: None,
            breaker: None,
            retry_budget: None,
            overrides: Vec::new(),
            pools: Vec::new(),
        }
    }
}
