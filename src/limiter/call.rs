//! Whose call it is, how urgent, and since when.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use super::clock;
use super::key::LaneKey;
use super::permit::Admitted;
use crate::engine::asked::Asked;
use crate::engine::outcome::Outcome;
use crate::engine::priority::Priority;
use crate::engine::quota::Tokens;
use crate::engine::time::Time;
use crate::runs::{CallOfRun, RunHandle, Whose};
use crate::usage::Usage;

/// One logical call: its class, tenant, deadline and first arrival.
///
/// Make a new one for each call, at the moment it comes in. Clones are the same call: a retry layer that clones the
/// request clones the `Call` in its extensions, so the second attempt still has the age, class, tenant and deadline of the
/// first. [`CallLayer`](crate::CallLayer) does that for requests that carry none.
///
/// What a call leaves open is taken from the task's [`Scope`](crate::Scope), then from the defaults.
///
/// ```
/// use std::time::Duration;
/// use tower_inflight::{Admission, Call, Priority};
///
/// let call = Call::new(Priority::Bulk)
///     .with_tenant("acme")
///     .with_timeout(Duration::from_secs(90))
///     .with_admission(Admission::Reject);
/// assert_eq!(call.priority(), Some(Priority::Bulk));
/// ```
#[derive(Clone, Debug)]
pub struct Call {
    pub(crate) class: Option<Priority>,
    pub(crate) tenant: Option<Arc<str>>,
    /// `NEVER`: none.
    pub(crate) deadline: Time,
    /// `NEVER`: when it is used.
    pub(crate) arrived_at: Time,
    pub(crate) admission: Admission,
    /// Of the request that carries it.
    pub(crate) asked: Asked,
    /// Shared by the clones; `None` for calls that are tried once.
    pub(crate) life: Option<Arc<Life>>,
    /// The run that makes it. A pointer, since each waiter's future has room for a call.
    pub(crate) run: Option<Arc<CallOfRun>>,
}

/// What the attempts of a call share.
#[derive(Default)]
pub(crate) struct Life {
    attempts: AtomicU32,
    listener: Option<Box<Listener>>,
}

type Listener = dyn Fn(CallEvent<'_>) + Send + Sync;

/// What happens to a call.
///
/// ```
/// use tower_inflight::{Call, CallEvent, Priority};
///
/// let call = Call::new(Priority::Interactive).with_listener(|event| match event {
///     CallEvent::Queued { position, .. } => println!("you are number {position} in line"),
///     CallEvent::Admitted(admitted) => println!("sent after {:?}", admitted.waited()),
///     _ => {}
/// });
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum CallEvent<'a> {
    /// It stands in line, at this place, counted from 1.
    Queued {
        /// The lane it waits for.
        lane: &'a LaneKey,
        /// One more than those who stood before it by class. A call that comes back, or a tenant whose turn is near, may be
        /// served earlier than that.
        position: u32,
    },
    /// It has its slot.
    Admitted(&'a Admitted),
    /// It was sent and is over: its slot is free. A panic of the listener ends here, since this may be told by a destructor.
    Ended {
        /// How.
        outcome: Outcome,
        /// What its answer reported, where it was read for that.
        usage: Option<&'a Usage>,
    },
}

/// Whether a call may wait for its slot.
///
/// ```
/// assert_eq!(tower_inflight::Admission::default(), tower_inflight::Admission::Wait);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Admission {
    /// In line, up to `queue_timeout`.
    #[default]
    Wait,
    /// A slot now or [`RejectKind::Busy`](crate::RejectKind::Busy) now.
    Reject,
}

impl Call {
    /// A call of this class that arrives now.
    #[must_use]
    pub fn new(priority: Priority) -> Self {
        Self { class: Some(priority), ..Self::arrived() }
    }

    /// A call that arrives now and takes class, tenant and deadline from its task's scope.
    #[must_use]
    pub fn arrived() -> Self {
        Self { arrived_at: clock::now(), life: Some(Arc::default()), ..Self::unnamed() }
    }

