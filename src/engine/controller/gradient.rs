//! A limit that follows the ratio of usual to present latency.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::bounds::{Bounds, InvalidController, check_between, check_count, check_duration};
use super::cuts::Cuts;
use super::{Controller, Mark, Sample, Sent};

/// First bytes per update, and the least time between two: one lucky answer should not decide.
const WINDOW_CALLS: u32 = 10;
const WINDOW: Duration = Duration::from_secs(1);
/// The usual latency is a mean over about so many calls: minutes on a busy lane.
const USUAL_CALLS: f64 = 600.0;
/// When the usual latency is this many times the present one, an incident is over …
const RECOVERED: f64 = 2.0;
/// … and the mean, which remembers it, is helped down by this factor per update.
const RECOVERY: f64 = 0.95;
/// No update halves the limit more than once.
const LEAST_GRADIENT: f64 = 0.5;
/// Share of the way to the new limit that an update goes.
const SMOOTHING: f64 = 0.2;

/// How [`Gradient`] moves.
///
/// ```
/// use tower_inflight::controller::GradientConfig;
///
/// let patient = GradientConfig { tolerance: 2.0, ..GradientConfig::default() };
/// assert_eq!((patient.initial_limit, patient.max_limit), (16, 200));
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GradientConfig {
    /// Limit of a lane that nothing is known of. Default 16.
    pub initial_limit: u32,
    /// Never below, whatever the latency says. Default 1.
    pub min_limit: u32,
    /// Never above. Default 200: the gradient itself finds no end on an upstream that queues without becoming slow.
    pub max_limit: u32,
    /// Times the usual latency that is still as good as usual. Default 1.5.
    pub tolerance: f64,
    /// Calls that may queue upstream: what the limit gains per update while all is well. Default 4.
    pub queue: u32,
    /// What remains of the limit after an overload or a failure, once per event. Default 0.7. Without it, refusals that
    /// come fast would look like an upstream with time to spare.
    pub decrease: f64,
    /// Time to the first byte that is never as good as usual, however long it has lasted. Default 30 s. Without it, the
    /// usual latency drifts up during an outage and hides it.
    #[serde(with = "crate::config::duration::text")]
    pub slowest_first_byte: Duration,
    /// Measure the usual latency anew from time to time, with few calls in flight. Default: never, as it costs
    /// throughput.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub probe: Option<GradientProbe>,
}

/// When and how [`Gradient`] measures the usual latency anew.
///
/// ```
/// use std::time::Duration;
/// use tower_inflight::controller::{Gradient, GradientConfig, GradientProbe};
///
/// let probe = GradientProbe { every: Duration::from_secs(300), ..GradientProbe::default() };
/// Gradient::new(GradientConfig { probe: Some(probe), ..GradientConfig::default() })?;
/// # Ok::<(), tower_inflight::controller::InvalidController>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GradientProbe {
    /// Time between two probes.
    #[serde(with = "crate::config::duration::text")]
    pub every: Duration,
    /// Limit during a probe; not a floor of the limit otherwise. Default 3.
    pub limit: u32,
}

impl Default for GradientConfig {
    fn default() -> Self {
        Self {
            initial_limit: 16,
            min_limit: 1,
            max_limit: 200,
            tolerance: 1.5,
            queue: 4,
            decrease: 0.7,
            slowest_first_byte: Duration::from_secs(30),
            probe: None,
        }
    }
}

impl Default for GradientProbe {
    fn default() -> Self {
        Self { every: Duration::from_secs(600), limit: 3 }
    }
}

impl GradientConfig {
    fn check(&self) -> Result<Bounds, InvalidController> {
        let bounds = Bounds::parse(self.min_limit, self.initial_limit, self.max_limit)?;
        check_between("tolerance", self.tolerance, 1.0, 100.0)?;
        check_count("queue", self.queue)?;
        check_between("decrease", self.decrease, 0.0, 1.0)?;
        check_duration("slowest_first_byte", self.slowest_first_byte)?;
        if let Some(probe) = &self.probe {
            check_duration("probe.every", probe.every)?;
            check_count("probe.limit", probe.limit)?;
        }
        Ok(bounds)
    }
}

/// Lowers the limit as the first bytes of answers come later than usual, and raises it while they do not.
///
/// In the manner of Netflix's Gradient2. For upstreams whose first bytes take about equally long from call to call: it
/// knows nothing of long prompts, and calls with random waits (hidden reasoning, cached prompts) confuse it.
///
/// ```
/// use tower_inflight::controller::{Controller, Gradient, GradientConfig};
///
/// let gradient = Gradient::new(GradientConfig { initial_limit: 4, ..GradientConfig::default() })?;
/// assert_eq!(gradient.limit(), 4);
/// # Ok::<(), tower_inflight::controller::InvalidController>(())
/// ```
#[derive(Debug)]
pub struct Gradient {
    config: GradientConfig,
    bounds: Bounds,
    limit: f64,
    window: Window,
    usual: Option<f64>,
    cuts: Cuts,
    probe: Probe,
}

