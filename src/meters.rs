//! The facts of lanes and pools on the `metrics` facade.
//!
//! Handles are made once for each, when it is first used. Gauges are *set*, from counts that are kept under the pool's
//! lock, so they are never negative and end where the counts end, whatever the threads that publish them race.
//!
//! The recorder is somebody else's code: it never runs under a lock of ours, and a panic in it ends here, so that it costs
//! no slot and cannot turn the drop of a permit into an abort.

mod pool;
mod waits;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;
use std::time::Duration;

use metrics::{Counter, Gauge, Histogram};

#[cfg(feature = "prometheus")]
pub(crate) use self::pool::POOL_DESCRIPTIONS;
pub(crate) use self::pool::PoolMeters;
use self::waits::WaitCounters;
use crate::engine::breaker::BreakerState;
use crate::engine::outcome::Outcome;
use crate::engine::pool::Figures;
use crate::engine::priority::Priority;
use crate::engine::quota::{Spent, Tokens};
use crate::engine::totals::Reason;
use crate::sync::atomic::{AtomicI64, Ordering};
use crate::usage::Usage;

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
    /// Lanes of several pools are counted together here.
    is_shared: bool,
    in_flight: Level,
    waiting: [Level; 3],
    limit: Level,
    handles: Lazy<Handles>,
    waits: [Lazy<Histogram>; 3],
    waited: WaitCounters,
    outcomes: [Lazy<Counter>; Outcome::ALL.len()],
    refusals: [Lazy<Counter>; Reason::ALL.len()],
    abandoned: Lazy<Counter>,
    pauses: Lazy<Counter>,
    /// Only lanes whose breaker ever opened have it.
    breaker: Lazy<Gauge>,
    tokens: Lazy<TokenCounters>,
    budget: Lazy<BudgetCounters>,
}

/// What every lane has from the start, so that it shows as zero and not as missing.
struct Handles {
    in_flight: Gauge,
    waiting: [Gauge; 3],
    limit: Gauge,
    timeouts: Counter,
    first_byte: Histogram,
    hold: Histogram,
}

/// Only lanes whose answers are read have them.
struct TokenCounters {
    input: Counter,
    output: Counter,
    unknown: Counter,
    after_hangup: Counter,
}

/// Only lanes whose calls are charged have them.
struct BudgetCounters {
    admitted: Counter,
    refunded: Counter,
    rejected: Counter,
}

/// A count that a gauge shows.
#[derive(Default)]
pub(crate) struct Level(AtomicI64);

/// Which counts a step changed, a bit for each: those alone are set anew.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Shifted(u8);

impl Shifted {
    const IN_FLIGHT: u8 = 1;
    const LIMIT: u8 = 2;
    const WAITED: u8 = 32;

    const fn waiting(n: usize) -> u8 {
        4 << n
    }

    /// And seconds that calls waited.
    fn and_waited(self) -> Self {
        Self(self.0 | Self::WAITED)
    }
}

pub(crate) struct Lazy<T>(OnceLock<T>);

/// The names and what they mean, for recorders that show descriptions.
#[cfg(feature = "prometheus")]
pub(crate) const DESCRIPTIONS: [(&str, metrics::Unit, &str); 19] = [
    (
        "inflight",
        metrics::Unit::Count,
        "Calls that hold a slot: from just before they are sent to the end of the body.",
    ),
    ("queue_depth", metrics::Unit::Count, "Calls that wait for a slot, by class."),
    ("queue_wait_seconds", metrics::Unit::Seconds, "How long granted calls waited for their slot, by class."),
    (
        "wait_seconds_total",
        metrics::Unit::Seconds,
        "Seconds that calls have waited, in vain or not, by what they waited for; counted when something happens in the lane.",
    ),
    ("queue_timeouts_total", metrics::Unit::Count, "Calls that waited for the whole queue timeout in vain."),
    ("limit", metrics::Unit::Count, "Most slots in use at once; 0 for unlimited."),
    ("pauses_total", metrics::Unit::Count, "Pauses that the upstream asked for, or a controller made."),
    ("breaker_state", metrics::Unit::Count, "0: closed, 1: half-open, 2: open; absent where it never opened."),
    ("outcomes_total", metrics::Unit::Count, "Calls that ended, by outcome; \"abandoned\" gave up in the queue."),
    ("refusals_total", metrics::Unit::Count, "Calls that were refused without being sent, by reason."),
    ("first_byte_seconds", metrics::Unit::Seconds, "From the grant to the first byte of the answer's body."),
    ("hold_seconds", metrics::Unit::Seconds, "How long calls held their slot."),
    ("tokens_input_total", metrics::Unit::Count, "Tokens of input that answers reported."),
    ("tokens_output_total", metrics::Unit::Count, "Tokens of output that answers reported."),
    ("usage_unknown_total", metrics::Unit::Count, "Answers that were read for their usage and reported none."),
    (
        "tokens_after_hangup_total",
        metrics::Unit::Count,
        "Tokens of output that were read ahead for callers who left before their answer was over; pieces where unknown.",
    ),
    (
        "tokens_admitted_total",
        metrics::Unit::Count,
        "Tokens that calls were charged before they were sent; counted when the calls are over.",
    ),
    ("tokens_refunded_total", metrics::Unit::Count, "Of the tokens admitted, those that came back unused."),
    ("tokens_rejected_total", metrics::Unit::Count, "Tokens of calls that a budget per minute refused."),
];

