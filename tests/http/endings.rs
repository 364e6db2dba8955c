//! Where the slot comes back, one body per ending, and as what the call counts.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::Request;
use http_body_util::{BodyExt, Full};
use tower_inflight::{LaneKey, Limiter, Outcome};

use crate::support::*;

async fn open(script: Script) -> (Limiter, Reply) {
    respond(ok(script)).await
}

async fn respond(response: http::Response<Script>) -> (Limiter, Reply) {
    let limiter = limiter(1);
    let response = Arc::new(std::sync::Mutex::new(Some(response)));
    let client = answering(&limiter, move |_| response.lock().unwrap().take().unwrap());
    let reply = send(&client).await.unwrap();
    (limiter, reply)
}

/// Calls in flight at the head and after each of so many reads.
async fn in_flight_by_read(script: Script, reads: usize) -> (Vec<u32>, Limiter) {
    let (limiter, mut reply) = open(script).await;
    let mut seen = vec![in_flight(&limiter)];
    for _ in 0..reads {
        let _ = reply.body_mut().frame().await;
        seen.push(in_flight(&limiter));
    }
    (seen, limiter)
}

#[tokio::test]
async fn a_body_of_unknown_length_ends_with_none() {
    let (seen, limiter) = in_flight_by_read(Script::new([data("a"), data("b")]), 3).await;
    assert_eq!(seen, [1, 1, 1, 0]);
    assert_eq!(outcomes(&limiter), only(Outcome::Success, 1));
}

#[tokio::test]
async fn a_body_that_says_so_ends_with_its_last_frame() {
    let (seen, limiter) = in_flight_by_read(Script::new([data("a"), data("b")]).sized().telling_end(), 2).await;
    assert_eq!(seen, [1, 1, 0]);
    assert_eq!(outcomes(&limiter), only(Outcome::Success, 1));
}

// Case 40.
#[tokio::test]
async fn a_body_with_trailers_ends_with_them() {
    let (seen, limiter) = in_flight_by_read(Script::new([data("x"), trailers()]), 2).await;
    assert_eq!(seen, [1, 1, 0]);
    assert_eq!(outcomes(&limiter), only(Outcome::Success, 1));
}

// Case 40.
#[tokio::test]
async fn a_body_of_trailers_alone_ends_with_them() {
    let (seen, limiter) = in_flight_by_read(Script::new([trailers()]), 2).await;
    assert_eq!(seen, [1, 0, 0]);
    assert_eq!(outcomes(&limiter), only(Outcome::Success, 1));
}

/// An h2 body with a length and trailers has a frame left when no bytes are.
#[tokio::test]
async fn no_bytes_left_is_not_the_end_while_trailers_may_come() {
    let (seen, limiter) = in_flight_by_read(Script::new([data("hello"), trailers()]).sized().telling_end(), 2).await;
    assert_eq!(seen, [1, 1, 0]);
    assert_eq!(outcomes(&limiter), only(Outcome::Success, 1));
}

#[tokio::test]
async fn a_chunked_and_empty_body_ends_with_none() {
    let (seen, limiter) = in_flight_by_read(Script::new([]), 1).await;
    assert_eq!(seen, [1, 0]);
    assert_eq!(outcomes(&limiter), only(Outcome::Success, 1));
}

#[tokio::test]
async fn empty_frames_are_no_end() {
    let (seen, _) = in_flight_by_read(Script::new([data(""), data("x"), data("")]), 4).await;
    assert_eq!(seen, [1, 1, 1, 1, 0]);
}

#[tokio::test]
async fn an_answer_without_a_body_holds_nothing_after_its_head() {
    let over = Script::new([]).telling_end();
    let empty = Script::new([]).sized();
    let bodies = [ok(over), ok(empty), status(204, endless()), status(304, endless())];
    for response in bodies {
        let (limiter, _reply) = respond(response).await;
        assert_eq!(figures(&limiter), (0, 0));
        assert_eq!(outcomes(&limiter), only(Outcome::Success, 1));
    }
}

/// Over h2 its `size_hint` still says what a GET would give.
#[tokio::test]
async fn the_answer_to_a_head_request_holds_nothing() {
    let limiter = limiter(1);
    let client = answering(&limiter, |_| ok(Script::new([data("0123456789")]).sized()));
    let lane = LaneKey::new("https://gw.example/v1", "m");
    let head = Request::head("https://gw.example/v1/models").extension(lane).body(Full::default()).unwrap();
    let _reply = send_query(&client, head).await.unwrap();
    assert_eq!(outcomes(&limiter), only(Outcome::Success, 1));
    assert_idle(&limiter);
}

// Case 38.
#[tokio::test]
async fn a_body_read_in_full_and_dropped_is_a_success() {
    let hello = || Script::new([data("he"), data("llo")]).sized();
    for script in [hello(), hello().telling_end()] {
        let (limiter, mut reply) = open(script).await;
        for _ in 0..2 {
            reply.body_mut().frame().await.unwrap().unwrap();
        }
        drop(reply);
        assert_eq!(outcomes(&limiter), only(Outcome::Success, 1));
        assert_idle(&limiter);
    }
}

#[tokio::test]
async fn a_body_of_known_length_dropped_before_its_end_is_cancelled() {
    let (limiter, mut reply) = open(Script::new([data("he"), data("llo")]).sized()).await;
    reply.body_mut().frame().await.unwrap().unwrap();
    drop(reply);
    assert_eq!(outcomes(&limiter), only(Outcome::Cancelled, 1));
    assert_idle(&limiter);
}

