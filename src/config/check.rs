//! Refuses what could never admit a call, and what makes no sense together.

use std::fmt;
use std::time::Duration;

use super::duration::{OrOff, Text};
use super::switch::Switch;
use super::{
    BreakerConfig, ConfigError, GrpcThrottling, LaneOverride, Limit, LimitConfig, PoolLimit, Quota, RetryBudget,
    RetryRatio, Shares, SreThrottling,
};
use crate::engine::priority::Priority;
use crate::engine::quota::Dimension;

mod assumed;

/// More than any process can have in flight; a larger number is a typo.
const MAX_COUNT: u32 = 1_000_000;
/// Longer than any call or limit window; a longer time is a wrong unit.
const MAX_DURATION: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// A window of less sees hardly a call.
const MIN_WINDOW: Duration = Duration::from_secs(1);
/// More calls than this are full load and no trial.
const MAX_PROBES: u32 = 100;
/// The bound on `maxTokens` in gRPC's proposal A6, and one that no other factor needs to pass.
const MAX_FACTOR: u32 = 1_000;

/// More tokens than any provider sells; a larger number is a typo.
const MAX_PER_MINUTE: u64 = 1_000_000_000_000;

const NO_WAITING: &str = "for no waiting set `max_queue` to 0";
const NO_GUARD: &str = "for no such guard use `None`, in files \"off\"";
const NO_AGING: &str = "for no aging use `Aging::Off`, in files \"off\"";
const NO_BREAKER: &str = "for no breaker use `None`, in files \"off\"";
const NO_RETRY: &str = "for no retries drop the retry layer";
const NO_PAUSE: &str = "without a pause every caller would be back at once";

pub(super) fn check(config: &LimitConfig) -> Result<(), ConfigError> {
    check_base(config)?;
    for (n, lane) in config.overrides.iter().enumerate() {
        check_override(&Section(format!("overrides[{n}].")), lane, config)?;
    }
    for (n, pool) in config.pools.iter().enumerate() {
        check_pool(&Section(format!("pools[{n}].")), pool)?;
    }
    assumed::check_assumed(config)
}

fn check_base(config: &LimitConfig) -> Result<(), ConfigError> {
    let root = Section(String::new());
    root.count("max_inflight", config.max_inflight)?;
    root.limit(&config.limit)?;
    root.quota(config.quota.as_ref())?;
    root.count("interactive_reserve", config.interactive_reserve)?;
    // The default reserve stands beside "off", and is what overrides and pools start from.
    if config.max_inflight > 0 {
        root.reserve(config.interactive_reserve, config.max_inflight)?;
    }
    root.shares(config.shares.as_ref())?;
    root.duration("queue_timeout", config.queue_timeout, NO_WAITING)?;
    root.count("max_queue", config.max_queue)?;
    root.queue_bound("max_queue_per_class", config.max_queue_per_class)?;
    root.queue_bound("max_queue_per_tenant", config.max_queue_per_tenant)?;
    root.count("max_queue_total", config.max_queue_total)?;
    root.guard("aging_step", Some(config.aging_step.into()), NO_AGING)?;
    root.count_from_one("max_lanes", config.max_lanes, "every call needs a lane")?;
    root.duration("min_pause", config.min_pause, NO_PAUSE)?;
    root.duration("max_pause", config.max_pause, NO_PAUSE)?;
    if config.min_pause > config.max_pause {
        let allowed = format!("at most `max_pause` ({})", humantime::format_duration(config.max_pause));
        return root.refuse("min_pause", humantime::format_duration(config.min_pause), allowed);
    }
    root.guard("first_byte_timeout", Some(OrOff(config.first_byte_timeout)), NO_GUARD)?;
    root.guard("idle_timeout", Some(OrOff(config.idle_timeout)), NO_GUARD)?;
    root.breaker(config.breaker.as_ref())?;
    root.retry_budget(config.retry_budget.as_ref())
}

