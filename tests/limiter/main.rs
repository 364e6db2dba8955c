//! The limiter without HTTP, on a clock that stands still between awaits.

mod adaptive;
mod bounds;
mod calls;
mod close;
mod crowd;
mod deadlines;
mod lanes;
mod lease;
mod quota;
mod runtimes;
mod shares;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::poll;
use tokio::time::Instant;
use tower_inflight::{
    Acquire, Call, LaneKey, LaneSnapshot, Limiter, LimiterBuilder, Permit, Priority, RejectKind, Rejected,
};

fn lane() -> LaneKey {
    LaneKey::new("local", "gemma")
}

fn limiter(slots: u32) -> Limiter {
    build(|limiter| limiter.max_inflight(slots))
}

fn build(set: impl FnOnce(LimiterBuilder) -> LimiterBuilder) -> Limiter {
    set(Limiter::builder().interactive_reserve(0)).build().expect("a valid configuration")
}

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

#[expect(clippy::disallowed_methods, reason = "tests follow the clock that the limiter reads")]
fn now() -> Instant {
    Instant::now()
}

/// A slot that is free.
fn hold(limiter: &Limiter) -> Permit {
    limiter.try_acquire(&lane(), Priority::Default).expect("a slot is free")
}

/// Stands in line, polled once.
async fn queue(limiter: &Limiter, call: impl Into<Call>) -> Pin<Box<Acquire>> {
    let mut acquire = Box::pin(limiter.acquire(&lane(), call));
    assert!(poll!(&mut acquire).is_pending());
    acquire
}

fn refused(result: Result<Permit, Rejected>) -> Rejected {
    result.expect_err("it should have been refused")
}

fn figures(limiter: &Limiter) -> LaneSnapshot {
    let name = lane().to_string();
    limiter.snapshot().lanes.into_iter().find(|lane| lane.lane == name).expect("the lane is there")
}

/// Slots in use, and waiters.
fn load(limiter: &Limiter) -> (u32, u32) {
    let lane = figures(limiter);
    (lane.inflight, lane.queued)
}

/// Every call that was offered has left in one way.
fn assert_nothing_is_left(limiter: &Limiter) {
    for lane in limiter.snapshot().lanes {
        assert_eq!((lane.inflight, lane.queued), (0, 0), "{lane:?}");
        let ended = lane.outcomes.values().chain(lane.refused.values()).sum::<u64>() + lane.abandoned;
        assert_eq!(lane.offered, ended, "{lane:?}");
    }
}

/// Lets every task that can run do so.
async fn settle_down() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

/// Counts how often a future is polled.
struct Counted<F> {
    future: Pin<Box<F>>,
    polls: Arc<AtomicUsize>,
}

impl<F: Future> Counted<F> {
    fn new(future: F, polls: &Arc<AtomicUsize>) -> Self {
        Self { future: Box::pin(future), polls: polls.clone() }
    }
}

impl<F: Future> Future for Counted<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        self.polls.fetch_add(1, Ordering::Relaxed);
        self.future.as_mut().poll(cx)
    }
}

fn kind(result: Result<Permit, Rejected>) -> RejectKind {
    refused(result).kind()
}
