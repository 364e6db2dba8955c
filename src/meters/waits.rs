//! Seconds that calls have waited, by what they waited for.

use metrics::Counter;

use super::Lazy;
use crate::engine::waits::WaitsFor;
use crate::sync::atomic::{AtomicU64, Ordering};

/// Counters of a lane hold whole numbers: what is counted here are whole seconds, and the rest of one comes with the next.
#[derive(Default)]
pub(super) struct WaitCounters {
    /// Noted, and not yet published.
    seconds: [AtomicU64; WaitsFor::ALL.len()],
    counters: [Lazy<Counter>; WaitsFor::ALL.len()],
}

impl WaitCounters {
    pub(super) fn note(&self, seconds: [u64; WaitsFor::ALL.len()]) {
        for (noted, seconds) in self.seconds.iter().zip(seconds) {
            noted.fetch_add(seconds, Ordering::Relaxed);
        }
    }

    pub(super) fn publish(&self, make: impl Fn(WaitsFor) -> Counter) {
        for cause in WaitsFor::ALL {
            let seconds = self.seconds[cause as usize].swap(0, Ordering::Relaxed);
            if seconds > 0 {
                self.counters[cause as usize].get_or_make(|| make(cause)).increment(seconds);
            }
        }
    }
}
