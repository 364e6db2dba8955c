//! What a waiter costs: heap by a counting allocator, and the future that its caller keeps.
//!
//! 100,000 futures are made first, and then each is polled once, so that all of them wait. What the heap grows by
//! meanwhile, divided by their number, is what the limiter keeps of a waiter: its entry, and its part of all that grows
//! with the queue. The future comes on top by its size, since it lies in its caller's task. tokio's semaphore is counted in
//! the same way: it keeps nothing on the heap, since its waiters lie in their futures.
//!
//! Wakers are without data here: a task's would count its task.

#[path = "support/mod.rs"]
mod support;
#[path = "support/waiters.rs"]
mod waiters;

use std::alloc::System;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Waker};

use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use support::{AtMost, is_wanted, print, runtime};
use tokio::sync::Semaphore;
use tower_inflight::Priority;
use waiters::{LIMIT, calls, lane};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const WAITERS: usize = 100_000;

fn main() {
    if !is_wanted("waiter_bytes") {
        return;
    }
    let runtime = runtime();
    let _inside = runtime.enter();
    let (ours, our_future) = ours();
    let (tokio, tokio_future) = tokio();
    let note = format!(
        "{ours:.1} on the heap and {our_future} in the future; tokio {tokio:.1} and {tokio_future} = {:.1}",
        tokio + f64::from(tokio_future)
    );
    print("waiter_bytes", ours + f64::from(our_future), "bytes", AtMost(160.0), &note);
}

fn ours() -> (f64, u32) {
    let lane = lane();
    let slots: Vec<_> = (0..LIMIT).map(|_| lane.try_acquire(Priority::Interactive).expect("a free slot")).collect();
    // The caller's own copies: a class, a deadline and counted names.
    let calls = calls(WAITERS);
    let mut waiting: Vec<_> = Vec::with_capacity(WAITERS);
    let heap = growth(&mut waiting, calls.into_iter().map(|call| lane.acquire(call)));
    drop(waiting);
    drop(slots);
    heap
}

fn tokio() -> (f64, u32) {
    let semaphore = Arc::new(Semaphore::new(0));
    let mut waiting: Vec<_> = Vec::with_capacity(WAITERS);
    growth(&mut waiting, (0..WAITERS).map(|_| semaphore.clone().acquire_owned()))
}

/// By how many bytes per waiter the heap grows while all of them get in line, and how large a future is.
#[expect(clippy::cast_precision_loss, reason = "a few million bytes")]
fn growth<F: Future>(waiting: &mut Vec<Pin<Box<F>>>, futures: impl Iterator<Item = F>) -> (f64, u32) {
    let mut noop = Context::from_waker(Waker::noop());
    waiting.extend(futures.map(Box::pin));
    let region = Region::new(ALLOCATOR);
    for waiter in waiting.iter_mut() {
        assert!(waiter.as_mut().poll(&mut noop).is_pending());
    }
    let change = region.change();
    let grown = change.bytes_allocated - change.bytes_deallocated;
    (grown as f64 / WAITERS as f64, u32::try_from(size_of::<F>()).expect("a small future"))
}
