//! A slot comes back once, whatever happens to the call.

use std::error::Error;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::SystemTime;

use http::Response;
use http::response::Parts;
use http_body_util::BodyExt;
use tower::Service;
use tower_inflight::{Classify, InflightLimitLayer, LaneKey, Limiter, Outcome, Verdict};
use tower_layer::Layer;

use crate::support::*;

/// Of two calls started together exactly one runs.
async fn assert_one_slot(limiter: &Limiter) {
    let client = answering(limiter, |_| ok(endless()));
    let first = spawned(&client, chat()).await;
    let second = spawned(&client, chat()).await;
    assert_eq!(figures(limiter), (1, 1));
    second.abort();
    drop(first.await);
    settled().await;
    assert_idle(limiter);
}

// Case 7.
#[tokio::test]
async fn polling_on_after_the_end_releases_nothing_more() {
    let scripts: [fn() -> Script; 5] = [
        || Script::new([data("a")]),
        || Script::new([data("a"), Step::Fail(reset(1))]),
        || Script::new([data("a"), trailers()]),
        || Script::new([data("a")]).sized().telling_end(),
        || Script::new([data("data: [DONE]\n\n")]),
    ];
    for script in scripts {
        let limiter = limiter(1);
        let client = answering(&limiter, move |_| ok(script()));
        let mut reply = send(&client).await.unwrap();
        for _ in 0..5 {
            let _ = reply.body_mut().frame().await;
            assert!(in_flight(&limiter) <= 1);
        }
        drop(reply);
        assert_idle(&limiter);
        assert_eq!(lane(&limiter).outcomes.values().sum::<u64>(), 1);
        assert_one_slot(&limiter).await;
    }
}

/// The other call waits in line while this one panics, and gets the slot.
async fn assert_panic_costs_one_task(limiter: &Limiter, panicking: &Client) {
    let bystander = limiter.try_acquire(&LaneKey::new("local", "b"), tower_inflight::Priority::Default).unwrap();
    let healthy = answering(limiter, |_| ok(Script::new([data("fine")])));
    let panicking = panicking.clone();
    let (start, started) = tokio::sync::oneshot::channel::<()>();
    let held = limiter.try_acquire(&LaneKey::new("https://gw.example/v1", "m"), tower_inflight::Priority::Default);
    let task = tokio::spawn(async move {
        started.await.unwrap();
        fetch(&panicking).await
    });
    start.send(()).unwrap();
    settled().await;
    let waiter = tokio::spawn(async move { fetch(&healthy).await });
    settled().await;
    drop(held);
    assert!(task.await.unwrap_err().is_panic());
    assert_eq!(waiter.await.unwrap().unwrap(), "fine");
    drop(bystander);
    assert_idle(limiter);
    let lanes = limiter.snapshot().lanes;
    let lane = lanes.iter().find(|lane| lane.lane == LANE).unwrap();
    assert_eq!(lane.outcomes["cancelled"], 2, "the permit held first, and the call that panicked");
    assert_eq!(lane.outcomes["success"], 1);
}

#[derive(Clone)]
struct PanicsWhenCalled;

impl Service<Query> for PanicsWhenCalled {
    type Response = Response<Script>;
    type Error = Reset;
    type Future = std::future::Ready<Result<Response<Script>, Reset>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Reset>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Query) -> Self::Future {
        panic!("the service panics")
    }
}

// Case 8.
#[tokio::test]
async fn a_panic_in_the_inner_service_costs_one_task() {
    let limiter = limiter(1);
    let client = over(&limiter, PanicsWhenCalled);
    assert_panic_costs_one_task(&limiter, &client).await;
}

// Case 8.
#[tokio::test]
async fn a_panic_in_the_inner_future_costs_one_task() {
    let limiter = limiter(1);
    let client = client(&limiter, |_| async { panic!("the future panics") });
    assert_panic_costs_one_task(&limiter, &client).await;
}

// Case 8.
#[tokio::test]
async fn a_panic_in_the_body_costs_one_task() {
    let limiter = limiter(1);
    let client = answering(&limiter, |_| ok(Script::new([data("a"), Step::Panic])));
    assert_panic_costs_one_task(&limiter, &client).await;
}

// Case 8.
#[tokio::test]
async fn a_panic_in_an_error_body_costs_one_task() {
    let limiter = limiter(1);
    let client = answering(&limiter, |_| status(429, Script::new([data("a"), Step::Panic])));
    assert_panic_costs_one_task(&limiter, &client).await;
}

// Case 8.
#[tokio::test]
async fn a_panic_while_the_body_is_dropped_costs_one_task() {
    let limiter = limiter(1);
    let body = || Script::new([data("a"), Step::Fail(reset(1))]).at_drop(|| panic!("the drop panics"));
    let client = answering(&limiter, move |_| ok(body()));
    assert_panic_costs_one_task(&limiter, &client).await;
}

type Answer = fn() -> Result<Response<Script>, tower_inflight::BoxError>;

struct PanicsOnce(AtomicBool);

impl Classify for PanicsOnce {
    fn response(&self, _: &Parts, _: &[u8], _: SystemTime) -> Verdict {
        assert!(self.0.swap(true, Ordering::Relaxed), "the classifier panics");
        Outcome::Success.into()
    }

    fn error(&self, _: &(dyn Error + 'static)) -> Verdict {
        assert!(self.0.swap(true, Ordering::Relaxed), "the classifier panics");
        Outcome::Transport.into()
    }
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_the_classifier_costs_one_task() {
    let answers: [Answer; 3] = [|| Ok(ok(endless())), || Ok(status(404, endless())), || Err(reset(1).into())];
    for answer in answers {
        let limiter = limiter(1);
        let layer = InflightLimitLayer::new(limiter.clone()).classify(PanicsOnce(AtomicBool::new(false)));
        let client = Client::new(layer.layer(tower::service_fn(move |_: Query| std::future::ready(answer()))));
        let first = tokio::spawn({
            let client = client.clone();
            async move { send(&client).await.map(drop) }
        });
        assert!(first.await.unwrap_err().is_panic());
        assert_eq!(outcomes(&limiter), only(Outcome::Cancelled, 1));
        let _ = send(&client).await;
        assert_idle(&limiter);
    }
}
