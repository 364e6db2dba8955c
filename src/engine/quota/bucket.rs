//! One budget per minute: a bucket that fills at a steady rate.

use std::time::Duration;

use crate::engine::time::Time;

/// What a refusal by the provider takes off the rate at which the bucket fills, and the least that is left of it.
const CUT: f64 = 0.9;
const LEAST: f64 = 0.1;
/// A rate that was cut comes back by a tenth per minute: as slowly as providers' own windows roll.
const RECOVERY_PER_S: f64 = 0.1 / 60.0;
/// A size that the provider named counts for this long: a lane in use hears it anew with each answer.
pub(super) const KEPT: Duration = Duration::from_secs(300);

const MINUTE: f64 = 60.0;

/// Units, where a unit is a request or a token. Below zero, what was used beyond its estimate is repaid first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bucket {
    configured: Size,
    /// In force: less where the provider named less.
    size: Size,
    /// `NEVER`: it is the configured one.
    sized_until: Time,
    balance: f64,
    /// Of the rate in force, from `LEAST` to 1; grows back.
    part: f64,
    at: Time,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Size {
    capacity: f64,
    per_s: f64,
}

impl Size {
    fn of(per_minute: u64, burst: Duration) -> Self {
        let per_s = units(per_minute) / MINUTE;
        Self { capacity: (per_s * burst.as_secs_f64()).max(1.0), per_s }
    }
}

impl Bucket {
    /// Full, and filled by `per_minute`. It holds what comes in `burst`, and never less than one unit.
    pub(crate) fn new(per_minute: u64, burst: Duration, now: Time) -> Self {
        let size = Size::of(per_minute, burst);
        Self { configured: size, size, sized_until: Time::NEVER, balance: size.capacity, part: 1.0, at: now }
    }

    /// Configured anew. What is in it stays, as far as it fits.
    pub(crate) fn resize(&mut self, per_minute: u64, burst: Duration, now: Time) {
        self.fill(now);
        let size = Size::of(per_minute, burst);
        let balance = self.balance.min(size.capacity);
        *self = Self { configured: size, size, sized_until: Time::NEVER, balance, ..*self };
    }

    /// The provider said then that it admits so many per minute, which is heeded as far as it is less than configured. It
    /// may be nonsense: nine tenths are the most that it can take away, and not for ever.
    pub(crate) fn size_to(&mut self, per_minute: u64, said_at: Time, now: Time) {
        self.fill(now);
        let is_outdated = said_at + KEPT <= now || (self.is_sized() && said_at + KEPT < self.sized_until);
        // Who admits nothing answers nothing.
        if per_minute == 0 || is_outdated {
            return;
        }
        let part = (units(per_minute) / (self.configured.per_s * MINUTE)).max(LEAST);
        if part >= 1.0 {
            (self.size, self.sized_until) = (self.configured, Time::NEVER);
            return;
        }
        let Size { capacity, per_s } = self.configured;
        self.size = Size { capacity: (capacity * part).max(1.0), per_s: per_s * part };
        self.sized_until = said_at + KEPT;
        self.balance = self.balance.min(self.size.capacity);
    }

    fn is_sized(&self) -> bool {
        self.sized_until != Time::NEVER
    }

    /// Of the configured rate, as the provider has it.
    pub(crate) fn size(&mut self, now: Time) -> f64 {
        self.fill(now);
        self.size.per_s / self.configured.per_s
    }

    /// As configured.
    pub(crate) fn capacity(&self) -> f64 {
        self.configured.capacity
    }

    pub(crate) fn balance(&mut self, now: Time) -> f64 {
        self.fill(now);
        self.balance
    }

    /// Nothing was used and nothing was said that is to be remembered.
    pub(crate) fn is_full(&mut self, now: Time) -> bool {
        self.balance(now) >= self.configured.capacity
    }

    /// A large charge may empty it, and none may ask for more than it holds.
    pub(crate) fn could_hold(&self, charge: u32) -> bool {
        f64::from(charge) <= self.configured.capacity
    }

    /// Whether so many units are there.
    #[inline]
    pub(crate) fn fits_now(&mut self, charge: u32, now: Time) -> bool {
        // Also where enough is there without: what overflowed before a charge must not fill up what that takes.
        self.fill(now);
        f64::from(charge) <= self.balance || (self.could_hold(charge) && self.missing(0, charge) <= SLACK)
    }

    /// When there will be enough for a charge after others that are taken before, if nobody takes any meanwhile. Now, if
    /// there is.
    pub(crate) fn fits_after(&mut self, before: u32, charge: u32, now: Time) -> Time {
        self.fill(now);
        let fits_at = self.fits_in_this_size(before, charge, now);
        if fits_at < self.sized_until || !self.is_sized() {
            return fits_at;
        }
        let mut later = *self;
        later.fill(self.sized_until);
        later.fits_in_this_size(before, charge, self.sized_until)
    }

