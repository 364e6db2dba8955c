//! Q4: a run slot is lent while a lane is busy.

use tower_inflight::Kind;

use super::*;

#[tokio::test(start_paused = true)]
async fn while_its_own_turn_waits_for_a_lane_the_slot_goes_to_the_next_run_in_line() {
    let (queue, limiter) = (slots(1), limiter());
    let slot = hold(&limiter);
    let [lender, next] = ["ann", "bob"].map(|user| start(&queue, user));
    let call = wait_in_lane(&limiter, &lender).await;
    assert_eq!((lender.status(), next.status()), (RunStatus::Lent, RunStatus::Running));
    assert_eq!(load(&queue), (1, 0, 1));
    next.finish().expect("it ran");
    slot.settle(Outcome::Success);
    drop(call.await.expect("both slots"));
    assert!(is_running(&lender));
}

#[tokio::test(start_paused = true)]
async fn a_call_that_gets_its_lane_at_once_lends_nothing() {
    let (queue, limiter) = (slots(1), limiter());
    let run = start(&queue, "ann");
    let mut events = run.events();
    let permit = run.turn(limiter.acquire(&local(), Priority::Default)).await.expect("the lane is free");
    drop(permit);
    run.finish().expect("it ran");
    let heard = heard(&mut events).await;
    assert!(!heard.iter().any(|event| matches!(event, RunEvent::Lent | RunEvent::CallQueued { .. })), "{heard:?}");
}

#[tokio::test(start_paused = true)]
async fn the_slot_is_taken_back_before_the_call_is_sent() {
    let (queue, limiter) = (slots(1), limiter());
    let slot = hold(&limiter);
    let lender = start(&queue, "ann");
    let mut call = wait_in_lane(&limiter, &lender).await;
    let other = start(&queue, "bob");
    slot.settle(Outcome::Success);
    for _ in 0..5 {
        assert!(poll!(&mut call).is_pending(), "the lane is free, and the run has no slot");
        sleep(Duration::from_millis(300)).await;
    }
    drop(other);
    drop(call.await.expect("both slots"));
}

#[tokio::test(start_paused = true)]
async fn a_turn_by_scope_lends_like_one_by_call() {
    let (queue, limiter) = (slots(1), limiter());
    let _slot = hold(&limiter);
    let [lender, next] = ["ann", "bob"].map(|user| start(&queue, user));
    let mut call: Pin<Box<Scoped<Acquire>>> = Box::pin(lender.turn(limiter.acquire(&local(), Priority::Default)));
    assert!(poll!(&mut call).is_pending());
    assert_eq!((lender.status(), next.status()), (RunStatus::Lent, RunStatus::Running));
}

#[tokio::test(start_paused = true)]
async fn lent_and_queued_runs_stay_within_the_queue_depth_and_at_it_the_run_waits_holding_its_slot() {
    let (queue, limiter) = (queue(|queue| queue.max_concurrent_runs(1).max_queue_depth(1)), limiter());
    let slot = hold(&limiter);
    let [lender, waiting] = ["ann", "bob"].map(|user| start(&queue, user));
    let call = wait_in_lane(&limiter, &lender).await;
    assert_eq!((lender.status(), waiting.status()), (RunStatus::Running, RunStatus::Queued));
    slot.settle(Outcome::Success);
    drop(call.await.expect("the lane's slot"));
    assert!(is_running(&lender));
}

#[tokio::test(start_paused = true)]
async fn a_slot_that_was_held_at_the_bound_is_lent_when_there_is_room() {
    let (queue, limiter) = (queue(|queue| queue.max_concurrent_runs(1).max_queue_depth(2)), limiter());
    let _slot = hold(&limiter);
    let [lender, next, leaver] = ["ann", "bob", "cyd"].map(|user| start(&queue, user));
    let _call = wait_in_lane(&limiter, &lender).await;
    assert!(is_running(&lender));
    drop(leaver);
    assert_eq!((lender.status(), next.status()), (RunStatus::Lent, RunStatus::Running));
}

