//! Steps one engine pool under its lock, and does outside the lock what the step asked for.

use std::sync::{Arc, Weak};

use smallvec::SmallVec;
use tokio::sync::Notify;

use super::clock;
use super::lane::LaneInner;
use super::shared::Shared;
use super::timer;
use crate::engine::policy::PoolPolicy;
use crate::engine::pool::{Effects, LaneId};
use crate::engine::time::Time;
use crate::engine::{policy, pool as engine};
use crate::sync::{Mutex, MutexGuard, lock};

/// The lanes of one endpoint and kind.
#[derive(Debug)]
pub(crate) struct Pool {
    state: Mutex<State>,
    pub(super) shared: Arc<Shared>,
    /// Tells the timer task that something is due earlier than it thinks.
    pub(super) nudge: Arc<Notify>,
    pub(super) me: Weak<Self>,
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) engine: engine::Pool,
    /// Waiters of this pool that are counted in the total over all pools.
    counted: usize,
    /// By lane id.
    lanes: Vec<Entry>,
    pub(super) timer: timer::State,
}

#[derive(Debug, Default)]
struct Entry {
    lane: Weak<LaneInner>,
    /// What the lane's gauges were last told: slots in use, and waiters by class.
    told: (u32, [u32; 3]),
}

impl Pool {
    pub(super) fn new(policy: PoolPolicy, shared: Arc<Shared>) -> Arc<Self> {
        let mut engine = engine::Pool::new(policy);
        if shared.is_closed() {
            engine.close(&mut Effects::default());
        }
        let state = State { engine, counted: 0, lanes: Vec::new(), timer: timer::State::default() };
        Arc::new_cyclic(|me| Self { state: Mutex::new(state), shared, nudge: Arc::default(), me: me.clone() })
    }

    pub(super) fn add_lane(
        &self,
        make: impl FnOnce(LaneId) -> LaneInner,
        policy: policy::LanePolicy,
    ) -> Arc<LaneInner> {
        let mut state = lock(&self.state);
        let id = state.engine.add_lane(policy);
        let lane = Arc::new(make(id));
        if state.lanes.len() <= id.index() {
            state.lanes.resize_with(id.index() + 1, Entry::default);
        }
        state.lanes[id.index()] = Entry { lane: Arc::downgrade(&lane), told: (0, [0; 3]) };
        lane
    }

    /// Steps the engine for one lane.
    pub(super) fn step<R>(&self, lane: &LaneInner, step: impl FnOnce(&mut State, &mut Effects) -> R) -> R {
        let mut effects = Effects::default();
        let mut state = lock(&self.state);
        let result = step(&mut state, &mut effects);
        let timer = state.plan();
        self.finish(state, Some(lane), timer, effects);
        result
    }

    /// Steps the engine for a waiter that is being polled.
    pub(super) fn step_polled<R>(&self, lane: &LaneInner, step: impl FnOnce(&mut State, &mut Effects) -> R) -> R {
        let mut effects = Effects::default();
        let mut state = lock(&self.state);
        let result = step(&mut state, &mut effects);
        let timer = state.plan_for_waiter();
        self.finish(state, Some(lane), timer, effects);
        result
    }

    /// Steps the engine for no lane in particular.
    pub(super) fn step_all<R>(&self, step: impl FnOnce(&mut State, &mut Effects) -> R) -> R {
        let mut effects = Effects::default();
        let mut state = lock(&self.state);
        let result = step(&mut state, &mut effects);
        let timer = state.plan();
        self.finish(state, None, timer, effects);
        result
    }

    /// Looks without changing anything that others would have to be told of.
    pub(super) fn read<R>(&self, look: impl FnOnce(&mut engine::Pool) -> R) -> R {
        look(&mut lock(&self.state).engine)
    }

    pub(super) fn remove_lane(&self, id: LaneId, now: Time) -> bool {
        lock(&self.state).engine.remove_lane(id, now)
    }

    pub(super) fn in_flight(&self) -> usize {
        self.read(|engine| engine.in_use()) as usize
    }

    /// Puts another cap in force, and grants what this and the lanes' new policies allow.
    pub(super) fn reconfigure(&self, policy: PoolPolicy) {
        let now = clock::now();
        self.step_all(|state, effects| {
            state.engine.set_policy(policy);
            state.engine.dispatch_all(now, effects);
        });
    }

    pub(super) fn close(&self) {
        self.step_all(|state, effects| state.engine.close(effects));
    }

    /// Unlocks, then wakes and reports: nothing that could call back into the limiter runs under the lock. Wakes come
    /// first, so that a recorder that panics cannot lose one.
    fn finish(
        &self,
        mut guard: MutexGuard<'_, State>,
        lane: Option<&LaneInner>,
        timer: timer::Order,
        effects: Effects,
    ) {
        let state = &mut *guard;
        state.count_waiters(&self.shared);
        if let Some(lane) = lane {
            state.tell(lane);
        }
        let changed: SmallVec<[Arc<LaneInner>; 2]> =
            effects.touched.iter().filter_map(|id| state.tell_known(*id)).collect();
        let is_drained = state.engine.is_closed() && state.engine.in_use() == 0;
        drop(guard);

        for waker in effects.wakes {
            waker.wake();
        }
        timer.carry_out(self);
        if is_drained {
            self.shared.drained.notify_waiters();
        }
        if let Some(lane) = lane {
            lane.meters.publish();
        }
        for lane in &changed {
            lane.meters.publish();
        }
        for dropped in &effects.dropped {
            if let Some(lane) = changed.iter().find(|lane| lane.id == dropped.lane) {
                lane.report_refused(dropped.reason);
            }
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.nudge.notify_one();
    }
}

impl State {
    fn plan(&mut self) -> timer::Order {
        self.timer.plan(self.engine.poll_timeout())
    }

    fn plan_for_waiter(&mut self) -> timer::Order {
        self.timer.plan_for_waiter(self.engine.poll_timeout())
    }

    /// Takes a place in the total over all pools, or none if all are taken.
    pub(super) fn reserve_place(&mut self, shared: &Shared) -> bool {
        let is_free = shared.reserve();
        self.counted += usize::from(is_free);
        is_free
    }

    fn count_waiters(&mut self, shared: &Shared) {
        let waiting = self.engine.waiting() as usize;
        if waiting != self.counted {
            shared.recount(self.counted, waiting);
            self.counted = waiting;
        }
    }

    fn tell_known(&mut self, id: LaneId) -> Option<Arc<LaneInner>> {
        let lane = self.lanes[id.index()].lane.upgrade()?;
        self.tell(&lane);
        Some(lane)
    }

    /// Brings the lane's gauges up to date; they are published after the unlock.
    fn tell(&mut self, lane: &LaneInner) {
        let figures = self.engine.figures(lane.id);
        let told = std::mem::replace(&mut self.lanes[lane.id.index()].told, figures);
        lane.meters.shift(told, figures);
    }
}
