//! Runs on the `metrics` facade. As with lanes: handles are made once, and a recorder never runs under a lock.

use metrics::{Counter, Gauge, Histogram};

use crate::engine::runs::{Counts, Ending, Fact, RunBound, RunStatus};
use crate::meters::{Lazy, Level, contained};

pub(super) struct RunMeters {
    prefix: &'static str,
    levels: [Level; 3],
    gauges: [Lazy<Gauge>; 3],
    endings: [Lazy<Counter>; 3],
    refusals: [Lazy<Counter>; RunBound::ALL.len()],
    wait: Lazy<Histogram>,
    away: Lazy<Histogram>,
}

/// Which counts a step changed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shifted([bool; 3]);

const STATES: [RunStatus; 3] = [RunStatus::Running, RunStatus::Queued, RunStatus::Lent];
const ENDINGS: [RunStatus; 3] = [RunStatus::Finished, RunStatus::Cancelled, RunStatus::Refused];

impl RunMeters {
    pub(super) fn new(prefix: &'static str) -> Self {
        Self {
            prefix,
            levels: Default::default(),
            gauges: Default::default(),
            endings: Default::default(),
            refusals: Default::default(),
            wait: Lazy::default(),
            away: Lazy::default(),
        }
    }

    /// Call it under the hub's lock, and [`publish`](Self::publish) after it.
    pub(super) fn shift(&self, Counts { running, queued, lent }: Counts) -> Shifted {
        let counts = [running, queued, lent];
        Shifted(std::array::from_fn(|at| self.levels[at].set(counts[at])))
    }

    pub(super) fn publish(&self, Shifted(has_shifted): Shifted) {
        for at in (0..3).filter(|at| has_shifted[*at]) {
            contained(|| {
                let gauge =
                    self.gauges[at].get_or_make(|| metrics::gauge!(self.name("runs"), "status" => STATES[at].as_str()));
                self.levels[at].publish(gauge);
            });
        }
    }

    pub(super) fn count(&self, fact: Fact) {
        match fact {
            Fact::Admitted { waited } => {
                contained(|| self.wait.get_or_make(|| self.histogram("run_wait_seconds")).record(waited));
            }
            Fact::Resumed { away } => {
                contained(|| self.away.get_or_make(|| self.histogram("run_lent_seconds")).record(away));
            }
            Fact::Over(ending) => {
                let at = match ending {
                    Ending::Finished => 0,
                    Ending::Cancelled => 1,
                    Ending::Refused => 2,
                };
                contained(|| {
                    let made = || metrics::counter!(self.name("runs_total"), "status" => ENDINGS[at].as_str());
                    self.endings[at].get_or_make(made).increment(1);
                });
            }
            Fact::Queued { .. } | Fact::Lent => {}
        }
    }

    pub(super) fn refused(&self, bound: RunBound) {
        contained(|| {
            let made = || metrics::counter!(self.name("run_backpressure_total"), "bound" => bound.setting());
            self.refusals[bound as usize].get_or_make(made).increment(1);
        });
    }

    fn histogram(&self, what: &str) -> Histogram {
        metrics::histogram!(self.name(what))
    }

    fn name(&self, what: &str) -> String {
        format!("{}_{what}", self.prefix)
    }
}
