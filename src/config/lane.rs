use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::duration::{OrOff, Text};
use super::switch::Switch;
use super::{Aging, BreakerConfig, Limit, Quota, RetryBudget, Shares};
use crate::engine::forecast::PredictDeadlines;

/// Other values for the lanes whose shown name matches a pattern.
///
/// The pattern is compared with the whole name as snapshots and metrics show it, `endpoint|model` or, for other kinds
/// than chat, `endpoint|model|kind`. `*` stands for any run of characters, also none; everything else is literal and
/// case counts. Since `*` also shows a missing model, the pattern `https://gw.example/v1|*` covers that lane too.
///
/// What is not set stays as it was: from an earlier matching entry, else from the [`LimitConfig`](crate::LimitConfig).
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tower_inflight::{LaneOverride, LimitConfig};
///
/// let config: LimitConfig = toml::from_str(
///     r#"
///     max_inflight = 6
///
///     [[overrides]]
///     lane = "https://gw.example/v1|acme/*"
///     max_inflight = 20
///     interactive_reserve = 4
///
///     [[overrides]]
///     lane = "*|local/*"
///     max_inflight = 0              # not limited
///     first_byte_timeout = "off"
///     "#,
/// )?;
///
/// assert_eq!(
///     config.overrides,
///     [
///         LaneOverride::new("https://gw.example/v1|acme/*").max_inflight(20).interactive_reserve(4),
///         LaneOverride::new("*|local/*").max_inflight(0).first_byte_timeout(None),
///     ]
/// );
/// # Ok::<(), toml::de::Error>(())
/// ```
///
/// # Errors
///
/// Refused are the values that [`LimitConfig`](crate::LimitConfig) refuses, an empty pattern, and a pattern without `*`
/// and `|`, which no name can match. A reserve must fit the `max_inflight` beside it or, where there is none, that of
/// the `LimitConfig`; one taken over from elsewhere is cut to fit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LaneOverride {
    pub(super) lane: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) max_inflight: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) limit: Option<Limit>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) quota: Option<Quota>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) interactive_reserve: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) shares: Option<Switch<Shares>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) predict_deadlines: Option<PredictDeadlines>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) queue_timeout: Option<Text>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) max_queue: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) max_queue_per_class: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) max_queue_per_tenant: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) aging_step: Option<Aging>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) first_byte_timeout: Option<OrOff>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) idle_timeout: Option<OrOff>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) breaker: Option<Switch<BreakerConfig>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) retry_budget: Option<Switch<RetryBudget>>,
}

impl LaneOverride {
    /// An override that changes nothing yet, for the lanes that match `lane`.
    #[must_use]
    pub fn new(lane: impl Into<String>) -> Self {
        Self {
            lane: lane.into(),
            max_inflight: None,
            limit: None,
            quota: None,
            interactive_reserve: None,
            shares: None,
            predict_deadlines: None,
            queue_timeout: None,
            max_queue: None,
            max_queue_per_class: None,
            max_queue_per_tenant: None,
            aging_step: None,
            first_byte_timeout: None,
            idle_timeout: None,
            breaker: None,
            retry_budget: None,
        }
    }

    /// Most calls in flight at once in each of these lanes; 0: they are not limited.
    #[must_use]
    pub fn max_inflight(self, calls: u32) -> Self {
        Self { max_inflight: Some(calls), ..self }
    }

    /// What decides how many calls may be in flight in each of these lanes.
    #[must_use]
    pub fn limit(self, limit: Limit) -> Self {
        Self { limit: Some(limit), ..self }
    }

    /// What each of these lanes may use per minute.
    #[must_use]
    pub fn quota(self, quota: Quota) -> Self {
        Self { quota: Some(quota), ..self }
    }

    /// How many slots of each of these lanes only interactive calls may take.
    #[must_use]
    pub fn interactive_reserve(self, slots: u32) -> Self {
        Self { interactive_reserve: Some(slots), ..self }
    }

    /// What part of the limit of each of these lanes each class may count on. `None`, in files `"off"`: there are no shares
    /// here, whatever applies elsewhere.
    #[must_use]
    pub fn shares(self, shares: impl Into<Option<Shares>>) -> Self {
        Self { shares: Some(Switch(shares.into())), ..self }
    }

    /// Whether calls of these lanes are refused whose deadlines cannot be kept.
    #[must_use]
    pub fn predict_deadlines(self, predict: PredictDeadlines) -> Self {
        Self { predict_deadlines: Some(predict), ..self }
    }

    /// Longest wait for a slot. Zero is refused: for no waiting, set [`max_queue`](Self::max_queue) to 0.
    #[must_use]
    pub fn queue_timeout(self, after: Duration) -> Self {
        Self { queue_timeout: Some(Text(after)), ..self }
    }

    /// Most waiters in each of these lanes; with 0 nobody waits.
    #[must_use]
    pub fn max_queue(self, waiters: u32) -> Self {
        Self { max_queue: Some(waiters), ..self }
    }

    /// Most waiters of one class in each of these lanes. Zero is refused.
    #[must_use]
    pub fn max_queue_per_class(self, waiters: u32) -> Self {
        Self { max_queue_per_class: Some(waiters), ..self }
    }

    /// Most waiters of one tenant in each of these lanes. Zero is refused.
    #[must_use]
    pub fn max_queue_per_tenant(self, waiters: u32) -> Self {
        Self { max_queue_per_tenant: Some(waiters), ..self }
    }

    /// How long a waiter waits until it rises to the next class.
    #[must_use]
    pub fn aging_step(self, step: Aging) -> Self {
        Self { aging_step: Some(step), ..self }
    }

    /// Longest silence before the first byte of an answer's body. `None`, in files `"off"`: no such guard here, whatever
    /// applies elsewhere. Zero is refused.
    #[must_use]
    pub fn first_byte_timeout(self, after: impl Into<Option<Duration>>) -> Self {
        Self { first_byte_timeout: Some(OrOff(after.into())), ..self }
    }

    /// Longest silence of the upstream within an answer's body. `None`, in files `"off"`: no such guard here, whatever
    /// applies elsewhere. Zero is refused.
    #[must_use]
    pub fn idle_timeout(self, after: impl Into<Option<Duration>>) -> Self {
        Self { idle_timeout: Some(OrOff(after.into())), ..self }
    }

    /// Stops calls to each of these lanes whose calls fail, or begin late. `None`, in files `"off"`: there is no breaker
    /// here, whatever applies elsewhere.
    #[must_use]
    pub fn breaker(self, breaker: impl Into<Option<BreakerConfig>>) -> Self {
        Self { breaker: Some(Switch(breaker.into())), ..self }
    }

    /// Holds retries back when there are many for the calls that are made to each of these lanes. `None`, in files `"off"`:
    /// every retry passes here, whatever applies elsewhere.
    #[must_use]
    pub fn retry_budget(self, budget: impl Into<Option<RetryBudget>>) -> Self {
        Self { retry_budget: Some(Switch(budget.into())), ..self }
    }
}
