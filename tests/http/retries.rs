//! Retries belong outside: each attempt takes its own slot and keeps what the call is.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::Response;
use http_body_util::BodyExt;
use tower::retry::{Policy, RetryLayer};
use tower::{ServiceBuilder, service_fn};
use tower_inflight::{
    Admission, Admitted, BoxError, Call, CallEvent, CallLayer, InflightLimitLayer, Limiter, Priority, RejectKind,
    Rejected,
};

use crate::support::*;

/// Tries again so often, so long after an answer that is no success.
#[derive(Clone)]
struct Again {
    left: u32,
    after: Duration,
}

fn again(times: u32, after_secs: u64) -> Again {
    Again { left: times, after: Duration::from_secs(after_secs) }
}

impl Policy<Query, Reply, BoxError> for Again {
    type Future = Pin<Box<dyn Future<Output = ()> + Send + Sync>>;

    fn retry(&mut self, _: &mut Query, result: &mut Result<Reply, BoxError>) -> Option<Self::Future> {
        let is_good = match result {
            Ok(reply) => reply.status().is_success(),
            Err(error) => Rejected::find(&**error).is_some(),
        };
        if is_good || self.left == 0 {
            return None;
        }
        self.left -= 1;
        Some(Box::pin(tokio::time::sleep(self.after)))
    }

    fn clone_request(&mut self, query: &Query) -> Option<Query> {
        Some(query.clone())
    }
}

fn retrying(
    limiter: &Limiter,
    policy: Again,
    answer: impl Fn(usize) -> Response<Script> + Clone + Send + Sync + 'static,
) -> (Client, Arc<AtomicUsize>) {
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = calls.clone();
    let upstream = service_fn(move |_: Query| {
        let answer = answer(counted.fetch_add(1, Ordering::Relaxed) + 1);
        std::future::ready(Ok::<_, Reset>(answer))
    });
    let stack = ServiceBuilder::new()
        .layer(CallLayer::new())
        .layer(RetryLayer::new(policy))
        .layer(InflightLimitLayer::new(limiter.clone()))
        .service(upstream);
    (Client::new(stack), calls)
}

fn fine() -> Response<Script> {
    ok(Script::new([data("fine")]))
}

fn unavailable() -> Response<Script> {
    status(503, endless())
}

fn admitted(reply: &Reply) -> &Admitted {
    reply.extensions().get().expect("it was admitted")
}

// Case 132.
#[tokio::test(start_paused = true)]
async fn the_layer_never_retries_by_itself() {
    let limiter = limiter(1);
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = calls.clone();
    let alone = answering(&limiter, move |_| {
        counted.fetch_add(1, Ordering::Relaxed);
        status(429, endless())
    });
    assert_eq!(send(&alone).await.unwrap().status(), 429);
    assert_eq!(calls.load(Ordering::Relaxed), 1);

    let (retried, calls) = retrying(&limiter, again(3, 1), |_| status(429, endless()));
    assert_eq!(send(&retried).await.unwrap().status(), 429);
    assert_eq!(calls.load(Ordering::Relaxed), 4);
    assert_eq!(outcomes(&limiter)["overload"], 5);
    assert_idle(&limiter);
}

// Case 135.
#[tokio::test(start_paused = true)]
async fn every_attempt_carries_the_same_bytes() {
    let seen: Arc<Mutex<Vec<Bytes>>> = Arc::default();
    let limiter = limiter(1);
    let upstream = service_fn({
        let seen = seen.clone();
        move |query: Query| {
            let seen = seen.clone();
            async move {
                let body = query.into_body().collect().await.unwrap().to_bytes();
                let mut seen = seen.lock().unwrap();
                seen.push(body);
                Ok::<_, Reset>(if seen.len() == 1 { status(429, endless()) } else { fine() })
            }
        }
    });
    let client = ServiceBuilder::new()
        .layer(RetryLayer::new(again(1, 1)))
        .layer(InflightLimitLayer::new(limiter.clone()))
        .service(upstream);
    let body = r#"{"messages":[], "model" :"m"}"#;
    let reply = send_query(&Client::new(client), post("/v1/chat/completions", body)).await.unwrap();
    assert_eq!(reply.status(), 200);
    assert_eq!(*seen.lock().unwrap(), [body, body]);
}

#[tokio::test(start_paused = true)]
async fn attempts_count_up() {
    let limiter = limiter(1);
    let (client, _) = retrying(&limiter, again(5, 1), |call| if call < 4 { unavailable() } else { fine() });
    assert_eq!(admitted(&send(&client).await.unwrap()).attempt(), 4);
    // Another call starts anew.
    assert_eq!(admitted(&send(&client).await.unwrap()).attempt(), 1);
}

#[tokio::test(start_paused = true)]
async fn attempts_keep_class_and_first_arrival() {
    let limiter = limiter(1);
    let call = Call::new(Priority::Bulk);
    let (client, _) = retrying(&limiter, again(1, 5), |call| if call == 1 { unavailable() } else { fine() });
    let retried = tokio::spawn({
        let query = with(chat(), call.clone());
        async move { send_query(&client, query).await }
    });
    settled().await;

    let holder = answering(&limiter, |_| ok(Script::new([data("a"), wait(20), data("b")])));
    let holding = tokio::spawn(async move { fetch(&holder).await });
    sleep(1.0).await;
    let later = answering(&limiter, |_| fine());
    let mut others = Vec::new();
    for _ in 0..3 {
        others.push(spawned(&later, with(chat(), Call::new(Priority::Bulk))).await);
    }
    sleep(5.0).await;
    assert_eq!(figures(&limiter), (1, 4));
    let reply = retried.await.unwrap().unwrap();
    let admitted = admitted(&reply);
    assert_eq!((admitted.attempt(), admitted.priority()), (2, Priority::Bulk));
    assert_eq!(admitted.waited(), Duration::from_secs(15), "the wait of this attempt");
    assert_eq!(figures(&limiter), (1, 3));
    assert_eq!(call.attempts(), 2);
    drop(reply);
    holding.await.unwrap().unwrap();
    for other in others {
        other.await.unwrap().unwrap();
    }
    assert_idle(&limiter);
}

