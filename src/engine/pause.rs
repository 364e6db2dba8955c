//! The gate that closes when the upstream says "not before T", and opens step by step.

use std::time::Duration;

use super::outcome::Pause;
use super::time::Time;

/// A tenth of a pause, but no longer than this, is how much later than asked the gate opens at most, and how long it then
/// takes to open fully: long enough to spread the calls of several processes, short enough that nobody minds.
const SPREAD: Duration = Duration::from_secs(1);
const SPREAD_PART: u32 = 10;

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Gate {
    closed_until: Time,
    /// From here on as many may pass as the limit allows.
    ramped_at: Time,
    /// When the gate was last closed for our own minimum, and for how long.
    minimum: Option<(Time, Duration)>,
}

/// Longest and shortest pause, as configured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PauseBounds {
    pub(crate) min: Duration,
    pub(crate) max: Duration,
}

impl Gate {
    #[inline]
    pub(crate) fn is_open(&self, now: Time) -> bool {
        now >= self.closed_until
    }

    /// When the gate opens, if it is closed.
    #[inline]
    pub(crate) fn opens_at(&self, now: Time) -> Option<Time> {
        (!self.is_open(now)).then_some(self.closed_until)
    }

    /// How many may be in flight at `now` under `limit`: none while it is closed, one when it opens, then evenly more.
    #[inline]
    pub(crate) fn lets_pass(&self, limit: u32, now: Time) -> u32 {
        if self.is_at_rest(now) { limit } else { self.lets_pass_ramping(limit, now) }
    }

    /// Lets pass whatever the limit allows.
    #[inline]
    pub(crate) fn is_at_rest(&self, now: Time) -> bool {
        now >= self.ramped_at
    }

    fn ramp(&self) -> Duration {
        self.ramped_at.since(self.closed_until)
    }

    #[cold]
    fn lets_pass_ramping(&self, limit: u32, now: Time) -> u32 {
        if !self.is_open(now) {
            return 0;
        }
        let passed =
            now.since(self.closed_until).as_nanos() * u128::from(limit.saturating_sub(1)) / self.ramp().as_nanos();
        limit.min(1 + u32::try_from(passed).unwrap_or(u32::MAX - 1))
    }

    /// When it next lets more pass by itself.
    pub(crate) fn next_step(&self, limit: Option<u32>, now: Time) -> Option<Time> {
        if !self.is_open(now) {
            return Some(self.closed_until);
        }
        let limit = limit.filter(|_| !self.is_at_rest(now))?;
        let ramp = self.ramp();
        let (passing, steps) = (self.lets_pass(limit, now), limit.saturating_sub(1).max(1));
        // Rounded up: a step called a nanosecond early would find nothing to do.
        let after = (ramp.as_nanos() * u128::from(passing)).div_ceil(u128::from(steps));
        Some(self.closed_until + Duration::from_nanos(u64::try_from(after).unwrap_or(u64::MAX)).min(ramp))
    }

    /// Closes the gate as the answer to a call granted at `granted_at` asked, and a little longer: by `luck`, from 0 to 1,
    /// of what may be added. The later of two ends stands.
    ///
    /// Our own minimum doubles only on evidence from calls granted after it was last set: the other answers of the wave
    /// that set it say nothing new.
    pub(crate) fn close(&mut self, pause: Pause, granted_at: Time, now: Time, bounds: PauseBounds, luck: f64) {
        let PauseBounds { min, max } = bounds;
        let length = match pause {
            Pause::For(length) => length.min(max),
            Pause::Minimum => match self.minimum {
                Some((set_at, length)) if granted_at < set_at => length,
                last => {
                    let length = last.map_or(min, |(_, length)| (length * 2).min(max));
                    self.minimum = Some((now, length));
                    length
                }
            },
        };
        if now + length > self.closed_until {
            let ramp = (length / SPREAD_PART).min(SPREAD);
            self.closed_until = now + length + ramp.mul_f64(luck);
            self.ramped_at = self.closed_until + ramp;
        }
    }

