//! Closing, and the end of runtimes and services.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use http_body_util::BodyExt;
use tokio::runtime::{Builder, Runtime};
use tower_inflight::{InflightLimitLayer, LaneKey, Outcome, RejectKind};
use tower_layer::Layer;

use crate::support::*;

// Case 149.
#[tokio::test(start_paused = true)]
async fn closing_refuses_everybody_who_waits_and_lets_streams_finish() {
    let limiter = limiter(1);
    let client = answering(&limiter, |_| ok(Script::new([data("a"), wait(10), data("b")])));
    let mut streaming = send(&client).await.unwrap();
    streaming.body_mut().frame().await.unwrap().unwrap();
    let refusing = answering(&limiter, |_| busy("60"));
    send_query(&refusing, asking("paused")).await.unwrap();

    let mut waiters = Vec::new();
    for n in 0..25 {
        let query = if n < 20 { chat() } else { asking("paused") };
        waiters.push(spawned(&client, query).await);
    }
    let start = now();
    limiter.close();
    for waiter in waiters {
        assert_eq!(reject_kind(waiter.await.unwrap()), RejectKind::Closed);
    }
    assert_eq!(reject_kind(send(&client).await), RejectKind::Closed);
    assert_eq!(reject_kind(send_query(&client, asking("new")).await), RejectKind::Closed);
    limiter.close();
    assert_eq!(since(start), 0.0);

    let drained = tokio::spawn({
        let limiter = limiter.clone();
        async move { limiter.drain(Duration::from_secs(60)).await }
    });
    assert_eq!(read(streaming).await.unwrap(), "b");
    drained.await.unwrap().unwrap();
    assert_eq!(since(start), 10.0);
    assert_idle(&limiter);
}

#[tokio::test(start_paused = true)]
async fn draining_says_how_many_calls_are_left() {
    let limiter = limiter(4);
    let client = answering(&limiter, |_| ok(endless()));
    let (_a, b) = (send(&client).await.unwrap(), send(&client).await.unwrap());
    assert_eq!(limiter.drain(Duration::from_secs(5)).await.unwrap_err().calls(), 2);
    drop(b);
    assert_eq!(limiter.drain(Duration::from_secs(5)).await.unwrap_err().calls(), 1);
}

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

// Case 150.
#[test]
fn a_body_may_be_dropped_after_its_runtime() {
    let limiter = slots(1).idle_timeout(Duration::from_secs(5)).build().unwrap();
    let client = answering(&limiter, |_| ok(endless()));
    let runtime = runtime();
    let mut reply = runtime.block_on(send(&client)).unwrap();
    // Far enough for the guard's timer to be running.
    runtime.block_on(async {
        while let Ok(frame) = tokio::time::timeout(Duration::from_millis(1), reply.body_mut().frame()).await {
            frame.unwrap().unwrap();
        }
    });
    drop(runtime);
    std::thread::spawn(move || drop(reply)).join().unwrap();
    assert_eq!(outcomes(&limiter), only(Outcome::Cancelled, 1));
    assert_idle(&limiter);
}

// Case 150.
#[test]
fn a_queued_call_may_be_dropped_after_its_runtime() {
    let limiter = limiter(1);
    let client = answering(&limiter, |_| ok(endless()));
    let runtime = runtime();
    let held = runtime.block_on(send(&client)).unwrap();
    let mut queued = Box::pin(async move { send(&client).await });
    runtime.block_on(async { assert!(futures_util::poll!(&mut queued).is_pending()) });
    assert_eq!(figures(&limiter), (1, 1));
    drop(runtime);
    std::thread::spawn(move || drop(queued)).join().unwrap();
    assert_eq!(figures(&limiter), (1, 0));
    drop(held);
    assert_idle(&limiter);
}

// Case 150.
#[test]
fn a_runtime_may_go_down_with_calls_in_every_stage() {
    let limiter = limiter(2);
    let streams = answering(&limiter, |_| ok(endless()));
    let silent = client(&limiter, |_| std::future::pending());
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let streaming = streams.clone();
        tokio::spawn(async move { fetch(&streaming).await.map(drop) });
        tokio::spawn(async move { send(&silent).await.map(drop) });
        while in_flight_or_none(&limiter) < 2 {
            tokio::task::yield_now().await;
        }
        for _ in 0..10 {
            let client = streams.clone();
            tokio::spawn(async move { send(&client).await.map(drop) });
        }
        while lane(&limiter).queued < 10 {
            tokio::task::yield_now().await;
        }
    });
    drop(runtime);
    assert_idle(&limiter);
    assert_eq!(lane(&limiter).offered, 12);
}