impl Meters {
    pub(crate) fn new(prefix: &'static str, lane: String) -> Self {
        Self {
            prefix,
            is_shared: lane == FOLDED,
            lane,
            in_flight: Level::default(),
            waiting: Default::default(),
            limit: Level::default(),
            handles: Lazy::default(),
            waits: Default::default(),
            waited: WaitCounters::default(),
            outcomes: Default::default(),
            refusals: Default::default(),
            abandoned: Lazy::default(),
            pauses: Lazy::default(),
            breaker: Lazy::default(),
            tokens: Lazy::default(),
            budget: Lazy::default(),
        }
    }

    /// Notes that the figures of a lane changed. Call it under the pool's lock, and
    /// [`publish`](Self::publish) after it.
    #[inline]
    pub(crate) fn shift(&self, from: Figures, to: Figures) -> Shifted {
        let mut shifted = 0;
        if from.in_use != to.in_use {
            self.in_flight.shift(from.in_use, to.in_use, self.is_shared);
            shifted |= Shifted::IN_FLIGHT;
        }
        if from.limit != to.limit {
            // Several lanes counted together show the limit of the last that changed: a sum would say less.
            self.limit.shift(from.limit, to.limit, false);
            shifted |= Shifted::LIMIT;
        }
        for (n, level) in self.waiting.iter().enumerate() {
            if from.waiting[n] != to.waiting[n] {
                level.shift(from.waiting[n], to.waiting[n], self.is_shared);
                shifted |= Shifted::waiting(n);
            }
        }
        Shifted(shifted)
    }

    /// The same for seconds that calls have waited, by cause.
    #[cold]
    pub(crate) fn shift_waited(&self, seconds: [u64; 4], shifted: Shifted) -> Shifted {
        self.waited.note(seconds);
        shifted.and_waited()
    }

    #[inline]
    pub(crate) fn publish(&self, shifted: Shifted) {
        if shifted.0 != 0 {
            self.publish_each(shifted);
        }
    }

    fn publish_each(&self, Shifted(shifted): Shifted) {
        contained(|| {
            let handles = self.handles();
            if shifted & Shifted::IN_FLIGHT != 0 {
                self.in_flight.publish(&handles.in_flight);
            }
            if shifted & Shifted::LIMIT != 0 {
                self.limit.publish(&handles.limit);
            }
            for (n, level) in self.waiting.iter().enumerate() {
                if shifted & Shifted::waiting(n) != 0 {
                    level.publish(&handles.waiting[n]);
                }
            }
            if shifted & Shifted::WAITED != 0 {
                self.waited.publish(|cause| {
                    metrics::counter!(
                        self.name("wait_seconds_total"), "lane" => self.lane.clone(), "cause" => cause.as_str()
                    )
                });
            }
        });
    }

    /// Shows the limit of a lane that is new.
    pub(crate) fn publish_limit(&self) {
        contained(|| self.limit.publish(&self.handles().limit));
    }

    pub(crate) fn granted(&self, class: Priority, waited: Duration) {
        contained(|| {
            let wait = self.waits[class.index()].get_or_make(|| {
                metrics::histogram!(
                    self.name("queue_wait_seconds"), "lane" => self.lane.clone(), "priority" => class.as_str()
                )
            });
            wait.record(waited);
        });
    }

    pub(crate) fn refused(&self, reason: Reason) {
        contained(|| {
            let refused = self.refusals[reason as usize].get_or_make(|| {
                metrics::counter!(
                    self.name("refusals_total"), "lane" => self.lane.clone(), "reason" => reason.as_str()
                )
            });
            refused.increment(1);
            if reason == Reason::QueueTimeout {
                self.handles().timeouts.increment(1);
            }
        });
    }

    pub(crate) fn abandoned(&self) {
        contained(|| self.abandoned.get_or_make(|| self.outcome("abandoned")).increment(1));
    }

    pub(crate) fn paused(&self) {
        contained(|| {
            let pauses =
                self.pauses.get_or_make(|| metrics::counter!(self.name("pauses_total"), "lane" => self.lane.clone()));
            pauses.increment(1);
        });
    }

    pub(crate) fn breaker(&self, state: BreakerState) {
        contained(|| {
            let breaker =
                self.breaker.get_or_make(|| metrics::gauge!(self.name("breaker_state"), "lane" => self.lane.clone()));
            breaker.set(match state {
                BreakerState::Closed => 0.0,
                BreakerState::HalfOpen => 1.0,
                BreakerState::Open => 2.0,
            });
        });
    }

    pub(crate) fn settled(&self, outcome: Outcome, held: Duration, first_byte: Option<Duration>) {
        contained(|| {
            self.outcomes[outcome.index()].get_or_make(|| self.outcome(outcome.as_str())).increment(1);
            let handles = self.handles();
            handles.hold.record(held);
            if let Some(after) = first_byte {
                handles.first_byte.record(after);
            }
        });
    }

