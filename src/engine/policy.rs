//! The rules that the engine reads: plain numbers, already checked and clamped by the configuration.

use std::time::Duration;

use super::forecast::PredictDeadlines;
use super::pause::PauseBounds;
use super::quota::WhenShort;
use super::shares::Shares;

/// What one lane allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LanePolicy {
    pub(crate) slots: SlotPolicy,
    /// Of the limit, by class.
    pub(crate) shares: Option<Shares>,
    pub(crate) queue_timeout: Duration,
    /// 0 = no waiting.
    pub(crate) max_queue: u32,
    pub(crate) max_queue_per_class: Option<u32>,
    pub(crate) max_queue_per_tenant: Option<u32>,
    /// `None` = waiters stay in their own class. Never zero.
    pub(crate) aging_step: Option<Duration>,
    /// Never zero, the least never above the most.
    pub(crate) pauses: PauseBounds,
    /// Whether calls are refused whose deadlines cannot be kept.
    pub(crate) predict_deadlines: PredictDeadlines,
    /// Whether a call waits for tokens.
    pub(crate) when_short: WhenShort,
}

/// How many slots a lane has, or the lanes of one endpoint and kind have together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SlotPolicy {
    /// Most slots in use at once; 0 = unlimited. A controller moves the limit below it.
    pub(crate) limit: u32,
    /// Slots for interactive callers only, at most one fewer than the limit at any moment.
    pub(crate) reserve: u32,
}
