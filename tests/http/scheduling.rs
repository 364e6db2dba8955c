//! Many callers at once.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Barrier;
use tower_inflight::{Aging, Call, Limiter, Priority};

use crate::support::*;

/// How many calls are inside now, and how many there were at most.
#[derive(Clone, Default)]
struct Peak(Arc<(AtomicUsize, AtomicUsize)>);

impl Peak {
    fn enter(&self) -> OnDrop {
        let (now, most) = &*self.0;
        most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        let inside = self.clone();
        on_drop(move || {
            inside.0.0.fetch_sub(1, Ordering::SeqCst);
        })
    }

    fn most(&self) -> usize {
        self.0.1.load(Ordering::SeqCst)
    }
}

// Case 11.
#[test]
fn clones_on_many_threads_never_pass_the_limit() {
    const CLONES: usize = 64;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build().unwrap();
    let limiter = limiter(5);
    let peak = Peak::default();
    let inside = peak.clone();
    let client = client(&limiter, move |_| {
        let inside = inside.clone();
        async move {
            let entered = inside.enter();
            tokio::task::yield_now().await;
            Ok(ok(Script::new([data("a"), data("b")]).while_open(entered)))
        }
    });
    runtime.block_on(async {
        let barrier = Arc::new(Barrier::new(CLONES));
        let rounds = (0..CLONES).map(|_| {
            let (client, barrier) = (client.clone(), barrier.clone());
            tokio::spawn(async move {
                for _ in 0..200 {
                    barrier.wait().await;
                    fetch(&client).await.unwrap();
                }
            })
        });
        for round in rounds.collect::<Vec<_>>() {
            round.await.unwrap();
        }
    });
    assert!((1..=5).contains(&peak.most()), "{}", peak.most());
    assert_idle(&limiter);
    assert_eq!(lane(&limiter).offered, 64 * 200);
}

/// Polls so often, and then gives up.
async fn for_polls<F: Future>(future: F, polls: usize) -> Option<F::Output> {
    let mut future = Box::pin(future);
    for _ in 0..polls {
        if let std::task::Poll::Ready(output) = futures_util::poll!(&mut future) {
            return Some(output);
        }
        tokio::task::yield_now().await;
    }
    None
}

async fn read_some(reply: Reply, frames: usize) {
    let mut body = reply.into_body();
    for _ in 0..frames {
        let _ = http_body_util::BodyExt::frame(&mut body).await;
    }
}

/// Every ending, and giving up at every point, on many threads.
#[test]
fn no_mixture_of_endings_leaks_or_passes_the_limit() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build().unwrap();
    let limiter = limiter(3);
    let peak = Peak::default();
    let (inside, calls) = (peak.clone(), Arc::new(AtomicUsize::new(0)));
    let client = client(&limiter, move |_| {
        let (inside, call) = (inside.clone(), calls.fetch_add(1, Ordering::Relaxed));
        async move {
            let entered = inside.enter();
            for _ in 0..call % 4 {
                tokio::task::yield_now().await;
            }
            let body = |steps: Vec<Step>| Script::new(steps).while_open(entered);
            match call % 6 {
                0 => Err(reset(1).into()),
                1 => Ok(ok(body(vec![data("a"), Step::Fail(reset(2))]))),
                2 => Ok(ok(body(vec![data("a"), trailers()]))),
                3 => Ok(status(404, Script::new([data("no")]))),
                _ => Ok(ok(body(vec![data("a"), data("b")]))),
            }
        }
    });
    runtime.block_on(async {
        let tasks = (0..16_usize).map(|task| {
            let client = client.clone();
            tokio::spawn(async move {
                for round in 0..500 {
                    let patience = if (task + round) % 3 == 0 { round % 7 } else { usize::MAX };
                    if let Some(Ok(reply)) = for_polls(send(&client), patience).await {
                        read_some(reply, (task * round) % 4).await;
                    }
                }
            })
        });
        for task in tasks.collect::<Vec<_>>() {
            task.await.unwrap();
        }
    });
    assert!((1..=3).contains(&peak.most()), "{}", peak.most());
    assert_idle(&limiter);
    assert!(lane(&limiter).abandoned > 0);
}

async fn counting_polls<F: Future>(future: F, polls: &AtomicUsize) -> F::Output {
    let mut future = pin!(future);
    std::future::poll_fn(|cx| {
        polls.fetch_add(1, Ordering::Relaxed);
        future.as_mut().poll(cx)
    })
    .await
}

