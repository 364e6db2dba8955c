//! reqwest-retry outside of the limiter.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::Extensions;
use reqwest::{Request, Response};
use reqwest_middleware::{ClientBuilder, Middleware, Next};
use reqwest_retry::{DefaultRetryableStrategy, RetryTransientMiddleware, Retryable, RetryableStrategy};
use tower_inflight::reqwest_middleware::InflightLimitMiddleware;
use tower_inflight::{Admitted, BreakerConfig, Call, Lane, Limiter, Permit, Priority, RejectKind, Rejected};

use super::reply::Reply;
use super::reqwest_support::{backoff, chain, chat, lane_of, plain, retrying};
use super::server::Server;
use super::support::{assert_idle, eventually, in_flight, lane, limiter, outcomes, pass, queued, within};

fn flaky(refusals: usize) -> impl Iterator<Item = Reply> {
    let refusal = Reply::whole(503, "busy");
    std::iter::repeat_n(refusal, refusals).chain([Reply::whole(200, "fine")])
}

/// The retry layer keeps the 503 alive while it sleeps and calls again.
#[tokio::test]
async fn a_503_then_success_does_not_hang_on_a_limit_of_one() {
    let refusals = [
        Reply::whole(503, "busy"),
        Reply::status(503).data("bu").gate().data("sy"),
        Reply::status(503).data("busy").step(super::reply::Step::Hang),
        Reply::status(503),
    ];
    for refusal in refusals {
        let limiter = limiter(1);
        let server = Server::in_turn([refusal, Reply::whole(200, "fine")]).await;
        let response = within(chat(&retrying(2, limiter.clone()), &server).send()).await.expect("an answer");
        assert_eq!(response.text().await.expect("whole"), "fine");
        assert_eq!(outcomes(&limiter), "success 1, unavailable 1");
        assert_idle(&limiter);
    }
}

/// A strategy that is asked between two attempts: what it finds free is free during the backoff.
struct Between<F>(F);

impl<F: Fn() + Send + Sync + 'static> RetryableStrategy for Between<F> {
    fn handle(&self, result: &Result<Response, reqwest_middleware::Error>) -> Option<Retryable> {
        let decision = DefaultRetryableStrategy.handle(result);
        if decision.is_some() {
            (self.0)();
        }
        decision
    }
}

fn asking(between: impl Fn() + Send + Sync + 'static, limiter: &Limiter) -> reqwest_middleware::ClientWithMiddleware {
    let retries = RetryTransientMiddleware::new_with_policy_and_strategy(backoff(3), Between(between));
    ClientBuilder::new(plain()).with(retries).with(InflightLimitMiddleware::new(limiter.clone())).build()
}

/// Case 130.
#[tokio::test]
async fn a_call_that_backs_off_holds_no_slot() {
    let limiter = limiter(1);
    let server = Server::in_turn(flaky(2)).await;
    let lane = lane_of(&limiter, &server);
    let free = Arc::new(Mutex::new(Vec::new()));
    let between = {
        let free = free.clone();
        move || free.lock().unwrap().push(lane.try_acquire(Priority::Bulk).is_ok())
    };
    let response = within(chat(&asking(between, &limiter), &server).send()).await.expect("an answer");
    assert_eq!(response.text().await.expect("whole"), "fine");
    assert_eq!(*free.lock().unwrap(), [true, true]);
    assert_idle(&limiter);
}

/// A call that came between the attempts of another waits behind it.
#[tokio::test]
async fn a_retried_call_keeps_its_first_arrival_and_counts_its_attempts() {
    let limiter = limiter(1);
    let server = Server::in_turn(flaky(1)).await;
    let later = Arc::new(Mutex::new(None));
    let between = {
        let (later, lane) = (later.clone(), lane_of(&limiter, &server));
        move || *later.lock().unwrap() = Some(queue_behind_a_holder(&lane))
    };
    let client = asking(between, &limiter);
    let call = tokio::spawn(chat(&client, &server).send());
    eventually("both wait", || queued(&limiter) == 2).await;
    let (holder, mut later) = later.lock().unwrap().take().expect("asked");
    drop(holder);
    let response = within(call).await.expect("no panic").expect("an answer");
    let admitted = response.extensions().get::<Admitted>().expect("admitted");
    assert_eq!(admitted.attempt(), 2);
    assert!(admitted.position().is_some(), "it waited, and went first");
    assert!(futures_util::poll!(&mut later).is_pending(), "the later call waits");
    drop(response);
    drop(within(later).await.expect("its turn"));
    assert_idle(&limiter);
}

