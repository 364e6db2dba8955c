//! The queue upstream, seen from here.

const NANOSECOND: f64 = 1e-9;

/// How long calls have waited for their first byte beyond the baseline, all together, in call-seconds.
///
/// By Little's law its growth per second is the mean number of our calls that are queued upstream. Waits that are over
/// and waits that still go on both count: with only the first, a queue hides for as long as it grows (a capacity of 1
/// behind a limit of 16 looks idle).
///
/// ```text
/// E(t) = sum over first bytes (wait - expected) + max(0, W * t - sum over waiting calls (sent + expected))
/// ```
#[derive(Debug)]
pub(super) struct Waiting {
    over: f64,
    calls: u32,
    sent: f64,
    expected: f64,
    /// Calls sent before this are not counted.
    since: f64,
}

impl Waiting {
    pub(super) const fn new() -> Self {
        Self { over: 0.0, calls: 0, sent: 0.0, expected: 0.0, since: f64::INFINITY }
    }

    pub(super) fn enter(&mut self, now: f64, expected: f64) {
        if self.since.is_infinite() {
            self.since = now;
        }
        if !self.counts(now) {
            return;
        }
        self.calls += 1;
        self.sent += now;
        self.expected += expected;
    }

    /// Gone without a first byte: nothing is learned from how long it waited.
    pub(super) fn leave(&mut self, sent: f64, expected: f64) {
        if !self.counts(sent) {
            return;
        }
        self.calls = self.calls.saturating_sub(1);
        if self.calls == 0 {
            // Rounding errors end here.
            self.sent = 0.0;
            self.expected = 0.0;
        } else {
            self.sent -= sent;
            self.expected -= expected;
        }
    }

    /// Its first byte came `excess` seconds later than expected; earlier counts too, or the estimate would be biased
    /// where waits vary by themselves.
    pub(super) fn settle(&mut self, sent: f64, excess: f64) {
        if self.counts(sent) {
            self.over += excess;
        }
    }

    /// Calls sent before now carry the queue of an older limit, and say nothing about the present one.
    pub(super) fn forget(&mut self, now: f64) {
        *self = Self { over: self.over, since: now, ..Self::new() };
    }

    /// The same with those sent right now.
    pub(super) fn forget_until(&mut self, now: f64) {
        self.forget(now + NANOSECOND);
    }

    pub(super) fn excess(&self, now: f64) -> f64 {
        self.over + (f64::from(self.calls) * now - self.sent - self.expected).max(0.0)
    }

    fn counts(&self, sent: f64) -> bool {
        sent >= self.since
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_count_while_they_go_on() {
        let mut waiting = Waiting::new();
        waiting.enter(0.0, 0.5);
        waiting.enter(1.0, 0.5);
        assert_eq!(waiting.excess(4.0), 3.5 + 2.5);
        waiting.leave(0.0, 0.5);
        waiting.settle(0.0, 3.5);
        assert_eq!(waiting.excess(4.0), 6.0, "an end changes nothing but what comes after");
        assert_eq!(waiting.excess(5.0), 7.0);
    }

    #[test]
    fn the_growth_is_the_queue() {
        let mut waiting = Waiting::new();
        let mut at = [0.0; 100];
        // A call a second, each queued for three before its normal one.
        for (second, excess) in at.iter_mut().enumerate() {
            let now = second as f64;
            waiting.enter(now, 1.0);
            if now >= 4.0 {
                waiting.leave(now - 4.0, 1.0);
                waiting.settle(now - 4.0, 3.0);
            }
            *excess = waiting.excess(now);
        }
        assert_eq!((at[90] - at[40]) / 50.0, 3.0);
    }

    #[test]
    fn a_call_that_failed_teaches_nothing() {
        let mut waiting = Waiting::new();
        waiting.enter(0.0, 0.5);
        waiting.leave(0.0, 0.5);
        assert_eq!(waiting.excess(100.0), 0.0);
    }

    #[test]
    fn forgotten_calls_stay_forgotten() {
        let mut waiting = Waiting::new();
        waiting.enter(0.0, 0.5);
        waiting.forget(10.0);
        waiting.enter(10.0, 0.5);
        waiting.leave(0.0, 0.5);
        waiting.settle(0.0, 9.5);
        assert_eq!(waiting.excess(12.0), 1.5);
    }

    #[test]
    fn calls_from_before_its_time_are_not_counted() {
        let mut waiting = Waiting::new();
        waiting.leave(3.0, 0.0);
        waiting.settle(3.0, 5.0);
        waiting.enter(10.0, 0.5);
        waiting.leave(9.0, 0.0);
        assert_eq!(waiting.excess(11.0), 0.5);
    }
}
