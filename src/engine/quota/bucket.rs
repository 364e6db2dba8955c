//! One budget per minute: a bucket that fills at a steady rate.

use std::time::Duration;

use crate::engine::time::Time;

/// What a refusal by the provider takes off the rate at which the bucket fills, and the least that is left of it.
const CUT: f64 = 0.9;
const LEAST: f64 = 0.1;
/// A rate that was cut comes back by a tenth per minute: as slowly as providers' own windows roll.
const RECOVERY_PER_S: f64 = 0.1 / 60.0;

const MINUTE: f64 = 60.0;

/// Units, where a unit is a request or a token. Below zero, what was used beyond its estimate is repaid first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bucket {
    capacity: f64,
    per_s: f64,
    balance: f64,
    /// Of the rate in force, from `LEAST` to 1; grows back.
    part: f64,
    at: Time,
}

impl Bucket {
    /// Full, and filled by `per_minute`. It holds what comes in `burst`, and never less than one unit.
    pub(crate) fn new(per_minute: u64, burst: Duration, now: Time) -> Self {
        let per_s = units(per_minute) / MINUTE;
        let capacity = (per_s * burst.as_secs_f64()).max(1.0);
        Self { capacity, per_s, balance: capacity, part: 1.0, at: now }
    }

    /// Another size. What is in it stays, as far as it fits.
    pub(crate) fn resize(&mut self, per_minute: u64, burst: Duration, now: Time) {
        self.fill(now);
        let Self { capacity, per_s, .. } = Self::new(per_minute, burst, now);
        *self = Self { capacity, per_s, balance: self.balance.min(capacity), ..*self };
    }

    pub(crate) fn capacity(&self) -> f64 {
        self.capacity
    }

    pub(crate) fn balance(&mut self, now: Time) -> f64 {
        self.fill(now);
        self.balance
    }

    /// A large charge may empty it, and none may ask for more than it holds.
    pub(crate) fn could_hold(&self, charge: u32) -> bool {
        f64::from(charge) <= self.capacity
    }

    /// When so many units will be there, if nobody takes any before. Now, if they are.
    pub(crate) fn fits_at(&mut self, charge: u32, now: Time) -> Time {
        self.fill(now);
        let missing = f64::from(charge) - self.balance;
        if missing <= SLACK {
            return now;
        }
        // Rounded up: a look a nanosecond early would find nothing changed.
        now + Duration::try_from_secs_f64(self.time_for(missing)).unwrap_or(Duration::MAX) + Duration::from_nanos(1)
    }

    /// Takes the estimate of a call.
    pub(crate) fn take(&mut self, charge: u32) {
        self.balance -= f64::from(charge);
    }

    /// Puts what was used in the place of what was taken.
    pub(crate) fn correct(&mut self, taken: u32, used: u32, now: Time) {
        // What comes back may come before what has filled it meanwhile: the sum is cut at the same capacity.
        if used > taken {
            self.fill(now);
        }
        self.balance = (self.balance + f64::from(taken) - f64::from(used)).min(self.capacity);
    }

    /// The provider said that no more than this was left then. It fills its own budget since, no slower than this one.
    pub(crate) fn lower_to(&mut self, left: u64, said_at: Time, now: Time) {
        self.fill(now);
        self.balance = self.balance.min(units(left) + now.secs_since(said_at) * self.per_s);
    }

    /// The provider has refused a call.
    pub(crate) fn slow_down(&mut self, now: Time) {
        self.fill(now);
        self.part = (self.part * CUT).max(LEAST);
    }

    #[inline]
    fn fill(&mut self, now: Time) {
        if now <= self.at {
            return;
        }
        let elapsed = now.secs_since(self.at);
        if self.part < 1.0 {
            return self.fill_and_recover(elapsed, now);
        }
        self.balance = (self.balance + elapsed * self.per_s).min(self.capacity);
        self.at = now;
    }

    #[cold]
    fn fill_and_recover(&mut self, elapsed: f64, now: Time) {
        let recovering = ((1.0 - self.part) / RECOVERY_PER_S).min(elapsed);
        let part = (self.part + RECOVERY_PER_S * recovering).min(1.0);
        let filled = f64::midpoint(self.part, part) * recovering + (elapsed - recovering);
        self.balance = (self.balance + filled * self.per_s).min(self.capacity);
        (self.part, self.at) = (part, now);
    }

    /// Seconds until so many units have come in: the inverse of what `fill` adds up.
    fn time_for(&self, missing: f64) -> f64 {
        let seconds = missing / self.per_s;
        let recovering = (1.0 - self.part) / RECOVERY_PER_S;
        let meanwhile = f64::midpoint(self.part, 1.0) * recovering;
        if seconds >= meanwhile {
            return recovering + (seconds - meanwhile);
        }
        let part = self.part;
        (f64::sqrt(part * part + 2.0 * RECOVERY_PER_S * seconds) - part) / RECOVERY_PER_S
    }
}

