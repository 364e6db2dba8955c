//! Runs: what a crowd in line costs, against a small one.

#[path = "support/mod.rs"]
mod support;

use std::collections::VecDeque;
use std::hint::black_box;
use std::sync::Arc;

use support::{AtMost, Passes, Stopwatch, is_wanted, print, ratio};
use tower_inflight::{Run, RunQueue, StartRun};

const SLOTS: usize = 8;
/// Of each user, so that a larger crowd has more users too.
const RUNS_PER_USER: usize = 10;

fn main() {
    ratio("run_admit_100k_vs_1k", AtMost(2.0), Passes(21), || admit(100_000), || admit(1_000));
    // The large crowd is in memory, the small one in the processor's cache. A linear cost would be a hundredfold.
    ratio("run_cancel_100k_vs_1k", AtMost(10.0), Passes(21), || cancel(100_000), || cancel(1_000));
    ratio("run_position_100k_vs_1k", AtMost(20.0), Passes(21), || position(100_000), || position(1_000));
    stats();
}

struct Crowd {
    queue: RunQueue,
    /// In the order in which they are served.
    runs: VecDeque<Run>,
    users: Vec<Arc<str>>,
}

impl Crowd {
    fn new(size: usize) -> Self {
        let queue = RunQueue::builder()
            .max_concurrent_runs(u32::try_from(SLOTS).expect("small"))
            .max_queue_depth(1_000_000)
            .max_queued_runs_per_user(1_000_000)
            .build()
            .expect("valid");
        let users = (0..size / RUNS_PER_USER).map(|n| Arc::from(format!("user-{n}"))).collect();
        let mut crowd = Self { queue, runs: VecDeque::new(), users };
        for n in 0..size + SLOTS {
            crowd.start(n);
        }
        crowd
    }

    /// Round robin in line is round robin in starts here.
    fn start(&mut self, n: usize) {
        let user = self.users[n % self.users.len()].clone();
        self.runs.push_back(self.queue.start(StartRun::new("acme", user)).expect("there is room"));
    }
}

/// Nanoseconds for one to end, the next to be admitted and another to start.
fn admit(size: usize) -> f64 {
    const STEPS: usize = 2_000;
    let mut crowd = Crowd::new(size);
    let watch = Stopwatch::start();
    for n in 0..STEPS {
        crowd.runs.pop_front().expect("a crowd").finish().expect("it ran");
        crowd.start(n);
    }
    watch.per(STEPS)
}

/// Nanoseconds for one in the middle of the line to leave.
fn cancel(size: usize) -> f64 {
    let mut crowd = Crowd::new(size);
    let leavers: Vec<Run> = crowd.runs.drain(size / 2..size / 2 + size / 4).collect();
    let count = leavers.len();
    let watch = Stopwatch::start();
    drop(leavers);
    watch.per(count)
}

/// Nanoseconds to say where somebody stands.
fn position(size: usize) -> f64 {
    const LOOKS: usize = 2_000;
    let crowd = Crowd::new(size);
    let watch = Stopwatch::start();
    for n in 0..LOOKS {
        black_box(crowd.runs[SLOTS + n * (size / LOOKS).max(1) % size].position());
    }
    watch.per(LOOKS)
}

/// 100,000 runs of 10,000 users.
fn stats() {
    const NAME: &str = "run_stats_100k";
    const LOOKS: usize = 101;
    if !is_wanted(NAME) {
        return;
    }
    let crowd = Crowd::new(100_000);
    let look = |_| {
        let watch = Stopwatch::start();
        black_box(crowd.queue.stats());
        watch.elapsed().as_secs_f64() * 1_000.0
    };
    let mut looks: Vec<f64> = (0..LOOKS).map(look).collect();
    looks.sort_by(f64::total_cmp);
    print(NAME, looks[LOOKS / 2], "ms", AtMost(1.0), &format!("slowest {:.3} ms", looks[LOOKS - 1]));
}
