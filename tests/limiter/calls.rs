//! What a call takes along: over retries, through scopes, to its listener.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;

use tokio::time::sleep;
use tower_inflight::{CallEvent, InCurrentScope, Outcome, Scope};

use super::*;

#[tokio::test(start_paused = true)]
async fn clones_of_a_call_count_their_attempts_together() {
    let limiter = limiter(1);
    let call = Call::new(Priority::Default);
    for attempt in 1..4 {
        let permit = limiter.acquire(&lane(), call.clone()).await.expect("free");
        assert_eq!(permit.admitted().expect("it is on").attempt(), attempt);
        permit.settle(Outcome::Unavailable);
    }
    assert_eq!(call.attempts(), 3);
    let other = limiter.acquire(&lane(), Priority::Default).await.expect("free");
    assert_eq!(other.admitted().expect("it is on").attempt(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_refused_attempt_is_none() {
    let limiter = build(|limiter| limiter.max_inflight(1).queue_timeout(secs(5)));
    let _held = hold(&limiter);
    let call = Call::new(Priority::Default);
    assert_eq!(kind(limiter.acquire(&lane(), call.clone()).await), RejectKind::QueueTimeout);
    assert_eq!(call.attempts(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_retry_has_the_age_of_its_first_attempt_and_a_new_queue_timeout() {
    let limiter = build(|limiter| limiter.max_inflight(1).queue_timeout(secs(50)));
    let _held = hold(&limiter);
    let call = Call::new(Priority::Bulk);
    assert_eq!(refused(limiter.acquire(&lane(), call.clone()).await).waited(), secs(50));
    sleep(secs(15)).await;
    // 65 s old: among the default calls, and before those that came later.
    let _default = queue(&limiter, Priority::Default).await;
    let _interactive = queue(&limiter, Priority::Interactive).await;
    let retry = refused(limiter.acquire(&lane(), call).await);
    assert_eq!((retry.waited(), retry.position()), (secs(50), Some(3)));
}

#[tokio::test(start_paused = true)]
async fn a_retry_goes_before_those_who_came_after_its_first_attempt() {
    let limiter = limiter(1);
    let held = hold(&limiter);
    let call = Call::new(Priority::Default);
    sleep(secs(1)).await;
    let mut later = queue(&limiter, Priority::Default).await;
    let mut retry = queue(&limiter, call).await;
    drop(held);
    assert!(poll!(&mut later).is_pending());
    assert!(poll!(&mut retry).is_ready());
}

#[tokio::test(start_paused = true)]
async fn a_listener_hears_of_waiting_and_of_the_slot() {
    let limiter = limiter(1);
    let held = hold(&limiter);
    let heard = Arc::new(Mutex::new(Vec::new()));
    let call = Call::new(Priority::Default).with_listener({
        let heard = heard.clone();
        move |event| {
            let line = match event {
                CallEvent::Queued { lane, position } => format!("{lane} at {position}"),
                CallEvent::Admitted(admitted) => {
                    format!("{} after {:?} from {:?}", admitted.lane(), admitted.waited(), admitted.position())
                }
                _ => unreachable!("there are two events"),
            };
            heard.lock().expect("not poisoned").push(line);
        }
    });
    let waiter = tokio::spawn(limiter.acquire(&lane(), call));
    sleep(secs(2)).await;
    drop(held);
    drop(waiter.await.expect("no panic"));
    assert_eq!(*heard.lock().expect("not poisoned"), ["local|gemma at 1", "local|gemma after 2s from Some(1)"]);
}

// Case 145.
#[tokio::test(start_paused = true)]
async fn a_listener_may_use_the_limiter() {
    let limiter = limiter(1);
    let held = hold(&limiter);
    let waiter = Mutex::new(Some(queue(&limiter, Priority::Bulk).await));
    let inside = limiter.clone();
    let call = Call::new(Priority::Default).with_listener(move |_| {
        assert!(inside.snapshot().enabled);
        assert_eq!(kind(inside.try_acquire(&lane(), Priority::Interactive)), RejectKind::Busy);
        drop(waiter.lock().expect("not poisoned").take());
    });
    let mut acquire = queue(&limiter, call).await;
    assert_eq!(load(&limiter), (1, 1));
    drop(held);
    drop((&mut acquire).await.expect("its turn"));
    assert_nothing_is_left(&limiter);
}

// Case 145.
#[tokio::test(start_paused = true)]
async fn a_listener_that_panics_costs_no_slot_and_no_place() {
    let limiter = limiter(1);
    let panics_when = |queued: bool| {
        Call::new(Priority::Default).with_listener(move |event| {
            assert_ne!(matches!(event, CallEvent::Queued { .. }), queued, "on purpose");
        })
    };
    let waker = std::task::Waker::noop();
    let poll_and_panic = |mut acquire: Pin<Box<Acquire>>| {
        let result = catch_unwind(AssertUnwindSafe(|| drop(acquire.as_mut().poll(&mut Context::from_waker(waker)))));
        assert!(result.is_err());
    };
    poll_and_panic(Box::pin(limiter.acquire(&lane(), panics_when(false))));
    assert_eq!(load(&limiter), (0, 0));

    let held = hold(&limiter);
    poll_and_panic(Box::pin(limiter.acquire(&lane(), panics_when(true))));
    assert_eq!(load(&limiter), (1, 0));

    let waiter = queue(&limiter, panics_when(false)).await;
    let mut next = queue(&limiter, Priority::Default).await;
    drop(held);
    poll_and_panic(waiter);
    assert!(poll!(&mut next).is_ready());
    drop(next);
    assert_nothing_is_left(&limiter);
}

#[tokio::test(start_paused = true)]
async fn a_call_takes_from_its_scope_what_it_leaves_open() {
    let limiter = limiter(1);
    let _held = hold(&limiter);
    let scope = Scope::new().with_priority(Priority::Bulk).with_tenant("acme").with_timeout(secs(3));
    let rejected = scope.run(async {
        let started = now();
        let rejected = refused(limiter.acquire(&lane(), Call::arrived()).await);
        assert_eq!(now() - started, secs(3));
        rejected
    });
    assert_eq!(rejected.await.kind(), RejectKind::Deadline);
}

#[tokio::test(start_paused = true)]
async fn class_and_tenant_of_a_scope_reach_the_queue() {
    let limiter = limiter(1);
    let held = hold(&limiter);
    let inside = Scope::new().with_tenant("acme").run(queue(&limiter, Call::arrived()));
    let bulk = Priority::Bulk.scope(inside).await;
    let default = queue(&limiter, Call::arrived()).await;
    let own = Priority::Bulk.scope(queue(&limiter, Priority::Interactive)).await;
    let queued = figures(&limiter).queued_by_priority;
    assert_eq!((queued.interactive, queued.default, queued.bulk), (1, 1, 1));
    drop((held, bulk, default, own));
    assert_nothing_is_left(&limiter);
}

#[tokio::test(start_paused = true)]
async fn a_scope_ends_with_its_task_unless_it_is_taken_along() {
    let spawned = Priority::Bulk.scope(async {
        let without = tokio::spawn(async { Scope::current().priority() });
        let with = tokio::spawn(async { Scope::current().priority() }.in_current_scope());
        (without.await.expect("no panic"), with.await.expect("no panic"))
    });
    assert_eq!(spawned.await, (None, Some(Priority::Bulk)));
    assert_eq!(Scope::current().priority(), None);
}

#[tokio::test(start_paused = true)]
async fn scopes_nest_and_the_earlier_deadline_stands() {
    let limiter = limiter(1);
    let _held = hold(&limiter);
    let inner = Scope::new().with_priority(Priority::Interactive).with_timeout(secs(9));
    let call = async {
        assert_eq!(
            (Scope::current().priority(), Scope::current().tenant()),
            (Some(Priority::Interactive), Some("acme"))
        );
        let started = now();
        let call = Call::arrived().with_timeout(secs(60));
        assert_eq!(kind(limiter.acquire(&lane(), call).await), RejectKind::Deadline);
        now() - started
    };
    let outer = Scope::new().with_priority(Priority::Bulk).with_tenant("acme").with_timeout(secs(4));
    assert_eq!(outer.run(async { inner.run(call).await }).await, secs(4));
}
