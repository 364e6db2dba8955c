//! What a request carries of its call's deadline.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{HeaderMap, HeaderName, Response};
use tower::util::BoxCloneSyncService;
use tower::{Service, service_fn};
use tower_inflight::{Call, Deadline, InflightLimitLayer, Limiter, Priority, RejectKind, Scope};
use tower_layer::Layer;

use crate::support::*;

const NAME: HeaderName = HeaderName::from_static("x-time-left-ms");

/// What the upstream was told: by extension, and by header.
type Told = Arc<Mutex<Vec<(Option<Deadline>, HeaderMap)>>>;

/// An upstream that takes a second, and remembers what it was told.
fn listening(layer: &InflightLimitLayer) -> (Client, Told) {
    let told = Told::default();
    let heard = told.clone();
    let upstream = service_fn(move |query: Query| {
        let (head, _) = query.into_parts();
        heard.lock().unwrap().push((head.extensions.get().copied(), head.headers));
        async {
            sleep(1.0).await;
            Ok::<_, std::convert::Infallible>(Response::new(Script::new([data("fine")])))
        }
    });
    (BoxCloneSyncService::new(layer.layer(upstream)), told)
}

fn telling(limiter: &Limiter) -> InflightLimitLayer {
    InflightLimitLayer::new(limiter.clone()).deadline_header(NAME)
}

fn until(secs: u64) -> Call {
    Call::new(Priority::Default).with_timeout(Duration::from_secs(secs))
}

#[tokio::test(start_paused = true)]
async fn the_time_that_remains_goes_on_with_the_request() {
    let limiter = limiter(1);
    let (client, told) = listening(&telling(&limiter));
    let start = now();
    let first = spawned(&client, chat()).await;
    let second = spawned(&client, with(chat(), until(10))).await;
    read(first.await.unwrap().unwrap()).await.unwrap();
    read(second.await.unwrap().unwrap()).await.unwrap();

    let told = told.lock().unwrap();
    assert_eq!(told[0], (None, HeaderMap::new()), "it has no deadline");
    let (deadline, headers) = &told[1];
    assert_eq!(deadline.expect("it has one").at(), start + Duration::from_secs(10));
    assert_eq!(headers[NAME], "9000", "a second was spent in the queue");
}

#[tokio::test(start_paused = true)]
async fn without_the_option_the_headers_are_the_callers() {
    let (client, told) = listening(&InflightLimitLayer::new(limiter(1)));
    send_query(&client, with(chat(), until(10))).await.unwrap();
    let told = told.lock().unwrap();
    assert!(told[0].0.is_some() && told[0].1.is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_earlier_of_the_deadlines_of_call_and_scope_goes_on() {
    for (call, scope) in [(10, 5), (5, 10)] {
        let (client, told) = listening(&telling(&limiter(1)));
        let scope = Scope::new().with_timeout(Duration::from_secs(scope));
        scope.run(send_query(&client, with(chat(), until(call)))).await.unwrap();
        assert_eq!(told.lock().unwrap()[0].1[NAME], "5000");
    }
}

#[tokio::test(start_paused = true)]
async fn calls_that_are_not_limited_are_told_too() {
    let (client, told) = listening(&telling(&limiter(1)));
    let embedding = post("/v1/embeddings", r#"{"model":"m","input":"hi"}"#);
    send_query(&client, with(embedding, until(10))).await.unwrap();
    assert_eq!(told.lock().unwrap()[0].1[NAME], "10000");
}

// Case 28.
#[tokio::test(start_paused = true)]
async fn a_call_whose_deadline_passed_in_the_queue_is_never_sent() {
    let limiter = limiter(1);
    let (mut client, told) = listening(&telling(&limiter));
    let busy = send(&client).await.unwrap();
    let late = client.call(with(chat(), until(1)));
    assert_eq!(reject_kind(late.await), RejectKind::Deadline);
    drop(busy);
    sleep(5.0).await;
    assert_eq!(told.lock().unwrap().len(), 1);
    assert_idle(&limiter);
}

// Case 29.
#[tokio::test(start_paused = true)]
async fn a_queue_timeout_does_not_count_once_the_call_is_sent() {
    let limiter = slots(1).queue_timeout(Duration::from_millis(100)).build().unwrap();
    let client = client(&limiter, |_| async {
        sleep(0.5).await;
        Ok(Response::new(Script::new([data("a"), wait(2), data("b")])))
    });
    assert_eq!(fetch(&client).await.unwrap(), "ab");
    assert_idle(&limiter);
}

#[tokio::test(start_paused = true)]
async fn a_hopeless_call_is_refused_with_both_estimates_and_is_not_sent() {
    let limiter = limiter(1);
    let (client, told) = listening(&telling(&limiter));
    let reading = |query: Query| {
        let client = client.clone();
        tokio::spawn(async move { read(send_query(&client, query).await?).await })
    };
    let calls: Vec<_> = (0..40).map(|_| reading(with(chat(), until(1_000)))).collect();
    for call in calls {
        call.await.unwrap().unwrap();
    }
    let sent = told.lock().unwrap().len();
    let ahead: Vec<_> = (0..5).map(|_| reading(chat())).collect();
    settled().await;
    let rejected = rejected(send_query(&client, with(chat(), until(4))).await);
    assert_eq!(rejected.kind(), RejectKind::DeadlineUnreachable);
    assert_eq!(rejected.predicted_wait(), Some(Duration::from_secs(5)));
    assert_eq!(rejected.predicted_service(), Some(Duration::from_secs(1)));
    for call in ahead {
        call.await.unwrap().unwrap();
    }
    assert_eq!(told.lock().unwrap().len(), sent + 5);
    assert_idle(&limiter);
}
