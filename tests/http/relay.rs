//! Answers that are passed on through a bounded buffer.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt;
use tower_inflight::{Abandoned, Relay, RelayBody, bounded_relay};

use crate::support::*;

const PIECE: &str = "0123456789";

fn pieces(count: usize, read: &Arc<AtomicUsize>) -> Script {
    Script::new((0..count).map(|_| data(PIECE))).counted_by(read)
}

#[tokio::test(start_paused = true)]
async fn a_relayed_answer_is_the_same_bytes_trailers_and_error() {
    let limiter = limiter(1);
    let reply = send(&answering(&limiter, |_| ok(Script::new([data("a"), data("b"), trailers()])))).await.unwrap();
    let whole = bounded_relay(reply.into_body(), 1).collect().await.unwrap();
    assert!(whole.trailers().is_some());
    assert_eq!(whole.to_bytes(), "ab");
    let reply = send(&answering(&limiter, |_| ok(Script::new([data("a"), Step::Fail(reset(7))])))).await.unwrap();
    let error = bounded_relay(reply.into_body(), 1_000).collect().await.unwrap_err();
    assert_eq!(error.downcast_ref::<Reset>().map(|reset| reset.id), Some(7));
    assert_idle(&limiter);
}

#[tokio::test(start_paused = true)]
async fn a_short_answer_frees_its_slot_before_it_is_read() {
    let limiter = limiter(1);
    let reply = send(&answering(&limiter, |_| ok(Script::new([data("a"), data("b")])))).await.unwrap();
    let body = bounded_relay(reply.into_body(), 1_000);
    settled().await;
    assert_eq!(in_flight(&limiter), 0);
    assert_eq!(body.collect().await.unwrap().to_bytes(), "ab");
}

#[tokio::test(start_paused = true)]
async fn a_full_buffer_stops_the_reading() {
    let (limiter, read) = (limiter(1), Arc::default());
    let reply = send(&answering(&limiter, {
        let read = Arc::clone(&read);
        move |_| ok(pieces(100, &read))
    }))
    .await
    .unwrap();
    let mut body = bounded_relay(reply.into_body(), 5 * PIECE.len());
    settled().await;
    assert_eq!(read.load(Ordering::Relaxed), 6, "five in the buffer, and one in hand");
    body.frame().await.unwrap().unwrap();
    settled().await;
    assert_eq!(read.load(Ordering::Relaxed), 7);
    assert_eq!(in_flight(&limiter), 1);
    assert_eq!(body.collect().await.unwrap().to_bytes().len(), 99 * PIECE.len());
    assert_idle(&limiter);
}

// S8.
#[tokio::test(start_paused = true)]
async fn a_reader_that_neither_reads_nor_leaves_loses_the_answer_and_the_slot_is_free() {
    let limiter = limiter(1);
    let closed = Arc::new(AtomicUsize::new(0));
    let client = answering(&limiter, {
        let closed = closed.clone();
        move |_| {
            let closed = closed.clone();
            let script = Script::new((0..100).map(|_| data(PIECE)));
            ok(script.at_drop(move || {
                closed.fetch_add(1, Ordering::Relaxed);
            }))
        }
    });
    let reply = send(&client).await.unwrap();
    let relay = Relay::new(2 * PIECE.len()).consumer_timeout(Duration::from_secs(30));
    let mut body = relay.spawn(reply.into_body());
    sleep(29.0).await;
    assert_eq!((in_flight(&limiter), closed.load(Ordering::Relaxed)), (1, 0));
    body.frame().await.unwrap().unwrap();
    sleep(29.0).await;
    assert_eq!(in_flight(&limiter), 1, "it was read meanwhile");
    sleep(2.0).await;
    assert_eq!((in_flight(&limiter), closed.load(Ordering::Relaxed)), (0, 1));
    let error = body.collect().await.unwrap_err();
    assert_eq!(error.downcast_ref::<Abandoned>().map(Abandoned::after), Some(Duration::from_secs(30)));
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_leaves_takes_the_answer_with_it() {
    for read_one in [false, true] {
        let limiter = limiter(1);
        let reply = send(&answering(&limiter, |_| ok(endless()))).await.unwrap();
        let mut body = bounded_relay(reply.into_body(), 4);
        settled().await;
        if read_one {
            body.frame().await.unwrap().unwrap();
        }
        drop(body);
        settled().await;
        assert_idle(&limiter);
    }
}

const EVENT: &str =
    "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"},\"finish_reason\":null}],\"usage\":null}\n\n";

/// After a reader took so many events of an endless answer, through a buffer for four more, and left.
async fn tokens_after(event: &'static str, taken: usize, leave: impl AsyncFnOnce(RelayBody<Bytes>)) -> (u64, u64) {
    let limiter = limiter(1);
    let client = answering(&limiter, move |_| ok(Script::new((0..1_000).map(|_| data(event)))));
    let reply = send(&client).await.unwrap();
    // Wrappers of anybody's may be in between.
    let body = reply.into_body().map_frame(|frame| frame).boxed_unsync();
    let relay = Relay::new(4 * event.len()).consumer_timeout(Duration::from_secs(30));
    let mut body = relay.spawn(body);
    for _ in 0..taken {
        body.frame().await.unwrap().unwrap();
    }
    settled().await;
    leave(body).await;
    settled().await;
    assert_idle(&limiter);
    let lane = lane(&limiter);
    (lane.tokens_after_hangup, lane.outcomes["cancelled"])
}

// O1: tokens delivered after the caller hung up.
#[tokio::test(start_paused = true)]
async fn what_was_read_ahead_for_a_reader_that_left_is_counted() {
    let leave = async |body| drop(body);
    assert_eq!(tokens_after(EVENT, 0, leave).await, (5, 1), "four in the buffer, and one in hand");
    assert_eq!(tokens_after(EVENT, 7, leave).await, (5, 1));
    assert_eq!(tokens_after(PIECE, 7, leave).await, (5, 1), "pieces, where nobody knows their tokens");
    let stay = async |body| {
        sleep(31.0).await;
        drop(body);
    };
    assert_eq!(tokens_after(EVENT, 7, stay).await, (5, 1), "one that was given up");
}

#[tokio::test(start_paused = true)]
async fn nothing_comes_after_a_reader_that_took_all_or_that_leaves_an_answer_without_a_relay() {
    let limiter = limiter(1);
    let events = || ok(Script::new([data(EVENT), data(EVENT), data("data: [DONE]\n\n")]));
    let client = answering(&limiter, move |_| events());
    let body = bounded_relay(send(&client).await.unwrap().into_body(), 10_000);
    body.collect().await.unwrap();
    let body = bounded_relay(send(&client).await.unwrap().into_body(), 10_000);
    settled().await;
    drop(body);
    settled().await;
    let mut reply = send(&client).await.unwrap();
    reply.body_mut().frame().await.unwrap().unwrap();
    drop(reply);
    assert_idle(&limiter);
    assert_eq!(lane(&limiter).tokens_after_hangup, 0);
}
