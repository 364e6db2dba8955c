//! The controllers of others, from their published formulas, as baselines.
//!
//! They see what their libraries would see in front of a stream: the time to the first byte. Their own bounds are left
//! out in their favour (1 to 4,096 for all), except where a bound is part of the algorithm.

use std::time::Duration;

use tower_inflight::OutcomeKind;
use tower_inflight::controller::{Controller, Sample};

const MOST: f64 = 4_096.0;

/// The Go library: halve once per wave on 429 and transport failure, +1 after a window of successes, honour Retry-After.
#[derive(Debug)]
pub(crate) struct GoAimd {
    limit: f64,
    successes: f64,
    cut_at: Duration,
    paused_until: Option<Duration>,
}

impl GoAimd {
    pub(crate) fn new(initial: u32) -> Self {
        Self { limit: f64::from(initial), successes: 0.0, cut_at: Duration::ZERO, paused_until: None }
    }
}

impl Controller for GoAimd {
    fn limit(&self) -> u32 {
        whole(self.limit)
    }

    fn paused_until(&self) -> Option<Duration> {
        self.paused_until
    }

    fn on_end(&mut self, sample: &Sample) {
        match sample.outcome.kind() {
            OutcomeKind::Success => {
                self.successes += 1.0;
                if self.successes >= self.limit {
                    self.successes = 0.0;
                    self.limit = (self.limit + 1.0).min(MOST);
                }
            }
            OutcomeKind::Overload | OutcomeKind::Failure => {
                let pause = sample.retry_after.map(|after| sample.ended_at + after);
                self.paused_until = self.paused_until.max(pause);
                if sample.sent.at >= self.cut_at {
                    self.limit = (self.limit / 2.0).floor().max(1.0);
                    self.successes = 0.0;
                    self.cut_at = sample.ended_at;
                }
            }
            _ => {}
        }
    }
}

/// Netflix `AIMDLimit`.
#[derive(Debug)]
pub(crate) struct NetflixAimd(f64);

impl NetflixAimd {
    const BACKOFF: f64 = 0.9;
    const TIMEOUT_S: f64 = 5.0;

    pub(crate) fn new(initial: u32) -> Self {
        Self(f64::from(initial))
    }
}

impl Controller for NetflixAimd {
    fn limit(&self) -> u32 {
        whole(self.0)
    }

    fn on_end(&mut self, sample: &Sample) {
        if is_drop(sample) || rtt(sample).is_some_and(|rtt| rtt > Self::TIMEOUT_S) {
            self.0 = (self.0 * Self::BACKOFF).floor().max(1.0);
        } else if f64::from(sample.sent.in_flight) * 2.0 >= self.0 {
            self.0 = (self.0 + 1.0).min(MOST);
        }
    }
}

/// Netflix `VegasLimit`.
#[derive(Debug)]
pub(crate) struct NetflixVegas {
    limit: f64,
    least_rtt: f64,
    samples: f64,
    jitter: Jitter,
    probe_after: f64,
}

impl NetflixVegas {
    const PROBE_MULTIPLIER: f64 = 30.0;

    pub(crate) fn new(initial: u32) -> Self {
        Self { limit: f64::from(initial), least_rtt: 0.0, samples: 0.0, jitter: Jitter(1), probe_after: 0.75 }
    }
}

impl Controller for NetflixVegas {
    fn limit(&self) -> u32 {
        whole(self.limit)
    }

    fn on_end(&mut self, sample: &Sample) {
        let unit = self.limit.log10().floor().max(1.0);
        if is_drop(sample) {
            self.limit = (self.limit - unit).max(1.0);
            return;
        }
        let Some(rtt) = rtt(sample) else { return };
        self.samples += 1.0;
        if self.samples >= self.probe_after * Self::PROBE_MULTIPLIER * self.limit {
            self.probe_after = 0.5 + 0.5 * self.jitter.unit();
            self.samples = 0.0;
            self.least_rtt = rtt;
            return;
        }
        if self.least_rtt == 0.0 || rtt < self.least_rtt {
            self.least_rtt = rtt;
            return;
        }
        if f64::from(sample.sent.in_flight) * 2.0 < self.limit {
            return;
        }
        let queue = (self.limit * (1.0 - self.least_rtt / rtt)).ceil();
        let step = match queue {
            queue if queue <= unit => 6.0 * unit,
            queue if queue < 3.0 * unit => unit,
            queue if queue > 6.0 * unit => -unit,
            _ => 0.0,
        };
        self.limit = (self.limit + step).clamp(1.0, MOST).floor();
    }
}

/// Netflix `Gradient2Limit`: drops do not count.
#[derive(Debug)]
pub(crate) struct NetflixGradient2 {
    limit: f64,
    long_rtt: f64,
    samples: f64,
}

impl NetflixGradient2 {
    const WARM_UP_SAMPLES: f64 = 10.0;
    const LONG_WINDOW: f64 = 600.0;
    const TOLERANCE: f64 = 1.5;
    const SMOOTHING: f64 = 0.2;
    const HEADROOM: f64 = 4.0;

