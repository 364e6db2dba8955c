//! A slot that was granted to a future that nobody polls.

use futures_util::{StreamExt, stream};
use tokio::time::sleep;

use super::*;

#[tokio::test(start_paused = true)]
async fn a_slot_that_nobody_collects_for_a_second_goes_to_the_next() {
    let limiter = limiter(1);
    let held = hold(&limiter);
    let sleeper = queue(&limiter, Priority::Default).await;
    let next = tokio::spawn(limiter.acquire(&lane(), Priority::Default));
    settle_down().await;
    drop(held);
    sleep(millis(999)).await;
    assert!(!next.is_finished());
    sleep(millis(2)).await;
    assert!(next.is_finished());
    assert_eq!(load(&limiter), (1, 1));
    drop(sleeper);
    drop(next.await.expect("no panic").expect("a slot"));
    assert_nothing_is_left(&limiter);
}

#[tokio::test(start_paused = true)]
async fn one_that_slept_through_its_grant_keeps_its_place() {
    let limiter = limiter(1);
    let held = hold(&limiter);
    let mut sleeper = queue(&limiter, Priority::Default).await;
    let second = tokio::spawn(limiter.acquire(&lane(), Priority::Default));
    settle_down().await;
    let mut third = queue(&limiter, Priority::Default).await;
    drop(held);
    sleep(millis(1001)).await;
    let second = second.await.expect("no panic").expect("a slot");
    assert!(poll!(&mut sleeper).is_pending());
    drop(second);
    let Poll::Ready(Ok(permit)) = poll!(&mut sleeper) else { panic!("it was its turn") };
    assert!(poll!(&mut third).is_pending());
    drop(permit);
    assert!(poll!(&mut third).is_ready());
}

#[tokio::test(start_paused = true)]
async fn one_that_slept_gets_a_free_slot_as_soon_as_it_looks() {
    let limiter = limiter(1);
    let held = hold(&limiter);
    let mut sleeper = queue(&limiter, Priority::Default).await;
    drop(held);
    sleep(secs(10)).await;
    assert_eq!(load(&limiter), (0, 1));
    let Poll::Ready(Ok(permit)) = poll!(&mut sleeper) else { panic!("a slot is free") };
    assert_eq!(permit.admitted().expect("it is on").waited(), secs(10));
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_is_not_read_does_not_hold_others_up() {
    let limiter = limiter(1);
    let calls = (0..3).map(|_| {
        let acquire = limiter.acquire(&lane(), Priority::Default);
        async move { drop(acquire.await.expect("a slot")) }
    });
    let held = hold(&limiter);
    let mut stream = Box::pin(stream::iter(calls).buffer_unordered(3));
    assert!(poll!(stream.next()).is_pending());
    drop(held);
    let started = now();
    drop(limiter.acquire(&lane(), Priority::Bulk).await.expect("a slot"));
    assert!(now() - started <= secs(3), "each of the three had its second: {:?}", now() - started);
    assert_eq!(stream.count().await, 3);
    assert_nothing_is_left(&limiter);
}

#[tokio::test(start_paused = true)]
async fn an_arm_of_select_that_is_not_polled_does_not_hold_others_up() {
    let limiter = limiter(1);
    let held = hold(&limiter);
    let mut arm = Box::pin(limiter.acquire(&lane(), Priority::Default));
    tokio::select! {
        biased;
        _ = &mut arm => panic!("no slot is free"),
        () = sleep(millis(1)) => {}
    }
    drop(held);
    let other = limiter.acquire(&lane(), Priority::Default).await.expect("a slot");
    drop(other);
    drop(arm.await.expect("a slot"));
    assert_nothing_is_left(&limiter);
}

// Case 4.
#[tokio::test(start_paused = true)]
async fn a_slot_granted_to_a_dropped_future_passes_on_at_once() {
    let limiter = limiter(1);
    let held = hold(&limiter);
    let leaver = queue(&limiter, Priority::Default).await;
    let mut next = queue(&limiter, Priority::Default).await;
    drop(held);
    drop(leaver);
    assert!(poll!(&mut next).is_ready());
    drop(next);
    assert_nothing_is_left(&limiter);
}
