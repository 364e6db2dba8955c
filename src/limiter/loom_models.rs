//! Every order in which two or three threads can meet at a pool's lock. Built and run by `.ci/loom`.
//!
//! Time stands still and there is no timer here: what is explored is who holds the lock when, and who is woken after it.

use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use loom::future::block_on;
use loom::thread;

use super::{Acquire, Call, Lane, LaneKey, Limiter};
use crate::engine::outcome::Outcome;
use crate::engine::priority::Priority;
use crate::error::{QueueBound, RejectKind, Rejected};
use crate::runs::{Run, RunQueue, StartRun};

/// A limiter with one slot, and its lane: made before any thread is, since their look-up is not part of the model.
fn one_slot() -> (Limiter, Lane) {
    let limiter = Limiter::builder().max_inflight(1).build().expect("a limit of one");
    let lane = limiter.lane(&LaneKey::new("local", "gemma")).expect("the limiter is on");
    (limiter, lane)
}

fn acquire(lane: &Lane) -> Pin<Box<Acquire>> {
    Box::pin(lane.acquire(Priority::Default))
}

/// Joins the line, or gets the slot.
fn poll_once(acquire: &mut Pin<Box<Acquire>>) -> Option<Result<super::Permit, Rejected>> {
    match acquire.as_mut().poll(&mut Context::from_waker(std::task::Waker::noop())) {
        Poll::Ready(result) => Some(result),
        Poll::Pending => None,
    }
}

fn assert_nothing_is_left(limiter: &Limiter) {
    assert_eq!(limiter.in_flight(), 0);
    for lane in limiter.snapshot().lanes {
        assert_eq!((lane.inflight, lane.queued), (0, 0));
        let ended = lane.outcomes.values().chain(lane.refused.values()).sum::<u64>() + lane.abandoned;
        assert_eq!(lane.offered, ended);
    }
}

// Case 4.
#[test]
fn loom_a_grant_to_one_who_leaves_reaches_the_next() {
    loom::model(|| {
        let (limiter, lane) = one_slot();
        let held = lane.try_acquire(Priority::Default).expect("the slot is free");
        let mut leaver = acquire(&lane);
        assert!(poll_once(&mut leaver).is_none());
        let mut waiter = acquire(&lane);
        assert!(poll_once(&mut waiter).is_none());

        let releasing = thread::spawn(move || held.settle(Outcome::Success));
        let leaving = thread::spawn(move || drop(leaver));
        // Lost, this would block for ever, which loom reports.
        drop(block_on(waiter).expect("the slot"));
        releasing.join().expect("released");
        leaving.join().expect("left");
        assert_nothing_is_left(&limiter);
    });
}

#[test]
fn loom_a_release_meets_one_who_joins_the_line() {
    loom::model(|| {
        let (limiter, lane) = one_slot();
        let held = lane.try_acquire(Priority::Default).expect("the slot is free");
        let releasing = thread::spawn(move || held.settle(Outcome::Success));
        drop(block_on(lane.acquire(Priority::Default)).expect("the slot"));
        releasing.join().expect("released");
        assert_nothing_is_left(&limiter);
    });
}

#[test]
fn loom_two_who_join_the_line_of_one_holder_are_both_served() {
    loom::model(|| {
        let (limiter, lane) = one_slot();
        let held = lane.try_acquire(Priority::Default).expect("the slot is free");
        let other = lane.clone();
        let joining = thread::spawn(move || drop(block_on(other.acquire(Priority::Bulk)).expect("the slot")));
        let waiting = thread::spawn(move || drop(block_on(lane.acquire(Priority::Default)).expect("the slot")));
        held.settle(Outcome::Success);
        joining.join().expect("served");
        waiting.join().expect("served");
        assert_nothing_is_left(&limiter);
    });
}

#[test]
fn loom_a_slot_is_never_held_twice() {
    loom::model(|| {
        let (limiter, lane) = one_slot();
        let holders = loom::sync::Arc::new(loom::sync::atomic::AtomicUsize::new(0));
        let call = |lane: Lane, holders: loom::sync::Arc<loom::sync::atomic::AtomicUsize>| {
            move || {
                let permit = block_on(lane.acquire(Priority::Default)).expect("the slot");
                assert_eq!(holders.fetch_add(1, loom::sync::atomic::Ordering::SeqCst), 0);
                holders.fetch_sub(1, loom::sync::atomic::Ordering::SeqCst);
                permit.settle(Outcome::Success);
            }
        };
        let other = thread::spawn(call(lane.clone(), holders.clone()));
        call(lane, holders)();
        other.join().expect("served");
        assert_nothing_is_left(&limiter);
    });
}