    /// What nobody said anything about.
    #[inline]
    pub(crate) fn unnamed() -> Self {
        Self {
            class: None,
            tenant: None,
            deadline: Time::NEVER,
            arrived_at: Time::NEVER,
            admission: Admission::Wait,
            asked: Asked::default(),
            life: None,
            run: None,
        }
    }

    /// Within a class, tenants with waiters take turns. Any text that tells callers apart will do.
    #[must_use]
    pub fn with_tenant(self, tenant: impl Into<Arc<str>>) -> Self {
        Self { tenant: Some(tenant.into()), ..self }
    }

    /// What the call may use of a budget per minute: tokens of its prompt, and the most tokens of its answer. Calls over HTTP
    /// have both read from the request where this is not said.
    ///
    /// ```
    /// use tower_inflight::{Call, Priority};
    ///
    /// let call = Call::new(Priority::Bulk).with_tokens(3_000, 1_000);
    /// ```
    #[must_use]
    pub fn with_tokens(mut self, input: u32, max_output: u32) -> Self {
        self.asked.tokens = Tokens { input, output: max_output };
        self
    }

    /// No attempt is sent after this moment. Waiting ends then, with [`RejectKind::Deadline`](crate::RejectKind::Deadline);
    /// a call that was sent in time is not cut off.
    #[must_use]
    pub fn with_deadline(self, deadline: impl Into<Instant>) -> Self {
        Self { deadline: clock::at(deadline.into()), ..self }
    }

    /// A deadline this long from now.
    #[must_use]
    pub fn with_timeout(self, timeout: Duration) -> Self {
        Self { deadline: clock::now() + timeout, ..self }
    }

    /// Whether it may wait.
    #[must_use]
    pub fn with_admission(self, admission: Admission) -> Self {
        Self { admission, ..self }
    }

    /// Hears what happens to each attempt, in the task that polls or drops it, outside of every lock. Starts the count of attempts
    /// anew.
    #[must_use]
    pub fn with_listener(self, listener: impl Fn(CallEvent<'_>) + Send + Sync + 'static) -> Self {
        Self { life: Some(Arc::new(Life { attempts: AtomicU32::new(0), listener: Some(Box::new(listener)) })), ..self }
    }

    /// The run's *own turn*: while the call waits for its lane, the run lends its slot. See
    /// [`RunHandle::turn`](crate::RunHandle::turn) for which calls may, and for a way to say so of a whole future.
    #[must_use]
    pub fn own_turn(self, run: &RunHandle) -> Self {
        Self { run: Some(Arc::new(run.call(Whose::OwnTurn))), ..self }
    }

    /// A call that the run makes beside its own turns, for a tool for instance. It never lends the run's slot. See
    /// [`RunHandle::beside`](crate::RunHandle::beside).
    #[must_use]
    pub fn beside(self, run: &RunHandle) -> Self {
        Self { run: Some(Arc::new(run.call(Whose::Beside))), ..self }
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

    /// Time left until the deadline, if there is one; zero when it has passed.
    #[must_use]
    pub fn time_left(&self) -> Option<Duration> {
        (self.deadline != Time::NEVER).then(|| self.deadline.since(clock::now()))
    }

    /// Attempts that were sent so far.
    #[must_use]
    pub fn attempts(&self) -> u32 {
        self.life.as_ref().map_or(0, |life| life.attempts.load(Ordering::Relaxed))
    }
}

impl Life {
    /// Counts one more attempt and returns its number, from 1.
    pub(crate) fn count_attempt(&self) -> u32 {
        self.attempts.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// An attempt was granted a slot before.
    #[inline]
    pub(crate) fn was_tried(&self) -> bool {
        self.attempts.load(Ordering::Relaxed) > 0
    }

    pub(crate) fn is_heard(&self) -> bool {
        self.listener.is_some()
    }

    pub(crate) fn tell(&self, event: CallEvent<'_>) {
        if let Some(listener) = &self.listener {
            listener(event);
        }
    }
}

impl fmt::Debug for Life {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Life").field("attempts", &self.attempts).finish_non_exhaustive()
    }
}

/// A call of this class that arrives when it is used, and is tried once.
impl From<Priority> for Call {
    #[inline]
    fn from(priority: Priority) -> Self {
        Self { class: Some(priority), ..Self::unnamed() }
    }
}
