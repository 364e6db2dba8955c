//! Who goes first, over classes, lanes and time.

use super::*;
use Priority::{Bulk, Default as Normal, Interactive};

/// How long one bulk call waits while an interactive one comes every 50 ms for a minute and each takes 100 ms.
fn wait_of_bulk_under_load(aging_step: Option<Duration>) -> Duration {
    let (mut bench, lane) = Bench::of(LanePolicy { aging_step, ..policy(1) });
    let began = bench.now;
    let mut running = Some((bench.come(lane, Interactive).grant(), began + SECOND / 10));
    let bulk = bench.come(lane, Bulk).id();
    let mut queue = std::collections::VecDeque::new();
    loop {
        bench.wait(SECOND / 20);
        if let Some((grant, ends_at)) = running.take_if(|(_, ends_at)| *ends_at <= bench.now) {
            assert_eq!(ends_at, bench.now);
            bench.succeed(lane, grant);
            if bench.is_granted(lane, bulk) {
                return bench.now.since(began);
            }
            let next = queue.pop_front().expect("somebody was granted");
            running = Some((bench.collect(lane, next), bench.now + SECOND / 10));
        }
        if bench.now.since(began) <= 60 * SECOND {
            queue.push_back(bench.come(lane, Interactive).id());
        }
    }
}

// Case 17.
#[test]
fn bulk_starts_within_two_aging_steps_and_one_service_time() {
    let waited = wait_of_bulk_under_load(Some(SECOND));
    assert!(waited <= 2 * SECOND + SECOND / 10, "{waited:?}");
}

// Case 17.
#[test]
fn without_aging_bulk_starts_when_nobody_else_is_left() {
    let waited = wait_of_bulk_under_load(None);
    assert!(waited > 100 * SECOND, "{waited:?}");
}

// Case 18.
#[test]
fn fifty_callers_of_one_moment_start_in_their_order() {
    let (mut bench, lane) = Bench::of(policy(1));
    let mut running = bench.come(lane, Normal).grant();
    let came: Vec<WaiterId> = (0..50).map(|_| bench.come(lane, Normal).id()).collect();
    for id in came {
        bench.succeed(lane, running);
        running = bench.collect(lane, id);
    }
}

// Case 21.
#[test]
fn the_most_urgent_class_goes_first() {
    let (mut bench, lane) = Bench::of(policy(1));
    let mut running = bench.come(lane, Normal).grant();
    let [bulk, interactive, normal] = [Bulk, Interactive, Normal].map(|class| bench.come(lane, class).id());
    for id in [interactive, normal, bulk] {
        bench.succeed(lane, running);
        running = bench.collect(lane, id);
    }
}

// Case 22.
#[test]
fn a_holder_that_comes_again_at_once_stands_behind_the_waiter() {
    let (mut bench, lane) = Bench::of(policy(1));
    let mut held = bench.come(lane, Normal).grant();
    for _ in 0..100 {
        let waiter = bench.come(lane, Normal).id();
        bench.succeed(lane, held);
        assert_eq!(bench.try_now(lane, Normal), Err(Blocked::Busy));
        assert_eq!(bench.try_now(lane, Interactive), Err(Blocked::Busy));
        held = bench.collect(lane, waiter);
    }
}

// Case 26.
#[test]
fn a_paused_and_crowded_lane_delays_no_other() {
    for cap in [0, 5] {
        let mut bench = Bench::new(cap);
        let [a, b] = [2, 2].map(|limit| bench.pool.add_lane(policy(limit), None));
        let [first, second] = [0; 2].map(|_| bench.come(a, Normal).grant());
        bench.pause(a, first, 60 * SECOND);
        bench.succeed(a, second);
        let crowd: Vec<WaiterId> = (0..1_000).map(|_| bench.come(a, Interactive).id()).collect();
        let sent = bench.come(b, Bulk).grant();
        assert_eq!(sent.waited, Duration::ZERO);
        for id in crowd {
            bench.cancel(a, id);
        }
        assert!(bench.come(b, Bulk).is_sent());
    }
}

