//! Budgets per minute beside slots.

use proptest::prelude::*;

use super::*;
use crate::engine::priority::Priority::{Default as Normal, Interactive};
use crate::engine::quota::{FollowHeaders, QuotaPolicy, Remaining, Reported, Tokens};

/// A lane with so many slots and tokens per minute.
fn charged(slots: u32, tokens_per_minute: u64) -> (Bench, LaneId) {
    let (mut bench, lane) = Bench::of(policy(slots));
    bench.pool.set_lane_quota(lane, Some(tokens(tokens_per_minute)), bench.now);
    (bench, lane)
}

fn tokens(per_minute: u64) -> QuotaPolicy {
    QuotaPolicy {
        per_minute: [None, Some(per_minute), None, None],
        burst: 60 * SECOND,
        follow_headers: FollowHeaders::On,
    }
}

fn asking(input: u32) -> Asked {
    Asked { tokens: Tokens { input, output: 0 }, ..Asked::default() }
}

impl Bench {
    fn come_with(&mut self, lane: LaneId, class: Priority, asked: Asked) -> Came {
        let request = Request { asked, ..Request::of(class) };
        self.step(|pool, now, effects| match pool.try_acquire(lane, request, now, effects) {
            Ok(grant) => Came::Sent(grant),
            Err(blocked @ Blocked::TooLarge(..)) => Came::Blocked(blocked),
            Err(_) => {
                let expiry = Expiry::QueueTimeout;
                let ask = Ask { class, tenant: None, arrived_at: now, expires_at: now + 1_000 * SECOND, expiry };
                Came::Queued(pool.enqueue(lane, ask, asked, Waker::noop().clone(), now).expect("a place").id)
            }
        })
    }

    fn end_with(&mut self, lane: LaneId, grant: Grant, outcome: Outcome, usage: Reported) {
        let first_byte_at = if outcome == Outcome::Success { self.now } else { Time::ZERO };
        let ending = Ending { reported: usage, first_byte_at, ..Ending::from(Verdict::new(outcome)) };
        self.step(|pool, now, effects| pool.settle(lane, &grant, ending, now, effects));
    }

    fn left(&mut self, lane: LaneId) -> f64 {
        let view = self.step(|pool, now, effects| pool.view(lane, now, effects));
        view.quota.expect("it has one").left[1].expect("in tokens")
    }

    /// Of the lane and of its pool, by dimension.
    fn left_of_both(&mut self, lane: LaneId) -> [[Option<f64>; 4]; 2] {
        let of_lane = self.step(|pool, now, effects| pool.view(lane, now, effects).quota);
        let of_pool = self.step(|pool, now, effects| pool.own_view(now, effects).quota);
        [of_lane, of_pool].map(|quota| quota.expect("both have one").left)
    }

    /// Until the engine next wants to be called.
    fn wait_for_it(&mut self) {
        self.now = self.pool.poll_timeout().expect("something is due");
        self.tick();
    }
}

const USED: Reported = Reported { input: Some(100), output: Some(0), output_seen: None };

#[test]
fn a_call_waits_for_tokens_though_slots_are_free_and_goes_as_soon_as_there_are_enough() {
    let (mut bench, lane) = charged(8, 6_000);
    bench.come_with(lane, Normal, asking(6_000)).grant();
    let waiting = bench.come_with(lane, Normal, asking(500)).id();
    let started = bench.now;
    bench.wait_for_it();
    assert!(bench.is_granted(lane, waiting));
    let waited = bench.now.since(started);
    assert!((5 * SECOND..=5 * SECOND + SECOND / 1_000).contains(&waited), "{waited:?}");
}

// T5.
#[test]
fn a_refused_call_gets_back_no_more_than_the_provider_says_there_is() {
    let (mut bench, lane) = charged(8, 60_000);
    let grant = bench.come_with(lane, Normal, asking(10_000)).grant();
    let waiting = bench.come_with(lane, Normal, asking(51_000)).id();
    let remaining =
        Some(Box::new(Remaining { said_at: bench.now, left: [None, Some(5_000), None, None], of: [None; 4] }));
    let ending = Ending { remaining, ..Ending::from(Verdict::new(Outcome::ClientError)) };
    bench.step(|pool, now, effects| pool.settle(lane, &grant, ending, now, effects));
    assert_eq!(bench.left(lane), 5_000.0);
    let said_at = bench.now;
    // Once for the moment at which it would have fitted without that.
    bench.wait_for_it();
    assert_eq!(bench.poll(lane, waiting), Progress::Waiting);
    bench.wait_for_it();
    assert!(bench.is_granted(lane, waiting));
    assert_eq!(bench.now.since(said_at).as_secs(), 46);
}

