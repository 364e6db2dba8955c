//! Answers that are passed on through a bounded buffer.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http_body_util::BodyExt;
use tower_inflight::{Abandoned, Relay, bounded_relay};

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