// Case 42.
#[tokio::test]
async fn an_error_in_mid_body_ends_the_call_once_and_for_all() {
    let polls = Arc::new(AtomicUsize::new(0));
    let steps = [data("a"), data("b"), Step::Fail(reset(7)), data("never")];
    let (limiter, mut reply) = open(Script::new(steps).counted_by(&polls)).await;
    let body = reply.body_mut();
    body.frame().await.unwrap().unwrap();
    body.frame().await.unwrap().unwrap();
    let error = body.frame().await.unwrap().unwrap_err();
    assert_eq!(in_flight(&limiter), 0);

    let error = error.downcast::<Reset>().expect("the body's own error");
    assert_eq!(error.id, 7);
    let cause = std::error::Error::source(&*error).unwrap().downcast_ref::<std::io::Error>().unwrap();
    assert_eq!(cause.kind(), std::io::ErrorKind::ConnectionReset);

    for _ in 0..3 {
        assert!(body.frame().await.is_none());
    }
    assert_eq!(polls.load(Ordering::Relaxed), 3);
    drop(reply);
    assert_eq!(outcomes(&limiter), only(Outcome::Transport, 1));
}

#[tokio::test]
async fn a_stream_dropped_half_way_is_cancelled() {
    let (limiter, mut reply) = open(endless()).await;
    reply.body_mut().frame().await.unwrap().unwrap();
    drop(reply);
    assert_eq!(outcomes(&limiter), only(Outcome::Cancelled, 1));
    assert_idle(&limiter);
}

#[tokio::test]
async fn a_stream_dropped_unread_is_cancelled() {
    let (limiter, reply) = open(endless()).await;
    drop(reply);
    assert_eq!(outcomes(&limiter), only(Outcome::Cancelled, 1));
    assert_idle(&limiter);
}

/// Reads all that comes at once, then drops the body while the transport has not said that it is over.
async fn after_the_last_event(frames: &[&'static str]) -> Limiter {
    let steps = frames.iter().copied().map(data).chain([Step::Silence]);
    let (limiter, mut reply) = open(Script::new(steps)).await;
    for _ in frames {
        reply.body_mut().frame().await.unwrap().unwrap();
    }
    assert_eq!(in_flight(&limiter), 1, "held until the body ends or is dropped");
    drop(reply);
    assert_idle(&limiter);
    limiter
}

#[tokio::test]
async fn a_stream_dropped_after_its_last_event_is_a_success() {
    let streams: [&[&str]; 5] = [
        &["data: {\"choices\":[]}\n\n", "data: [DONE]\n\n"],
        &["data: {\"choices\":[]}\n\ndata: [DONE]\r\n\r\n"],
        &["event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"],
        // The blank line that ends the event comes by itself.
        &["data: [DONE]", "\n\n"],
        &["data: [DONE]\n", "\n", ""],
    ];
    for stream in streams {
        let limiter = after_the_last_event(stream).await;
        assert_eq!(outcomes(&limiter), only(Outcome::Success, 1), "{stream:?}");
    }
}

#[tokio::test]
async fn a_stream_that_goes_on_after_what_looked_like_its_end_is_cancelled() {
    let limiter = after_the_last_event(&["data: {\"text\":\"say [DONE]", " to end\"}\n\n"]).await;
    assert_eq!(outcomes(&limiter), only(Outcome::Cancelled, 1));
}

#[tokio::test]
async fn an_error_after_the_last_event_is_still_an_error() {
    let (limiter, reply) = open(Script::new([data("data: [DONE]\n\n"), Step::Fail(reset(1))])).await;
    assert!(read(reply).await.is_err());
    assert_eq!(outcomes(&limiter), only(Outcome::Transport, 1));
}

#[tokio::test(start_paused = true)]
async fn a_call_dropped_before_the_head_is_cancelled() {
    let limiter = limiter(1);
    let client = client(&limiter, |_| std::future::pending());
    let call = spawned(&client, chat()).await;
    assert_eq!(in_flight(&limiter), 1);
    call.abort();
    settled().await;
    assert_eq!(outcomes(&limiter), only(Outcome::Cancelled, 1));
    assert_idle(&limiter);
}

/// Of a gateway that says 200 to everything, and how it went in a header.
struct InAHeader;

impl tower_inflight::Classify for InAHeader {
    fn response(&self, head: &http::response::Parts, _: &[u8], _: std::time::SystemTime) -> tower_inflight::Verdict {
        if head.headers.contains_key("x-failed") { Outcome::ServerError.into() } else { Outcome::Success.into() }
    }

    fn error(&self, _: &(dyn std::error::Error + 'static)) -> tower_inflight::Verdict {
        Outcome::Transport.into()
    }
}

#[tokio::test]
async fn what_the_classifier_says_of_a_head_stands_when_its_body_has_ended_well() {
    use tower_layer::Layer;

    let limiter = limiter(1);
    let layer = tower_inflight::InflightLimitLayer::new(limiter.clone()).classify(InAHeader);
    let client = Client::new(layer.layer(tower::service_fn(|_: Query| {
        let mut response = ok(Script::new([data("a"), data("b")]));
        response.headers_mut().insert("x-failed", http::HeaderValue::from_static("1"));
        std::future::ready(Ok::<_, Reset>(response))
    })));
    fetch(&client).await.unwrap();
    assert_eq!(outcomes(&limiter), only(Outcome::ServerError, 1));
}
