//! Budgets per minute without HTTP: calls say what they may use, and are settled with what they did.

use tower_inflight::{
    Admission, Call, Dimension, LaneOverride, LimitConfig, Outcome, PoolLimit, Quota, QuotaSnapshot, Usage, WhenShort,
};

use super::*;

/// Tokens per minute, nothing else.
fn tokens(per_minute: u64) -> Quota {
    Quota { tokens_per_minute: Some(per_minute), max_output: 100, ..Quota::default() }
}

fn metered(quota: Quota) -> Limiter {
    build(|limiter| limiter.max_inflight(8).quota(quota))
}

fn call(input: u32, max_output: u32) -> Call {
    Call::new(Priority::Default).with_tokens(input, max_output)
}

fn send(limiter: &Limiter, input: u32, max_output: u32) -> Permit {
    limiter.try_acquire(&lane(), call(input, max_output)).expect("slots and tokens are there")
}

fn budget(limiter: &Limiter) -> QuotaSnapshot {
    figures(limiter).quota.expect("the lane has one")
}

fn left(limiter: &Limiter) -> i64 {
    budget(limiter).tokens_left.expect("limited in tokens")
}

#[tokio::test(start_paused = true)]
async fn a_call_is_charged_when_it_is_granted_and_settled_with_what_it_used() {
    let limiter = metered(tokens(10_000));
    let permit = send(&limiter, 3_000, 1_000);
    assert_eq!(left(&limiter), 6_000);
    permit.settle_with_usage(Outcome::Success, Usage::new(2_900, 400));
    let budget = budget(&limiter);
    assert_eq!(budget.tokens_left, Some(6_700));
    assert_eq!((budget.tokens_admitted, budget.tokens_refunded, budget.tokens_beyond), (4_000, 700, 0));
}

#[tokio::test(start_paused = true)]
async fn every_dimension_that_is_limited_is_charged_and_shown_and_no_other() {
    let quota = Quota {
        requests_per_minute: Some(60),
        input_tokens_per_minute: Some(5_000),
        output_tokens_per_minute: Some(2_000),
        ..tokens(10_000)
    };
    let limiter = metered(quota.clone());
    send(&limiter, 3_000, 1_000).settle_with_usage(Outcome::Success, Usage::new(3_000, 400));
    let budget = budget(&limiter);
    assert_eq!((budget.requests_left, budget.tokens_left), (Some(59), Some(6_600)));
    assert_eq!((budget.input_tokens_left, budget.output_tokens_left), (Some(2_000), Some(1_600)));

    let limiter = metered(tokens(10_000));
    drop(send(&limiter, 1, 1));
    let json = serde_json::to_value(limiter.snapshot()).unwrap();
    let keys: Vec<_> = json["lanes"][0]["quota"].as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(keys, ["size_percent", "tokens_admitted", "tokens_beyond", "tokens_left", "tokens_refunded"]);
    let json = serde_json::to_value(limiter_without_quota().snapshot()).unwrap();
    assert!(json["lanes"][0].get("quota").is_none());
}

fn limiter_without_quota() -> Limiter {
    let limiter = limiter(1);
    drop(hold(&limiter));
    limiter
}

// Case 102.
#[tokio::test(start_paused = true)]
async fn use_beyond_the_charge_is_repaid_before_anybody_else_goes() {
    let limiter = metered(tokens(6_000));
    send(&limiter, 100, 0).settle_with_usage(Outcome::Success, Usage::new(100, 6_500));
    let budget = budget(&limiter);
    assert_eq!((budget.tokens_left, budget.tokens_beyond), (Some(-600), 6_500));
    let start = now();
    let permit = limiter.acquire(&lane(), call(100, 0)).await.expect("in time");
    assert_eq!((now() - start).as_secs(), 7);
    permit.settle(Outcome::Success);
}

#[tokio::test(start_paused = true)]
async fn a_refund_never_fills_a_budget_above_what_it_holds() {
    let limiter = metered(tokens(6_000));
    let permit = send(&limiter, 6_000, 0);
    tokio::time::sleep(secs(30)).await;
    permit.settle_with_usage(Outcome::Success, Usage::new(1_000, 0));
    assert_eq!(left(&limiter), 6_000);
}

