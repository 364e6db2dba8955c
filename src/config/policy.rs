use std::time::Duration;

use super::check::check;
use super::duration::{OrOff, Text};
use super::pattern::matches;
use super::switch::Switch;
use super::{BreakerConfig, ConfigError, LaneOverride, Limit, LimitConfig, PoolLimit, Quota, RetryBudget, Shares};
use crate::engine::breaker::BreakerPolicy;
use crate::engine::pause::PauseBounds;
use crate::engine::policy::{LanePolicy, SlotPolicy};
use crate::engine::quota::{FollowHeaders, WhenShort};
use crate::engine::retry_budget::RetryPolicy;
use crate::engine::steering::Steering;
use crate::limiter::key::{Kind, LaneKey};

/// A configuration that has been checked, and what it says about each lane and pool.
#[derive(Clone, Debug)]
pub(crate) struct Policy {
    config: LimitConfig,
    enabled: bool,
    /// Counts the reloads.
    version: u64,
}

/// What one lane gets, but for what decides its limit: how to be let in, and how long to be silent after.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LaneRules {
    pub(crate) admission: LanePolicy,
    pub(crate) guards: Guards,
}

/// The longest silences of the upstream within one call; `None` = no such guard. Never zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Guards {
    pub(crate) first_byte: Option<Duration>,
    pub(crate) idle: Option<Duration>,
}

/// How calls of a lane are charged, as far as the shell has to know.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Charging {
    /// What a call is charged for its answer that does not say how long it may be; 0: nobody is charged.
    pub(crate) unsaid_output: u32,
    /// On where the lane's budget or the pool's wants to hear of headers.
    pub(crate) follow_headers: FollowHeaders,
}

impl Policy {
    pub(crate) fn compile(config: LimitConfig) -> Result<Self, ConfigError> {
        check(&config)?;
        let limits = |lane: &LaneOverride| {
            lane.max_inflight.is_some_and(|limit| limit > 0)
                || lane.limit.as_ref().is_some_and(|it| !it.is_fixed())
                || lane.quota.is_some()
                || lane.breaker.as_ref().is_some_and(|Switch(breaker)| breaker.is_some())
                || lane.retry_budget.as_ref().is_some_and(|Switch(budget)| budget.is_some())
        };
        let enabled = config.max_inflight > 0
            || !config.limit.is_fixed()
            || config.quota.is_some()
            || config.breaker.is_some()
            || config.retry_budget.is_some()
            || config.overrides.iter().any(limits)
            || !config.pools.is_empty();
        Ok(Self { config, enabled, version: 0 })
    }

    /// This policy as the one that comes after `before`.
    pub(crate) fn after(self, before: &Self) -> Self {
        Self { version: before.version + 1, ..self }
    }

    /// Of two reloads at once, the one that came first may be the last to arrive at a lane.
    pub(crate) fn is_newer_than(&self, other: &Self) -> bool {
        self.version > other.version
    }

    /// False when no call could ever have to wait.
    pub(crate) fn is_enabled(&self) -> bool {
        self.enabled
    }

    pub(crate) fn lane(&self, lane: &LaneKey) -> LaneRules {
        let mut rules = self.base_rules();
        if !self.config.overrides.is_empty() {
            let shown = lane.to_string();
            for entry in self.config.overrides.iter().filter(|entry| matches(&entry.lane, &shown)) {
                apply(entry, &mut rules);
            }
        }
        rules.admission.when_short = self.quotas(lane).next().map_or(WhenShort::Queue, |quota| quota.when_short);
        rules
    }

    /// What the lane may use per minute: of several matching overrides that say so, the last.
    pub(crate) fn lane_quota(&self, lane: &LaneKey) -> Option<&Quota> {
        self.last_override(lane, |entry| entry.quota.as_ref()).or(self.config.quota.as_ref())
    }

    pub(crate) fn pool_quota(&self, endpoint: &str, kind: Kind) -> Option<&Quota> {
        self.pool_entry(endpoint, kind)?.quota.as_ref()
    }

    /// What decides the lane's limit: of several matching overrides that say so, the last.
    pub(crate) fn lane_limit(&self, lane: &LaneKey) -> &Limit {
        self.last_override(lane, |entry| entry.limit.as_ref()).unwrap_or(&self.config.limit)
    }

    /// The lane's breaker, if it has one: of several matching overrides that say so, the last decides.
    pub(crate) fn lane_breaker(&self, lane: &LaneKey) -> Option<BreakerPolicy> {
        let decided = self.last_override(lane, |entry| entry.breaker.as_ref());
        let breaker = decided.map_or(self.config.breaker.as_ref(), |Switch(breaker)| breaker.as_ref());
        breaker.map(BreakerConfig::policy)
    }

    /// The same for what holds its retries back.
    pub(crate) fn lane_retry_budget(&self, lane: &LaneKey) -> Option<RetryPolicy> {
        let decided = self.last_override(lane, |entry| entry.retry_budget.as_ref());
        let budget = decided.map_or(self.config.retry_budget.as_ref(), |Switch(budget)| budget.as_ref());
        budget.map(RetryBudget::policy)
    }