/// Less than this is missing only by rounding.
const SLACK: f64 = 1e-6;

#[expect(clippy::cast_precision_loss, reason = "no budget has 2^52 units")]
fn units(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BURST: Duration = Duration::from_secs(10);

    fn at(secs: f64) -> Time {
        Time::from_epoch(Duration::from_secs_f64(secs))
    }

    /// Holds 1,000 and is filled by 100 a second.
    fn bucket() -> Bucket {
        Bucket::new(6_000, BURST, at(0.0))
    }

    // Case 99.
    #[test]
    fn a_full_bucket_holds_its_capacity_and_no_unit_more() {
        let mut bucket = bucket();
        assert!(bucket.could_hold(1_000) && !bucket.could_hold(1_001));
        assert_eq!(bucket.fits_at(1_000, at(0.0)), at(0.0));
        bucket.take(1_000);
        assert!(bucket.fits_at(1_000, at(0.0)) >= at(10.0));
        assert!(bucket.fits_at(1_000, at(0.0)) <= at(10.001));
    }

    // Case 102.
    #[test]
    fn use_beyond_the_estimate_is_repaid_and_a_refund_stops_at_the_capacity() {
        let mut bucket = bucket();
        bucket.take(100);
        bucket.correct(100, 450, at(0.0));
        assert_eq!(bucket.balance(at(0.0)), 550.0);
        bucket.correct(0, 700, at(0.0));
        assert_eq!(bucket.balance(at(0.0)), -150.0);
        assert!(bucket.fits_at(1, at(0.0)) >= at(1.51));
        bucket.correct(2_000, 0, at(0.0));
        assert_eq!(bucket.balance(at(0.0)), 1_000.0);
    }

    #[test]
    fn a_refusal_slows_the_refill_by_a_tenth_which_comes_back_within_a_minute() {
        let mut bucket = Bucket::new(6_000, Duration::from_secs(1_000), at(0.0));
        bucket.take(100_000);
        bucket.slow_down(at(0.0));
        let first = bucket.balance(at(1.0));
        assert!((90.0..91.0).contains(&first), "{first}");
        let before = bucket.balance(at(60.0));
        let later = bucket.balance(at(61.0)) - before;
        assert!((99.9..100.1).contains(&later), "{later}");
    }

    #[test]
    fn the_provider_may_lower_a_balance_and_not_raise_it() {
        let mut bucket = bucket();
        bucket.lower_to(300, at(0.0), at(0.0));
        bucket.lower_to(900, at(0.0), at(0.0));
        assert_eq!(bucket.balance(at(0.0)), 300.0);
    }

    #[test]
    fn what_was_said_a_while_ago_has_grown_since() {
        let mut bucket = bucket();
        bucket.lower_to(300, at(2.0), at(5.0));
        assert_eq!(bucket.balance(at(5.0)), 600.0);
    }

    proptest! {
        #[test]
        fn what_is_said_to_fit_then_does(
            cuts in 0_u32..30, taken in 1_u32..1_000, charge in 1_u32..1_000, later in 0.0_f64..30.0,
        ) {
            let mut bucket = bucket();
            (0..cuts).for_each(|_| bucket.slow_down(at(0.0)));
            bucket.take(taken);
            let now = at(later);
            let fits_at = bucket.clone().fits_at(charge, now);
            prop_assert_eq!(bucket.clone().fits_at(charge, fits_at), fits_at);
            let early = Time::from_epoch(fits_at.since_epoch().saturating_sub(Duration::from_micros(100)));
            prop_assert!(early <= now || bucket.clone().fits_at(charge, early) > early);
        }

        #[test]
        fn nothing_is_made_or_lost_but_by_time(
            steps in prop::collection::vec((0_u32..900, 0_u32..900, 0.0_f64..3.0), 1..100),
        ) {
            let (mut bucket, mut now, mut owed) = (Bucket::new(6_000, Duration::from_secs(100_000), at(0.0)), 0.0, 0.0);
            let full = bucket.capacity();
            bucket.take(5_000_000);
            for (taken, used, later) in steps {
                bucket.take(taken);
                now += later;
                bucket.correct(taken, used, at(now));
                owed += f64::from(used);
                let expected = full - 5_000_000.0 + 100.0 * now - owed;
                prop_assert!((bucket.balance(at(now)) - expected).abs() < 1e-3);
            }
        }
    }
}