// Case 26.
#[test]
fn a_full_lane_under_a_pools_cap_blocks_no_other() {
    let mut bench = Bench::new(2);
    let [a, b] = [1, 2].map(|limit| bench.pool.add_lane(policy(limit), None));
    let running = bench.come(a, Normal).grant();
    let blocked = bench.come(a, Interactive).id();
    let other = bench.come(b, Bulk).grant();
    let next = bench.come(b, Bulk).id();
    bench.succeed(b, other);
    assert!(bench.is_granted(b, next));
    bench.succeed(a, running);
    assert!(bench.is_granted(a, blocked));
}

#[test]
fn under_a_pools_cap_class_and_arrival_decide_over_all_lanes() {
    let mut bench = Bench::new(1);
    let [a, b, c] = [4; 3].map(|limit| bench.pool.add_lane(policy(limit), None));
    let mut running = (a, bench.come(a, Normal).grant());
    let mut order = Vec::new();
    for (lane, class) in [(b, Bulk), (a, Normal), (c, Normal), (b, Interactive), (a, Interactive), (c, Bulk)] {
        bench.wait(SECOND);
        order.push((class, lane, bench.come(lane, class).id()));
    }
    order.sort_by_key(|(class, ..)| *class);
    for (_, lane, id) in order {
        bench.succeed(running.0, running.1);
        running = (lane, bench.collect(lane, id));
    }
}

#[test]
fn a_lifted_cap_grants_in_every_lane() {
    let mut bench = Bench::new(1);
    let lanes = [2; 3].map(|limit| bench.pool.add_lane(policy(limit), None));
    bench.come(lanes[0], Normal);
    let waiting = lanes.map(|lane| (lane, bench.come(lane, Normal).id()));
    bench.step(|pool, now, effects| {
        pool.set_policy(SlotPolicy::default(), effects);
        pool.dispatch_all(now, effects);
    });
    let mut touched: Vec<usize> = bench.effects.touched.iter().map(|lane| lane.index()).collect();
    touched.sort_unstable();
    assert_eq!(touched, lanes.map(LaneId::index));
    assert!(waiting.into_iter().all(|(lane, id)| bench.is_granted(lane, id)));
}

// Case 155.
#[test]
fn each_grant_wakes_one() {
    let (mut bench, lane) = Bench::of(policy(1));
    let mut running = bench.come(lane, Normal).grant();
    let crowd: Vec<WaiterId> = (0..10_000).map(|_| bench.come(lane, Normal).id()).collect();
    for id in crowd {
        bench.succeed(lane, running);
        assert_eq!(bench.effects.wakes.len(), 1);
        running = bench.collect(lane, id);
        assert_eq!(bench.effects.wakes.len(), 0);
    }
}

// Case 155.
#[test]
fn the_end_of_a_pause_wakes_one_by_one_as_many_as_there_are_slots() {
    let (mut bench, lane) = Bench::of(policy(4));
    let refused = bench.come(lane, Normal).grant();
    bench.pause(lane, refused, 5 * SECOND);
    for _ in 0..10_000 {
        bench.come(lane, Normal).id();
    }
    let asked = bench.now + 5 * SECOND;
    let mut woken_at = Vec::new();
    while woken_at.len() < 4 {
        bench.now = bench.pool.poll_timeout().expect("more will be woken");
        bench.tick();
        woken_at.extend(bench.effects.wakes.iter().map(|_| bench.now));
    }
    assert!(woken_at.iter().all(|&at| at >= asked && at <= asked + SECOND), "{woken_at:?}");
    assert!(woken_at.is_sorted_by(|a, b| a < b), "{woken_at:?}");
    bench.now = bench.pool.poll_timeout().expect("the leases end");
    assert!(bench.now >= woken_at[0] + SECOND, "nobody else may go");
}
