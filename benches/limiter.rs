//! Slots without HTTP: against tokio's `Semaphore`, and against throttle-net, the closest peer.

#[path = "support/mod.rs"]
mod support;
#[path = "support/waiters.rs"]
mod waiters;

use std::future::Future;
use std::hint::black_box;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Waker};
use std::time::Duration;

use support::{ANYTHING, AtMost, MANY, Passes, Stopwatch, ratio, runtime, time};
use throttle_net::{AdaptiveLimiter, Aimd, Queue};
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tower_inflight::{Call, Lane, Outcome, Priority, Usage};
use waiters::{LIMIT, calls, class, lane, metered, tenant};

fn main() {
    ratio("acquire_vs_tokio", AtMost(1.6), MANY, acquire_ours, acquire_tokio);
    ratio("acquire_with_clock_vs_tokio", ANYTHING, MANY, acquire_with_clock, acquire_tokio);
    ratio("grant_with_tokens_vs_without", AtMost(1.2), MANY, || grant(&metered()), || grant(&lane()));
    ratio("handoff_64_vs_tokio", AtMost(1.0), MANY, || handoff(64, 10, &Ours), || handoff(64, 10, &Tokio));
    ratio("handoff_64_with_clock_vs_tokio", ANYTHING, MANY, || handoff(64, 10, &WithClock), || handoff(64, 10, &Tokio));
    ratio(
        "handoff_100k_vs_tokio",
        AtMost(1.0),
        Passes(21),
        || handoff(100_000, 2, &Ours),
        || handoff(100_000, 2, &Tokio),
    );
    ratio("cancel_100k_vs_tokio", AtMost(1.0), Passes(51), || cancel(&Ours), || cancel(&Tokio));
    // Long passes: its first grant comes a millisecond late, which must not be what is measured.
    ratio("vs_throttle_net", AtMost(0.3), Passes(21), || handoff(64, 500, &Ours), || handoff(64, 500, &ThrottleNet));
}

const ACQUIRES: usize = 2_000;

fn acquire_ours() -> f64 {
    let lane = lane();
    runtime().block_on(async {
        let watch = Stopwatch::start();
        for _ in 0..ACQUIRES {
            let permit = lane.acquire(Priority::Default).await.expect("a free slot");
            black_box(permit).settle(Outcome::Success);
        }
        watch.per(ACQUIRES)
    })
}

fn acquire_tokio() -> f64 {
    let semaphore = Arc::new(Semaphore::new(LIMIT));
    runtime().block_on(async {
        let watch = Stopwatch::start();
        for _ in 0..ACQUIRES {
            let permit = semaphore.clone().acquire_owned().await.expect("a free slot");
            drop(black_box(permit));
        }
        watch.per(ACQUIRES)
    })
}

fn acquire_with_clock() -> f64 {
    let semaphore = Arc::new(Semaphore::new(LIMIT));
    runtime().block_on(async {
        let watch = Stopwatch::start();
        for _ in 0..ACQUIRES {
            let since = now();
            let permit = semaphore.clone().acquire_owned().await.expect("a free slot");
            drop(black_box(permit));
            black_box(now() - since);
        }
        watch.per(ACQUIRES)
    })
}

/// A call of 3,000 tokens that may answer with 1,000 and answers with 400.
fn grant(lane: &Lane) -> f64 {
    runtime().block_on(async {
        let watch = Stopwatch::start();
        for _ in 0..ACQUIRES {
            let call = Call::from(Priority::Default).with_tokens(3_000, 1_000);
            let permit = lane.acquire(call).await.expect("a free slot");
            black_box(permit).settle_with_usage(Outcome::Success, Usage::new(3_000, 400));
        }
        watch.per(ACQUIRES)
    })
}

/// Somebody who has slots to give.
trait Peer {
    type Caller: Caller;

    /// Callers number 0, 1, 2, … of one limiter of [`LIMIT`] slots.
    fn callers(&self, count: usize) -> Vec<Self::Caller>;
}

trait Caller: Clone + Send + 'static {
    type Slot: Send + 'static;

    fn acquire(&self) -> impl Future<Output = Self::Slot> + Send + 'static;

    fn end(slot: Self::Slot);
}

/// All slots are taken and `tasks` tasks wait. Then the slots come back, and each task takes one `rounds` times: a task
/// that ends a call stands in line again at once, so there is always somebody to hand the slot to.
fn handoff<P: Peer>(tasks: usize, rounds: usize, peer: &P) -> f64 {
    let callers = peer.callers(tasks + LIMIT);
    let (holders, callers) = callers.split_at(LIMIT);
    let started = Arc::new(AtomicUsize::new(0));
    runtime().block_on(async {
        let mut slots = Vec::new();
        for holder in holders {
            slots.push(holder.acquire().await);
        }
        let waiting: Vec<_> = callers
            .iter()
            .map(|caller| {
                let (caller, started) = (caller.clone(), started.clone());
                tokio::spawn(async move {
                    started.fetch_add(1, Ordering::Relaxed);
                    for _ in 0..rounds {
                        P::Caller::end(black_box(caller.acquire().await));
                    }
                })
            })
            .collect();
        // A task that has started has not stopped before it stood in line.
        while started.load(Ordering::Relaxed) < tasks {
            tokio::task::yield_now().await;
        }
        let watch = Stopwatch::start();
        slots.into_iter().for_each(P::Caller::end);
        for task in waiting {
            task.await.expect("nobody panics");
        }
        watch.per(tasks * rounds)
    })
}

