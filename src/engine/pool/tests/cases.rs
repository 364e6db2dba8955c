//! One test per public bug report that the engine alone decides: leaks, bounds, pauses, limits.

use super::*;
use Priority::{Bulk, Default as Normal, Interactive};

// Case 4.
#[test]
fn a_slot_granted_to_one_who_leaves_goes_to_the_next_at_once() {
    let (mut bench, lane) = Bench::of(policy(1));
    let a = bench.come(lane, Normal).grant();
    let [b, c] = [0; 2].map(|_| bench.come(lane, Normal).id());
    bench.succeed(lane, a);
    assert!(bench.cancel(lane, b));
    assert_eq!(bench.effects.wakes.len(), 1);
    assert!(bench.is_granted(lane, c));
}

// Case 6.
#[test]
fn those_who_timed_out_eat_no_slot() {
    let (mut bench, lane) = Bench::of(policy(8));
    let busy = [0; 8].map(|_| bench.come(lane, Normal).grant());
    let until = bench.now + Duration::from_millis(10);
    for _ in 0..8 {
        bench.come_until(lane, Normal, until, Expiry::QueueTimeout).id();
    }
    assert_eq!(bench.pool.poll_timeout(), Some(until));
    bench.now = until;
    bench.tick();
    assert_eq!(bench.reasons(), [Reason::QueueTimeout; 8]);
    assert_eq!(bench.waiting(lane), 0);
    for grant in busy {
        bench.succeed(lane, grant);
    }
    for _ in 0..8 {
        assert!(bench.come(lane, Normal).is_sent());
    }
    assert_eq!(bench.in_use(lane), 8);
}

// Case 23.
#[test]
fn a_reserve_larger_than_the_shrunk_limit_lets_bulk_go_one_at_a_time() {
    let (mut bench, lane) = Bench::of(reserving(2, 8));
    let mut running = bench.come(lane, Bulk).grant();
    bench.set_limit(lane, 1);
    let waiting: Vec<WaiterId> = (0..10).map(|_| bench.come(lane, Bulk).id()).collect();
    for id in waiting {
        bench.succeed(lane, running);
        running = bench.collect(lane, id);
        assert_eq!(bench.in_use(lane), 1);
    }
}

// Case 24.
#[test]
fn the_reserve_is_kept_from_bulk_also_when_it_has_aged() {
    let (mut bench, lane) = Bench::of(reserving(1, 4));
    let bulk = [0; 3].map(|_| bench.come(lane, Bulk).grant());
    let [fourth, fifth] = [0; 2].map(|_| bench.come(lane, Bulk).id());
    bench.wait(200 * SECOND);
    bench.tick();
    assert_eq!(bench.in_use(lane), 3);
    let interactive = bench.come(lane, Interactive);
    assert!(interactive.is_sent());
    bench.succeed(lane, bulk[0]);
    assert!(bench.is_granted(lane, fourth));
    bench.succeed(lane, interactive.grant());
    assert!(!bench.is_granted(lane, fifth), "the reserve stays free for interactive callers");
    let (mut bench, lane) = Bench::of(reserving(1, 4));
    assert!((0..4).all(|_| bench.come(lane, Interactive).is_sent()));
}

// Case 28.
#[test]
fn a_deadline_that_passes_in_the_queue_gets_no_slot() {
    let (mut bench, lane) = Bench::of(policy(1));
    let busy = bench.come(lane, Normal).grant();
    let deadline = bench.now + SECOND;
    let late = bench.come_until(lane, Normal, deadline, Expiry::Deadline).id();
    let next = bench.come(lane, Normal).id();
    assert_eq!(bench.pool.poll_timeout(), Some(deadline));
    bench.wait(Duration::from_millis(1200));
    bench.succeed(lane, busy);
    assert_eq!(bench.reasons(), [Reason::Deadline]);
    assert_eq!(bench.poll(lane, late), Progress::Gone);
    assert!(bench.is_granted(lane, next));
}

#[test]
fn a_deadline_that_passes_between_grant_and_poll_gives_the_slot_to_the_next() {
    let (mut bench, lane) = Bench::of(policy(1));
    let busy = bench.come(lane, Normal).grant();
    let deadline = bench.now + SECOND;
    let late = bench.come_until(lane, Normal, deadline, Expiry::Deadline).id();
    let next = bench.come(lane, Normal).id();
    bench.wait(SECOND / 2);
    bench.succeed(lane, busy);
    bench.now = deadline;
    let progress = bench.step(|pool, now, effects| pool.collect(lane, late, look_until(deadline), now, effects));
    assert_eq!(progress, Progress::PastDeadline);
    assert!(bench.is_granted(lane, next));
}

