//! What the limiter is doing now, as plain data.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};

use crate::engine::breaker::BreakerState;
use crate::engine::lane::LaneView;
use crate::engine::outcome::Outcome;
use crate::engine::pool::PoolView;
use crate::engine::priority::Priority;
use crate::engine::quota::QuotaView;
use crate::engine::time::Time;
use crate::engine::totals::Reason;
use crate::engine::valve::{LimitChange, ValveView};
use crate::engine::waits::WaitsFor;
use crate::limiter::key::LaneKey;
use crate::limiter::tokens::TokenTotals;

/// The state of every lane at one moment. Serialises to the JSON that telemetry serves; `{"enabled":false}` when the
/// limiter is off.
///
/// ```
/// use tower_inflight::{LaneKey, Limiter, Priority};
///
/// let limiter = Limiter::builder().max_inflight(6).build()?;
/// let permit = limiter.try_acquire(&LaneKey::new("https://gw/v1", "acme/smart"), Priority::Default)?;
/// let snapshot = limiter.snapshot();
/// assert_eq!(snapshot.lanes[0].lane, "https://gw/v1|acme/smart");
/// assert_eq!((snapshot.lanes[0].inflight, snapshot.lanes[0].limit), (1, 6));
/// # drop(permit);
///
/// let off = Limiter::builder().build()?;
/// assert_eq!(serde_json::to_string(&off.snapshot())?, r#"{"enabled":false}"#);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Snapshot {
    /// False: no limit is set anywhere, every call passes, and there is nothing else to show.
    pub enabled: bool,
    /// When it was taken.
    pub generated_at: SystemTime,
    /// By name.
    pub lanes: Vec<LaneSnapshot>,
    /// Those with slots or budgets of their own, by name.
    pub pools: Vec<PoolSnapshot>,
}

/// The state of one lane.
///
/// ```
/// use tower_inflight::{Limiter, LaneKey};
///
/// let limiter = Limiter::builder().max_inflight(6).build()?;
/// let _lane = limiter.lane(&LaneKey::new("local", "gemma"));
/// assert!(!limiter.snapshot().lanes[0].saturated);
/// # Ok::<(), tower_inflight::ConfigError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct LaneSnapshot {
    /// Its name, as in labels and errors.
    pub lane: String,
    /// Most slots in use at once, now; 0 = unlimited.
    pub limit: u32,
    /// Slots kept for interactive calls, now.
    pub reserve: u32,
    /// Slots in use: from just before a call is sent to the end of its body.
    pub inflight: u32,
    /// Calls that wait.
    pub queued: u32,
    /// The same by class.
    pub queued_by_priority: ByPriority,
    /// For how long the one that has waited longest has waited, in seconds.
    pub oldest_wait_s: f64,
    /// Median wait of the calls granted in the last five minutes, in seconds; those that did not wait count as 0.
    pub wait_p50_s_5m: f64,
    /// The wait that nine in ten of them did not exceed, in seconds.
    pub wait_p90_s_5m: f64,
    /// Calls that waited for the whole queue timeout in vain, in the last five minutes.
    pub queue_timeouts_5m: u32,
    /// Something has waited here without a break for 60 s.
    pub saturated: bool,
    /// The limit moves between this …
    pub min: u32,
    /// … and this; where it is fixed, both are the limit.
    pub max: u32,
    /// Seconds until the pause is over that the upstream asked for, or a controller makes; `null` when there is none.
    pub paused_until_s: Option<f64>,
    /// The last time that the limit changed; `null` if it never did.
    pub last_change: Option<LastChange>,
    /// What is going on here, in one word.
    pub condition: Condition,
    /// What the breaker lets through; closed where there is none.
    pub breaker: BreakerState,
    /// Calls that ever came. Always the sum of `outcomes`, `refused`, `abandoned`, `inflight` and `queued`.
    pub offered: u64,
    /// Calls that were sent and ended, by outcome.
    pub outcomes: BTreeMap<&'static str, u64>,
    /// Calls that were refused, by reason.
    pub refused: BTreeMap<&'static str, u64>,
    /// Calls whose callers gave up while they waited.
    pub abandoned: u64,
    /// Seconds that calls have waited, in vain or not, and wait now, by what for: `slot`, `pause`, `tokens` or `breaker`, which is
    /// what the first in line lacks, the pause named first and the tokens last.
    pub waited_s: BTreeMap<&'static str, f64>,
    /// Tokens of input that the answers reported, see [`Usage`](crate::Usage).
    pub tokens_input: u64,
    /// Tokens of output that they reported.
    pub tokens_output: u64,
    /// Answers that were read for their usage and reported none.
    pub usage_unknown: u64,
    /// Tokens of output that a [`Relay`](crate::Relay) had read for callers who then left, or were given up, before their answer
    /// was over: what came in vain. Pieces where their tokens are not known. Without a relay 0, since nothing is read ahead.
    pub tokens_after_hangup: u64,
    /// What is left of its budgets per minute; missing where it has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quota: Option<QuotaSnapshot>,
}

