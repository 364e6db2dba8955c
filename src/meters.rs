//! The facts of a lane on the `metrics` facade.
//!
//! Handles are made once per lane. Gauges are *set*, from counts that are kept under the pool's lock, so they are never
//! negative and end where the counts end, whatever the threads that publish them race.

use std::sync::OnceLock;
use std::time::Duration;

use metrics::{Counter, Gauge, Histogram};

use crate::engine::outcome::Outcome;
use crate::engine::priority::Priority;
use crate::engine::totals::Reason;
use crate::sync::atomic::{AtomicI64, Ordering};

/// Upper bounds in seconds of the buckets for waiting and hold times.
#[cfg(feature = "prometheus")]
pub(crate) const WAIT_BUCKETS: [f64; 9] = [0.1, 0.5, 1.0, 5.0, 15.0, 30.0, 60.0, 120.0, 300.0];

/// The same for the time to the first byte: users feel the difference between a quarter of a second and a half.
#[cfg(feature = "prometheus")]
pub(crate) const FIRST_BYTE_BUCKETS: [f64; 10] = [0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0];

/// The label of lanes beyond the bound on label values.
pub(crate) const FOLDED: &str = "other";

pub(crate) struct Meters {
    prefix: &'static str,
    lane: String,
    in_flight: Level,
    waiting: [Level; 3],
    waits: [OnceLock<Histogram>; 3],
    outcomes: [OnceLock<Counter>; Outcome::ALL.len()],
    refusals: [OnceLock<Counter>; Reason::ALL.len()],
    abandoned: OnceLock<Counter>,
    timeouts: Counter,
    limit: Gauge,
    first_byte: Histogram,
    hold: Histogram,
}

/// A count, and the gauge that shows it.
struct Level {
    count: AtomicI64,
    gauge: Gauge,
}

/// The names and what they mean, for recorders that show descriptions.
#[cfg(feature = "prometheus")]
pub(crate) const DESCRIPTIONS: [(&str, metrics::Unit, &str); 9] = [
    (
        "inflight",
        metrics::Unit::Count,
        "Calls that hold a slot: from just before they are sent to the end of the body.",
    ),
    ("queue_depth", metrics::Unit::Count, "Calls that wait for a slot, by class."),
    ("queue_wait_seconds", metrics::Unit::Seconds, "How long granted calls waited for their slot, by class."),
    ("queue_timeouts_total", metrics::Unit::Count, "Calls that waited for the whole queue timeout in vain."),
    ("limit", metrics::Unit::Count, "Most slots in use at once; 0 for unlimited."),
    ("outcomes_total", metrics::Unit::Count, "Calls that ended, by outcome; \"abandoned\" gave up in the queue."),
    ("refusals_total", metrics::Unit::Count, "Calls that were refused without being sent, by reason."),
    ("first_byte_seconds", metrics::Unit::Seconds, "From the grant to the first byte of the answer's body."),
    ("hold_seconds", metrics::Unit::Seconds, "How long calls held their slot."),
];

impl Meters {
    pub(crate) fn new(prefix: &'static str, lane: String) -> Self {
        let name = |what: &str| format!("{prefix}_{what}");
        let gauge = |what: &str| metrics::gauge!(name(what), "lane" => lane.clone());
        let histogram = |what: &str| metrics::histogram!(name(what), "lane" => lane.clone());
        let depth = |class: Priority| metrics::gauge!(name("queue_depth"), "lane" => lane.clone(), "priority" => class.as_str());
        Self {
            in_flight: Level::new(gauge("inflight")),
            waiting: Priority::ALL.map(|class| Level::new(depth(class))),
            waits: Default::default(),
            outcomes: Default::default(),
            refusals: Default::default(),
            abandoned: OnceLock::new(),
            timeouts: metrics::counter!(name("queue_timeouts_total"), "lane" => lane.clone()),
            limit: gauge("limit"),
            first_byte: histogram("first_byte_seconds"),
            hold: histogram("hold_seconds"),
            prefix,
            lane,
        }
    }

    /// Notes that slots in use and waiters by class changed. Call it under the pool's lock, and
    /// [`publish`](Self::publish) after it.
    pub(crate) fn shift(&self, from: (u32, [u32; 3]), to: (u32, [u32; 3])) {
        self.in_flight.shift(from.0, to.0);
        for (level, (from, to)) in self.waiting.iter().zip(from.1.into_iter().zip(to.1)) {
            level.shift(from, to);
        }
    }

    pub(crate) fn publish(&self) {
        self.in_flight.publish();
        for level in &self.waiting {
            level.publish();
        }
    }

    pub(crate) fn set_limit(&self, limit: u32) {
        self.limit.set(f64::from(limit));
    }

    pub(crate) fn granted(&self, class: Priority, waited: Duration) {
        let wait = self.waits[class.index()].get_or_init(|| {
            metrics::histogram!(
                self.name("queue_wait_seconds"), "lane" => self.lane.clone(), "priority" => class.as_str()
            )
        });
        wait.record(waited);
    }

    pub(crate) fn refused(&self, reason: Reason) {
        if reason == Reason::QueueTimeout {
            self.timeouts.increment(1);
        }
        let refused = self.refusals[reason as usize].get_or_init(
            || metrics::counter!(self.name("refusals_total"), "lane" => self.lane.clone(), "reason" => reason.as_str()),
        );
        refused.increment(1);
    }

    pub(crate) fn abandoned(&self) {
        self.abandoned.get_or_init(|| self.outcome("abandoned")).increment(1);
    }

    pub(crate) fn settled(&self, outcome: Outcome, held: Duration, first_byte: Option<Duration>) {
        self.outcomes[outcome.index()].get_or_init(|| self.outcome(outcome.as_str())).increment(1);
        self.hold.record(held);
        if let Some(after) = first_byte {
            self.first_byte.record(after);
        }
    }

    fn outcome(&self, outcome: &'static str) -> Counter {
        metrics::counter!(self.name("outcomes_total"), "lane" => self.lane.clone(), "outcome" => outcome)
    }

    fn name(&self, what: &str) -> String {
        format!("{}_{what}", self.prefix)
    }
}

impl Level {
    fn new(gauge: Gauge) -> Self {
        Self { count: AtomicI64::new(0), gauge }
    }

    fn shift(&self, from: u32, to: u32) {
        if from != to {
            self.count.fetch_add(i64::from(to) - i64::from(from), Ordering::Relaxed);
        }
    }

    /// Whoever sets the gauge last looks once more, so the last value set is the current one.
    fn publish(&self) {
        loop {
            let count = self.count.load(Ordering::Relaxed);
            #[expect(clippy::cast_precision_loss, reason = "counts stay far below 2^52")]
            self.gauge.set(count as f64);
            if self.count.load(Ordering::Relaxed) == count {
                return;
            }
        }
    }
}

impl std::fmt::Debug for Meters {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Meters").field("lane", &self.lane).finish_non_exhaustive()
    }
}