// Case 101: without HTTP, nobody saw anything of the answer.
#[tokio::test(start_paused = true)]
async fn what_comes_back_depends_on_the_ending() {
    for (outcome, has_begun, kept) in [
        (Outcome::Transport, false, 0),
        (Outcome::Overload, false, 0),
        (Outcome::ClientError, false, 0),
        (Outcome::Cancelled, false, 0),
        (Outcome::Cancelled, true, 500),
        (Outcome::Success, true, 500),
        (Outcome::Transport, true, 500),
    ] {
        let limiter = metered(tokens(6_000));
        let mut permit = send(&limiter, 300, 200);
        if has_begun {
            permit.note_first_byte();
        }
        permit.settle(outcome);
        assert_eq!(left(&limiter), 6_000 - kept, "{outcome:?}, begun: {has_begun}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_permit_that_is_dropped_before_its_call_was_answered_gives_its_tokens_back() {
    let limiter = metered(tokens(6_000));
    drop(send(&limiter, 300, 200));
    assert_eq!(left(&limiter), 6_000);
}

#[tokio::test(start_paused = true)]
async fn waiters_go_one_by_one_as_the_budget_fills() {
    let limiter = metered(tokens(6_000));
    send(&limiter, 6_000, 0).settle_with_usage(Outcome::Success, Usage::new(6_000, 0));
    let start = now();
    let mut waits = Vec::new();
    for _ in 0..3 {
        waits.push(queue(&limiter, call(500, 0)).await);
    }
    for (n, wait) in (1..).zip(waits) {
        let permit = wait.await.expect("in time");
        assert_eq!((now() - start).as_secs(), 5 * n);
        permit.settle_with_usage(Outcome::Success, Usage::new(500, 0));
    }
    assert_nothing_is_left(&limiter);
}

#[tokio::test(start_paused = true)]
async fn a_refund_lets_the_next_waiter_go_at_once() {
    let limiter = metered(tokens(6_000));
    let running = send(&limiter, 6_000, 0);
    let mut waiter = queue(&limiter, call(4_000, 0)).await;
    running.settle_with_usage(Outcome::Success, Usage::new(300, 0));
    let start = now();
    let permit = (&mut waiter).await.expect("there are tokens");
    assert_eq!(now(), start);
    permit.settle(Outcome::Success);
}

// T6, case 32.
#[tokio::test(start_paused = true)]
async fn waiters_that_gave_up_spend_nothing_and_the_next_goes_when_it_fits() {
    let limiter = metered(Quota { requests_per_minute: Some(60), burst: secs(1), ..Quota::default() });
    send(&limiter, 0, 0).settle(Outcome::Success);
    let mut dead = Vec::new();
    for _ in 0..10 {
        dead.push(queue(&limiter, call(0, 0)).await);
    }
    let live = queue(&limiter, call(0, 0)).await;
    drop(dead);
    let start = now();
    live.await.expect("in time").settle(Outcome::Success);
    assert!(now() - start <= millis(1_001), "{:?}", now() - start);
    assert_eq!(figures(&limiter).abandoned, 10);
}

#[tokio::test(start_paused = true)]
async fn what_may_not_wait_is_told_which_budget_is_short_and_for_how_long() {
    let limiter = metered(Quota { when_short: WhenShort::Refuse, ..tokens(6_000) });
    send(&limiter, 6_000, 0).settle_with_usage(Outcome::Success, Usage::new(6_000, 0));
    let refusals = [
        limiter.acquire(&lane(), call(500, 0)).await,
        limiter.try_acquire(&lane(), call(500, 0)),
        limiter.acquire(&lane(), call(500, 0).with_admission(Admission::Reject)).await,
    ];
    for refusal in refusals {
        let refusal = refused(refusal);
        assert_eq!(refusal.kind(), RejectKind::Short(Dimension::Tokens));
        let after = refusal.retry_after().expect("it is known");
        assert!(after.abs_diff(secs(5)) < millis(1), "{after:?}");
    }
    let after = refused(limiter.try_acquire(&lane(), call(500, 0))).retry_after().expect("it is known");
    tokio::time::sleep(after + millis(1)).await;
    send(&limiter, 500, 0).settle(Outcome::Success);
    assert_eq!(figures(&limiter).refused["short"], 4);
    assert_nothing_is_left(&limiter);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_asked_not_to_wait_is_refused_where_others_queue() {
    let limiter = metered(tokens(6_000));
    let running = send(&limiter, 6_000, 0);
    let reject = call(500, 0).with_admission(Admission::Reject);
    assert_eq!(kind(limiter.acquire(&lane(), reject).await), RejectKind::Short(Dimension::Tokens));
    let waiter = queue(&limiter, call(500, 0)).await;
    running.settle_with_usage(Outcome::Success, Usage::new(0, 0));
    waiter.await.expect("in time").settle(Outcome::Success);
}

#[tokio::test(start_paused = true)]
async fn what_can_never_fit_is_refused_with_the_budget_and_what_it_holds() {
    let limiter = metered(Quota { input_tokens_per_minute: Some(6_000), burst: secs(10), ..Quota::default() });
    send(&limiter, 1_000, 0).settle(Outcome::Success);
    let refusal = refused(limiter.acquire(&lane(), call(1_001, 0)).await);
    assert_eq!(refusal.kind(), RejectKind::TooLarge(Dimension::InputTokens));
    assert_eq!(refusal.retry_after(), None);
    let shown = refusal.to_string();
    assert!(shown.contains("input_tokens_per_minute") && shown.contains("1000"), "{shown}");
}

#[tokio::test(start_paused = true)]
async fn a_waiters_deadline_and_queue_timeout_bound_its_wait_for_tokens() {
    let limiter = build(|limiter| limiter.quota(tokens(6_000)).queue_timeout(secs(20)));
    send(&limiter, 6_000, 0).settle_with_usage(Outcome::Success, Usage::new(6_000, 0));
    let start = now();
    assert_eq!(kind(limiter.acquire(&lane(), call(5_000, 0).with_timeout(secs(7))).await), RejectKind::Deadline);
    assert_eq!(now() - start, secs(7));
    assert_eq!(kind(limiter.acquire(&lane(), call(5_000, 0)).await), RejectKind::QueueTimeout);
    assert_eq!(now() - start, secs(27));
    assert_eq!(left(&limiter), 2_700, "who was not sent was not charged");
}

fn pooled(quota: Quota) -> Limiter {
    build(|limiter| limiter.pool(PoolLimit::new("local", 0).quota(quota)))
}

#[tokio::test(start_paused = true)]
async fn a_pools_budget_is_shared_by_its_lanes_and_shown_with_the_pool() {
    let limiter = pooled(tokens(6_000));
    let other = LaneKey::new("local", "llama");
    send(&limiter, 4_000, 0).settle_with_usage(Outcome::Success, Usage::new(4_000, 0));
    let start = now();
    let permit = limiter.acquire(&other, call(3_000, 0)).await.expect("in time");
    assert_eq!((now() - start).as_secs(), 10);
    permit.settle_with_usage(Outcome::Success, Usage::new(2_500, 0));

    let snapshot = limiter.snapshot();
    assert!(snapshot.lanes.iter().all(|lane| lane.quota.is_none()), "the lanes have none of their own");
    let [pool] = &snapshot.pools[..] else { panic!("{:?}", snapshot.pools) };
    let budget = pool.quota.expect("it has one");
    assert_eq!((pool.pool.as_str(), pool.limit, budget.tokens_left), ("local|*", 0, Some(500)));
    assert_eq!((budget.tokens_admitted, budget.tokens_refunded), (7_000, 500));
}

#[tokio::test(start_paused = true)]
async fn a_pools_budget_refuses_where_it_says_so_and_a_lanes_own_word_goes_before() {
    let limiter = pooled(Quota { when_short: WhenShort::Refuse, ..tokens(6_000) });
    let running = send(&limiter, 6_000, 0);
    assert_eq!(kind(limiter.acquire(&lane(), call(500, 0)).await), RejectKind::Short(Dimension::Tokens));
    drop(running);

    let pool = PoolLimit::new("local", 0).quota(Quota { when_short: WhenShort::Refuse, ..tokens(6_000) });
    let limiter = build(|limiter| limiter.quota(tokens(60_000)).pool(pool));
    let running = send(&limiter, 6_000, 0);
    let waiter = queue(&limiter, call(500, 0)).await;
    drop(running);
    waiter.await.expect("in time").settle(Outcome::Success);
}

fn config(quota: Option<Quota>) -> LimitConfig {
    let mut config = LimitConfig::default();
    (config.max_inflight, config.interactive_reserve, config.quota) = (8, 0, quota);
    config
}

#[tokio::test(start_paused = true)]
async fn a_reload_keeps_what_was_used_and_the_calls_in_flight() {
    let limiter = metered(tokens(6_000));
    let running = send(&limiter, 4_000, 0);
    limiter.reconfigure(config(Some(tokens(12_000)))).unwrap();
    assert_eq!(left(&limiter), 2_000);
    limiter.reconfigure(config(Some(tokens(1_200)))).unwrap();
    assert_eq!(left(&limiter), 1_200);
    running.settle_with_usage(Outcome::Success, Usage::new(4_300, 0));
    assert_eq!(left(&limiter), 900);
}

#[tokio::test(start_paused = true)]
async fn a_reload_that_raises_or_removes_a_budget_lets_waiters_go() {
    for quota in [None, Some(tokens(600_000))] {
        let limiter = metered(tokens(6_000));
        send(&limiter, 6_000, 0).settle_with_usage(Outcome::Success, Usage::new(6_000, 0));
        let waiter = queue(&limiter, call(6_000, 0)).await;
        let (start, is_removed) = (now(), quota.is_none());
        limiter.reconfigure(config(quota)).unwrap();
        waiter.await.expect("in time").settle(Outcome::Success);
        // What was used stays used: six thousand come in within 0.6 s now.
        let waited = now() - start;
        assert!(waited <= if is_removed { millis(0) } else { millis(601) }, "{waited:?}");
        assert_nothing_is_left(&limiter);
    }
}

#[tokio::test(start_paused = true)]
async fn a_budget_that_comes_with_a_reload_is_not_credited_for_calls_it_never_charged() {
    for limiter in [limiter(8), build(LimiterBuilder::adaptive)] {
        let before = send(&limiter, 5_000, 0);
        let mut config = limiter.config();
        config.quota = Some(tokens(6_000));
        limiter.reconfigure(config).unwrap();
        let since = send(&limiter, 2_000, 0);
        before.settle(Outcome::ClientError);
        assert_eq!(left(&limiter), 4_000);
        since.settle(Outcome::ClientError);
        assert_eq!(left(&limiter), 6_000);
    }
}

#[tokio::test(start_paused = true)]
async fn a_lane_is_not_evicted_while_its_budget_remembers_something() {
    let limiter = build(|limiter| limiter.max_inflight(8).quota(tokens(6_000)).max_lanes(2));
    send(&limiter, 3_000, 0).settle_with_usage(Outcome::Success, Usage::new(3_000, 0));
    let visit = |n: u32| drop(limiter.try_acquire(&LaneKey::new("local", format!("m{n}")), Priority::Default));
    (0..10).for_each(visit);
    assert_eq!(left(&limiter), 3_000, "it is the same lane still");
    tokio::time::sleep(secs(31)).await;
    (10..20).for_each(visit);
    assert!(limiter.snapshot().lanes.iter().all(|it| it.lane != lane().to_string()), "full again, and forgotten");
}

#[tokio::test(start_paused = true)]
async fn an_override_gives_lanes_budgets_of_their_own() {
    let metered = LaneOverride::new("local|gemma").quota(tokens(1_000));
    let limiter = build(|limiter| limiter.quota(tokens(6_000)).lane(metered));
    assert_eq!(kind(limiter.try_acquire(&lane(), call(2_000, 0))), RejectKind::TooLarge(Dimension::Tokens));
    drop(limiter.try_acquire(&LaneKey::new("local", "llama"), call(2_000, 0)).expect("the others have more"));
}
