//! Many runs on many threads, each leaving at another point.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::FutureExt;

use super::*;

const SLOTS: u32 = 3;

#[derive(Clone)]
struct World {
    queue: RunQueue,
    limiter: Limiter,
    sending: Arc<AtomicUsize>,
}

impl World {
    /// One run, which goes as far as `fate` lets it.
    async fn run(self, n: usize) {
        let fate = n * 7 % 10;
        // Refused where the bound is met, as some are meant to be.
        let Ok(mut run) = self.queue.start(of(&format!("user-{}", n % 20))) else { return };
        match fate {
            0 => return,
            1 => return drop(run.admitted().now_or_never()),
            2 => {
                let handle = run.handle().clone();
                tokio::spawn(async move { handle.cancel() });
            }
            _ => {}
        }
        if run.admitted().await.is_err() {
            return;
        }
        for turn in 0..3 {
            let lane = LaneKey::new(["a", "b"][(n + turn) % 2], "gemma");
            let acquire = self.limiter.acquire(&lane, Priority::Default);
            let permit = match fate {
                3 => match run.turn(acquire).now_or_never() {
                    Some(permit) => permit,
                    None => continue,
                },
                4 => run.beside(acquire).await,
                _ => run.turn(acquire).await,
            };
            let Ok(permit) = permit else { return };
            if fate != 2 {
                let sending = self.sending.fetch_add(1, Ordering::SeqCst) + 1;
                assert!(sending <= SLOTS as usize, "{sending} runs compute");
                tokio::task::yield_now().await;
                self.sending.fetch_sub(1, Ordering::SeqCst);
            }
            permit.settle(Outcome::Success);
        }
        if fate != 5 {
            let _ = run.finish();
        }
    }
}

// Cases 1 and 4, for runs. Runs that are cancelled by others are not counted as computing: their slot goes on at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_crowd_that_leaves_at_every_point_leaves_nothing_behind_and_never_computes_too_many() {
    // Few at a time fill the bound and swap; many at a time lend.
    for (crowd, depth) in [(500, 10_000), (6, 4)] {
        let queue =
            queue(|queue| queue.max_concurrent_runs(SLOTS).max_queue_depth(depth).max_queued_runs_per_user(10_000));
        let world = World { queue, limiter: limiter(), sending: Arc::default() };
        for wave in 0..3_000 / crowd {
            let tasks: Vec<_> = (0..crowd).map(|n| tokio::spawn(world.clone().run(wave * crowd + n))).collect();
            for task in tasks {
                task.await.expect("no panic");
            }
        }
        assert_nothing_is_left(&world.queue, &world.limiter);
    }
}
