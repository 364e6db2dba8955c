//! Calls of lanes that somebody follows: a controller, a budget per minute, a breaker, a bound on retries.
//!
//! What a call was let in with (a breaker's pass, its part of the retries, its tokens) it gives back on every way out that
//! is not its end.

use std::time::Duration;

use super::Pool;
use crate::engine::asked::{Asked, Kept};
use crate::engine::breaker::{BreakerPolicy, Pass};
use crate::engine::priority::Priority;
use crate::engine::queue::Next;
use crate::engine::quota::Tokens;
use crate::engine::retry_budget::{Attempt, RetryPolicy};
use crate::engine::steering::{Ending, RequestFacts, Sending, Told};
use crate::engine::step::{Blocked, Effects, Grant, LaneId, Request, Terms, Whose};
use crate::engine::time::Time;
use crate::engine::totals::Reason;
use crate::engine::waits::WaitsFor;

impl Pool {
    /// Puts another breaker policy in force for a lane, or none.
    pub(crate) fn set_breaker(&mut self, id: LaneId, policy: Option<BreakerPolicy>, now: Time, effects: &mut Effects) {
        let now = now.max(self.now);
        self.lane_mut(id).breaker.set_policy(policy, now, &mut effects.changes_of(Whose::Lane(id)));
        self.note_followed(id);
    }

    /// The same for what holds its retries back.
    pub(crate) fn set_retry_budget(&mut self, id: LaneId, policy: Option<RetryPolicy>) {
        self.lane_mut(id).retries.set_policy(policy);
        self.note_followed(id);
    }

    /// Finds out whether a lane is followed. To be asked after everything that may change it.
    pub(super) fn note_followed(&mut self, id: LaneId) {
        let lane = self.lane(id);
        let is_guarded = lane.breaker.is_on() || lane.retries.is_on();
        let is_followed = is_guarded || self.is_steered(id) || self.is_charged(id);
        self.lane_mut(id).is_followed = is_followed;
        if !is_followed {
            self.note_no_slot(id, self.now);
        }
    }

    pub(super) fn note_all_followed(&mut self) {
        for index in 0..self.lanes.len() {
            if self.lanes[index].is_some() {
                self.note_followed(LaneId(u32::try_from(index).expect("lanes are bounded in number")));
            }
        }
    }

    #[inline(never)]
    pub(super) fn try_acquire_followed(
        &mut self,
        id: LaneId,
        request: Request,
        now: Time,
        effects: &mut Effects,
    ) -> Result<Grant, Blocked> {
        if let Some(left) = self.lane(id).breaker.time_left(now) {
            return Err(Blocked::BreakerOpen(left));
        }
        let attempt = request.asked.facts.attempt();
        let luck = if attempt == Attempt::Retry { self.jitter.fraction() } else { 0.0 };
        if !self.lane_mut(id).retries.admit(attempt, luck, now) {
            return Err(Blocked::RetryBudget);
        }
        let Request { class, asked, .. } = request;
        let pass = match self.take_for_newcomer(id, class, asked.tokens, now, effects) {
            Ok(pass) => pass,
            Err(blocked) => {
                // It may stay in the queue, which then keeps its part for it.
                self.lane_mut(id).retries.on_dropped(attempt);
                self.check_possible(id, asked.tokens)?;
                return Err(blocked);
            }
        };
        let grant = Grant::plain(class, now, Duration::ZERO);
        let grant = self.send_followed(id, grant, Kept { asked, pass }, now, effects);
        if self.waiting > 0 {
            // Nobody goes, but they may wait for something else now.
            self.dispatch(id, now, effects);
        }
        Ok(grant)
    }

    /// Takes a slot, the tokens and the breaker's pass, or nothing.
    #[inline]
    fn take_for_newcomer(
        &mut self,
        id: LaneId,
        class: Priority,
        tokens: Tokens,
        now: Time,
        effects: &mut Effects,
    ) -> Result<Pass, Blocked> {
        let pool_open = self.valve.open_to(now);
        let lane = self.lane(id);
        if !pool_open.intersect(lane.valve.open_to(now)).contains(class) {
            return Err(self.why_closed(id, now));
        }
        if !lane.breaker.admits(now) {
            return Err(Blocked::Busy);
        }
        self.charge_newcomer(id, class, tokens, now)?;
        let lane = self.lane_mut(id);
        lane.valve.take(class);
        lane.window.record_wait(Duration::ZERO, now);
        let pass = lane.breaker.take(now, &mut effects.changes_of(Whose::Lane(id)));
        self.valve.take(class);
        Ok(pass)
    }

