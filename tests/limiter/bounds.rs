//! How long a call may wait, how many may wait, and what they are told.

use tokio::time::sleep;
use tower_inflight::{Admission, LaneOverride, LimitConfig, Outcome, Pause, QueueBound, Verdict};

use super::*;

#[tokio::test(start_paused = true)]
async fn a_future_that_nobody_polls_expires_on_time() {
    let limiter = build(|limiter| limiter.max_inflight(1).queue_timeout(secs(5)));
    let _held = hold(&limiter);
    let mut forgotten = queue(&limiter, Priority::Default).await;
    sleep(millis(4_999)).await;
    assert_eq!(load(&limiter), (1, 1));
    sleep(millis(2)).await;
    assert_eq!(load(&limiter), (1, 0));
    assert_eq!(figures(&limiter).refused["queue_timeout"], 1);
    sleep(secs(100)).await;
    let rejected = refused((&mut forgotten).await);
    assert_eq!((rejected.kind(), rejected.waited()), (RejectKind::QueueTimeout, secs(5)));
}

// Case 30.
#[tokio::test(start_paused = true)]
async fn the_error_says_which_bound_fired() {
    let bounds = [(60, 2, RejectKind::Deadline), (2, 60, RejectKind::QueueTimeout), (2, 2, RejectKind::Deadline)];
    for (queue_timeout, deadline, kind) in bounds {
        let limiter = build(|limiter| limiter.max_inflight(1).queue_timeout(secs(queue_timeout)));
        let _held = hold(&limiter);
        let started = now();
        let call = Call::new(Priority::Default).with_timeout(secs(deadline));
        let error: Box<dyn std::error::Error> = refused(limiter.acquire(&lane(), call).await).into();
        assert_eq!(now() - started, secs(2));
        let rejected = Rejected::find(&*error).expect("it can be found");
        assert_eq!((rejected.kind(), rejected.lane(), rejected.waited()), (kind, &lane(), secs(2)));
    }
}

#[tokio::test(start_paused = true)]
async fn the_error_names_lane_wait_position_and_setting() {
    let limiter = build(|limiter| limiter.max_inflight(1).queue_timeout(secs(5)));
    let _held = hold(&limiter);
    let _first = queue(&limiter, Priority::Default).await;
    sleep(secs(1)).await;
    let rejected = refused(limiter.acquire(&lane(), Priority::Default).await);
    assert_eq!((rejected.position(), rejected.in_flight()), (Some(2), 1));
    assert_eq!(
        rejected.to_string(),
        "call to local|gemma refused: queue timeout (5s), waited 5s, position 2 on arrival, 1 of 1 slots in use; \
         see `queue_timeout`, `max_inflight`"
    );
}

// Case 28.
#[tokio::test(start_paused = true)]
async fn a_passed_deadline_is_never_granted_and_the_slot_goes_on() {
    let limiter = limiter(1);
    let held = hold(&limiter);
    let call = Call::new(Priority::Default).with_timeout(secs(1));
    let late = tokio::spawn(limiter.acquire(&lane(), call));
    let next = tokio::spawn(limiter.acquire(&lane(), Priority::Default));
    sleep(millis(1_200)).await;
    let rejected = refused(late.await.expect("no panic"));
    assert_eq!((rejected.kind(), rejected.waited()), (RejectKind::Deadline, secs(1)));
    drop(held);
    drop(next.await.expect("no panic").expect("a slot"));
    assert_nothing_is_left(&limiter);
}

#[tokio::test(start_paused = true)]
async fn a_deadline_that_passes_between_grant_and_poll_is_kept() {
    for queue_timeout in [secs(300), millis(800)] {
        let limiter = build(|limiter| limiter.max_inflight(1).queue_timeout(queue_timeout));
        let held = hold(&limiter);
        let call = Call::new(Priority::Default).with_timeout(secs(1));
        let attempts = call.clone();
        let mut late = queue(&limiter, call).await;
        sleep(millis(500)).await;
        drop(held);
        sleep(millis(600)).await;
        let rejected = refused((&mut late).await);
        assert_eq!(rejected.kind(), RejectKind::Deadline);
        assert_eq!(attempts.attempts(), 0);
        assert_eq!(figures(&limiter).refused["deadline"], 1);
        assert_nothing_is_left(&limiter);
    }
}

// Case 33.
#[tokio::test(start_paused = true)]
async fn a_deadline_that_has_passed_is_refused_on_the_first_poll() {
    let limiter = limiter(1);
    let call = Call::new(Priority::Default).with_deadline(now());
    let rejected = refused(limiter.acquire(&lane(), call).await);
    assert_eq!((rejected.kind(), rejected.waited(), rejected.position()), (RejectKind::Deadline, secs(0), None));
}