/// First bytes since the last update.
#[derive(Clone, Copy, Debug, Default)]
struct Window {
    started_at: Option<Duration>,
    seconds: f64,
    calls: u32,
    in_flight: u32,
    was_saturated: bool,
}

#[derive(Clone, Copy, Debug)]
enum Probe {
    Off,
    Due { at: Option<Duration> },
    On { since: Duration },
}

impl Gradient {
    /// Begins at `initial_limit`.
    ///
    /// # Errors
    /// A setting that can never work.
    pub fn new(config: GradientConfig) -> Result<Self, InvalidController> {
        let bounds = config.check()?;
        Ok(Self {
            bounds,
            limit: f64::from(config.initial_limit),
            window: Window::default(),
            usual: None,
            cuts: Cuts::new(Duration::ZERO),
            probe: if config.probe.is_some() { Probe::Due { at: None } } else { Probe::Off },
            config,
        })
    }

    fn update(&mut self, now: Duration) {
        let window = std::mem::take(&mut self.window);
        let present = window.seconds / f64::from(window.calls);
        let usual = self.learn(present, window.calls);
        let is_in_use = f64::from(window.in_flight) >= self.limit / 2.0;
        if !is_in_use {
            return;
        }
        let gradient = (self.config.tolerance * usual / present).clamp(LEAST_GRADIENT, 1.0);
        let target = gradient * self.limit + f64::from(self.config.queue);
        let next = self.limit + SMOOTHING * (target - self.limit);
        if next < self.limit || window.was_saturated {
            self.limit = self.bounds.clamp(next);
        }
        if next < self.limit {
            self.cuts.on_cut(now);
        }
    }

    /// The usual latency, with the present one taken in.
    fn learn(&mut self, present: f64, calls: u32) -> f64 {
        let usual = self.usual.map_or(present, |usual| {
            let weight = (2.0 * f64::from(calls) / (USUAL_CALLS + 1.0)).min(1.0);
            let mixed = usual + weight * (present - usual);
            if mixed > RECOVERED * present { mixed * RECOVERY } else { mixed }
        });
        self.usual = Some(usual);
        usual.min(self.config.slowest_first_byte.as_secs_f64() / self.config.tolerance)
    }

    fn step_probe(&mut self, now: Duration) {
        let Some(GradientProbe { every, .. }) = self.config.probe else { return };
        match self.probe {
            Probe::Due { at: None } => self.probe = Probe::Due { at: Some(now.saturating_add(every)) },
            Probe::Due { at: Some(at) } if now >= at => {
                self.probe = Probe::On { since: now };
                self.window = Window::default();
            }
            _ => {}
        }
    }

    /// Calls that were sent before a probe began met the old limit.
    fn counts(&self, sent_at: Duration) -> bool {
        match self.probe {
            Probe::On { since } => sent_at >= since,
            _ => self.cuts.is_news(sent_at),
        }
    }
}

impl Controller for Gradient {
    fn limit(&self) -> u32 {
        let limit = self.bounds.round_down(self.limit);
        match (self.probe, &self.config.probe) {
            (Probe::On { .. }, Some(probe)) => limit.min(probe.limit),
            _ => limit,
        }
    }

    fn on_first_byte(&mut self, at: Duration, sent: &Sent, _: Mark) {
        self.step_probe(at);
        if !self.counts(sent.at) {
            return;
        }
        let window = &mut self.window;
        let started_at = *window.started_at.get_or_insert(at);
        window.seconds += at.saturating_sub(sent.at).as_secs_f64().max(1e-6);
        window.calls += 1;
        window.in_flight = window.in_flight.max(sent.in_flight);
        window.was_saturated |= sent.is_saturated;
        if window.calls < WINDOW_CALLS {
            return;
        }
        if let Probe::On { .. } = self.probe {
            self.usual = Some(window.seconds / f64::from(window.calls));
            self.window = Window::default();
            self.probe = Probe::Due { at: None };
        } else if at.saturating_sub(started_at) >= WINDOW {
            self.update(at);
        }
    }