    /// The upstream did its work for a call granted at `granted_at`: the next minimum starts small again.
    pub(crate) fn forget_refusals(&mut self, granted_at: Time) {
        if self.minimum.is_some_and(|(set_at, _)| granted_at >= set_at) {
            self.minimum = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BOUNDS: PauseBounds = PauseBounds { min: Duration::from_secs(1), max: Duration::from_secs(600) };

    fn at(secs: f64) -> Time {
        Time::from_epoch(Duration::from_secs_f64(secs))
    }

    /// Closed at `now` by a call granted at 0 s, for as long as it says and no longer.
    fn close(gate: &mut Gate, pause: Pause, now: f64) {
        gate.close(pause, at(0.0), at(now), BOUNDS, 0.0);
    }

    fn for_secs(secs: u64) -> Pause {
        Pause::For(Duration::from_secs(secs))
    }

    // Case 72.
    #[test]
    fn the_later_of_two_pauses_stands() {
        let mut gate = Gate::default();
        close(&mut gate, for_secs(300), 1.0);
        close(&mut gate, for_secs(1), 1.01);
        gate.forget_refusals(at(0.0));
        assert_eq!(gate.opens_at(at(2.0)), Some(at(301.0)));
        close(&mut gate, for_secs(400), 2.0);
        assert_eq!(gate.opens_at(at(2.0)), Some(at(402.0)));
    }

    // Case 71.
    #[test]
    fn an_absurd_pause_is_capped_and_never_short() {
        let mut gate = Gate::default();
        close(&mut gate, Pause::For(Duration::MAX), 1.0);
        assert_eq!(gate.opens_at(at(1.0)), Some(at(601.0)));
    }

    // Case 70.
    #[test]
    fn our_own_minimum_doubles_once_per_wave_and_starts_anew_after_a_success() {
        let mut gate = Gate::default();
        close(&mut gate, Pause::Minimum, 1.0);
        close(&mut gate, Pause::Minimum, 1.0);
        assert_eq!(gate.opens_at(at(1.5)), Some(at(2.0)));
        gate.close(Pause::Minimum, at(2.0), at(2.1), BOUNDS, 0.0);
        assert_eq!(gate.opens_at(at(2.5)), Some(at(4.1)));
        gate.forget_refusals(at(5.0));
        gate.close(Pause::Minimum, at(6.0), at(6.0), BOUNDS, 0.0);
        assert_eq!(gate.opens_at(at(6.5)), Some(at(7.0)));
    }

    // Case 97.
    #[test]
    fn it_opens_for_one_and_within_a_second_for_all() {
        let mut gate = Gate::default();
        close(&mut gate, for_secs(30), 0.0);
        assert_eq!(gate.lets_pass(16, at(29.999_999)), 0);
        assert_eq!(gate.lets_pass(16, at(30.0)), 1);
        assert_eq!(gate.lets_pass(16, at(30.5)), 8);
        assert_eq!(gate.lets_pass(16, at(31.0)), 16);
        assert_eq!(gate.next_step(Some(16), at(31.0)), None);
    }

    #[test]
    fn a_short_pause_has_a_short_ramp() {
        let mut gate = Gate::default();
        close(&mut gate, Pause::For(Duration::from_millis(120)), 1.0);
        assert_eq!(gate.lets_pass(8, at(1.132)), 8);
    }

    proptest! {
        // Case 97.
        #[test]
        fn luck_only_adds_time_and_never_more_than_a_second(
            pauses in prop::collection::vec((0.0_f64..700.0, 0.0_f64..2.0, 0.0_f64..1.0), 1..20),
        ) {
            let (mut gate, mut now, mut asked) = (Gate::default(), 0.0, 0.0_f64);
            for (length, later, luck) in pauses {
                now += later;
                gate.close(Pause::For(Duration::from_secs_f64(length)), at(0.0), at(now), BOUNDS, luck);
                asked = asked.max(now + length.min(600.0));
                if let Some(opens_at) = gate.opens_at(at(now)) {
                    let opens_at = opens_at.since_epoch().as_secs_f64();
                    prop_assert!(opens_at >= asked - 1e-6 && opens_at <= asked + 1.0 + 1e-6);
                }
            }
        }

        #[test]
        fn each_step_it_names_lets_more_pass_until_all_may(limit in 1_u32..3_000, secs in 1_u64..100) {
            let mut gate = Gate::default();
            close(&mut gate, for_secs(secs), 0.0);
            let (mut now, mut passing, mut steps) = (at(0.0), 0, 0);
            while let Some(next) = gate.next_step(Some(limit), now) {
                prop_assert!(next > now && steps <= limit);
                (now, steps) = (next, steps + 1);
                let more = gate.lets_pass(limit, now);
                prop_assert!(more > passing || limit == 1);
                passing = more;
            }
            prop_assert_eq!(passing, limit);
        }
    }
}
