//! What is written down during the day. Times are those of this machine, counted from the beginning.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tower_inflight::{BreakerState, ByPriority, ChangeKind, LaneSnapshot, LimitChange, Priority};

use crate::load::{PROMPT_TOKENS, RESERVED_TOKENS};

/// The state at one moment. What only grows is counted from the beginning.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    pub(crate) at: Duration,
    pub(crate) limit: u32,
    pub(crate) in_flight: u32,
    pub(crate) queued: ByPriority,
    pub(crate) breaker: BreakerState,
    pub(crate) sent: Sent,
    pub(crate) used_tokens: u64,
    pub(crate) refused: BTreeMap<&'static str, u64>,
}

/// Attempts that left.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sent {
    pub(crate) first: u64,
    pub(crate) retries: u64,
}

impl Sent {
    pub(crate) fn all(self) -> u64 {
        self.first + self.retries
    }

    /// What they were charged.
    pub(crate) fn tokens(self) -> u64 {
        self.all() * u64::from(PROMPT_TOKENS + RESERVED_TOKENS)
    }
}

/// A time that a call took, by when it was known and whose it was.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Took {
    pub(crate) at: Duration,
    pub(crate) class: Priority,
    pub(crate) time: Duration,
}

/// The breaker changed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Turn {
    pub(crate) at: Duration,
    pub(crate) to: BreakerState,
    /// Attempts that had left by then.
    pub(crate) sent: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct Recorder(Arc<Notes>);

#[derive(Debug)]
struct Notes {
    start: Instant,
    first: AtomicU64,
    retries: AtomicU64,
    waits: Mutex<Vec<Took>>,
    first_tokens: Mutex<Vec<Took>>,
    turns: Mutex<Vec<Turn>>,
}

impl Recorder {
    pub(crate) fn start() -> Self {
        Self(Arc::new(Notes {
            start: Instant::now(),
            first: AtomicU64::default(),
            retries: AtomicU64::default(),
            waits: Mutex::default(),
            first_tokens: Mutex::default(),
            turns: Mutex::default(),
        }))
    }

    pub(crate) fn now(&self) -> Duration {
        self.0.start.elapsed()
    }

    pub(crate) fn sent(&self, attempt: u32) {
        let count = if attempt == 1 { &self.0.first } else { &self.0.retries };
        count.fetch_add(1, Relaxed);
    }

    pub(crate) fn waited(&self, class: Priority, time: Duration) {
        lock(&self.0.waits).push(Took { at: self.now(), class, time });
    }

    pub(crate) fn first_token(&self, class: Priority, time: Duration) {
        lock(&self.0.first_tokens).push(Took { at: self.now(), class, time });
    }

    pub(crate) fn changed(&self, change: &LimitChange<'_>) {
        if let ChangeKind::Breaker { to, .. } = change.kind {
            lock(&self.0.turns).push(Turn { at: self.now(), to, sent: self.all_sent().all() });
        }
    }

    pub(crate) fn waits(&self) -> Vec<Took> {
        lock(&self.0.waits).clone()
    }

    pub(crate) fn first_tokens(&self) -> Vec<Took> {
        lock(&self.0.first_tokens).clone()
    }

    pub(crate) fn turns(&self) -> Vec<Turn> {
        lock(&self.0.turns).clone()
    }

    pub(crate) fn sample(&self, lane: &LaneSnapshot) -> Sample {
        Sample {
            at: self.now(),
            limit: lane.limit,
            in_flight: lane.inflight,
            queued: lane.queued_by_priority,
            breaker: lane.breaker,
            sent: self.all_sent(),
            used_tokens: lane.tokens_input + lane.tokens_output,
            refused: lane.refused.clone(),
        }
    }

    fn all_sent(&self) -> Sent {
        Sent { first: self.0.first.load(Relaxed), retries: self.0.retries.load(Relaxed) }
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}
