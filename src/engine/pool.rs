//! One scheduling domain: the lanes of one provider and kind, and the cap over all of them.
//!
//! Which waiter goes next depends on the pool's slots, the lane's slots, both reserves, both pauses, both budgets and the
//! lane's breaker together, so it is decided here in one step.

use std::time::Duration;

use super::asked::Kept;
use super::jitter::Jitter;
use super::lane::Lane;
use super::outcome::Verdict;
use super::policy::{LanePolicy, SlotPolicy};
use super::priority::Priority;
use super::quota::{Quota, QuotaView, Spent};
use super::slab::Slab;
use super::steering::{Ending, Steering, Told};
use super::step::{Blocked, Effects, Grant, LaneId, Request, Terms, Whose};
use super::time::Time;
use super::totals::Reason;
use super::valve::{Valve, ValveView};

/// How long a granted slot waits for its future to be polled before it goes to the next waiter. Long enough for a busy
/// runtime to come round, short enough that a `select!` arm nobody polls does not hold the lane up.
pub(crate) const LEASE: Duration = Duration::from_secs(1);

/// What gauges show of a lane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Figures {
    pub(crate) in_use: u32,
    /// By class.
    pub(crate) waiting: [u32; 3],
    /// 0: unlimited.
    pub(crate) limit: u32,
}

/// What gauges show of a pool with a limit of its own; all zero of one without.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PoolFigures {
    pub(crate) in_use: u32,
    pub(crate) limit: u32,
}

/// The figures of a pool itself at one moment.
#[derive(Clone, Debug)]
pub(crate) struct PoolView {
    pub(crate) valve: ValveView,
    pub(crate) quota: Option<QuotaView>,
}

#[derive(Debug)]
pub(crate) struct Pool {
    valve: Valve,
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
    jitter: Jitter,
    /// Calls in flight that controllers were told of.
    told: Slab<Told>,
    /// The budgets per minute of all lanes together.
    quota: Option<Box<Quota>>,
}

impl Pool {
    /// `seed`: another one in each process, so that processes that were told to come back together do not.
    pub(crate) fn new(policy: SlotPolicy, steering: Option<Steering>, seed: u64) -> Self {
        Self {
            valve: Valve::new(policy, steering),
            lanes: Vec::new(),
            listed: Vec::new(),
            waiting: 0,
            now: Time::ZERO,
            next_timeout: Time::NEVER,
            closed_at: None,
            jitter: Jitter::new(seed),
            told: Slab::new(),
            quota: None,
        }
    }

    pub(crate) fn add_lane(&mut self, policy: LanePolicy, steering: Option<Steering>) -> LaneId {
        let lane = Some(Lane::new(policy, steering));
        let at = self.lanes.iter().position(Option::is_none).unwrap_or(self.lanes.len());
        match self.lanes.get_mut(at) {
            Some(vacant) => *vacant = lane,
            None => self.lanes.push(lane),
        }
        let id = LaneId(u32::try_from(at).expect("lanes are bounded in number"));
        self.note_followed(id);
        id
    }

    /// Removes a lane that holds nothing and remembers nothing. The last one stays for what the pool remembers: without
    /// lanes, the pool goes as well.
    pub(crate) fn remove_lane(&mut self, id: LaneId, now: Time) -> bool {
        let is_last = self.lanes.iter().flatten().count() == 1;
        let is_pool_idle = self.valve.is_idle(now) && self.quota.as_mut().is_none_or(|quota| quota.is_full(now));
        let may_go = self.lane_mut(id).is_idle(now) && (is_pool_idle || !is_last);
        if may_go {
            self.lanes[id.index()] = None;
        }
        may_go
    }

    /// A slot now, or why not. Nobody is overtaken: whoever could use the slot has it already.
    #[inline(always)]
    pub(crate) fn try_acquire(
        &mut self,
        id: LaneId,
        request: Request,
        now: Time,
        effects: &mut Effects,
    ) -> Result<Grant, Blocked> {
        let Request { class, deadline, .. } = request;
        let now = self.advance(now, effects);
        self.lane_mut(id).totals.offered += 1;
        if self.is_closed() {
            return Err(Blocked::Closed);
        }
        if deadline <= now {
            return Err(Blocked::PastDeadline);
        }
        if self.is_followed(id) {
            return self.try_acquire_followed(id, request, now, effects);
        }
        let pool_open = self.valve.open_to(now);
        let lane = self.lane_mut(id);
        if !pool_open.intersect(lane.valve.open_to(now)).contains(class) {
            return Err(self.why_closed(id, now));
        }
        lane.valve.take(class);
        lane.window.record_wait(Duration::ZERO, now);
        self.valve.take(class);
        Ok(Grant::plain(class, now, Duration::ZERO))
    }

