//! Steps the runs under their lock, and does outside of it what the step asked for.

use std::fmt;
use std::sync::{Arc, OnceLock, Weak};
use std::task::Waker;

use smallvec::SmallVec;

use super::budget::{Asking, Budget, BudgetMoment};
use super::error::{Backpressure, RunOver, StartError};
use super::event::{RunEvent, RunNotice};
use super::feed::Feed;
use super::meters::RunMeters;
use super::routes::Routes;
use crate::config::{BudgetChecks, RunConfig};
use crate::engine::runs::{Effects, Ending, Fact, Limits, RunBound, RunRef, RunStatus, Runs, UserKey};
use crate::engine::time::Time;
use crate::limiter::clock;
use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::{Mutex, lock};
use crate::trace;

/// What all handles of a queue share.
pub(crate) struct Hub {
    locked: Mutex<Locked>,
    pub(super) config: RunConfig,
    budget: Option<Arc<dyn Budget>>,
    /// Streams that listen to one run or to all.
    listeners: AtomicUsize,
    pub(super) meters: RunMeters,
}

struct Locked {
    engine: Engine,
    /// Of those who listen to all runs.
    feeds: Vec<Weak<Feed<RunNotice>>>,
}

pub(super) type Engine = Runs<Arc<RunState>>;

/// What all handles of a run share.
pub(crate) struct RunState {
    pub(super) hub: Arc<Hub>,
    pub(super) at: RunRef,
    pub(super) user: UserKey,
    pub(super) key: Option<Arc<str>>,
    /// Set under the hub's lock, in the step in which the run leaves the engine.
    over: OnceLock<RunStatus>,
    /// Set before the run is ended as refused.
    refused: OnceLock<StartError>,
    feeds: Mutex<Vec<Weak<Feed<RunEvent>>>>,
    pub(super) routes: Routes,
}

impl Hub {
    pub(super) fn new(config: RunConfig, budget: Option<Arc<dyn Budget>>, prefix: &'static str) -> Self {
        let limits = Limits {
            concurrent: config.max_concurrent_runs,
            concurrent_per_user: config.max_concurrent_runs_per_user,
            depth: config.max_queue_depth,
            queued_per_user: config.max_queued_runs_per_user,
        };
        let engine = Runs::new(limits, budget.is_some());
        Self {
            locked: Mutex::new(Locked { engine, feeds: Vec::new() }),
            config,
            budget,
            listeners: AtomicUsize::new(0),
            meters: RunMeters::new(prefix),
        }
    }

    /// Steps the engine.
    pub(super) fn step<A>(&self, step: impl FnOnce(&mut Engine, Time, &mut Effects<Arc<RunState>>) -> A) -> A {
        let now = clock::now();
        let mut effects = Effects::default();
        let mut locked = lock(&self.locked);
        let answer = step(&mut locked.engine, now, &mut effects);
        // Under the lock, so that every listener hears of everything in the order in which it happened.
        let is_heard = self.is_heard();
        for (run, fact) in &effects.facts {
            run.note(*fact);
            if is_heard {
                let event = RunEvent::of(*fact, || run.refused.get().map(ToString::to_string).unwrap_or_default());
                locked.tell(run, event, &mut effects.wakes);
            }
        }
        let shifted = self.meters.shift(locked.engine.counts());
        drop(locked);

        for waker in effects.wakes {
            waker.wake();
        }
        self.meters.publish(shifted);
        for (run, fact) in &effects.facts {
            self.meters.count(*fact);
            trace::run(run.at.id, *fact);
        }
        answer
    }

    /// Looks without changing anything.
    pub(super) fn read<A>(&self, look: impl FnOnce(&Engine) -> A) -> A {
        look(&lock(&self.locked).engine)
    }

    /// Tells those who listen of something that is no step of the engine.
    pub(super) fn tell(&self, run: &RunState, event: impl FnOnce() -> RunEvent) {
        if self.is_heard() {
            let mut wakes = SmallVec::new();
            lock(&self.locked).tell(run, event(), &mut wakes);
            for waker in wakes {
                waker.wake();
            }
        }
    }

    pub(super) fn listen_to_all(&self) -> Arc<Feed<RunNotice>> {
        let feed = Arc::new(Feed::new(self.config.event_buffer));
        lock(&self.locked).feeds.push(Arc::downgrade(&feed));
        self.listeners.fetch_add(1, Ordering::Relaxed);
        feed
    }

