//! How long a call waits for its first byte when nothing is queued in front of it, by the size of its request.

use super::round::Waits;
use super::table::{BLOCK_ROUNDS, EPOCH_ROUNDS, SCALE_MAX};

/// Buckets per doubling of the request's size: the first three bits of the mantissa.
const PER_DOUBLING: usize = 8;
/// 2^18 bytes and more share the last bucket, about 65,000 tokens.
const BUCKETS: usize = 18 * PER_DOUBLING;

/// The least wait seen per bucket, kept for two epochs so that a baseline that drifts up is followed.
///
/// A least wait is that of the luckiest call. Where waits vary by themselves (reasoning, cached prompts), `scale` lifts
/// it to the mean of the quietest rounds.
#[derive(Debug)]
pub(super) struct Baseline {
    least: [Epoch; 2],
    /// Rounds since the epochs were rotated.
    age: u32,
    block: Block,
    scale: f64,
}

#[derive(Clone, Copy, Debug)]
struct Epoch {
    wait: [f64; BUCKETS],
    /// The least ratio of mean wait to mean least wait over a block of rounds.
    ratio: f64,
}

/// Rounds whose waits are put together, so that one lucky round does not decide.
#[derive(Clone, Copy, Debug, Default)]
struct Block {
    rounds: u32,
    waited: f64,
    least: f64,
}

impl Epoch {
    const UNKNOWN: Self = Self { wait: [f64::INFINITY; BUCKETS], ratio: f64::INFINITY };
}

impl Baseline {
    pub(super) const fn new() -> Self {
        Self { least: [Epoch::UNKNOWN; 2], age: 0, block: Block { rounds: 0, waited: 0.0, least: 0.0 }, scale: 1.0 }
    }

    /// The wait to expect of an unloaded upstream; zero while nothing is known.
    pub(super) fn expected(&self, bucket: Bucket) -> f64 {
        let wait = self.least[0].wait[bucket.0].min(self.least[1].wait[bucket.0]);
        if wait.is_finite() { wait * self.scale } else { 0.0 }
    }

    pub(super) fn scale(&self) -> f64 {
        self.scale
    }

    /// A call waited that long. A smaller request cannot take longer than this one did, and a larger one takes longer
    /// by its size at most: without that, every sample in a sparse bucket would be its own least.
    pub(super) fn learn(&mut self, bucket: Bucket, wait: f64) {
        let least = &mut self.least[0].wait;
        if wait >= least[bucket.0] {
            return;
        }
        let (smaller, larger) = least.split_at_mut(bucket.0 + 1);
        for other in smaller {
            *other = other.min(wait);
        }
        for (steps, other) in (1_u32..).zip(larger) {
            *other = other.min(wait * (f64::from(steps) / PER_DOUBLING as f64).exp2());
        }
    }

    /// A round is over. Its waits, if there were enough of them.
    pub(super) fn end_round(&mut self, waits: Option<Waits>) {
        if let Some(waits) = waits {
            self.take_in(&waits);
        }
        self.age += 1;
        if self.age >= EPOCH_ROUNDS {
            self.age = 0;
            self.block = Block::default();
            self.least = [Epoch::UNKNOWN, self.least[0]];
        }
        let ratio = self.least[0].ratio.min(self.least[1].ratio);
        self.scale = if ratio.is_finite() { ratio.clamp(1.0, SCALE_MAX) } else { 1.0 };
    }

    fn take_in(&mut self, waits: &Waits) {
        self.block.rounds += 1;
        self.block.waited += waits.waited;
        self.block.least += waits.least;
        let is_full = self.block.rounds >= BLOCK_ROUNDS;
        let least = &mut self.least[0].ratio;
        if is_full || least.is_infinite() {
            *least = least.min(self.block.waited / self.block.least);
        }
        if is_full {
            self.block = Block::default();
        }
    }
}

/// Requests of about one size.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bucket(usize);

impl Bucket {
    /// A request of unknown size counts as the smallest.
    pub(super) fn of(request_bytes: Option<u32>) -> Self {
        let size = f64::from(request_bytes.unwrap_or(1).max(1));
        // Exponent and leading mantissa bits of the float are the logarithm in eighths.
        const MANTISSA: u32 = 52 - PER_DOUBLING.ilog2();
        const ONE: usize = (f64::to_bits(1.0) >> MANTISSA) as usize;
        Self(((size.to_bits() >> MANTISSA) as usize - ONE).min(BUCKETS - 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: Option<u32> = Some(100);
    const LARGE: Option<u32> = Some(100_000);

    fn end_rounds(baseline: &mut Baseline, rounds: u32) {
        (0..rounds).for_each(|_| baseline.end_round(None));
    }

    #[test]
    fn nothing_is_expected_while_nothing_is_known() {
        assert_eq!(Baseline::new().expected(Bucket::of(SMALL)), 0.0);
    }

    #[test]
    fn a_wait_bounds_that_of_smaller_and_of_larger_requests() {
        let mut baseline = Baseline::new();
        baseline.learn(Bucket::of(Some(1024)), 0.5);
        assert_eq!(baseline.expected(Bucket::of(SMALL)), 0.5);
        assert_eq!(baseline.expected(Bucket::of(Some(2048))), 1.0);
        baseline.learn(Bucket::of(SMALL), 0.1);
        assert_eq!(baseline.expected(Bucket::of(SMALL)), 0.1);
        assert_eq!(baseline.expected(Bucket::of(Some(1024))), 0.5, "ten times the size may take ten times as long");
    }

    #[test]
    fn any_size_has_a_bucket() {
        for size in [None, Some(0), Some(1), LARGE, Some(u32::MAX)] {
            assert!(Bucket::of(size).0 < BUCKETS);
        }
        assert_eq!(Bucket::of(None).0, 0);
        assert_eq!(Bucket::of(Some(u32::MAX)).0, BUCKETS - 1);
    }

    #[test]
    fn a_baseline_that_drifts_up_is_followed_after_two_epochs() {
        let mut baseline = Baseline::new();
        let bucket = Bucket::of(SMALL);
        baseline.learn(bucket, 0.2);
        end_rounds(&mut baseline, EPOCH_ROUNDS);
        baseline.learn(bucket, 0.6);
        assert_eq!(baseline.expected(bucket), 0.2, "the last epoch counts too");
        end_rounds(&mut baseline, EPOCH_ROUNDS);
        assert_eq!(baseline.expected(bucket), 0.6);
    }

    #[test]
    fn waits_that_vary_by_themselves_scale_the_least() {
        let mut baseline = Baseline::new();
        let bucket = Bucket::of(SMALL);
        baseline.learn(bucket, 0.5);
        for waited in [9.0, 3.0, 6.0, 30.0, 30.0, 30.0] {
            baseline.end_round(Some(Waits { waited, least: 2.0, ..Waits::default() }));
        }
        assert_eq!(baseline.scale(), 3.0, "the quietest block of three rounds: 18 s for 6 s");
        assert_eq!(baseline.expected(bucket), 1.5);
    }
}
