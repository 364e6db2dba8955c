//! L6: what a lane or its pool has learnt outlives the lane's idleness, for as long as it is of use.

use super::*;

/// Calls on so many other models that every lane that can go does.
fn crowd_out(limiter: &Limiter, endpoint: &str) {
    for n in 0..20 {
        drop(go(limiter, &LaneKey::new(endpoint, format!("model-{n}"))));
    }
}

fn is_there(limiter: &Limiter, key: &LaneKey) -> bool {
    limiter.snapshot().lanes.iter().any(|lane| lane.lane == key.to_string())
}

#[tokio::test(start_paused = true)]
async fn an_idle_lane_with_a_reduced_limit_stays_for_an_hour() {
    let limiter = build(|limiter| limiter.limit(aimd(16)).max_lanes(4));
    hold(&limiter).settle(Outcome::Overload);
    crowd_out(&limiter, "local");
    assert_eq!(figures(&limiter).limit, 8);
    pass(secs(3_599)).await;
    crowd_out(&limiter, "local");
    assert_eq!(figures(&limiter).limit, 8);
    pass(secs(1)).await;
    crowd_out(&limiter, "local");
    assert!(!is_there(&limiter, &lane()));
}

#[tokio::test(start_paused = true)]
async fn an_idle_lane_that_is_bounded_below_its_initial_limit_makes_room() {
    let limiter = build(|limiter| limiter.limit(aimd(16)).max_inflight(4).max_lanes(4));
    hold(&limiter).settle(Outcome::Success);
    crowd_out(&limiter, "local");
    assert!(!is_there(&limiter, &lane()));
    assert!(!is_there(&limiter, &LaneKey::without_model("other")), "nobody had to share");
}

#[tokio::test(start_paused = true)]
async fn an_idle_lane_stays_while_its_controller_pauses_it() {
    let puppet = Puppet::new(4);
    let of_lane = puppet.clone();
    let limiter = build(|limiter| {
        limiter.max_inflight(4).max_lanes(4).lane_controller(move |lane| match lane.model() {
            Some("gemma") => Some(Box::new(of_lane.clone())),
            _ => None,
        })
    });
    let held = hold(&limiter);
    puppet.pull(|strings| strings.pause = Some(secs(60)));
    held.settle(Outcome::Success);
    crowd_out(&limiter, "local");
    assert_eq!(figures(&limiter).condition, Condition::Paused);
    pass(secs(60)).await;
    crowd_out(&limiter, "local");
    assert!(!is_there(&limiter, &lane()));
}

#[tokio::test(start_paused = true)]
async fn a_pool_does_not_forget_its_pause_when_its_lanes_are_idle() {
    let limiter = build(|limiter| limiter.max_inflight(4).max_lanes(4).pool(PoolLimit::with_limit("local", aimd(16))));
    hold(&limiter).settle(busy(60));
    crowd_out(&limiter, "elsewhere");
    let newcomer = kind(limiter.try_acquire(&model("another"), Priority::Default));
    assert_eq!(newcomer, RejectKind::Paused);
    assert_eq!(pool_of(&limiter).limit, 8);
    pass(secs(62)).await;
    crowd_out(&limiter, "elsewhere");
    drop(go(&limiter, &model("another")));
    assert_eq!(pool_of(&limiter).limit, 8, "nor its limit");
    pass(secs(3_600)).await;
    crowd_out(&limiter, "elsewhere");
    assert!(limiter.snapshot().pools.is_empty());
}
