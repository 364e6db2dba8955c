//! What is written down while it storms.

use std::array;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tower_inflight::Priority;

use crate::stack::Stack;
use crate::support::GatewayStats;

/// One run. Times count from its beginning.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) stack: Stack,
    pub(crate) jobs: Vec<JobRecord>,
    pub(crate) samples: Vec<Sample>,
    /// When attempts failed, and when jobs were given up.
    pub(crate) failed_attempts: Vec<Duration>,
    pub(crate) upstream_calls: usize,
    pub(crate) stats: GatewayStats,
}

#[derive(Clone, Debug)]
pub(crate) struct JobRecord {
    pub(crate) priority: Priority,
    pub(crate) arrived_at: Duration,
    pub(crate) ended_at: Duration,
    pub(crate) attempts: u32,
    /// `None`: given up.
    pub(crate) answer: Option<AnswerTimes>,
}

#[derive(Clone, Debug)]
pub(crate) struct AnswerTimes {
    pub(crate) head_at: Duration,
    pub(crate) first_token_at: Duration,
    pub(crate) tokens: u32,
}

/// The state at one moment.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    pub(crate) at: Duration,
    pub(crate) open: usize,
    pub(crate) abandoned: usize,
    /// Callers without a first token, in the order of [`Priority::ALL`].
    pub(crate) waiting: [usize; 3],
}

/// Shared by all callers of a run.
#[derive(Clone, Debug)]
pub(crate) struct Recorder(Arc<Notes>);

#[derive(Debug)]
struct Notes {
    start: Instant,
    waiting: [AtomicUsize; 3],
    finished: AtomicUsize,
    failed: AtomicUsize,
    failed_attempts: Mutex<Vec<Duration>>,
}

impl Recorder {
    pub(crate) fn start() -> Self {
        Self(Arc::new(Notes {
            start: Instant::now(),
            waiting: array::from_fn(|_| AtomicUsize::new(0)),
            finished: AtomicUsize::new(0),
            failed: AtomicUsize::new(0),
            failed_attempts: Mutex::default(),
        }))
    }

    pub(crate) fn now(&self) -> Duration {
        self.0.start.elapsed()
    }

    /// Counts the caller as waiting until the guard is dropped.
    pub(crate) fn waiting(&self, priority: Priority) -> Waiting {
        self.0.waiting[priority as usize].fetch_add(1, Relaxed);
        Waiting { notes: self.0.clone(), priority }
    }

    pub(crate) fn attempt_failed(&self) {
        let at = self.now();
        self.0.failed_attempts.lock().unwrap_or_else(PoisonError::into_inner).push(at);
    }

    pub(crate) fn failed_attempts(&self) -> Vec<Duration> {
        self.0.failed_attempts.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn job_ended(&self, is_finished: bool) {
        let counter = if is_finished { &self.0.finished } else { &self.0.failed };
        counter.fetch_add(1, Relaxed);
    }

    pub(crate) fn finished(&self) -> usize {
        self.0.finished.load(Relaxed)
    }

    pub(crate) fn failed(&self) -> usize {
        self.0.failed.load(Relaxed)
    }

    pub(crate) fn sample(&self, stats: &GatewayStats) -> Sample {
        let waiting = array::from_fn(|class| self.0.waiting[class].load(Relaxed));
        Sample { at: self.now(), open: stats.open, abandoned: stats.abandoned, waiting }
    }
}

#[derive(Debug)]
pub(crate) struct Waiting {
    notes: Arc<Notes>,
    priority: Priority,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.notes.waiting[self.priority as usize].fetch_sub(1, Relaxed);
    }
}