#[tokio::test(start_paused = true)]
async fn without_a_call_each_attempt_stands_for_itself() {
    let limiter = limiter(1);
    let upstream = service_fn(|_: Query| std::future::ready(Ok::<_, Reset>(unavailable())));
    let client = ServiceBuilder::new()
        .layer(RetryLayer::new(again(2, 1)))
        .layer(InflightLimitLayer::new(limiter.clone()))
        .service(upstream);
    let reply = send_query(&Client::new(client), chat()).await.unwrap();
    assert_eq!(admitted(&reply).attempt(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_call_layer_keeps_a_call_that_is_there() {
    let limiter = limiter(1);
    let (client, _) = retrying(&limiter, again(0, 1), |_| fine());
    let query = with(chat(), Call::new(Priority::Interactive).with_tenant("acme"));
    let reply = Priority::Bulk.scope(send_query(&client, query)).await.unwrap();
    assert_eq!(admitted(&reply).priority(), Priority::Interactive);
}

#[tokio::test(start_paused = true)]
async fn the_scope_gives_a_call_its_class() {
    let limiter = limiter(1);
    let (client, _) = retrying(&limiter, again(0, 1), |_| fine());
    let reply = Priority::Bulk.scope(send(&client)).await.unwrap();
    assert_eq!(admitted(&reply).priority(), Priority::Bulk);
}

#[tokio::test(start_paused = true)]
async fn no_attempt_is_sent_after_the_deadline() {
    let limiter = limiter(1);
    let (client, calls) = retrying(&limiter, again(9, 10), |_| unavailable());
    let query = with(chat(), Call::new(Priority::Default).with_timeout(Duration::from_secs(25)));
    let start = now();
    assert_eq!(reject_kind(send_query(&client, query).await), RejectKind::Deadline);
    assert_eq!((since(start), calls.load(Ordering::Relaxed)), (30.0, 3));
    assert_eq!(lane(&limiter).refused["deadline"], 1);
    assert_idle(&limiter);
}

#[tokio::test(start_paused = true)]
async fn a_deadline_ends_the_wait_and_says_so() {
    for (timeout, deadline, kind) in
        [(60, 2, RejectKind::Deadline), (2, 60, RejectKind::QueueTimeout), (2, 2, RejectKind::Deadline)]
    {
        let limiter = slots(1).queue_timeout(Duration::from_secs(timeout)).build().unwrap();
        let client = answering(&limiter, |_| ok(endless()));
        let _held = send(&client).await.unwrap();
        let start = now();
        let query = with(chat(), Call::new(Priority::Default).with_timeout(Duration::from_secs(deadline)));
        let rejected = rejected(send_query(&client, query).await);
        assert_eq!((rejected.kind(), since(start)), (kind, 2.0));
        assert_eq!(rejected.waited(), Duration::from_secs(2));
    }
}

/// A9.
#[tokio::test(start_paused = true)]
async fn a_call_that_may_not_wait_is_refused_at_once() {
    let limiter = limiter(1);
    let client = answering(&limiter, |_| ok(endless()));
    let query = || with(chat(), Call::new(Priority::Interactive).with_admission(Admission::Reject));
    let held = send_query(&client, query()).await.unwrap();
    let start = now();
    assert_eq!(reject_kind(send_query(&client, query()).await), RejectKind::Busy);
    assert_eq!(since(start), 0.0);
    drop(held);
    assert!(send_query(&client, query()).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn the_queue_timeout_starts_anew_with_each_attempt() {
    let limiter = slots(1).queue_timeout(Duration::from_secs(10)).build().unwrap();
    let (client, _) = retrying(&limiter, again(1, 8), |call| if call == 1 { unavailable() } else { fine() });
    let retried = tokio::spawn(async move { fetch(&client).await });
    settled().await;
    let holder = answering(&limiter, |_| ok(Script::new([wait(16), data("b")])));
    assert_eq!(fetch(&holder).await.unwrap(), "b");
    assert_eq!(retried.await.unwrap().unwrap(), "fine");
}

/// O5.
#[tokio::test(start_paused = true)]
async fn a_listener_hears_of_every_attempt() {
    let limiter = limiter(1);
    let (client, _) = retrying(&limiter, again(1, 5), |call| if call == 1 { unavailable() } else { fine() });
    let heard: Arc<Mutex<Vec<String>>> = Arc::default();
    let call = Call::new(Priority::Default).with_listener({
        let heard = heard.clone();
        move |event| {
            heard.lock().unwrap().push(match event {
                CallEvent::Queued { lane, position } => format!("queued {lane} {position}"),
                CallEvent::Admitted(admitted) => format!("admitted {}", admitted.attempt()),
                CallEvent::Ended { outcome, .. } => format!("ended {}", outcome.as_str()),
                _ => "?".to_owned(),
            });
        }
    });
    let retried = tokio::spawn(async move { send_query(&client, with(chat(), call)).await.map(drop) });
    settled().await;
    let holder = answering(&limiter, |_| ok(Script::new([wait(20)])));
    fetch(&holder).await.unwrap();
    retried.await.unwrap().unwrap();
    assert_eq!(
        *heard.lock().unwrap(),
        ["admitted 1", "ended unavailable", &format!("queued {LANE} 1"), "admitted 2", "ended cancelled"]
    );
}
