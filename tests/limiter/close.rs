//! The end: of the limiter, and of the runtimes around it.

use std::panic::{AssertUnwindSafe, catch_unwind};

use tokio::time::sleep;
use tower_inflight::{Outcome, Pause, Verdict};

use super::*;

// Case 149.
#[tokio::test(start_paused = true)]
async fn closing_refuses_all_who_wait_and_all_who_come() {
    let limiter = limiter(1);
    let paused = LaneKey::new("elsewhere", "gemma");
    let overloaded = Verdict::new(Outcome::Overload).with_pause(Pause::For(secs(60)));
    limiter.try_acquire(&paused, Priority::Default).expect("free").settle(overloaded);
    let held = hold(&limiter);
    let spawn = |lane: &LaneKey| tokio::spawn(limiter.acquire(lane, Priority::Default));
    let waiters: Vec<_> = (0..20).map(|_| spawn(&lane())).chain((0..5).map(|_| spawn(&paused))).collect();
    settle_down().await;
    let started = now();
    limiter.close();
    limiter.close();
    for waiter in waiters {
        assert_eq!(kind(waiter.await.expect("no panic")), RejectKind::Closed);
    }
    assert_eq!(kind(limiter.acquire(&lane(), Priority::Interactive).await), RejectKind::Closed);
    assert_eq!(kind(limiter.try_acquire(&LaneKey::new("new", "lane"), Priority::Default)), RejectKind::Closed);
    assert_eq!(now(), started);
    assert_eq!(load(&limiter), (1, 0));
    held.settle(Outcome::Success);
    assert_nothing_is_left(&limiter);
}

#[tokio::test(start_paused = true)]
async fn one_that_looks_long_after_the_closing_hears_that_it_was_closed() {
    let limiter = build(|limiter| limiter.max_inflight(1).queue_timeout(secs(5)));
    let _held = hold(&limiter);
    let mut expired = queue(&limiter, Priority::Default).await;
    sleep(secs(5)).await;
    let mut waiter = queue(&limiter, Priority::Default).await;
    limiter.close();
    sleep(secs(60)).await;
    assert_eq!(kind((&mut waiter).await), RejectKind::Closed);
    assert_eq!(kind((&mut expired).await), RejectKind::QueueTimeout);
    let counted = figures(&limiter).refused;
    assert_eq!((counted["closed"], counted["queue_timeout"]), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn one_that_slept_through_its_grant_is_not_sent_after_the_drain() {
    let limiter = limiter(1);
    let held = hold(&limiter);
    let mut sleeper = queue(&limiter, Priority::Default).await;
    drop(held);
    limiter.drain(secs(10)).await.expect("its slot came back");
    assert_eq!(kind((&mut sleeper).await), RejectKind::Closed);
    assert_nothing_is_left(&limiter);
}

#[tokio::test(start_paused = true)]
async fn draining_waits_for_the_last_call() {
    let limiter = limiter(3);
    let calls: Vec<_> = (1..4)
        .map(|n| (n, hold(&limiter)))
        .map(|(n, permit)| {
            tokio::spawn(async move {
                sleep(secs(n)).await;
                permit.settle(Outcome::Success);
            })
        })
        .collect();
    let started = now();
    let error = limiter.drain(millis(1_500)).await.expect_err("two go on");
    assert_eq!(error.calls(), 2);
    limiter.drain(secs(60)).await.expect("all ended");
    assert_eq!(now() - started, secs(3));
    for call in calls {
        call.await.expect("no panic");
    }
    limiter.drain(secs(0)).await.expect("nothing is in flight");
}

// Case 150.
#[test]
fn permits_and_waiters_may_outlive_the_runtime() {
    let limiter = limiter(1);
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    let (permit, waiter) = runtime.block_on(async {
        let permit = hold(&limiter);
        (permit, queue(&limiter, Priority::Default).await)
    });
    drop(runtime);
    std::thread::spawn(move || drop((waiter, permit))).join().expect("no panic");
    assert_nothing_is_left(&limiter);
}

// Case 150.
#[test]
fn a_permit_may_be_dropped_in_a_panic() {
    let limiter = limiter(1);
    let permit = hold(&limiter);
    let panicked = catch_unwind(AssertUnwindSafe(move || {
        let _permit = permit;
        panic!("on purpose");
    }));
    assert!(panicked.is_err());
    assert_nothing_is_left(&limiter);
    drop(hold(&limiter));
}

// Case 151.
#[tokio::test(start_paused = true)]
async fn permits_and_waiters_may_outlive_the_limiter() {
    let limiter = limiter(1);
    let held = hold(&limiter);
    let mut waiter = queue(&limiter, Priority::Default).await;
    drop(limiter);
    drop(held);
    drop((&mut waiter).await.expect("its turn"));
}
