//! Limits that controllers find: bounded, told, remembered, and each lane's own.

mod changes;
mod crowd;
mod eviction;
mod pauses;
mod pools;
mod reload;

use std::sync::Mutex;

use tower_inflight::controller::{Aimd, AimdConfig, Controller, Mark, Sample, Sent};
use tower_inflight::{Condition, Limit, LimitConfig, Outcome, Pause, PoolLimit, PoolSnapshot, Verdict};

use super::*;

/// Says what the test wants it to say, and notes what it is told.
#[derive(Clone, Debug)]
struct Puppet(Arc<Mutex<Strings>>);

#[derive(Debug)]
struct Strings {
    limit: u32,
    /// From the next event on.
    pause: Option<Duration>,
    is_angry: bool,
    paused_until: Option<Duration>,
    first_bytes: u32,
    samples: Vec<Sample>,
}

impl Puppet {
    fn new(limit: u32) -> Self {
        let (pause, paused_until) = (None, None);
        Self(Arc::new(Mutex::new(Strings {
            limit,
            pause,
            is_angry: false,
            paused_until,
            first_bytes: 0,
            samples: Vec::new(),
        })))
    }

    fn pull(&self, pull: impl FnOnce(&mut Strings)) {
        pull(&mut self.0.lock().unwrap());
    }

    fn samples(&self) -> Vec<Sample> {
        self.0.lock().unwrap().samples.clone()
    }

    /// Moves every lane of a limiter that is set further by `set`.
    fn in_lanes(&self, set: impl FnOnce(LimiterBuilder) -> LimiterBuilder) -> Limiter {
        let puppet = self.clone();
        build(|limiter| set(limiter.lane_controller(move |_| Some(Box::new(puppet.clone())))))
    }

    fn hear(&self, at: Duration) {
        let mut strings = self.0.lock().unwrap();
        let pause = strings.pause;
        strings.paused_until = pause.map(|pause| at + pause);
        if strings.is_angry {
            drop(strings);
            // Without a word on the console.
            std::panic::resume_unwind(Box::new("angry"));
        }
    }
}

impl Controller for Puppet {
    fn limit(&self) -> u32 {
        self.0.lock().unwrap().limit
    }

    fn paused_until(&self) -> Option<Duration> {
        self.0.lock().unwrap().paused_until
    }

    fn on_sent(&mut self, sent: &Sent) -> Mark {
        self.hear(sent.at);
        Mark(sent.in_flight as f32)
    }

    fn on_first_byte(&mut self, at: Duration, _: &Sent, _: Mark) {
        self.hear(at);
        self.pull(|strings| strings.first_bytes += 1);
    }

    fn on_end(&mut self, sample: &Sample) {
        self.hear(sample.ended_at);
        self.pull(|strings| strings.samples.push(*sample));
    }
}

/// What `on_change` was told, line by line.
#[derive(Clone, Debug, Default)]
struct Heard(Arc<Mutex<Vec<String>>>);

