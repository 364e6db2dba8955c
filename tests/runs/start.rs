//! Q1 and Q3: starting, waiting, ending.

use tower_inflight::{Admission, Once};

use super::*;

#[test]
fn runs_and_their_calls_can_be_shared_between_threads() {
    fn shared<T: Send + Sync>() {}
    shared::<Run>();
    shared::<RunHandle>();
    shared::<RunEvents>();
    shared::<Acquire>();
}

#[test]
fn the_bounds_have_their_defaults() {
    let queue = queue(|queue| queue);
    assert_eq!((queue.config().max_queue_depth, queue.config().max_queued_runs_per_user), (32, 16));
}

// Outside of any runtime, so nothing can have waited.
#[test]
fn start_returns_at_once_with_an_id_a_status_a_cancel_handle_and_events_before_any_waiting() {
    let queue = slots(1);
    let running = start(&queue, "ann");
    let waiting = start(&queue, "bob");
    assert_ne!(running.id(), waiting.id());
    assert_eq!((running.status(), waiting.status()), (RunStatus::Running, RunStatus::Queued));
    let _events: RunEvents = waiting.events();
    waiting.handle().clone().cancel().expect("it is there");
    assert_eq!(waiting.status(), RunStatus::Cancelled);
}

#[tokio::test(start_paused = true)]
async fn events_tell_of_the_line_the_slot_and_the_end() {
    let queue = slots(1);
    let running = start(&queue, "ann");
    let mut waiting = start(&queue, "bob");
    let mut events = waiting.events();
    sleep(Duration::from_millis(500)).await;
    running.finish().expect("it ran");
    waiting.admitted().await.expect("the slot is free");
    waiting.finish().expect("it ran");
    let queued = RunEvent::Queued { reason: QueuedFor::GlobalCap, position: 1 };
    let admitted = RunEvent::Admitted { wait: Duration::from_millis(500) };
    assert_eq!(heard(&mut events).await, [queued, admitted, RunEvent::Finished]);
    assert_eq!(events.next().await, None);
}

#[tokio::test(start_paused = true)]
async fn a_run_waits_first_for_its_users_cap_and_then_for_the_global_pool() {
    let queue = queue(|queue| queue.max_concurrent_runs(2).max_concurrent_runs_per_user(1));
    let [mine, yours] = ["ann", "bob"].map(|user| start(&queue, user));
    let second = start(&queue, "ann");
    let stranger = start(&queue, "cyd");
    let mut events = second.events();
    mine.finish().expect("it ran");
    assert_eq!((is_running(&stranger), second.status()), (true, RunStatus::Queued));
    yours.finish().expect("it ran");
    let [own, global] = [QueuedFor::UserCap, QueuedFor::GlobalCap];
    let heard = heard(&mut events).await;
    let queued = |reason, position| RunEvent::Queued { reason, position };
    assert_eq!(heard[..2], [queued(own, 1), queued(global, 2)]);
    assert!(matches!(heard[2..], [RunEvent::Admitted { .. }]));
}

#[tokio::test(start_paused = true)]
async fn there_is_no_queue_timeout() {
    let queue = slots(1);
    let running = start(&queue, "ann");
    let mut waiting = start(&queue, "bob");
    {
        let mut admitted = std::pin::pin!(waiting.admitted());
        assert!(poll!(&mut admitted).is_pending());
        sleep(secs(30 * 24 * 60 * 60)).await;
        assert!(poll!(&mut admitted).is_pending());
        running.finish().expect("it ran");
        admitted.await.expect("the slot is free");
    }
    assert!(is_running(&waiting));
}

#[test]
fn over_the_queue_depth_a_start_is_refused_with_the_bound_its_value_and_the_setting() {
    let queue = queue(|queue| queue.max_concurrent_runs(1).max_queue_depth(2));
    let _here = ["ann", "bob", "cyd"].map(|user| start(&queue, user));
    let full = full(queue.start(of("dan")));
    assert_eq!((full.bound(), full.limit(), full.bound().setting()), (RunBound::QueueDepth, 2, "max_queue_depth"));
}