fn check_override(section: &Section, lane: &LaneOverride, base: &LimitConfig) -> Result<(), ConfigError> {
    section.pattern("lane", &lane.lane)?;
    if !lane.lane.contains(['*', '|']) {
        let allowed = "a whole lane name `endpoint|model`, or a part of one with `*` for the rest";
        return section.refuse("lane", format_args!("{:?}", lane.lane), allowed);
    }
    if let Some(max_inflight) = lane.max_inflight {
        section.count("max_inflight", max_inflight)?;
    }
    if let Some(limit) = &lane.limit {
        section.limit(limit)?;
    }
    section.quota(lane.quota.as_ref())?;
    if let Some(reserve) = lane.interactive_reserve {
        section.count("interactive_reserve", reserve)?;
        let max_inflight = lane.max_inflight.unwrap_or(base.max_inflight);
        if max_inflight > 0 || lane.limit.as_ref().unwrap_or(&base.limit).is_fixed() {
            section.reserve(reserve, max_inflight)?;
        }
    }
    section.shares(lane.shares.as_ref().and_then(|Switch(shares)| shares.as_ref()))?;
    if let Some(Text(timeout)) = lane.queue_timeout {
        section.duration("queue_timeout", timeout, NO_WAITING)?;
    }
    if let Some(max_queue) = lane.max_queue {
        section.count("max_queue", max_queue)?;
    }
    section.queue_bound("max_queue_per_class", lane.max_queue_per_class)?;
    section.queue_bound("max_queue_per_tenant", lane.max_queue_per_tenant)?;
    section.guard("aging_step", lane.aging_step.map(OrOff::from), NO_AGING)?;
    section.guard("first_byte_timeout", lane.first_byte_timeout, NO_GUARD)?;
    section.guard("idle_timeout", lane.idle_timeout, NO_GUARD)?;
    section.breaker(lane.breaker.as_ref().and_then(|Switch(breaker)| breaker.as_ref()))?;
    section.retry_budget(lane.retry_budget.as_ref().and_then(|Switch(budget)| budget.as_ref()))
}

fn check_pool(section: &Section, pool: &PoolLimit) -> Result<(), ConfigError> {
    section.pattern("endpoint", &pool.endpoint)?;
    section.limit(&pool.limit)?;
    section.quota(pool.quota.as_ref())?;
    if pool.limit.is_fixed() && pool.quota.is_none() {
        section.count_from_one("max_inflight", pool.max_inflight, "for no cap leave the entry out")?;
    } else {
        section.count("max_inflight", pool.max_inflight)?;
    }
    match pool.interactive_reserve {
        Some(reserve) if pool.max_inflight > 0 => section.reserve(reserve, pool.max_inflight),
        Some(reserve) => section.count("interactive_reserve", reserve),
        None => Ok(()),
    }
}

fn check_breaker(section: &Section, breaker: &BreakerConfig) -> Result<(), ConfigError> {
    section.share("failure_rate", breaker.failure_rate)?;
    section.guard("slow_after", Some(OrOff(breaker.slow_after)), NO_GUARD)?;
    section.share("slow_rate", breaker.slow_rate)?;
    section.count_from_one("min_calls", breaker.min_calls, NO_BREAKER)?;
    section.window("window", breaker.window)?;
    section.duration("open_for", breaker.open_for, NO_BREAKER)?;
    section.duration("max_open_for", breaker.max_open_for, NO_BREAKER)?;
    if breaker.open_for > breaker.max_open_for {
        let allowed = format!("at most `max_open_for` ({})", humantime::format_duration(breaker.max_open_for));
        return section.refuse("open_for", humantime::format_duration(breaker.open_for), allowed);
    }
    if !(1..=MAX_PROBES).contains(&breaker.probes) {
        let allowed = format!("1 to {MAX_PROBES}; without one nothing would close the breaker again");
        return section.refuse("probes", breaker.probes, allowed);
    }
    section.duration("probe_timeout", breaker.probe_timeout, "a call needs time to end")
}

