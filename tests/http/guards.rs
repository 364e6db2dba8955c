//! Silence of the upstream ends a call; nothing else is taken for it.

use std::task::{Context, Poll};
use std::time::Duration;

use http::Response;
use http_body_util::BodyExt;
use tower::Service;
use tower_inflight::{BoxError, LaneOverride, Limiter, Outcome, RejectKind, Silence, Stalled};

use crate::support::*;

const BOUND: Duration = Duration::from_secs(5);

fn first_byte() -> Limiter {
    slots(1).first_byte_timeout(BOUND).build().unwrap()
}

fn idle() -> Limiter {
    slots(1).idle_timeout(BOUND).build().unwrap()
}

fn never(limiter: &Limiter) -> Client {
    client(limiter, |_| std::future::pending())
}

fn stalled(error: BoxError) -> Stalled {
    *error.downcast::<Stalled>().expect("a stall")
}

fn assert_stalled(limiter: &Limiter, error: BoxError, silence: Silence) {
    let stalled = stalled(error);
    assert_eq!((stalled.silence(), stalled.after()), (silence, BOUND));
    assert_eq!(stalled.lane().to_string(), LANE);
    assert_eq!(outcomes(limiter), only(Outcome::Stalled, 1));
    assert_idle(limiter);
}

#[tokio::test(start_paused = true)]
async fn an_upstream_that_never_answers_is_a_stall() {
    let limiter = first_byte();
    let start = now();
    let error = send(&never(&limiter)).await.unwrap_err();
    assert_eq!(since(start), 5.0);
    assert_stalled(&limiter, error, Silence::FirstByte);
}

#[tokio::test(start_paused = true)]
async fn a_head_in_time_without_a_first_byte_is_a_stall() {
    let limiter = first_byte();
    let client = client(&limiter, |_| async {
        sleep(3.0).await;
        Ok(ok(Script::new([Step::Silence])))
    });
    let start = now();
    let mut reply = send(&client).await.unwrap();
    assert_eq!(since(start), 3.0);
    let error = reply.body_mut().frame().await.unwrap().unwrap_err();
    assert_eq!(since(start), 5.0);
    assert!(reply.body_mut().frame().await.is_none());
    assert_stalled(&limiter, error, Silence::FirstByte);
}

#[derive(Clone)]
struct NeverReady;

impl Service<Query> for NeverReady {
    type Response = Response<Script>;
    type Error = Reset;
    type Future = std::future::Pending<Result<Response<Script>, Reset>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Reset>> {
        Poll::Pending
    }

    fn call(&mut self, _: Query) -> Self::Future {
        unreachable!("it is never ready")
    }
}

/// It holds a slot all the while.
#[tokio::test(start_paused = true)]
async fn an_upstream_that_never_gets_ready_is_a_stall() {
    let limiter = first_byte();
    let error = tokio::time::timeout(BOUND * 2, send(&over(&limiter, NeverReady))).await.unwrap().unwrap_err();
    assert_stalled(&limiter, error, Silence::FirstByte);
}

#[tokio::test(start_paused = true)]
async fn time_in_the_queue_is_no_silence() {
    let limiter = first_byte();
    let holder = answering(&limiter, |_| ok(Script::new([data("a"), wait(20), data("b")])));
    let holding = tokio::spawn(async move { fetch(&holder).await });
    settled().await;
    let start = now();
    let error = send(&never(&limiter)).await.unwrap_err();
    assert_eq!(since(start), 25.0);
    assert_eq!(stalled(error).silence(), Silence::FirstByte);
    assert_eq!(holding.await.unwrap().unwrap(), "ab");
}

#[tokio::test(start_paused = true)]
async fn a_queue_timeout_is_never_a_stall() {
    let limiter = slots(1).first_byte_timeout(Duration::from_secs(1)).queue_timeout(BOUND).build().unwrap();
    let client = answering(&limiter, |_| ok(endless()));
    let _held = send(&client).await.unwrap();
    let start = now();
    assert_eq!(reject_kind(send(&client).await), RejectKind::QueueTimeout);
    assert_eq!(since(start), 5.0);
}

