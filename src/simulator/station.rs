//! One client's limiter: the engine that decides who goes next, and the controller that decides how many.
//!
//! The engine is the real one, stepped as the shell would step it; only the time is invented.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::task::{Wake, Waker};

use super::agenda::secs;
use super::scenario::{Answer, Clients};
use crate::engine::controller::{Controller, Mark, Sample, Sent};
use crate::engine::outcome::{Outcome, Verdict};
use crate::engine::policy::{LanePolicy, PoolPolicy};
use crate::engine::pool::Pool;
use crate::engine::priority::Priority;
use crate::engine::queue::{Ask, Expiry, WaiterId};
use crate::engine::step::{Effects, Grant, LaneId};
use crate::engine::time::Time;
use crate::sync::{Mutex, lock};

pub(super) struct Station {
    pool: Pool,
    lane: LaneId,
    policy: LanePolicy,
    controller: Box<dyn Controller>,
    answer: Answer,
    is_paused: bool,
    in_flight: u32,
    /// By call index.
    seats: Vec<Seat>,
    rung: Arc<Mutex<VecDeque<u32>>>,
    effects: Effects,
}

/// What the shell's future, permit and body would hold of a call.
struct Seat {
    waker: Waker,
    waiter: Option<WaiterId>,
    /// Bytes of the request.
    size: u32,
    grant: Option<Grant>,
    sent: Option<(Sent, Mark)>,
    first_byte_at: Option<Time>,
}

/// A call that asks for a slot.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    pub(super) call: u32,
    pub(super) class: Priority,
    pub(super) arrived_at: Time,
    pub(super) prompt_tokens: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// It has a slot and is to be sent.
    Granted(u32),
    /// Its time in the queue is over.
    Expired(u32),
}

/// How a call ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct End {
    pub(super) outcome: Outcome,
    /// That came.
    pub(super) tokens: u32,
    pub(super) retry_after_s: Option<f64>,
}

impl Station {
    pub(super) fn new(clients: &Clients, controller: Box<dyn Controller>) -> Self {
        let policy = LanePolicy {
            limit: controller.limit().max(1),
            reserve: clients.interactive_reserve,
            queue_timeout: secs(clients.queue_timeout_s),
            max_queue: clients.max_queue,
            max_queue_per_class: None,
            max_queue_per_tenant: None,
            aging_step: Some(secs(AGING_STEP_S)),
            min_pause: secs(MIN_PAUSE_S),
            max_pause: secs(MAX_PAUSE_S),
        };
        let mut pool = Pool::new(OPEN);
        let mut effects = Effects::default();
        let lane = pool.add_lane(policy);
        let stopper = pool.add_lane(LanePolicy { limit: 0, ..policy });
        pool.try_acquire(stopper, Priority::Bulk, Time::NEVER, Time::ZERO, &mut effects)
            .expect("a lane without a limit has a slot");
        Self {
            pool,
            lane,
            policy,
            controller,
            answer: clients.answer,
            is_paused: false,
            in_flight: 0,
            seats: Vec::new(),
            rung: Arc::default(),
            effects,
        }
    }

    /// A slot, a place in the queue, or neither (false). Whoever has a slot turns up in [`next_turn`](Self::next_turn).
    pub(super) fn offer(&mut self, request: Request, now: Time) -> bool {
        let Request { call, class, arrived_at, prompt_tokens } = request;
        let size = prompt_tokens * BYTES_PER_TOKEN;
        self.obey(now);
        let seat = self.seat(call);
        (seat.waiter, seat.grant, seat.sent, seat.first_byte_at, seat.size) = (None, None, None, None, size);
        let waker = seat.waker.clone();
        if let Ok(grant) = self.pool.try_acquire(self.lane, class, Time::NEVER, now, &mut self.effects) {
            self.seat(call).grant = Some(grant);
            lock(&self.rung).push_back(call);
            self.ring();
            return true;
        }
        self.ring();
        let expires_at = now + self.policy.queue_timeout;
        let ask = Ask { class, tenant: None, arrived_at, expires_at, expiry: Expiry::QueueTimeout };
        let ticket = self.pool.enqueue(self.lane, ask, waker, now);
        self.seat(call).waiter = ticket.as_ref().ok().map(|ticket| ticket.id);
        ticket.is_ok()
    }

    /// The next call that was granted a slot, or that waited in vain.
    pub(super) fn next_turn(&mut self, now: Time) -> Option<Turn> {
        let call = lock(&self.rung).pop_front()?;
        let seat = &mut self.seats[call as usize];
        let waiter = seat.waiter.take();
        if let Some(waiter) = waiter {
            seat.grant = self.pool.pick_up(self.lane, waiter);
        }
        let Some(grant) = seat.grant else { return Some(Turn::Expired(call)) };
        let waiting: u32 = self.pool.figures(self.lane).1.iter().sum();
        self.in_flight += 1;
        let sent = Sent {
            at: now.since_epoch(),
            in_flight: self.in_flight,
            is_saturated: waiting > 0 || !grant.waited.is_zero(),
            request_bytes: Some(seat.size),
            asks_for_stream: Some(self.answer == Answer::Stream),
        };
        seat.sent = Some((sent, self.controller.on_sent(&sent)));
        self.obey(now);
        Some(Turn::Granted(call))
    }

