//! Every call is counted once when it is offered and once when it leaves.

use super::outcome::Outcome;

/// Why a call was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    QueueFull,
    QueueTimeout,
    Deadline,
    Paused,
    Short,
    TooLarge,
    Busy,
    Closed,
    OverBudget,
    RunOver,
    BreakerOpen,
    RetryBudget,
    DeadlineUnreachable,
}

impl Reason {
    pub(crate) const ALL: [Self; 13] = [
        Self::QueueFull,
        Self::QueueTimeout,
        Self::Deadline,
        Self::Paused,
        Self::Short,
        Self::TooLarge,
        Self::Busy,
        Self::Closed,
        Self::OverBudget,
        Self::RunOver,
        Self::BreakerOpen,
        Self::RetryBudget,
        Self::DeadlineUnreachable,
    ];

    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::QueueFull => "queue_full",
            Self::QueueTimeout => "queue_timeout",
            Self::Deadline => "deadline",
            Self::Paused => "paused",
            Self::Short => "short",
            Self::TooLarge => "too_large",
            Self::Busy => "busy",
            Self::Closed => "closed",
            Self::OverBudget => "over_budget",
            Self::RunOver => "run_over",
            Self::BreakerOpen => "breaker_open",
            Self::RetryBudget => "retry_budget",
            Self::DeadlineUnreachable => "deadline_unreachable",
        }
    }
}

/// offered = outcomes + refused + abandoned + in flight + waiting, at every instant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    pub(crate) offered: u64,
    pub(crate) outcomes: [u64; Outcome::ALL.len()],
    pub(crate) refused: [u64; Reason::ALL.len()],
    /// Their callers gave up before they were sent.
    pub(crate) abandoned: u64,
}
