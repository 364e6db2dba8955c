//! What makes no sense gets an error that says so, and changes nothing.

use super::*;

#[test]
fn an_unknown_run_is_named() {
    let queue = slots(1);
    let id = "17".parse().expect("a number");
    assert_eq!(queue.cancel(id).expect_err("never was").id(), id);
    assert_eq!(queue.run(id).expect_err("never was").to_string(), "no run 17 is here: it is over, or never was");
}

#[test]
fn cancelling_twice_says_how_it_ended() {
    let queue = slots(1);
    let run = start(&queue, "ann");
    queue.cancel(run.id()).expect("it is there");
    assert_eq!(run.cancel().expect_err("cancelled already").status(), RunStatus::Cancelled);
    assert!(queue.cancel(run.id()).is_err());
    assert_eq!(run.finish().expect_err("cancelled already").status(), RunStatus::Cancelled);
}

#[test]
fn cancelling_after_the_end_says_how_it_ended() {
    let queue = slots(1);
    let run = start(&queue, "ann");
    let handle = run.handle().clone();
    run.finish().expect("it ran");
    let error = handle.cancel().expect_err("it is over");
    assert_eq!((error.status(), error.id()), (RunStatus::Finished, handle.id()));
    assert_eq!(handle.status(), RunStatus::Finished);
}

#[tokio::test(start_paused = true)]
async fn a_turn_of_a_finished_run_is_refused_and_takes_no_slot() {
    let (queue, limiter) = (slots(1), limiter());
    let run = start(&queue, "ann");
    let handle = run.handle().clone();
    run.finish().expect("it ran");
    assert_eq!(kind(handle.turn(limiter.acquire(&local(), Priority::Default)).await), RejectKind::RunOver);
    assert_eq!(kind(handle.beside(limiter.acquire(&local(), Priority::Default)).await), RejectKind::RunOver);
    assert_eq!(
        kind(limiter.try_acquire(&local(), Call::new(Priority::Default).own_turn(&handle))),
        RejectKind::RunOver
    );
    assert_eq!(limiter.snapshot().lanes[0].refused["run_over"], 3);
    assert_nothing_is_left(&queue, &limiter);
}

#[test]
fn finishing_a_run_that_never_had_a_slot_cancels_it() {
    let queue = slots(1);
    let _running = start(&queue, "ann");
    let waiting = start(&queue, "bob");
    let handle = waiting.handle().clone();
    waiting.finish().expect("it is there");
    assert_eq!(handle.status(), RunStatus::Cancelled);
}

#[test]
fn settings_that_could_never_admit_a_run_are_refused_by_name() {
    let refused = |builder: RunQueueBuilder| builder.build().expect_err("it makes no sense").key().to_owned();
    assert_eq!(refused(RunQueue::builder().max_concurrent_runs(0)), "max_concurrent_runs");
    assert_eq!(refused(RunQueue::builder().max_concurrent_runs_per_user(0)), "max_concurrent_runs_per_user");
    assert_eq!(refused(RunQueue::builder().max_queue_depth(2_000_000)), "max_queue_depth");
    assert_eq!(refused(RunQueue::builder().max_queued_runs_per_user(2_000_000)), "max_queued_runs_per_user");
    let mut config = tower_inflight::RunConfig::default();
    config.budget_timeout = Duration::ZERO;
    assert_eq!(refused(RunQueue::builder().config(config)), "budget_timeout");
}

// Case 8, for runs.
#[tokio::test(start_paused = true)]
async fn a_panic_in_a_run_costs_only_that_run() {
    let (queue, limiter) = (slots(1), limiter());
    let mut run = start(&queue, "ann");
    let next = start(&queue, "bob");
    let (lane, handle) = (limiter.clone(), run.handle().clone());
    let task = tokio::spawn(async move {
        run.admitted().await.expect("a slot is free");
        let _permit = run.turn(lane.acquire(&local(), Priority::Default)).await.expect("the lane is free");
        panic!("a bug in a tool");
    });
    assert!(task.await.is_err());
    assert_eq!((handle.status(), is_running(&next)), (RunStatus::Cancelled, true));
    next.finish().expect("it ran");
    assert_nothing_is_left(&queue, &limiter);
}

// Case 150, for runs.
#[test]
fn runs_calls_and_listeners_may_outlive_their_runtime() {
    let (queue, limiter) = (slots(1), limiter());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    let slot = hold(&limiter);
    let lender = start(&queue, "ann");
    let waiting = start(&queue, "bob");
    let (call, events) = runtime.block_on(async {
        let call = wait_in_lane(&limiter, &lender).await;
        let mut events = waiting.events();
        heard(&mut events).await;
        (call, events)
    });
    drop(runtime);
    drop((call, events, slot, lender, waiting));
    assert_nothing_is_left(&queue, &limiter);
}
