use std::time::Duration;

use proptest::prelude::*;

use super::policy::LaneRules;
use super::switch::Switch;
use super::*;
use crate::engine::retry_budget::{Attempt, Retries};
use crate::engine::time::Time;
use crate::limiter::key::{Kind, LaneKey};

const MONTH: Duration = Duration::from_secs(30 * 24 * 60 * 60);

fn counts() -> impl Strategy<Value = u32> {
    prop_oneof![30 => 1_u32..9, 3 => Just(0), 1 => 999_999_u32..1_000_002, 1 => any::<u32>()]
}

fn reserves() -> impl Strategy<Value = u32> {
    prop_oneof![9 => 0_u32..2, 1 => counts()]
}

fn short_durations() -> impl Strategy<Value = Duration> {
    prop_oneof![9 => (1_u64..1_000_000_000).prop_map(Duration::from_nanos), 1 => durations()]
}

fn durations() -> impl Strategy<Value = Duration> {
    let edges = prop::sample::select(vec![Duration::ZERO, MONTH, MONTH + Duration::from_nanos(1), Duration::MAX]);
    prop_oneof![50 => (1_u64..2_000_000_000_000).prop_map(Duration::from_nanos), 1 => edges]
}

fn maybe<S: Strategy>(strategy: S) -> impl Strategy<Value = Option<S::Value>> {
    prop::option::weighted(0.3, strategy)
}

fn agings() -> impl Strategy<Value = Aging> {
    prop_oneof![durations().prop_map(Aging::Every), Just(Aging::Off)]
}

fn patterns() -> impl Strategy<Value = String> {
    prop_oneof![30 => "[ef*]{1,2}\\|[mn*]{1,2}", 1 => "[efmn|*]{0,3}"]
}

/// Boxed, as the next two: of so many parts, the whole would not fit on the stack of a test.
fn overrides() -> BoxedStrategy<LaneOverride> {
    let queue = (maybe(durations()), maybe(counts()), maybe(counts()), maybe(counts()));
    let guards = (maybe(agings()), maybe(maybe(durations())), maybe(maybe(durations())));
    let upstream =
        (maybe(maybe(breakers())), maybe(maybe(retry_budgets())), maybe(maybe(class_shares())), maybe(predictions()));
    (patterns(), maybe(counts()), maybe(reserves()), queue, guards, upstream)
        .prop_map(|(lane, limit, reserve, queue, guards, upstream)| LaneOverride {
            max_inflight: limit,
            interactive_reserve: reserve,
            queue_timeout: queue.0.map(duration::Text),
            max_queue: queue.1,
            max_queue_per_class: queue.2,
            max_queue_per_tenant: queue.3,
            aging_step: guards.0,
            first_byte_timeout: guards.1.map(duration::OrOff),
            idle_timeout: guards.2.map(duration::OrOff),
            breaker: upstream.0.map(Switch),
            retry_budget: upstream.1.map(Switch),
            shares: upstream.2.map(Switch),
            predict_deadlines: upstream.3,
            ..LaneOverride::new(lane)
        })
        .boxed()
}

/// As people write them: of seventeen digits, serde_json may read the last one wrong.
fn thousandths(least: u32, most: u32) -> impl Strategy<Value = f64> {
    (least..=most).prop_map(|n| f64::from(n) / 1_000.0)
}

/// Seldom something impossible: most configurations should compile.
fn shares() -> impl Strategy<Value = f64> {
    prop_oneof![40 => thousandths(10, 1_000), 1 => prop::sample::select(vec![0.0, 1.5, -1.0])]
}

fn predictions() -> impl Strategy<Value = PredictDeadlines> {
    prop::sample::select(vec![PredictDeadlines::On, PredictDeadlines::Off])
}

fn class_shares() -> impl Strategy<Value = Shares> {
    let part = || prop_oneof![20 => thousandths(0, 333), 1 => prop::sample::select(vec![1.0, 1.5, -1.0])];
    (part(), part(), part()).prop_map(|(interactive, default, bulk)| Shares { interactive, default, bulk })
}

fn breakers() -> BoxedStrategy<BreakerConfig> {
    let times = (durations(), short_durations(), durations(), durations());
    (shares(), maybe(durations()), shares(), counts(), times, 1_u32..102)
        .prop_map(|(failure_rate, slow_after, slow_rate, min_calls, times, probes)| BreakerConfig {
            failure_rate,
            slow_after,
            slow_rate,
            min_calls,
            window: times.0,
            open_for: times.1,
            max_open_for: times.2,
            probes,
            probe_timeout: times.3,
        })
        .boxed()
}

fn retry_budgets() -> BoxedStrategy<RetryBudget> {
    prop_oneof![
        (shares(), thousandths(0, 5_000), durations())
            .prop_map(|(ratio, per_second, window)| RetryBudget::Ratio(RetryRatio { ratio, per_second, window })),
        (counts(), shares())
            .prop_map(|(max_tokens, token_ratio)| RetryBudget::Grpc(GrpcThrottling { max_tokens, token_ratio })),
        (thousandths(990, 4_000), durations()).prop_map(|(k, window)| RetryBudget::Sre(SreThrottling { k, window })),
    ]
    .boxed()
}

