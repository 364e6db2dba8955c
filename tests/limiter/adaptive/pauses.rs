//! Pauses of the upstream's and of the controller's making: nobody before time, and no clock stands still.

use super::*;

/// A lane under a puppet that has begun a pause.
fn paused(pause: Duration, set: impl FnOnce(LimiterBuilder) -> LimiterBuilder) -> (Limiter, Puppet) {
    let puppet = Puppet::new(4);
    let limiter = puppet.in_lanes(set);
    let held = hold(&limiter);
    puppet.pull(|strings| strings.pause = Some(pause));
    held.settle(Outcome::Success);
    puppet.pull(|strings| strings.pause = None);
    (limiter, puppet)
}

#[tokio::test(start_paused = true)]
async fn a_trial_holds_everybody_back_and_then_lets_them_go_without_another_event() {
    let start = now();
    let (limiter, _puppet) = paused(secs(5), |limiter| limiter);
    assert_eq!(figures(&limiter).paused_until_s, Some(5.0));
    let rejected = refused(limiter.try_acquire(&lane(), Priority::Interactive));
    assert_eq!((rejected.kind(), rejected.retry_after()), (RejectKind::Paused, Some(secs(5))));
    let waiters = [Priority::Bulk, Priority::Interactive].map(|class| tokio::spawn(limiter.acquire(&lane(), class)));
    for waiter in waiters {
        drop(waiter.await.expect("no panic").expect("a slot"));
        assert!((secs(5)..secs(6)).contains(&(now() - start)), "{:?}", now() - start);
    }
    assert_nothing_is_left(&limiter);
}

#[tokio::test(start_paused = true)]
async fn a_call_whose_bound_ends_in_a_trial_is_refused_at_once_with_the_time_left() {
    let start = now();
    let (limiter, _puppet) = paused(secs(30), |limiter| limiter.queue_timeout(secs(20)));
    pass(secs(2)).await;
    let rejected = refused(limiter.acquire(&lane(), Priority::Default).await);
    assert_eq!((rejected.kind(), rejected.retry_after()), (RejectKind::Paused, Some(secs(28))));
    let call = Call::new(Priority::Default).with_timeout(secs(5));
    let rejected = refused(limiter.acquire(&lane(), call).await);
    assert_eq!((rejected.kind(), rejected.retry_after()), (RejectKind::Paused, Some(secs(28))));
    assert_eq!(now() - start, secs(2));
    assert_nothing_is_left(&limiter);
}

#[tokio::test(start_paused = true)]
async fn queue_timeouts_and_deadlines_go_on_in_a_pause() {
    for is_controllers in [false, true] {
        let puppet = Puppet::new(1);
        let limiter = puppet.in_lanes(|limiter| limiter.queue_timeout(secs(20)));
        let held = hold(&limiter);
        let patient = queue(&limiter, Priority::Default).await;
        let hurried = queue(&limiter, Call::new(Priority::Default).with_timeout(secs(10))).await;
        pass(secs(2)).await;
        if is_controllers {
            puppet.pull(|strings| strings.pause = Some(secs(60)));
            held.settle(Outcome::Success);
        } else {
            held.settle(busy(60));
        }
        let rejected = refused(hurried.await);
        assert_eq!((rejected.kind(), rejected.waited()), (RejectKind::Deadline, secs(10)));
        let rejected = refused(patient.await);
        assert_eq!((rejected.kind(), rejected.waited()), (RejectKind::QueueTimeout, secs(20)));
        assert_nothing_is_left(&limiter);
    }
}

#[tokio::test(start_paused = true)]
async fn a_pause_without_end_is_looked_at_again_after_ten_minutes() {
    let puppet = Puppet::new(4);
    let limiter = puppet.in_lanes(|limiter| limiter.queue_timeout(secs(3_600)));
    let held = hold(&limiter);
    puppet.pull(|strings| strings.pause = Some(Duration::MAX / 2));
    held.settle(Outcome::Success);
    assert_eq!(figures(&limiter).paused_until_s, Some(600.0));
    let start = now();
    let permit = limiter.acquire(&lane(), Priority::Default).await.expect("it is over");
    assert!((secs(600)..secs(601)).contains(&(now() - start)));
    assert_eq!(figures(&limiter).condition, Condition::Paused, "it was asked again");
    drop(permit);
}

// Case 97.
#[tokio::test(start_paused = true)]
async fn after_a_pause_few_go_first_and_never_more_than_the_limit() {
    let limiter = build(|limiter| limiter.limit(aimd(32)));
    let wave: Vec<_> = (0..32).map(|_| hold(&limiter)).collect();
    let start = now();
    let waiters: Vec<_> = (0..500)
        .map(|_| {
            let acquire = limiter.acquire(&lane(), Priority::Default);
            tokio::spawn(async move {
                let permit = acquire.await.expect("a slot");
                let at = now();
                tokio::time::sleep(secs(10)).await;
                permit.settle(Outcome::Success);
                at
            })
        })
        .collect();
    settle_down().await;
    wave.into_iter().for_each(|permit| permit.settle(busy(30)));
    assert_eq!(figures(&limiter).limit, 16);
    let mut sent = Vec::new();
    for waiter in waiters {
        sent.push(waiter.await.expect("no panic") - start);
    }
    let opened = *sent.iter().min().expect("some");
    let until = |after| sent.iter().filter(|&&at| at <= opened + after).count();
    assert!((secs(30)..=secs(31)).contains(&opened), "{opened:?}");
    assert!(until(millis(2)) <= 2 && until(millis(500)) <= 9, "not all at once");
    assert_eq!(until(millis(1_100)), 16);
    assert_nothing_is_left(&limiter);
}

// Case 97.
#[tokio::test(start_paused = true)]
async fn processes_that_were_told_the_same_do_not_come_back_together() {
    let told = |_| {
        let limiter = limiter(1);
        hold(&limiter).settle(busy(30));
        limiter
    };
    // Each limiter has random numbers of its own, as each process has.
    let processes: Vec<Limiter> = (0..8).map(told).collect();
    let left = |limiter: &Limiter| figures(limiter).paused_until_s.expect("a pause");
    let mut left: Vec<f64> = processes.iter().map(left).collect();
    left.sort_by(f64::total_cmp);
    assert!(left[0] >= 30.0 && left[7] <= 31.0, "{left:?}");
    assert!(left[7] - left[0] > 0.01, "{left:?}");
}