    /// Whether a call of this class would not get a slot at once. Takes nothing and counts nothing.
    pub(crate) fn would_wait(&self, id: LaneId, class: Priority, now: Time) -> bool {
        let now = now.max(self.now);
        let open = self.valve.open_to(now).intersect(self.lane(id).valve.open_to(now));
        self.is_closed() || !open.contains(class) || !self.lane(id).breaker.admits(now)
    }

    /// The first byte of a call's answer came.
    pub(crate) fn first_byte(&mut self, id: LaneId, grant: &Grant, now: Time, effects: &mut Effects) {
        let now = self.advance(now, effects);
        let Some(told) = grant.told else { return };
        let Told { sending, in_lane, in_pool } = self.told[told];
        self.lane_mut(id).valve.on_first_byte(sending, in_lane, now, &mut effects.changes_of(Whose::Lane(id)));
        self.valve.on_first_byte(sending, in_pool, now, &mut effects.changes_of(Whose::Pool));
        self.follow(id, now, effects);
    }

    /// A call ended. What it says about the upstream is taken in before its slot is free for the next one. Returns the tokens
    /// that it was charged, and what became of them.
    pub(crate) fn settle(
        &mut self,
        id: LaneId,
        grant: &Grant,
        ending: Ending,
        now: Time,
        effects: &mut Effects,
    ) -> Spent {
        let now = self.advance(now, effects);
        let outcome = ending.verdict.outcome();
        let lane = self.lane_mut(id);
        lane.totals.outcomes[outcome.index()] += 1;
        lane.health.note(outcome, now);
        let remembers = lane.past.is_some();
        self.heed(id, grant, ending.verdict, now, effects);
        let spent = match grant.terms {
            None => Spent::default(),
            Some(terms) => self.learn(id, grant, terms, &ending, now, effects),
        };
        self.give_back(id, grant.class);
        if remembers {
            self.remember(id, grant, outcome, now);
        }
        self.dispatch(id, now, effects);
        spent
    }

    /// Takes in what an answer says about waiting. Where the pool is steered as a whole, the whole pool waits.
    #[inline]
    fn heed(&mut self, id: LaneId, grant: &Grant, verdict: Verdict, now: Time, effects: &mut Effects) {
        let bounds = self.lane(id).policy.pauses;
        let luck = if verdict.pause().is_some() { self.jitter.fraction() } else { 0.0 };
        let (valve, whose) = if self.valve.is_steered() {
            (&mut self.valve, Whose::Pool)
        } else {
            (&mut self.lane_mut(id).valve, Whose::Lane(id))
        };
        valve.heed(verdict, grant.granted_at, bounds, luck, now, &mut effects.changes_of(whose));
        if verdict.pause().is_some() {
            self.note_no_slot(id, now);
        }
        if verdict.pause().is_some() {
            self.expect_timeout(id, now);
        }
    }

    #[inline(never)]
    fn learn(
        &mut self,
        id: LaneId,
        grant: &Grant,
        Terms { charged, pass }: Terms,
        ending: &Ending,
        now: Time,
        effects: &mut Effects,
    ) -> Spent {
        let spent = charged
            .map_or_else(Spent::default, |charged| self.settle_charge(id, charged, grant.granted_at, ending, now));
        let lane = self.lane_mut(id);
        lane.retries.on_end(ending.verdict.outcome(), now);
        if lane.breaker.is_on() {
            self.judge(id, pass, grant.granted_at, ending, now, effects);
        }
        if let Some(told) = grant.told {
            self.tell_ended(id, told, ending, now, effects);
        }
        self.expect_timeout(id, now);
        spent
    }