    pub(super) fn first_byte(&mut self, call: u32, now: Time) {
        let seat = &mut self.seats[call as usize];
        seat.first_byte_at = Some(now);
        if let Some((sent, mark)) = &seat.sent {
            self.controller.on_first_byte(now.since_epoch(), sent, *mark);
            self.obey(now);
        }
    }

    /// The signal first, then the slot.
    pub(super) fn end(&mut self, call: u32, end: End, now: Time) {
        let seat = &mut self.seats[call as usize];
        let (Some(grant), Some((sent, mark))) = (seat.grant.take(), seat.sent.take()) else { return };
        self.controller.on_end(&Sample {
            ended_at: now.since_epoch(),
            sent,
            mark,
            first_byte_at: seat.first_byte_at.map(Time::since_epoch),
            further_chunks: if self.answer == Answer::Stream { end.tokens.saturating_sub(1) } else { 0 },
            answer_bytes: end.tokens.saturating_mul(BYTES_PER_TOKEN),
            outcome: end.outcome,
            retry_after: end.retry_after_s.map(secs),
            in_flight: self.in_flight,
        });
        self.in_flight -= 1;
        self.set_rules(now);
        self.pool.settle(self.lane, grant, Verdict::new(end.outcome), now, &mut self.effects);
        self.ring();
    }

    pub(super) fn handle_timeout(&mut self, now: Time) {
        self.pool.handle_timeout(now, &mut self.effects);
        self.ring();
        self.obey(now);
    }

    pub(super) fn poll_timeout(&self) -> Option<Time> {
        let opens_at = self.controller.paused_until().filter(|_| self.is_paused).map(Time::from_epoch);
        self.pool.poll_timeout().into_iter().chain(opens_at).min()
    }

    pub(super) fn limit(&self) -> u32 {
        self.policy.limit
    }

    pub(super) fn in_flight(&self) -> u32 {
        self.in_flight
    }

    pub(super) fn waiting(&self) -> u32 {
        self.pool.waiting()
    }

    /// Does as the controller says, and grants what that allows.
    fn obey(&mut self, now: Time) {
        if self.set_rules(now) {
            self.pool.dispatch_all(now, &mut self.effects);
            self.ring();
        }
    }

    /// Returns true if more may be granted than before.
    fn set_rules(&mut self, now: Time) -> bool {
        let limit = self.controller.limit().max(1);
        let is_paused = self.controller.paused_until().is_some_and(|until| until > now.since_epoch());
        let is_wider = limit > self.policy.limit || (self.is_paused && !is_paused);
        if limit != self.policy.limit {
            self.policy.limit = limit;
            self.pool.set_lane_policy(self.lane, self.policy);
        }
        if is_paused != self.is_paused {
            self.is_paused = is_paused;
            self.pool.set_policy(if is_paused { SHUT } else { OPEN });
        }
        is_wider
    }

    fn ring(&mut self) {
        self.effects.wakes.drain(..).for_each(Waker::wake);
        self.effects.spent.clear();
        self.effects.touched.clear();
        self.effects.dropped.clear();
    }

    fn seat(&mut self, call: u32) -> &mut Seat {
        while self.seats.len() <= call as usize {
            let call = u32::try_from(self.seats.len()).expect("calls are named by 32 bits");
            let waker = Waker::from(Arc::new(Bell { call, rung: Arc::clone(&self.rung) }));
            self.seats.push(Seat { waker, waiter: None, size: 0, grant: None, sent: None, first_byte_at: None });
        }
        &mut self.seats[call as usize]
    }
}

/// The defaults of the crate's configuration.
const AGING_STEP_S: f64 = 60.0;
const MIN_PAUSE_S: f64 = 1.0;
const MAX_PAUSE_S: f64 = 600.0;

/// Of a prompt and of an answer.
const BYTES_PER_TOKEN: u32 = 4;

/// The engine has no pause that a controller could set, so a lane is shut by a cap of one over the pool, whose one slot
/// the stopper holds for ever.
const SHUT: PoolPolicy = PoolPolicy { limit: 1, reserve: 0 };
const OPEN: PoolPolicy = PoolPolicy { limit: 0, reserve: 0 };

struct Bell {
    call: u32,
    rung: Arc<Mutex<VecDeque<u32>>>,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        lock(&self.rung).push_back(self.call);
    }
}

impl fmt::Debug for Station {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Station").field("limit", &self.policy.limit).field("in_flight", &self.in_flight).finish()
    }
}