/// What is left of budgets per minute, and what became of the tokens that calls were charged.
///
/// A dimension that is not limited is `None`, and missing in JSON. Below zero, calls have used more than they were charged,
/// and that is repaid before anybody else is admitted.
///
/// ```
/// use tower_inflight::{Call, LaneKey, Limiter, Outcome, Priority, Quota, Usage};
///
/// let quota = Quota { tokens_per_minute: Some(90_000), ..Quota::default() };
/// let limiter = Limiter::builder().quota(quota).build()?;
/// let call = Call::new(Priority::Default).with_tokens(3_000, 1_000);
/// let permit = limiter.try_acquire(&LaneKey::new("local", "gemma"), call)?;
/// permit.settle_with_usage(Outcome::Success, Usage::new(3_000, 400));
///
/// let quota = limiter.snapshot().lanes[0].quota.expect("it has one");
/// assert_eq!((quota.tokens_admitted, quota.tokens_refunded), (4_000, 600));
/// assert_eq!(quota.requests_left, None);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct QuotaSnapshot {
    /// Requests that may be sent now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests_left: Option<i64>,
    /// Tokens of prompts and answers together that may be charged now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens_left: Option<i64>,
    /// Tokens of prompts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input_tokens_left: Option<i64>,
    /// Tokens of answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_tokens_left: Option<i64>,
    /// What the limits that answers named leave of the configured size, in the dimension in which that is least: from 10 to 100.
    /// Always 100 unless [`FollowHeaders::Limits`](crate::FollowHeaders::Limits) is set.
    pub size_percent: u32,
    /// What calls that are over were charged before they were sent.
    pub tokens_admitted: u64,
    /// Of these, what came back unused.
    pub tokens_refunded: u64,
    /// What calls used beyond their charge.
    pub tokens_beyond: u64,
}

/// What is going on in a lane, in one word: the first of these that applies.
///
/// [`Paused`](Self::Paused) and [`GatewayDegraded`](Self::GatewayDegraded) are about the upstream,
/// [`LocalQueue`](Self::LocalQueue) is this crate at work: callers wait here on purpose, so that they need not wait there.
///
/// ```
/// use tower_inflight::Condition;
///
/// assert_eq!(serde_json::to_string(&Condition::GatewayDegraded)?, r#""gateway_degraded""#);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Condition {
    /// Nothing is sent until `paused_until_s` is over.
    Paused,
    /// Of the calls that ended in the last half to whole minute, at least three were refused or failed, and at least one
    /// in five; or the breaker is not closed. Answers that say nothing about the upstream (other 4xx, cancelled calls) do
    /// not count.
    GatewayDegraded,
    /// Somebody waits for a slot.
    LocalQueue,
    /// None of these.
    Healthy,
}

