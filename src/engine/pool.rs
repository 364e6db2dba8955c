//! One scheduling domain: the lanes of one provider and kind, and the cap over all of them.
//!
//! Which waiter goes next depends on the pool's slots, the lane's slots, both reserves and the lane's pause together, so
//! it is decided here in one step. Later gates (tokens, breaker, shares) join in [`Lane::open_to`] and in
//! [`Pool::grant`].

use std::task::Waker;
use std::time::Duration;

use smallvec::SmallVec;

use super::capacity::Capacity;
use super::lane::{Lane, LaneView};
use super::outcome::Verdict;
use super::policy::{LanePolicy, PoolPolicy};
use super::priority::Priority;
use super::queue::{Ask, Expiry, Found, Left, Next, Removed, WaiterId};
use super::slab::Slab;
use super::time::Time;
use super::totals::Reason;

/// How long a granted slot waits for its future to be polled before it goes to the next waiter. Long enough for a busy
/// runtime to come round, short enough that a `select!` arm nobody polls does not hold the lane up.
pub(crate) const LEASE: Duration = Duration::from_secs(1);

/// Names a lane of this pool. The shell keeps a lane for as long as anybody holds its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LaneId(u32);

impl LaneId {
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

/// A slot that was granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Grant {
    pub(crate) class: Priority,
    pub(crate) granted_at: Time,
    pub(crate) waited: Duration,
}

/// Why there is no slot at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Blocked {
    /// All slots that this class may use are taken, or others are first in line.
    Busy,
    /// The upstream asked for silence, for this much longer.
    Paused(Duration),
    PastDeadline,
    Closed,
}

/// Why a call may not even wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    LaneFull,
    ClassFull,
    TenantFull,
    /// Its time is over already.
    Expired,
    /// Its time is over before the pause is, which goes on for this long.
    Paused(Duration),
}

/// A place in the queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ticket {
    pub(crate) id: WaiterId,
    /// How many were in front of it.
    pub(crate) ahead: u32,
}

/// What a waiter finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    Granted(Grant),
    Waiting,
    /// It expired, or the pool was closed.
    Gone,
}

/// What a step did beyond its answer: to be carried out after the lock is released.
#[derive(Debug, Default)]
pub(crate) struct Effects {
    pub(crate) wakes: SmallVec<[Waker; 4]>,
    /// Lanes other than the one stepped whose figures changed.
    pub(crate) touched: SmallVec<[LaneId; 4]>,
    pub(crate) dropped: Vec<Dropped>,
}

/// A waiter that the engine removed by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Dropped {
    pub(crate) lane: LaneId,
    pub(crate) class: Priority,
    pub(crate) reason: Reason,
}

#[derive(Debug)]
pub(crate) struct Pool {
    capacity: Capacity,
    lanes: Slab<Option<Lane>>,
    /// Lanes with somebody in their queue.
    listed: Vec<u32>,
    /// Waiters over all lanes.
    waiting: u32,
    now: Time,
    /// No later than the moment at which some lane next has something to do; may be earlier.
    next_timeout: Time,
    is_closed: bool,
}

impl Pool {
    pub(crate) fn new(policy: PoolPolicy) -> Self {
        Self {
            capacity: Capacity::new(policy.limit, policy.reserve),
            lanes: Slab::new(),
            listed: Vec::new(),
            waiting: 0,
            now: Time::ZERO,
            next_timeout: Time::NEVER,
            is_closed: false,
        }
    }

    pub(crate) fn add_lane(&mut self, policy: LanePolicy) -> LaneId {
        LaneId(self.lanes.insert(Some(Lane::new(policy))))
    }

    /// Removes a lane that holds nothing and remembers nothing.
    pub(crate) fn remove_lane(&mut self, id: LaneId, now: Time) -> bool {
        let is_idle = self.lane(id).is_idle(now);
        if is_idle {
            self.lanes.remove(id.0);
        }
        is_idle
    }