    /// A call that has its slot is sent.
    #[inline(always)]
    pub(super) fn send_followed(
        &mut self,
        id: LaneId,
        grant: Grant,
        kept: Kept,
        now: Time,
        effects: &mut Effects,
    ) -> Grant {
        let Kept { asked: Asked { facts, tokens }, pass } = kept;
        let lane = self.lane_mut(id);
        lane.retries.on_sent(facts.attempt(), now);
        let (is_charged, is_steered) = (lane.quota.is_some(), lane.valve.is_steered());
        let charged = (is_charged || self.quota.is_some()).then_some(tokens);
        let grant = Grant { terms: Some(Terms { charged, pass }), ..grant };
        if is_steered || self.valve.is_steered() {
            return Grant { told: Some(self.tell_sent(id, grant, facts, now, effects)), ..grant };
        }
        self.expect_timeout(id, now);
        grant
    }

    /// Controllers hear that a call is sent. Returns where it is kept what they were told.
    #[inline(never)]
    fn tell_sent(&mut self, id: LaneId, grant: Grant, facts: RequestFacts, now: Time, effects: &mut Effects) -> u32 {
        let has_waited = !grant.waited.is_zero();
        let is_pool_held = has_waited || self.waiting > 0;
        let lane = self.lane_mut(id);
        let is_lane_held = has_waited || lane.queue.waiting() > 0;
        let sending = Sending { at: now, facts, is_saturated: is_lane_held };
        let in_lane = lane.valve.on_sent(sending, &mut effects.changes_of(Whose::Lane(id)));
        let in_pool =
            self.valve.on_sent(Sending { is_saturated: is_pool_held, ..sending }, &mut effects.changes_of(Whose::Pool));
        let told = self.told.insert(Told { sending, in_lane, in_pool });
        self.follow(id, now, effects);
        told
    }

    /// Whether the first in a lane's line may go, its breaker and budget asked.
    #[cold]
    pub(super) fn lets_go(&mut self, id: LaneId, next: Next, now: Time) -> bool {
        let lane = self.lane(id);
        let is_let_in = lane.breaker.admits(now);
        let goes = is_let_in && (lane.quota.is_none() || self.fits_lane(id, next, now));
        // One that goes waits no more, unless the pool is short of tokens.
        let cause = if is_let_in { WaitsFor::Tokens } else { WaitsFor::Breaker };
        self.lane_mut(id).waits.note_cause(cause, now);
        goes
    }

    /// A waiter that is granted a slot is charged, and let in by the breaker, with it.
    #[cold]
    pub(super) fn let_in(&mut self, id: LaneId, next: Next, now: Time, effects: &mut Effects) {
        if self.is_charged(id) {
            let tokens = self.lane(id).kept.of(next.index).asked.tokens;
            self.charge(id, tokens);
        }
        let lane = self.lane_mut(id);
        let pass = lane.breaker.take(now, &mut effects.changes_of(Whose::Lane(id)));
        lane.kept.note_pass(next.index, pass);
    }

    /// What a waiter was granted that did not collect it; it may be granted it again.
    pub(super) fn take_back(&mut self, id: LaneId, kept: Kept, now: Time) {
        self.lane_mut(id).breaker.give_back(kept.pass);
        self.refund(id, kept.asked.tokens, now);
    }

    /// The same of one that goes away for good.
    pub(super) fn unsend(&mut self, id: LaneId, kept: Kept, now: Time) {
        self.take_back(id, kept, now);
        self.lane_mut(id).retries.on_dropped(kept.asked.facts.attempt());
    }

    /// What the end of a call says about the upstream's health, where a breaker is on. Where that opens it, nobody waits any
    /// longer.
    #[inline(never)]
    pub(super) fn judge(
        &mut self,
        id: LaneId,
        pass: Pass,
        sent_at: Time,
        ending: &Ending,
        now: Time,
        effects: &mut Effects,
    ) {
        let luck = self.jitter.fraction();
        let lane = self.lane_mut(id);
        let was_open = lane.breaker.time_left(now).is_some();
        lane.breaker.on_end(pass, ending, sent_at, luck, now, &mut effects.changes_of(Whose::Lane(id)));
        if !was_open && lane.breaker.time_left(now).is_some() {
            lane.tripped_at = Some(now);
            self.evict_all(id, Reason::BreakerOpen, effects);
            effects.touch(id);
            self.lane_mut(id).note_queue(now);
            self.unlist_if_empty(id);
        }
    }
}
