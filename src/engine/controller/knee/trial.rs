//! Finding out, one call at a time, whether the upstream is back.

use super::table::{TRIAL_FIRST, TRIAL_JITTER, TRIAL_MAX_FAILED, TRIAL_MAX_REFUSED};
use crate::engine::jitter::Jitter;

/// While a trial goes on, each call that is sent holds back the next one for a while, longer each time.
#[derive(Debug)]
pub(super) struct Trial {
    since: f64,
    next_at: f64,
    backoff: f64,
    max: f64,
}

impl Trial {
    pub(super) fn after_refusals(now: f64) -> Self {
        Self { since: now, next_at: now + 0.5 * TRIAL_FIRST, backoff: TRIAL_FIRST, max: TRIAL_MAX_REFUSED }
    }

    pub(super) fn after_failures(now: f64) -> Self {
        Self { since: now, next_at: now + TRIAL_FIRST, backoff: TRIAL_FIRST, max: TRIAL_MAX_FAILED }
    }

    /// Only the answer to a call of the trial ends it.
    pub(super) fn includes(&self, sent_at: f64) -> bool {
        sent_at >= self.since
    }

    pub(super) fn next_at(&self) -> f64 {
        self.next_at
    }

    pub(super) fn on_sent(&mut self, now: f64, jitter: &mut Jitter) {
        let stretch = 1.0 + TRIAL_JITTER * (2.0 * jitter.fraction() - 1.0);
        self.next_at = now + self.backoff * stretch;
        self.backoff = (2.0 * self.backoff).min(self.max);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gaps(mut trial: Trial, count: usize) -> Vec<f64> {
        let mut jitter = Jitter::new(1);
        let mut gap = || {
            let now = trial.next_at();
            trial.on_sent(now, &mut jitter);
            trial.next_at() - now
        };
        (0..count).map(|_| gap()).collect()
    }

    #[test]
    fn gaps_double_up_to_their_maximum() {
        let refused = gaps(Trial::after_refusals(10.0), 8);
        assert!(refused[0] <= 0.6 && (2.4..=3.6).contains(&refused[7]), "{refused:?}");
        let failed = gaps(Trial::after_failures(10.0), 8);
        assert!(failed[0] <= 0.6 && (12.0..=18.0).contains(&failed[7]), "{failed:?}");
    }

    #[test]
    fn only_its_own_calls_end_it() {
        let trial = Trial::after_failures(10.0);
        assert!(!trial.includes(9.9));
        assert!(trial.includes(10.5));
    }
}
