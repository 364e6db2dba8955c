//! Many calls, large bodies.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt;
use tower_inflight::Model;

use crate::support::*;

const MIB: usize = 1024 * 1024;

// Case 157.
#[tokio::test(start_paused = true)]
async fn queued_bodies_are_held_by_reference() {
    let limiter = limiter(1);
    let pointers: Arc<Mutex<Vec<usize>>> = Arc::default();
    let client = client(&limiter, {
        let pointers = pointers.clone();
        move |query: Query| {
            let pointers = pointers.clone();
            async move {
                let body = query.into_body().collect().await.unwrap().to_bytes();
                pointers.lock().unwrap().push(body.as_ptr().addr());
                Ok(ok(Script::new([data("a")])))
            }
        }
    });
    let body = Bytes::from(format!(r#"{{"messages":["{}"],"model":"m"}}"#, "A".repeat(5 * MIB)));
    let held = send(&client).await.unwrap();
    let mut queued = Vec::new();
    for n in 0..500 {
        let mut query = post("/v1/chat/completions", body.clone());
        // A few are scanned; all of them would take a debug build its time.
        if n % 25 != 0 {
            query.extensions_mut().insert(Model::new("m"));
        }
        queued.push(tokio::spawn(tower::ServiceExt::oneshot(client.clone(), query)));
    }
    while figures(&limiter) != (1, 500) {
        tokio::task::yield_now().await;
    }
    drop(held);
    for call in queued {
        drop(call.await.unwrap().unwrap());
    }
    let pointers = pointers.lock().unwrap();
    assert_eq!(pointers.len(), 501);
    assert!(pointers[1..].iter().all(|&at| at == body.as_ptr().addr()));
    assert_idle(&limiter);
}

/// What a body keeps alive is gone as soon as its call is.
#[tokio::test(start_paused = true)]
async fn a_call_given_up_in_line_frees_its_body() {
    let limiter = limiter(1);
    let client = answering(&limiter, |_| ok(endless()));
    let held = send(&client).await.unwrap();
    let body = Bytes::from(vec![b'x'; MIB]);
    let queued = spawned(&client, post("/v1/chat/completions", body.clone())).await;
    let other = spawned(&client, with(post("/v1/chat/completions", body.clone()), Model::new("m"))).await;
    assert!(!body.is_unique());
    queued.abort();
    other.abort();
    settled().await;
    assert!(body.is_unique());
    drop(held);
}

// Case 154.
#[tokio::test(start_paused = true)]
async fn waiters_that_time_out_leave_nothing_behind_a_long_holder() {
    const WAITERS: u32 = 20_000;
    let limiter = slots(1).max_queue(50_000).max_queue_total(50_000).queue_timeout(Duration::from_secs(7_200));
    let limiter = limiter.build().unwrap();
    let client = answering(&limiter, |_| ok(Script::new([data("a")])));
    let held = send(&client).await.unwrap();
    let live = spawned(&client, chat()).await;
    let hurried = tower_inflight::Call::new(tower_inflight::Priority::Default).with_timeout(Duration::from_millis(10));
    let waiters: Vec<_> = (0..WAITERS)
        .map(|_| tokio::spawn(tower::ServiceExt::oneshot(client.clone(), with(chat(), hurried.clone()))))
        .collect();
    while figures(&limiter) != (1, WAITERS + 1) {
        tokio::task::yield_now().await;
    }
    sleep(0.1).await;
    for waiter in waiters {
        assert!(waiter.await.unwrap().is_err());
    }
    assert_eq!(figures(&limiter), (1, 1));
    sleep(3_600.0).await;
    let start = now();
    drop(held);
    live.await.unwrap().unwrap();
    assert_eq!(since(start), 0.0);
    assert_idle(&limiter);
    assert_eq!(lane(&limiter).refused["deadline"], u64::from(WAITERS));
}