/// How a limit changed last.
///
/// ```
/// let limiter = tower_inflight::Limiter::builder().adaptive().build()?;
/// let _lane = limiter.lane(&tower_inflight::LaneKey::new("local", "gemma"));
/// assert_eq!(limiter.snapshot().lanes[0].last_change, None);
/// # Ok::<(), tower_inflight::ConfigError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct LastChange {
    /// Seconds ago.
    pub ago_s: f64,
    /// The limit before; 0 = unlimited.
    pub from: u32,
    /// The limit since.
    pub to: u32,
    /// What it was due to, as in [`Cause`](crate::Cause).
    pub cause: &'static str,
}

/// The state of a pool that has a cap, a controller or budgets of its own: the lanes of one endpoint and kind together.
///
/// ```
/// use tower_inflight::{LaneKey, Limiter, PoolLimit};
///
/// let limiter = Limiter::builder().pool(PoolLimit::new("https://gw.example/*", 12)).build()?;
/// let _lane = limiter.lane(&LaneKey::new("https://gw.example/v1", "acme/smart"));
/// assert_eq!(limiter.snapshot().pools[0].limit, 12);
/// # Ok::<(), tower_inflight::ConfigError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct PoolSnapshot {
    /// Its name: that of a lane without a model.
    pub pool: String,
    /// Most slots in use at once over all its lanes, now; 0 = unlimited.
    pub limit: u32,
    /// The limit moves between this …
    pub min: u32,
    /// … and this.
    pub max: u32,
    /// Slots kept for interactive calls, now.
    pub reserve: u32,
    /// Slots in use.
    pub inflight: u32,
    /// Seconds until the pause of the whole pool is over; `null` when there is none.
    pub paused_until_s: Option<f64>,
    /// The last time that the limit changed; `null` if it never did.
    pub last_change: Option<LastChange>,
    /// What is left of the budgets per minute of all its lanes together; missing where there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quota: Option<QuotaSnapshot>,
}

/// A count per class.
///
/// ```
/// let counts = tower_inflight::ByPriority::default();
/// assert_eq!(serde_json::to_string(&counts)?, r#"{"interactive":0,"default":0,"bulk":0}"#);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ByPriority {
    /// [`Priority::Interactive`].
    pub interactive: u32,
    /// [`Priority::Default`].
    pub default: u32,
    /// [`Priority::Bulk`].
    pub bulk: u32,
}

impl Snapshot {
    pub(crate) fn off(generated_at: SystemTime) -> Self {
        Self { enabled: false, generated_at, lanes: Vec::new(), pools: Vec::new() }
    }

    pub(crate) fn of<'a>(
        generated_at: SystemTime,
        now: Time,
        lanes: impl Iterator<Item = (&'a LaneKey, LaneView, TokenTotals)>,
        pools: impl Iterator<Item = (&'a LaneKey, PoolView)>,
    ) -> Self {
        let mut lanes: Vec<LaneSnapshot> =
            lanes.map(|(key, view, tokens)| LaneSnapshot::of(key, &view, tokens, now)).collect();
        lanes.sort_by(|a, b| a.lane.cmp(&b.lane));
        let own = pools.filter(|(_, view)| view.valve.limit > 0 || view.quota.is_some());
        let mut pools: Vec<PoolSnapshot> = own.map(|(key, view)| PoolSnapshot::of(key, &view, now)).collect();
        pools.sort_by(|a, b| a.pool.cmp(&b.pool));
        Self { enabled: true, generated_at, lanes, pools }
    }
}

impl Serialize for Snapshot {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut json = serializer.serialize_struct("Snapshot", if self.enabled { 4 } else { 1 })?;
        json.serialize_field("enabled", &self.enabled)?;
        if self.enabled {
            let generated_at = humantime::format_rfc3339_millis(self.generated_at).to_string();
            json.serialize_field("generated_at", &generated_at)?;
            json.serialize_field("lanes", &self.lanes)?;
            json.serialize_field("pools", &self.pools)?;
        }
        json.end()
    }
}