    /// A slot now, or why not. Nobody is overtaken: whoever could use the slot has it already.
    pub(crate) fn try_acquire(
        &mut self,
        id: LaneId,
        class: Priority,
        deadline: Time,
        now: Time,
        effects: &mut Effects,
    ) -> Result<Grant, Blocked> {
        let now = self.advance(now, effects);
        self.lane_mut(id).totals.offered += 1;
        if self.is_closed {
            return Err(Blocked::Closed);
        }
        if deadline <= now {
            return Err(Blocked::PastDeadline);
        }
        let pool_open = self.capacity.open_to();
        let lane = self.lane_mut(id);
        if let Some(opens_at) = lane.gate.opens_at(now) {
            return Err(Blocked::Paused(opens_at.since(now)));
        }
        if !pool_open.intersect(lane.capacity.open_to()).contains(class) {
            return Err(Blocked::Busy);
        }
        lane.capacity.take(class);
        lane.window.record_wait(Duration::ZERO, now);
        self.capacity.take(class);
        Ok(Grant { class, granted_at: now, waited: Duration::ZERO })
    }

    /// A place in the queue, after [`try_acquire`](Self::try_acquire) found no slot in the same step.
    pub(crate) fn enqueue(&mut self, id: LaneId, ask: Ask, waker: Waker, now: Time) -> Result<Ticket, Refusal> {
        let now = now.max(self.now);
        debug_assert!(!self.is_closed, "a closed pool has said so already");
        let lane = self.lane_mut(id);
        if ask.expires_at <= now {
            return Err(Refusal::Expired);
        }
        if let Some(opens_at) = lane.gate.opens_at(now).filter(|&opens_at| ask.expires_at < opens_at) {
            return Err(Refusal::Paused(opens_at.since(now)));
        }
        let (policy, queue) = (&lane.policy, &lane.queue);
        let reached = |count: u32, bound: Option<u32>| bound.is_some_and(|bound| count >= bound);
        if queue.waiting() >= policy.max_queue {
            return Err(Refusal::LaneFull);
        }
        if reached(queue.waiting_by_class()[ask.class.index()], policy.max_queue_per_class) {
            return Err(Refusal::ClassFull);
        }
        if reached(queue.waiting_of_tenant(ask.tenant.as_ref()), policy.max_queue_per_tenant) {
            return Err(Refusal::TenantFull);
        }
        let (waiter, ahead) = lane.queue.enqueue(ask, waker, now);
        lane.note_queue(now);
        self.waiting += 1;
        self.expect_timeout(id, now);
        self.list(id);
        Ok(Ticket { id: waiter, ahead })
    }

    /// A waiter looks for its slot, and leaves `waker` behind if there is none yet.
    pub(crate) fn collect(
        &mut self,
        id: LaneId,
        waiter: WaiterId,
        waker: &Waker,
        now: Time,
        effects: &mut Effects,
    ) -> Progress {
        let now = self.advance(now, effects);
        let mut found = self.lane_mut(id).queue.collect(waiter, waker);
        if found == Found::BackInLine {
            self.dispatch(id, now, effects);
            found = self.lane_mut(id).queue.collect(waiter, waker);
        }
        match found {
            Found::Granted { waited, granted_at, class } => {
                self.unlist_if_empty(id);
                Progress::Granted(Grant { class, granted_at, waited })
            }
            Found::Waiting | Found::BackInLine => Progress::Waiting,
            Found::Gone => Progress::Gone,
        }
    }

    /// A waiter goes away. Returns false if it was gone already.
    pub(crate) fn cancel(&mut self, id: LaneId, waiter: WaiterId, now: Time, effects: &mut Effects) -> bool {
        let now = self.advance(now, effects);
        let lane = self.lane_mut(id);
        let left = lane.queue.cancel(waiter);
        lane.note_queue(now);
        self.unlist_if_empty(id);
        match left {
            Left::Nothing => return false,
            Left::Place => {
                self.waiting -= 1;
                self.lane_mut(id).totals.abandoned += 1;
            }
            Left::Slot(class) => {
                self.lane_mut(id).totals.abandoned += 1;
                self.give_back(id, class);
                self.dispatch(id, now, effects);
            }
        }
        true
    }

    /// A call ended. What it says about the upstream is taken in before its slot is free for the next one.
    pub(crate) fn settle(&mut self, id: LaneId, grant: Grant, verdict: Verdict, now: Time, effects: &mut Effects) {
        let now = self.advance(now, effects);
        let lane = self.lane_mut(id);
        lane.totals.outcomes[verdict.outcome().index()] += 1;
        lane.learn(verdict, grant.granted_at, now);
        if verdict.pause().is_some() {
            self.expect_timeout(id, now);
        }
        self.give_back(id, grant.class);
        self.dispatch(id, now, effects);
    }

