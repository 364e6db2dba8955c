//! Many at once: leaks, order and wakes, also on several threads.

use std::sync::Mutex;

use futures_util::future::join_all;
use tokio::sync::Barrier;
use tower_inflight::{Outcome, Pause, Verdict};

use super::*;

// Case 4, 33.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_release_and_a_leaving_waiter_never_lose_the_slot() {
    let limiter = limiter(1);
    for _ in 0..2_000 {
        let held = hold(&limiter);
        let leaver = queue(&limiter, Priority::Default).await;
        let next = tokio::spawn(limiter.acquire(&lane(), Priority::Default));
        let barrier = Arc::new(Barrier::new(2));
        let together = barrier.clone();
        let leaving = tokio::spawn(async move {
            together.wait().await;
            drop(leaver);
        });
        barrier.wait().await;
        held.settle(Outcome::Success);
        leaving.await.expect("no panic");
        next.await.expect("no panic").expect("a slot").settle(Outcome::Success);
    }
    assert_nothing_is_left(&limiter);
}

// Case 11.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_more_than_the_limit_run_at_once_over_many_clones() {
    let limiter = limiter(5);
    let running = Arc::new(AtomicUsize::new(0));
    for _ in 0..200 {
        let barrier = Arc::new(Barrier::new(64));
        let calls = (0..64).map(|_| {
            let (limiter, barrier, running) = (limiter.clone(), barrier.clone(), running.clone());
            tokio::spawn(async move {
                barrier.wait().await;
                let permit = limiter.acquire(&lane(), Priority::Default).await.expect("a slot");
                assert!(running.fetch_add(1, Ordering::SeqCst) < 5);
                tokio::task::yield_now().await;
                running.fetch_sub(1, Ordering::SeqCst);
                drop(permit);
            })
        });
        for call in join_all(calls).await {
            call.expect("no panic");
        }
    }
    assert_nothing_is_left(&limiter);
}

// Case 18.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn waiters_of_a_class_start_in_their_order_whoever_polls_them() {
    for _ in 0..200 {
        let limiter = limiter(1);
        let held = hold(&limiter);
        let started = Arc::new(Mutex::new(Vec::new()));
        let mut calls = Vec::new();
        for n in 0..50 {
            let waiter = queue(&limiter, Priority::Default).await;
            let started = started.clone();
            calls.push(tokio::spawn(async move {
                let permit = waiter.await.expect("a slot");
                started.lock().expect("not poisoned").push(n);
                drop(permit);
            }));
        }
        drop(held);
        for call in join_all(calls).await {
            call.expect("no panic");
        }
        assert!(started.lock().expect("not poisoned").is_sorted());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn whatever_way_calls_end_nothing_is_left() {
    let limiter = build(|limiter| limiter.max_inflight(3).max_queue(20));
    let calls = (0..64_usize).map(|n| {
        let limiter = limiter.clone();
        tokio::spawn(async move {
            for round in 0..200 {
                let class = Priority::ALL[(n + round) % 3];
                let mut acquire =
                    Box::pin(limiter.acquire(&lane(), Call::new(class).with_tenant(format!("{}", n % 5))));
                match (n * 7 + round) % 5 {
                    0 => drop(poll!(&mut acquire)),
                    1 => {
                        let _ = poll!(&mut acquire);
                        tokio::task::yield_now().await;
                    }
                    2 => drop(acquire.await.map(|permit| permit.settle(Outcome::Success))),
                    _ => drop(acquire.await),
                }
            }
        })
    });
    for call in join_all(calls).await {
        call.expect("no panic");
    }
    assert_eq!(figures(&limiter).offered, 64 * 200);
    assert_nothing_is_left(&limiter);
    drop(hold(&limiter));
}

// Case 155.
#[tokio::test(start_paused = true)]
async fn each_release_wakes_one_of_ten_thousand() {
    let limiter = build(|limiter| limiter.max_inflight(1).max_queue(10_000));
    let held = hold(&limiter);
    let polls = Arc::default();
    let calls: Vec<_> = (0..10_000)
        .map(|_| {
            let acquire = limiter.acquire(&lane(), Priority::Default);
            tokio::spawn(Counted::new(async { drop(acquire.await.expect("a slot")) }, &polls))
        })
        .collect();
    tokio::time::sleep(millis(1)).await;
    drop(held);
    for call in calls {
        call.await.expect("no panic");
    }
    assert_eq!(polls.load(Ordering::Relaxed), 2 * 10_000);
    assert_nothing_is_left(&limiter);
}

// Case 155.
#[tokio::test(start_paused = true)]
async fn the_end_of_a_pause_wakes_as_many_as_there_are_slots() {
    let limiter = build(|limiter| limiter.max_inflight(4).max_queue(10_000));
    hold(&limiter).settle(Verdict::new(Outcome::Overload).with_pause(Pause::For(secs(30))));
    let polls = Arc::default();
    let waiters: Vec<_> =
        (0..10_000).map(|_| tokio::spawn(Counted::new(limiter.acquire(&lane(), Priority::Default), &polls))).collect();
    // The clock moves on when all tasks wait.
    tokio::time::sleep(millis(1)).await;
    assert_eq!(polls.load(Ordering::Relaxed), 10_000);
    tokio::time::sleep(millis(29_998)).await;
    assert_eq!(polls.load(Ordering::Relaxed), 10_000);
    tokio::time::sleep(millis(2_002)).await;
    assert_eq!((load(&limiter), polls.load(Ordering::Relaxed)), ((4, 9_996), 10_004));
    for waiter in waiters {
        waiter.abort();
    }
}
