use proptest::prelude::*;

use super::*;

const RATIO: RetryPolicy = RetryPolicy::Ratio { ratio: 0.1, per_second: 0.0, window: Duration::from_secs(10) };
const GRPC: RetryPolicy = RetryPolicy::Grpc { max_tokens: 10, token_ratio: 0.1 };
const SRE: RetryPolicy = RetryPolicy::Sre { k: 2.0, window: Duration::from_secs(120) };

use Attempt::{First, Retry};

fn at(millis: u64) -> Time {
    Time::from_epoch(Duration::from_millis(millis))
}

fn send(budget: &mut Retries, attempt: Attempt, now: Time) -> bool {
    let is_in = budget.admit(attempt, 0.5, now);
    if is_in {
        budget.on_sent(attempt, now);
    }
    is_in
}

/// How many of `tries` retries are let in.
fn retries(budget: &mut Retries, tries: u32, now: Time) -> usize {
    (0..tries).filter(|_| send(budget, Retry, now)).count()
}

#[test]
fn retries_are_a_tenth_of_first_attempts_and_the_window_moves_on() {
    let mut budget = Retries::new(Some(RATIO));
    assert_eq!(retries(&mut budget, 5, at(0)), 0);
    (0..50).for_each(|_| assert!(send(&mut budget, First, at(0))));
    assert_eq!(retries(&mut budget, 100, at(500)), 5);
    assert_eq!(retries(&mut budget, 100, at(9_999)), 0);
    (0..20).for_each(|_| assert!(send(&mut budget, First, at(10_000))));
    assert_eq!(retries(&mut budget, 100, at(10_000)), 2);
}

#[test]
fn a_few_retries_a_second_need_no_first_attempts() {
    let mut budget =
        Retries::new(Some(RetryPolicy::Ratio { ratio: 0.1, per_second: 3.0, window: Duration::from_secs(10) }));
    assert_eq!(retries(&mut budget, 100, at(0)), 30);
    (0..100).for_each(|_| assert!(send(&mut budget, First, at(1_000))));
    assert_eq!(retries(&mut budget, 100, at(1_000)), 10);
}

#[test]
fn retries_that_wait_do_not_pass_the_bound_together_and_those_never_sent_cost_nothing() {
    let mut budget = Retries::new(Some(RATIO));
    (0..30).for_each(|_| assert!(send(&mut budget, First, at(0))));
    let waiting = (0..100).filter(|_| budget.admit(Retry, 0.0, at(0))).count();
    assert_eq!(waiting, 3);
    budget.on_dropped(Retry);
    assert!(budget.admit(Retry, 0.0, at(0)) && !budget.admit(Retry, 0.0, at(0)));
    (0..3).for_each(|_| budget.on_dropped(Retry));
    assert_eq!((budget.waiting, retries(&mut budget, 100, at(0))), (0, 3));
}

#[test]
fn first_attempts_that_were_never_sent_earn_nothing() {
    let mut budget = Retries::new(Some(RATIO));
    for _ in 0..100 {
        assert!(budget.admit(First, 0.0, at(0)));
        budget.on_dropped(First);
    }
    assert_eq!(retries(&mut budget, 10, at(0)), 0);
}

#[test]
fn grpc_stops_at_half_of_its_tokens_and_ten_successes_pay_for_a_failure() {
    let mut budget = Retries::new(Some(GRPC));
    let passes_after = |budget: &mut Retries, count: u32, outcome| {
        (0..count).for_each(|_| budget.on_end(outcome, at(0)));
        send(budget, Retry, at(0))
    };
    assert!(passes_after(&mut budget, 4, Outcome::Transport));
    assert!(!passes_after(&mut budget, 1, Outcome::Overload));
    assert!(passes_after(&mut budget, 1, Outcome::Success), "more than half again, by a tenth");
    assert!(!passes_after(&mut budget, 1, Outcome::Stalled));
    assert!(!passes_after(&mut budget, 9, Outcome::Success));
    assert!(passes_after(&mut budget, 1, Outcome::Success));

    assert!(!passes_after(&mut budget, 1_000, Outcome::Unavailable));
    assert!(!passes_after(&mut budget, 50, Outcome::Success), "no deeper than empty");
    assert!(passes_after(&mut budget, 1_000, Outcome::Success));
    assert!(!passes_after(&mut budget, 5, Outcome::Unavailable), "no fuller than full");
}