type Waiting = std::pin::Pin<Box<tower_inflight::Acquire>>;

/// Takes the free slot, and puts one more call in line.
fn queue_behind_a_holder(lane: &Lane) -> (Permit, Waiting) {
    let holder = lane.try_acquire(Priority::Default).expect("a free slot");
    let mut later = Box::pin(lane.acquire(Call::new(Priority::Default)));
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(later.as_mut().poll(&mut cx).is_pending());
    (holder, later)
}

/// Class and deadline too, when they were named.
#[tokio::test]
async fn each_attempt_of_a_named_call_is_that_call() {
    let limiter = limiter(1);
    let server = Server::in_turn(flaky(2)).await;
    let call = Call::new(Priority::Interactive);
    let request = chat(&retrying(3, limiter.clone()), &server).with_extension(call.clone());
    let response = within(request.send()).await.expect("an answer");
    let admitted = response.extensions().get::<Admitted>().expect("admitted");
    assert_eq!((admitted.attempt(), admitted.priority()), (3, Priority::Interactive));
    assert_eq!(call.attempts(), 3);
}

/// Cases 85 and 30.
#[tokio::test]
async fn a_queue_timeout_is_found_and_not_retried() {
    for has_retries in [false, true] {
        let timeout = Duration::from_secs(300);
        let limiter = Limiter::builder().max_inflight(1).queue_timeout(timeout).build().expect("valid");
        let server = Server::answering(Reply::ok()).await;
        let client = if has_retries { retrying(3, limiter.clone()) } else { chain(plain(), limiter.clone()) };
        let held = lane_of(&limiter, &server).try_acquire(Priority::Default).expect("a slot");
        let call = tokio::spawn(chat(&client, &server).send());
        eventually("it queues", || queued(&limiter) == 1).await;
        pass(timeout).await;
        let error = within(call).await.expect("no panic").expect_err("refused");
        assert!(error.is_middleware());
        let rejected = Rejected::find(&error).expect("ours");
        assert_eq!((rejected.kind(), rejected.waited()), (RejectKind::QueueTimeout, timeout));
        assert_eq!(rejected.lane(), lane_of(&limiter, &server).key());
        assert_eq!((lane(&limiter).offered, server.counts().total), (2, 0), "one attempt, never sent");
        drop(held);
        assert_idle(&limiter);
    }
}

/// Case 85: every kind of refusal.
#[tokio::test]
async fn a_full_queue_a_deadline_and_a_closed_limiter_are_told_apart_after_retries() {
    let limiter = Limiter::builder().max_inflight(1).max_queue(0).build().expect("valid");
    let server = Server::answering(Reply::ok()).await;
    let client = retrying(3, limiter.clone());
    let kind = |error: reqwest_middleware::Error| Rejected::find(&error).expect("ours").kind();
    let held = lane_of(&limiter, &server).try_acquire(Priority::Default).expect("a slot");
    let full = kind(within(chat(&client, &server).send()).await.expect_err("refused"));
    assert_eq!(full, RejectKind::QueueFull(tower_inflight::QueueBound::Lane));
    let late = Call::new(Priority::Default).with_timeout(Duration::ZERO);
    let late = kind(within(chat(&client, &server).with_extension(late).send()).await.expect_err("refused"));
    assert_eq!(late, RejectKind::Deadline);
    drop(held);
    limiter.close();
    let closed = kind(within(chat(&client, &server).send()).await.expect_err("refused"));
    assert_eq!(closed, RejectKind::Closed);
    assert_eq!(server.counts().total, 0);
    assert_idle(&limiter);
}

/// Case 85.
#[tokio::test]
async fn an_open_breaker_is_found_and_not_retried() {
    let breaker = BreakerConfig { min_calls: 1, ..BreakerConfig::default() };
    let limiter = Limiter::builder().max_inflight(1).breaker(breaker).build().expect("valid");
    let server = Server::answering(Reply::whole(500, "broken")).await;
    within(chat(&chain(plain(), limiter.clone()), &server).send()).await.expect("an answer");
    let error = within(chat(&retrying(3, limiter.clone()), &server).send()).await.expect_err("refused");
    let rejected = Rejected::find(&error).expect("ours");
    assert_eq!((rejected.kind(), rejected.lane()), (RejectKind::BreakerOpen, lane_of(&limiter, &server).key()));
    assert_eq!((lane(&limiter).offered, server.counts().total), (2, 1), "one attempt, never sent");
    assert_idle(&limiter);
}

