//! What a scenario must be like to be run.

use std::error::Error;
use std::fmt;

use super::scenario::{Change, Faults, Gateway, Load, Prefill, Scenario};

/// A scenario that cannot be run, and the field that is why.
///
/// ```
/// use tower_inflight::simulator::{Gateway, Load, Oracle, Scenario};
///
/// let closed = Scenario::new(Gateway { slots: 0, ..Gateway::default() }, Load::Closed { callers: 1, think_s: 0.0 });
/// let error = closed.run(1, |_client| Box::new(Oracle::new(&closed))).unwrap_err();
///
/// assert_eq!(error.field(), "gateway.slots");
/// assert_eq!(error.to_string(), "gateway.slots must be at least 1");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidScenario {
    field: &'static str,
    expected: &'static str,
}

impl InvalidScenario {
    /// The field that is out of range, as it is written in a file.
    #[must_use]
    pub fn field(&self) -> &'static str {
        self.field
    }
}

impl fmt::Display for InvalidScenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} must be {}", self.field, self.expected)
    }
}

impl Error for InvalidScenario {}

/// A day: beyond it, a run would take minutes and its steps much memory.
pub(super) const LONGEST_S: f64 = 86_400.0;
/// A change that comes again and again; each time is kept in memory.
pub(super) const LEAST_EVERY_S: f64 = 1.0;
/// A trajectory is kept in memory.
const MOST_STEPS: f64 = 100_000.0;
const MOST_CLIENTS: u32 = 64;
const MOST_CALLERS: u32 = 1_000_000;
const MOST_CALLS_PER_S: f64 = 100_000.0;

pub(super) fn check(scenario: &Scenario) -> Result<(), InvalidScenario> {
    let Scenario { runs_s, measured_from_s, converging_from_s, step_s, .. } = *scenario;
    require(runs_s > 0.0 && runs_s <= LONGEST_S, "runs_s", "above 0 and at most a day")?;
    require((0.0..runs_s).contains(&measured_from_s), "measured_from_s", "before the end")?;
    require((0.0..runs_s).contains(&converging_from_s), "converging_from_s", "before the end")?;
    require(
        step_s <= runs_s && step_s * MOST_STEPS >= runs_s,
        "step_s",
        "at most the run, of which it is 1/100,000 at least",
    )?;
    require(scenario.initial_limit >= 1, "initial_limit", "at least 1")?;
    check_gateway(&scenario.gateway)?;
    for change in &scenario.changes {
        check_change(change, &scenario.gateway)?;
    }
    let clients = &scenario.clients;
    require((1..=MOST_CLIENTS).contains(&clients.count), "clients.count", "between 1 and 64")?;
    require(clients.attempts >= 1, "clients.attempts", "at least 1")?;
    for (timeout_s, field) in [
        (clients.queue_timeout_s, "clients.queue_timeout_s"),
        (clients.first_byte_timeout_s, "clients.first_byte_timeout_s"),
        (clients.idle_timeout_s, "clients.idle_timeout_s"),
    ] {
        require(timeout_s > 0.0 && timeout_s <= LONGEST_S, field, "above 0 and at most a day")?;
    }
    let calls = &scenario.calls;
    for (spread, field) in [(calls.prompt_tokens, "calls.prompt_tokens"), (calls.output_tokens, "calls.output_tokens")]
    {
        let is_sane = spread.median >= 1.0 && spread.median <= 1e6 && (0.0..=3.0).contains(&spread.sigma);
        require(is_sane, field, "a median of at least 1 and a sigma of at most 3")?;
    }
    let shares = [calls.interactive_share, calls.bulk_share];
    require(are_shares(&shares), "calls.interactive_share and calls.bulk_share", "shares of at most 1 together")?;
    check_load(&scenario.load)
}

