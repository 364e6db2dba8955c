//! Lanes and pools under controllers, among them one that does whatever it likes: promise by promise, and by random
//! operations.

mod random;
mod wild;

use std::sync::{Arc, Mutex};

use self::wild::{Ledger, Wild};
use super::*;
use crate::engine::change::{Cause, ChangeKind};
use crate::engine::controller::{Aimd, AimdConfig, Controller, Sample};
use crate::engine::steering::LimitBounds;
use crate::engine::step::Change;

const ANY: LimitBounds = LimitBounds { min: 1, max: 1_000_000 };

/// What a [`Puppet`] says next.
#[derive(Debug)]
struct Strings {
    limit: u32,
    paused_until: Option<Duration>,
}

/// Says what the test wants it to say.
#[derive(Debug)]
struct Puppet(Arc<Mutex<Strings>>);

impl Controller for Puppet {
    fn limit(&self) -> u32 {
        self.0.lock().unwrap().limit
    }

    fn paused_until(&self) -> Option<Duration> {
        self.0.lock().unwrap().paused_until
    }

    fn on_end(&mut self, _: &Sample) {}
}

fn puppet(limit: u32) -> (Arc<Mutex<Strings>>, Option<Steering>) {
    let strings = Arc::new(Mutex::new(Strings { limit, paused_until: None }));
    let steering = Steering::new(Box::new(Puppet(strings.clone())), ANY);
    (strings, Some(steering))
}

/// One lane under a puppet that asks for `limit`, in a pool without a cap.
fn steered(limit: u32, most: u32) -> (Bench, LaneId, Arc<Mutex<Strings>>) {
    let mut bench = Bench::new(0);
    let (strings, steering) = puppet(limit);
    let lane = bench.pool.add_lane(policy(most), steering);
    (bench, lane, strings)
}

fn aimd(initial_limit: u32) -> Option<Steering> {
    let aimd = Aimd::new(AimdConfig { initial_limit, ..AimdConfig::default() }).expect("valid");
    Some(Steering::new(Box::new(aimd), ANY))
}

impl Bench {
    fn changes(&self) -> Vec<(ChangeKind, Cause)> {
        self.effects.changes.iter().map(|Change { kind, cause, .. }| (*kind, *cause)).collect()
    }

    fn next_timeout(&self) -> Duration {
        self.pool.poll_timeout().expect("something is due").since(self.now)
    }
}

// Case 89.
#[test]
fn a_refusal_lowers_the_limit_before_its_slot_goes_to_the_next() {
    let mut bench = Bench::new(0);
    let lane = bench.pool.add_lane(policy(0), aimd(20));
    let running: Vec<Grant> = (0..20).map(|_| bench.come(lane, Priority::Default).grant()).collect();
    let _waiting: Vec<_> = (0..1_600).map(|_| bench.come(lane, Priority::Default).id()).collect();
    bench.wait(SECOND);
    for (ended, grant) in (1..).zip(running) {
        bench.settle(lane, grant, Outcome::Overload);
        let left = 20 - ended;
        assert_eq!(bench.in_use(lane), left.max(10), "after {ended} refusals");
    }
    assert_eq!((bench.pool.figures(lane).limit, bench.waiting(lane)), (10, 1_590));
}

// Case 90.
#[test]
fn a_limit_lowered_by_a_refusal_drains_and_a_raised_one_admits_just_the_difference() {
    let (mut bench, lane, strings) = steered(8, 0);
    let mut running: Vec<Grant> = (0..8).map(|_| bench.come(lane, Priority::Default).grant()).collect();
    let waiters: Vec<_> = (0..5).map(|_| bench.come(lane, Priority::Default).id()).collect();
    strings.lock().unwrap().limit = 4;
    for left in (4..8).rev() {
        bench.settle(lane, running.pop().unwrap(), Outcome::Overload);
        assert_eq!((bench.in_use(lane), bench.waiting(lane)), (left, 5));
    }
    strings.lock().unwrap().limit = 6;
    let grant = running.pop().unwrap();
    bench.step(|pool, now, effects| pool.first_byte(lane, &grant, now, effects));
    assert_eq!((bench.in_use(lane), bench.waiting(lane)), (6, 3));
    assert!(bench.is_granted(lane, waiters[0]) && bench.is_granted(lane, waiters[1]));
    assert!(!bench.is_granted(lane, waiters[2]));
}

