//! Who watches the time where, and who is not kept from running by it.

use std::task::{Wake, Waker};

use tokio::runtime::{Builder, Runtime};

use super::*;

fn paused_runtime() -> Runtime {
    Builder::new_current_thread().enable_all().start_paused(true).build().expect("a runtime")
}

#[derive(Default)]
struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn waiters_still_expire_when_the_runtime_of_the_timer_goes_away() {
    let limiter = build(|limiter| limiter.max_inflight(1).queue_timeout(secs(5)));
    let _held = hold(&limiter);
    let first = paused_runtime();
    first.block_on(async {
        tokio::spawn(limiter.acquire(&lane(), Priority::Default));
        settle_down().await;
    });
    let second = paused_runtime();
    let waiter = {
        let _entered = second.enter();
        tokio::spawn(limiter.acquire(&lane(), Priority::Default))
    };
    second.block_on(settle_down());
    drop(first);
    let rejected = second.block_on(async { refused(waiter.await.expect("no panic")) });
    assert_eq!(rejected.kind(), RejectKind::QueueTimeout);
    assert_nothing_is_left_but_the_holder(&limiter);
}

fn assert_nothing_is_left_but_the_holder(limiter: &Limiter) {
    assert_eq!(load(limiter), (1, 0));
}

#[test]
fn without_a_runtime_a_waiter_is_left_in_peace_until_its_turn() {
    let limiter = limiter(1);
    let held = hold(&limiter);
    let wakes = Arc::new(Wakes::default());
    let waker = Waker::from(wakes.clone());
    let mut cx = Context::from_waker(&waker);
    let mut waiter = Box::pin(limiter.acquire(&lane(), Priority::Default));
    for _ in 0..3 {
        assert!(waiter.as_mut().poll(&mut cx).is_pending());
    }
    assert_eq!(wakes.0.load(Ordering::Relaxed), 0);
    drop(held);
    assert_eq!(wakes.0.load(Ordering::Relaxed), 1);
    assert!(waiter.as_mut().poll(&mut cx).is_ready());
}

#[test]
fn a_waiter_in_a_runtime_expires_also_if_others_wait_without_one() {
    let limiter = build(|limiter| limiter.max_inflight(1).queue_timeout(secs(5)));
    let _held = hold(&limiter);
    let mut outside = Box::pin(limiter.acquire(&lane(), Priority::Default));
    assert!(outside.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    let runtime = paused_runtime();
    let rejected = runtime.block_on(async { refused(limiter.acquire(&lane(), Priority::Default).await) });
    assert_eq!(rejected.kind(), RejectKind::QueueTimeout);
}

#[test]
fn a_runtime_without_a_clock_serves_waiters_and_does_not_spin() {
    let limiter = limiter(1);
    let held = hold(&limiter);
    let polls = Arc::default();
    let runtime = Builder::new_current_thread().build().expect("a runtime");
    runtime.block_on(async {
        let waiter = tokio::spawn(Counted::new(limiter.acquire(&lane(), Priority::Default), &polls));
        settle_down().await;
        drop(held);
        drop(waiter.await.expect("no panic").expect("its turn"));
    });
    assert_eq!(polls.load(Ordering::Relaxed), 2);
    assert_nothing_is_left(&limiter);
}

#[tokio::test(start_paused = true)]
async fn the_timer_ends_when_nobody_waits() {
    let limiter = limiter(1);
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let held = hold(&limiter);
    drop(queue(&limiter, Priority::Default).await);
    drop(held);
    assert_eq!(tasks(), 1);
    tokio::time::sleep(secs(11)).await;
    assert_eq!(tasks(), 0);

    let held = hold(&limiter);
    let waiter = queue(&limiter, Priority::Default).await;
    assert_eq!(tasks(), 1);
    drop((waiter, held, limiter));
    settle_down().await;
    assert_eq!(tasks(), 0, "it does not outlive the limiter");
}

#[tokio::test]
async fn a_loop_that_is_always_granted_lets_others_run() {
    let limiter = limiter(1);
    let other = tokio::spawn(async {});
    let mut rounds = 0;
    while !other.is_finished() && rounds < 10_000 {
        drop(limiter.acquire(&lane(), Priority::Default).await.expect("it is free"));
        rounds += 1;
    }
    assert!(rounds < 10_000, "the other task never ran");
}

// Case 11.
#[tokio::test(start_paused = true)]
async fn a_blocked_waiter_is_not_polled_while_it_waits() {
    let limiter = limiter(1);
    let held = hold(&limiter);
    let polls = Arc::default();
    let waiter = tokio::spawn(Counted::new(limiter.acquire(&lane(), Priority::Default), &polls));
    tokio::time::sleep(secs(1)).await;
    drop(held);
    drop(waiter.await.expect("no panic").expect("its turn"));
    assert_eq!(polls.load(Ordering::Relaxed), 2);
}

/// Its last drop looks at the limiter, as the drop of a task that holds a permit does.
struct Looks(Limiter);

impl Wake for Looks {
    fn wake(self: Arc<Self>) {}
}

impl Drop for Looks {
    fn drop(&mut self) {
        self.0.try_acquire(&lane(), Priority::Default).expect_err("no slot is free");
    }
}

#[test]
fn a_waker_may_use_the_limiter_when_it_is_dropped() {
    let limiter = limiter(1);
    let _held = hold(&limiter);
    let mut waiter = Box::pin(limiter.acquire(&lane(), Priority::Default));
    for _ in 0..2 {
        let waker = Waker::from(Arc::new(Looks(limiter.clone())));
        assert!(waiter.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    }
    drop(waiter);
    assert_eq!(figures(&limiter).refused["busy"], 2);
}