/// So many waiters give up, the first first.
fn cancel<P: Peer>(peer: &P) -> f64 {
    const WAITERS: usize = 100_000;
    let callers = peer.callers(WAITERS + LIMIT);
    let (holders, callers) = callers.split_at(LIMIT);
    // Ours starts its timer task on it.
    let runtime = runtime();
    let _inside = runtime.enter();
    let slots: Vec<_> = runtime.block_on(async {
        let mut slots = Vec::new();
        for holder in holders {
            slots.push(holder.acquire().await);
        }
        slots
    });
    let mut waiting: Vec<Pin<Box<_>>> = callers.iter().map(|caller| Box::pin(caller.acquire())).collect();
    let mut noop = Context::from_waker(Waker::noop());
    for waiter in &mut waiting {
        assert!(waiter.as_mut().poll(&mut noop).is_pending());
    }
    let took = time(WAITERS, || drop(waiting));
    slots.into_iter().for_each(P::Caller::end);
    took
}

struct Ours;

#[derive(Clone)]
struct OurCaller(Lane, Call);

impl Peer for Ours {
    type Caller = OurCaller;

    fn callers(&self, count: usize) -> Vec<OurCaller> {
        let lane = lane();
        // The first hold all slots, the reserved one too.
        let holders = (0..LIMIT).map(|_| Priority::Interactive.into());
        holders.chain(calls(count - LIMIT)).map(|call| OurCaller(lane.clone(), call)).collect()
    }
}

impl Caller for OurCaller {
    type Slot = tower_inflight::Permit;

    fn acquire(&self) -> impl Future<Output = Self::Slot> + Send + 'static {
        let acquire = self.0.acquire(self.1.clone());
        async { acquire.await.expect("a slot") }
    }

    fn end(slot: Self::Slot) {
        slot.settle(Outcome::Success);
    }
}

struct Tokio;

#[derive(Clone)]
struct TokioCaller(Arc<Semaphore>);

impl Peer for Tokio {
    type Caller = TokioCaller;

    fn callers(&self, count: usize) -> Vec<TokioCaller> {
        vec![TokioCaller(Arc::new(Semaphore::new(LIMIT))); count]
    }
}

impl Caller for TokioCaller {
    type Slot = tokio::sync::OwnedSemaphorePermit;

    fn acquire(&self) -> impl Future<Output = Self::Slot> + Send + 'static {
        let acquire = self.0.clone().acquire_owned();
        async { acquire.await.expect("a slot") }
    }

    fn end(slot: Self::Slot) {
        drop(slot);
    }
}

/// Tokio's own with the two looks at the clock that it takes to know how long calls waited and were held. Whoever keeps such a
/// record has the rest of what a bar allows for all else.
struct WithClock;

#[derive(Clone)]
struct ClockCaller(TokioCaller);

impl Peer for WithClock {
    type Caller = ClockCaller;

    fn callers(&self, count: usize) -> Vec<ClockCaller> {
        Tokio.callers(count).into_iter().map(ClockCaller).collect()
    }
}

impl Caller for ClockCaller {
    type Slot = (tokio::sync::OwnedSemaphorePermit, Instant);

    fn acquire(&self) -> impl Future<Output = Self::Slot> + Send + 'static {
        let acquire = self.0.acquire();
        async {
            let since = now();
            (acquire.await, since)
        }
    }

    fn end((permit, since): Self::Slot) {
        black_box(now() - since);
        drop(permit);
    }
}

/// Tokio's clock, which stands still in tests that ask for it: others are faster, and users' tests could not use them.
fn now() -> Instant {
    #[expect(clippy::disallowed_methods, reason = "a bench measures")]
    Instant::now()
}

struct ThrottleNet;

type Adaptive = Arc<AdaptiveLimiter<Aimd>>;

/// Its queue gives no permits: what was taken is given back to the limiter inside. A larger number goes first.
#[derive(Clone)]
struct ThrottleNetCaller {
    queue: Arc<Queue<Adaptive, usize>>,
    tenant: usize,
    priority: u32,
}

impl Peer for ThrottleNet {
    type Caller = ThrottleNetCaller;

    fn callers(&self, count: usize) -> Vec<ThrottleNetCaller> {
        let slots = u32::try_from(LIMIT).expect("a small limit");
        let limiter = AdaptiveLimiter::builder().floor(slots).initial(slots).ceiling(slots).build(Aimd::default());
        let queue = Arc::new(Queue::builder().capacity(1_000_000).build(Arc::new(limiter)));
        let caller = |n: usize| ThrottleNetCaller {
            queue: queue.clone(),
            tenant: tenant(n),
            priority: match class(n) {
                Priority::Interactive => 2,
                Priority::Default => 1,
                Priority::Bulk => 0,
            },
        };
        (0..count).map(caller).collect()
    }
}

impl Caller for ThrottleNetCaller {
    type Slot = Adaptive;

    fn acquire(&self) -> impl Future<Output = Self::Slot> + Send + 'static {
        let Self { queue, tenant, priority } = self.clone();
        async move {
            queue.acquire(tenant, priority, None).await.expect("a slot");
            queue.inner().clone()
        }
    }

    fn end(slot: Self::Slot) {
        // Spared the two clock reads that a caller who measures would need.
        slot.release(throttle_net::Outcome::Success { rtt: Duration::from_millis(1) });
    }
}
