//! Random operations on two lanes and their pool, all three under wild controllers that come and go.

use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Wake;

use proptest::prelude::*;

use super::*;
use crate::engine::step::Whose;

/// A ramp to a limit of a million has a million steps.
const WIDE: LimitBounds = LimitBounds { min: 1, max: 64 };

/// Longest pause that a controller gets.
const MAX_HOLD: Duration = Duration::from_secs(600);

#[derive(Clone, Debug)]
enum Op {
    Arrive(usize, Duration),
    Try(usize),
    Poll(usize),
    Cancel(usize),
    FirstByte(usize),
    Settle(usize, Verdict),
    /// Time passes, and the engine is called exactly when it asked to be.
    Drive(Duration),
    /// A policy for one of the three, and perhaps another controller or none.
    Set(usize, u32, Option<Option<(u64, LimitBounds)>>),
}

type Checked = Result<(), TestCaseError>;

#[derive(Debug, Default)]
struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[derive(Clone, Debug, PartialEq)]
enum Place {
    Queued(WaiterId),
    Granted(WaiterId, Time),
    /// It slept through a grant.
    Parked(WaiterId),
    /// With the time of its first byte; `ZERO`: none yet.
    Sent(Grant, Time),
}

#[derive(Debug)]
struct Call {
    lane: usize,
    expires_at: Time,
    place: Place,
    woken: Arc<Flag>,
}

impl Call {
    fn has_slot(&self) -> bool {
        matches!(self.place, Place::Granted(..) | Place::Sent(..))
    }

    fn waiter(&self) -> Option<WaiterId> {
        match self.place {
            Place::Queued(id) | Place::Granted(id, _) | Place::Parked(id) => Some(id),
            Place::Sent(..) => None,
        }
    }
}

/// What is known of a valve: its bounds, and what its controller wants.
struct Expected {
    most: u32,
    bounds: LimitBounds,
    ledger: Option<Arc<Mutex<Ledger>>>,
    held_until: Time,
    /// As the changes told it.
    told: u32,
}

impl Expected {
    fn limit(&self) -> u32 {
        let ceiling = if self.most == 0 { u32::MAX } else { self.most };
        let Some(ledger) = &self.ledger else { return self.most };
        let (min, max) = (self.bounds.min.min(ceiling), self.bounds.max.min(ceiling));
        ledger.lock().unwrap().limit.clamp(min, max)
    }

    /// Takes in what the controller said in the step that is over.
    fn hear(&mut self, now: Time) -> Checked {
        let Some(ledger) = &self.ledger else { return Ok(()) };
        let mut ledger = ledger.lock().unwrap();
        prop_assert!(ledger.errors.is_empty(), "{:?}", ledger.errors);
        if std::mem::take(&mut ledger.is_told) {
            let wanted = ledger.paused_until.map_or(Time::ZERO, Time::from_epoch);
            self.held_until = if ledger.has_panicked { Time::ZERO } else { wanted.min(now + MAX_HOLD) };
        }
        Ok(())
    }
}

struct World {
    pool: Pool,
    lanes: [LaneId; 2],
    /// Of the two lanes and the pool.
    valves: [Expected; 3],
    calls: Vec<Call>,
    now: Time,
    /// Granted in the step under way: their lanes.
    granted: Vec<usize>,
}

const POOL: usize = 2;

impl World {
    fn new() -> Self {
        let mut pool = Pool::new(SlotPolicy::default(), None, 1);
        let lanes = [0; 2].map(|_| pool.add_lane(policy(0), None));
        let unknown = || Expected { most: 0, bounds: WIDE, ledger: None, held_until: Time::ZERO, told: 0 };
        let now = Time::from_epoch(100_000 * SECOND);
        let valves = [unknown(), unknown(), unknown()];
        Self { pool, lanes, valves, calls: Vec::new(), now, granted: Vec::new() }
    }

