//! Steps one engine pool under its lock, and does outside the lock what the step asked for.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::{Arc, Weak};

use smallvec::SmallVec;
use tokio::sync::Notify;

use super::clock;
use super::key::LaneKey;
use super::lane::{LaneInner, Place};
use super::observer::{LimitChange, Subject};
use super::shared::Shared;
use super::timer;
use crate::config::{Policy, Quota};
use crate::engine::change::ChangeKind;
use crate::engine::pool::{self as engine, Figures, PoolFigures, PoolView};
use crate::engine::queue::WaiterId;
use crate::engine::steering::Steering;
use crate::engine::step::{Change, Effects, Grant, LaneId, Whose};
use crate::engine::time::Time;
use crate::meters::{Meters, PoolMeters, Shifted};
use crate::sync::{Mutex, MutexGuard, lock};
use crate::trace;

/// The lanes of one endpoint and kind.
#[derive(Debug)]
pub(crate) struct Pool {
    /// Of the endpoint and kind, without a model.
    pub(super) key: LaneKey,
    locked: Mutex<Locked>,
    is_steered_by_user: bool,
    pub(super) meters: Arc<PoolMeters>,
    pub(super) shared: Arc<Shared>,
    /// Tells the timer task that something is due earlier than it thinks.
    pub(super) nudge: Arc<Notify>,
    #[cfg_attr(inflight_loom, allow(dead_code, reason = "no timer in a model"))]
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
    /// In force for the pool's own slots.
    policy: Arc<Policy>,
    /// What the pool's own gauges were last told.
    told: PoolFigures,
    /// By lane id.
    lanes: Vec<Entry>,
    pub(super) timer: timer::State,
}

#[derive(Debug, Default)]
struct Entry {
    lane: Weak<LaneInner>,
    /// In force for the lane, if there is one.
    policy: Option<Arc<Policy>>,
    /// What the lane's gauges were last told.
    told: Figures,
}

impl Pool {
    pub(super) fn new(
        key: LaneKey,
        own: Option<Steering>,
        policy: &Arc<Policy>,
        meters: Arc<PoolMeters>,
        shared: Arc<Shared>,
    ) -> Arc<Self> {
        let (endpoint, kind) = (key.endpoint(), key.kind());
        let is_steered_by_user = own.is_some();
        let steering = own.or_else(|| policy.steer_pool(endpoint, kind, seed()));
        let mut engine = engine::Pool::new(policy.pool(endpoint, kind), steering, seed());
        engine.set_quota(policy.pool_quota(endpoint, kind).map(Quota::policy), clock::now());
        if shared.is_closed() {
            engine.close(clock::now(), &mut Effects::default());
        }
        let (policy, timer) = (policy.clone(), timer::State::default());
        let mut state = State { engine, counted: 0, policy, told: PoolFigures::default(), lanes: Vec::new(), timer };
        state.tell_own(&meters);
        Arc::new_cyclic(|me| Self {
            key,
            is_steered_by_user,
            meters,
            locked: Mutex::new(Locked { state, effects: Effects::default() }),
            shared,
            nudge: Arc::default(),
            me: me.clone(),
        })
    }

