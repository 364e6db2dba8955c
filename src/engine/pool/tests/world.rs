//! What a user of the engine knows of its calls.

mod check;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Wake;

use proptest::prelude::*;

use super::*;
use crate::engine::outcome::Verdict;
use crate::engine::totals::Totals;

#[derive(Clone, Debug)]
pub(super) enum Op {
    Arrive {
        lane: usize,
        class: Priority,
        tenant: u8,
        age: Duration,
        timeout: Duration,
        deadline: Option<Duration>,
    },
    Poll(usize),
    Cancel(usize),
    Settle(usize, Verdict),
    /// Time passes, and the engine is called exactly when it asked to be.
    Drive(Duration),
    /// Time passes, and nobody calls the engine.
    Jump(Duration),
    SetLane(usize, LanePolicy),
    SetPool(SlotPolicy),
    Close,
}

type Checked = Result<(), TestCaseError>;

#[derive(Debug, Default)]
struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Place {
    Queued,
    Granted(Time),
    Parked,
    Sent(Grant),
}

#[derive(Clone, Debug)]
struct Call {
    lane: usize,
    class: Priority,
    tenant: u8,
    arrived_at: Time,
    number: usize,
    expires_at: Time,
    expiry: Expiry,
    deadline: Time,
    id: Option<WaiterId>,
    place: Place,
    woken: Arc<Flag>,
}

impl Call {
    fn is_waiting(&self) -> bool {
        matches!(self.place, Place::Queued | Place::Parked)
    }

    fn id(&self) -> WaiterId {
        self.id.expect("it stands in line")
    }
}

pub(super) struct World {
    pool: Pool,
    ids: Vec<LaneId>,
    lanes: Vec<LanePolicy>,
    policy: SlotPolicy,
    totals: Vec<Totals>,
    calls: Vec<Call>,
    now: Time,
    is_closed: bool,
    /// Time has passed and nobody has called the engine since.
    is_behind: bool,
    numbers: usize,
    /// Calls granted in the step under way, by number.
    granted: Vec<usize>,
    /// The call that has come into line at the end of the step: it was not there when others were granted.
    newcomer: Option<usize>,
}

impl World {
    pub(super) fn new(policy: SlotPolicy, lanes: Vec<LanePolicy>) -> Self {
        let mut pool = Pool::new(policy, None, 1);
        Self {
            ids: lanes.iter().map(|policy| pool.add_lane(*policy, None)).collect(),
            totals: vec![Totals::default(); lanes.len()],
            pool,
            lanes,
            policy,
            calls: Vec::new(),
            now: Time::from_epoch(100_000 * SECOND),
            is_closed: false,
            is_behind: false,
            numbers: 0,
            granted: Vec::new(),
            newcomer: None,
        }
    }

    pub(super) fn apply(&mut self, op: &Op) -> Checked {
        self.granted.clear();
        self.newcomer = None;
        match *op {
            Op::Arrive { lane, class, tenant, age, timeout, deadline } => {
                let lane = lane % self.lanes.len();
                let deadline = deadline.map_or(Time::NEVER, |after| self.now + after);
                let timeout_at = self.now + timeout;
                let expiry = if deadline <= timeout_at { Expiry::Deadline } else { Expiry::QueueTimeout };
                let arrived_at = Time::from_epoch(self.now.since_epoch() - age);
                self.numbers += 1;
                let call = Call {
                    lane,
                    class,
                    tenant,
                    arrived_at,
                    number: self.numbers,
                    expires_at: deadline.min(timeout_at),
                    expiry,
                    deadline,
                    id: None,
                    place: Place::Queued,
                    woken: Arc::default(),
                };
                self.arrive(call)?;
            }
            Op::Poll(n) => self.poll(n)?,
            Op::Cancel(n) => self.cancel(n)?,
            Op::Settle(n, verdict) => self.settle(n, verdict)?,
            Op::Drive(time) => return self.drive(time),
            Op::Jump(time) => {
                self.now = self.now + time;
                self.is_behind = true;
            }
            Op::SetLane(lane, policy) => {
                let lane = lane % self.lanes.len();
                self.lanes[lane] = policy;
                let id = self.ids[lane];
                self.step(|pool, now, effects| {
                    pool.set_lane_policy(id, policy, effects);
                    pool.dispatch_all(now, effects);
                })?;
            }
            Op::SetPool(policy) => {
                self.policy = policy;
                self.step(|pool, now, effects| {
                    pool.set_policy(policy, effects);
                    pool.dispatch_all(now, effects);
                })?;
            }
            Op::Close => {
                // On its own, so that a wake means a grant here and a refusal there.
                self.step(|pool, now, effects| pool.handle_timeout(now, effects))?;
                self.check()?;
                self.granted.clear();
                self.is_closed = true;
                self.step(|pool, now, effects| pool.close(now, effects))?;
            }
        }
        self.check()
    }

