//! Q6: numbers, and where they can be seen.

use std::collections::BTreeMap;

use http::{Method, Request};
use http_body_util::BodyExt;
use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};
use tower::ServiceExt;
use tower_inflight::RunStatsService;

use super::*;

#[tokio::test(start_paused = true)]
async fn stats_say_who_runs_queues_and_has_lent_in_all_and_by_user() {
    let (queue, limiter) = (slots(1), limiter());
    let _slot = hold(&limiter);
    let lender = start(&queue, "ann");
    let _call = wait_in_lane(&limiter, &lender).await;
    let _others = ["bob", "bob", "cyd"].map(|user| start(&queue, user));
    let mut stats = queue.stats();
    assert_eq!((stats.running, stats.queued, stats.lent), (1, 2, 1));
    stats.users.sort_by(|a, b| a.user.cmp(&b.user));
    let users: Vec<_> = stats.users.iter().map(|user| (&*user.user, user.running, user.queued, user.lent)).collect();
    assert_eq!(users, [("ann", 0, 0, 1), ("bob", 1, 1, 0), ("cyd", 0, 1, 0)]);
}

#[tokio::test]
async fn stats_are_served_as_json() {
    let queue = slots(1);
    let _runs = ["ann", "bob"].map(|user| start(&queue, user));
    let ask = |method: Method| {
        let request = Request::builder().method(method).uri("/concurrency/stats").body(()).expect("a request");
        RunStatsService::new(queue.clone()).oneshot(request)
    };
    let Ok(response) = ask(Method::GET).await;
    assert_eq!(response.headers()["content-type"], "application/json");
    let body = response.into_body().collect().await.expect("it is there").to_bytes();
    let json: serde_json::Value = serde_json::from_slice(&body).expect("JSON");
    assert_eq!((&json["running"], &json["queued"], &json["lent"]), (&1.into(), &1.into(), &0.into()));
    assert_eq!((&json["max_concurrent_runs"], &json["max_queue_depth"]), (&1.into(), &32.into()));
    let Ok(refused) = ask(Method::POST).await;
    assert_eq!(refused.status(), 405);
}

/// By name and label.
fn series(snapshotter: &Snapshotter) -> BTreeMap<String, DebugValue> {
    let named = |key: &metrics::Key| {
        let labels: Vec<_> = key.labels().map(|label| label.value().to_owned()).collect();
        format!("{} {}", key.name(), labels.join(" ")).trim_end().to_owned()
    };
    snapshotter.snapshot().into_vec().into_iter().map(|(key, _, _, value)| (named(key.key()), value)).collect()
}

#[test]
fn metrics_tell_of_runs_by_status_of_waits_and_of_refusals() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    metrics::with_local_recorder(&recorder, || {
        let queue = queue(|queue| queue.max_concurrent_runs(1).max_queue_depth(1));
        let running = start(&queue, "ann");
        let waiting = start(&queue, "bob");
        assert!(queue.start(of("cyd")).is_err());
        let seen = series(&snapshotter);
        assert_eq!(seen["llm_runs running"], DebugValue::Gauge(1.0.into()));
        assert_eq!(seen["llm_runs queued"], DebugValue::Gauge(1.0.into()));
        assert_eq!(seen["llm_run_backpressure_total max_queue_depth"], DebugValue::Counter(1));
        running.finish().expect("it ran");
        drop(waiting);
        let seen = series(&snapshotter);
        assert_eq!(seen["llm_runs running"], DebugValue::Gauge(0.0.into()));
        assert_eq!(seen["llm_runs_total finished"], DebugValue::Counter(1));
        assert_eq!(seen["llm_runs_total cancelled"], DebugValue::Counter(1));
        assert!(matches!(&seen["llm_run_wait_seconds"], DebugValue::Histogram(waits) if waits.len() == 1));
    });
}