// Case 30 (a, b).
#[test]
fn the_bound_that_fired_is_told() {
    for expiry in [Expiry::Deadline, Expiry::QueueTimeout] {
        let (mut bench, lane) = Bench::of(policy(1));
        bench.come(lane, Normal);
        let until = bench.now + 2 * SECOND;
        bench.come_until(lane, Normal, until, expiry).id();
        bench.now = until;
        bench.tick();
        let reason = if expiry == Expiry::Deadline { Reason::Deadline } else { Reason::QueueTimeout };
        assert_eq!(bench.reasons(), [reason]);
        let timeouts = u32::from(expiry == Expiry::QueueTimeout);
        assert_eq!(bench.pool.view(lane, until, &mut Effects::default()).timeouts, timeouts);
    }
}

// Case 32, without tokens.
#[test]
fn the_dead_cost_the_living_nothing() {
    let (mut bench, lane) = Bench::of(policy(1));
    let busy = bench.come(lane, Normal).grant();
    let dead: Vec<WaiterId> = (0..10).map(|_| bench.come(lane, Normal).id()).collect();
    let live = bench.come(lane, Normal).id();
    for id in dead {
        bench.cancel(lane, id);
    }
    bench.succeed(lane, busy);
    assert_eq!(bench.effects.wakes.len(), 1);
    assert!(bench.is_granted(lane, live));
}

// Case 33.
#[test]
fn a_running_and_a_waiting_call_that_end_together_let_the_next_one_go() {
    for waiter_first in [false, true] {
        let (mut bench, lane) = Bench::of(policy(1));
        let a = bench.come(lane, Normal).grant();
        let [b, c] = [0; 2].map(|_| bench.come(lane, Normal).id());
        if waiter_first {
            bench.cancel(lane, b);
        }
        bench.settle(lane, a, Outcome::Cancelled);
        if !waiter_first {
            bench.cancel(lane, b);
        }
        assert!(bench.is_granted(lane, c));
    }
}

// Case 33.
#[test]
fn a_call_whose_time_is_over_does_not_queue() {
    let (mut bench, lane) = Bench::of(policy(1));
    bench.come(lane, Normal);
    let now = bench.now;
    let came = bench.come_until(lane, Normal, now, Expiry::Deadline);
    assert_eq!(came, Came::Blocked(Blocked::PastDeadline));
    let came = bench.come_until(lane, Normal, now, Expiry::QueueTimeout);
    assert_eq!(came, Came::Refused(Refusal::Expired));
}

// Case 34.
#[test]
fn a_pause_that_outlasts_the_call_refuses_it_at_once() {
    let (mut bench, lane) = Bench::of(policy(2));
    let refused = bench.come(lane, Normal).grant();
    bench.pause(lane, refused, 300 * SECOND);
    for expiry in [Expiry::Deadline, Expiry::QueueTimeout] {
        let until = bench.now + 5 * SECOND;
        let came = bench.come_until(lane, Interactive, until, expiry);
        let Came::Refused(Refusal::Paused(left)) = came else { panic!("{came:?}") };
        assert!((300 * SECOND..=301 * SECOND).contains(&left));
    }
    let patient = bench.come(lane, Normal).id();
    let opens_at = bench.pool.poll_timeout().expect("the pause ends");
    assert_eq!(bench.try_now(lane, Interactive), Err(Blocked::Paused(opens_at.since(bench.now))));
    bench.wait(opens_at.since(bench.now) - Duration::from_nanos(1));
    assert_eq!(bench.poll(lane, patient), Progress::Waiting);
    bench.wait(Duration::from_nanos(1));
    assert!(bench.is_granted(lane, patient));
}

// Case 36.
#[test]
fn a_full_queue_refuses_at_once_and_a_freed_place_is_usable_at_once() {
    let (mut bench, lane) = Bench::of(LanePolicy { max_queue: 0, ..policy(1) });
    assert!(bench.come(lane, Normal).is_sent());
    assert_eq!(bench.come(lane, Normal), Came::Refused(Refusal::LaneFull));

    let (mut bench, lane) = Bench::of(LanePolicy { max_queue: 2, ..policy(1) });
    assert!(bench.come(lane, Normal).is_sent());
    let [second, _] = [0; 2].map(|_| bench.come(lane, Normal).id());
    assert_eq!(bench.come(lane, Normal), Came::Refused(Refusal::LaneFull));
    assert_eq!(bench.come(lane, Interactive), Came::Refused(Refusal::LaneFull));
    bench.cancel(lane, second);
    bench.come(lane, Normal).id();
}

// Case 36.
#[test]
fn classes_have_bounds_of_their_own() {
    let (mut bench, lane) = Bench::of(LanePolicy { max_queue_per_class: Some(1), ..policy(1) });
    bench.come(lane, Bulk);
    bench.come(lane, Bulk).id();
    assert_eq!(bench.come(lane, Bulk), Came::Refused(Refusal::ClassFull));
    bench.come(lane, Normal).id();
}

