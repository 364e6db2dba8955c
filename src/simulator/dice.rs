//! Random numbers that are the same on every run.

use std::f64::consts::TAU;

/// SplitMix64: tiny, seedable at any point, and good enough for loads.
#[derive(Clone, Debug)]
pub(super) struct Dice(u64);

impl Dice {
    /// Dice for one purpose: whatever is thrown for another does not shift them.
    pub(super) fn new(seed: u64, purpose: u64) -> Self {
        Self(scramble(scramble(seed) ^ purpose))
    }

    /// Above 0 and below 1.
    #[expect(clippy::cast_precision_loss, reason = "53 bits fit")]
    pub(super) fn unit(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(GOLDEN_GAMMA);
        ((scramble(self.0) >> 11) as f64 + 0.5) / (1_u64 << 53) as f64
    }

    /// True for this share of the throws.
    pub(super) fn falls(&mut self, share: f64) -> bool {
        self.unit() < share
    }

    /// The factor by which one of many log-normal values differs from their median.
    pub(super) fn lognormal(&mut self, sigma: f64) -> f64 {
        let normal = (-2.0 * self.unit().ln()).sqrt() * (TAU * self.unit()).cos();
        (sigma * normal).exp()
    }

    /// A gap of a Poisson process.
    pub(super) fn gap_s(&mut self, per_s: f64) -> f64 {
        -self.unit().ln() / per_s
    }
}

const GOLDEN_GAMMA: u64 = 0x9E37_79B9_7F4A_7C15;

fn scramble(mut z: u64) -> u64 {
    z = z.wrapping_add(GOLDEN_GAMMA);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}
