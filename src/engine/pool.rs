//! One scheduling domain: the lanes of one provider and kind, and the cap over all of them.
//!
//! Which waiter goes next depends on the pool's slots, the lane's slots, both reserves and the lane's pause together, so
//! it is decided here in one step. Later gates (tokens, breaker, shares) join in [`Lane::open_to`] and in
//! [`Pool::grant`].

use std::task::Waker;
use std::time::Duration;

use super::capacity::Capacity;
use super::lane::{Lane, LaneView};
use super::outcome::Verdict;
use super::policy::{LanePolicy, PoolPolicy};
use super::priority::Priority;
use super::queue::{Ask, Expiry, Found, Left, Next, Removed, WaiterId};
use super::step::{Blocked, Dropped, Effects, Grant, LaneId, Look, Progress, Refusal, Ticket};
use super::time::Time;
use super::totals::Reason;

/// How long a granted slot waits for its future to be polled before it goes to the next waiter. Long enough for a busy
/// runtime to come round, short enough that a `select!` arm nobody polls does not hold the lane up.
pub(crate) const LEASE: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct Pool {
    capacity: Capacity,
    /// By id. Few and long-lived, and looked up in every step: no need for the chunks of a slab.
    lanes: Vec<Option<Lane>>,
    /// Lanes with somebody in their queue.
    listed: Vec<u32>,
    /// Waiters over all lanes.
    waiting: u32,
    now: Time,
    /// No later than the moment at which some lane next has something to do; may be earlier.
    next_timeout: Time,
    closed_at: Option<Time>,
}

impl Pool {
    pub(crate) fn new(policy: PoolPolicy) -> Self {
        Self {
            capacity: Capacity::new(policy.limit, policy.reserve),
            lanes: Vec::new(),
            listed: Vec::new(),
            waiting: 0,
            now: Time::ZERO,
            next_timeout: Time::NEVER,
            closed_at: None,
        }
    }

    pub(crate) fn add_lane(&mut self, policy: LanePolicy) -> LaneId {
        let lane = Some(Lane::new(policy));
        let at = self.lanes.iter().position(Option::is_none).unwrap_or(self.lanes.len());
        match self.lanes.get_mut(at) {
            Some(vacant) => *vacant = lane,
            None => self.lanes.push(lane),
        }
        LaneId(u32::try_from(at).expect("lanes are bounded in number"))
    }

