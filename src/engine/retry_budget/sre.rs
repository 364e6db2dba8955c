//! Client-side throttling as in "Site Reliability Engineering" (O'Reilly, 2016), chapter 21, "Handling Overload".
//!
//! A retry is refused with the probability `max(0, (requests - k * accepts) / (requests + 1))`, over a window. It differs
//! from the book in two points. Only retries are refused, and a refused one is not a request: what we refuse says nothing
//! about the upstream. And a call counts when it is over, in `requests` as in `accepts`: a stream that runs for a minute
//! would count as not accepted for as long as it runs.

use std::time::Duration;

use crate::engine::rolling::Rolling;
use crate::engine::time::Time;

#[derive(Debug)]
pub(super) struct Sre {
    k: f64,
    ended: Rolling<2>,
}

const REQUESTS: usize = 0;
const ACCEPTS: usize = 1;

impl Sre {
    pub(super) fn new(k: f64, window: Duration) -> Self {
        Self { k, ended: Rolling::new(window) }
    }

    pub(super) fn admits(&mut self, luck: f64, now: Time) -> bool {
        luck >= self.refuses(now)
    }

    /// The probability, below 1.
    pub(super) fn refuses(&mut self, now: Time) -> f64 {
        let [requests, accepts] = self.ended.sums(now).map(f64::from);
        ((requests - self.k * accepts) / (requests + 1.0)).max(0.0)
    }

    pub(super) fn on_end(&mut self, is_accepted: bool, now: Time) {
        self.ended.add(REQUESTS, now);
        if is_accepted {
            self.ended.add(ACCEPTS, now);
        }
    }
}