    /// Does what is due. Calling it too early or too often is harmless.
    pub(crate) fn handle_timeout(&mut self, now: Time, effects: &mut Effects) {
        self.advance(now, effects);
    }

    /// Counts a call that the shell refused.
    pub(crate) fn note_refused(&mut self, id: LaneId, reason: Reason) {
        self.lane_mut(id).totals.refused[reason as usize] += 1;
    }

    /// When [`handle_timeout`](Self::handle_timeout) next wants to be called.
    pub(crate) fn poll_timeout(&self) -> Option<Time> {
        (self.next_timeout != Time::NEVER).then_some(self.next_timeout)
    }

    pub(crate) fn set_policy(&mut self, policy: PoolPolicy) {
        self.capacity.resize(policy.limit, policy.reserve);
    }

    pub(crate) fn set_lane_policy(&mut self, id: LaneId, policy: LanePolicy) {
        self.lane_mut(id).set_policy(policy);
    }

    /// Grants what changed policies allow.
    pub(crate) fn dispatch_all(&mut self, now: Time, effects: &mut Effects) {
        let now = self.advance(now, effects);
        for index in self.listed.clone() {
            self.dispatch(LaneId(index), now, effects);
        }
    }

    /// Refuses everybody who waits or comes; calls in flight go on.
    pub(crate) fn close(&mut self, effects: &mut Effects) {
        self.is_closed = true;
        for index in self.listed.clone() {
            let id = LaneId(index);
            while let Some(removed) = self.lane_mut(id).queue.evict() {
                self.drop_waiter(id, removed, Reason::Closed, effects);
            }
            let now = self.now;
            self.lane_mut(id).note_queue(now);
            effects.touch(id);
            self.unlist_if_empty(id);
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Calls in flight.
    pub(crate) fn in_use(&self) -> u32 {
        self.capacity.in_use()
    }

    pub(crate) fn lane_policy(&self, id: LaneId) -> &LanePolicy {
        &self.lane(id).policy
    }

    /// The limit now in force; 0: unlimited.
    pub(crate) fn limit(&self, id: LaneId) -> u32 {
        self.lane(id).capacity.limit().unwrap_or(0)
    }

    /// Waiters over all lanes.
    pub(crate) fn waiting(&self) -> u32 {
        self.waiting
    }

    /// Asks every waiter to look again: whoever drove the time for them is gone.
    pub(crate) fn wake_all(&self, effects: &mut Effects) {
        for &index in &self.listed {
            effects.wakes.extend(self.lane(LaneId(index)).queue.wakers());
        }
    }

    /// Slots in use, and waiters by class.
    pub(crate) fn figures(&self, id: LaneId) -> (u32, [u32; 3]) {
        let lane = self.lane(id);
        (lane.capacity.in_use(), lane.queue.waiting_by_class())
    }

    pub(crate) fn view(&mut self, id: LaneId, now: Time) -> LaneView {
        self.lane_mut(id).view(now)
    }

    /// Moves the pool's time on and does what became due meanwhile, so that no step ever sees a waiter whose time is over
    /// or a pause that has ended. Time never runs backwards, whatever the callers' clocks raced.
    fn advance(&mut self, now: Time, effects: &mut Effects) -> Time {
        self.now = self.now.max(now);
        if self.now >= self.next_timeout {
            self.run_timeouts(effects);
        }
        self.now
    }

    #[cold]
    fn run_timeouts(&mut self, effects: &mut Effects) {
        let now = self.now;
        self.next_timeout = Time::NEVER;
        for index in self.listed.clone() {
            let id = LaneId(index);
            while let Some(class) = self.lane_mut(id).queue.lapse(LEASE, now) {
                self.waiting += 1;
                self.give_back(id, class);
            }
            while let Some(removed) = self.lane_mut(id).queue.expire(now) {
                let reason = match removed.expiry {
                    Expiry::Deadline => Reason::Deadline,
                    Expiry::QueueTimeout => Reason::QueueTimeout,
                };
                if reason == Reason::QueueTimeout {
                    self.lane_mut(id).window.record_timeout(now);
                }
                self.drop_waiter(id, removed, reason, effects);
            }
            effects.touch(id);
            self.lane_mut(id).note_queue(now);
            self.unlist_if_empty(id);
        }
        for index in self.listed.clone() {
            self.dispatch(LaneId(index), now, effects);
            self.expect_timeout(LaneId(index), now);
        }
    }

    fn drop_waiter(&mut self, id: LaneId, removed: Removed, reason: Reason, effects: &mut Effects) {
        self.waiting -= 1;
        self.note_refused(id, reason);
        effects.wakes.extend(removed.waker);
        effects.dropped.push(Dropped { lane: id, class: removed.class, reason });
    }

    fn expect_timeout(&mut self, id: LaneId, now: Time) {
        let timeout = self.lane(id).next_timeout(now);
        self.next_timeout = self.next_timeout.min(timeout);
    }

    fn give_back(&mut self, id: LaneId, class: Priority) {
        self.lane_mut(id).capacity.give_back(class);
        self.capacity.give_back(class);
    }

    /// Grants all that can be granted after something changed in one lane.
    ///
    /// Without a cap on the pool, lanes do not touch each other. With one, a slot given back here may be for any of them.
    fn dispatch(&mut self, changed: LaneId, now: Time, effects: &mut Effects) {
        if self.listed.is_empty() {
            return;
        }
        while let Some((id, next)) = match self.capacity.limit() {
            None => self.next_of(changed, now).map(|next| (changed, next)),
            Some(_) => self.next_of_all(now),
        } {
            self.grant(id, next, now, effects);
            if id != changed {
                effects.touch(id);
            }
        }
        self.lane_mut(changed).note_queue(now);
    }

    /// The waiter that comes first over all lanes: by effective class, then by arrival.
    fn next_of_all(&mut self, now: Time) -> Option<(LaneId, Next)> {
        let mut best: Option<(LaneId, Next)> = None;
        for at in 0..self.listed.len() {
            let id = LaneId(self.listed[at]);
            if let Some(next) = self.next_of(id, now) {
                if best.is_none_or(|(_, first)| next.rank < first.rank) {
                    best = Some((id, next));
                }
            }
        }
        best
    }

    fn next_of(&mut self, id: LaneId, now: Time) -> Option<Next> {
        let pool_open = self.capacity.open_to();
        let lane = self.lane_mut(id);
        let open = pool_open.intersect(lane.open_to(now));
        lane.queue.next(open, now)
    }

    fn grant(&mut self, id: LaneId, next: Next, now: Time, effects: &mut Effects) {
        let lane = self.lane_mut(id);
        let (waker, waited) = lane.queue.grant(next, now);
        lane.capacity.take(next.class);
        lane.window.record_wait(waited, now);
        lane.note_queue(now);
        self.capacity.take(next.class);
        self.waiting -= 1;
        self.next_timeout = self.next_timeout.min(now + LEASE);
        effects.wakes.extend(waker);
    }

    fn list(&mut self, id: LaneId) {
        let at = self.listed.len();
        let lane = self.lane_mut(id);
        if lane.listed_at.is_none() {
            lane.listed_at = Some(at);
            self.listed.push(id.0);
        }
    }

    fn unlist_if_empty(&mut self, id: LaneId) {
        let lane = self.lane_mut(id);
        if !lane.queue.is_empty() {
            return;
        }
        let Some(at) = lane.listed_at.take() else { return };
        self.listed.swap_remove(at);
        if let Some(&moved) = self.listed.get(at) {
            self.lane_mut(LaneId(moved)).listed_at = Some(at);
        }
        if self.listed.is_empty() {
            self.next_timeout = Time::NEVER;
        }
    }

    fn lane(&self, id: LaneId) -> &Lane {
        self.lanes[id.0].as_ref().expect("a lane lives as long as its name")
    }

    fn lane_mut(&mut self, id: LaneId) -> &mut Lane {
        self.lanes[id.0].as_mut().expect("a lane lives as long as its name")
    }
}

impl Effects {
    fn touch(&mut self, id: LaneId) {
        if !self.touched.contains(&id) {
            self.touched.push(id);
        }
    }
}