    pub(crate) fn new(initial: u32) -> Self {
        Self { limit: f64::from(initial), long_rtt: 0.0, samples: 0.0 }
    }
}

impl Controller for NetflixGradient2 {
    fn limit(&self) -> u32 {
        whole(self.limit)
    }

    fn on_end(&mut self, sample: &Sample) {
        let Some(short_rtt) = rtt(sample) else { return };
        self.samples += 1.0;
        let weight =
            if self.samples <= Self::WARM_UP_SAMPLES { 1.0 / self.samples } else { 2.0 / (Self::LONG_WINDOW + 1.0) };
        self.long_rtt += (short_rtt - self.long_rtt) * weight;
        if self.long_rtt > 2.0 * short_rtt {
            self.long_rtt *= 0.95;
        }
        if f64::from(sample.sent.in_flight) < self.limit / 2.0 {
            return;
        }
        let gradient = (Self::TOLERANCE * self.long_rtt / short_rtt).clamp(0.5, 1.0);
        let target = gradient * self.limit + Self::HEADROOM;
        self.limit = (self.limit * (1.0 - Self::SMOOTHING) + target * Self::SMOOTHING).clamp(1.0, MOST);
    }
}

/// Envoy's gradient controller: the limit is pinned at 3 while the least round trip is measured.
#[derive(Debug)]
pub(crate) struct EnvoyGradient {
    limit: f64,
    least_rtt: f64,
    window: Vec<f64>,
    window_ends_at: Duration,
    probing_since: Option<Duration>,
    next_probe_at: Duration,
    windows_at_least: u32,
    jitter: Jitter,
}

impl EnvoyGradient {
    const LEAST: f64 = 3.0;
    const PROBE_SAMPLES: usize = 50;
    const WINDOW: Duration = Duration::from_millis(100);
    const PROBE_INTERVAL_S: f64 = 60.0;
    const PROBE_JITTER: f64 = 0.15;
    const BUFFER: f64 = 1.25;

    pub(crate) fn new(initial: u32) -> Self {
        Self {
            limit: f64::from(initial),
            least_rtt: 0.0,
            window: Vec::new(),
            window_ends_at: Duration::ZERO,
            probing_since: Some(Duration::ZERO),
            next_probe_at: Duration::ZERO,
            windows_at_least: 0,
            jitter: Jitter(2),
        }
    }

    fn probe(&mut self, sample: &Sample, rtt: f64, since: Duration) {
        if sample.sent.at >= since {
            self.window.push(rtt);
        }
        if self.window.len() >= Self::PROBE_SAMPLES {
            self.least_rtt = take_median(&mut self.window);
            self.probing_since = None;
            self.windows_at_least = 0;
            let spread = 1.0 + Self::PROBE_JITTER * self.jitter.unit();
            self.next_probe_at = sample.ended_at + Duration::from_secs_f64(Self::PROBE_INTERVAL_S * spread);
        }
    }
}

impl Controller for EnvoyGradient {
    fn limit(&self) -> u32 {
        whole(if self.probing_since.is_some() { Self::LEAST } else { self.limit })
    }

    fn on_end(&mut self, sample: &Sample) {
        let Some(rtt) = rtt(sample) else { return };
        if let Some(since) = self.probing_since {
            self.probe(sample, rtt, since);
            return;
        }
        self.window.push(rtt);
        if sample.ended_at < self.window_ends_at {
            return;
        }
        self.window_ends_at = sample.ended_at + Self::WINDOW;
        let gradient = (Self::BUFFER * self.least_rtt / take_median(&mut self.window)).clamp(0.5, 2.0);
        let shrunk = self.limit * gradient;
        self.limit = (shrunk + shrunk.sqrt()).floor().clamp(Self::LEAST, MOST);
        self.windows_at_least = if self.limit <= Self::LEAST { self.windows_at_least + 1 } else { 0 };
        if sample.ended_at >= self.next_probe_at || self.windows_at_least >= 5 {
            self.probing_since = Some(sample.ended_at);
        }
    }
}

#[derive(Debug)]
struct Jitter(u64);

impl Jitter {
    fn unit(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 11) as f64 / (1_u64 << 53) as f64
    }
}

fn is_drop(sample: &Sample) -> bool {
    matches!(sample.outcome.kind(), OutcomeKind::Overload | OutcomeKind::Failure)
}

/// Of successes only.
fn rtt(sample: &Sample) -> Option<f64> {
    let is_success = sample.outcome.kind() == OutcomeKind::Success;
    sample.first_byte_at.filter(|_| is_success).map(|at| (at - sample.sent.at).as_secs_f64())
}

fn take_median(window: &mut Vec<f64>) -> f64 {
    window.sort_by(f64::total_cmp);
    let median = window[window.len() / 2];
    window.clear();
    median
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 1 and MOST")]
fn whole(limit: f64) -> u32 {
    limit as u32
}
