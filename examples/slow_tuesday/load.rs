//! Who calls, and when.

use std::time::Duration;

use tower_inflight::Priority;

use crate::plan::RECOVERS_AT;
use crate::scale::{CALLS, minutes, seconds};
use crate::support::Dice;

pub(crate) const PROMPT_TOKENS: u32 = 3_000;
/// What a call says that its answer may have at most. It uses less than half of it.
pub(crate) const RESERVED_TOKENS: u32 = 1_000;

const CALLS_PER_SECOND: f64 = 25.0;
const SEED: u64 = 2;

/// The class, its part of the calls, the minute at which it stops calling, and who it is.
const CALLERS: [(Priority, f64, f64, &str); 3] = [
    (Priority::Interactive, 0.2, 10.0, "chat"),
    (Priority::Default, 0.2, 10.0, "coders"),
    (Priority::Bulk, 0.6, RECOVERS_AT + 1.0, "batch"),
];

#[derive(Clone, Debug)]
pub(crate) struct Job {
    /// Counted from the beginning.
    pub(crate) at: Duration,
    pub(crate) class: Priority,
    pub(crate) tenant: &'static str,
    /// For the jitter of its patience.
    pub(crate) seed: u64,
}

pub(crate) fn jobs() -> Vec<Job> {
    let mut dice = Dice(SEED);
    let mut jobs = Vec::new();
    for (class, part, until, tenant) in CALLERS {
        let gap = seconds(CALLS / (CALLS_PER_SECOND * part));
        let mut at = Duration::ZERO;
        while at < minutes(until) {
            jobs.push(Job { at, class, tenant, seed: dice.next() });
            at += gap.mul_f64(f64::from(dice.between(50, 150)) / 100.0);
        }
    }
    jobs
}