    /// A charge above what it holds since it was made smaller goes when it is full, or it would wait in vain. It is repaid
    /// before anybody else goes, so the rate is kept.
    fn missing(&self, before: u32, charge: u32) -> f64 {
        f64::from(before) + least(f64::from(charge), self.size.capacity) - self.balance
    }

    fn fits_in_this_size(&self, before: u32, charge: u32, now: Time) -> Time {
        let missing = self.missing(before, charge);
        if missing <= SLACK {
            return now;
        }
        // Rounded up: a look a nanosecond early would find nothing changed.
        now + Duration::try_from_secs_f64(self.time_for(missing)).unwrap_or(Duration::MAX) + Duration::from_nanos(1)
    }

    /// Takes the estimate of a call.
    #[inline]
    pub(crate) fn take(&mut self, charge: u32) {
        self.balance -= f64::from(charge);
    }

    /// Puts what was used in the place of what was taken.
    #[inline]
    pub(crate) fn correct(&mut self, taken: u32, used: u32, now: Time) {
        // What comes back may come before what has filled it meanwhile: the sum is cut at the same capacity.
        if used > taken {
            self.fill(now);
        }
        self.balance = least(self.balance + f64::from(taken) - f64::from(used), self.size.capacity);
    }

    /// The provider said that no more than this was left then. It fills its own budget since, no slower than this one.
    pub(crate) fn lower_to(&mut self, left: u64, said_at: Time, now: Time) {
        self.fill(now);
        self.balance = self.balance.min(units(left) + now.secs_since(said_at) * self.size.per_s);
    }

    /// The provider has refused a call.
    pub(crate) fn slow_down(&mut self, now: Time) {
        self.fill(now);
        self.part = (self.part * CUT).max(LEAST);
    }

    #[inline]
    fn fill(&mut self, now: Time) {
        if now >= self.sized_until {
            self.come_back();
        }
        self.fill_in_this_size(now);
    }

    #[inline(always)]
    fn fill_in_this_size(&mut self, now: Time) {
        if now <= self.at {
            return;
        }
        let elapsed = now.secs_since(self.at);
        if self.part < 1.0 {
            return self.fill_and_recover(elapsed, now);
        }
        self.balance = least(self.balance + elapsed * self.size.per_s, self.size.capacity);
        self.at = now;
    }

    /// What the provider said has been said too long ago.
    #[cold]
    fn come_back(&mut self) {
        let until = std::mem::replace(&mut self.sized_until, Time::NEVER);
        self.fill_in_this_size(until);
        self.size = self.configured;
    }

    #[cold]
    fn fill_and_recover(&mut self, elapsed: f64, now: Time) {
        let recovering = ((1.0 - self.part) / RECOVERY_PER_S).min(elapsed);
        let part = (self.part + RECOVERY_PER_S * recovering).min(1.0);
        let filled = f64::midpoint(self.part, part) * recovering + (elapsed - recovering);
        self.balance = (self.balance + filled * self.size.per_s).min(self.size.capacity);
        (self.part, self.at) = (part, now);
    }

    /// Seconds until so many units have come in: the inverse of what `fill` adds up.
    fn time_for(&self, missing: f64) -> f64 {
        let seconds = missing / self.size.per_s;
        let recovering = (1.0 - self.part) / RECOVERY_PER_S;
        let meanwhile = f64::midpoint(self.part, 1.0) * recovering;
        if seconds >= meanwhile {
            return recovering + (seconds - meanwhile);
        }
        let part = self.part;
        (f64::sqrt(part * part + 2.0 * RECOVERY_PER_S * seconds) - part) / RECOVERY_PER_S
    }
}

