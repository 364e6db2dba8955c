//! What part of a lane's limit each class may count on.

use tokio::time::sleep;
use tower_inflight::Priority::{Bulk, Default as Normal, Interactive};
use tower_inflight::{LaneOverride, LimitConfig, Shares};

use super::*;

const SHARES: Shares = Shares { interactive: 0.5, default: 0.3, bulk: 0.2 };

fn config(slots: u32) -> LimitConfig {
    let mut config = LimitConfig::default();
    config.max_inflight = slots;
    config.interactive_reserve = 0;
    config.shares = Some(SHARES);
    config
}

fn sharing(slots: u32) -> Limiter {
    Limiter::builder().config(config(slots)).build().expect("a valid configuration")
}

/// So many tasks of this class, each of which makes one call of a second after another.
fn keep_calling(limiter: &Limiter, class: Priority, tasks: usize) -> Arc<AtomicUsize> {
    let running = Arc::new(AtomicUsize::new(0));
    for _ in 0..tasks {
        let (limiter, running) = (limiter.clone(), running.clone());
        tokio::spawn(async move {
            while let Ok(permit) = limiter.acquire(&lane(), class).await {
                running.fetch_add(1, Ordering::Relaxed);
                sleep(secs(1)).await;
                running.fetch_sub(1, Ordering::Relaxed);
                drop(permit);
            }
        });
    }
    running
}

fn counts<const N: usize>(running: [&Arc<AtomicUsize>; N]) -> [usize; N] {
    running.map(|it| it.load(Ordering::Relaxed))
}

#[tokio::test(start_paused = true)]
async fn a_class_takes_what_others_leave_and_gives_it_back_when_they_come() {
    let limiter = sharing(10);
    let bulk = keep_calling(&limiter, Bulk, 20);
    sleep(millis(500)).await;
    assert_eq!(counts([&bulk]), [10]);
    let interactive = keep_calling(&limiter, Interactive, 20);
    settle_down().await;
    assert_eq!(counts([&interactive, &bulk]), [0, 10], "no running call is cut");
    sleep(secs(2)).await;
    assert_eq!(counts([&interactive, &bulk]), [8, 2]);
    let normal = keep_calling(&limiter, Normal, 20);
    sleep(secs(2)).await;
    assert_eq!(counts([&interactive, &normal, &bulk]), [5, 3, 2]);
    limiter.close();
}

#[tokio::test(start_paused = true)]
async fn a_lowered_limit_takes_from_bulk_first_and_then_from_default() {
    let limiter = sharing(10);
    let classes = [Interactive, Normal, Bulk].map(|class| keep_calling(&limiter, class, 20));
    let running = || counts([&classes[0], &classes[1], &classes[2]]);
    sleep(millis(2_500)).await;
    assert_eq!(running(), [5, 3, 2]);
    for (limit, left) in [(4, [2, 2, 0]), (3, [2, 1, 0]), (1, [1, 0, 0]), (10, [5, 3, 2])] {
        limiter.reconfigure(config(limit)).expect("a valid configuration");
        sleep(secs(3)).await;
        assert_eq!(running(), left, "of {limit}");
    }
    limiter.close();
}

#[tokio::test(start_paused = true)]
async fn a_lane_may_have_shares_of_its_own_or_none() {
    let mut config = config(10);
    config.shares = None;
    config.overrides = vec![LaneOverride::new("local|*").shares(Shares { bulk: 0.5, ..Shares::default() })];
    let limiter = Limiter::builder().config(config.clone()).build().expect("a valid configuration");
    let (interactive, bulk) = (keep_calling(&limiter, Interactive, 20), keep_calling(&limiter, Bulk, 20));
    sleep(millis(2_500)).await;
    assert_eq!(counts([&interactive, &bulk]), [5, 5]);
    config.overrides = vec![LaneOverride::new("local|*").shares(None)];
    limiter.reconfigure(config).expect("a valid configuration");
    sleep(secs(3)).await;
    assert_eq!(counts([&interactive, &bulk]), [10, 0]);
    limiter.close();
}

#[tokio::test(start_paused = true)]
async fn shares_that_cannot_be_given_are_refused_when_built() {
    let mut config = config(10);
    config.shares = Some(Shares { interactive: 0.9, ..SHARES });
    let error = Limiter::builder().config(config).build().expect_err("more than the whole");
    assert_eq!((error.key(), error.value()), ("shares", "0.9 + 0.3 + 0.2"));
}
