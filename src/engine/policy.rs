//! The rules that the engine reads: plain numbers, already checked and clamped by the configuration.

use std::time::Duration;

/// What one lane allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LanePolicy {
    /// Most slots in use at once; 0 = unlimited.
    pub(crate) limit: u32,
    /// Slots for interactive callers only. Below `limit`, and 0 when there is none.
    pub(crate) reserve: u32,
    pub(crate) queue_timeout: Duration,
    /// 0 = no waiting.
    pub(crate) max_queue: u32,
    pub(crate) max_queue_per_class: Option<u32>,
    pub(crate) max_queue_per_tenant: Option<u32>,
    /// `None` = waiters stay in their own class. Never zero.
    pub(crate) aging_step: Option<Duration>,
    /// Never zero, never above `max_pause`.
    pub(crate) min_pause: Duration,
    pub(crate) max_pause: Duration,
}

/// What the lanes of one endpoint and kind may use together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PoolPolicy {
    /// 0 = no cap.
    pub(crate) limit: u32,
    /// Slots for interactive callers only. Below `limit`, and 0 when there is none.
    pub(crate) reserve: u32,
}
