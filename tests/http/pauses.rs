//! "Not before T", as the next in line feels it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{HeaderValue, Response};
use tower_inflight::{Call, Limiter, Priority, RejectKind};

use crate::support::*;

/// An upstream that notes when it was called, in seconds, and answers the calls in turn.
fn noting(
    limiter: &Limiter,
    answer: impl Fn(usize) -> Response<Script> + Clone + Send + Sync + 'static,
) -> (Client, Arc<Mutex<Vec<f64>>>) {
    let called: Arc<Mutex<Vec<f64>>> = Arc::default();
    let start = now();
    let client = answering(limiter, {
        let called = called.clone();
        move |_| {
            let mut called = called.lock().unwrap();
            called.push(since(start));
            answer(called.len())
        }
    });
    (client, called)
}

fn fine() -> Response<Script> {
    ok(Script::new([data("fine")]))
}

/// S4.
#[tokio::test(start_paused = true)]
async fn a_refusal_pauses_the_lane_before_its_slot_goes_to_the_next() {
    let limiter = limiter(1);
    let calls = Arc::new(AtomicUsize::new(0));
    let called: Arc<Mutex<Vec<f64>>> = Arc::default();
    let start = now();
    let client = client(&limiter, {
        let called = called.clone();
        move |_| {
            called.lock().unwrap().push(since(start));
            let is_first = calls.fetch_add(1, Ordering::Relaxed) == 0;
            async move {
                if !is_first {
                    return Ok(fine());
                }
                sleep(1.0).await;
                Ok(busy("30"))
            }
        }
    });
    let mut queued = Vec::new();
    for _ in 0..5 {
        queued.push(spawned(&client, chat()).await);
    }
    sleep(1.5).await;
    assert_eq!(figures(&limiter), (0, 4));
    assert_paused(&limiter, 29.5);
    for call in queued {
        read(call.await.unwrap().unwrap()).await.unwrap();
    }
    let called = called.lock().unwrap();
    assert_eq!(called.len(), 5);
    assert_eq!(called[0], 0.0);
    assert!(called[1..].iter().all(|&at| at >= 31.0), "{called:?}");
    assert_idle(&limiter);
}

// Case 72.
#[tokio::test(start_paused = true)]
async fn the_later_of_two_pauses_stands() {
    for order in [["300", "1"], ["1", "300"]] {
        let limiter = slots(3).queue_timeout(Duration::from_secs(400)).build().unwrap();
        let calls = Arc::new(AtomicUsize::new(0));
        let client = client(&limiter, move |_| {
            let call = calls.fetch_add(1, Ordering::Relaxed);
            async move {
                match call {
                    0 => {
                        sleep(0.001).await;
                        Ok(busy(order[0]))
                    }
                    1 => {
                        sleep(0.01).await;
                        Ok(busy(order[1]))
                    }
                    2 => {
                        sleep(0.02).await;
                        Ok(fine())
                    }
                    _ => Ok(fine()),
                }
            }
        });
        let start = now();
        let (first, second, third) = tokio::join!(fetch(&client), fetch(&client), fetch(&client));
        assert!(first.is_ok() && second.is_ok() && third.is_ok());
        fetch(&client).await.unwrap();
        assert!((300.0..302.0).contains(&since(start)), "{order:?}: {}", since(start));
    }
}

// Case 70.
#[tokio::test(start_paused = true)]
async fn a_pause_of_zero_or_in_the_past_is_no_hot_loop() {
    for retry_after in ["0", "Mon, 01 Jan 2001 00:00:00 GMT"] {
        let limiter = limiter(4);
        let (client, called) = noting(&limiter, move |_| busy(retry_after));
        let stubborn = |client: Client| async move { while let Ok(_refused) = send(&client).await {} };
        let callers: Vec<_> = (0..104).map(|_| tokio::spawn(stubborn(client.clone()))).collect();
        sleep(2.0).await;
        let early = called.lock().unwrap().len();
        assert!((1..=12).contains(&early), "{early}");
        sleep(60.0).await;
        let late = called.lock().unwrap().len();
        assert!(late <= 40, "refusal after refusal they get rarer: {late}");
        callers.iter().for_each(tokio::task::JoinHandle::abort);
        settled().await;
        assert_idle(&limiter);
    }
}

// Case 34.
#[tokio::test(start_paused = true)]
async fn a_wait_that_cannot_end_in_time_is_refused_at_once() {
    let limiter = slots(1).queue_timeout(Duration::from_secs(5)).build().unwrap();
    let (client, called) = noting(&limiter, |call| if call == 1 { busy("300") } else { fine() });
    send(&client).await.unwrap();
    let start = now();

    let hurried = Call::new(Priority::Default).with_timeout(Duration::from_secs(5));
    for query in [with(chat(), hurried), chat()] {
        let rejected = rejected(send_query(&client, query).await);
        assert_eq!(rejected.kind(), RejectKind::Paused);
        let told = rejected.retry_after().expect("when the pause is over").as_secs_f64();
        assert!((300.0..=301.0).contains(&told), "{told}");
        assert_eq!(rejected.lane().to_string(), LANE);
    }
    assert_eq!(since(start), 0.0);
    assert_eq!(called.lock().unwrap().len(), 1);
    assert_eq!(lane(&limiter).refused["paused"], 2);
    assert_idle(&limiter);
}

