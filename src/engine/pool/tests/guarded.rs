//! A breaker and a bound on retries beside slots.

use proptest::prelude::*;

use super::*;
use crate::engine::breaker::{BreakerPolicy, BreakerState};
use crate::engine::priority::Priority::Default as Normal;
use crate::engine::retry_budget::RetryPolicy;

/// Opens at five failures of ten, for 30 s, and is then tried with so many calls.
fn breaker(probes: u32) -> BreakerPolicy {
    BreakerPolicy {
        failure_rate: 0.5,
        slow: None,
        min_calls: 5,
        window: 60 * SECOND,
        open_for: 30 * SECOND,
        max_open_for: 300 * SECOND,
        probes,
        probe_timeout: 60 * SECOND,
    }
}

fn guarded(slots: u32, probes: u32) -> (Bench, LaneId) {
    let (mut bench, lane) = Bench::of(policy(slots));
    let now = bench.now;
    bench.step(|pool, _, effects| pool.set_breaker(lane, Some(breaker(probes)), now, effects));
    (bench, lane)
}

impl Bench {
    fn fail(&mut self, lane: LaneId, times: u32) {
        for _ in 0..times {
            let grant = self.come(lane, Normal).grant();
            self.settle(lane, grant, Outcome::Transport);
        }
    }

    fn state(&mut self, lane: LaneId) -> BreakerState {
        self.step(|pool, now, effects| pool.view(lane, now, effects)).breaker
    }

    fn retry(&mut self, lane: LaneId) -> Result<Grant, Blocked> {
        let asked = Asked { facts: Asked::default().facts.of_a_retry(), ..Asked::default() };
        let request = Request { asked, ..Request::of(Normal) };
        self.step(|pool, now, effects| pool.try_acquire(lane, request, now, effects))
    }

    /// Past the end of the pause, however much was added to it.
    fn outwait(&mut self) {
        self.wait(33 * SECOND);
        self.tick();
    }
}

#[test]
fn those_who_wait_and_those_who_come_are_refused_when_it_opens() {
    let (mut bench, lane) = guarded(1, 1);
    bench.fail(lane, 4);
    let fifth = bench.come(lane, Normal).grant();
    let waiting: Vec<WaiterId> = (0..3).map(|_| bench.come(lane, Normal).id()).collect();
    bench.settle(lane, fifth, Outcome::Stalled);
    assert_eq!(bench.reasons(), [Reason::BreakerOpen; 3]);
    for id in waiting {
        assert_eq!(bench.poll(lane, id), Progress::Gone);
    }
    let Err(Blocked::BreakerOpen(left)) = bench.try_now(lane, Normal) else { panic!("it is open") };
    assert!((30 * SECOND..=33 * SECOND).contains(&left), "{left:?}");
    assert_eq!((bench.in_use(lane), bench.waiting(lane), bench.state(lane)), (0, 0, BreakerState::Open));
}

// Case 123.
#[test]
fn half_open_lets_one_through_and_the_others_wait_for_what_it_finds() {
    let (mut bench, lane) = guarded(64, 1);
    bench.fail(lane, 5);
    bench.outwait();
    let probe = bench.come(lane, Normal).grant();
    let crowd: Vec<WaiterId> = (0..99).map(|_| bench.come(lane, Normal).id()).collect();
    assert_eq!((bench.in_use(lane), bench.waiting(lane)), (1, 99));
    bench.succeed(lane, probe);
    assert_eq!((bench.in_use(lane), bench.waiting(lane), bench.state(lane)), (64, 35, BreakerState::Closed));
    assert!(bench.is_granted(lane, crowd[0]));
}

// Case 121.
#[test]
fn a_probe_that_goes_away_gives_its_place_to_the_next_at_once() {
    let (mut bench, lane) = guarded(8, 1);
    bench.fail(lane, 5);
    bench.outwait();
    let dropped = bench.come(lane, Normal).grant();
    let next = bench.come(lane, Normal).id();
    bench.settle(lane, dropped, Outcome::Cancelled);
    assert!(bench.is_granted(lane, next));
}