// Case 34.
#[tokio::test(start_paused = true)]
async fn a_pause_that_outlasts_the_call_refuses_it_at_once() {
    let limiter = build(|limiter| limiter.max_inflight(2).queue_timeout(secs(400)));
    let call = Call::new(Priority::Default);
    hold(&limiter).settle(Verdict::new(Outcome::Overload).with_pause(Pause::For(secs(300))));
    let started = now();
    let rejected = refused(limiter.acquire(&lane(), call.clone().with_timeout(secs(5))).await);
    assert_eq!(rejected.kind(), RejectKind::Paused);
    assert!(rejected.retry_after().is_some_and(|left| (secs(300)..=secs(301)).contains(&left)));
    assert_eq!(
        kind(limiter.acquire(&lane(), call.clone().with_admission(Admission::Reject)).await),
        RejectKind::Paused
    );
    assert_eq!(now(), started);
    drop(limiter.acquire(&lane(), call).await.expect("after the pause"));
    assert!((secs(300)..=secs(302)).contains(&(now() - started)));
}

#[tokio::test(start_paused = true)]
async fn a_call_that_may_not_wait_is_told_at_once() {
    let limiter = limiter(1);
    let call = Call::new(Priority::Interactive).with_admission(Admission::Reject);
    let permit = limiter.acquire(&lane(), call.clone()).await.expect("a slot is free");
    assert_eq!(kind(limiter.acquire(&lane(), call.clone()).await), RejectKind::Busy);
    assert_eq!(kind(limiter.try_acquire(&lane(), call)), RejectKind::Busy);
    assert_eq!(figures(&limiter).refused["busy"], 2);
    drop(permit);
    assert_nothing_is_left(&limiter);
}

// Case 22.
#[tokio::test(start_paused = true)]
async fn a_newcomer_does_not_pass_those_who_wait() {
    let limiter = limiter(1);
    let mut held = hold(&limiter);
    for _ in 0..100 {
        let mut waiter = queue(&limiter, Priority::Bulk).await;
        drop(held);
        assert_eq!(kind(limiter.try_acquire(&lane(), Priority::Interactive)), RejectKind::Busy);
        held = (&mut waiter).await.expect("its turn");
    }
}

// Case 36.
#[tokio::test(start_paused = true)]
async fn a_full_queue_says_which_bound_was_reached() {
    let config = |lane: LaneOverride| {
        let mut config = LimitConfig::default();
        (config.max_inflight, config.interactive_reserve, config.overrides) = (1, 0, vec![lane]);
        config
    };
    let any = || LaneOverride::new("*");
    let mut total = config(any());
    total.max_queue_total = 1;
    let mut per_class = config(any());
    per_class.max_queue_per_class = Some(1);
    let mut per_tenant = config(any());
    per_tenant.max_queue_per_tenant = Some(1);
    for (config, bound, setting) in [
        (config(any().max_queue(1)), QueueBound::Lane, "max_queue"),
        (per_class, QueueBound::Class, "max_queue_per_class"),
        (per_tenant, QueueBound::Tenant, "max_queue_per_tenant"),
        (total, QueueBound::Total, "max_queue_total"),
    ] {
        let limiter = Limiter::builder().config(config).build().expect("valid");
        let held = hold(&limiter);
        let call = Call::new(Priority::Default).with_tenant("acme");
        let waiter = queue(&limiter, call.clone()).await;
        let rejected = refused(limiter.acquire(&lane(), call.clone()).await);
        assert_eq!(rejected.kind(), RejectKind::QueueFull(bound));
        let text = rejected.to_string();
        assert!(text.contains("(at most 1 may wait)") && text.contains(&format!("`{setting}`")), "{text}");
        drop(waiter);
        drop(queue(&limiter, call).await);
        drop(held);
        assert_nothing_is_left(&limiter);
    }
}

// Case 36.
#[tokio::test(start_paused = true)]
async fn without_a_queue_it_is_a_slot_now_or_an_error_now() {
    let limiter = build(|limiter| limiter.max_inflight(1).max_queue(0));
    let _held = hold(&limiter);
    assert_eq!(kind(limiter.acquire(&lane(), Priority::Default).await), RejectKind::QueueFull(QueueBound::Lane));
}

#[tokio::test(start_paused = true)]
async fn the_total_bound_counts_all_lanes_and_frees_every_place() {
    let limiter = build(|limiter| limiter.max_inflight(1).max_queue_total(2).queue_timeout(secs(5)));
    let lanes = ["a", "b", "c"].map(|endpoint| LaneKey::new(endpoint, "gemma"));
    let held = lanes.each_ref().map(|lane| limiter.try_acquire(lane, Priority::Default).expect("free"));
    for round in 0..3 {
        let mut waiters = lanes.each_ref().map(|lane| Box::pin(limiter.acquire(lane, Priority::Default)));
        assert!(poll!(&mut waiters[0]).is_pending() && poll!(&mut waiters[1]).is_pending());
        let Poll::Ready(third) = poll!(&mut waiters[2]) else { panic!("all places are taken") };
        assert_eq!(kind(third), RejectKind::QueueFull(QueueBound::Total));
        if round == 1 {
            // Expired, and not yet looked at.
            sleep(secs(6)).await;
            let mut again = Box::pin(limiter.acquire(&lanes[2], Priority::Default));
            assert!(poll!(&mut again).is_pending());
        }
    }
    drop(held);
    assert_nothing_is_left(&limiter);
}