fn check_retry_ratio(section: &Section, budget: &RetryRatio) -> Result<(), ConfigError> {
    let RetryRatio { ratio, per_second, window } = *budget;
    section.number("ratio", ratio, (0.0, 1.0), "0.1 is one retry for ten first attempts")?;
    section.number("per_second", per_second, (0.0, f64::from(MAX_COUNT)), "on average over `window`")?;
    section.window("window", window)?;
    if ratio == 0.0 && per_second * window.as_secs_f64() < 1.0 {
        let allowed = format!("at least one retry within `window`, as `ratio` is 0; {NO_RETRY}");
        return section.refuse("per_second", per_second, allowed);
    }
    Ok(())
}

fn check_grpc(section: &Section, throttling: &GrpcThrottling) -> Result<(), ConfigError> {
    let GrpcThrottling { max_tokens, token_ratio } = *throttling;
    if !(1..=MAX_FACTOR).contains(&max_tokens) {
        return section.refuse("max_tokens", max_tokens, format!("1 to {MAX_FACTOR}; {NO_RETRY}"));
    }
    let why = "with less, no success would pay for a failure";
    section.number("token_ratio", token_ratio, (0.001, f64::from(MAX_FACTOR)), why)
}

fn check_sre(section: &Section, throttling: &SreThrottling) -> Result<(), ConfigError> {
    let SreThrottling { k, window } = *throttling;
    section.number("k", k, (1.0, f64::from(MAX_FACTOR)), "below 1, retries are refused while every call succeeds")?;
    section.window("window", window)
}

/// A table of the configuration, by the path that leads to its keys.
struct Section(String);

impl Section {
    fn count(&self, key: &str, value: u32) -> Result<(), ConfigError> {
        if value > MAX_COUNT {
            return self.refuse(key, value, format!("at most {MAX_COUNT}"));
        }
        Ok(())
    }

    fn count_from_one(&self, key: &str, value: u32, why: &str) -> Result<(), ConfigError> {
        if value == 0 || value > MAX_COUNT {
            return self.refuse(key, value, format!("1 to {MAX_COUNT}; {why}"));
        }
        Ok(())
    }

    fn queue_bound(&self, key: &str, value: Option<u32>) -> Result<(), ConfigError> {
        value.map_or(Ok(()), |value| self.count_from_one(key, value, NO_WAITING))
    }

    fn reserve(&self, reserve: u32, max_inflight: u32) -> Result<(), ConfigError> {
        if reserve <= max_inflight {
            return Ok(());
        }
        let allowed = match max_inflight {
            0 => "0, since these lanes have no `max_inflight` to reserve from".to_owned(),
            limit => format!("at most `max_inflight` ({limit})"),
        };
        self.refuse("interactive_reserve", reserve, allowed)
    }

    fn limit(&self, limit: &Limit) -> Result<(), ConfigError> {
        match limit.steering(0) {
            Ok(_) => Ok(()),
            Err(error) => {
                let key = format!("limit.{}.{}", limit.name(), error.field());
                self.refuse(&key, error.value(), error.allowed())
            }
        }
    }

    fn shares(&self, shares: Option<&Shares>) -> Result<(), ConfigError> {
        let Some(shares) = shares else { return Ok(()) };
        let section = self.inner("shares");
        for (class, part) in Priority::ALL.into_iter().zip(shares.parts()) {
            section.number(class.as_str(), part, (0.0, 1.0), "a part of the limit")?;
        }
        if shares.policy().fit() {
            return Ok(());
        }
        let [interactive, default, bulk] = shares.parts();
        self.refuse("shares", format_args!("{interactive} + {default} + {bulk}"), "at most 1 together")
    }

    fn breaker(&self, breaker: Option<&BreakerConfig>) -> Result<(), ConfigError> {
        breaker.map_or(Ok(()), |breaker| check_breaker(&self.inner("breaker"), breaker))
    }

