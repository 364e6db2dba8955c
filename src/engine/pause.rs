//! The gate that closes when the upstream says "not before T".

use std::time::Duration;

use super::outcome::Pause;
use super::time::Time;

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Gate {
    closed_until: Time,
    /// When the gate was last closed for our own minimum, and for how long.
    minimum: Option<(Time, Duration)>,
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

    /// Closes the gate as the answer to a call granted at `granted_at` asked. The later of two ends stands.
    ///
    /// Our own minimum doubles only on evidence from calls granted after it was last set: the other answers of the wave
    /// that set it say nothing new.
    pub(crate) fn close(&mut self, pause: Pause, granted_at: Time, now: Time, min: Duration, max: Duration) {
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
        self.closed_until = self.closed_until.max(now + length);
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

    const MIN: Duration = Duration::from_secs(1);
    const MAX: Duration = Duration::from_secs(600);

    fn at(secs: f64) -> Time {
        Time::from_epoch(Duration::from_secs_f64(secs))
    }

    // Case 72.
    #[test]
    fn the_later_of_two_pauses_stands() {
        let mut gate = Gate::default();
        gate.close(Pause::For(Duration::from_secs(300)), at(0.0), at(1.0), MIN, MAX);
        gate.close(Pause::For(Duration::from_secs(1)), at(0.0), at(1.01), MIN, MAX);
        gate.forget_refusals(at(0.0));
        assert_eq!(gate.opens_at(at(2.0)), Some(at(301.0)));
    }

    // Case 71.
    #[test]
    fn an_absurd_pause_is_capped_and_never_short() {
        let mut gate = Gate::default();
        gate.close(Pause::For(Duration::MAX), at(0.0), at(1.0), MIN, MAX);
        assert_eq!(gate.opens_at(at(1.0)), Some(at(601.0)));
    }

    // Case 70.
    #[test]
    fn our_own_minimum_doubles_once_per_wave_and_starts_anew_after_a_success() {
        let mut gate = Gate::default();
        gate.close(Pause::Minimum, at(0.0), at(1.0), MIN, MAX);
        gate.close(Pause::Minimum, at(0.0), at(1.0), MIN, MAX);
        assert_eq!(gate.opens_at(at(1.5)), Some(at(2.0)));
        gate.close(Pause::Minimum, at(2.0), at(2.1), MIN, MAX);
        assert_eq!(gate.opens_at(at(2.5)), Some(at(4.1)));
        gate.forget_refusals(at(5.0));
        gate.close(Pause::Minimum, at(6.0), at(6.0), MIN, MAX);
        assert_eq!(gate.opens_at(at(6.5)), Some(at(7.0)));
    }
}