fn pools() -> impl Strategy<Value = PoolLimit> {
    let kinds = prop::sample::select(vec![Kind::Chat, Kind::Embedding, Kind::Other]);
    ("[ef*]{1,2}", maybe(kinds), counts(), maybe(reserves())).prop_map(|(endpoint, kind, max_inflight, reserve)| {
        PoolLimit { endpoint, kind, max_inflight, limit: Limit::Fixed, quota: None, interactive_reserve: reserve }
    })
}

fn limits() -> impl Strategy<Value = Limit> {
    use crate::engine::controller::{AimdConfig, KneeConfig};
    let bounds = || (counts(), counts(), counts());
    prop_oneof![
        3 => Just(Limit::Fixed),
        1 => bounds().prop_map(|(min_limit, initial_limit, max_limit)| {
            Limit::Adaptive(KneeConfig { initial_limit, min_limit, max_limit })
        }),
        1 => (bounds(), thousandths(0, 1_200)).prop_map(|((min_limit, initial_limit, max_limit), decrease)| {
            Limit::Aimd(AimdConfig { initial_limit, min_limit, max_limit, decrease, ..AimdConfig::default() })
        }),
    ]
}

prop_compose! {
    fn configs()(
        (max_inflight, interactive_reserve, max_queue, max_queue_total, max_lanes) in
            (counts(), reserves(), counts(), counts(), counts()),
        (max_queue_per_class, max_queue_per_tenant) in (maybe(counts()), maybe(counts())),
        (queue_timeout, min_pause, max_pause, aging_step) in (durations(), short_durations(), durations(), agings()),
        (first_byte_timeout, idle_timeout) in (maybe(durations()), maybe(durations())),
        overrides in prop::collection::vec(overrides(), 0..3),
        pools in prop::collection::vec(pools(), 0..3),
        limit in limits(),
        (breaker, retry_budget) in (maybe(breakers()), maybe(retry_budgets())),
        (shares, predict_deadlines) in (maybe(class_shares()), predictions()),
    ) -> LimitConfig {
        LimitConfig {
            max_inflight, interactive_reserve, queue_timeout, max_queue, max_queue_per_class, max_queue_per_tenant,
            max_queue_total, aging_step, max_lanes, min_pause, max_pause, first_byte_timeout, idle_timeout, overrides,
            pools, limit, quota: None, breaker, retry_budget, shares, predict_deadlines,
        }
    }
}

proptest! {
    #[test]
    fn whatever_compiles_can_admit(config in configs()) {
        // Nothing to ask of a refused one, except that it was refused without a panic.
        let Ok(policy) = Policy::compile(config) else { return Ok(()) };
        prop_assert!(policy.max_lanes() > 0);
        for (endpoint, model) in [("e", "m"), ("e", "n"), ("f", "m"), ("ef", "mn")] {
            let lane = LaneKey::new(endpoint, model);
            let LaneRules { admission, guards } = policy.lane(&lane);
            let pool = policy.pool(endpoint, Kind::Chat);
            let is_fixed = policy.lane_limit(&lane).is_fixed() && policy.pool_limit(endpoint, Kind::Chat).is_fixed();
            let is_unlimited = is_fixed && (admission.slots.limit, pool.limit) == (0, 0);
            prop_assert!(policy.is_enabled() || is_unlimited);
            prop_assert!(policy.steer_lane(&lane, 1).is_none() == policy.lane_limit(&lane).is_fixed());
            prop_assert!(!admission.pauses.min.is_zero() && admission.pauses.min <= admission.pauses.max);
            if let Some(shares) = admission.shares {
                prop_assert!(shares.slots(1_000_000).iter().sum::<u32>() <= 1_000_000);
            }
            prop_assert_ne!(admission.max_queue_per_class, Some(0));
            prop_assert_ne!(admission.max_queue_per_tenant, Some(0));
            if let Some(breaker) = policy.lane_breaker(&lane) {
                let opens = |rate: f64| rate > 0.0 && rate <= 1.0;
                prop_assert!(opens(breaker.failure_rate) && breaker.slow.is_none_or(|rule| opens(rule.rate)));
                prop_assert!(breaker.min_calls > 0 && breaker.probes > 0 && !breaker.probe_timeout.is_zero());
                prop_assert!(!breaker.open_for.is_zero() && breaker.open_for <= breaker.max_open_for);
                prop_assert!(breaker.max_open_for <= MONTH && breaker.window >= Duration::from_secs(1));
            }
            if let Some(budget) = policy.lane_retry_budget(&lane) {
                let mut budget = Retries::new(Some(budget));
                let admits = (0..1_000_000).any(|_| {
                    budget.on_sent(Attempt::First, Time::ZERO);
                    budget.admit(Attempt::Retry, 0.999, Time::ZERO)
                });
                prop_assert!(admits, "some retry passes");
            }
            let timers = [Some(admission.queue_timeout), admission.aging_step, guards.first_byte, guards.idle];
            prop_assert!(timers.into_iter().flatten().all(|after| !after.is_zero() && after <= MONTH));
        }
    }

    #[test]
    fn text_of_whatever_compiles_reads_back_the_same(config in configs()) {
        let Ok(policy) = Policy::compile(config) else { return Ok(()) };
        let text = toml::to_string(policy.config()).unwrap();
        prop_assert_eq!(&toml::from_str::<LimitConfig>(&text).unwrap(), policy.config());
        let text = serde_json::to_string(policy.config()).unwrap();
        prop_assert_eq!(&serde_json::from_str::<LimitConfig>(&text).unwrap(), policy.config());
    }
}