#[test]
fn over_the_queued_runs_per_user_a_start_is_refused_and_others_are_not() {
    let queue = queue(|queue| queue.max_concurrent_runs(1).max_queued_runs_per_user(2));
    let _here = ["ann", "ann", "ann"].map(|user| start(&queue, user));
    let full = full(queue.start(of("ann")));
    assert_eq!((full.bound(), full.limit()), (RunBound::QueuedRunsPerUser, 2));
    assert_eq!(start(&queue, "bob").status(), RunStatus::Queued);
}

#[test]
fn admission_reject_refuses_instead_of_waiting() {
    let queue = queue(|queue| queue.max_concurrent_runs(2).max_concurrent_runs_per_user(1));
    let now = |user| queue.start(of(user).with_admission(Admission::Reject));
    let first = now("ann").expect("a slot is free");
    assert_eq!(full(now("ann")).bound(), RunBound::ConcurrentRunsPerUser);
    let _second = now("bob").expect("a slot is free");
    assert_eq!(full(now("cyd")).bound(), RunBound::ConcurrentRuns);
    drop(first);
    assert!(is_running(&now("cyd").expect("a slot is free")));
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_queued_run_ends_without_having_made_a_call() {
    let (queue, limiter) = (slots(1), limiter());
    let running = start(&queue, "ann");
    let waiting = start(&queue, "bob");
    let mut call = Box::pin(waiting.turn(limiter.acquire(&local(), Priority::Default)));
    assert!(poll!(&mut call).is_pending(), "it has no slot yet");
    waiting.cancel().expect("it is there");
    running.finish().expect("it ran");
    assert_eq!(kind(call.await), RejectKind::RunOver);
    assert_eq!(limiter.snapshot().lanes[0].outcomes.len(), 0);
    assert_nothing_is_left(&queue, &limiter);
}

#[test]
fn the_same_key_gives_the_run_that_is_already_there() {
    let queue = slots(1);
    let Once::New(run) = queue.start_once("nightly", of("cron")).expect("free") else { panic!("nobody was there") };
    let Once::There(same) = queue.start_once("nightly", of("cron")).expect("there") else { panic!("it is there") };
    assert_eq!((same.id(), same.key()), (run.id(), Some("nightly")));
    drop(same);
    assert!(is_running(&run), "a handle of it is not its owner");
    let Once::New(other) = queue.start_once("nightly", of("ann")).expect("there is room") else { panic!("not hers") };
    drop((run, other));
    assert!(matches!(queue.start_once("nightly", of("cron")), Ok(Once::New(_))), "the key is free again");
}

#[test]
fn a_refused_start_leaves_no_trace_so_that_the_next_tick_fires_it_again() {
    let queue = queue(|queue| queue.max_concurrent_runs(1).max_queue_depth(0));
    let running = start(&queue, "ann");
    assert!(queue.start_once("nightly", of("cron")).is_err());
    assert_eq!((load(&queue), queue.stats().users.len()), ((1, 0, 0), 1));
    drop(running);
    assert!(matches!(queue.start_once("nightly", of("cron")), Ok(Once::New(_))));
}

#[tokio::test(start_paused = true)]
async fn a_single_call_waits_in_the_same_line_as_a_run_of_one_call() {
    let queue = slots(1);
    let running = start(&queue, "ann");
    let mut single = Box::pin(queue.call(of("bob"), async { "done" }));
    assert!(poll!(&mut single).is_pending());
    let behind = start(&queue, "cyd");
    assert_eq!(behind.position(), Some(2));
    running.finish().expect("it ran");
    assert_eq!(single.await, Ok("done"));
    assert!(is_running(&behind));
}

#[tokio::test(start_paused = true)]
async fn a_single_call_that_is_dropped_in_line_is_gone() {
    let queue = slots(1);
    let _running = start(&queue, "ann");
    let mut single = Box::pin(queue.call(of("bob"), async {}));
    assert!(poll!(&mut single).is_pending());
    drop(single);
    assert_eq!(load(&queue), (1, 0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_single_call_that_is_cancelled_says_so() {
    let queue = slots(1);
    let _running = start(&queue, "ann");
    let mut notices = queue.subscribe();
    let mut single = Box::pin(queue.call(of("bob"), async {}));
    assert!(poll!(&mut single).is_pending());
    queue.cancel(notices.next().await.expect("it never ends").run).expect("it is there");
    assert_eq!(single.await, Err(StartError::Cancelled));
}

#[test]
fn a_run_that_is_dropped_without_finishing_is_finished_as_cancelled() {
    let queue = slots(1);
    let [running, waiting] = ["ann", "bob"].map(|user| start(&queue, user));
    let handle = running.handle().clone();
    drop(running);
    assert_eq!((handle.status(), is_running(&waiting)), (RunStatus::Cancelled, true));
}

#[tokio::test(start_paused = true)]
async fn a_run_is_cancelled_in_every_state() {
    let (queue, limiter) = (queue(|queue| queue.max_concurrent_runs(1).max_concurrent_runs_per_user(1)), limiter());
    let _slot = hold(&limiter);
    let lent = start(&queue, "ann");
    let call = wait_in_lane(&limiter, &lent).await;
    let running = start(&queue, "bob");
    let in_pool_line = start(&queue, "cyd");
    let in_user_line = start(&queue, "bob");
    assert_eq!(load(&queue), (1, 2, 1));
    for run in [&in_user_line, &in_pool_line, &running, &lent] {
        run.cancel().expect("it is there");
        assert_eq!((run.status(), run.ended().await), (RunStatus::Cancelled, RunStatus::Cancelled));
    }
    assert_eq!(load(&queue), (0, 0, 0));
    assert_eq!(kind(call.await), RejectKind::RunOver);
}

// Case 4, for runs.
#[tokio::test(start_paused = true)]
async fn a_slot_given_to_one_who_leaves_goes_to_the_next() {
    let queue = slots(1);
    let [running, mut leaver, mut next] = ["ann", "bob", "cyd"].map(|user| start(&queue, user));
    let mut admitted = Box::pin(next.admitted());
    assert!(poll!(&mut admitted).is_pending());
    {
        let mut leaving = Box::pin(leaver.admitted());
        assert!(poll!(&mut leaving).is_pending());
        running.finish().expect("it ran");
    }
    drop(leaver);
    admitted.await.expect("the slot");
}

// Case 149, for runs.
#[tokio::test(start_paused = true)]
async fn closing_ends_those_who_wait_and_lets_the_others_go_on() {
    let queue = slots(1);
    let [running, mut waiting] = ["ann", "bob"].map(|user| start(&queue, user));
    let mut admitted = Box::pin(waiting.admitted());
    assert!(poll!(&mut admitted).is_pending());
    queue.close();
    queue.close();
    assert_eq!(admitted.await.expect_err("closed").status(), RunStatus::Cancelled);
    assert_eq!(queue.start(of("cyd")).expect_err("closed"), StartError::Closed);
    running.finish().expect("it went on");
}

// Case 154, for runs.
#[test]
fn cancelled_runs_do_not_pile_up_behind_a_long_one() {
    let queue = queue(|queue| queue.max_concurrent_runs(1).max_queue_depth(1_000).max_queued_runs_per_user(1_000));
    let running = start(&queue, "ann");
    for _ in 0..100 {
        let waiting: Vec<Run> = (0..1_000).map(|n| start(&queue, &format!("user-{n}"))).collect();
        assert_eq!(full(queue.start(of("one-too-many"))).bound(), RunBound::QueueDepth);
        drop(waiting);
    }
    assert_eq!((load(&queue), queue.stats().users.len()), ((1, 0, 0), 1));
    drop(running);
}

// Case 155, for runs: each is polled once to stand in line, and once for its slot.
#[tokio::test(start_paused = true)]
async fn a_slot_wakes_one_run() {
    let queue = queue(|queue| queue.max_concurrent_runs(1).max_queue_depth(2_000).max_queued_runs_per_user(2_000));
    let polls = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let running = start(&queue, "ann");
    let tasks: Vec<_> = (0..1_000)
        .map(|_| {
            let (mut run, polls) = (start(&queue, "ann"), polls.clone());
            tokio::spawn(async move {
                let mut admitted = Box::pin(run.admitted());
                std::future::poll_fn(|cx| {
                    polls.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    admitted.as_mut().poll(cx)
                })
                .await
                .expect("nobody cancels");
                drop(admitted);
                run.finish().expect("nobody cancels");
            })
        })
        .collect();
    tokio::task::yield_now().await;
    running.finish().expect("it ran");
    for task in tasks {
        task.await.expect("no panic");
    }
    assert!(polls.load(std::sync::atomic::Ordering::Relaxed) <= 2_000);
}