    pub(super) fn add_lane(
        self: &Arc<Self>,
        key: LaneKey,
        own: Option<Steering>,
        policy: &Arc<Policy>,
        meters: Arc<Meters>,
    ) -> Arc<LaneInner> {
        let rules = policy.lane(&key);
        let is_steered_by_user = own.is_some();
        let steering = own.or_else(|| policy.steer_lane(&key, seed()));
        let state = &mut lock(&self.locked).state;
        let id = state.engine.add_lane(rules.admission, steering);
        let quota = policy.lane_quota(&key);
        state.engine.set_lane_quota(id, quota.map(Quota::policy), clock::now());
        state.engine.set_breaker(id, policy.lane_breaker(&key), clock::now(), &mut Effects::default());
        state.engine.set_retry_budget(id, policy.lane_retry_budget(&key));
        let place = Place { pool: self.clone(), id, is_steered_by_user };
        let lane = Arc::new(LaneInner::new(key, place, meters, rules.guards));
        lane.charge(policy.charging(&lane.key));
        if state.lanes.len() <= id.index() {
            state.lanes.resize_with(id.index() + 1, Entry::default);
        }
        state.lanes[id.index()] =
            Entry { lane: Arc::downgrade(&lane), policy: Some(policy.clone()), told: Figures::default() };
        state.tell(&lane);
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
    pub(super) fn reconfigure(&self, policy: &Arc<Policy>) {
        let (endpoint, kind) = (self.key.endpoint(), self.key.kind());
        let now = clock::now();
        self.step_all(|state, effects| {
            state.engine.handle_timeout(now, effects);
            if let Some(before) = adopt(&mut state.policy, policy) {
                let rules = policy.pool(endpoint, kind);
                if self.is_steered_by_user || before.pool_limit(endpoint, kind) == policy.pool_limit(endpoint, kind) {
                    state.engine.set_policy(rules, effects);
                } else {
                    state.engine.steer(policy.steer_pool(endpoint, kind, seed()), rules, effects);
                }
                state.engine.set_quota(policy.pool_quota(endpoint, kind).map(Quota::policy), now);
            }
            state.engine.dispatch_all(now, effects);
        });
    }

    /// The pool's own slots and budgets.
    pub(super) fn view(&self, now: Time) -> PoolView {
        self.step_all(|state, effects| state.engine.own_view(now, effects))
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
        let own = state.tell_own(&self.meters);
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
        self.meters.publish(own);
    }

    /// The same for a step that did more than to wake one waiter.
    #[cold]
    fn finish_many(&self, mut guard: MutexGuard<'_, Locked>, told: Option<(&LaneInner, Shifted)>, timer: timer::Order) {
        let Locked { state, effects } = &mut *guard;
        let effects = std::mem::take(effects);
        let own = state.tell_own(&self.meters);
        let others: SmallVec<[(Arc<LaneInner>, Shifted); 2]> =
            effects.touched.iter().filter_map(|id| state.tell_known(*id)).collect();
        let is_drained = state.engine.is_closed() && state.engine.in_use() == 0;
        let changes: Vec<_> = effects.changes.iter().map(|change| (state.changed_lane(*change), *change)).collect();
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
        self.meters.publish(own);
        for dropped in &effects.dropped {
            if let Some((lane, _)) = others.iter().find(|(lane, _)| lane.id == dropped.lane) {
                lane.report_refused(dropped.reason);
            }
        }
        for (lane, change) in changes {
            self.report_change(lane.as_deref(), change);
        }
    }

    fn report_change(&self, lane: Option<&LaneInner>, change: Change) {
        let Change { whose, kind, cause } = change;
        let subject = match (whose, lane) {
            (Whose::Pool, _) => Subject::Pool(&self.key),
            (Whose::Lane(_), Some(lane)) => Subject::Lane(&lane.key),
            // Nobody knows the lane any more.
            (Whose::Lane(_), None) => return,
        };
        match (lane, kind) {
            (Some(lane), ChangeKind::Pause { .. }) => lane.meters.paused(),
            (None, ChangeKind::Pause { .. }) => self.meters.paused(),
            (Some(lane), ChangeKind::Breaker { to, .. }) => lane.meters.breaker(to),
            _ => {}
        }
        let change = LimitChange { subject, kind, cause };
        trace::changed(&change);
        self.shared.hooks.tell(&change);
    }
}

/// Puts `policy` in the place of an older one, which is returned.
fn adopt(in_force: &mut Arc<Policy>, policy: &Arc<Policy>) -> Option<Arc<Policy>> {
    policy.is_newer_than(in_force).then(|| std::mem::replace(in_force, policy.clone()))
}

/// Other random numbers in each process.
pub(super) fn seed() -> u64 {
    RandomState::new().build_hasher().finish()
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

    /// Puts `policy` in the place of the lane's older one, which is returned.
    pub(super) fn adopt_for_lane(&mut self, id: LaneId, policy: &Arc<Policy>) -> Option<Arc<Policy>> {
        adopt(self.lanes[id.index()].policy.as_mut()?, policy)
    }

    fn changed_lane(&self, change: Change) -> Option<Arc<LaneInner>> {
        match change.whose {
            Whose::Lane(id) => self.lanes[id.index()].lane.upgrade(),
            Whose::Pool => None,
        }
    }

    fn tell_known(&mut self, id: LaneId) -> Option<(Arc<LaneInner>, Shifted)> {
        let lane = self.lanes[id.index()].lane.upgrade()?;
        let shifted = self.tell(&lane);
        Some((lane, shifted))
    }

    /// Brings the pool's own gauges up to date; they are published after the unlock.
    #[inline]
    fn tell_own(&mut self, meters: &PoolMeters) -> Shifted {
        let figures = self.engine.own_figures();
        meters.shift(std::mem::replace(&mut self.told, figures), figures)
    }

    /// The same for a lane's.
    #[inline]
    fn tell(&mut self, lane: &LaneInner) -> Shifted {
        let figures = self.engine.figures(lane.id);
        let told = std::mem::replace(&mut self.lanes[lane.id.index()].told, figures);
        let shifted = lane.meters.shift(told, figures);
        if told.waiting != [0; 3] {
            if let Some(seconds) = self.engine.waited(lane.id) {
                return lane.meters.shift_waited(seconds, shifted);
            }
        }
        shifted
    }
}