// Case 149.
#[test]
fn loom_close_and_release_leave_no_waiter_asleep() {
    loom::model(|| {
        let (limiter, lane) = one_slot();
        let held = lane.try_acquire(Priority::Default).expect("the slot is free");
        let mut waiter = acquire(&lane);
        assert!(poll_once(&mut waiter).is_none());

        let closer = limiter.clone();
        let closing = thread::spawn(move || closer.close());
        let releasing = thread::spawn(move || held.settle(Outcome::Success));
        match block_on(waiter) {
            Ok(permit) => permit.settle(Outcome::Success),
            Err(rejected) => assert_eq!(rejected.kind(), RejectKind::Closed),
        }
        closing.join().expect("closed");
        releasing.join().expect("released");
        assert_nothing_is_left(&limiter);
    });
}

// Case 149.
#[test]
fn loom_one_who_joins_a_closing_lane_is_not_left_behind() {
    loom::model(|| {
        let (limiter, lane) = one_slot();
        let held = lane.try_acquire(Priority::Default).expect("the slot is free");
        let closer = limiter.clone();
        let closing = thread::spawn(move || closer.close());
        // The slot is not released before the waiter's end: only the closing can end its wait.
        let rejected = block_on(lane.acquire(Priority::Default)).expect_err("closed");
        assert_eq!(rejected.kind(), RejectKind::Closed);
        closing.join().expect("closed");
        held.settle(Outcome::Success);
        assert_nothing_is_left(&limiter);
    });
}

#[test]
fn loom_drain_hears_of_the_last_release() {
    loom::model(|| {
        let (limiter, lane) = one_slot();
        let held = lane.try_acquire(Priority::Default).expect("the slot is free");
        limiter.close();
        let releasing = thread::spawn(move || held.settle(Outcome::Success));
        block_on(pin!(limiter.drained()));
        releasing.join().expect("released");
        assert_nothing_is_left(&limiter);
    });
}

#[test]
fn loom_the_total_bound_on_waiters_holds_over_pools() {
    loom::model(|| {
        let limiter = Limiter::builder().max_inflight(1).max_queue_total(1).build().expect("valid");
        let lanes = ["a", "b"].map(|at| limiter.lane(&LaneKey::new(at, "gemma")).expect("the limiter is on"));
        let held = lanes.each_ref().map(|lane| lane.try_acquire(Priority::Default).expect("the slot is free"));
        let [first, second] = lanes;
        let join = |lane: Lane| {
            let mut waiter = acquire(&lane);
            match poll_once(&mut waiter) {
                None => Some(waiter),
                Some(refused) => {
                    let kind = refused.expect_err("the slot is taken").kind();
                    assert_eq!(kind, RejectKind::QueueFull(QueueBound::Total));
                    None
                }
            }
        };
        let other = thread::spawn(move || join(first));
        let waiters = [join(second), other.join().expect("no panic")];
        assert_eq!(waiters.iter().flatten().count(), 1);
        drop(waiters);
        drop(held);
        assert_nothing_is_left(&limiter);
    });
}

/// One run slot, and a run that has lent it while it waits for the only slot of a lane. Another run may have it.
struct Lent {
    limiter: Limiter,
    lane: Lane,
    slot: super::Permit,
    queue: RunQueue,
    lender: Run,
    call: Pin<Box<Acquire>>,
    borrower: Run,
}

fn lent() -> Lent {
    let (limiter, lane) = one_slot();
    let queue = RunQueue::builder().max_concurrent_runs(1).max_queue_depth(1).build().expect("valid");
    let slot = lane.try_acquire(Priority::Default).expect("the slot is free");
    let start = |user| queue.start(StartRun::new("acme", user)).expect("within the bounds");
    let lender = start("ann");
    let mut call = Box::pin(lane.acquire(Call::from(Priority::Default).own_turn(&lender)));
    assert!(poll_once(&mut call).is_none());
    let borrower = start("bob");
    assert_eq!((queue.stats().running, queue.stats().lent), (1, 1));
    Lent { limiter, lane, slot, queue, lender, call, borrower }
}

