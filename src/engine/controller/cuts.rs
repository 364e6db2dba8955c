//! When an answer is a reason to lower a limit.

use std::time::Duration;

use super::Sample;
use crate::engine::outcome::Outcome;

/// Tells events apart: what many calls say about one event counts once.
#[derive(Debug)]
pub(super) struct Cuts {
    /// At most one cut in this time, however much news there is.
    window: Duration,
    last_at: Option<Duration>,
    /// Successes since the last transport failure.
    intact: u32,
}

impl Cuts {
    pub(super) const fn new(window: Duration) -> Self {
        // As if all had been well before: the first connection may break too.
        Self { window, last_at: None, intact: u32::MAX }
    }

    /// The call was sent under the present limit. One sent before the last cut says nothing about what came after it.
    pub(super) fn is_news(&self, sent_at: Duration) -> bool {
        self.last_at.is_none_or(|cut_at| sent_at > cut_at)
    }

    /// Whether this end of a call is a reason for a cut of `limit`, which is then taken as done.
    pub(super) fn is_due(&mut self, sample: &Sample, limit: u32) -> bool {
        let is_reason = match sample.outcome {
            Outcome::Success => {
                self.intact = self.intact.saturating_add(1);
                false
            }
            Outcome::Transport => !self.forgives(limit),
            Outcome::Overload | Outcome::Stalled | Outcome::Unavailable => true,
            // The rest is about the request, the account or the caller; a 500 is for the breaker.
            _ => false,
        };
        let is_due = is_reason && self.is_news(sample.sent.at) && self.is_past_window(sample.ended_at);
        if is_due {
            self.on_cut(sample.ended_at);
        }
        is_due
    }

    /// The limit was lowered for another reason.
    pub(super) fn on_cut(&mut self, now: Duration) {
        self.last_at = Some(now);
    }

    /// An idle connection may be closed under the request that reuses it. One such failure after a limit's worth of
    /// successes is no news about load; a second one before as many are through is.
    fn forgives(&mut self, limit: u32) -> bool {
        let is_stray = self.intact >= limit;
        self.intact = 0;
        is_stray
    }

    fn is_past_window(&self, now: Duration) -> bool {
        self.last_at.is_none_or(|cut_at| now.saturating_sub(cut_at) >= self.window)
    }
}
