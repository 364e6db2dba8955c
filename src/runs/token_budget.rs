//! A budget of tokens for each tenant.

use std::fmt;
use std::future::ready;
use std::sync::Arc;

use hashbrown::HashMap;

use super::budget::{Budget, BudgetAnswer, BudgetAsk, BudgetError, BudgetMoment};
use crate::sync::{Mutex, lock};

/// Tokens that the runs of a tenant may use, in all.
///
/// Past the *soft* limit no new run may queue; those that queue already start, and those that run go on. Past the *hard*
/// limit no run starts either, and with [`BudgetChecks::EveryCall`](crate::BudgetChecks::EveryCall) none makes another
/// call. A call under way is never cut off, so the last ones may end a little above the hard limit.
///
/// It counts what is told to it: call [`record`](Self::record) with the usage that each answer reports. A cheap handle:
/// clones count together. Tenants are kept until [`reset`](Self::reset), a few dozen bytes each.
///
/// ```
/// use tower_inflight::{RunQueue, StartError, StartRun, TokenBudget};
///
/// let budget = TokenBudget::new(1_000_000).with_soft_limit(900_000).with_tenant("trial", 10_000);
/// let queue = RunQueue::builder().budget(budget.clone()).build()?;
///
/// budget.record("trial", 10_000);
/// assert!(matches!(queue.start(StartRun::new("trial", "tim")), Err(StartError::Budget(_))));
/// assert!(queue.start(StartRun::new("acme", "ann")).is_ok());
///
/// budget.reset("trial"); // a new month
/// assert!(queue.start(StartRun::new("trial", "tim")).is_ok());
/// # Ok::<(), tower_inflight::ConfigError>(())
/// ```
#[derive(Clone)]
pub struct TokenBudget {
    book: Arc<Mutex<Book>>,
}

struct Book {
    limits: TokenLimits,
    of_tenants: HashMap<Arc<str>, TokenLimits, foldhash::fast::RandomState>,
    spent: HashMap<Arc<str>, u64, foldhash::fast::RandomState>,
}

#[derive(Clone, Copy)]
struct TokenLimits {
    soft: u64,
    hard: u64,
}

impl TokenBudget {
    /// So many tokens for each tenant; the soft limit is the same.
    #[must_use]
    pub fn new(hard_limit: u64) -> Self {
        let limits = TokenLimits { soft: hard_limit, hard: hard_limit };
        let book = Book { limits, of_tenants: HashMap::default(), spent: HashMap::default() };
        Self { book: Arc::new(Mutex::new(book)) }
    }

    /// From here on a tenant starts no new runs. At most the hard limit.
    #[must_use]
    pub fn with_soft_limit(self, soft_limit: u64) -> Self {
        {
            let limits = &mut lock(&self.book).limits;
            limits.soft = soft_limit.min(limits.hard);
        }
        self
    }

    /// Another limit for one tenant, hard and soft.
    #[must_use]
    pub fn with_tenant(self, tenant: impl Into<Arc<str>>, hard_limit: u64) -> Self {
        self.with_tenant_limits(tenant, hard_limit, hard_limit)
    }

    /// Other limits for one tenant.
    #[must_use]
    pub fn with_tenant_limits(self, tenant: impl Into<Arc<str>>, soft_limit: u64, hard_limit: u64) -> Self {
        let limits = TokenLimits { soft: soft_limit.min(hard_limit), hard: hard_limit };
        lock(&self.book).of_tenants.insert(tenant.into(), limits);
        self
    }

    /// The tenant has used so many more.
    pub fn record(&self, tenant: &str, tokens: u64) {
        let spent = &mut lock(&self.book).spent;
        match spent.get_mut(tenant) {
            Some(sum) => *sum = sum.saturating_add(tokens),
            None => drop(spent.insert(tenant.into(), tokens)),
        }
    }

    /// What the tenant has used.
    #[must_use]
    pub fn spent(&self, tenant: &str) -> u64 {
        lock(&self.book).of(tenant).0
    }

    /// The tenant has used nothing again: a new day, or month.
    pub fn reset(&self, tenant: &str) {
        lock(&self.book).spent.remove(tenant);
    }

    fn decide(&self, ask: &BudgetAsk) -> Result<(), BudgetError> {
        let (spent, limits) = lock(&self.book).of(ask.tenant());
        let (limit, which) = match ask.moment() {
            BudgetMoment::Door => (limits.soft, "soft"),
            BudgetMoment::Start | BudgetMoment::Call => (limits.hard, "hard"),
        };
        if spent < limit {
            return Ok(());
        }
        Err(BudgetError::over(format!("{:?} has used {spent} of {limit} tokens ({which} limit)", ask.tenant())))
    }
}

impl Book {
    fn of(&self, tenant: &str) -> (u64, TokenLimits) {
        let spent = self.spent.get(tenant).copied().unwrap_or(0);
        (spent, self.of_tenants.get(tenant).copied().unwrap_or(self.limits))
    }
}

impl Budget for TokenBudget {
    fn check(&self, ask: BudgetAsk) -> BudgetAnswer {
        Box::pin(ready(self.decide(&ask)))
    }
}

impl fmt::Debug for TokenBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenBudget").finish_non_exhaustive()
    }
}
