//! Telling a ceiling from a stray refusal.

use super::table::{COLLAPSE_REFUSALS, STRAY_CREDIT, STRAY_CREDIT_MAX};

#[derive(Debug, Default)]
pub(super) struct Refusals {
    /// Calls sent before this are of the wave that was refused last.
    last_at: f64,
    /// Waves without an acceptance between.
    waves: u32,
    /// Refusals without an acceptance between.
    in_a_row: u32,
    credit: f64,
    /// Most calls in flight at which a call was accepted, in the last round and in this one.
    accepted: [u32; 2],
}

/// What a refusal is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// One among many acceptances at the same level.
    Stray,
    /// The first word about the present level.
    Fresh,
    /// More of a wave that is known.
    Late,
}

impl Refusals {
    pub(super) fn on_accepted(&mut self, sent: f64, in_flight: u32) {
        self.accepted[1] = self.accepted[1].max(in_flight);
        if sent >= self.last_at {
            self.waves = 0;
            self.in_a_row = 0;
        }
    }

    pub(super) fn on_success(&mut self) {
        self.credit = (self.credit + STRAY_CREDIT).min(STRAY_CREDIT_MAX);
    }

    /// A call sent at `sent`, as one of `in_flight`, was refused.
    pub(super) fn on_refused(&mut self, now: f64, sent: f64, in_flight: u32) -> Refusal {
        let is_fresh = self.count_wave(now, sent);
        self.in_a_row += 1;
        if self.in_a_row == 1 && self.is_proven(in_flight) && self.credit >= 1.0 {
            self.credit -= 1.0;
            return Refusal::Stray;
        }
        if is_fresh { Refusal::Fresh } else { Refusal::Late }
    }

    /// A call that was one of so many was accepted lately.
    pub(super) fn is_proven(&self, in_flight: u32) -> bool {
        in_flight <= self.accepted[0].max(self.accepted[1])
    }

    /// The same while calls are held back: one refusal says no more than the last.
    pub(super) fn on_refused_in_trial(&mut self, now: f64, sent: f64) {
        self.count_wave(now, sent);
    }

    /// The upstream takes no call at all.
    pub(super) fn is_collapse(&self) -> bool {
        self.waves >= COLLAPSE_REFUSALS
    }

    fn count_wave(&mut self, now: f64, sent: f64) -> bool {
        let is_fresh = sent >= self.last_at;
        if is_fresh {
            self.waves += 1;
            self.last_at = now;
        }
        is_fresh
    }

    pub(super) fn end_round(&mut self) {
        self.accepted = [self.accepted[1], 0];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// After 200 successes with up to 10 calls in flight.
    fn settled() -> Refusals {
        let mut refusals = Refusals::default();
        for n in 0..200 {
            refusals.on_accepted(f64::from(n), 10);
            refusals.on_success();
        }
        refusals
    }

    #[test]
    fn one_refusal_at_an_accepted_level_is_stray() {
        assert_eq!(settled().on_refused(200.0, 199.0, 10), Refusal::Stray);
    }

    #[test]
    fn a_refusal_above_it_is_not() {
        assert_eq!(settled().on_refused(200.0, 199.0, 11), Refusal::Fresh);
    }

    #[test]
    fn the_second_in_a_row_is_not() {
        let mut refusals = settled();
        refusals.on_refused(200.0, 199.0, 10);
        assert_eq!(refusals.on_refused(200.1, 199.5, 10), Refusal::Late);
        assert_eq!(refusals.on_refused(202.0, 201.0, 10), Refusal::Fresh);
    }

    #[test]
    fn credit_is_earned_and_spent() {
        let mut refusals = settled();
        let mut stray = 0;
        for n in 0..10 {
            let now = 300.0 + f64::from(n);
            refusals.on_accepted(now, 10);
            stray += u32::from(refusals.on_refused(now + 0.5, now, 10) == Refusal::Stray);
        }
        assert_eq!(stray, 2);
        assert_eq!(Refusals::default().on_refused(1.0, 0.5, 0), Refusal::Fresh, "none at first");
    }

    #[test]
    fn a_wave_is_no_collapse_and_two_are() {
        let mut refusals = Refusals::default();
        for _ in 0..50 {
            refusals.on_refused(1.0, 0.5, 50);
        }
        assert!(!refusals.is_collapse());
        refusals.on_refused(2.0, 1.5, 1);
        assert!(refusals.is_collapse());
        refusals.on_accepted(2.5, 1);
        assert!(!refusals.is_collapse());
    }

    #[test]
    fn a_level_is_forgotten_after_two_rounds() {
        let mut refusals = settled();
        refusals.end_round();
        refusals.end_round();
        assert_eq!(refusals.on_refused(200.0, 199.0, 10), Refusal::Fresh);
    }
}