#[tokio::test(start_paused = true)]
async fn silence_between_chunks_is_a_stall() {
    let limiter = idle();
    let client = answering(&limiter, |_| ok(Script::new([data("a"), wait(4), data("b"), wait(60), data("c")])));
    let mut reply = send(&client).await.unwrap();
    let start = now();
    assert!(reply.body_mut().frame().await.unwrap().is_ok());
    assert!(reply.body_mut().frame().await.unwrap().is_ok());
    let error = reply.body_mut().frame().await.unwrap().unwrap_err();
    assert_eq!(since(start), 9.0);
    assert!(http_body::Body::is_end_stream(reply.body()));
    assert_stalled(&limiter, error, Silence::Idle);
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_keeps_talking_outlives_every_guard() {
    let limiter = slots(1).first_byte_timeout(BOUND).idle_timeout(BOUND).build().unwrap();
    let steps = || (0..100).flat_map(|_| [wait(4), data("x")]);
    let client = answering(&limiter, move |_| ok(Script::new(steps())));
    assert_eq!(fetch(&client).await.unwrap().len(), 100);
    assert_eq!(outcomes(&limiter), only(Outcome::Success, 1));
}

#[tokio::test(start_paused = true)]
async fn a_slow_reader_is_no_silence() {
    let limiter = idle();
    let client = answering(&limiter, |_| ok(Script::new([data("a"), wait(1), data("b"), wait(1)])));
    let mut reply = send(&client).await.unwrap();
    sleep(60.0).await;
    assert!(reply.body_mut().frame().await.unwrap().is_ok());
    sleep(60.0).await;
    assert!(reply.body_mut().frame().await.unwrap().is_ok());
    sleep(60.0).await;
    assert!(reply.body_mut().frame().await.is_none());
    assert_eq!(outcomes(&limiter), only(Outcome::Success, 1));
}

/// Clients read from the socket when they are asked: the first look at a body may find nothing.
#[tokio::test(start_paused = true)]
async fn a_reader_that_takes_its_time_after_the_head_is_no_silence() {
    let limiter = first_byte();
    let client = client(&limiter, |_| async {
        sleep(2.0).await;
        Ok(ok(Script::new([wait(1), data("a")])))
    });
    let reply = send(&client).await.unwrap();
    sleep(60.0).await;
    assert_eq!(read(reply).await.unwrap(), "a");
    assert_eq!(outcomes(&limiter), only(Outcome::Success, 1));
}

#[tokio::test(start_paused = true)]
async fn the_wait_for_the_head_counts_towards_the_first_byte_whenever_it_is_read() {
    let limiter = first_byte();
    let client = client(&limiter, |_| async {
        sleep(2.0).await;
        Ok(ok(Script::new([Step::Silence])))
    });
    let reply = send(&client).await.unwrap();
    sleep(60.0).await;
    let start = now();
    let error = read(reply).await.unwrap_err();
    assert_eq!(since(start), 3.0);
    assert_stalled(&limiter, error, Silence::FirstByte);
}

#[tokio::test(start_paused = true)]
async fn each_guard_bounds_its_own_silence_only() {
    let limiter = first_byte();
    let client = answering(&limiter, |_| ok(Script::new([data("a"), wait(600), data("b")])));
    assert_eq!(fetch(&client).await.unwrap(), "ab");

    let limiter = idle();
    let slow = Duration::from_secs(600);
    let client = crate::support::client(&limiter, move |_| async move {
        tokio::time::sleep(slow).await;
        Ok(ok(Script::new([wait(600), data("a")])))
    });
    assert_eq!(fetch(&client).await.unwrap(), "a");
}

#[tokio::test(start_paused = true)]
async fn a_stall_hands_the_slot_to_the_next_waiter() {
    let limiter = first_byte();
    let stalling = spawned(&never(&limiter), chat()).await;
    let start = now();
    let healthy = answering(&limiter, |_| ok(Script::new([data("a")])));
    assert_eq!(fetch(&healthy).await.unwrap(), "a");
    assert_eq!(since(start), 5.0);
    assert!(stalling.await.unwrap().is_err());
}

#[tokio::test(start_paused = true)]
async fn a_guard_may_be_other_for_some_lanes() {
    let patient = LaneOverride::new("*|slow").first_byte_timeout(Duration::from_secs(50));
    let limiter = slots(1).first_byte_timeout(BOUND).lane(patient).build().unwrap();
    let client = never(&limiter);
    let start = now();
    let error = send_query(&client, asking("slow")).await.unwrap_err();
    assert_eq!(stalled(error).after(), Duration::from_secs(50));
    assert_eq!(since(start), 50.0);
}

#[tokio::test(start_paused = true)]
async fn a_silent_error_body_is_answered_not_stalled() {
    let limiter = slots(1).first_byte_timeout(Duration::from_millis(10)).build().unwrap();
    let client = answering(&limiter, |_| status(429, Script::new([Step::Silence])));
    let reply = send(&client).await.unwrap();
    assert_eq!(reply.status(), 429);
    assert_eq!(outcomes(&limiter), only(Outcome::Overload, 1));
}

#[tokio::test(start_paused = true)]
async fn without_guards_silence_is_no_error() {
    let limiter = limiter(1);
    let client = answering(&limiter, |_| ok(Script::new([wait(100_000), data("a")])));
    assert_eq!(fetch(&client).await.unwrap(), "a");
}

/// Without a runtime nobody watches the time; reading still works.
#[test]
fn a_guarded_body_can_be_read_outside_of_a_runtime() {
    use futures_util::FutureExt;

    let limiter = idle();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let client = answering(&limiter, |_| ok(endless()));
    let mut reply = runtime.block_on(send(&client)).unwrap();
    drop(runtime);
    assert!(reply.body_mut().frame().now_or_never().unwrap().unwrap().is_ok());
    assert!(reply.body_mut().frame().now_or_never().unwrap().unwrap().is_ok());
    assert!(reply.body_mut().frame().now_or_never().is_none());
    drop(reply);
    assert_eq!(outcomes(&limiter), only(Outcome::Cancelled, 1));
}