// Case 11.
#[tokio::test(start_paused = true)]
async fn a_waiter_is_not_polled_while_nothing_changes() {
    let limiter = limiter(1);
    let client = answering(&limiter, |_| ok(Script::new([data("a"), wait(1)])));
    let held = tokio::spawn({
        let client = client.clone();
        async move { fetch(&client).await }
    });
    settled().await;
    let polls = AtomicUsize::new(0);
    counting_polls(send(&client), &polls).await.unwrap();
    assert!(polls.load(Ordering::Relaxed) <= 3, "{polls:?}");
    held.await.unwrap().unwrap();
}

// Case 155.
#[tokio::test(start_paused = true)]
async fn a_release_wakes_the_next_waiter_alone() {
    const WAITERS: usize = 2_000;
    let limiter = slots(1).max_queue(10_000).build().unwrap();
    let client = answering(&limiter, |_| ok(Script::new([data("a")])));
    let first = send(&client).await.unwrap();
    let polls = Arc::new(AtomicUsize::new(0));
    let waiters: Vec<_> = (0..WAITERS)
        .map(|_| {
            let (client, polls) = (client.clone(), polls.clone());
            tokio::spawn(async move { counting_polls(send(&client), &polls).await.map(drop) })
        })
        .collect();
    settled().await;
    assert_eq!(figures(&limiter), (1, 2_000));
    drop(first);
    for waiter in waiters {
        waiter.await.unwrap().unwrap();
    }
    // One poll to stand in line, one for the grant.
    assert!(polls.load(Ordering::Relaxed) <= 2 * WAITERS + 10, "{polls:?}");
    assert_idle(&limiter);
}

// Case 155.
#[tokio::test(start_paused = true)]
async fn the_end_of_a_pause_wakes_only_those_who_may_go() {
    const WAITERS: usize = 1_000;
    let limiter = slots(4).build().unwrap();
    let refusing = answering(&limiter, |_| busy("30"));
    send(&refusing).await.unwrap();
    let client = answering(&limiter, |_| ok(endless()));
    let polls = Arc::new(AtomicUsize::new(0));
    let waiters: Vec<_> = (0..WAITERS)
        .map(|_| {
            let (client, polls) = (client.clone(), polls.clone());
            tokio::spawn(async move { counting_polls(send(&client), &polls).await })
        })
        .collect();
    settled().await;
    assert_eq!((figures(&limiter), polls.load(Ordering::Relaxed)), ((0, 1_000), WAITERS));
    sleep(32.0).await;
    settled().await;
    assert_eq!((figures(&limiter), polls.load(Ordering::Relaxed)), ((4, 996), WAITERS + 4));
    waiters.iter().for_each(tokio::task::JoinHandle::abort);
    settled().await;
}

/// When a bulk call starts that arrives with an interactive call every 50 ms, each of which takes 100 ms.
async fn start_under_load(limiter: &Limiter) -> f64 {
    let client = client(limiter, |_| async {
        sleep(0.1).await;
        Ok(ok(Script::new([])))
    });
    let urgent = client.clone();
    let load = tokio::spawn(async move {
        let mut calls = Vec::new();
        for _ in 0..1_200 {
            let (client, query) = (urgent.clone(), with(chat(), Call::new(Priority::Interactive)));
            calls.push(tokio::spawn(async move { read(send_query(&client, query).await?).await }));
            sleep(0.05).await;
        }
        futures_util::future::join_all(calls).await
    });
    settled().await;
    let start = now();
    send_query(&client, with(chat(), Call::new(Priority::Bulk))).await.map(drop).unwrap();
    let started = since(start) - 0.1;
    load.await.unwrap();
    assert_idle(limiter);
    started
}

// Case 17.
#[tokio::test(start_paused = true)]
async fn bulk_work_starts_within_its_aging_bound() {
    let limiter = slots(1).aging_step(Aging::Every(Duration::from_secs(1))).build().unwrap();
    let started = start_under_load(&limiter).await;
    assert!((1.9..=2.2).contains(&started), "{started}");
}

// Case 17.
#[tokio::test(start_paused = true)]
async fn without_aging_bulk_work_waits_until_nobody_urgent_does() {
    let limiter = slots(1).aging_step(Aging::Off).queue_timeout(Duration::from_secs(600)).build().unwrap();
    let started = start_under_load(&limiter).await;
    assert!(started >= 119.0, "{started}");
}