#[test]
fn a_controllers_pause_ends_by_itself_at_lane_and_at_pool_level() {
    for is_pools in [false, true] {
        let (strings, steering) = puppet(4);
        let (of_pool, of_lane) = if is_pools { (steering, None) } else { (None, steering) };
        let mut bench = Bench { pool: Pool::new(SlotPolicy::default(), of_pool, 1), ..Bench::new(0) };
        let lane = bench.pool.add_lane(policy(0), of_lane);
        let grant = bench.come(lane, Priority::Default).grant();
        let until = bench.now + 5 * SECOND;
        strings.lock().unwrap().paused_until = Some(until.since_epoch());
        bench.succeed(lane, grant);
        assert_eq!(bench.try_now(lane, Priority::Interactive), Err(Blocked::Paused(5 * SECOND)));
        let waiter = bench.come(lane, Priority::Interactive).id();
        assert_eq!(bench.next_timeout(), 5 * SECOND, "nothing else would call");
        bench.wait(5 * SECOND - Duration::from_nanos(1));
        assert!(!bench.is_granted(lane, waiter));
        bench.wait(Duration::from_nanos(1));
        bench.tick();
        assert_eq!(bench.in_use(lane), 1);
    }
}

#[test]
fn a_controllers_pause_is_over_when_it_says_so_and_never_later_than_ten_minutes_after() {
    let (mut bench, lane, strings) = steered(4, 0);
    let [first, second] = [0; 2].map(|_| bench.come(lane, Priority::Default).grant());
    strings.lock().unwrap().paused_until = Some(Duration::MAX);
    bench.succeed(lane, first);
    assert_eq!(bench.try_now(lane, Priority::Default), Err(Blocked::Paused(600 * SECOND)));
    let waiter = bench.come(lane, Priority::Default).id();
    strings.lock().unwrap().paused_until = None;
    bench.step(|pool, now, effects| pool.first_byte(lane, &second, now, effects));
    assert!(bench.is_granted(lane, waiter));
}

#[test]
fn the_later_of_the_upstreams_pause_and_the_controllers_stands() {
    for (of_controller, expected) in [(5, 10), (30, 30)] {
        let (mut bench, lane, strings) = steered(4, 0);
        let grant = bench.come(lane, Priority::Default).grant();
        strings.lock().unwrap().paused_until = Some((bench.now + of_controller * SECOND).since_epoch());
        bench.pause(lane, grant, 10 * SECOND);
        let waiter = bench.come(lane, Priority::Default).id();
        bench.wait(expected * SECOND - Duration::from_nanos(1));
        assert!(!bench.is_granted(lane, waiter));
        while bench.waiting(lane) > 0 {
            bench.now = bench.pool.poll_timeout().expect("it would wait for ever");
            bench.tick();
        }
        assert!(bench.now.since(Time::from_epoch(100_000 * SECOND)) <= (expected + 1) * SECOND);
    }
}

#[test]
fn nonsense_is_clamped_and_told_once_until_it_was_sane() {
    let (mut bench, lane, strings) = steered(3, 8);
    let mut ask = |limit: u32| {
        strings.lock().unwrap().limit = limit;
        let grant = bench.come(lane, Priority::Default).grant();
        let told = bench.changes().into_iter().find(|(kind, _)| matches!(kind, ChangeKind::Clamped { .. }));
        bench.succeed(lane, grant);
        (bench.pool.figures(lane).limit, told.map(|(kind, _)| kind))
    };
    assert_eq!(ask(0), (1, Some(ChangeKind::Clamped { asked: 0, got: 1 })));
    assert_eq!(ask(0), (1, None));
    assert_eq!(ask(u32::MAX), (8, None), "still nonsense");
    assert_eq!(ask(9), (8, None), "too much for the configuration, and no nonsense");
    assert_eq!(ask(u32::MAX), (8, Some(ChangeKind::Clamped { asked: u32::MAX, got: 8 })));
    assert_eq!(ask(8), (8, None), "the limit in force");
    assert_eq!(ask(u32::MAX), (8, Some(ChangeKind::Clamped { asked: u32::MAX, got: 8 })));
}

#[test]
fn a_raised_bound_gives_the_controller_what_it_asked_for_at_once() {
    let (mut bench, lane, _) = steered(6, 2);
    assert_eq!(bench.pool.figures(lane).limit, 2);
    let _calls: Vec<_> = (0..9).map(|_| bench.come(lane, Priority::Default)).collect();
    bench.set_limit(lane, 20);
    assert_eq!((bench.pool.figures(lane).limit, bench.in_use(lane)), (6, 6));
    bench.set_limit(lane, 3);
    assert_eq!(bench.changes(), [(ChangeKind::Limit { from: 6, to: 3 }, Cause::Config)]);
}