    /// From where the run stands now on; the first event says where that is.
    pub(super) fn listen_to(&self, run: &RunState) -> (Arc<Feed<RunEvent>>, Option<RunEvent>) {
        let feed = Arc::new(Feed::new(self.config.event_buffer));
        self.listeners.fetch_add(1, Ordering::Relaxed);
        let locked = lock(&self.locked);
        let first = match run.over() {
            Some(over) => Some(over.last_event()),
            None => RunEvent::of_standing(locked.engine.standing(run.at)),
        };
        lock(&run.feeds).push(Arc::downgrade(&feed));
        (feed, first)
    }

    pub(super) fn stop_listening(&self) {
        self.listeners.fetch_sub(1, Ordering::Relaxed);
    }

    /// Asks the budget, if there is one.
    pub(super) fn ask(&self, user: &UserKey, moment: BudgetMoment) -> Option<Asking> {
        let budget = self.budget.as_ref()?;
        if moment == BudgetMoment::Call && self.config.budget_checks != BudgetChecks::EveryCall {
            return None;
        }
        Some(Asking::new(budget, user.clone(), moment, self.config.budget_timeout))
    }

    pub(super) fn backpressure(&self, bound: RunBound) -> Backpressure {
        self.meters.refused(bound);
        let RunConfig { max_concurrent_runs, max_queue_depth, max_queued_runs_per_user, .. } = self.config;
        let limit = match bound {
            RunBound::ConcurrentRuns => max_concurrent_runs,
            RunBound::ConcurrentRunsPerUser => self.config.max_concurrent_runs_per_user.unwrap_or(max_concurrent_runs),
            RunBound::QueueDepth => max_queue_depth,
            RunBound::QueuedRunsPerUser => max_queued_runs_per_user,
        };
        Backpressure::new(bound, limit)
    }

    fn is_heard(&self) -> bool {
        self.listeners.load(Ordering::Relaxed) > 0
    }
}

impl Locked {
    fn tell(&mut self, run: &RunState, event: RunEvent, wakes: &mut SmallVec<[Waker; 4]>) {
        self.feeds.retain(|feed| feed.strong_count() > 0);
        for feed in self.feeds.iter().filter_map(Weak::upgrade) {
            let UserKey { tenant, user } = run.user.clone();
            wakes.extend(feed.put(RunNotice { run: run.at.id, tenant, user, event: event.clone() }));
        }
        let mut feeds = lock(&run.feeds);
        feeds.retain(|feed| feed.strong_count() > 0);
        for feed in feeds.iter().filter_map(Weak::upgrade) {
            wakes.extend(feed.put(event.clone()));
        }
    }
}

impl RunState {
    pub(super) fn new(hub: Arc<Hub>, at: RunRef, user: UserKey, key: Option<Arc<str>>) -> Self {
        let (over, refused) = (OnceLock::new(), OnceLock::new());
        Self { hub, at, user, key, over, refused, feeds: Mutex::new(Vec::new()), routes: Routes::default() }
    }

    /// The run is over and why, once it is.
    pub(super) fn over(&self) -> Option<RunOver> {
        let status = *self.over.get()?;
        let refused = self.refused.get().filter(|_| status == RunStatus::Refused).cloned();
        Some(RunOver { id: self.at.id, status, refused })
    }

    /// Ends the run in this way.
    ///
    /// # Errors
    /// It is over already.
    pub(super) fn end(&self, ending: Ending) -> Result<(), RunOver> {
        let was_over = self.hub.step(|engine, now, effects| {
            let over = self.over();
            engine.end(self.at, ending, now, effects);
            over
        });
        was_over.map_or(Ok(()), Err)
    }

    pub(super) fn refuse(&self, why: StartError) {
        let _ = self.refused.set(why);
        let _ = self.end(Ending::Refused);
    }

    fn note(&self, fact: Fact) {
        if let Fact::Over(ending) = fact {
            let _ = self.over.set(match ending {
                Ending::Finished => RunStatus::Finished,
                Ending::Cancelled => RunStatus::Cancelled,
                Ending::Refused => RunStatus::Refused,
            });
        }
    }
}

impl RunOver {
    pub(super) fn last_event(&self) -> RunEvent {
        match self.status {
            RunStatus::Finished => RunEvent::Finished,
            RunStatus::Refused => {
                RunEvent::Refused { why: self.refused.as_ref().map(ToString::to_string).unwrap_or_default() }
            }
            _ => RunEvent::Cancelled,
        }
    }
}

impl fmt::Debug for Hub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hub").field("config", &self.config).finish_non_exhaustive()
    }
}

impl fmt::Debug for RunState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Run").field("id", &self.at.id).field("user", &self.user).finish_non_exhaustive()
    }
}