// T6.
#[test]
fn a_large_call_at_the_head_is_not_overtaken_and_its_going_away_lets_the_next_go_at_once() {
    let (mut bench, lane) = charged(8, 6_000);
    bench.come_with(lane, Normal, asking(5_900)).grant();
    let large = bench.come_with(lane, Normal, asking(6_000)).id();
    let small = bench.come_with(lane, Normal, asking(50)).id();
    assert_eq!(bench.poll(lane, small), Progress::Waiting);
    assert!(matches!(bench.come_with(lane, Normal, asking(1)), Came::Queued(_)), "newcomers are behind it too");
    assert!(bench.come_with(lane, Interactive, asking(1)).is_sent(), "but for those of a higher class");
    assert!(bench.step(|pool, _, effects| pool.abandon(lane, large, None, effects)).is_none(), "others may go then");
    bench.cancel(lane, large);
    assert!(bench.is_granted(lane, small));
}

#[test]
fn the_head_goes_when_its_time_comes_whoever_else_waits() {
    let (mut bench, lane) = charged(8, 6_000);
    bench.come_with(lane, Normal, asking(6_000)).grant();
    let large = bench.come_with(lane, Normal, asking(6_000)).id();
    let small: Vec<WaiterId> = (0..20).map(|_| bench.come_with(lane, Normal, asking(100)).id()).collect();
    bench.wait(59 * SECOND);
    bench.tick();
    assert_eq!(bench.poll(lane, large), Progress::Waiting);
    bench.wait_for_it();
    assert!(bench.is_granted(lane, large));
    assert!(small.into_iter().all(|id| bench.poll(lane, id) == Progress::Waiting));
}

// Case 99.
#[test]
fn what_can_never_fit_is_refused_at_once_also_while_all_slots_are_taken() {
    let (mut bench, lane) = charged(1, 1_000);
    let refused = Came::Blocked(Blocked::TooLarge(crate::engine::quota::Dimension::Tokens, 1_000));
    assert_eq!(bench.come_with(lane, Normal, asking(1_001)), refused);
    let busy = bench.come_with(lane, Normal, asking(1_000)).grant();
    assert_eq!(bench.come_with(lane, Normal, asking(5_000)), refused);
    bench.succeed(lane, busy);
}

// Case 100.
#[test]
fn a_call_that_was_not_sent_was_not_charged() {
    let (mut bench, lane) = charged(1, 1_000);
    let running = bench.come_with(lane, Normal, asking(100)).grant();
    let before = bench.left(lane);
    let cancelled = bench.come_with(lane, Normal, asking(300)).id();
    let expired = bench.come_with(lane, Normal, asking(300)).id();
    let asleep = bench.come_with(lane, Normal, asking(300)).id();
    bench.cancel(lane, cancelled);
    assert_eq!(bench.left(lane), before);
    bench.cancel(lane, expired);
    bench.end_with(lane, running, Outcome::Success, USED);
    assert_eq!(bench.left(lane), before - 300.0, "the sleeper is charged with its slot");
    bench.cancel(lane, asleep);
    assert_eq!((bench.left(lane), bench.in_use(lane)), (before, 0));
}

#[test]
fn one_that_sleeps_through_its_grant_gives_its_tokens_back_and_is_charged_again() {
    let (mut bench, lane) = charged(1, 60_000);
    let running = bench.come_with(lane, Normal, asking(0)).grant();
    let sleeper = bench.come_with(lane, Normal, asking(30_000)).id();
    bench.succeed(lane, running);
    assert_eq!(bench.left(lane), 30_000.0);
    bench.wait(SECOND);
    bench.tick();
    assert_eq!(bench.left(lane), 60_000.0);
    let grant = bench.collect(lane, sleeper);
    assert_eq!(bench.left(lane), 30_000.0);
    bench.end_with(lane, grant, Outcome::Success, Reported { input: Some(1_000), ..USED });
    assert_eq!(bench.left(lane), 59_000.0);
}

