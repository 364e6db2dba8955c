//! One client's limiter: the engine that decides who goes next, with the controller that decides how many.
//!
//! The engine is the real one, stepped as the shell would step it; only the time is invented.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::task::{Wake, Waker};
use std::time::Duration;

use super::agenda::secs;
use super::scenario::{Answer, Clients};
use crate::engine::asked::Asked;
use crate::engine::controller::Controller;
use crate::engine::forecast::PredictDeadlines;
use crate::engine::outcome::{Outcome, Pause, Verdict};
use crate::engine::pause::PauseBounds;
use crate::engine::policy::{LanePolicy, SlotPolicy};
use crate::engine::pool::Pool;
use crate::engine::priority::Priority;
use crate::engine::queue::{Ask, Expiry, WaiterId};
use crate::engine::quota::{Reported, WhenShort};
use crate::engine::steering::{Ending, LimitBounds, RequestFacts, Steering};
use crate::engine::step::{self, Effects, Grant, LaneId, Look, Progress};
use crate::engine::time::Time;
use crate::sync::{Mutex, lock};

pub(super) struct Station {
    pool: Pool,
    lane: LaneId,
    queue_timeout: Duration,
    answer: Answer,
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
    asked: Asked,
    grant: Option<Grant>,
    /// `ZERO`: not yet.
    first_byte_at: Time,
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
        let queue_timeout = secs(clients.queue_timeout_s);
        let policy = LanePolicy {
            slots: SlotPolicy { limit: 0, reserve: clients.interactive_reserve },
            shares: None,
            queue_timeout,
            max_queue: clients.max_queue,
            max_queue_per_class: None,
            max_queue_per_tenant: None,
            aging_step: Some(secs(AGING_STEP_S)),
            pauses: PauseBounds { min: secs(MIN_PAUSE_S), max: secs(MAX_PAUSE_S) },
            predict_deadlines: PredictDeadlines::Off,
            when_short: WhenShort::Queue,
        };
        let mut pool = Pool::new(SlotPolicy::default(), None, SEED);
        let lane = pool.add_lane(policy, Some(Steering::new(controller, BOUNDS)));
        Self {
            pool,
            lane,
            queue_timeout,
            answer: clients.answer,
            in_flight: 0,
            seats: Vec::new(),
            rung: Arc::default(),
            effects: Effects::default(),
        }
    }

    /// A slot, a place in the queue, or neither (false). Whoever has a slot turns up in [`next_turn`](Self::next_turn).
    pub(super) fn offer(&mut self, request: Request, now: Time) -> bool {
        let Request { call, class, arrived_at, prompt_tokens } = request;
        let facts = RequestFacts::new(Some(prompt_tokens * BYTES_PER_TOKEN), Some(self.answer == Answer::Stream));
        let asked = Asked { facts, ..Asked::default() };
        let seat = self.seat(call);
        (seat.waiter, seat.grant, seat.first_byte_at, seat.asked) = (None, None, Time::ZERO, asked);
        let waker = seat.waker.clone();
        let request = step::Request { asked, ..step::Request::of(class) };
        if let Ok(grant) = self.pool.try_acquire(self.lane, request, now, &mut self.effects) {
            self.seat(call).grant = Some(grant);
            lock(&self.rung).push_back(call);
            self.ring();
            return true;
        }
        self.ring();
        let expires_at = now + self.queue_timeout;
        let ask = Ask { class, tenant: None, arrived_at, expires_at, expiry: Expiry::QueueTimeout };
        let ticket = self.pool.enqueue(self.lane, ask, asked, waker, now);
        self.seat(call).waiter = ticket.as_ref().ok().map(|ticket| ticket.id);
        ticket.is_ok()
    }

    /// The next call that was granted a slot, or that waited in vain.
    pub(super) fn next_turn(&mut self, now: Time) -> Option<Turn> {
        loop {
            let call = lock(&self.rung).pop_front()?;
            let seat = &mut self.seats[call as usize];
            if let Some(waiter) = seat.waiter {
                let look = Look { waker: &seat.waker, deadline: Time::NEVER };
                match self.pool.collect(self.lane, waiter, look, now, &mut self.effects) {
                    Progress::Granted(grant) => seat.grant = Some(grant),
                    Progress::Waiting => continue,
                    Progress::PastDeadline | Progress::Gone => {}
                }
                seat.waiter = None;
            }
            let is_granted = seat.grant.is_some();
            self.ring();
            if !is_granted {
                return Some(Turn::Expired(call));
            }
            self.in_flight += 1;
            return Some(Turn::Granted(call));
        }
    }

    pub(super) fn first_byte(&mut self, call: u32, now: Time) {
        let seat = &mut self.seats[call as usize];
        seat.first_byte_at = now;
        if let Some(grant) = &seat.grant {
            self.pool.first_byte(self.lane, grant, now, &mut self.effects);
            self.ring();
        }
    }

    /// The signal first, then the slot.
    pub(super) fn end(&mut self, call: u32, end: End, now: Time) {
        let seat = &mut self.seats[call as usize];
        let Some(grant) = seat.grant.take() else { return };
        let verdict = Verdict::new(end.outcome);
        let ending = Ending {
            verdict: end.retry_after_s.map_or(verdict, |after| verdict.with_pause(Pause::For(secs(after)))),
            first_byte_at: seat.first_byte_at,
            further_chunks: if self.answer == Answer::Stream { end.tokens.saturating_sub(1) } else { 0 },
            answer_bytes: end.tokens.saturating_mul(BYTES_PER_TOKEN),
            reported: Reported::default(),
            remaining: None,
        };
        self.in_flight -= 1;
        self.pool.settle(self.lane, &grant, ending, now, &mut self.effects);
        self.ring();
    }

    pub(super) fn handle_timeout(&mut self, now: Time) {
        self.pool.handle_timeout(now, &mut self.effects);
        self.ring();
    }

    pub(super) fn poll_timeout(&self) -> Option<Time> {
        self.pool.poll_timeout()
    }

    pub(super) fn limit(&self) -> u32 {
        self.pool.figures(self.lane).limit
    }

    pub(super) fn in_flight(&self) -> u32 {
        self.in_flight
    }

    pub(super) fn waiting(&self) -> u32 {
        self.pool.waiting()
    }

    fn ring(&mut self) {
        self.effects.wakes.drain(..).for_each(Waker::wake);
        self.effects.spent.clear();
        self.effects.touched.clear();
        self.effects.dropped.clear();
        self.effects.changes.clear();
    }

    fn seat(&mut self, call: u32) -> &mut Seat {
        while self.seats.len() <= call as usize {
            let call = u32::try_from(self.seats.len()).expect("calls are named by 32 bits");
            let waker = Waker::from(Arc::new(Bell { call, rung: Arc::clone(&self.rung) }));
            self.seats.push(Seat {
                waker,
                waiter: None,
                asked: Asked::default(),
                grant: None,
                first_byte_at: Time::ZERO,
            });
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

/// Any number will do; the same run is the same each time.
const SEED: u64 = 7;

/// Of any controller.
const BOUNDS: LimitBounds = LimitBounds { min: 1, max: 1_000_000 };

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
        f.debug_struct("Station").field("limit", &self.limit()).field("in_flight", &self.in_flight).finish()
    }
}