// Case 97.
#[tokio::test(start_paused = true)]
async fn nobody_leaves_before_the_pause_ends_and_not_all_at_once_when_it_does() {
    let limiter = limiter(16);
    let (client, called) = noting(&limiter, |call| if call == 1 { busy("30") } else { ok(endless()) });
    send(&client).await.unwrap();
    let queued: Vec<_> = (0..500).map(|_| tokio::spawn(tower::ServiceExt::oneshot(client.clone(), chat()))).collect();
    sleep(29.99).await;
    assert_eq!(called.lock().unwrap().len(), 1);
    sleep(2.5).await;
    settled().await;
    let left: Vec<f64> = called.lock().unwrap()[1..].to_vec();
    assert_eq!(left.len(), 16);
    assert!(left.iter().all(|&at| at >= 30.0));
    assert!(left[15] - left[0] > 0.9, "they come within a second, one after another: {left:?}");
    assert!(left.windows(2).all(|pair| pair[1] - pair[0] > 0.05), "{left:?}");
    queued.iter().for_each(tokio::task::JoinHandle::abort);
    settled().await;
}

// Case 98.
#[tokio::test(start_paused = true)]
async fn the_pause_of_one_lane_is_not_anothers() {
    let limiter = limiter(8);
    let client = client(&limiter, |_| async {
        sleep(1.0).await;
        Ok(busy("30"))
    });
    futures_util::future::join_all((0..8).map(|_| send_query(&client, asking("a")))).await;
    let healthy = answering(&limiter, |_| fine());
    let start = now();
    let reply = send_query(&healthy, asking("b")).await.unwrap();
    assert_eq!(read(reply).await.unwrap(), "fine");
    assert_eq!(since(start), 0.0);
    let lanes = limiter.snapshot().lanes;
    assert!(lanes[0].paused_until_s.is_some_and(|left| left >= 30.0));
    assert_eq!(lanes[1].paused_until_s, None);
    assert_eq!((lanes[1].limit, lanes[1].lane.as_str()), (8, "https://gw.example/v1|b"));
}

#[tokio::test(start_paused = true)]
async fn a_call_in_flight_goes_on_through_a_pause() {
    let limiter = limiter(2);
    let stream = answering(&limiter, |_| ok(Script::new([data("a"), wait(10), data("b")])));
    let streaming = send(&stream).await.unwrap();
    send(&answering(&limiter, |_| busy("30"))).await.unwrap();
    let start = now();
    assert_eq!(read(streaming).await.unwrap(), "ab");
    assert_eq!(since(start), 10.0);
}

#[tokio::test(start_paused = true)]
async fn a_pause_is_capped_and_the_cap_shows() {
    let limiter = limiter(1);
    send(&answering(&limiter, |_| busy("18446744073709551615"))).await.unwrap();
    assert_paused(&limiter, 600.0);
}

/// A refusal with these lines in its head.
fn refusal(lines: &[(&'static str, &[u8])]) -> Response<Script> {
    let mut refusal = status(429, Script::new([]));
    for (name, value) in lines {
        refusal.headers_mut().append(*name, HeaderValue::from_bytes(value).unwrap());
    }
    refusal
}

// Cases 68 and 71.
#[tokio::test(start_paused = true)]
async fn hostile_headers_shorten_no_pause_and_hold_no_lane_up_beyond_the_cap() {
    const HOSTILE: [&[(&str, &[u8])]; 14] = [
        &[("retry-after", b"-1")],
        &[("retry-after", b"NaN")],
        &[("retry-after", b"-inf")],
        &[("retry-after", b"0")],
        &[("retry-after", b"1e-300")],
        &[("retry-after", b"99999999999999999999999999999999999")],
        &[("retry-after", b"Fri, 31 Dec 9999 23:59:59 GMT")],
        &[("retry-after", b"Sat, 01 Jan 10000 00:00:00 GMT")],
        &[("retry-after", b"\xff\xfe5")],
        &[("retry-after", b"1"), ("retry-after", b"-1")],
        &[("retry-after", b"1"), ("retry-after", b"1e400")],
        &[("retry-after-ms", b"-1"), ("retry-after", b"1")],
        &[("x-ratelimit-reset-tokens", b"99999999999999999999h")],
        &[("anthropic-ratelimit-tokens-reset", b"10000-01-01T00:00:00Z")],
    ];
    for hostile in HOSTILE {
        let limiter = slots(2).queue_timeout(Duration::from_secs(700)).build().unwrap();
        let calls = Arc::new(AtomicUsize::new(0));
        let client = client(&limiter, move |_| {
            let call = calls.fetch_add(1, Ordering::Relaxed);
            async move {
                sleep(0.001).await;
                Ok(match call {
                    0 => busy("20"),
                    1 => refusal(hostile),
                    _ => fine(),
                })
            }
        });
        let start = now();
        let (first, second) = tokio::join!(fetch(&client), fetch(&client));
        assert!(first.is_ok() && second.is_ok());
        fetch(&client).await.unwrap();
        assert!((20.0..602.0).contains(&since(start)), "{hostile:?}: {}", since(start));
        assert_idle(&limiter);
    }
}
