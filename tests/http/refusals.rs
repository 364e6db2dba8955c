//! Answers that are no success: what they count as, and that they keep no slot.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::Response;
use http_body_util::BodyExt;
use tower_inflight::{BodyHints, InflightLimitLayer, Limiter, Outcome, ProviderClassify};
use tower_layer::Layer;

use crate::support::*;

fn json(code: u16, body: &'static str) -> Response<Script> {
    let mut response = status(code, Script::new([data(body)]).sized().telling_end());
    response.headers_mut().insert("content-type", "application/json".parse().unwrap());
    response
}

const QUOTA: &str = r#"{"error":{"message":"...","type":"insufficient_quota","code":"insufficient_quota"}}"#;
const OVERLOADED: &str = r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#;

/// The caller has the answer in its hands and has read nothing of it.
async fn in_flight_with_answer(code: u16, body: fn() -> Script) -> (u32, Limiter) {
    let limiter = limiter(1);
    let client = answering(&limiter, move |_| status(code, body()));
    let _reply = send(&client).await.unwrap();
    (in_flight(&limiter), limiter)
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_no_success_gives_its_slot_back_at_the_head() {
    let bodies: [fn() -> Script; 4] = [
        || Script::new([data("slow down")]).sized().telling_end(),
        || Script::new([data("slow down")]),
        endless,
        || Script::new([Step::Fail(reset(1))]),
    ];
    let expected = [
        (301, Outcome::Success),
        (400, Outcome::ClientError),
        (402, Outcome::Quota),
        (404, Outcome::ClientError),
        (429, Outcome::Overload),
        (500, Outcome::ServerError),
        (502, Outcome::Unavailable),
        (503, Outcome::Unavailable),
        (529, Outcome::Overload),
    ];
    for ((code, outcome), body) in expected.into_iter().flat_map(|answer| bodies.map(|body| (answer, body))) {
        let (held, limiter) = in_flight_with_answer(code, body).await;
        assert_eq!(held, 0, "{code}");
        assert_eq!(outcomes(&limiter), only(outcome, 1), "{code}");
        assert_idle(&limiter);
    }
}

#[tokio::test(start_paused = true)]
async fn dropping_a_refusal_unread_counts_nothing_more() {
    let limiter = limiter(1);
    let client = answering(&limiter, |_| status(503, endless()));
    drop(send(&client).await.unwrap());
    assert_eq!(outcomes(&limiter), only(Outcome::Unavailable, 1));
}

/// Calls, and keeps a refusal for so long before it calls again, as retry layers do.
async fn patient(client: Client, secs: f64) -> Reply {
    let reply = send(&client).await.unwrap();
    if reply.status().is_success() {
        return reply;
    }
    sleep(secs).await;
    let again = send(&client).await.unwrap();
    drop(reply);
    again
}

/// Refuses the first call in this way and answers all others.
fn refusing_first(limiter: &Limiter, refusal: fn() -> Response<Script>) -> Client {
    let calls = Arc::new(AtomicUsize::new(0));
    answering(limiter, move |_| match calls.fetch_add(1, Ordering::Relaxed) {
        0 => refusal(),
        _ => ok(Script::new([data("fine")])),
    })
}

// Case 130.
#[tokio::test(start_paused = true)]
async fn nobody_sleeps_in_a_slot_between_two_attempts() {
    let limiter = limiter(1);
    let client = refusing_first(&limiter, || status(503, endless()));
    let retrier = tokio::spawn(patient(client.clone(), 5.0));
    sleep(1.0).await;
    let start = now();
    assert_eq!(fetch(&client).await.unwrap(), "fine");
    assert_eq!(since(start), 0.0);
    assert_eq!(read(retrier.await.unwrap()).await.unwrap(), "fine");
    assert_idle(&limiter);
}

// Case 131.
#[tokio::test(start_paused = true)]
async fn a_refusal_kept_alive_for_long_blocks_nobody() {
    let limiter = limiter(1);
    let client = refusing_first(&limiter, || status(429, Script::new([data("x".repeat(60))]).sized().telling_end()));
    let retrier = tokio::spawn(patient(client.clone(), 30.0));
    sleep(1.0).await;
    let start = now();
    assert_eq!(fetch(&client).await.unwrap(), "fine");
    assert_eq!(since(start), 0.0);
    retrier.await.unwrap();
}

// Case 77.
#[tokio::test(start_paused = true)]
async fn a_refusal_whose_body_never_ends_reaches_the_caller_soon_and_whole() {
    let limiter = limiter(1);
    let client = answering(&limiter, |_| status(429, Script::new([data("0123456789"), wait(30), data("rest")])));
    let start = now();
    let reply = send(&client).await.unwrap();
    assert!(since(start) <= 0.25, "{}", since(start));
    assert_idle(&limiter);
    assert_eq!(outcomes(&limiter), only(Outcome::Overload, 1));
    assert_eq!(read(reply).await.unwrap(), "0123456789rest");
    assert!(since(start) >= 30.0);
}

// Case 77.
#[tokio::test(start_paused = true)]
async fn a_large_refusal_is_known_by_its_first_bytes_and_arrives_whole() {
    let filler = "x".repeat(64 * 1024);
    let first = format!("{{\"error\":{{\"code\":\"insufficient_quota\",\"message\":\"{filler}");
    let steps = move || {
        let mut steps = vec![data(first.clone())];
        steps.extend((0..31).map(|_| data(filler.clone())));
        steps.push(data("\"}}"));
        steps
    };
    let polls = Arc::new(AtomicUsize::new(0));
    let limiter = limiter(1);
    let client = answering(&limiter, {
        let (steps, polls) = (steps.clone(), polls.clone());
        move |_| status(429, Script::new(steps()).counted_by(&polls))
    });
    let reply = send(&client).await.unwrap();
    assert!(polls.load(Ordering::Relaxed) <= 1, "no more than it takes");
    assert_eq!(outcomes(&limiter), only(Outcome::Quota, 1));
    let sent: Vec<u8> =
        steps().iter().flat_map(|step| if let Step::Data(data) = step { data.to_vec() } else { vec![] }).collect();
    assert!(read(reply).await.unwrap() == sent);
}

// Case 77.
#[tokio::test(start_paused = true)]
async fn an_error_behind_a_refusal_is_for_the_caller_to_read() {
    let limiter = limiter(1);
    let client = answering(&limiter, |_| status(429, Script::new([data("half"), Step::Fail(reset(5))])));
    let mut reply = send(&client).await.unwrap();
    assert_eq!(outcomes(&limiter), only(Outcome::Overload, 1));
    assert_eq!(reply.body_mut().frame().await.unwrap().unwrap().into_data().unwrap(), "half");
    let error = reply.body_mut().frame().await.unwrap().unwrap_err();
    assert_eq!(error.downcast_ref::<Reset>().unwrap().id, 5);
}

// Case 77.
#[tokio::test(start_paused = true)]
async fn the_trailers_of_a_refusal_arrive() {
    let client = answering(&limiter(1), |_| status(429, Script::new([data("no"), trailers()])));
    let collected = send(&client).await.unwrap().into_body().collect().await.unwrap();
    assert_eq!(collected.trailers().unwrap()["grpc-status"], "0");
    assert_eq!(collected.to_bytes(), "no");
}

// Case 77.
#[tokio::test(start_paused = true)]
async fn a_refusal_that_says_nothing_is_judged_by_its_status() {
    for body in ["", "<html>too many requests</html>", "[", "{\"error\":"] {
        let limiter = limiter(1);
        let client = answering(&limiter, move |_| json(429, body));
        assert_eq!(fetch(&client).await.unwrap(), body);
        assert_eq!(outcomes(&limiter), only(Outcome::Overload, 1), "{body}");
    }
}

/// Nothing of the lane changed but its counts.
fn assert_untouched(limiter: &Limiter, limit: u32) {
    let lane = lane(limiter);
    assert_eq!((lane.limit, lane.paused_until_s), (limit, None));
}

// Case 75.
#[tokio::test(start_paused = true)]
async fn an_empty_account_is_no_overload() {
    let limiter = limiter(4);
    let client = answering(&limiter, |_| {
        let mut refusal = json(429, QUOTA);
        refusal.headers_mut().insert("retry-after", "60".parse().unwrap());
        refusal
    });
    for _ in 0..20 {
        let reply = send(&client).await.unwrap();
        assert_eq!(reply.status(), 429);
        assert_eq!(read(reply).await.unwrap(), QUOTA);
    }
    assert_untouched(&limiter, 4);
    assert_eq!(outcomes(&limiter), only(Outcome::Quota, 20));
}

// Case 78.
#[tokio::test(start_paused = true)]
async fn a_529_is_an_overload_with_or_without_a_pause() {
    for (retry_after, pause) in [(None, None), (Some("3"), Some(3.0))] {
        let limiter = limiter(4);
        let client = answering(&limiter, move |_| {
            let mut refusal = json(529, OVERLOADED);
            if let Some(after) = retry_after {
                refusal.headers_mut().insert("retry-after", after.parse().unwrap());
            }
            refusal
        });
        let reply = send(&client).await.unwrap();
        assert_eq!(reply.status(), 529);
        assert_eq!(read(reply).await.unwrap(), OVERLOADED);
        assert_eq!(outcomes(&limiter), only(Outcome::Overload, 1));
        match pause {
            Some(pause) => assert_paused(&limiter, pause),
            None => assert_untouched(&limiter, lane(&limiter).limit),
        }
    }
}

// Case 80.
#[tokio::test(start_paused = true)]
async fn client_errors_say_nothing_about_the_upstream() {
    for code in [400, 401, 403, 404, 409, 413, 422] {
        let limiter = limiter(4);
        let client = answering(&limiter, move |_| {
            let mut refusal = json(code, r#"{"error":{"type":"invalid_request_error"}}"#);
            refusal.headers_mut().insert("retry-after", "60".parse().unwrap());
            refusal
        });
        for _ in 0..100 {
            fetch(&client).await.unwrap();
        }
        assert_untouched(&limiter, 4);
        assert_eq!(outcomes(&limiter), only(Outcome::ClientError, 100));
    }
}

#[tokio::test(start_paused = true)]
async fn a_success_never_pauses_a_lane() {
    let limiter = limiter(4);
    let client = answering(&limiter, |_| {
        let mut response = ok(Script::new([data("a")]));
        response.headers_mut().insert("retry-after", "30".parse().unwrap());
        response.headers_mut().insert("x-ratelimit-remaining-tokens", "0".parse().unwrap());
        response.headers_mut().insert("x-ratelimit-reset-tokens", "6m0s".parse().unwrap());
        response
    });
    fetch(&client).await.unwrap();
    assert_untouched(&limiter, 4);
}

#[tokio::test(start_paused = true)]
async fn a_pause_in_the_body_counts_if_it_was_asked_for() {
    const HINT: &str = r#"{"error":{"details":[{"retryDelay":"34.07s"}]}}"#;
    for (hints, pause) in [(BodyHints::Ignore, None), (BodyHints::Honour, Some(34.07))] {
        let limiter = limiter(1);
        let layer = InflightLimitLayer::new(limiter.clone()).classify(ProviderClassify::new().body_hints(hints));
        let upstream = tower::service_fn(|_: Query| std::future::ready(Ok::<_, Reset>(json(503, HINT))));
        let client = Client::new(layer.layer(upstream));
        assert_eq!(fetch(&client).await.unwrap(), HINT);
        match pause {
            Some(pause) => assert_paused(&limiter, pause),
            None => assert_untouched(&limiter, lane(&limiter).limit),
        }
    }
}