fn check_gateway(gateway: &Gateway) -> Result<(), InvalidScenario> {
    require(gateway.slots >= 1, "gateway.slots", "at least 1")?;
    require(gateway.capacity != Some(0), "gateway.capacity", "at least 1")?;
    for (seconds, field) in [
        (gateway.network_s, "gateway.network_s"),
        (gateway.creep_s_per_hour, "gateway.creep_s_per_hour"),
        (gateway.prefill_s, "gateway.prefill_s"),
        (gateway.reasoning_s, "gateway.reasoning_s"),
        (gateway.token_s_per_call, "gateway.token_s_per_call"),
        (gateway.retry_after_s.unwrap_or_default(), "gateway.retry_after_s"),
    ] {
        require((0.0..=LONGEST_S).contains(&seconds), field, "at least 0 and at most a day")?;
    }
    require((1e-6..=LONGEST_S).contains(&gateway.token_s), "gateway.token_s", "above 0")?;
    require(gateway.prefill_tokens_per_s >= 1e-3, "gateway.prefill_tokens_per_s", "above 0")?;
    require(are_shares(&[gateway.cached_share]), "gateway.cached_share", "a share")?;
    require(
        gateway.calls_per_s.is_none_or(|rate| rate > 0.0 && rate <= MOST_CALLS_PER_S),
        "gateway.calls_per_s",
        "above 0 and at most 100,000",
    )?;
    let reasons_alone = gateway.reasoning_s == 0.0 || gateway.prefill == Prefill::Parallel;
    require(reasons_alone, "gateway.reasoning_s", "0 if prompts are read one after the other")?;
    check_faults(&gateway.faults)
}

fn check_change(change: &Change, gateway: &Gateway) -> Result<(), InvalidScenario> {
    require((0.0..=LONGEST_S).contains(&change.at_s), "change.at_s", "at least 0 and at most a day")?;
    require(change.every_s.is_none_or(|every| every >= LEAST_EVERY_S), "change.every_s", "at least 1")?;
    let mut changed = gateway.clone();
    change.apply(&mut changed);
    check_gateway(&changed)
}

fn check_faults(faults: &Faults) -> Result<(), InvalidScenario> {
    let Faults { stall, reset, server_error, stray_429 } = *faults;
    let are_sane = are_shares(&[stall, reset, server_error]) && are_shares(&[stray_429]);
    require(are_sane, "gateway.faults", "shares of at most 1 together")
}

fn check_load(load: &Load) -> Result<(), InvalidScenario> {
    let is_rate = |rate: f64| (0.0..=MOST_CALLS_PER_S).contains(&rate);
    match *load {
        Load::Closed { callers, think_s } => {
            require((1..=MOST_CALLERS).contains(&callers), "load.callers", "between 1 and a million")?;
            require((0.0..=LONGEST_S).contains(&think_s), "load.think_s", "at least 0 and at most a day")
        }
        Load::Open { calls_per_s } => {
            require(is_rate(calls_per_s) && calls_per_s > 0.0, "load.calls_per_s", "above 0 and at most 100,000")
        }
        Load::Bursts { calls_per_s, quiet_calls_per_s, burst_s, quiet_s } => {
            require(is_rate(calls_per_s) && calls_per_s > 0.0, "load.calls_per_s", "above 0 and at most 100,000")?;
            require(is_rate(quiet_calls_per_s), "load.quiet_calls_per_s", "at least 0 and at most 100,000")?;
            require((1.0..=LONGEST_S).contains(&burst_s), "load.burst_s", "at least 1 and at most a day")?;
            require((1.0..=LONGEST_S).contains(&quiet_s), "load.quiet_s", "at least 1 and at most a day")
        }
    }
}

fn are_shares(shares: &[f64]) -> bool {
    shares.iter().all(|share| (0.0..=1.0).contains(share)) && shares.iter().sum::<f64>() <= 1.0
}

fn require(holds: bool, field: &'static str, expected: &'static str) -> Result<(), InvalidScenario> {
    if holds { Ok(()) } else { Err(InvalidScenario { field, expected }) }
}