    pub(crate) fn used(&self, usage: Usage) {
        contained(|| {
            let tokens = self.tokens();
            if usage.is_unknown() {
                return tokens.unknown.increment(1);
            }
            tokens.input.increment(usage.input_tokens.unwrap_or(0));
            tokens.output.increment(usage.output_tokens.unwrap_or(0));
        });
    }

    pub(crate) fn after_hangup(&self, tokens: u64) {
        contained(|| self.tokens().after_hangup.increment(tokens));
    }

    fn tokens(&self) -> &TokenCounters {
        self.tokens.get_or_make(|| {
            let counter = |what: &str| metrics::counter!(self.name(what), "lane" => self.lane.clone());
            TokenCounters {
                input: counter("tokens_input_total"),
                output: counter("tokens_output_total"),
                unknown: counter("usage_unknown_total"),
                after_hangup: counter("tokens_after_hangup_total"),
            }
        })
    }

    pub(crate) fn spent(&self, spent: Spent) {
        contained(|| {
            let budget = self.budget();
            budget.admitted.increment(spent.admitted);
            budget.refunded.increment(spent.refunded);
        });
    }

    pub(crate) fn rejected(&self, tokens: Tokens) {
        contained(|| self.budget().rejected.increment(tokens.sum()));
    }

    fn budget(&self) -> &BudgetCounters {
        self.budget.get_or_make(|| {
            let counter = |what: &str| metrics::counter!(self.name(what), "lane" => self.lane.clone());
            BudgetCounters {
                admitted: counter("tokens_admitted_total"),
                refunded: counter("tokens_refunded_total"),
                rejected: counter("tokens_rejected_total"),
            }
        })
    }

    #[inline]
    fn handles(&self) -> &Handles {
        self.handles.0.get().unwrap_or_else(|| self.make_handles())
    }

    #[cold]
    fn make_handles(&self) -> &Handles {
        let gauge = |what: &str| metrics::gauge!(self.name(what), "lane" => self.lane.clone());
        let histogram = |what: &str| metrics::histogram!(self.name(what), "lane" => self.lane.clone());
        let depth = |class: Priority| metrics::gauge!(self.name("queue_depth"), "lane" => self.lane.clone(), "priority" => class.as_str());
        self.handles.get_or_make(|| Handles {
            in_flight: gauge("inflight"),
            waiting: Priority::ALL.map(depth),
            limit: gauge("limit"),
            timeouts: metrics::counter!(self.name("queue_timeouts_total"), "lane" => self.lane.clone()),
            first_byte: histogram("first_byte_seconds"),
            hold: histogram("hold_seconds"),
        })
    }

    fn outcome(&self, outcome: &'static str) -> Counter {
        metrics::counter!(self.name("outcomes_total"), "lane" => self.lane.clone(), "outcome" => outcome)
    }

    fn name(&self, what: &str) -> String {
        format!("{}_{what}", self.prefix)
    }
}

/// The panic has been reported by the hook of whoever wants to know; nothing of ours is broken by it.
pub(crate) fn contained(record: impl FnOnce()) {
    let _ = catch_unwind(AssertUnwindSafe(record));
}

impl Level {
    /// For a count that is changed under one lock. True if it is another one now.
    pub(crate) fn set(&self, count: u32) -> bool {
        let has_changed = self.0.load(Ordering::Relaxed) != i64::from(count);
        if has_changed {
            self.0.store(i64::from(count), Ordering::Relaxed);
        }
        has_changed
    }

    #[inline]
    fn shift(&self, from: u32, to: u32, is_shared: bool) {
        if is_shared {
            self.0.fetch_add(i64::from(to) - i64::from(from), Ordering::Relaxed);
        } else {
            // The lane's pool calls this under its lock, and nobody else does: a plain write, which costs next to nothing.
            self.0.store(i64::from(to), Ordering::Relaxed);
        }
    }

    fn is_zero(&self) -> bool {
        self.0.load(Ordering::Relaxed) == 0
    }

    /// Whoever sets the gauge last looks once more, so the last value set is the current one.
    pub(crate) fn publish(&self, gauge: &Gauge) {
        loop {
            let count = self.0.load(Ordering::Relaxed);
            #[expect(clippy::cast_precision_loss, reason = "counts stay far below 2^52")]
            gauge.set(count as f64);
            if self.0.load(Ordering::Relaxed) == count {
                return;
            }
        }
    }
}

impl<T> Lazy<T> {
    /// Not `get_or_init`: a recorder that comes back here while it makes a handle would wait for itself.
    #[inline]
    pub(crate) fn get_or_make(&self, make: impl FnOnce() -> T) -> &T {
        match self.0.get() {
            Some(handle) => handle,
            None => {
                let made = make();
                self.0.get_or_init(|| made)
            }
        }
    }
}

impl<T> Default for Lazy<T> {
    fn default() -> Self {
        Self(OnceLock::new())
    }
}

impl std::fmt::Debug for Meters {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Meters").field("lane", &self.lane).finish_non_exhaustive()
    }
}
