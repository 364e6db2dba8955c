//! The load: who calls, when, for how long an answer.

use std::time::Duration;

use tower_inflight::Priority;

use crate::support::Dice;
use crate::upstream::Upstream;

/// Half as much again as the upstream can serve, split between the three kinds of callers.
const BULK_SHARE: f64 = 0.70;
const DEFAULT_SHARE: f64 = 0.65;
/// The operator keeps a little more than one slot busy, whatever the upstream's size.
const INTERACTIVE_SLOTS: f64 = 1.2;
/// How long it storms, in service times. The operator chats on while the backlog is worked off.
const STORM: f64 = 18.0;
const STORM_REAL: f64 = 9.0;
const BACKLOG: f64 = 1.5;

const PANELS: [&str; 3] = ["panel-1", "panel-2", "panel-3"];
const REVIEWS_PER_PANEL: usize = 5;
const BOARDS: [&str; 2] = ["board-1", "board-2"];

/// One logical call: it is finished when its client has the whole answer, through however many attempts.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    /// Counted from the beginning of the run.
    pub(crate) at: Duration,
    pub(crate) priority: Priority,
    pub(crate) tenant: &'static str,
    pub(crate) tokens: u32,
    /// For the jitter of its backoff.
    pub(crate) seed: u64,
}

/// The same jobs for the same seed and upstream.
pub(crate) fn seeded(seed: u64, upstream: &Upstream) -> Vec<Job> {
    let mut planner = Planner { dice: Dice(seed), upstream, jobs: Vec::new() };
    let storm = if upstream.is_real() { STORM_REAL } else { STORM };
    let slots = upstream.slots as f64;

    let wave = PANELS.len() * REVIEWS_PER_PANEL;
    let between_waves = wave as f64 / (BULK_SHARE * slots);
    let mut wave_at = 0.0;
    while wave_at < storm {
        for panel in PANELS {
            for _ in 0..REVIEWS_PER_PANEL {
                planner.add(wave_at, Priority::Bulk, panel);
            }
        }
        wave_at += between_waves;
    }
    for board in BOARDS {
        planner.add_stream(BOARDS.len() as f64 / (DEFAULT_SHARE * slots), storm, Priority::Default, board);
    }
    planner.add_stream(1.0 / INTERACTIVE_SLOTS, storm * BACKLOG, Priority::Interactive, "operator");
    planner.jobs.sort_by_key(|job| job.at);
    planner.jobs
}

/// Times in here are in service times of the upstream.
struct Planner<'a> {
    dice: Dice,
    upstream: &'a Upstream,
    jobs: Vec<Job>,
}

impl Planner<'_> {
    fn add(&mut self, at: f64, priority: Priority, tenant: &'static str) {
        let at = self.upstream.service.mul_f64(at);
        // Answers differ in length; alike, they would end in step and hand over their slots all at once.
        let tokens = (self.upstream.tokens * self.dice.between(75, 125)).div_ceil(100);
        let seed = self.dice.next();
        self.jobs.push(Job { at, priority, tenant, tokens, seed });
    }

    fn add_stream(&mut self, gap: f64, until: f64, priority: Priority, tenant: &'static str) {
        let mut at = 0.0;
        while at < until {
            self.add(at, priority, tenant);
            at += gap * f64::from(self.dice.between(60, 140)) / 100.0;
        }
    }
}
