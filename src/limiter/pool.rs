//! Steps one engine pool under its lock, and does outside the lock what the step asked for.

use std::sync::{Arc, Weak};

use smallvec::SmallVec;
use tokio::sync::Notify;

use super::clock;
use super::lane::LaneInner;
use super::shared::Shared;
use super::timer;
use crate::engine::policy::PoolPolicy;
use crate::engine::queue::WaiterId;
use crate::engine::step::{Effects, Grant, LaneId};
use crate::engine::time::Time;
use crate::engine::{policy, pool as engine};
use crate::meters::Shifted;
use crate::sync::{Mutex, MutexGuard, lock};

/// The lanes of one endpoint and kind.
#[derive(Debug)]
pub(crate) struct Pool {
    locked: Mutex<Locked>,
    pub(super) shared: Arc<Shared>,
    /// Tells the timer task that something is due earlier than it thinks.
    pub(super) nudge: Arc<Notify>,
    pub(super) me: Weak<Self>,
}

#[derive(Debug)]
struct Locked {
    state: State,
    /// Of the step under way: empty between steps. It lies here so that a step that does little does not build one.
    effects: Effects,
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
            engine.close(clock::now(), &mut Effects::default());
        }
        let state = State { engine, counted: 0, lanes: Vec::new(), timer: timer::State::default() };
        Arc::new_cyclic(|me| Self {
            locked: Mutex::new(Locked { state, effects: Effects::default() }),
            shared,
            nudge: Arc::default(),
            me: me.clone(),
        })
    }

    pub(super) fn add_lane(
        &self,
        make: impl FnOnce(LaneId) -> LaneInner,
        policy: policy::LanePolicy,
    ) -> Arc<LaneInner> {
        let state = &mut lock(&self.locked).state;
        let id = state.engine.add_lane(policy);
        let lane = Arc::new(make(id));
        if state.lanes.len() <= id.index() {
            state.lanes.resize_with(id.index() + 1, Entry::default);
        }
        state.lanes[id.index()] = Entry { lane: Arc::downgrade(&lane), told: (0, [0; 3]) };
        lane
    }

    /// Steps the engine for one lane.
    ///
    /// Inlined, as what follows: an answer goes on to where it is wanted without a rest in memory on its way.
    #[inline(always)]
    pub(super) fn step<R>(&self, lane: &LaneInner, step: impl FnOnce(&mut State, &mut Effects) -> R) -> R {
        let mut locked = lock(&self.locked);
        let Locked { state, effects } = &mut *locked;
        let result = step(state, effects);
        let timer = state.plan();
        self.finish(locked, Some(lane), timer);
        result
    }

    /// Steps the engine for a waiter that is being polled.
    #[inline(always)]
    pub(super) fn step_polled<R>(&self, lane: &LaneInner, step: impl FnOnce(&mut State, &mut Effects) -> R) -> R {
        let mut locked = lock(&self.locked);
        let Locked { state, effects } = &mut *locked;
        let result = step(state, effects);
        let timer = state.plan_for_waiter();
        self.finish(locked, Some(lane), timer);
        result
    }

    /// Steps the engine for a waiter that is being polled: `first`, and in the same step `second` if that gave nothing.
    #[inline(always)]
    pub(super) fn step_polled_or<R, N, E>(
        &self,
        lane: &LaneInner,
        first: impl FnOnce(&mut State, &mut Effects) -> Result<R, N>,
        second: impl FnOnce(N, &mut State) -> E,
    ) -> Result<R, E> {
        let mut locked = lock(&self.locked);
        let Locked { state, effects } = &mut *locked;
        // Two ends and not one: a grant stays in registers on its way.
        match first(state, effects) {
            Ok(result) => {
                let timer = state.plan_for_waiter();
                self.finish(locked, Some(lane), timer);
                Ok(result)
            }
            Err(nothing) => {
                let error = second(nothing, state);
                let timer = state.plan_for_waiter();
                self.finish(locked, Some(lane), timer);
                Err(error)
            }
        }
    }

    /// The slot of a waiter that was granted one. No figure changes, nobody is to be woken: the lock is all it takes.
    #[inline]
    pub(super) fn pick_up(&self, lane: &LaneInner, waiter: WaiterId) -> Option<Grant> {
        lock(&self.locked).state.engine.pick_up(lane.id, waiter)
    }

    /// Steps the engine for no lane in particular.
    pub(super) fn step_all<R>(&self, step: impl FnOnce(&mut State, &mut Effects) -> R) -> R {
        let mut locked = lock(&self.locked);
        let Locked { state, effects } = &mut *locked;
        let result = step(state, effects);
        let timer = state.plan();
        self.finish(locked, None, timer);
        result
    }

    /// Looks without changing anything that others would have to be told of.
    pub(super) fn read<R>(&self, look: impl FnOnce(&mut engine::Pool) -> R) -> R {
        look(&mut lock(&self.locked).state.engine)
    }

    pub(super) fn remove_lane(&self, id: LaneId, now: Time) -> bool {
        lock(&self.locked).state.engine.remove_lane(id, now)
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
        let now = clock::now();
        self.step_all(|state, effects| state.engine.close(now, effects));
    }

    /// Unlocks, then wakes and reports: nothing that could call back into the limiter runs under the lock. Wakes come
    /// first, so that a recorder that panics cannot lose one.
    #[inline(never)]
    fn finish(&self, mut guard: MutexGuard<'_, Locked>, lane: Option<&LaneInner>, timer: timer::Order) {
        let Locked { state, effects } = &mut *guard;
        state.count_waiters(&self.shared);
        let told = lane.map(|lane| (lane, state.tell(lane)));
        if !effects.are_few() || state.engine.is_closed() {
            return self.finish_many(guard, told, timer);
        }
        let (wake, spent) = (effects.wakes.pop(), effects.spent.pop());
        drop(guard);

        if let Some(waker) = wake {
            waker.wake();
        }
        drop(spent);
        timer.carry_out(self);
        if let Some((lane, shifted)) = told {
            lane.meters.publish(shifted);
        }
    }

    /// The same for a step that did more than to wake one waiter.
    #[cold]
    fn finish_many(&self, mut guard: MutexGuard<'_, Locked>, told: Option<(&LaneInner, Shifted)>, timer: timer::Order) {
        let Locked { state, effects } = &mut *guard;
        let effects = std::mem::take(effects);
        let others: SmallVec<[(Arc<LaneInner>, Shifted); 2]> =
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
        if let Some((lane, shifted)) = told {
            lane.meters.publish(shifted);
        }
        for (lane, shifted) in &others {
            lane.meters.publish(*shifted);
        }
        for dropped in &effects.dropped {
            if let Some((lane, _)) = others.iter().find(|(lane, _)| lane.id == dropped.lane) {
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
        // Those who expired in this very step have left their places.
        self.count_waiters(shared);
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

    fn tell_known(&mut self, id: LaneId) -> Option<(Arc<LaneInner>, Shifted)> {
        let lane = self.lanes[id.index()].lane.upgrade()?;
        let shifted = self.tell(&lane);
        Some((lane, shifted))
    }

    /// Brings the lane's gauges up to date; they are published after the unlock.
    #[inline]
    fn tell(&mut self, lane: &LaneInner) -> Shifted {
        let figures = self.engine.figures(lane.id);
        let told = &mut self.lanes[lane.id.index()].told;
        if *told == figures {
            return Shifted::default();
        }
        lane.meters.shift(std::mem::replace(told, figures), figures)
    }
}