    fn arrive(&mut self, mut call: Call) -> Checked {
        let Call { lane, class, deadline, expires_at, expiry, .. } = call;
        let id = self.ids[lane];
        let now = self.now;
        self.totals[lane].offered += 1;
        let came = self.step(|pool, now, effects| {
            pool.try_acquire(id, Request { deadline, ..Request::of(class) }, now, effects)
        })?;
        let paused = self.pool.lane(id).valve.opens_at(now).map(|opens_at| opens_at.since(now));
        let expected = if self.is_closed {
            Err(Blocked::Closed)
        } else if deadline <= now {
            Err(Blocked::PastDeadline)
        } else if let Some(left) = paused {
            Err(Blocked::Paused(left))
        } else if self.is_open(lane, class) {
            Ok(Grant::plain(class, now, Duration::ZERO))
        } else {
            Err(Blocked::Busy)
        };
        prop_assert_eq!(came, expected);
        let reason = match came {
            Ok(grant) => {
                self.granted.push(call.number);
                self.calls.push(Call { place: Place::Sent(grant), ..call });
                return Ok(());
            }
            Err(Blocked::Closed) => Reason::Closed,
            Err(Blocked::PastDeadline) => Reason::Deadline,
            Err(Blocked::Busy | Blocked::Paused(_)) => {
                let tenant = (call.tenant > 0).then(|| Arc::from(format!("t{}", call.tenant)));
                let ask = Ask { class, tenant, arrived_at: call.arrived_at, expires_at, expiry };
                let refusal = self.expected_refusal(&call, paused);
                match self.pool.enqueue(id, ask, Asked::default(), Waker::from(call.woken.clone()), now) {
                    Ok(ticket) => {
                        prop_assert_eq!(refusal, None);
                        call.id = Some(ticket.id);
                        self.newcomer = Some(call.number);
                        self.calls.push(call);
                        return Ok(());
                    }
                    Err(refused) => prop_assert_eq!(Some(refused), refusal),
                }
                Reason::QueueFull
            }
            Err(_) => unreachable!("no budget and no breaker is set"),
        };
        self.totals[lane].refused[reason as usize] += 1;
        self.pool.note_refused(id, reason);
        Ok(())
    }

    fn expected_refusal(&self, call: &Call, paused: Option<Duration>) -> Option<Refusal> {
        let Call { lane, class, tenant, expires_at, .. } = *call;
        let policy = &self.lanes[lane];
        let waiting = |of: &dyn Fn(&Call) -> bool| {
            let waiters = self.calls.iter().filter(|call| call.lane == lane && call.is_waiting() && of(call));
            u32::try_from(waiters.count()).expect("few")
        };
        if expires_at <= self.now {
            return Some(Refusal::Expired);
        }
        if let Some(left) = paused.filter(|&left| expires_at < self.now + left) {
            return Some(Refusal::Paused(left));
        }
        if waiting(&|_| true) >= policy.max_queue {
            return Some(Refusal::LaneFull);
        }
        if policy.max_queue_per_class.is_some_and(|most| waiting(&|other| other.class == class) >= most) {
            return Some(Refusal::ClassFull);
        }
        if policy.max_queue_per_tenant.is_some_and(|most| waiting(&|other| other.tenant == tenant) >= most) {
            return Some(Refusal::TenantFull);
        }
        None
    }