    fn apply(&mut self, op: &Op) -> Checked {
        // On its own, so that whoever is granted in the step after it is granted by what its controllers say now.
        self.step(|pool, now, effects| pool.handle_timeout(now, effects))?;
        match *op {
            Op::Arrive(lane, timeout) => self.arrive(lane, Some(timeout))?,
            Op::Try(lane) => self.arrive(lane, None)?,
            Op::Poll(n) => self.poll(n)?,
            Op::Cancel(n) => self.cancel(n)?,
            Op::FirstByte(n) => self.first_byte(n)?,
            Op::Settle(n, verdict) => self.settle(n, verdict)?,
            Op::Drive(time) => self.drive(time)?,
            Op::Set(valve, most, steering) => self.set(valve, most, steering)?,
        }
        self.check_all_that_can_go_do()
    }

    fn arrive(&mut self, lane: usize, timeout: Option<Duration>) -> Checked {
        let id = self.lanes[lane];
        let may_go = self.is_open(lane)?;
        let mut effects = Effects::default();
        let came = self.pool.try_acquire(id, Request::of(Priority::Default), self.now, &mut effects);
        prop_assert_eq!(came.is_ok(), may_go);
        let (woken, expires_at) = (Arc::<Flag>::default(), timeout.map_or(Time::NEVER, |timeout| self.now + timeout));
        let place = match (came, timeout) {
            (Ok(grant), _) => {
                self.calls.push(Call { lane, expires_at, place: Place::Sent(grant, Time::ZERO), woken });
                return self.absorb(effects);
            }
            (Err(_), None) => return Ok(()),
            (Err(blocked), Some(_)) => {
                let ask = Ask {
                    class: Priority::Default,
                    tenant: None,
                    arrived_at: self.now,
                    expires_at,
                    expiry: Expiry::QueueTimeout,
                };
                match (self.pool.enqueue(id, ask, Asked::default(), Waker::from(woken.clone()), self.now), blocked) {
                    (Ok(ticket), _) => Place::Queued(ticket.id),
                    (Err(Refusal::Expired), _) => return Ok(()),
                    (Err(Refusal::Paused(left)), Blocked::Paused(of_try)) => {
                        prop_assert!(left == of_try && self.now + left > expires_at);
                        return Ok(());
                    }
                    other => return Err(TestCaseError::fail(format!("{other:?}"))),
                }
            }
        };
        self.calls.push(Call { lane, expires_at, place, woken });
        Ok(())
    }

    fn pick(&self, n: usize, of: impl Fn(&Call) -> bool) -> Option<usize> {
        let those: Vec<usize> = (0..self.calls.len()).filter(|&at| of(&self.calls[at])).collect();
        (!those.is_empty()).then(|| those[n % those.len()])
    }

    fn poll(&mut self, n: usize) -> Checked {
        let Some(at) = self.pick(n, |call| call.waiter().is_some()) else { return Ok(()) };
        let was_open = self.is_open(self.calls[at].lane)?;
        // Out of the way: it is no waiter that somebody else's step could grant.
        let call = self.calls.remove(at);
        let (id, waiter, place) = (self.lanes[call.lane], call.waiter().expect("picked for it"), call.place.clone());
        if let Some(grant) = self.pool.pick_up(id, waiter) {
            prop_assert!(!self.is_steered(call.lane), "sent, and a controller was not told");
            self.calls.push(Call { place: Place::Sent(grant, Time::ZERO), ..call });
            return Ok(());
        }
        let waker = Waker::from(call.woken.clone());
        let mut effects = Effects::default();
        let look = Look { waker: &waker, deadline: Time::NEVER };
        let progress = self.pool.collect(id, waiter, look, self.now, &mut effects);
        let place = match (progress, place) {
            (Progress::Granted(grant), Place::Granted(..)) => Place::Sent(grant, Time::ZERO),
            (Progress::Granted(grant), Place::Parked(_)) if was_open => Place::Sent(grant, Time::ZERO),
            (Progress::Waiting, Place::Queued(_) | Place::Parked(_)) => Place::Queued(waiter),
            other => return Err(TestCaseError::fail(format!("{other:?}"))),
        };
        call.woken.0.store(false, Ordering::Relaxed);
        self.calls.push(Call { place, ..call });
        self.absorb(effects)
    }

