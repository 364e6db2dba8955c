//! A waiter rises one class per step since its first arrival, and takes its place there by arrival.

use super::*;
use Priority::{Bulk, Default as Normal, Interactive};

#[test]
fn a_waiter_rises_exactly_at_its_step() {
    let mut bench = Bench::new();
    let bulk = bench.come(Bulk);
    bench.wait(59);
    let [first, second] = [0; 2].map(|_| bench.come(Normal));
    assert_eq!(bench.serve(), Some(first));
    bench.wait(1);
    assert_eq!(bench.serve_all(), [bulk, second]);
}

#[test]
fn a_risen_waiter_takes_its_place_by_arrival() {
    let mut bench = Bench::new();
    let early = bench.come(Normal);
    bench.wait(1);
    let bulk = bench.come(Bulk);
    bench.wait(1);
    let late = bench.come(Normal);
    bench.wait(59);
    assert_eq!(bench.serve_all(), [early, bulk, late]);
}

#[test]
fn after_two_steps_a_bulk_call_stands_among_the_interactive() {
    let mut bench = Bench::new();
    let bulk = bench.come(Bulk);
    bench.wait(119);
    let before = bench.come(Interactive);
    assert_eq!(bench.serve(), Some(before));
    bench.wait(1);
    let after = bench.come(Interactive);
    assert_eq!(bench.serve_all(), [bulk, after]);
}

#[test]
fn without_aging_nobody_rises() {
    let mut bench = Bench::new();
    bench.queue.set_aging_step(None);
    let bulk = bench.come(Bulk);
    bench.wait(100_000);
    let normal = bench.come(Normal);
    assert_eq!(bench.serve_all(), [normal, bulk]);
}

#[test]
fn a_caller_that_comes_back_has_the_age_and_place_of_its_first_arrival() {
    let mut bench = Bench::new();
    let normal = bench.come(Normal);
    bench.wait(10);
    let same_class = bench.come_back(Normal, 20);
    let risen = bench.come_back(Bulk, 70);
    let not_risen = bench.come_back(Bulk, 50);
    let younger = bench.come_back(Normal, 5);
    assert_eq!(bench.serve_all(), [risen, same_class, normal, younger, not_risen]);
}

#[test]
fn a_caller_that_came_back_rises_by_its_first_arrival() {
    let mut bench = Bench::new();
    let back = bench.come_back(Bulk, 100);
    bench.wait(19);
    let first = bench.come(Interactive);
    assert_eq!(bench.serve(), Some(first));
    bench.wait(1);
    let second = bench.come(Interactive);
    assert_eq!(bench.serve_all(), [back, second]);
}

#[test]
fn those_behind_one_who_left_rise_on_time() {
    for leaver in 0..3 {
        for leaves_after in [0, 30, 60, 90, 120] {
            let mut bench = Bench::new();
            let mut bulk = vec![bench.come(Bulk), bench.come(Bulk), bench.come(Bulk)];
            bench.wait(leaves_after);
            bench.queue.age(bench.now);
            bench.cancel(bulk.remove(leaver));
            let fourth = bench.come(Bulk);
            bench.wait(120);
            let interactive = bench.come(Interactive);
            assert_eq!(bench.serve_all(), [bulk[0], bulk[1], fourth, interactive], "{leaver} after {leaves_after} s");
        }
    }
}

#[test]
fn those_behind_one_who_was_granted_rise_on_time() {
    for granted_after in [0, 60, 120] {
        let mut bench = Bench::new();
        let bulk = [0; 3].map(|_| bench.come(Bulk));
        bench.wait(granted_after);
        assert_eq!(bench.grant(), Some(bulk[0]));
        bench.wait(120);
        let interactive = bench.come(Interactive);
        assert_eq!(bench.serve_all(), [bulk[1], bulk[2], interactive]);
        bench.collect(bulk[0]);
        assert!(bench.queue.is_empty());
    }
}

#[test]
fn newcomers_age_after_all_others_have() {
    let mut bench = Bench::new();
    bench.come(Bulk);
    bench.wait(200);
    bench.queue.age(bench.now);
    let late = bench.come(Bulk);
    assert!(bench.serve().is_some());
    bench.wait(60);
    let normal = bench.come(Normal);
    assert_eq!(bench.serve_all(), [late, normal]);
}

#[test]
fn a_changed_step_counts_for_those_who_wait() {
    let mut bench = Bench::new();
    let bulk = bench.come(Bulk);
    let back = bench.come_back(Bulk, 5);
    bench.wait(20);
    bench.queue.set_aging_step(Some(Duration::from_secs(10)));
    let interactive = bench.come(Interactive);
    assert_eq!(bench.serve_all(), [back, bulk, interactive]);
}

#[test]
fn aging_switched_off_and_on_counts_from_the_first_arrival() {
    let mut bench = Bench::new();
    let back = bench.come_back(Bulk, 100);
    bench.queue.set_aging_step(None);
    bench.queue.set_aging_step(Some(STEP));
    bench.wait(20);
    let interactive = bench.come(Interactive);
    assert_eq!(bench.serve_all(), [back, interactive]);
}

#[test]
fn callers_that_came_back_while_aging_was_off_age_once_it_is_on() {
    let mut bench = Bench::new();
    bench.queue.set_aging_step(None);
    let back = bench.come_back(Bulk, 110);
    bench.queue.set_aging_step(Some(STEP));
    bench.wait(10);
    let interactive = bench.come(Interactive);
    assert_eq!(bench.serve_all(), [back, interactive]);
}
