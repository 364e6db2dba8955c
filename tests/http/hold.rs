//! The slot is held from the call to the end of the body, and at no other time.

use std::time::Duration;

use http_body_util::BodyExt;
use tower::timeout::TimeoutLayer;
use tower::{ServiceBuilder, ServiceExt, service_fn};
use tower_inflight::{Call, InflightLimitLayer, Kind, Outcome, Priority, RejectKind};
use tower_layer::Layer;

use crate::support::*;

// Case 1.
#[tokio::test(start_paused = true)]
async fn a_stream_given_up_half_way_gives_its_slot_back_every_time() {
    let limiter = limiter(1);
    let client = answering(&limiter, |_| ok(endless()));
    let start = now();
    for _ in 0..1_000 {
        let mut reply = send(&client).await.unwrap();
        reply.body_mut().frame().await.unwrap().unwrap();
        reply.body_mut().frame().await.unwrap().unwrap();
    }
    assert_eq!(since(start), 0.0);
    assert_idle(&limiter);
    assert_eq!(outcomes(&limiter), only(Outcome::Cancelled, 1_000));
}

const KINDS: [Kind; 5] = [Kind::Chat, Kind::Embedding, Kind::Image, Kind::Audio, Kind::Other];

// Case 2.
#[tokio::test(start_paused = true)]
async fn the_slot_comes_back_on_every_route() {
    let routes = [
        "/v1/chat/completions",
        "/v1/messages",
        "/v1/responses",
        "/v1/embeddings",
        "/v1/batches",
        "/v1/files",
        "/v1beta/models/m:generateContent",
        "/api/chat",
    ];
    let bodies: [fn() -> Script; 2] = [
        || Script::new([data("{}")]).sized().telling_end(),
        || Script::new([data("data: 1\n\n"), data("data: 2\n\n")]),
    ];
    let limiter = limiter(2);
    let layer = InflightLimitLayer::new(limiter.clone()).limit_kinds(KINDS);
    for (route, body) in routes.into_iter().flat_map(|route| bodies.map(|body| (route, body))) {
        let client = Client::new(layer.layer(service_fn(move |_| std::future::ready(Ok::<_, Reset>(ok(body()))))));
        for _ in 0..10 {
            let reply = send_query(&client, post(route, r#"{"model":"m"}"#)).await.unwrap();
            read(reply).await.unwrap();
        }
    }
    assert_idle(&limiter);
    let lanes = limiter.snapshot().lanes;
    let ended: u64 = lanes.iter().map(|lane| lane.outcomes["success"]).sum();
    assert_eq!(ended, 160);
    assert!(lanes.iter().all(|lane| lane.wait_p90_s_5m == 0.0));
}

// Case 3.
#[tokio::test(start_paused = true)]
async fn an_outage_of_the_upstream_pins_no_slot() {
    let limiter = limiter(10);
    let failing = client(&limiter, |_| async { Err(reset(1).into()) });
    let gone = answering(&limiter, |_| status(504, Script::new([Step::Fail(reset(2))])));
    for _ in 0..10 {
        assert!(send(&failing).await.is_err());
    }
    let mut replies = Vec::new();
    for _ in 0..10 {
        replies.push(send(&gone).await.unwrap());
    }
    assert_idle(&limiter);
    for reply in replies {
        assert!(read(reply).await.is_err());
    }
    let healthy = answering(&limiter, |_| ok(Script::new([data("fine")])));
    assert_eq!(fetch(&healthy).await.unwrap(), "fine");
    let outcomes = outcomes(&limiter);
    assert_eq!((outcomes["transport"], outcomes["unavailable"], outcomes["success"]), (10, 10, 1));
    assert_idle(&limiter);
}

// Case 10.
#[tokio::test(start_paused = true)]
async fn a_ready_clone_holds_nothing() {
    let limiter = limiter(1);
    let client = answering(&limiter, |_| ok(Script::new([data("fine")])));
    let mut ready = Vec::new();
    for _ in 0..1_000 {
        let mut clone = client.clone();
        clone.ready().await.unwrap();
        ready.push(clone);
    }
    assert_eq!(fetch(&client).await.unwrap(), "fine");
    drop(ready);
    assert_idle(&limiter);
}

// Case 14.
#[tokio::test(start_paused = true)]
async fn a_call_behind_its_own_callers_stream_is_told_so() {
    let limiter = slots(1).queue_timeout(Duration::from_millis(500)).build().unwrap();
    let client = answering(&limiter, |_| ok(Script::new([data("a"), wait(2), data("b")])));
    let mut parent = send(&client).await.unwrap();
    parent.body_mut().frame().await.unwrap().unwrap();

    let start = now();
    let rejected = rejected(send(&client).await);
    assert_eq!(since(start), 0.5);
    assert_eq!(rejected.kind(), RejectKind::QueueTimeout);
    assert_eq!((rejected.lane().to_string().as_str(), rejected.in_flight()), (LANE, 1));
    assert_eq!((rejected.waited(), rejected.position()), (Duration::from_millis(500), Some(1)));

    assert_eq!(read(parent).await.unwrap(), "b");
    assert_idle(&limiter);
}

// Case 15.
#[tokio::test(start_paused = true)]
async fn the_slot_is_not_free_at_the_head() {
    let limiter = limiter(1);
    let client = answering(&limiter, |_| ok(Script::new([wait(10), data("a")])));
    let start = now();
    let first = tokio::spawn({
        let client = client.clone();
        async move { fetch(&client).await }
    });
    sleep(1.0).await;
    let second = send(&client).await.unwrap();
    assert_eq!(since(start), 10.0);
    assert_eq!(in_flight(&limiter), 1);
    drop((first.await, second));
    assert_idle(&limiter);
}

// Case 29.
#[tokio::test(start_paused = true)]
async fn the_queue_timeout_does_not_bound_the_call() {
    let limiter = slots(1).queue_timeout(Duration::from_millis(100)).build().unwrap();
    let client = client(&limiter, |_| async {
        sleep(0.5).await;
        Ok(ok(Script::new([wait(1), data("a"), wait(1), data("b")])))
    });
    assert_eq!(fetch(&client).await.unwrap(), "ab");
    assert_eq!(outcomes(&limiter), only(Outcome::Success, 1));
}

// Case 46.
#[tokio::test(start_paused = true)]
async fn a_deadline_for_the_queue_does_not_cut_a_stream() {
    let minute = Duration::from_secs(60);
    let limiter = slots(1).queue_timeout(minute).build().unwrap();
    let client = answering(&limiter, |_| ok(Script::new((0..120).flat_map(|_| [wait(1), data("x")]))));
    let call = Call::new(Priority::Default).with_timeout(minute);
    let reply = send_query(&client, with(chat(), call)).await.unwrap();
    assert_eq!(read(reply).await.unwrap().len(), 120);
    assert_eq!(outcomes(&limiter), only(Outcome::Success, 1));
}

// Case 140.
#[tokio::test(start_paused = true)]
async fn a_timeout_outside_cancels_the_call_and_frees_the_slot_together() {
    let limiter = limiter(1);
    let never = service_fn(|_: Query| std::future::pending::<Result<http::Response<Script>, Reset>>());
    let client = ServiceBuilder::new()
        .layer(TimeoutLayer::new(Duration::from_secs(1)))
        .layer(InflightLimitLayer::new(limiter.clone()))
        .service(never);
    let start = now();
    let error = client.oneshot(chat()).await.err().unwrap();
    assert!(error.is::<tower::timeout::error::Elapsed>());
    assert_eq!(since(start), 1.0);
    assert_idle(&limiter);
    assert_eq!(outcomes(&limiter), only(Outcome::Cancelled, 1));
}

// Case 140.
#[tokio::test(start_paused = true)]
async fn a_timeout_inside_does_not_count_the_wait_for_the_slot() {
    let limiter = limiter(1);
    let answer = service_fn(|query: Query| async move {
        if query.headers().contains_key("never") {
            std::future::pending::<()>().await;
        }
        Ok::<_, Reset>(ok(Script::new([data("a"), wait(10), data("b")])))
    });
    let client = ServiceBuilder::new()
        .layer(InflightLimitLayer::new(limiter.clone()))
        .layer(TimeoutLayer::new(Duration::from_secs(1)))
        .service(answer);
    let client = Client::new(client);
    let first = tokio::spawn({
        let client = client.clone();
        async move { fetch(&client).await }
    });
    settled().await;
    let start = now();
    assert_eq!(fetch(&client).await.unwrap(), "ab");
    assert_eq!(since(start), 20.0);
    first.await.unwrap().unwrap();

    let mut late = chat();
    late.headers_mut().insert("never", "1".parse().unwrap());
    let error = send_query(&client, late).await.err().unwrap();
    assert!(error.is::<tower::timeout::error::Elapsed>());
    assert_eq!(outcomes(&limiter)["transport"], 1);
    assert_idle(&limiter);
}

/// Readiness is driven on the instance that is then called, after the grant.
#[tokio::test(start_paused = true)]
async fn the_instance_that_was_made_ready_is_the_one_called() {
    let limiter = limiter(4);
    let client = over(
        &limiter,
        tower::limit::ConcurrencyLimit::new(
            service_fn(|_: Query| async {
                sleep(1.0).await;
                Ok::<_, Reset>(ok(Script::new([data("a")])))
            }),
            1,
        ),
    );
    let start = now();
    let all = futures_util::future::join_all((0..4).map(|_| fetch(&client))).await;
    assert!(all.iter().all(Result::is_ok));
    assert_eq!(since(start), 4.0);
    assert_idle(&limiter);
}
