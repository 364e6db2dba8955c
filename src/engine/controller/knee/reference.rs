//! What a limit was good for, to compare another with.

use super::round::Reading;
use super::table::{GAINED, LOST};

#[derive(Clone, Copy, Debug)]
pub(super) struct Reference {
    limit: f64,
    in_flight: f64,
    work: f64,
    rounds: f64,
}

impl Reference {
    pub(super) fn new(limit: f64, reading: &Reading) -> Self {
        Self { limit, in_flight: reading.in_flight, work: reading.work, rounds: 1.0 }
    }

    /// Takes in another round at the same limit.
    pub(super) fn add(&mut self, reading: &Reading) {
        self.rounds += 1.0;
        self.in_flight += (reading.in_flight - self.in_flight) / self.rounds;
        self.work += (reading.work - self.work) / self.rounds;
    }

    pub(super) fn limit(&self) -> f64 {
        self.limit
    }

    pub(super) fn in_flight(&self) -> f64 {
        self.in_flight
    }

    pub(super) fn is_well_below(&self, reading: &Reading) -> bool {
        reading.in_flight >= GAINED * self.in_flight
    }

    /// The calls added since brought next to no work.
    pub(super) fn was_as_good_as(&self, reading: &Reading) -> bool {
        reading.work / self.work - 1.0 < reading.elasticity * (reading.in_flight / self.in_flight).ln()
    }

    /// The calls taken away since had done next to no work.
    pub(super) fn was_no_better_than(&self, reading: &Reading) -> bool {
        let lost = 1.0 - reading.in_flight / self.in_flight;
        lost > LOST && reading.work >= self.work * (1.0 - reading.elasticity * lost)
    }
}