#[test]
fn a_probe_that_is_granted_and_never_collected_gives_its_place_back() {
    let (mut bench, lane) = guarded(1, 1);
    bench.fail(lane, 4);
    let last = bench.come(lane, Normal).grant();
    bench.settle(lane, last, Outcome::Transport);
    bench.outwait();
    let probe = bench.come(lane, Normal).grant();
    let [sleeper, next] = [0; 2].map(|_| bench.come(lane, Normal).id());
    bench.settle(lane, probe, Outcome::ClientError);
    bench.wait(SECOND);
    bench.tick();
    assert!(bench.is_granted(lane, next), "the lease of the sleeper is over, and its place as a probe with it");
    assert_eq!(bench.poll(lane, sleeper), Progress::Waiting);
}

// Case 137.
#[test]
fn whoever_waits_for_an_overdue_probe_goes_when_its_time_is_over() {
    let (mut bench, lane) = guarded(8, 1);
    bench.fail(lane, 5);
    bench.outwait();
    bench.come(lane, Normal).grant();
    let waiting = bench.come(lane, Normal).id();
    bench.now = bench.pool.poll_timeout().expect("the probe will be overdue");
    bench.tick();
    assert!(bench.is_granted(lane, waiting));
}

#[test]
fn a_lane_whose_breaker_is_not_closed_is_not_forgotten() {
    let (mut bench, lane) = guarded(8, 1);
    bench.fail(lane, 5);
    bench.outwait();
    assert!(!bench.pool.remove_lane(lane, bench.now));
    assert!(bench.pool.remove_lane(lane, bench.now + 7_200 * SECOND));
}

#[test]
fn retries_beyond_their_part_are_refused_and_first_attempts_are_not() {
    let (mut bench, lane) = Bench::of(policy(1_000));
    let ratio = RetryPolicy::Ratio { ratio: 0.1, per_second: 0.0, window: 10 * SECOND };
    bench.pool.set_retry_budget(lane, Some(ratio));
    let first: Vec<Grant> = (0..100).map(|_| bench.come(lane, Normal).grant()).collect();
    let retries = (0..50).filter(|_| bench.retry(lane).is_ok()).count();
    assert_eq!(retries, 10);
    assert_eq!(bench.retry(lane), Err(Blocked::RetryBudget));
    assert!(bench.come(lane, Normal).is_sent());
    first.into_iter().for_each(|grant| bench.succeed(lane, grant));
}

#[test]
fn a_budget_for_retries_learns_from_how_calls_end() {
    let (mut bench, lane) = Bench::of(policy(10));
    bench.pool.set_retry_budget(lane, Some(RetryPolicy::Grpc { max_tokens: 4, token_ratio: 1.0 }));
    assert!(bench.retry(lane).is_ok());
    (0..2).for_each(|_| bench.fail(lane, 1));
    assert_eq!(bench.retry(lane), Err(Blocked::RetryBudget));
    let answered = bench.come(lane, Normal).grant();
    bench.succeed(lane, answered);
    assert!(bench.retry(lane).is_ok());
}

#[test]
fn a_retry_that_was_not_sent_costs_nothing() {
    let (mut bench, lane) = Bench::of(policy(10));
    let ratio = RetryPolicy::Ratio { ratio: 0.1, per_second: 0.0, window: 10 * SECOND };
    bench.pool.set_retry_budget(lane, Some(ratio));
    let running: Vec<Grant> = (0..10).map(|_| bench.come(lane, Normal).grant()).collect();
    for _ in 0..5 {
        assert_eq!(bench.retry(lane), Err(Blocked::Busy), "refused for want of a slot, and not of the budget");
    }
    running.into_iter().for_each(|grant| bench.succeed(lane, grant));
    assert!(bench.retry(lane).is_ok());
    assert_eq!(bench.retry(lane), Err(Blocked::RetryBudget));
}