// Case 101, in the pool.
#[test]
fn a_refusal_gives_all_of_it_back_and_an_answer_what_it_did_not_use() {
    let (mut bench, lane) = charged(8, 60_000);
    let [connect, refused, answered] = [0; 3].map(|_| bench.come_with(lane, Normal, asking(10_000)).grant());
    assert_eq!(bench.left(lane), 30_000.0);
    bench.end_with(lane, connect, Outcome::Transport, Reported::default());
    bench.end_with(lane, refused, Outcome::ClientError, Reported::default());
    bench.end_with(lane, answered, Outcome::Success, USED);
    assert_eq!(bench.left(lane), 59_900.0);
    let spent = bench.step(|pool, now, effects| pool.view(lane, now, effects)).quota.unwrap().spent;
    assert_eq!((spent.admitted, spent.refunded), (30_000, 29_900));
}

// Case 101: a request that no provider has counted comes back, and one that it has does not.
#[test]
fn the_budget_of_the_pool_is_settled_like_that_of_the_lane_in_every_dimension() {
    let (mut bench, lane) = charged(8, 60_000);
    let both = QuotaPolicy { per_minute: [Some(10), Some(60_000), None, None], ..tokens(1) };
    bench.pool.set_lane_quota(lane, None, bench.now);
    bench.pool.set_lane_quota(lane, Some(both), bench.now);
    bench.pool.set_quota(Some(both), bench.now);
    let [connect, refused, answered] = [0; 3].map(|_| bench.come_with(lane, Normal, asking(10_000)).grant());
    assert_eq!(bench.left_of_both(lane), [[Some(7.0), Some(30_000.0), None, None]; 2]);
    bench.end_with(lane, connect, Outcome::Transport, Reported::default());
    bench.end_with(lane, refused, Outcome::ClientError, Reported::default());
    bench.end_with(lane, answered, Outcome::Success, USED);
    assert_eq!(bench.left_of_both(lane), [[Some(8.0), Some(59_900.0), None, None]; 2]);
}

#[test]
fn a_refusal_by_the_provider_slows_both_budgets_down_once_per_wave() {
    let (mut bench, lane) = charged(8, 60_000);
    bench.pool.set_quota(Some(tokens(60_000)), bench.now);
    let wave = [0; 3].map(|_| bench.come_with(lane, Normal, asking(20_000)).grant());
    bench.wait(SECOND);
    wave.into_iter().for_each(|grant| bench.end_with(lane, grant, Outcome::Overload, Reported::default()));
    bench.come_with(lane, Normal, asking(60_000)).grant();
    bench.wait(SECOND);
    for left in bench.left_of_both(lane) {
        let filled = left[1].expect("in tokens");
        assert!((900.0..910.0).contains(&filled), "a tenth off a thousand: {filled}");
    }
}

// A13: both levels in one decision.
#[test]
fn a_budget_of_the_pool_binds_all_its_lanes_and_its_first_caller_is_not_overtaken() {
    let mut bench = Bench::new(0);
    let [a, b] = [4; 2].map(|limit| bench.pool.add_lane(policy(limit), None));
    bench.pool.set_quota(Some(tokens(6_000)), bench.now);
    bench.come_with(a, Normal, asking(5_000)).grant();
    let large = bench.come_with(a, Normal, asking(3_000)).id();
    let small = bench.come_with(b, Normal, asking(100)).id();
    bench.wait_for_it();
    assert!(bench.is_granted(a, large));
    assert_eq!(bench.poll(b, small), Progress::Waiting);
    bench.wait_for_it();
    assert!(bench.is_granted(b, small));
}

#[test]
fn a_lane_without_tokens_does_not_hold_up_another_of_its_pool() {
    let mut bench = Bench::new(8);
    let [dry, other] = [4; 2].map(|limit| bench.pool.add_lane(policy(limit), None));
    bench.pool.set_lane_quota(dry, Some(tokens(1_000)), bench.now);
    bench.come_with(dry, Normal, asking(1_000)).grant();
    bench.come_with(dry, Normal, asking(900)).id();
    assert!(bench.come_with(other, Normal, asking(900)).is_sent());
}