/// `f64::min` looks for numbers that are none, and there are none here.
#[inline]
fn least(a: f64, b: f64) -> f64 {
    if a < b { a } else { b }
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
        assert_eq!(bucket.fits_after(0, 1_000, at(0.0)), at(0.0));
        bucket.take(1_000);
        assert!(bucket.fits_after(0, 1_000, at(0.0)) >= at(10.0));
        assert!(bucket.fits_after(0, 1_000, at(0.0)) <= at(10.001));
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
        assert!(bucket.fits_after(0, 1, at(0.0)) >= at(1.51));
        bucket.correct(2_000, 0, at(0.0));
        assert_eq!(bucket.balance(at(0.0)), 1_000.0);
    }

    #[test]
    fn what_overflowed_before_a_charge_does_not_refill_it() {
        let mut bucket = bucket();
        assert_eq!(bucket.fits_after(0, 900, at(50.0)), at(50.0));
        bucket.take(900);
        assert_eq!(bucket.balance(at(50.0)), 100.0);
        assert_eq!(bucket.balance(at(52.0)), 300.0);
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

    #[test]
    fn a_size_that_the_provider_names_counts_where_it_is_less_than_configured() {
        let mut bucket = bucket();
        bucket.size_to(3_000, at(0.0), at(0.0));
        assert_eq!((bucket.balance(at(0.0)), bucket.size(at(0.0))), (500.0, 0.5));
        bucket.take(500);
        assert_eq!(bucket.balance(at(2.0)), 100.0);
        bucket.size_to(60_000, at(2.0), at(2.0));
        assert_eq!((bucket.balance(at(3.0)), bucket.size(at(3.0))), (200.0, 1.0));
    }

    #[test]
    fn a_size_that_is_not_named_again_is_forgotten_after_five_minutes() {
        let mut bucket = bucket();
        bucket.size_to(3_000, at(10.0), at(20.0));
        assert_eq!((bucket.size(at(309.9)), bucket.is_full(at(309.9))), (0.5, false));
        assert_eq!((bucket.size(at(310.0)), bucket.balance(at(311.0))), (1.0, 600.0));
        bucket.size_to(3_000, at(10.0), at(311.0));
        assert_eq!(bucket.size(at(311.0)), 1.0, "said too long ago");
    }

    #[test]
    fn of_two_sizes_the_one_that_was_named_later_counts() {
        let mut bucket = bucket();
        bucket.size_to(3_000, at(5.0), at(6.0));
        bucket.size_to(1_200, at(4.0), at(7.0));
        assert_eq!(bucket.size(at(7.0)), 0.5);
    }

    #[test]
    fn a_call_above_the_size_that_is_left_goes_when_that_is_full_and_is_repaid() {
        let mut bucket = bucket();
        bucket.size_to(1, at(0.0), at(0.0));
        assert_eq!((bucket.balance(at(0.0)), bucket.size(at(0.0))), (100.0, LEAST));
        assert!(bucket.could_hold(900));
        assert_eq!(bucket.fits_after(0, 900, at(0.0)), at(0.0));
        bucket.take(900);
        assert!(bucket.fits_after(0, 1, at(0.0)) >= at(80.1) && bucket.fits_after(0, 1, at(0.0)) <= at(80.2));
        // After five minutes it fills ten times as fast: 3,000 are there by then, and 100 of them are kept.
        bucket.take(6_000);
        assert!(bucket.fits_after(0, 0, at(0.0)) >= at(338.0) && bucket.fits_after(0, 0, at(0.0)) <= at(338.1));
    }

    proptest! {
        #[test]
        fn whatever_the_provider_says_a_size_is_from_a_tenth_to_all_of_it_and_nobody_waits_for_ever(
            steps in prop::collection::vec((any::<u64>(), 0_u32..70, 0_u32..900, 0.0_f64..60.0), 1..100),
        ) {
            let (mut bucket, mut now) = (bucket(), 0.0);
            for (named, digits, taken, later) in steps {
                bucket.size_to(named.checked_shr(digits).unwrap_or(0), at(now), at(now));
                prop_assert!((100.0..=1_000.0).contains(&bucket.size.capacity));
                prop_assert!((10.0..=100.0).contains(&bucket.size.per_s));
                prop_assert!(bucket.balance(at(now)) <= bucket.size.capacity);
                let fits_at = bucket.fits_after(0, 1_000, at(now));
                prop_assert!(fits_at <= at(now + 301.0 + 10.0), "{fits_at:?}");
                if fits_at == at(now) {
                    bucket.take(taken);
                }
                now += later;
            }
            prop_assert_eq!(bucket.size(at(now + 300.0)), 1.0);
        }

        #[test]
        fn what_is_said_to_fit_then_does(
            cuts in 0_u32..30, named in 1_u64..8_000, taken in 1_u32..1_000, charge in 1_u32..1_000,
            later in 0.0_f64..400.0,
        ) {
            let mut bucket = bucket();
            (0..cuts).for_each(|_| bucket.slow_down(at(0.0)));
            bucket.size_to(named, at(0.0), at(0.0));
            bucket.take(taken);
            let now = at(later);
            let fits_at = bucket.clone().fits_after(0, charge, now);
            prop_assert_eq!(bucket.clone().fits_after(0, charge, fits_at), fits_at);
            let early = Time::from_epoch(fits_at.since_epoch().saturating_sub(Duration::from_micros(100)));
            prop_assert!(early <= now || bucket.clone().fits_after(0, charge, early) > early);
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
