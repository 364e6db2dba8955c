//! Those in line: how they come, look, and go.

use std::task::Waker;
use std::time::Duration;

use super::Pool;
use crate::engine::asked::{Asked, Kept};
use crate::engine::queue::{Ask, Expiry, Found, Left, Removed, WaiterId};
use crate::engine::step::{Dropped, Effects, Grant, LaneId, Look, Progress, Refusal, Sight, Ticket};
use crate::engine::time::Time;
use crate::engine::totals::Reason;

impl Pool {
    /// A place in the queue, after [`try_acquire`](Self::try_acquire) found no slot in the same step.
    #[inline]
    pub(crate) fn enqueue(
        &mut self,
        id: LaneId,
        ask: Ask,
        asked: Asked,
        waker: Waker,
        now: Time,
    ) -> Result<Ticket, Refusal> {
        let now = now.max(self.now);
        debug_assert!(!self.is_closed(), "a closed pool has said so already");
        let opens_at = self.opens_at(id, now);
        let lane = self.lane_mut(id);
        if ask.expires_at <= now {
            return Err(Refusal::Expired);
        }
        if let Some(opens_at) = opens_at.filter(|&opens_at| ask.expires_at < opens_at) {
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
        let due_at = lane.valve.next_timeout(now).min(ask.expires_at);
        let (waiter, ahead) = lane.queue.enqueue(ask, waker, now);
        if let Some(opens_at) = opens_at {
            lane.waits.note_pause(opens_at, now);
        }
        lane.note_queue(now);
        let is_listed = lane.listed_at.is_some();
        self.waiting += 1;
        self.next_timeout = self.next_timeout.min(due_at).min(self.valve.next_timeout(now));
        if !is_listed {
            self.list(id);
        }
        if self.is_followed(id) {
            let lane = self.lane_mut(id);
            lane.kept.note(waiter.index, asked);
            lane.retries.keep(asked.facts.attempt());
            self.expect_tokens(id, now);
            self.expect_timeout(id, now);
        }
        Ok(Ticket { id: waiter, ahead })
    }

    /// The slot of a waiter that was granted one, if nobody has to be told that its call is sent; else
    /// [`collect`](Self::collect) finds it. Asks for no time: a grant stands until somebody takes it back.
    pub(crate) fn pick_up(&mut self, id: LaneId, waiter: WaiterId) -> Option<Grant> {
        if self.is_followed(id) {
            return None;
        }
        let (class, granted_at, waited) = self.lane_mut(id).queue.pick_up(waiter)?;
        self.unlist_if_empty(id);
        Some(Grant::plain(class, granted_at, waited))
    }

    /// A waiter looks for its slot, and leaves its waker behind if there is none yet.
    pub(crate) fn collect(
        &mut self,
        id: LaneId,
        waiter: WaiterId,
        look: Look<'_>,
        now: Time,
        effects: &mut Effects,
    ) -> Progress {
        let Look { waker, deadline } = look;
        let now = self.advance(now, effects);
        let mut found = self.lane_mut(id).queue.collect(waiter, waker, &mut effects.spent);
        if found == Found::BackInLine {
            self.dispatch(id, now, effects);
            found = self.lane_mut(id).queue.collect(waiter, waker, &mut effects.spent);
        }
        match found {
            Found::Granted { waited, granted_at, class } => {
                self.unlist_if_empty(id);
                let kept = self.lane_mut(id).kept.forget(waiter.index);
                if deadline <= now {
                    self.give_back(id, class);
                    self.unsend(id, kept, now);
                    self.dispatch(id, now, effects);
                    return Progress::PastDeadline;
                }
                let grant = Grant::plain(class, granted_at, waited);
                Progress::Granted(self.send(id, grant, kept, now, effects))
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
    ) -> Sight {
        let now = self.advance(now, effects);
        let is_granted = |pool: &mut Self| pool.lane_mut(id).queue.is_granted(waiter);
        if is_granted(self) {
            return Sight::Granted;
        }
        match self.lane_mut(id).queue.collect(waiter, waker, &mut effects.spent) {
            Found::BackInLine => {
                self.dispatch(id, now, effects);
                if is_granted(self) { Sight::Granted } else { Sight::Waiting }
            }
            Found::Waiting => Sight::Waiting,
            Found::Granted { .. } => unreachable!("it held no slot just now"),
            Found::Gone => Sight::Gone,
        }
    }

    /// A waiter that cannot use the slot that it was granted passes it on. It keeps its place in line, and gets no other slot
    /// before it looks again.
    pub(crate) fn decline(&mut self, id: LaneId, waiter: WaiterId, waker: &Waker, now: Time, effects: &mut Effects) {
        let now = self.advance(now, effects);
        if let Some(class) = self.lane_mut(id).queue.decline(waiter, waker) {
            self.lane_mut(id).note_queue(now);
            self.waiting += 1;
            self.give_back(id, class);
            let kept = self.lane(id).kept.of(waiter.index);
            self.take_back(id, kept, now);
            self.dispatch(id, now, effects);
            self.expect_timeout(id, now);
        }
    }

    /// A waiter without a slot goes away. Returns false if it was gone already, and `None` if others may go because of it, or
    /// wait for something else (it holds a slot, or the lane is followed), which takes a [`cancel`](Self::cancel). `now` may be
    /// left out unless the lane [asks for it](Self::asks_time); what was due meanwhile is due for the next step.
    pub(crate) fn abandon(
        &mut self,
        id: LaneId,
        waiter: WaiterId,
        now: Option<Time>,
        effects: &mut Effects,
    ) -> Option<bool> {
        if self.is_followed(id) || self.lane_mut(id).queue.is_granted(waiter) {
            return None;
        }
        Some(self.leave(id, waiter, now.map(|now| now.max(self.now)), effects).0 == Left::Place)
    }

    /// A waiter goes away. Returns false if it was gone already.
    pub(crate) fn cancel(&mut self, id: LaneId, waiter: WaiterId, now: Time, effects: &mut Effects) -> bool {
        let now = self.advance(now, effects);
        let (left, kept) = self.leave(id, waiter, Some(now), effects);
        if let Left::Slot(class) = left {
            self.give_back(id, class);
            self.take_back(id, kept, now);
        }
        if self.is_followed(id) || matches!(left, Left::Slot(_)) {
            self.dispatch(id, now, effects);
        }
        left != Left::Nothing
    }

    /// Returns what it held, and what it would have been charged.
    pub(super) fn leave(
        &mut self,
        id: LaneId,
        waiter: WaiterId,
        now: Option<Time>,
        effects: &mut Effects,
    ) -> (Left, Kept) {
        let lane = self.lane_mut(id);
        let (left, waker) = lane.queue.cancel(waiter);
        if let Some(waker) = waker {
            effects.spent.push(waker);
        }
        let mut kept = Kept::default();
        if left != Left::Nothing {
            lane.totals.abandoned += 1;
            kept = lane.kept.forget(waiter.index);
            lane.retries.on_dropped(kept.asked.facts.attempt());
        }
        if let Some(now) = now {
            lane.note_queue(now);
        }
        self.unlist_if_empty(id);
        self.waiting -= u32::from(left == Left::Place);
        (left, kept)
    }

    /// Asks every waiter to look again: whoever drove the time for them is gone.
    pub(crate) fn wake_all(&self, effects: &mut Effects) {
        for &index in &self.listed {
            effects.wakes.extend(self.lane(LaneId(index)).queue.wakers());
        }
    }

    /// Why a waiter that found itself gone was removed.
    pub(crate) fn reason_gone(&self, id: LaneId, came_at: Time, expires_at: Time, expiry: Expiry) -> Reason {
        match self.lane(id).tripped_at {
            Some(tripped_at) if came_at <= tripped_at && tripped_at < expires_at => Reason::BreakerOpen,
            _ => self.reason_expired(expires_at, expiry),
        }
    }

    pub(super) fn reason_expired(&self, expires_at: Time, expiry: Expiry) -> Reason {
        match expiry {
            _ if self.closed_at.is_some_and(|closed_at| closed_at < expires_at) => Reason::Closed,
            Expiry::Deadline => Reason::Deadline,
            Expiry::QueueTimeout => Reason::QueueTimeout,
        }
    }

    /// For how long the lane's breaker stays open.
    pub(crate) fn breaker_left(&self, id: LaneId) -> Option<Duration> {
        self.lane(id).breaker.time_left(self.now)
    }

    pub(super) fn evict_all(&mut self, id: LaneId, reason: Reason, effects: &mut Effects) {
        while let Some(removed) = self.lane_mut(id).queue.evict() {
            self.drop_waiter(id, removed, reason, effects);
        }
    }

    pub(super) fn drop_waiter(&mut self, id: LaneId, removed: Removed, reason: Reason, effects: &mut Effects) {
        let lane = self.lane_mut(id);
        let kept = lane.kept.forget(removed.index);
        lane.retries.on_dropped(kept.asked.facts.attempt());
        self.waiting -= 1;
        self.note_refused(id, reason);
        if reason == Reason::QueueTimeout {
            let now = self.now;
            self.lane_mut(id).window.record_timeout(now);
        }
        effects.wakes.extend(removed.waker);
        effects.dropped.push(Dropped { lane: id, class: removed.class, reason });
    }

    pub(super) fn list(&mut self, id: LaneId) {
        self.lane_mut(id).listed_at = Some(self.listed.len());
        self.listed.push(id.0);
    }

    #[inline]
    pub(super) fn unlist_if_empty(&mut self, id: LaneId) {
        if self.lane(id).queue.is_empty() {
            self.unlist(id);
        }
    }

    pub(super) fn unlist(&mut self, id: LaneId) {
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
}