    /// Removes a lane that holds nothing and remembers nothing.
    pub(crate) fn remove_lane(&mut self, id: LaneId, now: Time) -> bool {
        let is_idle = self.lane(id).is_idle(now);
        if is_idle {
            self.lanes[id.index()] = None;
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
        if self.is_closed() {
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

    /// Whether a call of this class would not get a slot at once. Takes nothing and counts nothing.
    pub(crate) fn would_wait(&self, id: LaneId, class: Priority, now: Time) -> bool {
        let lane = self.lane(id);
        let open = self.capacity.open_to().intersect(lane.open_to(now.max(self.now)));
        self.is_closed() || !open.contains(class)
    }

    /// A place in the queue, after [`try_acquire`](Self::try_acquire) found no slot in the same step.
    pub(crate) fn enqueue(&mut self, id: LaneId, ask: Ask, waker: Waker, now: Time) -> Result<Ticket, Refusal> {
        let now = now.max(self.now);
        debug_assert!(!self.is_closed(), "a closed pool has said so already");
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
        if policy.max_queue_per_tenant.is_some()
            && reached(queue.waiting_of_tenant(ask.tenant.as_ref()), policy.max_queue_per_tenant)
        {
            return Err(Refusal::TenantFull);
        }
        let due_at = lane.gate.opens_at(now).map_or(ask.expires_at, |opens_at| opens_at.min(ask.expires_at));
        let (waiter, ahead) = lane.queue.enqueue(ask, waker, now);
        lane.note_queue(now);
        self.waiting += 1;
        self.next_timeout = self.next_timeout.min(due_at);
        self.list(id);
        Ok(Ticket { id: waiter, ahead })
    }

    /// The slot of a waiter that was granted one. Asks for no time: a grant stands until somebody takes it back.
    pub(crate) fn pick_up(&mut self, id: LaneId, waiter: WaiterId) -> Option<Grant> {
        let (class, granted_at, waited) = self.lane_mut(id).queue.pick_up(waiter)?;
        self.unlist_if_empty(id);
        Some(Grant { class, granted_at, waited })
    }

    /// A waiter looks for its slot, and leaves `waker` behind if there is none yet.
    pub(crate) fn collect(
        &mut self,
        id: LaneId,
        waiter: WaiterId,
        waker: &Waker,
        deadline: Time,
        now: Time,
        effects: &mut Effects,
    ) -> Progress {
        let now = self.advance(now, effects);
        let mut found = self.lane_mut(id).queue.collect(waiter, waker, &mut effects.spent);
        if found == Found::BackInLine {
            self.dispatch(id, now, effects);
            found = self.lane_mut(id).queue.collect(waiter, waker, &mut effects.spent);
        }
        match found {
            Found::Granted { waited, granted_at, class } => {
                self.unlist_if_empty(id);
                if deadline <= now {
                    self.give_back(id, class);
                    self.dispatch(id, now, effects);
                    return Progress::PastDeadline;
                }
                Progress::Granted(Grant { class, granted_at, waited })
            }
            Found::Waiting | Found::BackInLine => Progress::Waiting,
            Found::Gone => Progress::Gone,
        }
    }

    /// Like [`collect`](Self::collect), but a slot stays where it is, with its lease: for a waiter that has to get something
    /// else before it may hold the slot.
    pub(crate) fn look(
        &mut self,
        id: LaneId,
        waiter: WaiterId,
        waker: &Waker,
        now: Time,
        effects: &mut Effects,
    ) -> Look {
        let now = self.advance(now, effects);
        let is_granted = |pool: &mut Self| pool.lane_mut(id).queue.is_granted(waiter);
        if is_granted(self) {
            return Look::Granted;
        }
        match self.lane_mut(id).queue.collect(waiter, waker, &mut effects.spent) {
            Found::BackInLine => {
                self.dispatch(id, now, effects);
                if is_granted(self) { Look::Granted } else { Look::Waiting }
            }
            Found::Waiting => Look::Waiting,
            Found::Granted { .. } => unreachable!("it held no slot just now"),
            Found::Gone => Look::Gone,
        }
    }

    /// A waiter that cannot use the slot that it was granted passes it on. It keeps its place in line, and gets no other slot
    /// before it looks again.
    pub(crate) fn decline(&mut self, id: LaneId, waiter: WaiterId, waker: &Waker, now: Time, effects: &mut Effects) {
        let now = self.advance(now, effects);
        if let Some(class) = self.lane_mut(id).queue.decline(waiter, waker) {
            self.waiting += 1;
            self.give_back(id, class);
            self.dispatch(id, now, effects);
            self.expect_timeout(id, now);
        }
    }

    /// A waiter without a slot goes away. Returns false if it was gone already, and `None` if it holds a slot, which takes
    /// a [`cancel`](Self::cancel) to pass on. Asks for no time: what was due meanwhile is due for the next step.
    pub(crate) fn abandon(&mut self, id: LaneId, waiter: WaiterId, effects: &mut Effects) -> Option<bool> {
        if self.lane_mut(id).queue.is_granted(waiter) {
            return None;
        }
        Some(self.leave(id, waiter, self.now, effects) == Left::Place)
    }

    /// A waiter goes away. Returns false if it was gone already.
    pub(crate) fn cancel(&mut self, id: LaneId, waiter: WaiterId, now: Time, effects: &mut Effects) -> bool {
        let now = self.advance(now, effects);
        let left = self.leave(id, waiter, now, effects);
        if let Left::Slot(class) = left {
            self.give_back(id, class);
            self.dispatch(id, now, effects);
        }
        left != Left::Nothing
    }

    fn leave(&mut self, id: LaneId, waiter: WaiterId, now: Time, effects: &mut Effects) -> Left {
        let lane = self.lane_mut(id);
        let left = lane.queue.cancel(waiter, &mut effects.spent);
        if left != Left::Nothing {
            lane.totals.abandoned += 1;
        }
        lane.note_queue(now);
        self.unlist_if_empty(id);
        self.waiting -= u32::from(left == Left::Place);
        left
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

    /// Counts a call that the shell refused before it asked for a slot.
    pub(crate) fn refuse(&mut self, id: LaneId, reason: Reason) {
        self.lane_mut(id).totals.offered += 1;
        self.note_refused(id, reason);
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
            effects.touch(LaneId(index));
            self.dispatch(LaneId(index), now, effects);
        }
    }

    /// Refuses everybody who waits or comes; calls in flight go on.
    pub(crate) fn close(&mut self, now: Time, effects: &mut Effects) {
        let now = self.advance(now, effects);
        self.closed_at.get_or_insert(now);
        for index in self.listed.clone() {
            let id = LaneId(index);
            self.evict_all(id, effects);
            self.lane_mut(id).note_queue(now);
            effects.touch(id);
            self.unlist_if_empty(id);
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed_at.is_some()
    }

    /// Why a waiter that found itself gone was removed.
    pub(crate) fn reason_gone(&self, expires_at: Time, expiry: Expiry) -> Reason {
        match expiry {
            _ if self.closed_at.is_some_and(|closed_at| closed_at < expires_at) => Reason::Closed,
            Expiry::Deadline => Reason::Deadline,
            Expiry::QueueTimeout => Reason::QueueTimeout,
        }
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
    #[inline]
    pub(crate) fn figures(&self, id: LaneId) -> (u32, [u32; 3]) {
        let lane = self.lane(id);
        (lane.capacity.in_use(), lane.queue.waiting_by_class())
    }

    pub(crate) fn view(&mut self, id: LaneId, now: Time, effects: &mut Effects) -> LaneView {
        let now = self.advance(now, effects);
        self.lane_mut(id).view(now)
    }

    /// Moves the pool's time on and does what became due meanwhile, so that no step ever sees a waiter whose time is over
    /// or a pause that has ended. Time never runs backwards, whatever the callers' clocks raced.
    #[inline]
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
                self.drop_waiter(id, removed, effects);
            }
            if self.is_closed() {
                // One that slept through its grant is back in line, where nobody may wait any more.
                self.evict_all(id, effects);
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

    fn evict_all(&mut self, id: LaneId, effects: &mut Effects) {
        while let Some(removed) = self.lane_mut(id).queue.evict() {
            self.drop_waiter(id, removed, effects);
        }
    }

    fn drop_waiter(&mut self, id: LaneId, removed: Removed, effects: &mut Effects) {
        let reason = self.reason_gone(removed.expires_at, removed.expiry);
        self.waiting -= 1;
        self.note_refused(id, reason);
        if reason == Reason::QueueTimeout {
            let now = self.now;
            self.lane_mut(id).window.record_timeout(now);
        }
        effects.wakes.extend(removed.waker);
        effects.dropped.push(Dropped { lane: id, class: removed.class, reason });
    }

    fn expect_timeout(&mut self, id: LaneId, now: Time) {
        let timeout = self.lane(id).next_timeout(now);
        self.next_timeout = self.next_timeout.min(timeout);
    }

    #[inline]
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

    #[inline]
    fn next_of(&mut self, id: LaneId, now: Time) -> Option<Next> {
        let pool_open = self.capacity.open_to();
        let lane = self.lane_mut(id);
        let open = pool_open.intersect(lane.open_to(now));
        lane.queue.next(open, now)
    }

    #[inline]
    fn grant(&mut self, id: LaneId, next: Next, now: Time, effects: &mut Effects) {
        let lane = self.lane_mut(id);
        let (waker, waited) = lane.queue.grant(next, now);
        lane.capacity.take(next.class);
        lane.window.record_wait(waited, now);
        lane.note_queue(now);
        self.capacity.take(next.class);
        self.waiting -= 1;
        self.next_timeout = self.next_timeout.min(now + LEASE);
        if let Some(waker) = waker {
            effects.wakes.push(waker);
        }
    }

    fn list(&mut self, id: LaneId) {
        let at = self.listed.len();
        let lane = self.lane_mut(id);
        if lane.listed_at.is_none() {
            lane.listed_at = Some(at);
            self.listed.push(id.0);
        }
    }

    #[inline]
    fn unlist_if_empty(&mut self, id: LaneId) {
        if self.lane(id).queue.is_empty() {
            self.unlist(id);
        }
    }

    fn unlist(&mut self, id: LaneId) {
        let lane = self.lane_mut(id);
        let Some(at) = lane.listed_at.take() else { return };
        self.listed.swap_remove(at);
        if let Some(&moved) = self.listed.get(at) {
            self.lane_mut(LaneId(moved)).listed_at = Some(at);
        }
        if self.listed.is_empty() {
            self.next_timeout = Time::NEVER;
        }
    }

    #[inline]
    fn lane(&self, id: LaneId) -> &Lane {
        self.lanes[id.index()].as_ref().expect("a lane lives as long as its name")
    }

    #[inline]
    fn lane_mut(&mut self, id: LaneId) -> &mut Lane {
        self.lanes[id.index()].as_mut().expect("a lane lives as long as its name")
    }
}

#[cfg(test)]
mod tests;