impl Heard {
    fn by(&self, limiter: LimiterBuilder) -> LimiterBuilder {
        let heard = self.clone();
        limiter.on_change(move |change| {
            heard.0.lock().unwrap().push(format!("{}: {} ({})", change.subject, change.kind, change.cause));
        })
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

fn model(name: &str) -> LaneKey {
    LaneKey::new("local", name)
}

fn go(limiter: &Limiter, lane: &LaneKey) -> Permit {
    limiter.try_acquire(lane, Priority::Default).expect("a slot is free")
}

fn lane_of(limiter: &Limiter, key: &LaneKey) -> LaneSnapshot {
    let name = key.to_string();
    limiter.snapshot().lanes.into_iter().find(|lane| lane.lane == name).expect("the lane is there")
}

fn pool_of(limiter: &Limiter) -> PoolSnapshot {
    let mut pools = limiter.snapshot().pools;
    assert_eq!(pools.len(), 1, "{pools:?}");
    pools.remove(0)
}

fn busy(secs: u64) -> Verdict {
    Verdict::new(Outcome::Overload).with_pause(Pause::For(Duration::from_secs(secs)))
}

fn aimd(initial_limit: u32) -> Limit {
    Limit::Aimd(AimdConfig { initial_limit, ..AimdConfig::default() })
}

fn reload(limiter: &Limiter, change: impl FnOnce(&mut LimitConfig)) {
    let mut config = limiter.config();
    change(&mut config);
    limiter.reconfigure(config).expect("valid");
}

async fn pass(time: Duration) {
    tokio::time::advance(time).await;
    settle_down().await;
}

// Case 86.
#[tokio::test(start_paused = true)]
async fn refusals_never_take_a_limit_below_one_nor_below_its_minimum() {
    for (config, expected) in [
        (AimdConfig { initial_limit: 2, decrease: 0.3, ..AimdConfig::default() }, 1),
        (AimdConfig { initial_limit: 50, decrease: 0.01, ..AimdConfig::default() }, 1),
        (AimdConfig { initial_limit: 6, min_limit: 5, ..AimdConfig::default() }, 5),
    ] {
        let limiter = build(|limiter| limiter.limit(Limit::Aimd(config)));
        for _ in 0..3 {
            pass(secs(1)).await;
            hold(&limiter).settle(Outcome::Overload);
        }
        assert_eq!(figures(&limiter).limit, expected);
        drop(hold(&limiter));
    }
}

// Case 87.
#[tokio::test(start_paused = true)]
async fn a_wave_of_refusals_is_one_cut() {
    let limiter = build(|limiter| limiter.limit(aimd(64)));
    let wave: Vec<_> = (0..64).map(|_| hold(&limiter)).collect();
    for permit in wave {
        pass(millis(1) / 2).await;
        permit.settle(Outcome::Overload);
    }
    assert_eq!(figures(&limiter).limit, 32);
    pass(millis(1)).await;
    hold(&limiter).settle(Outcome::Overload);
    assert_eq!(figures(&limiter).limit, 16, "sent after the cut: another event");
}

// Case 89.
#[tokio::test(start_paused = true)]
async fn an_upstream_that_refuses_everything_is_not_sent_the_whole_queue() {
    let limiter = build(|limiter| limiter.limit(aimd(20)).max_queue(2_000).queue_timeout(secs(1)));
    let sent = Arc::new(AtomicUsize::new(0));
    let calls: Vec<_> = (0..1_620)
        .map(|_| {
            let (acquire, sent) = (limiter.acquire(&lane(), Priority::Default), sent.clone());
            tokio::spawn(async move {
                if let Ok(permit) = acquire.await {
                    sent.fetch_add(1, Ordering::Relaxed);
                    tokio::time::sleep(millis(50)).await;
                    permit.settle(Outcome::Overload);
                }
            })
        })
        .collect();
    for call in calls {
        call.await.expect("no panic");
    }
    let sent = sent.load(Ordering::Relaxed);
    // Twice each: where the clock stands still, the first of each wave were sent at the moment of the cut before it.
    assert!(sent <= 20 + 2 * (10 + 5 + 2) + 20, "{sent}: the halves, and one at a time for the rest of a second");
    assert_nothing_is_left(&limiter);
}

// Case 91.
#[tokio::test(start_paused = true)]
async fn a_limit_that_nobody_uses_does_not_grow_and_one_in_full_use_grows_to_its_maximum() {
    let limit = Limit::Aimd(AimdConfig { initial_limit: 10, max_limit: 100, ..AimdConfig::default() });
    let limiter = build(|limiter| limiter.limit(limit));
    for _ in 0..10_000 {
        hold(&limiter).settle(Outcome::Success);
    }
    assert_eq!(figures(&limiter).limit, 10);
    let callers: Vec<_> = (0..150)
        .map(|_| {
            let limiter = limiter.clone();
            tokio::spawn(async move {
                for _ in 0..100 {
                    let permit = limiter.acquire(&lane(), Priority::Default).await.expect("a slot");
                    tokio::time::sleep(millis(1)).await;
                    permit.settle(Outcome::Success);
                }
            })
        })
        .collect();
    for caller in callers {
        caller.await.expect("no panic");
    }
    let lane = figures(&limiter);
    assert_eq!((lane.limit, lane.max), (100, 100));
    assert_nothing_is_left(&limiter);
}

// Case 93.
#[tokio::test(start_paused = true)]
async fn only_successes_make_a_limit_grow() {
    let limiter = build(|limiter| limiter.limit(aimd(4)));
    let outcomes = [Outcome::Quota, Outcome::ClientError, Outcome::ServerError, Outcome::Cancelled, Outcome::Refused];
    let callers: Vec<_> = (0..40)
        .map(|n| {
            let limiter = limiter.clone();
            tokio::spawn(async move {
                let permit = limiter.acquire(&lane(), Priority::Default).await.expect("a slot");
                tokio::time::sleep(millis(1)).await;
                permit.settle(outcomes[n % outcomes.len()]);
            })
        })
        .collect();
    for caller in callers {
        caller.await.expect("no panic");
    }
    assert_eq!((figures(&limiter).limit, figures(&limiter).last_change), (4, None));
}

// Case 95.
#[tokio::test(start_paused = true)]
async fn a_limiter_that_could_never_admit_is_not_built_nor_reloaded() {
    let wrong = AimdConfig { min_limit: 5, max_limit: 4, initial_limit: 4, ..AimdConfig::default() };
    assert!(Limiter::builder().limit(Limit::Aimd(wrong.clone())).build().is_err());
    let limiter = build(|limiter| limiter.limit(aimd(7)));
    let mut config = limiter.config();
    config.limit = Limit::Aimd(wrong);
    assert!(limiter.reconfigure(config).unwrap_err().key().starts_with("limit.aimd."));
    drop(hold(&limiter));
    assert_eq!(figures(&limiter).limit, 7);
}

/// C1, for callers without HTTP.
#[tokio::test(start_paused = true)]
async fn a_first_byte_that_is_noted_reaches_the_controller_once() {
    let puppet = Puppet::new(4);
    let limiter = puppet.in_lanes(|limiter| limiter);
    let mut permit = hold(&limiter);
    let _another = hold(&limiter);
    pass(millis(250)).await;
    permit.note_first_byte();
    pass(millis(750)).await;
    permit.note_first_byte();
    permit.settle(busy(7));
    let samples = puppet.samples();
    let [Sample { ended_at, sent, mark, first_byte_at: Some(first_byte_at), outcome, retry_after, in_flight, .. }] =
        samples[..]
    else {
        panic!("{samples:?}")
    };
    assert_eq!((first_byte_at - sent.at, ended_at - sent.at), (millis(250), secs(1)));
    assert_eq!((sent.in_flight, mark, in_flight, sent.is_saturated), (1, Mark(1.0), 2, false));
    assert_eq!((outcome, retry_after), (Outcome::Overload, Some(secs(7))));
    assert_eq!((sent.request_bytes, sent.asks_for_stream), (None, None));
    puppet.pull(|strings| assert_eq!(strings.first_bytes, 1));
}

#[tokio::test(start_paused = true)]
async fn the_snapshot_shows_between_what_a_limit_moves_and_how_it_moved_last() {
    let limiter = build(|limiter| limiter.limit(aimd(16)).max_inflight(64));
    let permit = hold(&limiter);
    let shown = figures(&limiter);
    assert_eq!((shown.limit, shown.min, shown.max, shown.last_change), (16, 1, 64, None));
    assert_eq!(shown.paused_until_s, None);
    permit.settle(Outcome::Overload);
    pass(secs(9)).await;
    let change = figures(&limiter).last_change.expect("it was halved");
    assert_eq!((change.ago_s, change.from, change.to, change.cause), (9.0, 16, 8, "overload"));
    reload(&limiter, |config| config.max_inflight = 3);
    let shown = figures(&limiter);
    let change = shown.last_change.expect("it was lowered");
    assert_eq!((change.ago_s, change.from, change.to, change.cause), (0.0, 8, 3, "config"));
    assert_eq!((shown.min, shown.max), (1, 3));

    let fixed = super::limiter(5);
    drop(hold(&fixed));
    assert_eq!((figures(&fixed).min, figures(&fixed).max), (5, 5));
    assert!(fixed.snapshot().pools.is_empty());
}

/// O4: what the callers suffer from can be told from the outside.
#[tokio::test(start_paused = true)]
async fn a_lane_is_healthy_queues_locally_is_degraded_or_is_paused() {
    let limiter = limiter(1);
    let condition = || figures(&limiter).condition;
    let held = hold(&limiter);
    assert_eq!(condition(), Condition::Healthy);
    let waiter = queue(&limiter, Priority::Default).await;
    assert_eq!(condition(), Condition::LocalQueue);
    drop(waiter);
    held.settle(Outcome::Success);
    assert_eq!(condition(), Condition::Healthy);
    for outcome in [Outcome::Stalled, Outcome::Transport] {
        hold(&limiter).settle(outcome);
    }
    assert_eq!(condition(), Condition::Healthy, "two are an accident");
    hold(&limiter).settle(Outcome::Unavailable);
    assert_eq!(condition(), Condition::GatewayDegraded);
    let held = hold(&limiter);
    let waiter = queue(&limiter, Priority::Default).await;
    assert_eq!(condition(), Condition::GatewayDegraded, "and a queue, which is no news");
    held.settle(busy(5));
    assert_eq!(condition(), Condition::Paused);
    drop(waiter);
    pass(secs(70)).await;
    assert_eq!(condition(), Condition::Healthy);
}
