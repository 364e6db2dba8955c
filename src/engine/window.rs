//! What happened in the last five minutes, in fixed memory.

use std::time::Duration;

use super::time::Time;

const SLICE: Duration = Duration::from_secs(30);
/// Ten slices of 30 s: a figure covers between four and a half and five minutes.
const SLICES: usize = 10;

/// Buckets per doubling: a quantile is at most an eighth above the true value.
const PER_OCTAVE: usize = 8;
/// The first octave starts at 1 ms; anything shorter is one bucket.
const OCTAVES: usize = 22;
const BUCKETS: usize = 1 + PER_OCTAVE * OCTAVES;

/// A rolling histogram of waits and a rolling count of timeouts.
#[derive(Debug, Default)]
pub(crate) struct Window {
    /// Made at the first wait, so that an idle lane costs nothing.
    slices: Vec<Slice>,
    current: usize,
    ends_at: Time,
}

#[derive(Clone, Debug)]
struct Slice {
    waits: [u32; BUCKETS],
    timeouts: u32,
}

impl Slice {
    const EMPTY: Self = Self { waits: [0; BUCKETS], timeouts: 0 };
}

impl Window {
    #[inline]
    pub(crate) fn record_wait(&mut self, wait: Duration, now: Time) {
        self.at(now).waits[bucket(wait)] += 1;
    }

    pub(crate) fn record_timeout(&mut self, now: Time) {
        self.at(now).timeouts += 1;
    }

    pub(crate) fn timeouts(&mut self, now: Time) -> u32 {
        self.roll(now);
        self.slices.iter().map(|slice| slice.timeouts).sum()
    }

    /// The wait that `quantile` of the granted calls did not exceed, or `None` if none was granted.
    pub(crate) fn wait(&mut self, quantile: f64, now: Time) -> Option<Duration> {
        self.roll(now);
        let mut sums = [0_u64; BUCKETS];
        for slice in &self.slices {
            for (sum, count) in sums.iter_mut().zip(slice.waits) {
                *sum += u64::from(count);
            }
        }
        let total: u64 = sums.iter().sum();
        let mut left = rank(quantile, total);
        sums.iter()
            .position(|&count| {
                let found = total > 0 && left < count;
                left = left.saturating_sub(count);
                found
            })
            .map(upper_edge)
    }

    #[inline]
    fn at(&mut self, now: Time) -> &mut Slice {
        if now >= self.ends_at {
            self.turn(now);
        }
        &mut self.slices[self.current]
    }

    #[cold]
    fn turn(&mut self, now: Time) {
        self.roll(now);
        if self.slices.is_empty() {
            self.slices = vec![Slice::EMPTY; SLICES];
            self.ends_at = now + SLICE;
        }
    }

    fn roll(&mut self, now: Time) {
        if self.slices.is_empty() || now < self.ends_at {
            return;
        }
        let behind = now.since(self.ends_at).as_secs() / SLICE.as_secs() + 1;
        for _ in 0..behind.min(SLICES as u64) {
            self.current = (self.current + 1) % SLICES;
            self.slices[self.current] = Slice::EMPTY;
        }
        self.ends_at = self.ends_at + SLICE * u32::try_from(behind).unwrap_or(u32::MAX);
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "a rank of few"
)]
fn rank(quantile: f64, total: u64) -> u64 {
    (quantile * total.saturating_sub(1) as f64).round() as u64
}

/// Eight buckets per octave by the bits of the millisecond count itself: no logarithm on the hot path.
#[inline]
fn bucket(wait: Duration) -> usize {
    if wait < Duration::from_millis(1) { 0 } else { bucket_above(wait) }
}

fn bucket_above(wait: Duration) -> usize {
    let micros = wait.as_secs().saturating_mul(1_000_000).saturating_add(u64::from(wait.subsec_micros()));
    let eighths = micros.saturating_mul(PER_OCTAVE as u64) / 1000;
    let octave = (eighths.ilog2() - PER_OCTAVE.ilog2()) as usize;
    let within = (eighths >> octave) as usize - PER_OCTAVE;
    (1 + octave * PER_OCTAVE + within).min(BUCKETS - 1)
}

/// Zero for the first bucket: waits under a millisecond are called none.
fn upper_edge(bucket: usize) -> Duration {
    let Some(n) = bucket.checked_sub(1) else { return Duration::ZERO };
    let eighths = (PER_OCTAVE + n % PER_OCTAVE + 1) as u64 * (1 << (n / PER_OCTAVE));
    Duration::from_micros(eighths * 1000 / PER_OCTAVE as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(secs: u64) -> Time {
        Time::from_epoch(Duration::from_secs(secs))
    }

    #[test]
    fn quantiles_come_from_the_last_five_minutes_only() {
        let mut window = Window::default();
        for _ in 0..100 {
            window.record_wait(Duration::from_secs(40), at(0));
        }
        assert_eq!(window.wait(0.5, at(1)).map(|wait| wait.as_secs()), Some(40));
        for _ in 0..10 {
            window.record_wait(Duration::from_millis(10), at(290));
        }
        assert!(window.wait(0.9, at(290)) >= Some(Duration::from_secs(40)));
        assert!(window.wait(0.9, at(310)) <= Some(Duration::from_millis(12)));
        assert_eq!(window.wait(0.9, at(700)), None);
    }

    #[test]
    fn timeouts_leave_the_window_after_five_minutes() {
        let mut window = Window::default();
        window.record_timeout(at(10));
        window.record_timeout(at(200));
        assert_eq!(window.timeouts(at(250)), 2);
        assert_eq!(window.timeouts(at(400)), 1);
        assert_eq!(window.timeouts(at(100_000)), 0);
    }

    proptest! {
        #[test]
        fn a_bucket_names_its_waits_within_an_eighth(micros in 1_000_u64..3_600_000_000) {
            let wait = Duration::from_micros(micros);
            let shown = upper_edge(bucket(wait));
            prop_assert!(shown >= wait.saturating_sub(Duration::from_micros(125)));
            prop_assert!(shown.as_secs_f64() <= wait.as_secs_f64() * 1.126 + 0.000_126);
        }
    }
}