    /// One of the calls that are not sent yet, or none.
    fn pick(&self, n: usize, of: impl Fn(&Call) -> bool) -> Option<Call> {
        let those: Vec<&Call> = self.calls.iter().filter(|call| of(call)).collect();
        (!those.is_empty()).then(|| those[n % those.len()].clone())
    }

    fn find(&mut self, number: usize) -> Option<usize> {
        self.calls.iter().position(|call| call.number == number)
    }

    fn poll(&mut self, n: usize) -> Checked {
        let Some(call) = self.pick(n, |call| call.id.is_some()) else { return Ok(()) };
        call.woken.0.store(false, Ordering::Relaxed);
        let (lane, id, waker) = (self.ids[call.lane], call.id(), Waker::from(call.woken.clone()));
        if call.deadline == Time::NEVER {
            // As the shell does, without asking the clock.
            let picked = self.pool.pick_up(lane, id);
            prop_assert_eq!(picked.is_some(), matches!(call.place, Place::Granted(_)));
            if let Some(grant) = picked {
                let at = self.find(call.number).expect("it was there");
                (self.calls[at].place, self.calls[at].id) = (Place::Sent(grant), None);
                return Ok(());
            }
        }
        let progress = self.step(|pool, now, effects| {
            pool.collect(lane, id, Look { waker: &waker, ..look_until(call.deadline) }, now, effects)
        })?;
        let now = self.now;
        let Some(at) = self.find(call.number) else {
            prop_assert_eq!(progress, Progress::Gone);
            return Ok(());
        };
        match self.calls[at].place {
            Place::Granted(_) if call.deadline <= now => {
                prop_assert_eq!(progress, Progress::PastDeadline);
                self.calls.remove(at);
                self.totals[call.lane].refused[Reason::Deadline as usize] += 1;
                self.pool.note_refused(lane, Reason::Deadline);
            }
            Place::Granted(granted_at) => {
                let Progress::Granted(grant) = progress else {
                    return Err(TestCaseError::fail(format!("{progress:?} instead of a grant")));
                };
                prop_assert_eq!((grant.class, grant.granted_at), (call.class, granted_at));
                let sent = &mut self.calls[at];
                (sent.place, sent.id) = (Place::Sent(grant), None);
            }
            Place::Queued => prop_assert_eq!(progress, Progress::Waiting),
            Place::Parked => {
                prop_assert_eq!(progress, Progress::Waiting);
                self.calls[at].place = Place::Queued;
                self.newcomer = Some(call.number);
            }
            Place::Sent(_) => unreachable!("sent calls are not polled"),
        }
        Ok(())
    }

    fn cancel(&mut self, n: usize) -> Checked {
        let Some(call) = self.pick(n, |call| call.id.is_some()) else { return Ok(()) };
        let (lane, id) = (self.ids[call.lane], call.id());
        if n % 2 == 0 {
            let abandoned = self.pool.abandon(lane, id, None, &mut Effects::default());
            prop_assert_eq!(abandoned, if call.is_waiting() { Some(true) } else { None });
            if abandoned.is_some() {
                self.calls.retain(|other| other.number != call.number);
                self.totals[call.lane].abandoned += 1;
                return Ok(());
            }
        }
        let was_there = self.step(|pool, now, effects| pool.cancel(lane, id, now, effects))?;
        let at = self.find(call.number);
        prop_assert_eq!(was_there, at.is_some());
        if let Some(at) = at {
            let call = self.calls.remove(at);
            self.totals[call.lane].abandoned += 1;
        }
        Ok(())
    }

    fn settle(&mut self, n: usize, verdict: Verdict) -> Checked {
        let Some(call) = self.pick(n, |call| call.id.is_none()) else { return Ok(()) };
        let Place::Sent(grant) = call.place else { unreachable!("it has left the line") };
        let lane = self.ids[call.lane];
        // On its own, so that whoever is granted after the verdict is seen to be.
        self.step(|pool, now, effects| pool.handle_timeout(now, effects))?;
        self.check()?;
        self.granted.clear();
        self.step(|pool, now, effects| pool.settle(lane, &grant, verdict.into(), now, effects))?;
        self.calls.retain(|other| other.number != call.number);
        self.totals[call.lane].outcomes[verdict.outcome().index()] += 1;
        Ok(())
    }