// Case 72.
#[test]
fn the_later_pause_stands_and_a_late_success_does_not_end_it() {
    let (mut bench, lane) = Bench::of(policy(4));
    let [first, second, third, fourth] = [0; 4].map(|_| bench.come(lane, Normal).grant());
    bench.pause(lane, first, 300 * SECOND);
    let opens_at = bench.now + 300 * SECOND;
    let waiter = bench.come(lane, Normal).id();
    bench.wait(Duration::from_millis(10));
    bench.pause(lane, second, SECOND);
    bench.succeed(lane, third);
    assert!(bench.pool.poll_timeout().is_some_and(|at| (opens_at..=opens_at + SECOND).contains(&at)));
    bench.pause(lane, fourth, 400 * SECOND);
    let left = bench.pool.view(lane, bench.now, &mut Effects::default()).valve.paused_for;
    assert!(left.is_some_and(|left| (400 * SECOND..=401 * SECOND).contains(&left)));
    bench.now = opens_at + SECOND;
    bench.tick();
    assert_eq!(bench.poll(lane, waiter), Progress::Waiting);
    bench.now = bench.pool.poll_timeout().expect("the pause ends");
    bench.tick();
    assert!(bench.is_granted(lane, waiter));
}

// Case 90, by reconfiguration.
#[test]
fn a_shrunk_limit_admits_nobody_until_it_has_drained() {
    let (mut bench, lane) = Bench::of(policy(8));
    let running = [0; 8].map(|_| bench.come(lane, Normal).grant());
    for _ in 0..5 {
        bench.come(lane, Normal).id();
    }
    bench.set_limit(lane, 4);
    for (ended, grant) in (1..).zip(&running[..4]) {
        bench.succeed(lane, *grant);
        assert_eq!((bench.in_use(lane), bench.effects.wakes.len()), (8 - ended, 0));
    }
    assert!(bench.try_now(lane, Interactive).is_err());
    bench.succeed(lane, running[4]);
    assert_eq!((bench.in_use(lane), bench.effects.wakes.len()), (4, 1));
    bench.set_limit(lane, 6);
    assert_eq!((bench.in_use(lane), bench.effects.wakes.len()), (6, 2));
}

// Case 95, where the engine decides.
#[test]
fn no_limit_and_no_reserve_ever_shut_a_class_out() {
    for (limit, reserve, class) in (0..5)
        .flat_map(|limit| (0..7).map(move |reserve| (limit, reserve)))
        .flat_map(|(limit, reserve)| Priority::ALL.map(|class| (limit, reserve, class)))
    {
        let (mut bench, lane) = Bench::of(reserving(reserve, limit));
        bench.pool.set_policy(SlotPolicy { limit, reserve }, &mut Effects::default());
        assert!(bench.come(lane, class).is_sent(), "limit {limit}, reserve {reserve}, {class}");
    }
}

// Case 149, the engine's part.
#[test]
fn closing_refuses_all_who_wait_also_those_who_sleep_through_their_grant() {
    let (mut bench, lane) = Bench::of(policy(1));
    let busy = bench.come(lane, Normal).grant();
    let [sleeper, waiter] = [0; 2].map(|_| bench.come(lane, Normal).id());
    bench.succeed(lane, busy);
    bench.step(|pool, now, effects| pool.close(now, effects));
    assert_eq!(bench.reasons(), [Reason::Closed]);
    assert_eq!(bench.poll(lane, waiter), Progress::Gone);
    assert_eq!(bench.in_use(lane), 1);
    bench.now = bench.pool.poll_timeout().expect("the grant's lease ends");
    bench.tick();
    assert_eq!(bench.reasons(), [Reason::Closed]);
    assert_eq!((bench.in_use(lane), bench.waiting(lane)), (0, 0));
    assert_eq!(bench.poll(lane, sleeper), Progress::Gone);
    assert_eq!(bench.come(lane, Normal), Came::Blocked(Blocked::Closed));
    assert_eq!(bench.pool.poll_timeout(), None);
}

// Case 154.
#[test]
fn a_hundred_thousand_expiries_leave_the_living_in_place() {
    let (mut bench, lane) = Bench::of(policy(1));
    let holder = bench.come(lane, Normal).grant();
    let until = bench.now + Duration::from_millis(10);
    for _ in 0..100_000 {
        bench.come_until(lane, Normal, until, Expiry::QueueTimeout);
    }
    let live = bench.come(lane, Bulk).id();
    bench.wait(SECOND);
    bench.tick();
    assert_eq!(bench.effects.dropped.len(), 100_000);
    assert_eq!((bench.pool.waiting(), bench.waiting(lane)), (1, 1));
    bench.wait(3600 * SECOND);
    bench.succeed(lane, holder);
    assert!(bench.is_granted(lane, live));
}
