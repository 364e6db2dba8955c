//! A reload keeps what a controller has learnt, where its settings are the same.

use tower_inflight::{LaneOverride, LimitConfig};

use super::*;

#[tokio::test(start_paused = true)]
async fn a_controller_keeps_what_it_has_learnt_unless_its_settings_change() {
    let limiter = build(|limiter| limiter.limit(aimd(16)));
    let held = hold(&limiter);
    hold(&limiter).settle(Outcome::Overload);
    reload(&limiter, |config| config.queue_timeout = secs(7));
    assert_eq!(figures(&limiter).limit, 8);
    held.settle(Outcome::Overload);
    assert_eq!(figures(&limiter).limit, 8, "of the same wave, which it remembers");
    let of_the_old = hold(&limiter);
    reload(&limiter, |config| config.limit = aimd(12));
    assert_eq!(figures(&limiter).limit, 12);
    pass(secs(1)).await;
    of_the_old.settle(Outcome::Overload);
    assert_eq!(figures(&limiter).limit, 12, "it was none of its calls");
    reload(&limiter, |config| (config.limit, config.max_inflight) = (Limit::Fixed, 5));
    assert_eq!((figures(&limiter).limit, figures(&limiter).max), (5, 5));
    assert_nothing_is_left(&limiter);
}

#[tokio::test(start_paused = true)]
async fn max_inflight_bounds_what_a_controller_finds_also_when_it_moves() {
    let puppet = Puppet::new(10);
    let limiter = puppet.in_lanes(|limiter| limiter.max_inflight(6));
    let held: Vec<_> = (0..6).map(|_| hold(&limiter)).collect();
    let waiters: Vec<_> = (0..9).map(|_| tokio::spawn(limiter.acquire(&lane(), Priority::Default))).collect();
    settle_down().await;
    assert_eq!(load(&limiter), (6, 9));
    reload(&limiter, |config| config.max_inflight = 3);
    assert_eq!((figures(&limiter).limit, figures(&limiter).max), (3, 3));
    reload(&limiter, |config| config.max_inflight = 20);
    assert_eq!((figures(&limiter).limit, load(&limiter)), (10, (10, 5)), "raised, and granted at once");
    drop(held);
    for waiter in waiters {
        drop(waiter.await.expect("no panic"));
    }
    assert_nothing_is_left(&limiter);
}

#[tokio::test(start_paused = true)]
async fn a_lane_of_the_users_own_controller_is_left_alone() {
    let puppet = Puppet::new(5);
    let limiter = puppet.in_lanes(|limiter| limiter.limit(aimd(16)));
    let held = hold(&limiter);
    reload(&limiter, |config| config.limit = aimd(9));
    reload(&limiter, |config| config.limit = Limit::Fixed);
    assert_eq!(figures(&limiter).limit, 5);
    held.settle(Outcome::Success);
    assert_eq!(puppet.samples().len(), 1);
    reload(&limiter, |config| config.max_inflight = 2);
    assert_eq!(figures(&limiter).limit, 2, "but bounded");
}

#[tokio::test(start_paused = true)]
async fn a_limiter_in_a_file_adapts_by_lane_and_by_pool() {
    let config: LimitConfig = toml::from_str(
        r#"
        max_inflight = 5
        interactive_reserve = 0

        [[overrides]]
        lane = "local|smart*"
        limit = "adaptive"
        max_inflight = 40

        [[overrides]]
        lane = "local|metered"
        limit = { aimd = { initial_limit = 6, min_limit = 2 } }

        [[pools]]
        endpoint = "local"
        limit = "adaptive"
        max_inflight = 24
        "#,
    )
    .expect("valid");
    let limiter = build(|limiter| limiter);
    drop(hold(&limiter));
    limiter.reconfigure(config.clone()).expect("valid");
    let lanes = ["plain", "smart-1", "metered"].map(|name| {
        drop(go(&limiter, &model(name)));
        let lane = lane_of(&limiter, &model(name));
        (lane.limit, lane.min, lane.max)
    });
    assert_eq!(lanes, [(5, 5, 5), (16, 1, 40), (5, 2, 5)]);
    assert_eq!((pool_of(&limiter).limit, pool_of(&limiter).max), (16, 24));
    go(&limiter, &model("metered")).settle(Outcome::Overload);
    assert_eq!(lane_of(&limiter, &model("metered")).limit, 3, "half of the 6 that it asks for");
    assert!(pool_of(&limiter).limit < 16, "the pool has heard of it too");
    assert_eq!(lane_of(&limiter, &model("smart-1")).limit, 16);

    reload(&limiter, |config| config.overrides = vec![LaneOverride::new("local|metered").limit(aimd(3))]);
    let limit = |name| lane_of(&limiter, &model(name)).limit;
    assert_eq!((limit("plain"), limit("smart-1"), limit("metered")), (5, 5, 3));
    assert_nothing_is_left(&limiter);
    let text = toml::to_string(&config).expect("writable");
    assert_eq!(toml::from_str::<LimitConfig>(&text).expect("readable"), config);
}