    fn is_steered(&self, lane: usize) -> bool {
        self.valves[lane].ledger.is_some() || self.valves[POOL].ledger.is_some()
    }

    fn cancel(&mut self, n: usize) -> Checked {
        let Some(at) = self.pick(n, |call| call.waiter().is_some()) else { return Ok(()) };
        let call = self.calls.remove(at);
        let (id, waiter) = (self.lanes[call.lane], call.waiter().expect("picked for it"));
        let was_there = self.step(|pool, now, effects| pool.cancel(id, waiter, now, effects))?;
        prop_assert!(was_there);
        Ok(())
    }

    fn first_byte(&mut self, n: usize) -> Checked {
        let Some(at) = self.pick(n, |call| matches!(call.place, Place::Sent(_, Time::ZERO))) else { return Ok(()) };
        let id = self.lanes[self.calls[at].lane];
        let Place::Sent(grant, first_byte_at) = &mut self.calls[at].place else { unreachable!() };
        *first_byte_at = self.now;
        let grant = *grant;
        self.step(|pool, now, effects| pool.first_byte(id, &grant, now, effects))
    }

    fn settle(&mut self, n: usize, verdict: Verdict) -> Checked {
        let Some(at) = self.pick(n, |call| call.waiter().is_none()) else { return Ok(()) };
        let call = self.calls.remove(at);
        let (id, Place::Sent(grant, first_byte_at)) = (self.lanes[call.lane], call.place) else { unreachable!() };
        let ending = Ending { first_byte_at, ..Ending::from(verdict) };
        self.step(|pool, now, effects| pool.settle(id, &grant, ending, now, effects)).map(|_| ())
    }

    fn drive(&mut self, time: Duration) -> Checked {
        let target = self.now + time;
        while let Some(due_at) = self.pool.poll_timeout().filter(|&due_at| due_at <= target) {
            self.now = self.now.max(due_at);
            self.step(|pool, now, effects| pool.handle_timeout(now, effects))?;
            self.check_all_that_can_go_do()?;
            prop_assert!(self.pool.poll_timeout().is_none_or(|next| next > self.now), "it would spin");
        }
        self.now = target;
        Ok(())
    }

    fn set(&mut self, valve: usize, most: u32, steering: Option<Option<(u64, LimitBounds)>>) -> Checked {
        let expected = &mut self.valves[valve];
        expected.most = most;
        let steering = steering.map(|new| {
            if let Some(ledger) = &expected.ledger {
                ledger.lock().unwrap().is_retired = true;
            }
            expected.held_until = Time::ZERO;
            expected.ledger = new.map(|(seed, _)| Ledger::new(seed));
            expected.bounds = new.map_or(WIDE, |(_, bounds)| bounds);
            expected.ledger.as_ref().map(|ledger| Steering::new(Box::new(Wild(ledger.clone())), expected.bounds))
        });
        let lane = self.lanes.get(valve).copied();
        self.step(|pool, now, effects| {
            match (lane, steering) {
                (Some(lane), Some(steering)) => pool.steer_lane(lane, steering, policy(most), effects),
                (Some(lane), None) => pool.set_lane_policy(lane, policy(most), effects),
                (None, Some(steering)) => pool.steer(steering, policy(most).slots, effects),
                (None, None) => pool.set_policy(policy(most).slots, effects),
            }
            pool.dispatch_all(now, effects);
        })
    }

    fn step<R>(&mut self, step: impl FnOnce(&mut Pool, Time, &mut Effects) -> R) -> Result<R, TestCaseError> {
        let mut effects = Effects::default();
        let result = step(&mut self.pool, self.now, &mut effects);
        self.absorb(effects)?;
        Ok(result)
    }