#[test]
fn sre_refuses_by_the_formula_of_the_book() {
    let mut budget = Retries::new(Some(SRE));
    for n in 0..100 {
        budget.on_end(if n < 25 { Outcome::Success } else { Outcome::Overload }, at(0));
    }
    let refused = (100.0 - 2.0 * 25.0) / 101.0;
    assert!(!budget.admit(Retry, refused - 1e-9, at(0)));
    assert!(budget.admit(Retry, refused, at(0)));
    assert!(budget.admit(First, 0.0, at(0)));
    assert!(budget.admit(Retry, 0.0, at(121_000)), "forgotten");
}

#[test]
fn sre_refuses_nothing_while_half_of_the_calls_are_accepted() {
    let mut budget = Retries::new(Some(SRE));
    for n in 0..1_000 {
        budget.on_end(if n % 2 == 0 { Outcome::Success } else { Outcome::ServerError }, at(n));
    }
    assert_eq!(retries(&mut budget, 50, at(1_000)), 50);
}

#[test]
fn what_says_nothing_about_the_upstream_feeds_no_budget() {
    for policy in [RATIO, GRPC, SRE] {
        let mut budget = Retries::new(Some(policy));
        let before = format!("{budget:?}");
        for outcome in [Outcome::Refused, Outcome::ClientError, Outcome::Quota, Outcome::Cancelled] {
            (0..100).for_each(|_| budget.on_end(outcome, at(0)));
        }
        assert_eq!(format!("{budget:?}"), before);
    }
}

#[test]
fn without_a_policy_every_retry_passes() {
    let mut budget = Retries::new(None);
    (0..100).for_each(|_| budget.on_end(Outcome::Transport, at(0)));
    assert_eq!(retries(&mut budget, 100, at(0)), 100);
}

#[test]
fn the_same_policy_keeps_the_account_and_another_one_begins_anew() {
    let mut budget = Retries::new(Some(GRPC));
    (0..5).for_each(|_| budget.on_end(Outcome::Transport, at(0)));
    budget.set_policy(Some(GRPC));
    assert!(!send(&mut budget, Retry, at(0)));
    budget.set_policy(Some(RetryPolicy::Grpc { max_tokens: 12, token_ratio: 0.1 }));
    assert!(send(&mut budget, Retry, at(0)));
}

fn policies() -> impl Strategy<Value = Option<RetryPolicy>> {
    let ratio = (0.0_f64..1.0, 0.0_f64..2.0, 1_u64..20).prop_map(|(ratio, per_second, secs)| RetryPolicy::Ratio {
        ratio,
        per_second,
        window: Duration::from_secs(secs),
    });
    let grpc =
        (1_u32..30, 0.001_f64..3.0).prop_map(|(max_tokens, token_ratio)| RetryPolicy::Grpc { max_tokens, token_ratio });
    let sre =
        (1.0_f64..4.0, 1_u64..200).prop_map(|(k, secs)| RetryPolicy::Sre { k, window: Duration::from_secs(secs) });
    prop_oneof![4 => ratio.prop_map(Some), 2 => grpc.prop_map(Some), 2 => sre.prop_map(Some), 1 => Just(None)]
}

#[derive(Clone, Copy, Debug)]
enum Op {
    Wait(u64),
    Arrive(Attempt, f64),
    Send(usize),
    Drop(usize),
    End(Outcome),
    Reload(usize),
}

fn ops() -> impl Strategy<Value = Op> {
    prop_oneof![
        3 => (1_u64..3_000).prop_map(Op::Wait),
        4 => Just(Op::Arrive(First, 0.0)),
        4 => (0.0_f64..1.0).prop_map(|luck| Op::Arrive(Retry, luck)),
        6 => any::<usize>().prop_map(Op::Send),
        2 => any::<usize>().prop_map(Op::Drop),
        4 => prop::sample::select(Outcome::ALL.to_vec()).prop_map(Op::End),
        1 => (0_usize..20).prop_map(Op::Reload),
    ]
}

