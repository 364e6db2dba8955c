//! Class, tenant and deadline for everything a task does.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::Instant;

use super::call::Call;
use super::clock;
use crate::engine::priority::Priority;
use crate::engine::time::Time;
use crate::runs::CallOfRun;

tokio::task_local! {
    static SCOPE: Scope;
}

/// What calls made inside a future have in common, where they do not say otherwise themselves.
///
/// Scopes nest: what an inner one leaves open comes from the outer one. The earlier of two deadlines stands. A scope ends
/// at the borders of its task: use [`InCurrentScope::in_current_scope`] for what you spawn.
///
/// ```
/// use tower_inflight::{InCurrentScope, Priority, Scope};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// Scope::new().with_priority(Priority::Bulk).with_tenant("acme").run(async {
///     assert_eq!(Scope::current().priority(), Some(Priority::Bulk));
///     tokio::spawn(async { assert_eq!(Scope::current().tenant(), Some("acme")) }.in_current_scope()).await.unwrap();
/// }).await;
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Scope {
    class: Option<Priority>,
    tenant: Option<Arc<str>>,
    deadline: Time,
    /// What all attempts inside share: when the first arrived, and how many there were.
    one_call: Option<Call>,
    /// The run that the calls inside belong to.
    run: Option<Arc<CallOfRun>>,
}

impl Scope {
    /// Says nothing.
    #[must_use]
    pub fn new() -> Self {
        Self { class: None, tenant: None, deadline: Time::NEVER, one_call: None, run: None }
    }

    /// The scope of the running task; an empty one outside of any.
    #[must_use]
    pub fn current() -> Self {
        SCOPE.try_with(Self::clone).unwrap_or_default()
    }

    /// The class of the calls inside.
    #[must_use]
    pub fn with_priority(self, priority: Priority) -> Self {
        Self { class: Some(priority), ..self }
    }

    /// The tenant of the calls inside.
    #[must_use]
    pub fn with_tenant(self, tenant: impl Into<Arc<str>>) -> Self {
        Self { tenant: Some(tenant.into()), ..self }
    }

    /// The deadline of the calls inside.
    #[must_use]
    pub fn with_deadline(self, deadline: impl Into<Instant>) -> Self {
        Self { deadline: clock::at(deadline.into()), ..self }
    }

    /// A deadline this long from now.
    #[must_use]
    pub fn with_timeout(self, timeout: Duration) -> Self {
        Self { deadline: clock::now() + timeout, ..self }
    }

    /// Everything sent inside is one logical call that arrives now: for clients that retry by themselves and give no room
    /// for a [`Call`] that their attempts could share.
    ///
    /// ```
    /// use tower_inflight::Scope;
    ///
    /// # async fn create() {}
    /// # async fn example() {
    /// Scope::new().as_one_call().run(create()).await;
    /// # }
    /// ```
    #[must_use]
    pub fn as_one_call(self) -> Self {
        Self { one_call: Some(Call::arrived()), ..self }
    }

    pub(crate) fn in_run(self, call: CallOfRun) -> Self {
        Self { run: Some(Arc::new(call)), ..self }
    }

    /// The class, if one was given.
    #[must_use]
    pub fn priority(&self) -> Option<Priority> {
        self.class
    }

    /// The tenant, if one was given.
    #[must_use]
    pub fn tenant(&self) -> Option<&str> {
        self.tenant.as_deref()
    }

    /// Runs `future` inside this scope, and this scope inside those that are current now and at the first poll.
    pub fn run<F: Future>(self, future: F) -> Scoped<F> {
        Scoped::new(self.inside(Self::current()), future)
    }

    fn inside(self, outer: Self) -> Self {
        Self {
            class: self.class.or(outer.class),
            tenant: self.tenant.or(outer.tenant),
            deadline: self.deadline.min(outer.deadline),
            one_call: self.one_call.or(outer.one_call),
            run: self.run.or(outer.run),
        }
    }

    /// Fills in what a call leaves open that was made outside of a scope and is polled inside.
    #[inline]
    pub(super) fn complete_late(open: Open<'_>) {
        let _ = SCOPE.try_with(|scope| scope.fill(open));
    }

    fn fill(&self, Open { class, tenant, deadline, run }: Open<'_>) {
        *class = class.or(self.class);
        if tenant.is_none() {
            tenant.clone_from(&self.tenant);
        }
        *deadline = (*deadline).min(self.deadline);
        if run.is_none() {
            run.clone_from(&self.run);
        }
    }

    /// Fills in what `call` leaves open.
    pub(crate) fn complete(call: &mut Call) {
        let _ = SCOPE.try_with(|scope| {
            let Call { class, tenant, deadline, run, .. } = call;
            scope.fill(Open { class, tenant, deadline, run });
            if let Some(one) = scope.one_call.as_ref().filter(|_| call.life.is_none()) {
                call.arrived_at = one.arrived_at;
                call.life.clone_from(&one.life);
            }
        });
    }
}

/// What a call may leave open.
pub(super) struct Open<'a> {
    pub(super) class: &'a mut Option<Priority>,
    pub(super) tenant: &'a mut Option<Arc<str>>,
    pub(super) deadline: &'a mut Time,
    pub(super) run: &'a mut Option<Arc<CallOfRun>>,
}

impl Default for Scope {
    fn default() -> Self {
        Self::new()
    }
}

impl Priority {
    /// Runs `future` with this class for the calls inside it.
    ///
    /// ```
    /// use tower_inflight::{Priority, Scope};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// let class = Priority::Interactive.scope(async { Scope::current().priority() }).await;
    /// assert_eq!(class, Some(Priority::Interactive));
    /// # }
    /// ```
    pub fn scope<F: Future>(self, future: F) -> Scoped<F> {
        Scope::new().with_priority(self).run(future)
    }
}

/// Takes the current scope along into another task.
///
/// ```
/// use tower_inflight::{InCurrentScope, Priority, Scope};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// Priority::Bulk.scope(async {
///     let task = tokio::spawn(async { Scope::current().priority() }.in_current_scope());
///     assert_eq!(task.await.unwrap(), Some(Priority::Bulk));
/// }).await;
/// # }
/// ```
pub trait InCurrentScope: Future + Sized {
    /// Wraps the future in the scope of the task that calls this.
    fn in_current_scope(self) -> Scoped<Self> {
        Scoped::new(Scope::current(), self)
    }
}

impl<F: Future> InCurrentScope for F {}

/// A future inside a [`Scope`].
#[pin_project::pin_project]
pub struct Scoped<F> {
    scope: Scope,
    is_entered: bool,
    #[pin]
    future: F,
}

impl<F> Scoped<F> {
    fn new(scope: Scope, future: F) -> Self {
        Self { scope, is_entered: false, future }
    }
}

impl<F: Future> Future for Scoped<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        if !std::mem::replace(this.is_entered, true) {
            *this.scope = std::mem::take(this.scope).inside(Scope::current());
        }
        SCOPE.sync_scope(this.scope.clone(), || this.future.poll(cx))
    }
}

impl<F> std::fmt::Debug for Scoped<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scoped").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn scopes_nest_however_they_are_put_together() {
        let look = || async { (Scope::current().priority(), Scope::current().tenant().map(str::to_owned)) };
        let both = (Some(Priority::Bulk), Some("acme".to_owned()));
        let acme = || Scope::new().with_tenant("acme");
        assert_eq!(acme().run(Priority::Bulk.scope(look())).await, both);
        assert_eq!(acme().run(async { Priority::Bulk.scope(look()).await }).await, both);
        assert_eq!(Scope::current().tenant(), None);
    }
}
