//! One scheduling domain: the lanes of one provider and kind, and the cap over all of them.
//!
//! Which waiter goes next depends on the pool's slots, the lane's slots, both reserves, both pauses, both budgets and the
//! lane's breaker together, so it is decided here in one step: what may go is asked in [`Pool::next_of`], and taken in
//! [`Pool::grant`].

use std::task::Waker;
use std::time::Duration;

use super::asked::{Asked, Kept};
use super::jitter::Jitter;
use super::lane::{Lane, LaneView};
use super::outcome::Verdict;
use super::policy::{LanePolicy, SlotPolicy};
use super::priority::Priority;
use super::queue::{Ask, Expiry, Found, Left, Next, Removed, WaiterId};
use super::quota::{Quota, QuotaView, Spent};
use super::slab::Slab;
use super::steering::{Ending, Sending, Steering, Told};
use super::step::{
    Blocked, Dropped, Effects, Grant, LaneId, Look, Progress, Refusal, Request, Sight, Terms, Ticket, Whose,
};
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
    fn leave(&mut self, id: LaneId, waiter: WaiterId, now: Option<Time>, effects: &mut Effects) -> (Left, Kept) {
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
        self.judge(id, pass, grant.granted_at, ending, now, effects);
        if let Some(told) = grant.told {
            let Told { sending, in_lane, in_pool } = self.told.remove(told);
            let changes = &mut effects.changes_of(Whose::Lane(id));
            self.lane_mut(id).valve.on_end(ending, sending, in_lane, now, changes);
            self.valve.on_end(ending, sending, in_pool, now, &mut effects.changes_of(Whose::Pool));
        }
        self.expect_timeout(id, now);
        spent
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

    /// Why a waiter that found itself gone was removed.
    pub(crate) fn reason_gone(&self, id: LaneId, came_at: Time, expires_at: Time, expiry: Expiry) -> Reason {
        match self.lane(id).tripped_at {
            Some(tripped_at) if came_at <= tripped_at && tripped_at < expires_at => Reason::BreakerOpen,
            _ => self.reason_expired(expires_at, expiry),
        }
    }

    /// For how long the lane's breaker stays open.
    pub(crate) fn breaker_left(&self, id: LaneId) -> Option<Duration> {
        self.lane(id).breaker.time_left(self.now)
    }

    fn reason_expired(&self, expires_at: Time, expiry: Expiry) -> Reason {
        match expiry {
            _ if self.closed_at.is_some_and(|closed_at| closed_at < expires_at) => Reason::Closed,
            Expiry::Deadline => Reason::Deadline,
            Expiry::QueueTimeout => Reason::QueueTimeout,
        }
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

    /// Asks every waiter to look again: whoever drove the time for them is gone.
    pub(crate) fn wake_all(&self, effects: &mut Effects) {
        for &index in &self.listed {
            effects.wakes.extend(self.lane(LaneId(index)).queue.wakers());
        }
    }

    /// Slots in use, waiters by class, and the limit.
    #[inline]
    pub(crate) fn figures(&self, id: LaneId) -> Figures {
        let lane = self.lane(id);
        Figures { in_use: lane.valve.in_use(), waiting: lane.queue.waiting_by_class(), limit: lane.valve.limit() }
    }

    /// The pool's own slots in use, and their limit.
    pub(crate) fn own_figures(&self) -> PoolFigures {
        match self.valve.limit() {
            0 => PoolFigures::default(),
            limit => PoolFigures { in_use: self.valve.in_use(), limit },
        }
    }

    /// The pool's own slots and budgets.
    pub(crate) fn own_view(&mut self, now: Time, effects: &mut Effects) -> PoolView {
        let now = self.advance(now, effects);
        PoolView { valve: self.valve.view(now), quota: self.quota.as_mut().map(|quota| quota.view(now)) }
    }

    pub(crate) fn view(&mut self, id: LaneId, now: Time, effects: &mut Effects) -> LaneView {
        let now = self.advance(now, effects);
        let paused_for = self.opens_at(id, now).map(|at| at.since(now));
        let view = self.lane_mut(id).view(now);
        LaneView { valve: ValveView { paused_for, ..view.valve }, ..view }
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

    fn evict_all(&mut self, id: LaneId, reason: Reason, effects: &mut Effects) {
        while let Some(removed) = self.lane_mut(id).queue.evict() {
            self.drop_waiter(id, removed, reason, effects);
        }
    }

    fn drop_waiter(&mut self, id: LaneId, removed: Removed, reason: Reason, effects: &mut Effects) {
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

    #[inline]
    fn expect_timeout(&mut self, id: LaneId, now: Time) {
        // With nobody here, nothing is due.
        if !self.listed.is_empty() {
            self.expect_timeout_of_lane(id, now);
        }
    }

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

    #[inline(never)]
    fn send_followed(&mut self, id: LaneId, grant: Grant, kept: Kept, now: Time, effects: &mut Effects) -> Grant {
        let Kept { asked: Asked { facts, tokens }, pass } = kept;
        let charged = self.is_charged(id).then_some(tokens);
        self.lane_mut(id).retries.on_sent(facts.attempt(), now);
        let grant = Grant { terms: Some(Terms { charged, pass }), ..grant };
        if !self.is_steered(id) {
            self.expect_timeout(id, now);
            return grant;
        }
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
        Grant { told: Some(told), ..grant }
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

    /// Grants all that can be granted after something changed in one lane.
    ///
    /// Without a cap on the pool, lanes do not touch each other. With one, a slot given back here may be for any of them.
    fn dispatch(&mut self, changed: LaneId, now: Time, effects: &mut Effects) {
        if self.listed.is_empty() {
            return;
        }
        if self.valve.is_limited() || self.quota.is_some() {
            return self.dispatch_over_lanes(changed, now, effects);
        }
        while let Some(next) = self.next_of(changed, now) {
            self.grant(changed, next, now, effects);
        }
    }

    fn dispatch_over_lanes(&mut self, changed: LaneId, now: Time, effects: &mut Effects) {
        while let Some((id, next)) = self.next_of_all(now) {
            self.grant(id, next, now, effects);
            if id != changed {
                effects.touch(id);
            }
        }
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
        best.filter(|&(id, next)| self.quota.is_none() || self.fits_pool(id, next, now))
    }

    #[inline]
    fn next_of(&mut self, id: LaneId, now: Time) -> Option<Next> {
        let pool_open = self.valve.open_to(now);
        let lane = self.lane_mut(id);
        let open = pool_open.intersect(lane.valve.open_to(now));
        let Some(next) = lane.next(open, now) else {
            if lane.is_followed {
                self.note_no_slot(id, now);
            }
            return None;
        };
        (!lane.is_followed || self.lets_go(id, next, now)).then_some(next)
    }

    #[inline]
    fn grant(&mut self, id: LaneId, next: Next, now: Time, effects: &mut Effects) {
        let lane = self.lane_mut(id);
        let (waker, waited) = lane.queue.grant(next, now);
        lane.valve.take(next.class);
        lane.window.record_wait(waited, now);
        lane.note_queue(now);
        self.valve.take(next.class);
        if self.is_followed(id) {
            self.let_in(id, next, now, effects);
        }
        self.waiting -= 1;
        self.next_timeout = self.next_timeout.min(now + LEASE);
        if let Some(waker) = waker {
            effects.wakes.push(waker);
        }
    }

    fn list(&mut self, id: LaneId) {
        self.lane_mut(id).listed_at = Some(self.listed.len());
        self.listed.push(id.0);
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

mod charges;
mod followed;
mod foresight;
#[cfg(test)]
mod tests;
mod waits;