/// Case 132.
#[tokio::test]
async fn the_limiter_never_retries_by_itself() {
    for (retries, calls) in [(0, 1), (3, 4)] {
        let limiter = limiter(1);
        let server = Server::answering(Reply::whole(429, "{}")).await;
        let response = within(chat(&retrying(retries, limiter.clone()), &server).send()).await.expect("an answer");
        assert_eq!((response.status().as_u16(), server.counts().total), (429, calls));
        assert_idle(&limiter);
    }
}

/// A real 429 pauses its lane; what comes next waits, or is told how long if it cannot.
#[tokio::test]
async fn a_429_with_retry_after_pauses_the_lane() {
    let limiter = limiter(2);
    let server = Server::answering(Reply::whole(429, "{}").header("retry-after", "60")).await;
    let client = chain(plain(), limiter.clone());
    let response = chat(&client, &server).send().await.expect("an answer");
    assert_eq!(response.headers()["retry-after"], "60");
    assert!(lane(&limiter).paused_until_s.is_some_and(|left| left > 0.0));

    let waiting = tokio::spawn(chat(&client, &server).send());
    eventually("the next call waits", || queued(&limiter) == 1).await;
    let impatient = Call::new(Priority::Interactive).with_timeout(Duration::from_secs(30));
    let error = within(chat(&client, &server).with_extension(impatient).send()).await.expect_err("too late");
    let rejected = Rejected::find(&error).expect("ours");
    assert_eq!(rejected.kind(), RejectKind::Paused);
    assert!(rejected.retry_after().is_some_and(|left| left > Duration::from_secs(30)));
    assert_eq!((in_flight(&limiter), server.counts().total), (0, 1));
    waiting.abort();
    assert!(waiting.await.is_err());
    assert_idle(&limiter);
}

#[tokio::test]
async fn a_retry_that_comes_back_during_the_pause_waits_for_its_end() {
    let limiter = limiter(1);
    let refusal = Reply::whole(429, "{}").header("retry-after", "60");
    let server = Server::in_turn([refusal, Reply::whole(200, "fine")]).await;
    let call = tokio::spawn(chat(&retrying(2, limiter.clone()), &server).send());
    eventually("it is back", || queued(&limiter) == 1).await;
    assert_eq!((in_flight(&limiter), server.counts().total), (0, 1));
    pass(Duration::from_secs(120)).await;
    let response = within(call).await.expect("no panic").expect("an answer");
    let admitted = response.extensions().get::<Admitted>().expect("admitted").clone();
    assert_eq!(response.text().await.expect("whole"), "fine");
    assert_eq!((admitted.attempt(), admitted.position()), (2, Some(1)));
    assert_idle(&limiter);
}

/// Notes whether the request can still be cloned where it is sent.
#[derive(Clone, Default)]
struct Cloneable(Arc<Mutex<Vec<bool>>>);

#[async_trait::async_trait]
impl Middleware for Cloneable {
    async fn handle(
        &self,
        request: Request,
        extensions: &mut Extensions,
        next: Next<'_>,
    ) -> reqwest_middleware::Result<Response> {
        self.0.lock().unwrap().push(request.try_clone().is_some());
        next.run(request, extensions).await
    }
}

/// Case 135.
#[tokio::test]
async fn both_attempts_send_the_same_bytes_and_stay_cloneable_below_the_limiter() {
    let limiter = limiter(1);
    let server = Server::in_turn([Reply::whole(429, "{}"), Reply::whole(200, "fine")]).await;
    let cloneable = Cloneable::default();
    let client = ClientBuilder::new(plain())
        .with(RetryTransientMiddleware::new_with_policy(backoff(2)))
        .with(InflightLimitMiddleware::new(limiter.clone()))
        .with(cloneable.clone())
        .build();
    within(chat(&client, &server).send()).await.expect("an answer");
    let seen = server.requests();
    assert_eq!(seen.len(), 2);
    assert_eq!(seen[0].body, super::support::JSON);
    assert_eq!((&seen[0].body, &seen[0].headers), (&seen[1].body, &seen[1].headers));
    assert_eq!(*cloneable.0.lock().unwrap(), [true, true]);
}