    fn on_end(&mut self, sample: &Sample) {
        if self.cuts.is_due(sample, self.limit()) {
            self.limit = self.bounds.clamp(self.limit * self.config.decrease);
            self.window = Window::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::controller::testing::{Call, call};
    use crate::engine::outcome::Outcome;

    fn gradient(config: GradientConfig) -> Gradient {
        Gradient::new(config).unwrap()
    }

    /// Ten calls a second in full use of the limit, with that time to the first byte.
    fn busy(gradient: &mut Gradient, from: u32, until: u32, first_byte_after: f64) {
        for n in from * 10..until * 10 {
            let first_byte_at = f64::from(n) / 10.0;
            let call = Call {
                sent_at: (first_byte_at - first_byte_after).max(0.0),
                first_byte_at: Some(first_byte_at),
                ended_at: first_byte_at + 0.05,
                in_flight: gradient.limit(),
                ..call(Outcome::Success)
            };
            call.run(gradient);
        }
    }

    #[test]
    fn usual_latency_lets_the_limit_grow_to_its_maximum() {
        let mut gradient = gradient(GradientConfig { max_limit: 40, ..GradientConfig::default() });
        busy(&mut gradient, 0, 120, 0.5);
        assert_eq!(gradient.limit(), 40);
    }

    #[test]
    fn latency_above_usual_lowers_the_limit_as_long_as_it_is_news() {
        let mut gradient = gradient(GradientConfig { initial_limit: 100, ..GradientConfig::default() });
        busy(&mut gradient, 0, 20, 0.5);
        let before = gradient.limit();
        busy(&mut gradient, 20, 40, 2.0);
        assert!(gradient.limit() < before / 2, "{} of {before}", gradient.limit());
    }

    #[test]
    fn an_outage_does_not_become_usual() {
        let slowest_first_byte = Duration::from_secs(5);
        let config = GradientConfig { initial_limit: 100, slowest_first_byte, ..GradientConfig::default() };
        let mut gradient = gradient(config);
        busy(&mut gradient, 0, 20, 0.5);
        busy(&mut gradient, 20, 3600, 15.0);
        assert!(gradient.limit() <= 8, "{}", gradient.limit());
    }

    #[test]
    fn a_wave_of_refusals_counts_once() {
        let mut gradient = gradient(GradientConfig { initial_limit: 20, ..GradientConfig::default() });
        (0..20).for_each(|_| call(Outcome::Overload).run(&mut gradient));
        assert_eq!(gradient.limit(), 14);
        call(Outcome::Overload).at(2.0, 3.0).run(&mut gradient);
        assert_eq!(gradient.limit(), 9);
    }

    #[test]
    fn an_idle_lane_does_not_grow() {
        let mut gradient = gradient(GradientConfig::default());
        for n in 0..1000 {
            let call = Call { is_saturated: false, ..call(Outcome::Success).at(f64::from(n), f64::from(n) + 0.5) };
            call.run(&mut gradient);
        }
        assert_eq!(gradient.limit(), 16);
    }

    #[test]
    fn a_probe_is_no_floor_and_a_floor_is_no_probe() {
        let probe = Some(GradientProbe { every: Duration::from_secs(60), limit: 3 });
        let config = GradientConfig { min_limit: 10, probe, ..GradientConfig::default() };
        let mut gradient = gradient(config);
        busy(&mut gradient, 0, 61, 0.5);
        assert_eq!(gradient.limit(), 3, "below the floor, while it probes");
        busy(&mut gradient, 61, 63, 0.5);
        assert!(gradient.limit() >= 10, "{}", gradient.limit());
    }

    // Case 95.
    #[test]
    fn a_config_that_makes_no_sense_is_refused_by_field() {
        let base = GradientConfig::default();
        let probe = |every, limit| GradientConfig { probe: Some(GradientProbe { every, limit }), ..base.clone() };
        for (config, field) in [
            (GradientConfig { min_limit: 0, ..base.clone() }, "min_limit"),
            (GradientConfig { initial_limit: 300, ..base.clone() }, "initial_limit"),
            (GradientConfig { tolerance: 1.0, ..base.clone() }, "tolerance"),
            (GradientConfig { tolerance: f64::NAN, ..base.clone() }, "tolerance"),
            (GradientConfig { queue: 0, ..base.clone() }, "queue"),
            (GradientConfig { decrease: 1.0, ..base.clone() }, "decrease"),
            (GradientConfig { slowest_first_byte: Duration::ZERO, ..base.clone() }, "slowest_first_byte"),
            (probe(Duration::ZERO, 3), "probe.every"),
            (probe(Duration::from_secs(60), 0), "probe.limit"),
        ] {
            assert_eq!(Gradient::new(config).unwrap_err().field(), field);
        }
    }
}