fn in_flight_or_none(limiter: &tower_inflight::Limiter) -> u32 {
    limiter.snapshot().lanes.first().map_or(0, |lane| lane.inflight)
}

// Case 150.
#[test]
fn a_body_may_be_dropped_while_its_thread_panics() {
    let limiter = limiter(1);
    let client = answering(&limiter, |_| ok(endless()));
    let reply = runtime().block_on(send(&client)).unwrap();
    let thread = std::thread::spawn(move || {
        let _held = reply;
        panic!("with a body in hand");
    });
    assert!(thread.join().is_err());
    assert_idle(&limiter);
}

// Case 150.
#[test]
fn a_waiter_of_another_runtime_gets_the_slot_when_one_goes_down() {
    let limiter = limiter(1);
    let client = answering(&limiter, |_| ok(endless()));
    let (first, second) = (runtime(), runtime());
    let held = first.block_on(send(&client)).unwrap();
    let mut queued = Box::pin(async { send(&client).await });
    // The timer of the lane runs in the first runtime.
    first.block_on(async { assert!(futures_util::poll!(&mut queued).is_pending()) });
    drop((held, first));
    assert!(second.block_on(queued).is_ok());
    assert_idle(&limiter);
}

/// A closure of the layer, and a witness of its end.
fn witnessed() -> (Arc<()>, Weak<()>) {
    let alive = Arc::new(());
    let weak = Arc::downgrade(&alive);
    (alive, weak)
}

// Case 151.
#[tokio::test(start_paused = true)]
async fn bodies_outlive_their_service_and_layer() {
    let limiter = limiter(3);
    let (alive, witness) = witnessed();
    let layer = InflightLimitLayer::new(limiter.clone()).lane_by(move |_| {
        let _ = &alive;
        Some(LaneKey::new("https://gw.example/v1", "m"))
    });
    let upstream = tower::service_fn(|_: Query| {
        std::future::ready(Ok::<_, Reset>(ok(Script::new([data("a"), wait(5), data("b")]))))
    });
    let client = Client::new(layer.layer(upstream));
    let mut replies = Vec::new();
    for _ in 0..3 {
        replies.push(send(&client).await.unwrap());
    }
    drop((client, layer));
    assert!(witness.upgrade().is_none(), "nothing of the layer is kept for a body");
    assert_eq!(in_flight(&limiter), 3);
    for reply in replies {
        assert_eq!(read(reply).await.unwrap(), "ab");
    }
    assert_eq!(outcomes(&limiter), only(Outcome::Success, 3));
    assert_idle(&limiter);
}

/// Says when it is gone.
struct Classifier(Arc<AtomicBool>);

impl Drop for Classifier {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl tower_inflight::Classify for Classifier {
    fn response(&self, _: &http::response::Parts, _: &[u8], _: std::time::SystemTime) -> tower_inflight::Verdict {
        Outcome::Success.into()
    }

    fn error(&self, _: &(dyn std::error::Error + 'static)) -> tower_inflight::Verdict {
        Outcome::Transport.into()
    }
}

// Case 151.
#[tokio::test(start_paused = true)]
async fn state_is_freed_with_the_last_body() {
    let is_gone = Arc::new(AtomicBool::new(false));
    let limiter = limiter(3);
    let layer = InflightLimitLayer::new(limiter.clone()).classify(Classifier(is_gone.clone()));
    let upstream = tower::service_fn(|_: Query| std::future::ready(Ok::<_, Reset>(ok(endless()))));
    let client = Client::new(layer.layer(upstream));
    let mut replies = Vec::new();
    for _ in 0..3 {
        replies.push(send(&client).await.unwrap());
    }
    drop((client, layer, limiter));
    for reply in replies {
        assert!(!is_gone.load(Ordering::Relaxed));
        drop(reply);
    }
    assert!(is_gone.load(Ordering::Relaxed));
}

#[tokio::test(start_paused = true)]
async fn a_queued_call_outlives_every_handle_of_its_limiter() {
    let limiter = limiter(1);
    let client = answering(&limiter, |_| ok(endless()));
    let held = send(&client).await.unwrap();
    let queued = spawned(&client, chat()).await;
    drop((limiter, client));
    sleep(1.0).await;
    drop(held);
    assert!(queued.await.unwrap().is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_queued_call_without_a_limiter_still_times_out() {
    let limiter = slots(1).queue_timeout(Duration::from_secs(5)).build().unwrap();
    let client = answering(&limiter, |_| ok(endless()));
    let _held = send(&client).await.unwrap();
    let queued = spawned(&client, chat()).await;
    drop((limiter, client));
    let start = now();
    assert_eq!(reject_kind(queued.await.unwrap()), RejectKind::QueueTimeout);
    assert_eq!(since(start), 5.0);
}