#[tokio::test(start_paused = true)]
async fn a_slot_that_is_held_at_the_bound_goes_to_a_run_that_comes_back() {
    let (queue, limiter) = (queue(|queue| queue.max_concurrent_runs(1).max_queue_depth(1)), limiter());
    let slot = hold(&limiter);
    let first = start(&queue, "ann");
    let first_call = wait_in_lane(&limiter, &first).await;
    let second = start(&queue, "bob");
    let second_call = wait_in_lane(&limiter, &second).await;
    assert_eq!((first.status(), second.status()), (RunStatus::Lent, RunStatus::Running));
    slot.settle(Outcome::Success);
    // Each holds what the other waits for, were it not for the swap.
    drop(first_call.await.expect("both slots"));
    assert_eq!((first.status(), second.status()), (RunStatus::Running, RunStatus::Lent));
    first.finish().expect("it ran");
    drop(second_call.await.expect("both slots"));
}

#[tokio::test(start_paused = true)]
async fn a_call_beside_the_runs_turns_never_lends() {
    let (queue, limiter) = (slots(1), limiter());
    let slot = hold(&limiter);
    let [run, waiting] = ["ann", "bob"].map(|user| start(&queue, user));
    let tool = limiter.acquire(&local(), Call::new(Priority::Default).beside(&run));
    // Also inside of a turn, as agent loops are often put together.
    let mut calls = Box::pin(async {
        let nested = run.turn(run.beside(limiter.acquire(&local(), Priority::Default)));
        drop(tool.await.expect("the lane's slot"));
        drop(nested.await.expect("the lane's slot"));
    });
    assert!(poll!(&mut calls).is_pending());
    assert_eq!((run.status(), waiting.status()), (RunStatus::Running, RunStatus::Queued));
    slot.settle(Outcome::Success);
    calls.await;
}

#[tokio::test(start_paused = true)]
async fn an_embedding_never_lends() {
    let (queue, limiter) = (slots(1), limiter());
    let lane = local().with_kind(Kind::Embedding);
    let _slot = limiter.try_acquire(&lane, Priority::Default).expect("free");
    let [run, waiting] = ["ann", "bob"].map(|user| start(&queue, user));
    let mut call = Box::pin(run.turn(limiter.acquire(&lane, Priority::Default)));
    assert!(poll!(&mut call).is_pending());
    assert_eq!((run.status(), waiting.status()), (RunStatus::Running, RunStatus::Queued));
}

// Runs that hold their slots wait for a lane whose slot was granted to one that has lent its own.
#[tokio::test(start_paused = true)]
async fn a_tools_call_gets_the_lane_when_the_run_before_it_has_no_slot_to_use_it() {
    let (queue, limiter) = (slots(1), limiter());
    let slot = hold(&limiter);
    let lender = start(&queue, "ann");
    let lent_call = wait_in_lane(&limiter, &lender).await;
    let holder = start(&queue, "bob");
    let tool = limiter.acquire(&local(), Call::new(Priority::Default).beside(&holder));
    let tool = tokio::spawn(tool);
    let lent_call = tokio::spawn(lent_call);
    tokio::task::yield_now().await;
    slot.settle(Outcome::Success);
    // The lane's slot is the lender's, which needs the holder's run slot, which needs the lane: for one lease.
    let permit = tool.await.expect("no panic").expect("the lane's slot");
    permit.settle(Outcome::Success);
    holder.finish().expect("it ran");
    drop(lent_call.await.expect("no panic").expect("its place in the lane's line was kept"));
    lender.finish().expect("it ran");
    assert_nothing_is_left(&queue, &limiter);
}

#[tokio::test(start_paused = true)]
async fn a_run_that_lost_its_lane_slot_for_want_of_its_own_lends_on() {
    let (queue, limiter) = (slots(1), limiter());
    let slot = hold(&limiter);
    let lender = start(&queue, "ann");
    let lent_call = tokio::spawn(wait_in_lane(&limiter, &lender).await);
    let other = tokio::spawn(limiter.acquire(&local(), Priority::Default));
    let borrower = start(&queue, "bob");
    tokio::task::yield_now().await;
    slot.settle(Outcome::Success);
    let other = other.await.expect("no panic").expect("the slot that lapsed");
    let next = start(&queue, "cyd");
    borrower.finish().expect("it ran");
    tokio::task::yield_now().await;
    assert_eq!((lender.status(), next.status()), (RunStatus::Lent, RunStatus::Running));
    next.finish().expect("it ran");
    drop(other);
    drop(lent_call.await.expect("no panic").expect("its place in the lane's line was kept"));
}

