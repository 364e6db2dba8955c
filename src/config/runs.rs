//! What users may set of a [`RunQueue`](crate::RunQueue).

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{ConfigError, duration};

/// More runs than any process can hold; a larger number is a typo.
const MAX_COUNT: u32 = 1_000_000;
/// A budget that needs longer than this is not asked but waited for.
const MAX_BUDGET_TIMEOUT: Duration = Duration::from_secs(600);

/// Every bound of a [`RunQueue`](crate::RunQueue).
///
/// ```
/// use tower_inflight::{BudgetChecks, RunConfig, RunQueue};
///
/// let config: RunConfig = toml::from_str(
///     r#"
///     max_concurrent_runs = 4
///     max_concurrent_runs_per_user = 2
///     max_queue_depth = 100
///     budget_checks = "every_call"
///     "#,
/// )?;
/// assert_eq!(config.budget_checks, BudgetChecks::EveryCall);
/// assert_eq!(config.max_queued_runs_per_user, 16); // left out, so the default
/// let queue = RunQueue::builder().config(config).build()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// Values that could never admit a run are refused with a [`ConfigError`] when the queue is built. No count may be above
/// 1,000,000.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct RunConfig {
    /// Most runs that compute at once. Default 8. Zero is refused.
    pub max_concurrent_runs: u32,

    /// Most runs of one user that have started and are not over, those that have lent their slot included. Default: only
    /// the other bounds apply. Zero is refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_concurrent_runs_per_user: Option<u32>,

    /// Most runs that are queued or lent, together. Default 32. With 0 nobody waits and nobody lends. Runs lend only while
    /// there is room: where many are queued all the time, set it so high that they do not fill it.
    pub max_queue_depth: u32,

    /// Most queued runs of one user. Default 16. With 0 nobody waits.
    pub max_queued_runs_per_user: u32,

    /// Longest wait for an answer of the budget; past it the run is refused. Default 5 s. Zero and more than ten minutes
    /// are refused.
    #[serde(with = "duration::text")]
    pub budget_timeout: Duration,

    /// When the budget is asked. Default: when runs start.
    pub budget_checks: BudgetChecks,

    /// Events kept for a subscriber that does not keep up; past it the oldest go, and it is told how many. Default 256.
    /// Zero is refused.
    pub event_buffer: u32,
}

/// When a [`Budget`](crate::Budget) is asked.
///
/// ```
/// assert_eq!(tower_inflight::BudgetChecks::default(), tower_inflight::BudgetChecks::Starts);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum BudgetChecks {
    /// Before a run may queue, and again when it starts.
    #[default]
    Starts,
    /// Strict: before each further call of a running run as well.
    EveryCall,
}

impl Default for RunConfig {
    fn default() -> Self {
        Self {
            max_concurrent_runs: 8,
            max_concurrent_runs_per_user: None,
            max_queue_depth: 32,
            max_queued_runs_per_user: 16,
            budget_timeout: Duration::from_secs(5),
            budget_checks: BudgetChecks::Starts,
            event_buffer: 256,
        }
    }
}

impl RunConfig {
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        from_one("max_concurrent_runs", self.max_concurrent_runs)?;
        if let Some(most) = self.max_concurrent_runs_per_user {
            from_one("max_concurrent_runs_per_user", most)?;
        }
        at_most("max_queue_depth", self.max_queue_depth)?;
        at_most("max_queued_runs_per_user", self.max_queued_runs_per_user)?;
        from_one("event_buffer", self.event_buffer)?;
        if self.budget_timeout.is_zero() || self.budget_timeout > MAX_BUDGET_TIMEOUT {
            let value = humantime::format_duration(self.budget_timeout);
            return refuse("budget_timeout", value, "more than 0s, at most 10m".to_owned());
        }
        Ok(())
    }
}

fn from_one(key: &str, value: u32) -> Result<(), ConfigError> {
    if value == 0 {
        return refuse(key, value, format!("1 to {MAX_COUNT}"));
    }
    at_most(key, value)
}

fn at_most(key: &str, value: u32) -> Result<(), ConfigError> {
    if value > MAX_COUNT {
        return refuse(key, value, format!("at most {MAX_COUNT}"));
    }
    Ok(())
}

fn refuse(key: &str, value: impl fmt::Display, allowed: String) -> Result<(), ConfigError> {
    Err(ConfigError::new(key, value, allowed))
}