fn assert_no_runs_are_left(queue: &RunQueue) {
    let stats = queue.stats();
    assert_eq!((stats.running, stats.queued, stats.lent), (0, 0, 0));
}

#[test]
fn loom_a_lent_run_is_sent_when_both_slots_come_back_in_any_order() {
    loom::model(|| {
        let Lent { limiter, slot, queue, lender, call, borrower, .. } = lent();
        let releasing = thread::spawn(move || slot.settle(Outcome::Success));
        let ending = thread::spawn(move || borrower.finish().expect("nobody cancels"));
        let permit = block_on(call).expect("both slots");
        assert_eq!(queue.stats().running, 1);
        permit.settle(Outcome::Success);
        lender.finish().expect("nobody cancels");
        releasing.join().expect("released");
        ending.join().expect("finished");
        assert_no_runs_are_left(&queue);
        assert_nothing_is_left(&limiter);
    });
}

// The borrower waits for the lane with its slot in hand, since no more runs may be lent; the lender comes back for it.
#[test]
fn loom_two_runs_at_the_bound_do_not_wait_for_each_other() {
    loom::model(|| {
        let Lent { limiter, lane, slot, queue, lender, call, borrower } = lent();
        let releasing = thread::spawn(move || slot.settle(Outcome::Success));
        let borrowing = thread::spawn(move || {
            let permit = block_on(lane.acquire(Call::from(Priority::Default).own_turn(&borrower)));
            permit.expect("both slots").settle(Outcome::Success);
            borrower.finish().expect("nobody cancels");
        });
        block_on(call).expect("both slots").settle(Outcome::Success);
        lender.finish().expect("nobody cancels");
        releasing.join().expect("released");
        borrowing.join().expect("finished");
        assert_no_runs_are_left(&queue);
        assert_nothing_is_left(&limiter);
    });
}

#[test]
fn loom_a_lent_run_that_is_cancelled_leaves_both_slots_to_others() {
    loom::model(|| {
        let Lent { limiter, lane, slot, queue, lender, call, borrower } = lent();
        let releasing = thread::spawn(move || slot.settle(Outcome::Success));
        let handle = lender.handle().clone();
        let cancelling = thread::spawn(move || handle.cancel().expect("it is there"));
        match block_on(call) {
            Ok(permit) => permit.settle(Outcome::Success),
            Err(rejected) => assert_eq!(rejected.kind(), RejectKind::RunOver),
        }
        releasing.join().expect("released");
        cancelling.join().expect("cancelled");
        let permit = block_on(lane.acquire(Call::from(Priority::Default).own_turn(&borrower)));
        permit.expect("both slots").settle(Outcome::Success);
        borrower.finish().expect("nobody cancels");
        drop(lender);
        assert_no_runs_are_left(&queue);
        assert_nothing_is_left(&limiter);
    });
}

#[test]
fn loom_a_lent_run_that_gives_up_its_call_gets_its_slot_back() {
    loom::model(|| {
        let Lent { limiter, slot, queue, mut lender, call, borrower, .. } = lent();
        let releasing = thread::spawn(move || slot.settle(Outcome::Success));
        let ending = thread::spawn(move || borrower.finish().expect("nobody cancels"));
        drop(call);
        releasing.join().expect("released");
        ending.join().expect("finished");
        block_on(lender.admitted()).expect("nobody cancels");
        assert_eq!((queue.stats().running, queue.stats().lent), (1, 0));
        lender.finish().expect("nobody cancels");
        assert_no_runs_are_left(&queue);
        assert_nothing_is_left(&limiter);
    });
}

#[test]
fn loom_a_run_slot_given_to_one_who_leaves_reaches_the_next() {
    loom::model(|| {
        let queue = RunQueue::builder().max_concurrent_runs(1).build().expect("valid");
        let [running, leaver, mut next] =
            ["ann", "bob", "cyd"].map(|user| queue.start(StartRun::new("acme", user)).expect("there is room"));
        let ending = thread::spawn(move || running.finish().expect("nobody cancels"));
        let leaving = thread::spawn(move || drop(leaver));
        block_on(next.admitted()).expect("the slot");
        next.finish().expect("nobody cancels");
        ending.join().expect("finished");
        leaving.join().expect("left");
        assert_no_runs_are_left(&queue);
    });
}
