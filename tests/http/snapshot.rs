//! What the snapshot shows, to the letter.

use http::{Method, Request};
use http_body_util::BodyExt;
use serde_json::Value;
use tower::ServiceExt;
use tower_inflight::{Admitted, Call, InflightLimitLayer, Limiter, Priority, SnapshotService};

use crate::support::*;

fn json(limiter: &Limiter) -> String {
    serde_json::to_string(&limiter.snapshot()).unwrap()
}

fn of(priority: Priority) -> Query {
    with(chat(), Call::new(priority))
}

/// Six in flight, one of them interactive; two default and seven bulk calls in line.
async fn busy_lane() -> (Limiter, Vec<Reply>, Vec<tokio::task::JoinHandle<Result<Reply, tower_inflight::BoxError>>>) {
    let limiter = Limiter::builder().max_inflight(6).interactive_reserve(1).build().unwrap();
    let client = answering(&limiter, |_| ok(endless()));
    let mut held = Vec::new();
    for priority in [Priority::Default; 5].into_iter().chain([Priority::Interactive]) {
        held.push(send_query(&client, of(priority)).await.unwrap());
    }
    let mut queued = Vec::new();
    for priority in [Priority::Default; 2].into_iter().chain([Priority::Bulk; 7]) {
        queued.push(spawned(&client, of(priority)).await);
    }
    (limiter, held, queued)
}

#[tokio::test(start_paused = true)]
async fn the_json_is_the_promised_one() {
    let (limiter, _held, _queued) = busy_lane().await;
    sleep(12.4).await;
    let json = json(&limiter);
    let (head, lanes) = json.split_once(",\"lanes\":").unwrap();
    assert!(head.starts_with("{\"enabled\":true,\"generated_at\":\"20") && head.ends_with("Z\""), "{head}");
    let promised = concat!(
        r#"[{"lane":"https://gw.example/v1|m","limit":6,"reserve":1,"inflight":6,"queued":9,"#,
        r#""queued_by_priority":{"interactive":0,"default":2,"bulk":7},"oldest_wait_s":12.4,"wait_p50_s_5m":0.0,"#,
        r#""wait_p90_s_5m":0.0,"queue_timeouts_5m":0,"saturated":false"#,
    );
    assert!(lanes.starts_with(promised), "{lanes}");
}

