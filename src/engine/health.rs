//! Whether the upstream has been answering lately.

use std::time::Duration;

use super::outcome::{Outcome, OutcomeKind};
use super::time::Time;

/// Two halves of this length are remembered, the present one and the one before.
const HALF: Duration = Duration::from_secs(30);
/// Fewer bad answers than this are an accident.
const MIN_BAD: u32 = 3;
/// One in so many is bad: far above what a healthy upstream does, far below an outage.
const BAD_SHARE: u32 = 5;

/// Answers of the last half to whole minute, good and bad.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Health {
    now: Half,
    before: Half,
    turns_at: Time,
}

#[derive(Clone, Copy, Debug, Default)]
struct Half {
    good: u32,
    bad: u32,
}

impl Health {
    /// Overloads and failures are bad; what says nothing about the upstream does not count.
    #[inline]
    pub(crate) fn note(&mut self, outcome: Outcome, now: Time) {
        self.roll(now);
        match outcome.kind() {
            OutcomeKind::Success => self.now.good += 1,
            OutcomeKind::Overload | OutcomeKind::Failure => self.now.bad += 1,
            OutcomeKind::Neutral | OutcomeKind::Cancelled => {}
        }
    }

    /// At least three answers in the last minute were refusals or failures, and at least one in five.
    pub(crate) fn is_degraded(&mut self, now: Time) -> bool {
        self.roll(now);
        let bad = self.now.bad + self.before.bad;
        let all = bad + self.now.good + self.before.good;
        bad >= MIN_BAD && bad * BAD_SHARE >= all
    }

    #[inline]
    fn roll(&mut self, now: Time) {
        if now >= self.turns_at {
            self.turn(now);
        }
    }

    #[cold]
    fn turn(&mut self, now: Time) {
        let is_recent = now < self.turns_at + HALF;
        self.before = if is_recent { self.now } else { Half::default() };
        self.now = Half::default();
        self.turns_at = if is_recent { self.turns_at + HALF } else { now + HALF };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(secs: u64) -> Time {
        Time::from_epoch(Duration::from_secs(secs))
    }

    #[test]
    fn one_answer_in_five_that_is_bad_is_a_degraded_upstream() {
        let mut health = Health::default();
        for n in 0..15 {
            health.note(if n % 5 == 0 { Outcome::Stalled } else { Outcome::Success }, at(n));
        }
        assert!(health.is_degraded(at(15)));
        health.note(Outcome::Success, at(15));
        assert!(!health.is_degraded(at(15)));
    }

    #[test]
    fn two_failures_are_an_accident() {
        let mut health = Health::default();
        health.note(Outcome::Transport, at(0));
        health.note(Outcome::Unavailable, at(0));
        assert!(!health.is_degraded(at(0)));
    }

    #[test]
    fn what_says_nothing_about_the_upstream_does_not_count() {
        let mut health = Health::default();
        for outcome in [Outcome::ClientError, Outcome::Quota, Outcome::Refused, Outcome::Cancelled] {
            (0..10).for_each(|_| health.note(outcome, at(0)));
        }
        assert!(!health.is_degraded(at(1)));
    }

    #[test]
    fn it_is_forgotten_after_a_minute_also_when_nobody_has_looked() {
        let mut health = Health::default();
        (0..10).for_each(|_| health.note(Outcome::Overload, at(0)));
        assert!(health.is_degraded(at(59)));
        assert!(!health.is_degraded(at(60)));
    }

    #[test]
    fn it_is_forgotten_after_a_minute() {
        let mut health = Health::default();
        (0..10).for_each(|_| health.note(Outcome::Overload, at(0)));
        assert!(health.is_degraded(at(31)));
        health.note(Outcome::Success, at(31));
        assert!(!health.is_degraded(at(62)));
        assert!(!Health::is_degraded(&mut { health }, at(1_000)));
    }
}
