//! Deadlines that cannot be kept are refused before the call waits for nothing.

use tokio::time::sleep;
use tower_inflight::{Admission, LaneOverride, LimitConfig, Outcome, Pause, PredictDeadlines, Verdict};

use super::*;

/// A limiter of so many slots whose lane has seen sixty calls of two seconds, the last ones of them with others waiting.
async fn known(slots: u32, set: impl FnOnce(LimiterBuilder) -> LimiterBuilder) -> Limiter {
    let limiter = build(|limiter| set(limiter.max_inflight(slots)));
    learn(&limiter).await;
    limiter
}

async fn learn(limiter: &Limiter) {
    let call = || Call::new(Priority::Default).with_timeout(secs(10_000));
    let calls = (0..60).map(|_| tokio::spawn(two_seconds(limiter.acquire(&lane(), call()))));
    for call in calls.collect::<Vec<_>>() {
        call.await.expect("no panic");
    }
}

async fn two_seconds(acquire: Acquire) {
    let permit = acquire.await.expect("a slot");
    sleep(secs(2)).await;
    permit.settle(Outcome::Success);
}

/// All slots are taken for two seconds from now.
fn fill(limiter: &Limiter, slots: usize) {
    for _ in 0..slots {
        tokio::spawn(two_seconds(limiter.acquire(&lane(), Priority::Default)));
    }
}

fn within(timeout: Duration) -> Call {
    Call::new(Priority::Default).with_timeout(timeout)
}

#[tokio::test(start_paused = true)]
async fn a_call_that_could_not_end_in_time_is_refused_at_once_with_both_estimates() {
    let limiter = known(4, |limiter| limiter).await;
    fill(&limiter, 4);
    settle_down().await;
    let _nine: Vec<_> = futures_util::future::join_all((0..9).map(|_| queue(&limiter, Priority::Default))).await;
    let started = now();
    let rejected = refused(limiter.acquire(&lane(), within(secs(5))).await);
    assert_eq!((rejected.kind(), now() - started), (RejectKind::DeadlineUnreachable, secs(0)));
    // Nine ahead of it: the tenth of two slots that become free in each second, and then its own two seconds.
    assert_eq!(rejected.predicted_wait(), Some(secs(5)));
    assert_eq!(rejected.predicted_service(), Some(secs(2)));
    assert_eq!((rejected.waited(), rejected.position()), (secs(0), None));
    assert_eq!(
        rejected.to_string(),
        "call to local|gemma refused: its deadline cannot be kept (a wait of 5s and then 2s are expected), waited 0s, \
         4 of 4 slots in use; see the deadline of the call, `predict_deadlines`, `max_inflight`"
    );
    assert_eq!(figures(&limiter).refused["deadline_unreachable"], 1);
    assert_eq!(figures(&limiter).queued, 9, "it took no place");
    drop(queue(&limiter, within(secs(7))).await);
}

#[tokio::test(start_paused = true)]
async fn what_is_foreseen_comes_true() {
    let limiter = known(4, |limiter| limiter).await;
    fill(&limiter, 4 + 9);
    settle_down().await;
    let started = now();
    let permit = limiter.acquire(&lane(), within(secs(8))).await.expect("in time");
    assert!(now() - started <= secs(6), "{:?}", now() - started);
    drop(permit);
}

