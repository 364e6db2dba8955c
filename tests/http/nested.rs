//! A limiter around another: the refusals of the inner one say nothing about the upstream.

use std::time::Duration;

use http::Response;
use tower::{ServiceBuilder, ServiceExt, service_fn};
use tower_inflight::{
    BoxError, BreakerConfig, InflightLimitLayer, Limiter, Outcome, RejectKind, Rejected, ResponseBody,
};

use crate::support::*;

type Twice = tower::util::BoxCloneSyncService<Query, Response<ResponseBody<ResponseBody<Script>>>, BoxError>;

fn nested(outer: &Limiter, inner: &Limiter, answer: fn() -> Response<Script>) -> Twice {
    let upstream = service_fn(move |_: Query| std::future::ready(Ok::<_, Reset>(answer())));
    let stack = ServiceBuilder::new()
        .layer(InflightLimitLayer::new(outer.clone()))
        .layer(InflightLimitLayer::new(inner.clone()))
        .service(upstream);
    Twice::new(stack)
}

/// What the outer limiter makes of a refusal by the inner one.
async fn assert_refused(inner: &Limiter, kind: RejectKind) {
    let outer = limiter(8);
    let client = nested(&outer, inner, || ok(endless()));
    let error = client.oneshot(chat()).await.err().unwrap();
    let rejected = Rejected::find(&*error).unwrap();
    assert_eq!(rejected.kind(), kind);
    assert_eq!(rejected.lane().to_string(), LANE);
    assert_eq!(outcomes(&outer), only(Outcome::Refused, 1));
    assert_eq!((lane(&outer).limit, lane(&outer).paused_until_s), (8, None));
    assert_idle(&outer);
}

// Case 85.
#[tokio::test(start_paused = true)]
async fn a_full_queue_further_in_is_no_failure_of_the_upstream() {
    let inner = slots(1).max_queue(0).build().unwrap();
    let _held = send(&answering(&inner, |_| ok(endless()))).await.unwrap();
    assert_refused(&inner, RejectKind::QueueFull(tower_inflight::QueueBound::Lane)).await;
}

// Case 85.
#[tokio::test(start_paused = true)]
async fn a_queue_timeout_further_in_is_no_failure_of_the_upstream() {
    let inner = slots(1).queue_timeout(Duration::from_secs(2)).build().unwrap();
    let _held = send(&answering(&inner, |_| ok(endless()))).await.unwrap();
    assert_refused(&inner, RejectKind::QueueTimeout).await;
}

// Case 85.
#[tokio::test(start_paused = true)]
async fn a_pause_further_in_is_no_pause_of_the_upstream() {
    let inner = slots(1).queue_timeout(Duration::from_secs(2)).build().unwrap();
    send(&answering(&inner, |_| busy("30"))).await.unwrap();
    assert_refused(&inner, RejectKind::Paused).await;
}

// Case 85.
#[tokio::test(start_paused = true)]
async fn a_closed_limiter_further_in_is_no_failure_of_the_upstream() {
    let inner = limiter(1);
    inner.close();
    assert_refused(&inner, RejectKind::Closed).await;
}

// Case 85.
#[tokio::test(start_paused = true)]
async fn an_open_breaker_further_in_is_no_failure_of_the_upstream() {
    let inner = slots(1).breaker(BreakerConfig { min_calls: 1, ..BreakerConfig::default() }).build().unwrap();
    send(&answering(&inner, |_| status(500, Script::new([])))).await.unwrap();
    assert_refused(&inner, RejectKind::BreakerOpen).await;
}

#[tokio::test(start_paused = true)]
async fn both_limiters_hold_and_give_back() {
    let (outer, inner) = (limiter(2), limiter(1));
    let client = nested(&outer, &inner, || ok(Script::new([data("a")])));
    let reply = client.clone().oneshot(chat()).await.unwrap();
    assert_eq!((in_flight(&outer), in_flight(&inner)), (1, 1));
    drop(http_body_util::BodyExt::collect(reply.into_body()).await.unwrap());
    for limiter in [&outer, &inner] {
        assert_idle(limiter);
        assert_eq!(outcomes(limiter), only(Outcome::Success, 1));
    }
}

#[tokio::test(start_paused = true)]
async fn both_limiters_learn_from_a_refusal_of_the_upstream() {
    let (outer, inner) = (limiter(2), limiter(1));
    let client = nested(&outer, &inner, || busy("30"));
    client.oneshot(chat()).await.unwrap();
    for limiter in [&outer, &inner] {
        assert_eq!(outcomes(limiter), only(Outcome::Overload, 1));
        assert_paused(limiter, 30.0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_stall_further_in_is_a_stall() {
    let inner = slots(1).first_byte_timeout(Duration::from_secs(5)).build().unwrap();
    let outer = limiter(2);
    let client = nested(&outer, &inner, || ok(Script::new([Step::Silence])));
    let reply = client.oneshot(chat()).await.unwrap();
    let error = http_body_util::BodyExt::collect(reply.into_body()).await.unwrap_err();
    assert!(error.is::<tower_inflight::Stalled>());
    for limiter in [&outer, &inner] {
        assert_eq!(outcomes(limiter), only(Outcome::Stalled, 1));
    }
}
