//! Reload, pools, eviction.

use std::collections::HashSet;

use metrics_util::debugging::DebuggingRecorder;
use tower_inflight::{LaneOverride, Outcome, Pause, PoolLimit, Verdict};

use super::*;

fn model(n: u32) -> LaneKey {
    LaneKey::new("local", format!("model-{n}"))
}

// Case 90.
#[tokio::test(start_paused = true)]
async fn a_lowered_limit_drains_and_a_raised_one_grants_at_once() {
    let limiter = limiter(8);
    let mut running: Vec<_> = (0..8).map(|_| hold(&limiter)).collect();
    let waiters: Vec<_> = (0..5).map(|_| tokio::spawn(limiter.acquire(&lane(), Priority::Default))).collect();
    settle_down().await;
    let set = |slots| {
        let mut config = limiter.config();
        config.max_inflight = slots;
        limiter.reconfigure(config).expect("valid");
    };
    set(4);
    running.truncate(4);
    settle_down().await;
    assert_eq!((load(&limiter), figures(&limiter).limit), ((4, 5), 4));
    set(6);
    assert_eq!(load(&limiter), (6, 3));
    set(0);
    assert!(!limiter.is_enabled());
    for waiter in waiters {
        drop(waiter.await.expect("no panic").expect("nothing limits it any more"));
    }
    drop(running);
    set(1);
    assert_nothing_is_left(&limiter);
}

#[tokio::test(start_paused = true)]
async fn a_refused_configuration_changes_nothing() {
    let limiter = limiter(2);
    let mut config = limiter.config();
    (config.max_inflight, config.interactive_reserve) = (3, 9);
    assert!(limiter.reconfigure(config).is_err());
    assert_eq!(limiter.config().max_inflight, 2);
}

#[tokio::test(start_paused = true)]
async fn waiters_keep_their_bounds_over_a_reload() {
    let limiter = build(|limiter| limiter.max_inflight(1).queue_timeout(secs(5)));
    let _held = hold(&limiter);
    let waiter = queue(&limiter, Priority::Default).await;
    let mut config = limiter.config();
    config.queue_timeout = secs(60);
    limiter.reconfigure(config).expect("valid");
    assert_eq!(refused(waiter.await).waited(), secs(5));
}

// Case 26.
#[tokio::test(start_paused = true)]
async fn a_pools_cap_holds_over_its_lanes_and_a_full_lane_blocks_no_other() {
    let limiter = build(|limiter| {
        limiter
            .max_inflight(2)
            .lane(LaneOverride::new("local|model-0").max_inflight(1))
            .pool(PoolLimit::new("local", 2))
    });
    let first = limiter.try_acquire(&model(0), Priority::Bulk).expect("free");
    let mut of_full = Box::pin(limiter.acquire(&model(0), Priority::Interactive));
    assert!(poll!(&mut of_full).is_pending());
    let second = limiter.try_acquire(&model(1), Priority::Bulk).expect("the other lane is free");
    let mut of_pool = Box::pin(limiter.acquire(&model(2), Priority::Bulk));
    assert!(poll!(&mut of_pool).is_pending(), "two are in flight");
    drop(limiter.try_acquire(&LaneKey::new("elsewhere", "model-0"), Priority::Bulk).expect("another pool"));
    drop(second);
    assert!(poll!(&mut of_pool).is_ready());
    drop(first);
    assert!(poll!(&mut of_full).is_ready());
}

// Case 64.
#[tokio::test(start_paused = true)]
async fn a_hundred_thousand_models_make_a_bounded_number_of_lanes_and_labels() {
    let recorder = DebuggingRecorder::new();
    let metrics = recorder.snapshotter();
    let _guard = metrics::set_default_local_recorder(&recorder);

    let limiter = build(|limiter| limiter.max_inflight(1).max_lanes(100));
    let named = ["busy", "queued", "paused", "known"].map(|name| LaneKey::new("local", name));
    let try_one = |lane: &LaneKey| limiter.try_acquire(lane, Priority::Default).expect("free");
    let _busy = try_one(&named[0]);
    let _running = try_one(&named[1]);
    let mut queued = Box::pin(limiter.acquire(&named[1], Priority::Default));
    assert!(poll!(&mut queued).is_pending());
    try_one(&named[2]).settle(Verdict::new(Outcome::Overload).with_pause(Pause::For(secs(60))));
    let _known = limiter.lane(&named[3]);
    for n in 0..100_000 {
        drop(try_one(&model(n)));
    }
    let lanes: HashSet<String> = limiter.snapshot().lanes.into_iter().map(|lane| lane.lane).collect();
    assert!(lanes.len() <= 101, "{}", lanes.len());
    assert!(named.iter().all(|lane| lanes.contains(&lane.to_string())));

    let mut labels = HashSet::new();
    for (key, _, _, value) in metrics.snapshot().into_vec() {
        let label = key.key().labels().find(|label| label.key() == "lane").map(|label| label.value().to_owned());
        if key.key().name() == "llm_inflight" && label.as_deref() == Some("other") {
            assert_eq!(format!("{value:?}"), "Gauge(0.0)");
        }
        labels.extend(label);
    }
    assert!(labels.len() <= 101 && labels.contains("other"), "{}", labels.len());
}

#[tokio::test(start_paused = true)]
async fn when_all_lanes_are_busy_newcomers_share_one() {
    let limiter = build(|limiter| limiter.max_inflight(1).max_lanes(3));
    let _busy: Vec<_> = (0..3).map(|n| limiter.try_acquire(&model(n), Priority::Default).expect("free")).collect();
    let permit = limiter.try_acquire(&model(3), Priority::Default).expect("the shared lane is free");
    assert_eq!(permit.admitted().expect("it is on").lane().to_string(), "other|*");
    assert_eq!(kind(limiter.try_acquire(&model(4), Priority::Default)), RejectKind::Busy);
    assert_eq!(limiter.snapshot().lanes.len(), 4);
}

#[tokio::test(start_paused = true)]
async fn an_evicted_lane_comes_back_empty() {
    let limiter = build(|limiter| limiter.max_inflight(1).max_lanes(2));
    for n in 0..10 {
        drop(limiter.try_acquire(&model(n), Priority::Default).expect("free"));
        drop(limiter.try_acquire(&model(0), Priority::Default).expect("free"));
    }
    assert!(limiter.snapshot().lanes.len() <= 2);
    assert_nothing_is_left(&limiter);
}

#[tokio::test(start_paused = true)]
async fn a_limiter_that_is_off_lets_all_pass_and_counts_nothing() {
    let limiter = limiter(0);
    let permits: Vec<_> = (0..100).map(|_| limiter.try_acquire(&lane(), Priority::Bulk).expect("off")).collect();
    let permit = limiter.acquire(&lane(), Priority::Bulk).await.expect("off");
    assert!(permit.admitted().is_none() && limiter.lane(&lane()).is_none());
    drop(permits);
    assert_eq!(serde_json::to_string(&limiter.snapshot()).expect("JSON"), r#"{"enabled":false}"#);
}