    /// The lane's own, then that of its pool.
    fn quotas(&self, lane: &LaneKey) -> impl Iterator<Item = &Quota> + Clone {
        [self.lane_quota(lane), self.pool_quota(lane.endpoint(), lane.kind())].into_iter().flatten()
    }

    pub(crate) fn charging(&self, lane: &LaneKey) -> Charging {
        let mut quotas = self.quotas(lane);
        let follows = quotas.clone().any(|quota| quota.follow_headers != FollowHeaders::Off);
        Charging {
            unsaid_output: quotas.next().map_or(0, |quota| quota.max_output),
            follow_headers: if follows { FollowHeaders::On } else { FollowHeaders::Off },
        }
    }

    /// What the last matching override says that says something. The lane's name is made only if one does.
    fn last_override<T>(&self, lane: &LaneKey, says: impl Fn(&LaneOverride) -> Option<&T>) -> Option<&T> {
        let mut deciding = self.config.overrides.iter().rev().filter(|entry| says(entry).is_some()).peekable();
        deciding.peek()?;
        let shown = lane.to_string();
        deciding.find(|entry| matches(&entry.lane, &shown)).and_then(says)
    }

    /// A new controller for the lane, if its limit is not fixed.
    pub(crate) fn steer_lane(&self, lane: &LaneKey, seed: u64) -> Option<Steering> {
        self.lane_limit(lane).steering(seed).expect(CHECKED)
    }

    /// A new controller for the pool, if its limit is not fixed.
    pub(crate) fn steer_pool(&self, endpoint: &str, kind: Kind, seed: u64) -> Option<Steering> {
        self.pool_limit(endpoint, kind).steering(seed).expect(CHECKED)
    }

    pub(crate) fn pool(&self, endpoint: &str, kind: Kind) -> SlotPolicy {
        self.pool_entry(endpoint, kind).map_or_else(SlotPolicy::default, |pool| SlotPolicy {
            limit: pool.max_inflight,
            reserve: pool.interactive_reserve.unwrap_or(self.config.interactive_reserve),
        })
    }

    pub(crate) fn pool_limit(&self, endpoint: &str, kind: Kind) -> &Limit {
        self.pool_entry(endpoint, kind).map_or(&Limit::Fixed, |pool| &pool.limit)
    }

    fn pool_entry(&self, endpoint: &str, kind: Kind) -> Option<&PoolLimit> {
        let of_kind = |wanted: Option<Kind>| wanted.is_none_or(|wanted| wanted == kind);
        let mut latest_first = self.config.pools.iter().rev();
        latest_first.find(|pool| of_kind(pool.kind) && matches(&pool.endpoint, endpoint))
    }

    pub(crate) fn max_lanes(&self) -> usize {
        self.config.max_lanes as usize
    }

    pub(crate) fn max_queue_total(&self) -> usize {
        self.config.max_queue_total as usize
    }

    pub(crate) fn config(&self) -> &LimitConfig {
        &self.config
    }

    fn base_rules(&self) -> LaneRules {
        let config = &self.config;
        LaneRules {
            admission: LanePolicy {
                slots: SlotPolicy { limit: config.max_inflight, reserve: config.interactive_reserve },
                shares: config.shares.map(Shares::policy),
                queue_timeout: config.queue_timeout,
                max_queue: config.max_queue,
                max_queue_per_class: config.max_queue_per_class,
                max_queue_per_tenant: config.max_queue_per_tenant,
                aging_step: config.aging_step.step(),
                pauses: PauseBounds { min: config.min_pause, max: config.max_pause },
                predict_deadlines: config.predict_deadlines,
                when_short: WhenShort::Queue,
            },
            guards: Guards { first_byte: config.first_byte_timeout, idle: config.idle_timeout },
        }
    }
}

const CHECKED: &str = "a policy is checked before it is used";

fn apply(entry: &LaneOverride, rules: &mut LaneRules) {
    let LaneRules { admission, guards } = rules;
    admission.slots.limit = entry.max_inflight.unwrap_or(admission.slots.limit);
    admission.slots.reserve = entry.interactive_reserve.unwrap_or(admission.slots.reserve);
    admission.shares = match entry.shares {
        Some(Switch(shares)) => shares.map(Shares::policy),
        None => admission.shares,
    };
    admission.predict_deadlines = entry.predict_deadlines.unwrap_or(admission.predict_deadlines);
    admission.queue_timeout = entry.queue_timeout.map_or(admission.queue_timeout, |Text(after)| after);
    admission.max_queue = entry.max_queue.unwrap_or(admission.max_queue);
    admission.max_queue_per_class = entry.max_queue_per_class.or(admission.max_queue_per_class);
    admission.max_queue_per_tenant = entry.max_queue_per_tenant.or(admission.max_queue_per_tenant);
    admission.aging_step = entry.aging_step.map_or(admission.aging_step, |aging| aging.step());
    guards.first_byte = entry.first_byte_timeout.map_or(guards.first_byte, |OrOff(after)| after);
    guards.idle = entry.idle_timeout.map_or(guards.idle, |OrOff(after)| after);
}