    /// Controllers hear that a call is over.
    #[inline(never)]
    fn tell_ended(&mut self, id: LaneId, told: u32, ending: &Ending, now: Time, effects: &mut Effects) {
        let Told { sending, in_lane, in_pool } = self.told.remove(told);
        let changes = &mut effects.changes_of(Whose::Lane(id));
        self.lane_mut(id).valve.on_end(ending, sending, in_lane, now, changes);
        self.valve.on_end(ending, sending, in_pool, now, &mut effects.changes_of(Whose::Pool));
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

    /// Puts other rules in force; [`dispatch_all`](Self::dispatch_all) then grants what they allow.
    pub(crate) fn set_policy(&mut self, policy: SlotPolicy, effects: &mut Effects) {
        self.valve.set_policy(policy, self.now, &mut effects.changes_of(Whose::Pool));
    }

    /// The same for one lane.
    pub(crate) fn set_lane_policy(&mut self, id: LaneId, policy: LanePolicy, effects: &mut Effects) {
        let now = self.now;
        let lane = self.lane_mut(id);
        lane.set_policy(policy);
        lane.valve.set_policy(policy.slots, now, &mut effects.changes_of(Whose::Lane(id)));
    }

    /// Puts another controller in charge of the pool's limit, or none, and other rules in force.
    pub(crate) fn steer(&mut self, steering: Option<Steering>, policy: SlotPolicy, effects: &mut Effects) {
        self.valve.steer(steering, policy, self.now, &mut effects.changes_of(Whose::Pool));
        self.note_all_followed();
    }

    /// The same for one lane.
    pub(crate) fn steer_lane(
        &mut self,
        id: LaneId,
        steering: Option<Steering>,
        policy: LanePolicy,
        effects: &mut Effects,
    ) {
        let now = self.now;
        let lane = self.lane_mut(id);
        lane.set_policy(policy);
        lane.valve.steer(steering, policy.slots, now, &mut effects.changes_of(Whose::Lane(id)));
        self.note_followed(id);
    }

    /// Grants what changed policies allow.
    pub(crate) fn dispatch_all(&mut self, now: Time, effects: &mut Effects) {
        let now = self.advance(now, effects);
        for index in self.listed.clone() {
            effects.touch(LaneId(index));
            self.dispatch(LaneId(index), now, effects);
            self.expect_timeout(LaneId(index), now);
        }
    }

    /// Refuses everybody who waits or comes; calls in flight go on.
    pub(crate) fn close(&mut self, now: Time, effects: &mut Effects) {
        let now = self.advance(now, effects);
        self.closed_at.get_or_insert(now);
        for index in self.listed.clone() {
            let id = LaneId(index);
            self.evict_all(id, Reason::Closed, effects);
            self.lane_mut(id).note_queue(now);
            effects.touch(id);
            self.unlist_if_empty(id);
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed_at.is_some()
    }

    /// Calls in flight.
    pub(crate) fn in_use(&self) -> u32 {
        self.valve.in_use()
    }

    pub(crate) fn lane_policy(&self, id: LaneId) -> &LanePolicy {
        &self.lane(id).policy
    }

    /// Waiters over all lanes.
    pub(crate) fn waiting(&self) -> u32 {
        self.waiting
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
            while let Some((waiter, class)) = self.lane_mut(id).queue.lapse(LEASE, now) {
                self.waiting += 1;
                self.give_back(id, class);
                let kept = self.lane(id).kept.of(waiter);
                self.take_back(id, kept, now);
            }
            while let Some(removed) = self.lane_mut(id).queue.expire(now) {
                let reason = self.reason_expired(removed.expires_at, removed.expiry);
                self.drop_waiter(id, removed, reason, effects);
            }
            if self.is_closed() {
                // One that slept through its grant is back in line, where nobody may wait any more.
                self.evict_all(id, Reason::Closed, effects);
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

    #[inline]
    fn expect_timeout(&mut self, id: LaneId, now: Time) {
        // With nobody here, nothing is due.
        if !self.listed.is_empty() {
            self.expect_timeout_of_lane(id, now);
        }
    }

    #[inline(never)]
    fn expect_timeout_of_lane(&mut self, id: LaneId, now: Time) {
        let mut timeout = self.lane(id).next_timeout(now);
        if self.waiting > 0 {
            timeout = timeout.min(self.valve.next_timeout(now));
        }
        self.next_timeout = self.next_timeout.min(timeout);
    }

    /// When a pause of the lane or of the whole pool is over.
    fn opens_at(&self, id: LaneId, now: Time) -> Option<Time> {
        self.lane(id).valve.opens_at(now).max(self.valve.opens_at(now))
    }

    /// Why a class that may not take a slot now may not.
    fn why_closed(&self, id: LaneId, now: Time) -> Blocked {
        self.opens_at(id, now).map_or(Blocked::Busy, |opens_at| Blocked::Paused(opens_at.since(now)))
    }

    #[inline]
    fn is_steered(&self, id: LaneId) -> bool {
        self.valve.is_steered() || self.lane(id).valve.is_steered()
    }

    #[inline]
    fn is_followed(&self, id: LaneId) -> bool {
        self.lane(id).is_followed
    }

    /// A call that has its slot is sent.
    #[inline]
    fn send(&mut self, id: LaneId, grant: Grant, kept: Kept, now: Time, effects: &mut Effects) -> Grant {
        if self.is_followed(id) { self.send_followed(id, grant, kept, now, effects) } else { grant }
    }

    /// Does what a controller has just allowed.
    fn follow(&mut self, id: LaneId, now: Time, effects: &mut Effects) {
        self.expect_timeout(id, now);
        self.dispatch(id, now, effects);
    }

    #[inline]
    fn give_back(&mut self, id: LaneId, class: Priority) {
        self.lane_mut(id).valve.give_back(class);
        self.valve.give_back(class);
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

mod charges;
mod dispatch;
mod followed;
mod foresight;
#[cfg(test)]
mod tests;
mod views;
mod waiters;
mod waits;
