//! Asking whether a run may go on.

use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::{Sleep, sleep_until};

use super::error::BudgetRefused;
use crate::BoxError;
use crate::engine::runs::UserKey;
use crate::engine::time::Time;
use crate::limiter::clock;

/// Decides whether a run may queue, may start and, with [`BudgetChecks::EveryCall`](crate::BudgetChecks::EveryCall), may
/// make another call. [`TokenBudget`](crate::TokenBudget) is one; a closure that returns a future is one too.
///
/// It is asked outside of every lock, and its answer is waited for up to `budget_timeout`. An error, a panic or silence is
/// a refusal like any other: a budget that is broken lets nobody run up a bill.
///
/// ```
/// use tower_inflight::{BudgetAsk, BudgetError, RunQueue};
///
/// # async fn spent_today(tenant: &str) -> std::io::Result<u64> { Ok(0) }
/// let queue = RunQueue::builder()
///     .budget(|ask: BudgetAsk| async move {
///         let spent = spent_today(ask.tenant()).await?; // an error is a refusal
///         if spent < 1_000_000 { Ok(()) } else { Err(BudgetError::over("a million tokens a day")) }
///     })
///     .build()?;
/// # Ok::<(), tower_inflight::ConfigError>(())
/// ```
///
/// # Runtime
/// A budget that does not answer at once is asked by those who await [`Run::admitted`](crate::Run::admitted), in a tokio
/// runtime with its time driver enabled.
pub trait Budget: Send + Sync + 'static {
    /// Starts to find out.
    fn check(&self, ask: BudgetAsk) -> BudgetAnswer;
}

/// What a [`Budget`] will say.
pub type BudgetAnswer = Pin<Box<dyn Future<Output = Result<(), BudgetError>> + Send>>;

impl<F, A> Budget for F
where
    F: Fn(BudgetAsk) -> A + Send + Sync + 'static,
    A: Future<Output = Result<(), BudgetError>> + Send + 'static,
{
    fn check(&self, ask: BudgetAsk) -> BudgetAnswer {
        Box::pin(self(ask))
    }
}

/// Whose run it is, and what it is about to do. See [`Budget`].
#[derive(Clone, Debug)]
pub struct BudgetAsk {
    user: UserKey,
    moment: BudgetMoment,
}

impl BudgetAsk {
    /// Who pays.
    #[must_use]
    pub fn tenant(&self) -> &str {
        &self.user.tenant
    }

    /// Whose run it is within the tenant.
    #[must_use]
    pub fn user(&self) -> &str {
        &self.user.user
    }

    /// What the run is about to do.
    #[must_use]
    pub fn moment(&self) -> BudgetMoment {
        self.moment
    }
}

/// What a run is about to do when its budget is asked.
///
/// ```
/// assert_ne!(tower_inflight::BudgetMoment::Door, tower_inflight::BudgetMoment::Start);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BudgetMoment {
    /// To queue, or to start without waiting.
    Door,
    /// To start after it has waited.
    Start,
    /// To make a further call.
    Call,
}

/// Why a [`Budget`] says no. Every error becomes a `Failed` one with `?`.
///
/// ```
/// use tower_inflight::BudgetError;
///
/// fn parse(left: &str) -> Result<(), BudgetError> {
///     if left.parse::<u64>()? == 0 { Err(BudgetError::over("nothing left")) } else { Ok(()) }
/// }
/// assert!(matches!(parse("0"), Err(BudgetError::Over(_))));
/// assert!(matches!(parse("?"), Err(BudgetError::Failed(_))));
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub enum BudgetError {
    /// It is used up; the text says which and how far, for whoever started the run.
    Over(String),
    /// It could not be found out.
    Failed(BoxError),
}

impl BudgetError {
    /// It is used up.
    #[must_use]
    pub fn over(why: impl Into<String>) -> Self {
        Self::Over(why.into())
    }
}

impl<E: std::error::Error + Send + Sync + 'static> From<E> for BudgetError {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

/// One question, until it is answered: bounded in time, and its panics end here.
pub(super) struct Asking {
    /// `None`: it panicked. Never locked, only there so that a run can be shared while an answer that cannot be is awaited.
    answer: Mutex<Option<BudgetAnswer>>,
    timeout: Duration,
    ends_at: Time,
    /// Made when the first poll finds no answer.
    sleep: Option<Pin<Box<Sleep>>>,
}

impl Asking {
    pub(super) fn new(budget: &Arc<dyn Budget>, user: UserKey, moment: BudgetMoment, timeout: Duration) -> Self {
        let answer = Mutex::new(contained(|| budget.check(BudgetAsk { user, moment })));
        Self { answer, timeout, ends_at: clock::now() + timeout, sleep: None }
    }

    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BudgetRefused>> {
        if let Poll::Ready(answer) = self.peek(cx) {
            return Poll::Ready(answer);
        }
        let ends_at = self.ends_at;
        let sleep = self.sleep.get_or_insert_with(|| Box::pin(sleep_until(clock::instant(ends_at))));
        ready!(sleep.as_mut().poll(cx));
        Poll::Ready(Err(BudgetRefused::timed_out(self.timeout)))
    }

    /// The same without the bound in time, and so without a runtime.
    pub(super) fn peek(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BudgetRefused>> {
        let Some(answer) = self.answer() else { return Poll::Ready(Err(BudgetRefused::panicked())) };
        let refused = match contained(|| answer.as_mut().poll(cx)) {
            Some(Poll::Pending) => return Poll::Pending,
            Some(Poll::Ready(Ok(()))) => return Poll::Ready(Ok(())),
            Some(Poll::Ready(Err(BudgetError::Over(why)))) => BudgetRefused::over(why),
            Some(Poll::Ready(Err(BudgetError::Failed(error)))) => BudgetRefused::failed(&*error),
            None => BudgetRefused::panicked(),
        };
        Poll::Ready(Err(refused))
    }

    fn answer(&mut self) -> &mut Option<BudgetAnswer> {
        self.answer.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        let answer = self.answer().take();
        contained(|| drop(answer));
    }
}

impl fmt::Debug for Asking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Asking").finish_non_exhaustive()
    }
}

/// A panic in somebody else's budget is its answer: no.
fn contained<T>(ask: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(ask)).ok()
}