#[tokio::test(start_paused = true)]
async fn a_lent_run_whose_call_is_dropped_has_its_slot_back_before_every_new_run() {
    let (queue, limiter) = (slots(1), limiter());
    let _slot = hold(&limiter);
    let lender = start(&queue, "ann");
    let call = wait_in_lane(&limiter, &lender).await;
    let running = start(&queue, "bob");
    let waiting = start(&queue, "cyd");
    drop(call);
    assert_eq!(lender.status(), RunStatus::Lent);
    running.finish().expect("it ran");
    assert_eq!((lender.status(), waiting.status()), (RunStatus::Running, RunStatus::Queued));
}

#[tokio::test(start_paused = true)]
async fn a_lent_run_whose_call_is_refused_has_its_slot_back_before_it_hears_of_it() {
    let queue = slots(1);
    let limiter = Limiter::builder().max_inflight(1).queue_timeout(secs(5)).build().expect("valid");
    let _slot = hold(&limiter);
    let lender = start(&queue, "ann");
    let mut call = wait_in_lane(&limiter, &lender).await;
    let running = start(&queue, "bob");
    sleep(secs(6)).await;
    assert!(poll!(&mut call).is_pending());
    running.finish().expect("it ran");
    assert_eq!(kind(call.await), RejectKind::QueueTimeout);
    assert!(is_running(&lender));
}

#[tokio::test(start_paused = true)]
async fn a_run_that_is_over_leaves_no_call_in_a_lanes_line() {
    let (queue, limiter) = (slots(1), limiter());
    let slot = hold(&limiter);
    let lender = start(&queue, "ann");
    let call = tokio::spawn(wait_in_lane(&limiter, &lender).await);
    lender.cancel().expect("it is there");
    assert_eq!(kind(call.await.expect("no panic")), RejectKind::RunOver);
    slot.settle(Outcome::Success);
    drop(hold(&limiter));
    assert_nothing_is_left(&queue, &limiter);
}

/// Runs for a busy local model and runs for an idle one: how long the latter wait.
#[tokio::test(start_paused = true)]
async fn runs_for_an_idle_model_do_not_wait_behind_those_for_a_busy_one() {
    let queue = queue(|queue| queue.max_concurrent_runs(4).max_queue_depth(100).max_queued_runs_per_user(100));
    let limiter = limiter();
    let cloud_limiter = Limiter::builder().max_inflight(100).build().expect("valid");
    let mut tasks = Vec::new();
    for n in 0..40 {
        let mut run = start(&queue, if n % 4 < 2 { "ann" } else { "bob" });
        let (limiter, cloud_limiter) = (limiter.clone(), cloud_limiter.clone());
        tasks.push(tokio::spawn(async move {
            let is_local = n % 2 == 0;
            run.admitted().await.expect("nobody cancels");
            let permit = if is_local {
                run.turn(limiter.acquire(&local(), Priority::Default)).await
            } else {
                run.turn(cloud_limiter.acquire(&LaneKey::new("cloud", "big"), Priority::Default)).await
            };
            sleep(secs(1)).await;
            drop(permit.expect("a slot"));
            run.finish().expect("nobody cancels");
            (!is_local).then(clock)
        }));
    }
    let began = clock();
    let mut last_cloud = began;
    for task in tasks {
        last_cloud = last_cloud.max(task.await.expect("no panic").unwrap_or(began));
    }
    // 20 cloud runs on the slots that the one computing local run leaves, not behind 20 local ones in a row.
    assert!(last_cloud - began <= secs(8), "{:?}", last_cloud - began);
    assert_nothing_is_left(&queue, &limiter);
}

#[expect(clippy::disallowed_methods, reason = "tests follow the clock that the limiter reads")]
fn clock() -> tokio::time::Instant {
    tokio::time::Instant::now()
}
