use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::duration;
use super::switch::Named;
use crate::engine::retry_budget::RetryPolicy;

/// How many retries a lane lets pass.
///
/// Retries are made outside of this crate; each attempt comes through the limiter, and the [`Call`](crate::Call) counts
/// them. First attempts always pass. A retry for which nothing is left is refused with
/// [`RejectKind::RetryBudgetExhausted`](crate::RejectKind::RetryBudgetExhausted). Refusals of this crate feed no budget.
///
/// In files a table under the name of a policy, the name alone for its defaults, or `"off"`:
///
/// ```
/// use tower_inflight::{GrpcThrottling, LimitConfig, RetryBudget, RetryRatio};
///
/// let config: LimitConfig = toml::from_str(r#"retry_budget = "ratio""#)?;
/// assert_eq!(config.retry_budget, Some(RetryBudget::Ratio(RetryRatio::default())));
///
/// let config: LimitConfig = toml::from_str(
///     r#"
///     [retry_budget.grpc]
///     max_tokens = 20
///     "#,
/// )?;
/// let throttling = GrpcThrottling { max_tokens: 20, ..GrpcThrottling::default() };
/// assert_eq!(config.retry_budget, Some(RetryBudget::Grpc(throttling)));
/// # Ok::<(), toml::de::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum RetryBudget {
    /// Retries are a fraction of first attempts, and a few besides. Bounds what retries add whatever happens, so it is the
    /// one to begin with.
    Ratio(RetryRatio),
    /// Retry throttling as gRPC has it. Needs no clock: retries stop after a run of failures and begin again after a run of
    /// successes, however long either takes.
    Grpc(GrpcThrottling),
    /// Adaptive throttling as in Google's book on site reliability. Refuses few retries while few calls fail and nearly all
    /// while nearly all do.
    Sre(SreThrottling),
}

/// Retries as a fraction of first attempts: a retry passes if with it, within the [`window`](Self::window) before it,
/// `retries <= ratio * first attempts + per_second * window`.
///
/// The formula is that of the retry budgets of Finagle and linkerd. A retry counts from its arrival, so that those that
/// wait for a slot do not pass the bound together.
///
/// ```
/// use tower_inflight::{Limiter, LimitConfig, RetryBudget, RetryRatio};
///
/// let mut config = LimitConfig::default();
/// config.retry_budget = Some(RetryBudget::Ratio(RetryRatio { ratio: 10.0, ..RetryRatio::default() }));
/// let error = Limiter::builder().config(config).build().unwrap_err();
///
/// assert_eq!(error.key(), "retry_budget.ratio.ratio"); // a tenth is 0.1
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RetryRatio {
    /// Retries per first attempt; 0 to 1. Default 0.1: an outage then adds a tenth to the load instead of doubling or
    /// tripling it, and that is still far more than the retries of a healthy upstream.
    pub ratio: f64,
    /// Retries per second that no first attempt pays for, on average over the window. Default 3: with few calls a tenth
    /// of them is less than one, and a call that is made alone could never be retried. Three a second are no load, and as
    /// many as the usual client makes in all.
    pub per_second: f64,
    /// How far back attempts count; a tenth of it leaves at a time. Default 10 s: long enough for the back-off of a retry
    /// to end within it, short enough that a good minute does not pay for a bad one.
    #[serde(with = "duration::text")]
    pub window: Duration,
}

/// Retry throttling as gRPC has it: proposal A6 ("gRPC Retry Design"), where the two settings are called `maxTokens` and
/// `tokenRatio`.
///
/// There are `max_tokens` tokens at first. Each attempt that fails or is refused by the upstream costs one, each success
/// earns `token_ratio` of one, and no retry passes while no more than half of `max_tokens` is left.
///
/// ```
/// use tower_inflight::GrpcThrottling;
///
/// let throttling = GrpcThrottling::default();
/// assert_eq!((throttling.max_tokens, throttling.token_ratio), (10, 0.1));
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GrpcThrottling {
    /// 1 to 1,000. Default 10, the example of A6: after five failures without a success nobody retries.
    pub max_tokens: u32,
    /// 0.001 to 1,000; further decimals are dropped. Default 0.1, the example of A6: ten successes pay for one failure.
    pub token_ratio: f64,
}

/// Adaptive throttling as in "Site Reliability Engineering" (O'Reilly, 2016), chapter 21, "Handling Overload", for retries
/// alone.
///
/// A retry is refused with the probability `max(0, (requests - k * accepts) / (requests + 1))`, where `requests` are the
/// attempts that ended within the window as success, failure or overload, and `accepts` those of them that succeeded. In
/// the book, requests that were refused on the client's side count as well; here they say nothing.
///
/// ```
/// use tower_inflight::SreThrottling;
///
/// // Refuses retries earlier: as soon as more than one call in ten is not accepted.
/// let strict = SreThrottling { k: 1.1, ..SreThrottling::default() };
/// # let _ = strict;
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SreThrottling {
    /// 1 to 1,000. Default 2, as in the book: retries are refused once fewer than half of the attempts are accepted.
    pub k: f64,
    /// How far back attempts count; a tenth of it leaves at a time. Default 120 s, as in the book.
    #[serde(with = "duration::text")]
    pub window: Duration,
}

impl Default for RetryRatio {
    fn default() -> Self {
        Self { ratio: 0.1, per_second: 3.0, window: Duration::from_secs(10) }
    }
}

impl Default for GrpcThrottling {
    fn default() -> Self {
        Self { max_tokens: 10, token_ratio: 0.1 }
    }
}

impl Default for SreThrottling {
    fn default() -> Self {
        Self { k: 2.0, window: Duration::from_secs(120) }
    }
}

impl RetryBudget {
    pub(super) fn policy(&self) -> RetryPolicy {
        match *self {
            Self::Ratio(RetryRatio { ratio, per_second, window }) => RetryPolicy::Ratio { ratio, per_second, window },
            Self::Grpc(GrpcThrottling { max_tokens, token_ratio }) => RetryPolicy::Grpc { max_tokens, token_ratio },
            Self::Sre(SreThrottling { k, window }) => RetryPolicy::Sre { k, window },
        }
    }

    pub(super) const fn name(&self) -> &'static str {
        match self {
            Self::Ratio(_) => RATIO,
            Self::Grpc(_) => GRPC,
            Self::Sre(_) => SRE,
        }
    }
}

const RATIO: &str = "ratio";
const GRPC: &str = "grpc";
const SRE: &str = "sre";

impl Named for RetryBudget {
    const NAMES: &'static [&'static str] = &["off", RATIO, GRPC, SRE];

    fn with_defaults(name: &str) -> Option<Self> {
        match name {
            RATIO => Some(Self::Ratio(RetryRatio::default())),
            GRPC => Some(Self::Grpc(GrpcThrottling::default())),
            SRE => Some(Self::Sre(SreThrottling::default())),
            _ => None,
        }
    }
}
