//! How answers are judged, and what is done with their bytes while they pass.

use std::sync::Arc;

use super::classify::{Classify, ProviderClassify};
use crate::usage::CachedInput;

/// Whether the passing bytes of answers are read for their tokens, their last event and errors inside of them.
///
/// On by default: it is what tells an answer that was cut short, or an overload inside a 200, from a success, and it costs
/// some 50 ns for an event of a stream, and 0.3 µs for a short document or 1 ms for one of a megabyte. An answer without a
/// `content-type` is not read. Without it, the last events of OpenAI and Anthropic are still known, where they come in one
/// piece.
///
/// ```
/// use tower_inflight::{InflightLimitLayer, Limiter, ReadUsage};
///
/// let limiter = Limiter::builder().max_inflight(6).build()?;
/// let layer = InflightLimitLayer::new(limiter).read_usage(ReadUsage::Off);
/// # let _ = layer;
/// # Ok::<(), tower_inflight::ConfigError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReadUsage {
    /// See [`UsageTap`](crate::UsageTap) for what is read. The default.
    #[default]
    On,
    /// Answers report no usage.
    Off,
}

/// When the slot of a stream is free again.
///
/// ```
/// use tower_inflight::{InflightLimitLayer, Limiter, ReleaseOn};
///
/// let limiter = Limiter::builder().max_inflight(6).build()?;
/// let layer = InflightLimitLayer::new(limiter).release_on(ReleaseOn::TerminalEvent);
/// # let _ = layer;
/// # Ok::<(), tower_inflight::ConfigError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReleaseOn {
    /// When its body ends, fails or is dropped: the connection is free as well. The default.
    #[default]
    BodyEnd,
    /// When its last event has passed, since the upstream is idle then: `[DONE]`, `message_stop`, `response.completed`,
    /// `"done":true` and their like, or an error inside of the stream. What comes after it is passed on and judged no more.
    /// A stream without such an event holds its slot to the end of its body.
    TerminalEvent,
}

/// How a layer judges and reads answers.
#[derive(Clone)]
pub(crate) struct AnswerRules {
    pub(crate) classify: Arc<dyn Classify>,
    pub(crate) read: ReadUsage,
    pub(crate) release_on: ReleaseOn,
    pub(crate) cached_input: CachedInput,
}

impl Default for AnswerRules {
    fn default() -> Self {
        Self {
            classify: Arc::new(ProviderClassify::default()),
            read: ReadUsage::default(),
            release_on: ReleaseOn::default(),
            cached_input: CachedInput::default(),
        }
    }
}