proptest! {
    // The formula of each policy, from lists of everything that ever happened.
    #[test]
    fn a_retry_passes_exactly_when_the_formula_says_so(
        policies in prop::collection::vec(policies(), 1..3), ops in prop::collection::vec(ops(), 1..300),
    ) {
        let mut policy = policies[0];
        let mut budget = Retries::new(policy);
        let mut now = 0_u64;
        let mut waiting: Vec<Attempt> = Vec::new();
        let mut sent: Vec<(u64, Attempt)> = Vec::new();
        let mut ended: Vec<(u64, bool)> = Vec::new();
        for op in ops {
            match op {
                Op::Wait(millis) => now += millis,
                Op::Arrive(attempt, luck) => {
                    let retrying = waiting.iter().filter(|&&it| it == Retry).count();
                    let is_due = attempt == First || passes(policy, &sent, &ended, retrying, luck, now);
                    prop_assert_eq!(budget.admit(attempt, luck, at(now)), is_due);
                    waiting.extend(is_due.then_some(attempt));
                }
                Op::Send(n) | Op::Drop(n) if waiting.is_empty() => { let _ = n; }
                Op::Send(n) => {
                    let attempt = waiting.swap_remove(n % waiting.len());
                    budget.on_sent(attempt, at(now));
                    sent.push((now, attempt));
                }
                Op::Drop(n) => budget.on_dropped(waiting.swap_remove(n % waiting.len())),
                Op::End(outcome) => {
                    budget.on_end(outcome, at(now));
                    let is_counted = !matches!(outcome.kind(), OutcomeKind::Neutral | OutcomeKind::Cancelled);
                    ended.extend(is_counted.then_some((now, outcome == Outcome::Success)));
                }
                Op::Reload(n) => if let Some(&other) = policies.get(n) {
                    if other != policy {
                        (sent, ended, policy) = (Vec::new(), Vec::new(), other);
                    }
                    budget.set_policy(other);
                }
            }
        }
        waiting.into_iter().for_each(|attempt| budget.on_dropped(attempt));
        prop_assert_eq!(budget.waiting, 0);
    }
}

fn passes(
    policy: Option<RetryPolicy>,
    sent: &[(u64, Attempt)],
    ended: &[(u64, bool)],
    waiting: usize,
    luck: f64,
    now: u64,
) -> bool {
    // A tenth of a window of whole seconds is whole milliseconds.
    let is_recent = |moment: u64, window: Duration| {
        let slice = u64::try_from(window.as_millis()).unwrap_or(u64::MAX) / 10;
        moment / slice + 10 > now / slice
    };
    match policy {
        None => true,
        Some(RetryPolicy::Ratio { ratio, per_second, window }) => {
            let count = |of| sent.iter().filter(|&&(at, it)| it == of && is_recent(at, window)).count() as f64;
            count(Retry) + waiting as f64 + 1.0 <= count(First) * ratio + per_second * window.as_secs_f64()
        }
        Some(RetryPolicy::Grpc { max_tokens, token_ratio }) => {
            let (max, earns) = (f64::from(max_tokens), (token_ratio * 1_000.0).round() / 1_000.0);
            let tokens =
                ended.iter().fold(
                    max,
                    |tokens, &(_, is_good)| {
                        if is_good { (tokens + earns).min(max) } else { (tokens - 1.0).max(0.0) }
                    },
                );
            tokens > max / 2.0 + 1e-9
        }
        Some(RetryPolicy::Sre { k, window }) => {
            let recent = || ended.iter().filter(|&&(at, _)| is_recent(at, window));
            let (requests, accepts) =
                (recent().count() as f64, recent().filter(|&&(_, is_good)| is_good).count() as f64);
            luck >= ((requests - k * accepts) / (requests + 1.0)).max(0.0)
        }
    }
}