    /// Works out what became of each waiter, and checks what was granted against what the controllers said.
    fn absorb(&mut self, effects: Effects) -> Checked {
        let now = self.now;
        for valve in &mut self.valves {
            valve.hear(now)?;
        }
        self.hear_changes(&effects)?;
        effects.wakes.into_iter().for_each(Waker::wake);
        self.granted.clear();
        for call in &mut self.calls {
            if let Place::Granted(id, at) = call.place {
                if at + LEASE <= now {
                    call.place = Place::Parked(id);
                }
            }
            let is_woken = call.woken.0.swap(false, Ordering::Relaxed);
            if let (Place::Queued(id), true, true) = (&call.place, is_woken, call.expires_at > now) {
                call.place = Place::Granted(*id, now);
                self.granted.push(call.lane);
            }
        }
        self.calls.retain(|call| call.has_slot() || call.expires_at > now);
        self.check_grants()
    }

    /// Each change is told once, with what was before.
    fn hear_changes(&mut self, effects: &Effects) -> Checked {
        for Change { whose, kind, .. } in &effects.changes {
            let valve = match whose {
                Whose::Pool => POOL,
                Whose::Lane(id) => self.lanes.iter().position(|lane| lane == id).expect("one of two"),
            };
            match *kind {
                ChangeKind::Limit { from, to } => {
                    prop_assert!(from != to && from == self.valves[valve].told);
                    self.valves[valve].told = to;
                }
                ChangeKind::Pause { left } => prop_assert!(!left.is_zero() && left <= MAX_HOLD + SECOND),
                ChangeKind::Breaker { .. } => prop_assert!(false, "there is no breaker"),
                ChangeKind::Clamped { asked, got } => {
                    prop_assert!(asked != got && got == self.limit(valve));
                }
                ChangeKind::ControllerPanicked => {
                    let ledger = self.valves[valve].ledger.as_ref().expect("it has panicked");
                    prop_assert!(ledger.lock().unwrap().has_panicked);
                }
            }
        }
        for valve in 0..3 {
            let expected = &self.valves[valve];
            prop_assert_eq!((expected.limit(), expected.told), (self.limit(valve), self.limit(valve)));
        }
        Ok(())
    }

    fn valve(&self, valve: usize) -> &Valve {
        self.lanes.get(valve).map_or(&self.pool.valve, |&id| &self.pool.lane(id).valve)
    }

    fn limit(&self, valve: usize) -> u32 {
        self.valve(valve).limit()
    }

    fn used(&self, valve: usize) -> u32 {
        let here = self.calls.iter().filter(|call| call.has_slot() && (valve == POOL || call.lane == valve));
        u32::try_from(here.count()).expect("few")
    }

    /// How many may be in flight now: none in a pause, fewer than the limit after one.
    fn lets_pass(&self, valve: usize) -> Result<u32, TestCaseError> {
        let gate = self.valve(valve).gate;
        let expected = &self.valves[valve];
        let limit = expected.limit();
        prop_assert_eq!(limit, self.limit(valve));
        if self.now < expected.held_until || !gate.is_open(self.now) {
            return Ok(0);
        }
        Ok(if limit == 0 { u32::MAX } else { gate.lets_pass(limit, self.now) })
    }

    fn is_open(&self, lane: usize) -> Result<bool, TestCaseError> {
        Ok(self.used(lane) < self.lets_pass(lane)? && self.used(POOL) < self.lets_pass(POOL)?)
    }

    fn check_grants(&self) -> Checked {
        for &lane in &self.granted {
            for valve in [lane, POOL] {
                prop_assert!(self.used(valve) <= self.lets_pass(valve)?, "granted in a pause or above the limit");
            }
        }
        Ok(())
    }

