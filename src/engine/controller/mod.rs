//! What decides how many calls may be in flight.
//!
//! A controller is pure: it is told what happened and when, and says how many calls may be in flight. It holds no lock,
//! reads no clock, and is stepped under its lane's lock, so it should be quick and must not block.
//!
//! ```text
//!  grant ──▶ on_sent ──▶ mark, kept with the call
//!  first byte of the answer ──▶ on_first_byte
//!  end ──▶ on_end ──▶ limit(), paused_until()
//! ```

mod aimd;
mod bounds;
mod cuts;
mod fixed;
mod gradient;
mod knee;
mod latency;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

use std::fmt;
use std::time::Duration;

pub use self::aimd::{Aimd, AimdConfig};
pub use self::bounds::InvalidController;
pub use self::fixed::Fixed;
pub use self::gradient::{Gradient, GradientConfig, GradientProbe};
pub use self::knee::{Knee, KneeConfig};
pub use self::latency::LatencyTarget;
use super::outcome::Outcome;

/// Turns what happens to calls into a limit.
///
/// Times are since an arbitrary origin, the same for all calls of one controller, and never run backwards. It is told, asked
/// and dropped under its pool's lock: it must not use the limiter.
///
/// ```
/// use tower_inflight::controller::{Controller, Sample};
/// use tower_inflight::{LaneKey, Limiter, Outcome, Priority};
///
/// /// One down for each refusal, and never up again.
/// #[derive(Debug)]
/// struct Humble(u32);
///
/// impl Controller for Humble {
///     fn limit(&self) -> u32 {
///         self.0
///     }
///
///     fn on_end(&mut self, sample: &Sample) {
///         if sample.outcome == Outcome::Overload && sample.in_flight <= self.0 {
///             self.0 = (self.0 - 1).max(1);
///         }
///     }
/// }
///
/// let limiter = Limiter::builder().lane_controller(|_| Some(Box::new(Humble(16)))).build()?;
/// let permit = limiter.try_acquire(&LaneKey::new("local", "gemma"), Priority::Default)?;
/// permit.settle(Outcome::Overload);
/// assert_eq!(limiter.snapshot().lanes[0].limit, 15);
/// # Ok::<(), tower_inflight::BoxError>(())
/// ```
pub trait Controller: fmt::Debug + Send + 'static {
    /// Most calls in flight now. Values below 1 count as 1.
    fn limit(&self) -> u32;

    /// Nothing may be sent before this time.
    fn paused_until(&self) -> Option<Duration> {
        None
    }

    /// A call is about to be sent. What it returns is kept with the call and given back with each of its facts.
    fn on_sent(&mut self, sent: &Sent) -> Mark {
        let _ = sent;
        Mark::default()
    }

    /// The first byte of its answer is there. Not told of answers that are errors: how fast an upstream says no says
    /// nothing about how fast it works.
    fn on_first_byte(&mut self, at: Duration, sent: &Sent, mark: Mark) {
        let _ = (at, sent, mark);
    }

    /// The call is over; its slot is still counted.
    fn on_end(&mut self, sample: &Sample);
}

/// A call at the moment it was sent.
///
/// ```
/// use tower_inflight::controller::{Mark, Sent};
///
/// /// An `on_sent` that remembers how large the request was.
/// fn on_sent(sent: &Sent) -> Mark {
///     Mark(sent.request_bytes.map_or(0.0, |bytes| bytes as f32))
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Sent {
    /// When.
    pub at: Duration,
    /// Calls in flight, this one included.
    pub in_flight: u32,
    /// The lane was using its whole limit: others were waiting, or this call had waited.
    pub is_saturated: bool,
    /// Size of the request: bytes of its body, if known.
    pub request_bytes: Option<u32>,
    /// The request asks for its answer in pieces, if known.
    pub asks_for_stream: Option<bool>,
}

impl Sent {
    /// A call that was sent `at` this time as one of `in_flight`, under a limit that was not in full use. For tests of
    /// controllers: set the other fields after.
    #[must_use]
    pub const fn new(at: Duration, in_flight: u32) -> Self {
        Self { at, in_flight, is_saturated: false, request_bytes: None, asks_for_stream: None }
    }
}

/// What a controller wants to remember of a call, opaque to everybody else.
///
/// ```
/// use tower_inflight::controller::Mark;
///
/// assert_eq!(Mark::default(), Mark(0.0));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Mark(pub f32);

/// A call that is over.
///
/// ```
/// use std::time::Duration;
/// use tower_inflight::controller::Sample;
///
/// /// How long the answer took to come, once it had begun.
/// fn streamed_for(sample: &Sample) -> Option<Duration> {
///     sample.first_byte_at.map(|first_byte_at| sample.ended_at.saturating_sub(first_byte_at))
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Sample {
    /// When it ended.
    pub ended_at: Duration,
    /// How it was sent.
    pub sent: Sent,
    /// What `on_sent` returned.
    pub mark: Mark,
    /// When the first byte of its answer came, if `on_first_byte` was told.
    pub first_byte_at: Option<Duration>,
    /// Pieces of the answer's body after the first: tokens, or groups of them. 0 for an answer that came in one piece.
    pub further_chunks: u32,
    /// Size of the answer: bytes of its body.
    pub answer_bytes: u32,
    /// How it ended.
    pub outcome: Outcome,
    /// For how long the upstream asked to be left alone.
    pub retry_after: Option<Duration>,
    /// Calls in flight, this one included.
    pub in_flight: u32,
}

impl Sample {
    /// A call whose whole answer came in one piece at its end. For tests of controllers: set the other fields after.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_inflight::Outcome;
    /// use tower_inflight::controller::{Aimd, AimdConfig, Controller, Sample, Sent};
    ///
    /// let mut aimd = Aimd::new(AimdConfig { initial_limit: 8, ..AimdConfig::default() })?;
    /// let sent = Sent::new(Duration::from_secs(1), 8);
    /// let mark = aimd.on_sent(&sent);
    /// aimd.on_end(&Sample::new(sent, mark, Duration::from_secs(2), Outcome::Overload));
    /// assert_eq!(aimd.limit(), 4);
    /// # Ok::<(), tower_inflight::controller::InvalidController>(())
    /// ```
    #[must_use]
    pub const fn new(sent: Sent, mark: Mark, ended_at: Duration, outcome: Outcome) -> Self {
        Self {
            ended_at,
            sent,
            mark,
            first_byte_at: None,
            further_chunks: 0,
            answer_bytes: 0,
            outcome,
            retry_after: None,
            in_flight: sent.in_flight,
        }
    }
}