#[tokio::test(start_paused = true)]
async fn where_little_is_known_nothing_is_refused() {
    let limiter = limiter(1);
    let _held = hold(&limiter);
    for _ in 0..40 {
        drop(queue(&limiter, within(millis(1))).await);
    }
    assert_eq!(figures(&limiter).refused.get("deadline_unreachable").copied().unwrap_or_default(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_free_slot_is_used_whatever_is_foreseen() {
    let limiter = known(4, |limiter| limiter).await;
    drop(limiter.acquire(&lane(), within(millis(1))).await.expect("a free slot"));
}

#[tokio::test(start_paused = true)]
async fn calls_without_a_deadline_are_never_refused_for_one() {
    let limiter = known(1, |limiter| limiter).await;
    fill(&limiter, 50);
    settle_down().await;
    drop(queue(&limiter, Priority::Bulk).await);
}

#[tokio::test(start_paused = true)]
async fn prediction_can_be_off_for_all_lanes_or_for_some() {
    let limiter = known(1, |limiter| limiter.predict_deadlines(PredictDeadlines::Off)).await;
    fill(&limiter, 10);
    settle_down().await;
    assert_eq!(kind(limiter.acquire(&lane(), within(secs(3))).await), RejectKind::Deadline);

    let over = LaneOverride::new("local|*").predict_deadlines(PredictDeadlines::Off);
    let limiter = known(1, |limiter| limiter.lane(over)).await;
    fill(&limiter, 10);
    settle_down().await;
    assert_eq!(kind(limiter.acquire(&lane(), within(secs(3))).await), RejectKind::Deadline);
    let mut config = LimitConfig::default();
    config.max_inflight = 1;
    limiter.reconfigure(config).expect("a valid configuration");
    learn(&limiter).await;
    fill(&limiter, 10);
    settle_down().await;
    assert_eq!(kind(limiter.acquire(&lane(), within(secs(3))).await), RejectKind::DeadlineUnreachable);
}

// Case 34.
#[tokio::test(start_paused = true)]
async fn a_pause_counts_and_is_named_where_it_alone_is_too_long() {
    let limiter = known(2, |limiter| limiter.queue_timeout(secs(400))).await;
    hold(&limiter).settle(Verdict::new(Outcome::Overload).with_pause(Pause::For(secs(30))));
    assert_eq!(kind(limiter.acquire(&lane(), within(secs(5))).await), RejectKind::Paused);
    let rejected = refused(limiter.acquire(&lane(), within(millis(31_500))).await);
    assert_eq!(rejected.kind(), RejectKind::DeadlineUnreachable);
    assert!(rejected.predicted_wait() >= Some(secs(30)), "{rejected}");
    let started = now();
    drop(limiter.acquire(&lane(), within(secs(40))).await.expect("after the pause"));
    assert!((secs(30)..=secs(33)).contains(&(now() - started)));
}

// Case 30.
#[tokio::test(start_paused = true)]
async fn a_queue_timeout_that_comes_first_is_no_reason_to_let_a_hopeless_call_wait() {
    let limiter = known(1, |limiter| limiter).await;
    let mut config = LimitConfig::default();
    (config.max_inflight, config.queue_timeout) = (1, secs(5));
    limiter.reconfigure(config).expect("a valid configuration");
    fill(&limiter, 1);
    settle_down().await;
    let _four: Vec<_> = futures_util::future::join_all((0..4).map(|_| queue(&limiter, Priority::Default))).await;
    assert_eq!(kind(limiter.acquire(&lane(), within(secs(8))).await), RejectKind::DeadlineUnreachable);
    assert_eq!(kind(limiter.acquire(&lane(), within(secs(60))).await), RejectKind::QueueTimeout);
}

// Case 29.
#[tokio::test(start_paused = true)]
async fn a_call_that_was_sent_in_time_is_not_cut_off() {
    let limiter = known(1, |limiter| limiter).await;
    let permit = limiter.acquire(&lane(), within(secs(3))).await.expect("a free slot");
    sleep(secs(60)).await;
    permit.settle(Outcome::Success);
    assert_nothing_is_left(&limiter);
}

#[tokio::test(start_paused = true)]
async fn a_higher_class_is_not_charged_with_the_queue_of_a_lower_one() {
    let limiter = known(4, |limiter| limiter).await;
    fill(&limiter, 4 + 20);
    settle_down().await;
    let interactive = Call::new(Priority::Interactive).with_timeout(secs(5));
    drop(limiter.acquire(&lane(), interactive).await.expect("in time"));
    assert_eq!(kind(limiter.acquire(&lane(), within(secs(5))).await), RejectKind::DeadlineUnreachable);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_may_not_wait_is_busy_and_not_late() {
    let limiter = known(1, |limiter| limiter).await;
    fill(&limiter, 10);
    settle_down().await;
    let call = within(secs(3)).with_admission(Admission::Reject);
    assert_eq!(kind(limiter.acquire(&lane(), call).await), RejectKind::Busy);
}