    fn retry_budget(&self, budget: Option<&RetryBudget>) -> Result<(), ConfigError> {
        let Some(budget) = budget else { return Ok(()) };
        let section = self.inner("retry_budget").inner(budget.name());
        match budget {
            RetryBudget::Ratio(budget) => check_retry_ratio(&section, budget),
            RetryBudget::Grpc(throttling) => check_grpc(&section, throttling),
            RetryBudget::Sre(throttling) => check_sre(&section, throttling),
        }
    }

    fn inner(&self, key: &str) -> Self {
        Self(format!("{}{key}.", self.0))
    }

    fn share(&self, key: &str, value: f64) -> Result<(), ConfigError> {
        if value > 0.0 && value <= 1.0 {
            return Ok(());
        }
        self.refuse(key, value, format!("more than 0, at most 1; {NO_BREAKER}"))
    }

    /// Refuses NaN as well.
    fn number(&self, key: &str, value: f64, (least, most): (f64, f64), why: &str) -> Result<(), ConfigError> {
        if (least..=most).contains(&value) {
            return Ok(());
        }
        self.refuse(key, value, format!("{least} to {most}; {why}"))
    }

    fn window(&self, key: &str, value: Duration) -> Result<(), ConfigError> {
        if (MIN_WINDOW..=MAX_DURATION).contains(&value) {
            return Ok(());
        }
        self.refuse(key, humantime::format_duration(value), "1s to 30days; a shorter one sees hardly a call")
    }

    fn quota(&self, quota: Option<&Quota>) -> Result<(), ConfigError> {
        let Some(quota) = quota else { return Ok(()) };
        self.duration("quota.burst", quota.burst, "a budget that can hold nothing admits nobody")?;
        self.count_from_one("quota.max_output", quota.max_output, "every answer has a token")?;
        let per_minute = Dimension::ALL.into_iter().zip(quota.per_minute());
        let mut limited = per_minute.filter_map(|(dimension, it)| Some((dimension, it?))).peekable();
        if limited.peek().is_none() {
            return self.refuse("quota", "{}", "at least one dimension, such as `tokens_per_minute`");
        }
        for (dimension, per_minute) in limited {
            let key = format!("quota.{dimension}");
            if !(1..=MAX_PER_MINUTE).contains(&per_minute) {
                return self.refuse(&key, per_minute, format!("1 to {MAX_PER_MINUTE}; for no such bound leave it out"));
            }
            let needed = if dimension == Dimension::Requests { 1.0 } else { f64::from(quota.max_output) };
            if dimension != Dimension::InputTokens && quota.held(per_minute) < needed {
                let allowed = format!("with a `burst` that holds one call of `max_output` ({needed}) at least");
                return self.refuse(&key, per_minute, allowed);
            }
        }
        Ok(())
    }

    fn duration(&self, key: &str, value: Duration, instead_of_zero: &str) -> Result<(), ConfigError> {
        if value.is_zero() || value > MAX_DURATION {
            let allowed = format!("more than 0s, at most 30days; {instead_of_zero}");
            return self.refuse(key, humantime::format_duration(value), allowed);
        }
        Ok(())
    }

    fn guard(&self, key: &str, value: Option<OrOff>, instead_of_zero: &str) -> Result<(), ConfigError> {
        match value {
            Some(OrOff(Some(duration))) => self.duration(key, duration, instead_of_zero),
            Some(OrOff(None)) | None => Ok(()),
        }
    }

    fn pattern(&self, key: &str, value: &str) -> Result<(), ConfigError> {
        if value.is_empty() {
            return self.refuse(key, "\"\"", "a name, with `*` for any run of characters");
        }
        Ok(())
    }

    fn refuse(&self, key: &str, value: impl fmt::Display, allowed: impl Into<String>) -> Result<(), ConfigError> {
        Err(ConfigError::new(format!("{}{key}", self.0), value, allowed))
    }
}
