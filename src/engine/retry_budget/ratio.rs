//! Retries as a fraction of first attempts, over a window, and a few besides.
//!
//! The shape of the budgets of Finagle (`RetryBudget`) and linkerd: `retries <= ratio * first + per_second * window`.

use std::time::Duration;

use super::Attempt;
use crate::engine::rolling::Rolling;
use crate::engine::time::Time;

#[derive(Debug)]
pub(super) struct Ratio {
    ratio: f64,
    /// Retries within the window that no first attempt has to pay for.
    floor: f64,
    sent: Rolling<2>,
}

impl Ratio {
    pub(super) fn new(ratio: f64, per_second: f64, window: Duration) -> Self {
        Self { ratio, floor: per_second * window.as_secs_f64(), sent: Rolling::new(window) }
    }

    /// One more than the `waiting` ones, which are as good as sent.
    pub(super) fn admits(&mut self, waiting: u32, now: Time) -> bool {
        let [first, retries] = self.sent.sums(now);
        f64::from(retries) + f64::from(waiting) + 1.0 <= f64::from(first) * self.ratio + self.floor
    }

    pub(super) fn on_sent(&mut self, attempt: Attempt, now: Time) {
        self.sent.add(attempt as usize, now);
    }
}
