use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::duration;
use super::switch::Named;
use crate::engine::breaker::{BreakerPolicy, SlowRule};

/// When a lane's breaker opens, for how long, and what closes it again.
///
/// Closed, it lets every call pass and counts how they end. Open, it refuses all of them with
/// [`RejectKind::BreakerOpen`](crate::RejectKind::BreakerOpen). Half-open, it sends a few real calls: if all of them
/// succeed it closes, and with the first that does not it opens again.
///
/// What counts is a call that ended: a success once its body has ended well, and a failure on a 5xx, a transport error, a
/// body that broke off or a stall. Everything else says nothing about whether the upstream works, and counts as no call:
/// 4xx, an empty account, cancelled calls, refusals of this crate, and 429 and 529, which the limit and the pause answer.
///
/// In files a table, `"on"` for one with the defaults, or `"off"`:
///
/// ```
/// use std::time::Duration;
/// use tower_inflight::{BreakerConfig, LaneOverride, LimitConfig};
///
/// let config: LimitConfig = toml::from_str(
///     r#"
///     [breaker]
///     failure_rate = 0.25
///     slow_after = "5s"
///
///     [[overrides]]
///     lane = "*|local/*"
///     breaker = "off"
///     "#,
/// )?;
///
/// let breaker = BreakerConfig {
///     failure_rate: 0.25,
///     slow_after: Some(Duration::from_secs(5)),
///     ..BreakerConfig::default()
/// };
/// assert_eq!(config.breaker, Some(breaker));
/// assert_eq!(config.overrides, [LaneOverride::new("*|local/*").breaker(None)]);
/// # Ok::<(), toml::de::Error>(())
/// ```
///
/// # Errors
///
/// Refused are shares that are not above 0 and at most 1, counts of 0, more than 100 probes, a window of less than a
/// second, times of zero or above 30 days, and an [`open_for`](Self::open_for) above [`max_open_for`](Self::max_open_for).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BreakerConfig {
    /// Opens when this share of the calls within the window failed. Default 0.5: half of the work is lost, and what the
    /// other half gains is no more than what retries add.
    pub failure_rate: f64,

    /// A call is slow when its first byte comes later than this after it was sent, or when it stalls at any time. For
    /// an answer in one piece that is the whole answer. Default `None`, in files `"off"`: slow calls do not count, since
    /// what is slow differs from model to model.
    #[serde(with = "duration::or_off", skip_serializing_if = "Option::is_none")]
    pub slow_after: Option<Duration>,

    /// Opens when this share of the calls within the window was slow. Default 0.5. Says nothing without
    /// [`slow_after`](Self::slow_after).
    pub slow_rate: f64,

    /// Fewer calls than this within the window open nothing. Default 10: with fewer, two or three unlucky ones are a
    /// high share.
    pub min_calls: u32,

    /// How far back calls count; a tenth of it leaves at a time. Default 60 s: calls take tens of seconds, and a shorter
    /// window would see the end of few.
    #[serde(with = "duration::text")]
    pub window: Duration,

    /// How long it stays open at first. Doubles each time that the calls sent after it fail again, and is jittered by up
    /// to a tenth upwards, so that several processes do not come back at once. Default 30 s: what is restarted or fails
    /// over is back in that time, and hardly earlier.
    #[serde(with = "duration::text")]
    pub open_for: Duration,

    /// How long it stays open at most, jitter aside. Default 300 s: three calls in five minutes are no load for an
    /// upstream that is down for long.
    #[serde(with = "duration::text")]
    pub max_open_for: Duration,

    /// Half-open, no more than this many calls are sent, and all of them must succeed. Default 3: one may succeed by
    /// chance.
    pub probes: u32,

    /// Half-open, a call that is not over after this long makes room for another one. It goes on, and counts when it
    /// ends. Default 60 s: longer than most answers take.
    #[serde(with = "duration::text")]
    pub probe_timeout: Duration,
}

impl Default for BreakerConfig {
    fn default() -> Self {
        Self {
            failure_rate: 0.5,
            slow_after: None,
            slow_rate: 0.5,
            min_calls: 10,
            window: Duration::from_secs(60),
            open_for: Duration::from_secs(30),
            max_open_for: Duration::from_secs(300),
            probes: 3,
            probe_timeout: Duration::from_secs(60),
        }
    }
}

impl BreakerConfig {
    pub(super) fn policy(&self) -> BreakerPolicy {
        BreakerPolicy {
            failure_rate: self.failure_rate,
            slow: self.slow_after.map(|after| SlowRule { after, rate: self.slow_rate }),
            min_calls: self.min_calls,
            window: self.window,
            open_for: self.open_for,
            max_open_for: self.max_open_for,
            probes: self.probes,
            probe_timeout: self.probe_timeout,
        }
    }
}

impl Named for BreakerConfig {
    const NAMES: &'static [&'static str] = &["off", "on"];

    fn with_defaults(name: &str) -> Option<Self> {
        (name == "on").then(Self::default)
    }
}
