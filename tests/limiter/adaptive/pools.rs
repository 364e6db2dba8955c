//! C9: lanes leave each other alone, unless a controller of their pool was asked for.

use super::*;

// Case 98.
#[tokio::test(start_paused = true)]
async fn refusals_of_one_lane_are_no_business_of_another() {
    let limiter = build(|limiter| limiter.limit(aimd(8)));
    let (a, b) = (model("a"), model("b"));
    drop(go(&limiter, &b));
    for _ in 0..20 {
        let permit = limiter.acquire(&a, Priority::Default).await.expect("a slot");
        permit.settle(busy(30));
    }
    assert_eq!(lane_of(&limiter, &a).condition, Condition::Paused);
    let b = lane_of(&limiter, &b);
    assert_eq!((b.limit, b.paused_until_s, b.last_change, b.condition), (8, None, None, Condition::Healthy));
}

// Case 98.
#[tokio::test(start_paused = true)]
async fn a_pools_controller_moves_the_pool_and_no_lane() {
    let heard = Heard::default();
    let limiter = build(|limiter| {
        heard.by(limiter.max_inflight(8).pool(PoolLimit::with_limit("local", aimd(10)).max_inflight(12)))
    });
    let (a, b) = (model("a"), model("b"));
    let shown = {
        drop(go(&limiter, &b));
        pool_of(&limiter)
    };
    assert_eq!((shown.pool.as_str(), shown.limit, shown.min, shown.max), ("local|*", 10, 1, 12));
    assert_eq!((shown.inflight, shown.paused_until_s, shown.last_change), (0, None, None));
    go(&limiter, &a).settle(Outcome::Overload);
    assert_eq!(heard.take(), ["pool local|*: limit 10 -> 5 (overload)"]);
    assert_eq!((lane_of(&limiter, &a).limit, lane_of(&limiter, &b).limit), (8, 8));
    let change = pool_of(&limiter).last_change.expect("it was halved");
    assert_eq!((change.from, change.to, change.cause), (10, 5, "overload"));
}

#[tokio::test(start_paused = true)]
async fn the_smaller_of_lane_and_pool_rules() {
    let limiter = build(|limiter| limiter.limit(aimd(4)).pool(PoolLimit::with_limit("local", aimd(6))));
    let (a, b) = (model("a"), model("b"));
    let mut held: Vec<_> = (0..4).map(|_| go(&limiter, &a)).collect();
    assert_eq!(kind(limiter.try_acquire(&a, Priority::Default)), RejectKind::Busy, "the lane's 4");
    held.extend([go(&limiter, &b), go(&limiter, &b)]);
    assert_eq!(kind(limiter.try_acquire(&b, Priority::Default)), RejectKind::Busy, "the pool's 6");
    assert_eq!((pool_of(&limiter).inflight, lane_of(&limiter, &a).inflight), (6, 4));
    held.remove(0).settle(Outcome::Overload);
    assert_eq!((lane_of(&limiter, &a).limit, lane_of(&limiter, &b).limit, pool_of(&limiter).limit), (2, 4, 3));
    held.truncate(3);
    assert_eq!(kind(limiter.try_acquire(&b, Priority::Default)), RejectKind::Busy, "the pool's 3");
}

#[tokio::test(start_paused = true)]
async fn a_pause_is_for_all_lanes_of_a_steered_pool_and_else_for_its_own() {
    for is_steered in [false, true] {
        let limit = if is_steered { aimd(16) } else { Limit::Fixed };
        let pool = PoolLimit::with_limit("local", limit).max_inflight(16);
        let limiter = build(|limiter| limiter.max_inflight(8).pool(pool));
        let (a, b) = (model("a"), model("b"));
        let mut waiting = Box::pin(limiter.acquire(&b, Priority::Default));
        let held: Vec<_> = (0..8).map(|_| go(&limiter, &b)).collect();
        assert!(poll!(&mut waiting).is_pending());
        go(&limiter, &a).settle(busy(30));
        drop(held);
        assert_eq!(poll!(&mut waiting).is_pending(), is_steered);
        assert_eq!(kind(limiter.try_acquire(&a, Priority::Default)), RejectKind::Paused);
        assert_eq!(lane_of(&limiter, &a).condition, Condition::Paused);
        assert_eq!(pool_of(&limiter).paused_until_s.is_some(), is_steered);
        assert_eq!(lane_of(&limiter, &b).paused_until_s.is_some(), is_steered);
        if is_steered {
            let start = now();
            drop(waiting.await.expect("granted after the pause"));
            assert!((secs(30)..=secs(31)).contains(&(now() - start)));
        }
        drop(go(&limiter, &LaneKey::new("elsewhere", "a")));
    }
}

#[tokio::test(start_paused = true)]
async fn a_limit_raised_in_one_lane_lets_the_waiters_of_another_go() {
    let puppet = Puppet::new(1);
    let of_pool = puppet.clone();
    let limiter = build(|limiter| limiter.pool_controller(move |_| Some(Box::new(of_pool.clone()))));
    let mut held = go(&limiter, &model("a"));
    let mut waiter = Box::pin(limiter.acquire(&model("b"), Priority::Default));
    assert!(poll!(&mut waiter).is_pending());
    puppet.pull(|strings| strings.limit = 2);
    held.note_first_byte();
    assert!(poll!(&mut waiter).is_ready());
}

/// One asks for a controller per pool, not per lane.
#[tokio::test(start_paused = true)]
async fn a_pools_controller_is_made_once_for_all_its_lanes() {
    let made = Heard::default();
    let (lanes, pools) = (made.clone(), made.clone());
    let note = |made: &Heard, what: String| made.0.lock().unwrap().push(what);
    let limiter = build(|limiter| {
        limiter
            .lane_controller(move |lane| {
                note(&lanes, format!("lane {lane}"));
                None
            })
            .pool_controller(move |pool| {
                note(&pools, format!("pool {pool}"));
                Some(Box::new(Aimd::new(AimdConfig::default()).expect("valid")))
            })
    });
    for name in ["a", "b", "a"] {
        drop(go(&limiter, &model(name)));
    }
    assert_eq!(made.take(), ["pool local|*", "lane local|a", "lane local|b"]);
    assert_eq!((pool_of(&limiter).limit, lane_of(&limiter, &model("a")).limit), (16, 0));
}