proptest! {
    #[test]
    fn whatever_happens_no_more_probes_are_out_than_may_be_and_all_is_given_back(
        ops in prop::collection::vec((0_u8..7, 0_usize..8, 0_u64..20_000), 1..200),
    ) {
        let (mut bench, lane) = guarded(4, 2);
        bench.pool.set_retry_budget(lane, Some(RetryPolicy::Ratio { ratio: 0.5, per_second: 1.0, window: 10 * SECOND }));
        let (mut waiting, mut running): (Vec<WaiterId>, Vec<Grant>) = (Vec::new(), Vec::new());
        for (op, n, later) in ops {
            match op {
                0 | 1 => match bench.come(lane, Normal) {
                    Came::Sent(grant) => running.push(grant),
                    Came::Queued(id) => waiting.push(id),
                    Came::Blocked(_) | Came::Refused(_) => {}
                },
                2 => running.extend(bench.retry(lane).ok()),
                3 if !running.is_empty() => {
                    let outcome = Outcome::ALL[n % Outcome::ALL.len()];
                    let grant = running.swap_remove(n % running.len());
                    bench.settle(lane, grant, outcome);
                }
                4 if !waiting.is_empty() => {
                    bench.cancel(lane, waiting.swap_remove(n % waiting.len()));
                }
                5 => {
                    let mut at = 0;
                    while at < waiting.len() {
                        match bench.poll(lane, waiting[at]) {
                            Progress::Granted(grant) => {
                                running.push(grant);
                                waiting.swap_remove(at);
                            }
                            Progress::Waiting => at += 1,
                            Progress::Gone | Progress::PastDeadline => {
                                waiting.swap_remove(at);
                            }
                        }
                    }
                }
                _ => {
                    bench.wait(Duration::from_millis(later));
                    bench.tick();
                    prop_assert!(bench.pool.poll_timeout().is_none_or(|at| at > bench.now), "it would spin");
                }
            }
            prop_assert!(bench.in_use(lane) <= 4);
        }
        waiting.into_iter().for_each(|id| { bench.cancel(lane, id); });
        running.into_iter().for_each(|grant| bench.settle(lane, grant, Outcome::Cancelled));
        prop_assert_eq!((bench.in_use(lane), bench.waiting(lane)), (0, 0));
        // And it is never stuck: an hour later somebody is let in, and a success of two closes it.
        bench.wait(3_600 * SECOND);
        for _ in 0..2 {
            let grant = bench.come(lane, Normal).grant();
            bench.succeed(lane, grant);
        }
        prop_assert_eq!(bench.state(lane), BreakerState::Closed);
    }
}

/// A lane that knows its calls: 40 of them, of a second each.
fn known(slots: u32) -> (Bench, LaneId) {
    let (mut bench, lane) = guarded(slots, 1);
    bench.foresee(lane, 1);
    for _ in 0..40 {
        let grant = bench.come(lane, Normal).grant();
        bench.wait(SECOND);
        bench.succeed(lane, grant);
    }
    (bench, lane)
}

impl Bench {
    fn break_down(&mut self, lane: LaneId) {
        while self.state(lane) == BreakerState::Closed {
            self.fail(lane, 1);
        }
    }

    /// The wait that is foreseen of a call with so many seconds, if they are too few.
    fn foresee(&mut self, lane: LaneId, seconds: u32) -> Option<Duration> {
        let request = Request { deadline: self.now + seconds * SECOND, ..Request::of(Normal) };
        let foreseen = self.step(|pool, now, _| pool.foresee_miss(lane, request, now, now));
        foreseen.map(|foreseen| foreseen.wait)
    }
}

#[test]
fn a_wait_that_is_foreseen_includes_the_time_until_the_breaker_is_half_open() {
    let (mut bench, lane) = known(8);
    assert_eq!(bench.foresee(lane, 2), None, "closed, a slot is free");
    bench.break_down(lane);
    let Err(Blocked::BreakerOpen(left)) = bench.try_now(lane, Normal) else { panic!("it is open") };
    assert_eq!(bench.foresee(lane, 20), Some(left));
    assert_eq!(bench.foresee(lane, 40), None);
    bench.wait(10 * SECOND);
    assert_eq!(bench.foresee(lane, 20), Some(left - 10 * SECOND));
}

#[test]
fn who_waits_for_a_probe_waits_as_long_as_calls_take_and_perhaps_no_time_at_all() {
    let (mut bench, lane) = known(8);
    bench.break_down(lane);
    bench.outwait();
    bench.come(lane, Normal).grant();
    let request = Request { deadline: bench.now, ..Request::of(Normal) };
    let foreseen = bench.step(|pool, now, _| pool.foresee_miss(lane, request, now, now));
    assert_eq!(foreseen.map(|foreseen| foreseen.wait), Some(SECOND));
    assert_eq!(bench.foresee(lane, 2), None, "nobody is refused for what may be over at any moment");
}
