//! What was counted in a window that moves, in fixed memory.

use std::time::Duration;

use super::time::Time;

/// A tenth of the window leaves it at a time, so a sum covers between nine tenths of the window and all of it.
const SLICES: u32 = 10;

/// Counts of `N` kinds of things.
#[derive(Clone, Debug)]
pub(crate) struct Rolling<const N: usize> {
    slices: [[u32; N]; SLICES as usize],
    sums: [u32; N],
    current: usize,
    slice: u64,
    ends_at: Time,
}

impl<const N: usize> Rolling<N> {
    pub(crate) fn new(window: Duration) -> Self {
        Self {
            slices: [[0; N]; SLICES as usize],
            sums: [0; N],
            current: 0,
            slice: nanos(window / SLICES).max(1),
            ends_at: Time::ZERO,
        }
    }

    #[inline]
    pub(crate) fn add(&mut self, kind: usize, now: Time) {
        self.roll(now);
        let count = &mut self.slices[self.current][kind];
        // A slice that is full stays so: the sums are those of the slices.
        if *count < u32::MAX / SLICES {
            *count += 1;
            self.sums[kind] += 1;
        }
    }

    #[inline]
    pub(crate) fn sums(&mut self, now: Time) -> [u32; N] {
        self.roll(now);
        self.sums
    }

    pub(crate) fn clear(&mut self) {
        self.slices = [[0; N]; SLICES as usize];
        self.sums = [0; N];
    }

    #[inline]
    fn roll(&mut self, now: Time) {
        if now >= self.ends_at {
            self.turn(now);
        }
    }

    #[cold]
    fn turn(&mut self, now: Time) {
        let behind = nanos(now.since(self.ends_at));
        let left = behind / self.slice + 1;
        self.ends_at = now + Duration::from_nanos(self.slice - behind % self.slice);
        if left >= u64::from(SLICES) {
            return self.clear();
        }
        for _ in 0..left {
            self.current = (self.current + 1) % self.slices.len();
            let gone = std::mem::replace(&mut self.slices[self.current], [0; N]);
            for (sum, gone) in self.sums.iter_mut().zip(gone) {
                *sum -= gone;
            }
        }
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(millis: u64) -> Time {
        Time::from_epoch(Duration::from_millis(millis))
    }

    #[test]
    fn what_is_counted_leaves_after_the_window() {
        let mut rolling = Rolling::<2>::new(Duration::from_secs(10));
        rolling.add(0, at(500));
        rolling.add(1, at(5_000));
        assert_eq!(rolling.sums(at(9_999)), [1, 1]);
        assert_eq!(rolling.sums(at(10_000)), [0, 1]);
        assert_eq!(rolling.sums(at(1_000_000)), [0, 0]);
    }

    #[test]
    fn a_window_shorter_than_the_clock_can_tell_is_no_division_by_zero() {
        let mut rolling = Rolling::<1>::new(Duration::ZERO);
        rolling.add(0, at(1));
        assert_eq!(rolling.sums(at(1)), [1]);
        assert_eq!(rolling.sums(Time::NEVER), [0]);
    }

    proptest! {
        #[test]
        fn sums_are_those_of_a_list_of_moments(
            steps in prop::collection::vec((0_u64..3_000, 0_usize..2), 1..200), window in 1_u64..30,
        ) {
            let slice = window * 100;
            let mut rolling = Rolling::<2>::new(Duration::from_millis(window * 1_000));
            let (mut now, mut moments) = (0, Vec::new());
            for (later, kind) in steps {
                now += later;
                rolling.add(kind, at(now));
                moments.push((now / slice, kind));
                let sum = |kind| moments.iter().filter(|&&(at, of)| of == kind && at + 10 > now / slice).count();
                prop_assert_eq!(rolling.sums(at(now)).map(|sum| sum as usize), [sum(0), sum(1)]);
            }
        }
    }
}
