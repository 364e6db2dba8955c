//! Runs by their public face, on a clock that stands still between awaits. One test for each sentence of what was promised.

mod bad_input;
mod budget;
mod events;
mod fairness;
mod lending;
mod routing;
mod seen;
mod start;

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use futures_util::{StreamExt, poll};
use tokio::time::sleep;
use tower_inflight::{
    Acquire, Backpressure, Call, LaneKey, Limiter, Outcome, Permit, Priority, QueuedFor, RejectKind, Rejected, Run,
    RunBound, RunEvent, RunEvents, RunHandle, RunQueue, RunQueueBuilder, RunStatus, Scoped, StartError, StartRun,
};

fn queue(set: impl FnOnce(RunQueueBuilder) -> RunQueueBuilder) -> RunQueue {
    set(RunQueue::builder()).build().expect("a valid configuration")
}

fn slots(runs: u32) -> RunQueue {
    queue(|queue| queue.max_concurrent_runs(runs))
}

fn of(user: &str) -> StartRun {
    StartRun::new("acme", user)
}

fn start(queue: &RunQueue, user: &str) -> Run {
    queue.start(of(user)).expect("within the bounds")
}

fn full(started: Result<Run, StartError>) -> Backpressure {
    match started.expect_err("over a bound") {
        StartError::Backpressure(full) => full,
        other => panic!("{other}"),
    }
}

/// Running, queued, lent.
fn load(queue: &RunQueue) -> (u32, u32, u32) {
    let stats = queue.stats();
    (stats.running, stats.queued, stats.lent)
}

fn is_running(run: &RunHandle) -> bool {
    run.status() == RunStatus::Running
}

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// Lanes of one slot each.
fn limiter() -> Limiter {
    Limiter::builder().max_inflight(1).interactive_reserve(0).build().expect("a valid configuration")
}

fn local() -> LaneKey {
    LaneKey::new("local", "gemma")
}

/// The slot of the lane.
fn hold(limiter: &Limiter) -> Permit {
    limiter.try_acquire(&local(), Priority::Default).expect("a slot is free")
}

/// The run's own turn stands in the lane's line.
async fn wait_in_lane(limiter: &Limiter, run: &RunHandle) -> Pin<Box<Acquire>> {
    let mut call = Box::pin(limiter.acquire(&local(), Call::new(Priority::Default).own_turn(run)));
    assert!(poll!(&mut call).is_pending());
    call
}

fn kind(result: Result<Permit, Rejected>) -> RejectKind {
    result.expect_err("it should have been refused").kind()
}

/// What has been told so far.
async fn heard(events: &mut RunEvents) -> Vec<RunEvent> {
    let mut heard = Vec::new();
    while let std::task::Poll::Ready(Some(event)) = poll!(events.next()) {
        heard.push(event);
    }
    heard
}

fn assert_nothing_is_left(queue: &RunQueue, limiter: &Limiter) {
    assert_eq!(load(queue), (0, 0, 0));
    assert!(queue.stats().users.is_empty());
    for lane in limiter.snapshot().lanes {
        assert_eq!((lane.inflight, lane.queued), (0, 0), "{lane:?}");
        let ended = lane.outcomes.values().chain(lane.refused.values()).sum::<u64>() + lane.abandoned;
        assert_eq!(lane.offered, ended, "{lane:?}");
    }
}