impl LaneSnapshot {
    fn of(key: &LaneKey, view: &LaneView, tokens: TokenTotals, now: Time) -> Self {
        let valve = &view.valve;
        let (min, max) = bounds(valve);
        let [interactive, default, bulk] = view.waiting;
        debug_assert_eq!(Priority::Bulk.index(), 2);
        Self {
            lane: key.to_string(),
            limit: valve.limit,
            reserve: valve.reserve,
            inflight: valve.in_use,
            queued: view.waiting.iter().sum(),
            queued_by_priority: ByPriority { interactive, default, bulk },
            oldest_wait_s: seconds(view.oldest_wait),
            wait_p50_s_5m: seconds(view.wait_p50),
            wait_p90_s_5m: seconds(view.wait_p90),
            queue_timeouts_5m: view.timeouts,
            saturated: view.is_saturated,
            min,
            max,
            paused_until_s: valve.paused_for.map(seconds),
            last_change: valve.last_change.map(|change| LastChange::of(change, now)),
            condition: Condition::of(view),
            breaker: view.breaker,
            offered: view.totals.offered,
            outcomes: named(Outcome::ALL.map(Outcome::as_str), view.totals.outcomes),
            refused: named(Reason::ALL.map(Reason::as_str), view.totals.refused),
            abandoned: view.totals.abandoned,
            waited_s: named(WaitsFor::ALL.map(WaitsFor::as_str), view.waited.map(seconds)),
            tokens_input: tokens.input,
            tokens_output: tokens.output,
            usage_unknown: tokens.unknown,
            tokens_after_hangup: tokens.after_hangup,
            quota: view.quota.map(QuotaSnapshot::of),
        }
    }
}

impl PoolSnapshot {
    fn of(key: &LaneKey, view: &PoolView, now: Time) -> Self {
        let valve = &view.valve;
        let (min, max) = bounds(valve);
        Self {
            pool: key.to_string(),
            limit: valve.limit,
            min,
            max,
            reserve: valve.reserve,
            inflight: valve.in_use,
            paused_until_s: valve.paused_for.map(seconds),
            last_change: valve.last_change.map(|change| LastChange::of(change, now)),
            quota: view.quota.map(QuotaSnapshot::of),
        }
    }
}

impl QuotaSnapshot {
    fn of(view: QuotaView) -> Self {
        let QuotaView { left, size, spent } = view;
        let [requests_left, tokens_left, input_tokens_left, output_tokens_left] = left.map(|left| left.map(whole));
        Self {
            requests_left,
            tokens_left,
            input_tokens_left,
            output_tokens_left,
            size_percent: percent(size),
            tokens_admitted: spent.admitted,
            tokens_refunded: spent.refunded,
            tokens_beyond: spent.beyond,
        }
    }
}

impl Condition {
    fn of(view: &LaneView) -> Self {
        if view.valve.paused_for.is_some() {
            Self::Paused
        } else if view.is_degraded || view.breaker != BreakerState::Closed {
            Self::GatewayDegraded
        } else if view.waiting.iter().any(|&waiting| waiting > 0) {
            Self::LocalQueue
        } else {
            Self::Healthy
        }
    }
}

impl LastChange {
    fn of(change: LimitChange, now: Time) -> Self {
        let LimitChange { at, from, to, cause } = change;
        Self { ago_s: seconds(now.since(at)), from, to, cause: cause.as_str() }
    }
}

fn bounds(view: &ValveView) -> (u32, u32) {
    view.bounds.map_or((view.limit, view.limit), |bounds| (bounds.min, bounds.max))
}

/// Those that are not zero.
fn named<const N: usize, T>(names: [&'static str; N], counts: [T; N]) -> BTreeMap<&'static str, T>
where
    T: Default + PartialEq,
{
    names.into_iter().zip(counts).filter(|(_, count)| *count != T::default()).collect()
}

/// Whole units, and none that is not quite there but for rounding.
#[expect(clippy::cast_possible_truncation, reason = "no budget has 2^52 units")]
fn whole(units: f64) -> i64 {
    (units + 1e-6).floor() as i64
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a part, from 0 to 1")]
fn percent(part: f64) -> u32 {
    (part * 100.0).round() as u32
}

/// To the millisecond: nobody reads more.
fn seconds(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1000.0).round() / 1000.0
}