#[test]
fn a_lane_whose_budget_is_in_use_is_not_forgotten() {
    let (mut bench, lane) = charged(8, 6_000);
    let grant = bench.come_with(lane, Normal, asking(600)).grant();
    bench.end_with(lane, grant, Outcome::Success, Reported { input: Some(600), ..USED });
    assert!(!bench.pool.remove_lane(lane, bench.now));
    assert!(bench.pool.remove_lane(lane, bench.now + 7 * SECOND));
}

// Without refunds, calls that ask for 4,000 and use 300 get a tenth of what the quota allows.
#[test]
fn refunds_are_worth_a_factor_of_ten() {
    let calls_in_five_minutes = |reports: bool| {
        let (mut bench, lane) = charged(1_000, 60_000);
        bench.come_with(lane, Normal, asking(60_000)).grant();
        let end = bench.now + 300 * SECOND;
        let mut calls = 0_u32;
        while bench.now < end {
            let grant = match bench.come_with(lane, Normal, asking(4_000)) {
                Came::Sent(grant) => grant,
                Came::Queued(id) => {
                    while !bench.pool.lane_mut(lane).queue.is_granted(id) {
                        bench.wait_for_it();
                    }
                    bench.collect(lane, id)
                }
                other => panic!("{other:?}"),
            };
            let usage = Reported { input: Some(300), ..USED };
            bench.end_with(lane, grant, Outcome::Success, if reports { usage } else { Reported::default() });
            calls += 1;
        }
        calls
    };
    let (with, without) = (calls_in_five_minutes(true), calls_in_five_minutes(false));
    assert!((900..=1_010).contains(&with), "{with}");
    assert!((70..=80).contains(&without), "{without}");
}

proptest! {
    // Invariant 8: a balance moves once per call, and whatever the order, nothing is made or lost.
    #[test]
    fn after_all_calls_a_budget_owes_exactly_what_was_reported(
        ops in prop::collection::vec((0_u8..6, 0_usize..8, 0_u32..2_000, 0_u64..3_000), 1..150),
    ) {
        let (mut bench, lane) = charged(3, 1);
        // Large, and far from full, so that no refill and no refund is cut off.
        let policy = QuotaPolicy { burst: 6_000 * SECOND, ..tokens(60_000) };
        bench.pool.set_lane_quota(lane, None, bench.now);
        bench.pool.set_lane_quota(lane, Some(policy), bench.now);
        let blocker = bench.come_with(lane, Normal, asking(5_000_000)).grant();
        let start = bench.now;
        let (mut waiting, mut running, mut used) = (Vec::new(), vec![(blocker, 0)], 0_u64);
        for (op, n, amount, later) in ops {
            match op {
                0..=2 => match bench.come_with(lane, Normal, asking(amount)) {
                    Came::Sent(grant) => running.push((grant, amount)),
                    Came::Queued(id) => waiting.push((id, amount)),
                    other => prop_assert!(false, "{other:?}"),
                },
                3 if !waiting.is_empty() => {
                    let (id, _) = waiting.swap_remove(n % waiting.len());
                    bench.cancel(lane, id);
                }
                4 if running.len() > 1 => {
                    let (grant, _) = running.swap_remove(1 + n % (running.len() - 1));
                    used += u64::from(amount);
                    bench.end_with(lane, grant, Outcome::Success, Reported { input: Some(amount), ..USED });
                }
                _ => {
                    bench.wait(Duration::from_millis(later));
                    bench.tick();
                }
            }
            let mut at = 0;
            while at < waiting.len() {
                match bench.poll(lane, waiting[at].0) {
                    Progress::Granted(grant) => running.push((grant, waiting.swap_remove(at).1)),
                    Progress::Waiting => at += 1,
                    other => prop_assert!(false, "{other:?}"),
                }
            }
        }
        for (id, _) in waiting {
            bench.cancel(lane, id);
        }
        let held: u64 = running.iter().map(|(_, charged)| u64::from(*charged)).sum::<u64>() + 5_000_000;
        let refilled = bench.now.since(start).as_secs_f64() * 1_000.0;
        let expected = 6_000_000.0 - (held + used) as f64 + refilled;
        prop_assert!((bench.left(lane) - expected).abs() < 1.0, "{} instead of {expected}", bench.left(lane));
        for (grant, _) in running {
            bench.end_with(lane, grant, Outcome::Refused, Reported::default());
        }
        prop_assert_eq!((bench.in_use(lane), bench.waiting(lane)), (0, 0));
    }
}