#[test]
fn another_policy_and_another_controller_are_one_change() {
    let (mut bench, lane, _) = steered(16, 64);
    bench.step(|pool, _, effects| pool.steer_lane(lane, None, policy(8), effects));
    assert_eq!(bench.changes(), [(ChangeKind::Limit { from: 16, to: 8 }, Cause::Config)]);
    bench.step(|pool, _, effects| pool.steer_lane(lane, aimd(32), policy(64), effects));
    assert_eq!(bench.changes(), [(ChangeKind::Limit { from: 8, to: 32 }, Cause::Config)]);
}

#[test]
fn an_idle_lane_is_kept_for_a_reduced_limit_and_not_for_a_bound() {
    let (mut bench, lane, strings) = steered(16, 4);
    let _other = bench.pool.add_lane(policy(1), None);
    let grant = bench.come(lane, Priority::Default).grant();
    bench.succeed(lane, grant);
    assert!(bench.pool.lane_mut(lane).is_idle(bench.now), "4 is all that the configuration allows");
    let grant = bench.come(lane, Priority::Default).grant();
    strings.lock().unwrap().limit = 3;
    bench.succeed(lane, grant);
    assert!(!bench.pool.remove_lane(lane, bench.now));
    bench.wait(3_600 * SECOND);
    assert!(bench.pool.remove_lane(lane, bench.now));
}

#[test]
fn the_last_lane_stays_for_what_its_pool_remembers() {
    let (strings, steering) = puppet(16);
    let mut bench = Bench { pool: Pool::new(SlotPolicy::default(), steering, 1), ..Bench::new(0) };
    let [lane, other] = [0; 2].map(|_| bench.pool.add_lane(policy(0), None));
    let grant = bench.come(lane, Priority::Default).grant();
    bench.pause(lane, grant, 60 * SECOND);
    assert!(bench.pool.remove_lane(other, bench.now), "another is left");
    assert!(!bench.pool.remove_lane(lane, bench.now), "the pool is paused");
    bench.wait(62 * SECOND);
    let grant = bench.come(lane, Priority::Default).grant();
    strings.lock().unwrap().limit = 2;
    bench.succeed(lane, grant);
    assert!(!bench.pool.remove_lane(lane, bench.now), "the pool's limit is reduced");
    bench.wait(3_600 * SECOND);
    assert!(bench.pool.remove_lane(lane, bench.now));
}

#[test]
fn a_limit_raised_by_a_reload_during_the_ramp_is_felt_in_the_ramp() {
    let (mut bench, lane) = Bench::of(policy(1));
    let grant = bench.come(lane, Priority::Default).grant();
    bench.pause(lane, grant, 10 * SECOND);
    let _waiting: Vec<_> = (0..11).map(|_| bench.come(lane, Priority::Default).id()).collect();
    while bench.in_use(lane) == 0 {
        bench.now = bench.pool.poll_timeout().expect("the end of the pause");
        bench.tick();
    }
    bench.set_limit(lane, 11);
    assert_eq!(bench.in_use(lane), 1);
    assert_eq!(bench.next_timeout(), SECOND / 10, "the next of ten steps in a second");
}

/// Each call is told to the controller that was in place when it was sent, and to no other.
#[test]
fn a_call_that_outlives_its_controller_is_no_business_of_the_next() {
    let ledgers = [0; 2].map(Ledger::new);
    let [first, second] = ledgers.each_ref().map(|ledger| Some(Steering::new(Box::new(Wild(ledger.clone())), ANY)));
    let mut bench = Bench::new(0);
    let lane = bench.pool.add_lane(policy(0), first);
    let grant = bench.come(lane, Priority::Default).grant();
    ledgers[0].lock().unwrap().is_retired = true;
    bench.step(|pool, _, effects| pool.steer_lane(lane, second, policy(0), effects));
    bench.step(|pool, now, effects| pool.first_byte(lane, &grant, now, effects));
    bench.settle(lane, grant, Outcome::Overload);
    for ledger in &ledgers {
        assert_eq!(ledger.lock().unwrap().errors, [""; 0]);
    }
    assert_eq!((bench.in_use(lane), ledgers[1].lock().unwrap().open.len()), (0, 0));
}
