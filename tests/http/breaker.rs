//! The breaker and the retry budget over the layer: what opens it, what does not, and who gets through.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::Response;
use tower::{Layer, ServiceExt};
use tower_inflight::{
    BreakerConfig, BreakerState, Call, Condition, FallbackLayer, InflightLimitLayer, Limiter, Priority, RejectKind,
    RetryBudget, RetryRatio,
};

use crate::support::*;

/// Opens at half of at least five calls.
fn guarded(max: u32) -> Limiter {
    let breaker = BreakerConfig { failure_rate: 0.5, min_calls: 5, probes: 1, ..BreakerConfig::default() };
    slots(max).breaker(breaker).build().unwrap()
}

fn state(limiter: &Limiter) -> BreakerState {
    lane(limiter).breaker
}

fn broken() -> Response<Script> {
    ok(Script::new([data("a"), data("b"), Step::Fail(reset(1))]))
}

async fn open(limiter: &Limiter) {
    let client = answering(limiter, |_| status(500, Script::new([])));
    for _ in 0..5 {
        send(&client).await.unwrap();
    }
    assert_eq!(state(limiter), BreakerState::Open);
}

// Case 125.
#[tokio::test(start_paused = true)]
async fn a_stream_that_dies_is_a_failure_and_no_success() {
    let limiter = guarded(4);
    let client = answering(&limiter, |_| broken());
    for _ in 0..5 {
        assert!(fetch(&client).await.is_err());
    }
    assert_eq!(state(&limiter), BreakerState::Open);
    let rejected = rejected(send(&client).await);
    assert_eq!(rejected.kind(), RejectKind::BreakerOpen);
    assert!(rejected.retry_after().is_some_and(|left| left >= Duration::from_secs(30)));
    assert!(rejected.to_string().contains("breaker"), "{rejected}");
    assert_eq!(lane(&limiter).condition, Condition::GatewayDegraded);
}

// Case 126.
#[tokio::test(start_paused = true)]
async fn callers_who_leave_open_nothing() {
    let limiter = guarded(4);
    let client = answering(&limiter, |_| ok(endless()));
    for _ in 0..20 {
        drop(send(&client).await.unwrap());
    }
    let silent = self::client(&limiter, |_| std::future::pending());
    for _ in 0..20 {
        let call = silent.clone().oneshot(chat());
        assert!(tokio::time::timeout(Duration::from_secs(1), call).await.is_err());
    }
    assert_eq!(state(&limiter), BreakerState::Closed);
    assert_eq!(outcomes(&limiter)["cancelled"], 40);
}

// Case 127.
#[tokio::test(start_paused = true)]
async fn refusals_of_the_upstream_pause_the_lane_and_do_not_open_the_breaker() {
    let limiter = guarded(4);
    let client = answering(&limiter, |_| busy("1"));
    for _ in 0..50 {
        send(&client).await.unwrap();
    }
    assert_eq!(state(&limiter), BreakerState::Closed);
    assert_paused(&limiter, 1.0);
}

// Cases 121 to 123, over the layer.
#[tokio::test(start_paused = true)]
async fn half_open_real_calls_go_one_at_a_time_and_a_success_lets_all_go() {
    let limiter = guarded(64);
    open(&limiter).await;
    sleep(34.0).await;
    let calls = Arc::new(AtomicUsize::new(0));
    let counting = {
        let calls = calls.clone();
        client(&limiter, move |_| {
            calls.fetch_add(1, Ordering::Relaxed);
            async {
                sleep(1.0).await;
                Ok(ok(Script::new([data("fine")])))
            }
        })
    };
    let dropped = tokio::spawn(counting.clone().oneshot(chat()));
    settled().await;
    let crowd: Vec<_> = (0..99)
        .map(|_| {
            let call = counting.clone().oneshot(chat());
            tokio::spawn(async move { read(call.await.unwrap()).await.unwrap() })
        })
        .collect();
    settled().await;
    assert_eq!((calls.load(Ordering::Relaxed), state(&limiter)), (1, BreakerState::HalfOpen));
    dropped.abort();
    settled().await;
    assert_eq!(calls.load(Ordering::Relaxed), 2, "one that leaves makes room for the next");
    for call in crowd {
        assert_eq!(call.await.unwrap(), "fine");
    }
    assert_eq!(state(&limiter), BreakerState::Closed);
    assert_idle(&limiter);
}

#[tokio::test(start_paused = true)]
async fn a_fallback_answers_while_the_breaker_is_open_and_only_then() {
    let limiter = guarded(4);
    let elsewhere = Arc::new(AtomicUsize::new(0));
    let second = tower::service_fn({
        let elsewhere = elsewhere.clone();
        let free = Limiter::builder().build().unwrap();
        let client = answering(&free, |_| ok(Script::new([data("second")])));
        move |query: Query| {
            elsewhere.fetch_add(1, Ordering::Relaxed);
            client.clone().oneshot(query)
        }
    });
    let failing = FallbackLayer::new(second.clone()).layer(answering(&limiter, |_| status(503, Script::new([]))));
    for _ in 0..5 {
        assert_eq!(failing.clone().oneshot(chat()).await.unwrap().status(), 503);
    }
    assert_eq!(elsewhere.load(Ordering::Relaxed), 0);
    let reply = failing.clone().oneshot(chat()).await.unwrap();
    assert_eq!(read(reply).await.unwrap(), "second");
    limiter.close();
    let closed = failing.oneshot(chat()).await;
    assert_eq!(reject_kind(closed), RejectKind::Closed);
    assert_eq!(elsewhere.load(Ordering::Relaxed), 1);
}

#[tokio::test(start_paused = true)]
async fn retries_are_told_from_first_attempts_by_the_call_and_by_the_header() {
    let ratio = RetryRatio { ratio: 0.1, per_second: 0.0, ..RetryRatio::default() };
    let limiter = slots(1_000).retry_budget(RetryBudget::Ratio(ratio)).build().unwrap();
    let client = answering(&limiter, |_| ok(Script::new([data("a")])));
    for _ in 0..10 {
        fetch(&client).await.unwrap();
    }
    let call = Call::new(Priority::Default);
    for expected in [None, None, Some(RejectKind::RetryBudgetExhausted)] {
        let result = send_query(&client, with(chat(), call.clone())).await;
        assert_eq!(result.as_ref().err().map(|_| ()), expected.map(|_| ()));
        if let Some(kind) = expected {
            assert_eq!(reject_kind(result), kind);
        }
    }
    let mut named = chat();
    named.headers_mut().insert("x-stainless-retry-count", "1".parse().unwrap());
    assert_eq!(reject_kind(send_query(&client, named).await), RejectKind::RetryBudgetExhausted);
    let mut first = chat();
    first.headers_mut().insert("x-stainless-retry-count", "0".parse().unwrap());
    assert!(send_query(&client, first).await.is_ok());
    assert_eq!(lane(&limiter).refused["retry_budget"], 2);
}

// B4.
#[tokio::test(start_paused = true)]
async fn refusals_of_a_limiter_further_in_do_not_open_the_breaker_of_the_one_outside() {
    let (outer, inner) = (guarded(8), slots(1).max_queue(0).build().unwrap());
    let held = send(&answering(&inner, |_| ok(endless()))).await.unwrap();
    let inside = answering(&inner, |_| ok(endless()));
    let client = InflightLimitLayer::new(outer.clone()).layer(inside);
    for _ in 0..20 {
        assert!(client.clone().oneshot(chat()).await.is_err());
    }
    assert_eq!((state(&outer), outcomes(&outer)["refused"]), (BreakerState::Closed, 20));
    drop(held);
}
