//! The connection is closed before its slot moves on: what is dropped looks at the limiter on its way out.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use http::Response;
use http_body_util::BodyExt;
use tower_inflight::{BoxError, Limiter};

use crate::support::*;

/// What was in flight each time something of the inner call was dropped.
#[derive(Clone, Default)]
struct Seen(Arc<Mutex<Vec<u32>>>);

impl Seen {
    fn look(&self, limiter: &Limiter) -> impl FnOnce() + Send + Sync + 'static {
        let (seen, limiter) = (self.0.clone(), limiter.clone());
        move || seen.lock().unwrap().push(in_flight(&limiter))
    }

    fn all(&self) -> Vec<u32> {
        self.0.lock().unwrap().clone()
    }
}

fn watched(limiter: &Limiter, script: impl Fn() -> Script + Clone + Send + Sync + 'static) -> (Client, Seen) {
    let seen = Seen::default();
    let (inside, watcher) = (limiter.clone(), seen.clone());
    (answering(limiter, move |_| ok(script().at_drop(watcher.look(&inside)))), seen)
}

/// A future that lives on after it was ready, until it is dropped.
struct Lasting {
    answer: Option<Result<Response<Script>, BoxError>>,
    _at_drop: OnDrop,
}

impl Future for Lasting {
    type Output = Result<Response<Script>, BoxError>;

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        self.answer.take().map_or(Poll::Pending, Poll::Ready)
    }
}

fn lasting(
    limiter: &Limiter,
    answer: impl Fn() -> Option<Result<Response<Script>, BoxError>> + Clone + Send + Sync + 'static,
) -> (Client, Seen) {
    let seen = Seen::default();
    let (inside, watcher) = (limiter.clone(), seen.clone());
    let client = client(limiter, move |_| Lasting { answer: answer(), _at_drop: on_drop(watcher.look(&inside)) });
    (client, seen)
}

fn guarded() -> Limiter {
    let timeout = Duration::from_secs(5);
    slots(1).first_byte_timeout(timeout).idle_timeout(timeout).build().unwrap()
}

#[tokio::test]
async fn a_body_dropped_early_is_closed_before_its_slot_is_free() {
    let limiter = limiter(1);
    let (client, seen) = watched(&limiter, endless);
    let mut reply = send(&client).await.unwrap();
    reply.body_mut().frame().await.unwrap().unwrap();
    drop(reply);
    assert_eq!(seen.all(), [1]);
    assert_idle(&limiter);
}

#[tokio::test]
async fn a_body_that_fails_is_closed_before_its_slot_is_free() {
    let limiter = limiter(1);
    let (client, seen) = watched(&limiter, || Script::new([Step::Fail(reset(1))]));
    let reply = send(&client).await.unwrap();
    assert!(read(reply).await.is_err());
    assert_eq!(seen.all(), [1]);
    assert_idle(&limiter);
}

#[tokio::test(start_paused = true)]
async fn a_body_that_stalls_is_closed_before_its_slot_is_free() {
    let limiter = guarded();
    let (client, seen) = watched(&limiter, endless);
    let mut reply = send(&client).await.unwrap();
    let stalled = async { while reply.body_mut().frame().await.unwrap().is_ok() {} };
    tokio::time::timeout(Duration::from_secs(60), stalled).await.expect("a stall");
    assert_eq!(seen.all(), [1]);
    assert_idle(&limiter);
}

#[tokio::test]
async fn a_call_given_up_is_cancelled_before_its_slot_is_free() {
    let limiter = limiter(1);
    let (client, seen) = lasting(&limiter, || None);
    let call = spawned(&client, chat()).await;
    call.abort();
    settled().await;
    assert_eq!(seen.all(), [1]);
    assert_idle(&limiter);
}

#[tokio::test]
async fn a_call_that_fails_is_dropped_before_its_slot_is_free() {
    let limiter = limiter(1);
    let (client, seen) = lasting(&limiter, || Some(Err(reset(1).into())));
    assert!(send(&client).await.is_err());
    assert_eq!(seen.all(), [1]);
    assert_idle(&limiter);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_stalls_is_dropped_before_its_slot_is_free() {
    let limiter = guarded();
    let (client, seen) = lasting(&limiter, || None);
    let stalled = tokio::time::timeout(Duration::from_secs(60), send(&client)).await.expect("a stall");
    assert!(stalled.is_err());
    assert_eq!(seen.all(), [1]);
    assert_idle(&limiter);
}

/// The future of an inner layer may hold something of its own until it is dropped.
#[tokio::test(start_paused = true)]
async fn a_call_that_is_over_at_its_head_is_dropped_before_its_slot_is_free() {
    let empty = || ok(Script::new([]).telling_end());
    let refusals = [empty, || status(500, endless()), || status(404, endless())];
    for answer in refusals {
        let limiter = limiter(1);
        let (client, seen) = lasting(&limiter, move || Some(Ok(answer())));
        let _reply = send(&client).await.unwrap();
        assert_eq!(seen.all(), [1]);
        assert_idle(&limiter);
    }
}

#[tokio::test(start_paused = true)]
async fn an_error_answer_given_up_while_it_is_looked_at_is_closed_before_its_slot_is_free() {
    let limiter = limiter(1);
    let seen = Seen::default();
    let (inside, watcher) = (limiter.clone(), seen.clone());
    let client = answering(&limiter, move |_| status(429, endless().at_drop(watcher.look(&inside))));
    let call = spawned(&client, chat()).await;
    assert_eq!(in_flight(&limiter), 1);
    call.abort();
    settled().await;
    assert_eq!(seen.all(), [1]);
    assert_idle(&limiter);
}
