//! Additive increase, multiplicative decrease.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::bounds::{Bounds, InvalidController, check_between, check_count, check_duration_or_zero};
use super::cuts::Cuts;
use super::latency::{LatencyTarget, LatencyWatch};
use super::{Controller, Mark, Sample, Sent};
use crate::engine::outcome::Outcome;

/// What a limit keeps of itself when a latency target is missed: a tenth off, ten times a window apart, halves it in
/// about a minute.
const SLOW_DECREASE: f64 = 0.9;

/// How [`Aimd`] moves.
///
/// ```
/// use tower_inflight::controller::AimdConfig;
///
/// let gentle = AimdConfig { decrease: 0.8, ..AimdConfig::default() };
/// assert_eq!((gentle.initial_limit, gentle.increase), (16, 1));
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AimdConfig {
    /// Limit of a lane that nothing is known of. Default 16: most gateways take it.
    pub initial_limit: u32,
    /// Never below. Default 1.
    pub min_limit: u32,
    /// Never above. Default 1,000.
    pub max_limit: u32,
    /// What remains of the limit after an overload or a failure. Default 0.5: half, so that one cut is enough for an
    /// upstream that lost half of its capacity.
    pub decrease: f64,
    /// What a limit's worth of successes adds. Default 1.
    pub increase: u32,
    /// At most one cut in this time. Default 0: as often as a call that was sent after the last cut fails.
    #[serde(with = "crate::config::duration::text")]
    pub cut_window: Duration,
    /// Lower the limit when the upstream becomes slow as well. Default: only errors count.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency: Option<LatencyTarget>,
}

impl Default for AimdConfig {
    fn default() -> Self {
        Self {
            initial_limit: 16,
            min_limit: 1,
            max_limit: 1000,
            decrease: 0.5,
            increase: 1,
            cut_window: Duration::ZERO,
            latency: None,
        }
    }
}

impl AimdConfig {
    fn check(&self) -> Result<Bounds, InvalidController> {
        let bounds = Bounds::parse(self.min_limit, self.initial_limit, self.max_limit)?;
        check_between("decrease", self.decrease, 0.0, 1.0)?;
        check_count("increase", self.increase)?;
        check_duration_or_zero("cut_window", self.cut_window)?;
        self.latency.as_ref().map_or(Ok(()), LatencyTarget::check)?;
        Ok(bounds)
    }
}

/// Halves on overload and failure, and grows by one per limit's worth of successes while the limit is in use.
///
/// Simple and well understood, and right for an upstream that refuses what is too much and whose refusals are cheap. It
/// lives on those refusals: each climb ends with one. Where a refusal asks for a long pause, or none is ever given, use
/// [`Knee`](super::Knee).
///
/// ```
/// use std::time::Duration;
/// use tower_inflight::Outcome;
/// use tower_inflight::controller::{Aimd, AimdConfig, Controller, Sample, Sent};
///
/// let mut aimd = Aimd::new(AimdConfig::default())?;
/// let wave: Vec<Sent> = (1..=16).map(|n| Sent::new(Duration::from_millis(n.into()), n)).collect();
/// for sent in wave {
///     let mark = aimd.on_sent(&sent);
///     aimd.on_end(&Sample::new(sent, mark, Duration::from_secs(1), Outcome::Overload));
/// }
/// assert_eq!(aimd.limit(), 8, "a wave of refusals is one event");
/// # Ok::<(), tower_inflight::controller::InvalidController>(())
/// ```
#[derive(Debug)]
pub struct Aimd {
    bounds: Bounds,
    decrease: f64,
    increase: u32,
    limit: u32,
    /// Successes towards the next increase.
    successes: u32,
    cuts: Cuts,
    latency: Option<LatencyWatch>,
}

impl Aimd {
    /// Begins at `initial_limit`.
    ///
    /// # Errors
    /// A setting that can never work.
    pub fn new(config: AimdConfig) -> Result<Self, InvalidController> {
        let bounds = config.check()?;
        Ok(Self {
            bounds,
            decrease: config.decrease,
            increase: config.increase,
            limit: config.initial_limit,
            successes: 0,
            cuts: Cuts::new(config.cut_window),
            latency: config.latency.map(LatencyWatch::new),
        })
    }

    fn cut(&mut self, remains: f64) {
        self.limit = self.bounds.round_down(f64::from(self.limit) * remains);
        self.successes = 0;
    }

    fn cut_if_slow(&mut self, now: Duration) {
        if self.latency.as_mut().is_some_and(|latency| latency.is_cut_due(now)) {
            self.cuts.on_cut(now);
            self.cut(SLOW_DECREASE);
        }
    }

    fn grow(&mut self) {
        if self.latency.as_ref().is_some_and(LatencyWatch::is_slow) {
            return;
        }
        self.successes += 1;
        if self.successes >= self.limit {
            self.successes = 0;
            self.limit = self.bounds.round_down(f64::from(self.limit) + f64::from(self.increase));
        }
    }
}

impl Controller for Aimd {
    fn limit(&self) -> u32 {
        self.limit
    }

    fn on_first_byte(&mut self, at: Duration, sent: &Sent, _: Mark) {
        if let Some(latency) = &mut self.latency {
            if self.cuts.is_news(sent.at) {
                latency.on_first_byte(at, sent);
            }
            self.cut_if_slow(at);
        }
    }

    fn on_end(&mut self, sample: &Sample) {
        if self.cuts.is_due(sample, self.limit) {
            self.cut(self.decrease);
            return;
        }
        if sample.outcome != Outcome::Success || !self.cuts.is_news(sample.sent.at) {
            return;
        }
        if let Some(latency) = &mut self.latency {
            latency.on_success(sample);
        }
        self.cut_if_slow(sample.ended_at);
        if sample.sent.is_saturated {
            self.grow();
        }
    }
}
#[cfg(test)]
mod tests;