    fn drive(&mut self, time: Duration) -> Checked {
        let target = self.now + time;
        while let Some(due_at) = self.pool.poll_timeout().filter(|&due_at| due_at <= target) {
            self.now = self.now.max(due_at);
            self.granted.clear();
            self.step(|pool, now, effects| pool.handle_timeout(now, effects))?;
            self.check()?;
            prop_assert!(self.pool.poll_timeout().is_none_or(|next| next > self.now), "it would spin");
        }
        self.now = target;
        self.granted.clear();
        self.check()
    }

    fn step<R>(&mut self, step: impl FnOnce(&mut Pool, Time, &mut Effects) -> R) -> Result<R, TestCaseError> {
        self.is_behind = false;
        let mut effects = Effects::default();
        let result = step(&mut self.pool, self.now, &mut effects);
        self.absorb(effects)?;
        Ok(result)
    }

    /// Works out from times and wakes what became of each waiter.
    fn absorb(&mut self, effects: Effects) -> Checked {
        let now = self.now;
        effects.wakes.into_iter().for_each(Waker::wake);
        let mut dropped: Vec<(LaneId, Priority, Reason)> =
            effects.dropped.iter().map(|dropped| (dropped.lane, dropped.class, dropped.reason)).collect();
        for mut call in std::mem::take(&mut self.calls) {
            if matches!(call.place, Place::Granted(at) if at + LEASE <= now) {
                call.place = Place::Parked;
            }
            let is_over = call.expires_at <= now;
            if call.is_waiting() && (is_over || self.is_closed) {
                let reason = match call.expiry {
                    _ if !is_over => Reason::Closed,
                    Expiry::Deadline => Reason::Deadline,
                    Expiry::QueueTimeout => Reason::QueueTimeout,
                };
                self.note_dropped(&call, reason, &mut dropped)?;
                continue;
            }
            let is_woken = call.woken.0.swap(false, Ordering::Relaxed);
            if is_woken && call.is_waiting() {
                prop_assert!(call.deadline > now);
                call.place = Place::Granted(now);
                self.granted.push(call.number);
            }
            self.calls.push(call);
        }
        prop_assert!(dropped.is_empty(), "dropped without a reason: {dropped:?}");
        Ok(())
    }

    fn note_dropped(&mut self, call: &Call, reason: Reason, dropped: &mut Vec<(LaneId, Priority, Reason)>) -> Checked {
        let id = self.ids[call.lane];
        let place = |reason| dropped.iter().position(|&it| it == (id, call.class, reason));
        // One that slept when the pool was closed is dropped as closed, whatever ended since.
        let as_closed = || self.is_closed.then(|| place(Reason::Closed)).flatten();
        let Some(at) = place(reason).or_else(as_closed) else {
            return Err(TestCaseError::fail(format!("{call:?} was not dropped for {reason:?}: {dropped:?}")));
        };
        let (.., reason) = dropped.swap_remove(at);
        self.totals[call.lane].refused[reason as usize] += 1;
        prop_assert!(call.place == Place::Parked || call.woken.0.load(Ordering::Relaxed), "nobody told {call:?}");
        let gone = self.pool.collect(id, call.id(), look_until(Time::NEVER), self.now, &mut Effects::default());
        prop_assert_eq!(gone, Progress::Gone);
        Ok(())
    }

    /// All calls end, and nothing is left.
    pub(super) fn end(&mut self) -> Checked {
        while let Some(call) = self.calls.first() {
            let op = if call.id.is_some() { Op::Cancel(0) } else { Op::Settle(0, Outcome::Success.into()) };
            self.apply(&op)?;
        }
        prop_assert_eq!((self.pool.in_use(), self.pool.waiting(), self.pool.poll_timeout()), (0, 0, None));
        prop_assert!(self.pool.listed.is_empty());
        self.now = self.now + 4 * SECOND;
        for id in std::mem::take(&mut self.ids) {
            prop_assert!(self.pool.remove_lane(id, self.now), "a lane holds something");
        }
        Ok(())
    }
}