    fn check_all_that_can_go_do(&self) -> Checked {
        prop_assert_eq!(self.pool.in_use(), self.used(POOL));
        for call in &self.calls {
            // Nobody has called the engine since.
            let is_due = self.pool.poll_timeout().is_some_and(|due_at| due_at <= self.now);
            if matches!(call.place, Place::Queued(_)) && !is_due {
                prop_assert!(!self.is_open(call.lane)?, "{:?} could go and does not", call);
            }
        }
        Ok(())
    }

    /// All calls end, and nothing is left.
    fn end(&mut self) -> Checked {
        while let Some(call) = self.calls.first() {
            let op = if call.waiter().is_some() { Op::Cancel(0) } else { Op::Settle(0, Outcome::Success.into()) };
            self.apply(&op)?;
        }
        prop_assert_eq!((self.pool.in_use(), self.pool.waiting(), self.pool.poll_timeout()), (0, 0, None));
        for ledger in self.valves.iter().filter_map(|valve| valve.ledger.as_ref()) {
            let ledger = ledger.lock().unwrap();
            prop_assert!(ledger.has_panicked || ledger.open.is_empty(), "never told of their end: {:?}", ledger.open);
        }
        self.now = self.now + 3_700 * SECOND;
        for id in self.lanes {
            prop_assert!(self.pool.remove_lane(id, self.now), "a lane holds something");
        }
        Ok(())
    }
}

fn verdict() -> impl Strategy<Value = Verdict> {
    let overloaded = |pause| Verdict::new(Outcome::Overload).with_pause(pause);
    prop_oneof![
        5 => prop::sample::select(&Outcome::ALL[..]).prop_map(Verdict::new),
        1 => (0_u64..4_000).prop_map(move |millis| overloaded(Pause::For(Duration::from_millis(millis)))),
        1 => Just(overloaded(Pause::Minimum)),
    ]
}

fn bounds() -> impl Strategy<Value = LimitBounds> {
    prop_oneof![Just(WIDE), (1_u32..4, 0_u32..4).prop_map(|(min, more)| LimitBounds { min, max: min + more })]
}

fn op() -> impl Strategy<Value = Op> {
    let time = || prop_oneof![0_u64..40, 0_u64..1_100, 0_u64..4_000].prop_map(Duration::from_millis);
    let timeout = prop_oneof![0_u64..6_000, 0_u64..1_000_000].prop_map(Duration::from_millis);
    let most = prop_oneof![Just(0_u32), 1_u32..6];
    let steering = prop::option::weighted(0.7, prop::option::weighted(0.8, (any::<u64>(), bounds())));
    prop_oneof![
        16 => (0_usize..2, timeout).prop_map(|(lane, timeout)| Op::Arrive(lane, timeout)),
        2 => (0_usize..2).prop_map(Op::Try),
        12 => (0_usize..64).prop_map(Op::Poll),
        2 => (0_usize..64).prop_map(Op::Cancel),
        6 => (0_usize..64).prop_map(Op::FirstByte),
        8 => (0_usize..64, verdict()).prop_map(|(call, verdict)| Op::Settle(call, verdict)),
        8 => time().prop_map(Op::Drive),
        3 => (0_usize..3, most, steering).prop_map(|(valve, most, steering)| Op::Set(valve, most, steering)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 20_000, ..ProptestConfig::with_cases(cases(4_000)) })]

    #[test]
    fn whatever_controllers_do_limits_pauses_and_books_hold(
        seeds in prop::array::uniform3(prop::option::weighted(0.8, any::<u64>())),
        ops in prop::collection::vec(op(), 1..100),
    ) {
        let mut world = World::new();
        for (valve, seed) in seeds.into_iter().enumerate() {
            world.apply(&Op::Set(valve, 0, Some(seed.map(|seed| (seed, WIDE)))))?;
        }
        for op in &ops {
            world.apply(op)?;
        }
        world.end()?;
    }
}

fn cases(default: u32) -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(default)
}
