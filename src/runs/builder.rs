//! Builds a run queue.

use std::fmt;
use std::sync::Arc;

use super::RunQueue;
use super::budget::Budget;
use super::hub::Hub;
use crate::config::{BudgetChecks, ConfigError, RunConfig};

/// Builds a [`RunQueue`]. Every setting but the budget is a field of [`RunConfig`], where its meaning and default are told.
///
/// ```
/// use tower_inflight::{RunQueue, TokenBudget};
///
/// let queue = RunQueue::builder()
///     .max_concurrent_runs(8)
///     .max_concurrent_runs_per_user(2)
///     .max_queue_depth(200)
///     .budget(TokenBudget::new(5_000_000))
///     .build()?;
///
/// let error = RunQueue::builder().max_concurrent_runs(0).build().unwrap_err();
/// assert_eq!(error.to_string(), "`max_concurrent_runs` is 0, allowed: 1 to 1000000");
/// # Ok::<(), tower_inflight::ConfigError>(())
/// ```
#[must_use]
pub struct RunQueueBuilder {
    config: RunConfig,
    budget: Option<Arc<dyn Budget>>,
    prefix: &'static str,
}

impl Default for RunQueueBuilder {
    fn default() -> Self {
        Self { config: RunConfig::default(), budget: None, prefix: "llm" }
    }
}

impl RunQueueBuilder {
    /// Replaces every setting made so far but the budget.
    pub fn config(self, config: RunConfig) -> Self {
        Self { config, ..self }
    }

    /// Most runs that compute at once.
    pub fn max_concurrent_runs(mut self, runs: u32) -> Self {
        self.config.max_concurrent_runs = runs;
        self
    }

    /// Most runs of one user that have started and are not over.
    pub fn max_concurrent_runs_per_user(mut self, runs: u32) -> Self {
        self.config.max_concurrent_runs_per_user = Some(runs);
        self
    }

    /// Most runs that are queued or lent.
    pub fn max_queue_depth(mut self, runs: u32) -> Self {
        self.config.max_queue_depth = runs;
        self
    }

    /// Most queued runs of one user.
    pub fn max_queued_runs_per_user(mut self, runs: u32) -> Self {
        self.config.max_queued_runs_per_user = runs;
        self
    }

    /// What is asked before a run may queue and when it starts.
    pub fn budget(self, budget: impl Budget) -> Self {
        Self { budget: Some(Arc::new(budget)), ..self }
    }

    /// When the budget is asked.
    pub fn budget_checks(mut self, checks: BudgetChecks) -> Self {
        self.config.budget_checks = checks;
        self
    }

    /// What metric names start with. Default `llm`, as in `llm_runs`.
    pub fn metrics_prefix(self, prefix: &'static str) -> Self {
        Self { prefix, ..self }
    }

    /// # Errors
    /// A setting that could never admit a run: named, with its value and what is allowed.
    pub fn build(self) -> Result<RunQueue, ConfigError> {
        self.config.check()?;
        Ok(RunQueue { hub: Arc::new(Hub::new(self.config, self.budget, self.prefix)) })
    }
}

impl fmt::Debug for RunQueueBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunQueueBuilder").field("config", &self.config).finish_non_exhaustive()
    }
}
