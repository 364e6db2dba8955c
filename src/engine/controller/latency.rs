//! Targets for upstreams that slow down without an error.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::bounds::{InvalidController, check_duration};
use super::{Sample, Sent};

/// Bytes of an answer per token, in English text: turns the size of an answer in one piece into its length.
const BYTES_PER_TOKEN: f64 = 4.0;
/// Fewer calls than this say nothing about a mean.
const MIN_CALLS: u32 = 5;

/// How slow the upstream may become before a limit is lowered by a tenth, at most once per window.
///
/// Both times are independent of the length of the answer. Each is compared to the mean over a window.
///
/// ```
/// use std::time::Duration;
/// use tower_inflight::controller::{Aimd, AimdConfig, LatencyTarget};
///
/// let target = LatencyTarget { first_byte: Some(Duration::from_millis(1500)), ..LatencyTarget::default() };
/// Aimd::new(AimdConfig { latency: Some(target), ..AimdConfig::default() })?;
///
/// let none = AimdConfig { latency: Some(LatencyTarget::default()), ..AimdConfig::default() };
/// assert_eq!(Aimd::new(none).unwrap_err().field(), "latency");
/// # Ok::<(), tower_inflight::controller::InvalidController>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LatencyTarget {
    /// Most time from sending a call to the first byte of its answer.
    #[serde(with = "crate::config::duration::or_off", skip_serializing_if = "Option::is_none")]
    pub first_byte: Option<Duration>,
    /// Most time between two pieces of an answer. For an answer in one piece: per token.
    #[serde(with = "crate::config::duration::or_off", skip_serializing_if = "Option::is_none")]
    pub between_chunks: Option<Duration>,
    /// One cut per window, from calls sent after the last one. The default of 10 s is longer than a good first byte, so
    /// that the effect of a cut is seen before the next.
    #[serde(with = "crate::config::duration::text")]
    pub window: Duration,
}

impl Default for LatencyTarget {
    fn default() -> Self {
        Self { first_byte: None, between_chunks: None, window: Duration::from_secs(10) }
    }
}

impl LatencyTarget {
    pub(super) fn check(&self) -> Result<(), InvalidController> {
        if self.first_byte.is_none() && self.between_chunks.is_none() {
            return Err(InvalidController::new(
                "latency",
                "without a target",
                "`first_byte`, `between_chunks` or both",
            ));
        }
        for (field, target) in
            [("latency.first_byte", self.first_byte), ("latency.between_chunks", self.between_chunks)]
        {
            if let Some(target) = target {
                check_duration(field, target)?;
            }
        }
        check_duration("latency.window", self.window)
    }
}

/// Whether the targets are met, window by window.
#[derive(Debug)]
pub(super) struct LatencyWatch {
    target: LatencyTarget,
    window_ends_at: Option<Duration>,
    first_bytes: Mean,
    chunks: Mean,
    was_slow: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Mean {
    sum: f64,
    count: u32,
}

impl Mean {
    fn add(&mut self, seconds: f64) {
        self.sum += seconds;
        self.count += 1;
    }

    fn is_above(&self, target: Option<Duration>) -> bool {
        let count = f64::from(self.count);
        self.count >= MIN_CALLS && target.is_some_and(|target| self.sum > target.as_secs_f64() * count)
    }
}

impl LatencyWatch {
    pub(super) fn new(target: LatencyTarget) -> Self {
        Self { target, window_ends_at: None, first_bytes: Mean::default(), chunks: Mean::default(), was_slow: false }
    }

    /// Above a target, in the last window or so far in this one: no time to grow.
    pub(super) fn is_slow(&self) -> bool {
        self.was_slow || self.is_window_slow()
    }

    /// The first byte of an answer came to a call of the present limit.
    pub(super) fn on_first_byte(&mut self, at: Duration, sent: &Sent) {
        // Of an answer in one piece, the first byte is the last.
        if sent.asks_for_stream != Some(false) {
            self.first_bytes.add(at.saturating_sub(sent.at).as_secs_f64());
        }
    }

    /// A call of the present limit ended well.
    pub(super) fn on_success(&mut self, sample: &Sample) {
        if sample.further_chunks > 0 {
            let streamed = sample.ended_at.saturating_sub(sample.first_byte_at.unwrap_or(sample.ended_at));
            self.chunks.add(streamed.as_secs_f64() / f64::from(sample.further_chunks));
        } else if sample.answer_bytes > 0 {
            let took = sample.ended_at.saturating_sub(sample.sent.at);
            self.chunks.add(took.as_secs_f64() * BYTES_PER_TOKEN / f64::from(sample.answer_bytes));
        }
    }

    /// Whether a window is over in which a target was missed. To be asked after each sample.
    pub(super) fn is_cut_due(&mut self, now: Duration) -> bool {
        let ends_at = *self.window_ends_at.get_or_insert_with(|| now.saturating_add(self.target.window));
        // On a quiet lane a window lasts until enough calls are in.
        if now < ends_at || self.first_bytes.count.max(self.chunks.count) < MIN_CALLS {
            return false;
        }
        self.was_slow = self.is_window_slow();
        self.window_ends_at = Some(now.saturating_add(self.target.window));
        self.first_bytes = Mean::default();
        self.chunks = Mean::default();
        self.was_slow
    }

    fn is_window_slow(&self) -> bool {
        self.first_bytes.is_above(self.target.first_byte) || self.chunks.is_above(self.target.between_chunks)
    }
}