#[tokio::test(start_paused = true)]
async fn a_limiter_that_is_off_says_so_and_touches_nothing() {
    let limiter = limiter(0);
    let client = answering(&limiter, |_| status(429, endless()));
    let reply = send(&client).await.unwrap();
    assert!(reply.extensions().get::<Admitted>().is_none());
    assert_eq!(json(&limiter), r#"{"enabled":false}"#);
    let layer = InflightLimitLayer::new(limiter.clone()).lane_by(|_| panic!("no lane is asked for"));
    let upstream = tower::service_fn(|_: Query| std::future::ready(Ok::<_, Reset>(ok(Script::new([data("a")])))));
    let client = Client::new(tower_layer::Layer::layer(&layer, upstream));
    let all = futures_util::future::join_all((0..100).map(|_| fetch(&client))).await;
    assert!(all.into_iter().all(|body| body.unwrap() == "a"));
    assert_eq!(limiter.snapshot().lanes, []);
}

#[tokio::test(start_paused = true)]
async fn a_lane_is_saturated_after_a_minute_without_a_break() {
    let limiter = limiter(1);
    let client = answering(&limiter, |_| ok(endless()));
    let held = send(&client).await.unwrap();
    let first = spawned(&client, chat()).await;
    sleep(59.9).await;
    assert!(!lane(&limiter).saturated);
    sleep(0.2).await;
    assert!(lane(&limiter).saturated);

    // The queue is empty for a moment.
    first.abort();
    settled().await;
    assert!(!lane(&limiter).saturated);
    let second = spawned(&client, chat()).await;
    sleep(59.9).await;
    assert!(!lane(&limiter).saturated);
    drop(held);
    drop(second.await);
    assert!(!lane(&limiter).saturated);
}

#[tokio::test(start_paused = true)]
async fn waits_are_shown_as_they_were() {
    let limiter = slots(1).queue_timeout(std::time::Duration::from_secs(50)).build().unwrap();
    let client = answering(&limiter, |_| ok(Script::new([wait(40)])));
    let calls = futures_util::future::join_all((0..3).map(|_| fetch(&client))).await;
    assert_eq!(calls.iter().filter(|call| call.is_ok()).count(), 2);
    let shown = lane(&limiter);
    assert_eq!(shown.queue_timeouts_5m, 1);
    assert!((39.0..=46.0).contains(&shown.wait_p90_s_5m), "{shown:?}");
    sleep(310.0).await;
    assert_eq!((lane(&limiter).queue_timeouts_5m, lane(&limiter).wait_p90_s_5m), (0, 0.0));
}

// Case 143.
#[tokio::test(start_paused = true)]
async fn running_and_waiting_are_told_apart() {
    let limiter = limiter(1);
    let client = answering(&limiter, |_| ok(Script::new([data("a"), wait(1)])));
    let mut calls = Vec::new();
    for _ in 0..10 {
        let client = client.clone();
        calls.push(tokio::spawn(async move { fetch(&client).await }));
    }
    settled().await;
    assert_eq!(figures(&limiter), (1, 9));
    calls.drain(7..).for_each(|call| call.abort());
    settled().await;
    assert_eq!(figures(&limiter), (1, 6));
    for call in calls {
        call.await.unwrap().unwrap();
    }
    assert_eq!(figures(&limiter), (0, 0));
    assert_eq!(lane(&limiter).abandoned, 3);
    assert_idle(&limiter);
}

// Case 142.
#[tokio::test(start_paused = true)]
async fn open_streams_are_in_flight_until_each_ends() {
    let limiter = limiter(8);
    let client = answering(&limiter, |_| ok(endless()));
    let mut open = Vec::new();
    for _ in 0..5 {
        open.push(send(&client).await.unwrap());
    }
    for left in (0..5).rev() {
        assert_eq!(in_flight(&limiter), left + 1);
        open.pop();
        assert_eq!(in_flight(&limiter), left);
    }
}

/// O5.
#[tokio::test(start_paused = true)]
async fn a_response_says_how_it_came_to_be_sent() {
    let limiter = limiter(1);
    let client = answering(&limiter, |_| ok(Script::new([wait(7)])));
    let first = send_query(&client, of(Priority::Interactive)).await.unwrap();
    let admitted: &Admitted = first.extensions().get().unwrap();
    assert_eq!((admitted.position(), admitted.attempt(), admitted.waited().as_secs()), (None, 1, 0));
    assert_eq!(admitted.priority(), Priority::Interactive);

    let reading = tokio::spawn(read(first));
    let ahead = spawned(&client, of(Priority::Interactive)).await;
    let reply = tokio::spawn({
        let client = client.clone();
        async move { send_query(&client, of(Priority::Bulk)).await }
    });
    settled().await;
    drop(read(ahead.await.unwrap().unwrap()).await);
    let reply = reply.await.unwrap().unwrap();
    let admitted: &Admitted = reply.extensions().get().unwrap();
    assert_eq!((admitted.position(), admitted.attempt(), admitted.waited().as_secs()), (Some(2), 1, 14));
    assert_eq!((admitted.lane().to_string().as_str(), admitted.priority()), (LANE, Priority::Bulk));
    reading.await.unwrap().unwrap();
}

/// Refusals too were admitted once.
#[tokio::test(start_paused = true)]
async fn an_error_answer_also_says_how_it_came_to_be_sent() {
    for code in [302, 404, 429, 503] {
        let client = answering(&limiter(1), move |_| status(code, Script::new([data("no")])));
        assert!(send(&client).await.unwrap().extensions().get::<Admitted>().is_some());
    }
}

async fn ask(limiter: &Limiter, method: Method) -> http::Response<http_body_util::Full<bytes::Bytes>> {
    let request = Request::builder().method(method).uri("/api/telemetry/llm-lanes").body(()).unwrap();
    SnapshotService::new(limiter.clone()).oneshot(request).await.unwrap()
}

/// O3.
#[tokio::test(start_paused = true)]
async fn the_snapshot_is_served() {
    let (limiter, _held, _queued) = busy_lane().await;
    for method in [Method::GET, Method::HEAD] {
        let response = ask(&limiter, method).await;
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "application/json");
        assert_eq!(response.headers()["cache-control"], "no-store");
        let body = response.into_body().collect().await.unwrap().to_bytes();
        let json: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(json["lanes"][0]["queued_by_priority"]["bulk"], 7);
    }
}

/// O3.
#[tokio::test]
async fn only_looking_is_allowed() {
    for method in [Method::POST, Method::PUT, Method::DELETE] {
        let response = ask(&limiter(1), method).await;
        assert_eq!(response.status(), 405);
        assert_eq!(response.headers()["allow"], "GET, HEAD");
    }
}
