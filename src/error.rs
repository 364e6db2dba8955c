//! What goes wrong on our side: a call that was refused, an upstream that fell silent.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::engine::forecast::Foreseen;
use crate::engine::quota::Dimension;
use crate::engine::totals::Reason;
use crate::limiter::key::LaneKey;

/// A call that this crate refused: it was never sent.
///
/// Under every wrapper that error types and middleware put around it, [`Rejected::find`] finds it:
///
/// ```
/// use std::time::Duration;
/// use tower_inflight::{Call, LaneKey, Limiter, Priority, RejectKind, Rejected};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let limiter = Limiter::builder().max_inflight(1).queue_timeout(Duration::from_secs(5)).build()?;
/// let lane = LaneKey::new("local", "gemma");
/// let permit = limiter.acquire(&lane, Priority::Default).await?;
///
/// let error: Box<dyn std::error::Error> = limiter.acquire(&lane, Priority::Bulk).await.unwrap_err().into();
/// let rejected = Rejected::find(&*error).expect("the limiter refused");
/// assert_eq!(rejected.kind(), RejectKind::QueueTimeout);
/// assert_eq!(rejected.lane(), &lane);
/// assert_eq!(rejected.waited(), Duration::from_secs(5));
/// # Ok(()) }
/// ```
///
/// It is two errors deep on purpose: a transparent wrapper hides the error it holds, but not that error's source.
#[derive(Clone)]
pub struct Rejected {
    source: Facts,
}

/// The source of a [`Rejected`], and all that it knows.
#[derive(Clone)]
struct Facts(Arc<Rejection>);

#[derive(Debug)]
pub(crate) struct Rejection {
    pub(crate) lane: LaneKey,
    pub(crate) kind: RejectKind,
    pub(crate) waited: Duration,
    /// Place in line on arrival, counted from 1.
    pub(crate) position: Option<u32>,
    pub(crate) in_flight: u32,
    /// 0: unlimited.
    pub(crate) limit: u32,
    pub(crate) retry_after: Option<Duration>,
    /// What was reached.
    pub(crate) bound: Bound,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Bound {
    None,
    Count(u32),
    Time(Duration),
    Tokens(u32),
    Foreseen(Foreseen),
}

/// Why a call was refused.
///
/// ```
/// use tower_inflight::{QueueBound, RejectKind};
///
/// let kind = RejectKind::QueueFull(QueueBound::Total);
/// assert_eq!(kind.to_string(), "all queues together are full");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RejectKind {
    /// So many wait already that this call may not.
    QueueFull(QueueBound),
    /// It waited for `queue_timeout` and got no slot.
    QueueTimeout,
    /// Its deadline passed before it got a slot. Where deadline and queue timeout end at the same moment, the deadline
    /// is named.
    Deadline,
    /// It would have had to wait, and by what the lane's last calls did it could not have ended before its deadline:
    /// [`predicted_wait`](Rejected::predicted_wait) and [`predicted_service`](Rejected::predicted_service) say why. See
    /// [`predict_deadlines`](crate::LimitConfig::predict_deadlines).
    DeadlineUnreachable,
    /// The upstream asked for a pause that outlasts the call's deadline or queue timeout;
    /// [`retry_after`](Rejected::retry_after) is what is left of it.
    Paused,
    /// This budget per minute has not enough left for the call, and it may not wait
    /// ([`WhenShort::Refuse`](crate::WhenShort::Refuse), or [`Admission::Reject`](crate::Admission::Reject));
    /// [`retry_after`](Rejected::retry_after) is the time until there will be.
    Short(Dimension),
    /// The call may use more than this budget per minute can ever hold.
    TooLarge(Dimension),
    /// No slot was free and the call asked not to wait ([`Admission::Reject`](crate::Admission::Reject)).
    Busy,
    /// The limiter was closed.
    Closed,
    /// The budget of its run does not allow another call
    /// ([`BudgetChecks::EveryCall`](crate::BudgetChecks::EveryCall)).
    OverBudget,
    /// The run that makes it is over.
    RunOver,
    /// Too many calls of the lane failed or began late, so none is sent until [`retry_after`](Rejected::retry_after) is
    /// over: see [`BreakerConfig`](crate::BreakerConfig).
    BreakerOpen,
    /// It was a retry, and there are too many of them for the calls that are made: see
    /// [`RetryBudget`](crate::RetryBudget).
    RetryBudgetExhausted,
}

/// The bound on waiters that was reached.
///
/// ```
/// assert_ne!(tower_inflight::QueueBound::Lane, tower_inflight::QueueBound::Tenant);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum QueueBound {
    /// `max_queue`.
    Lane,
    /// `max_queue_per_class`.
    Class,
    /// `max_queue_per_tenant`.
    Tenant,
    /// `max_queue_total`.
    Total,
}

impl Rejected {
    pub(crate) fn new(rejection: Rejection) -> Self {
        Self { source: Facts(Arc::new(rejection)) }
    }

    /// Looks for a refusal in `error` and all its sources.
    #[must_use]
    pub fn find(error: &(dyn Error + 'static)) -> Option<Self> {
        let mut next = Some(error);
        while let Some(error) = next {
            if let Some(rejected) = error.downcast_ref::<Self>() {
                return Some(rejected.clone());
            }
            if let Some(facts) = error.downcast_ref::<Facts>() {
                return Some(Self { source: facts.clone() });
            }
            next = error.source();
        }
        None
    }

    /// Why.
    #[must_use]
    pub fn kind(&self) -> RejectKind {
        self.source.0.kind
    }

    /// The lane that refused.
    #[must_use]
    pub fn lane(&self) -> &LaneKey {
        &self.source.0.lane
    }

    /// How long this attempt waited in the queue. Zero if it never entered it.
    #[must_use]
    pub fn waited(&self) -> Duration {
        self.source.0.waited
    }

    /// Its place in line when it arrived, counted from 1; `None` if it never stood in line.
    #[must_use]
    pub fn position(&self) -> Option<u32> {
        self.source.0.position
    }

    /// Calls in flight on the lane at the time of the refusal.
    #[must_use]
    pub fn in_flight(&self) -> u32 {
        self.source.0.in_flight
    }

    /// How long it would have waited for its slot, where that was the reason
    /// ([`RejectKind::DeadlineUnreachable`]).
    #[must_use]
    pub fn predicted_wait(&self) -> Option<Duration> {
        self.foreseen().map(|it| it.wait)
    }

    /// How long it would then have held its slot, until the end of its answer, where that was the reason
    /// ([`RejectKind::DeadlineUnreachable`]).
    #[must_use]
    pub fn predicted_service(&self) -> Option<Duration> {
        self.foreseen().map(|it| it.service)
    }

    fn foreseen(&self) -> Option<Foreseen> {
        match self.source.0.bound {
            Bound::Foreseen(foreseen) => Some(foreseen),
            _ => None,
        }
    }

    /// When another try may succeed, where that is known: the rest of a pause, or of the time that a breaker is
    /// open.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.source.0.retry_after
    }
}

impl fmt::Display for Rejected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.source.0.fmt(f)
    }
}

impl fmt::Debug for Rejected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Rejected").field(&self.source.0).finish()
    }
}

impl Error for Rejected {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.source)
    }
}

impl fmt::Display for Facts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.kind.fmt(f)
    }
}

impl fmt::Debug for Facts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Error for Facts {}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "call to {} refused: {}", self.lane, self.kind)?;
        match self.bound {
            Bound::None => {}
            Bound::Count(most) => write!(f, " (at most {most} may wait)")?,
            Bound::Time(after) => write!(f, " ({})", shown(after))?,
            Bound::Tokens(most) => write!(f, " (it holds {most})")?,
            Bound::Foreseen(Foreseen { wait, service }) => {
                write!(f, " (a wait of {} and then {} are expected)", shown(wait), shown(service))?;
            }
        }
        write!(f, ", waited {}", shown(self.waited))?;
        if let Some(position) = self.position {
            write!(f, ", position {position} on arrival")?;
        }
        match self.limit {
            0 => write!(f, ", {} in flight", self.in_flight)?,
            limit => write!(f, ", {} of {limit} slots in use", self.in_flight)?,
        }
        if let Some(after) = self.retry_after {
            write!(f, ", retry after {}", shown(after))?;
        }
        f.write_str(match self.kind {
            RejectKind::QueueFull(QueueBound::Lane) => "; see `max_queue`, `max_inflight`",
            RejectKind::QueueFull(QueueBound::Class) => "; see `max_queue_per_class`",
            RejectKind::QueueFull(QueueBound::Tenant) => "; see `max_queue_per_tenant`",
            RejectKind::QueueFull(QueueBound::Total) => "; see `max_queue_total`",
            RejectKind::QueueTimeout => "; see `queue_timeout`, `max_inflight`",
            RejectKind::Deadline => "; see the deadline of the call, `max_inflight`",
            RejectKind::DeadlineUnreachable => "; see the deadline of the call, `predict_deadlines`, `max_inflight`",
            RejectKind::Paused => "; see `queue_timeout` and the deadline of the call, `max_pause`",
            RejectKind::Busy => "; see the call's `Admission`, `max_inflight`",
            RejectKind::Short(_) => "; see the quota's `when_short` and the call's `Admission`",
            RejectKind::TooLarge(_) => "; see the quota's `burst` and the call's maximum of output tokens",
            RejectKind::OverBudget => "; see `budget_checks` and the budget of its run",
            RejectKind::Closed | RejectKind::RunOver => "",
            RejectKind::BreakerOpen => "; see `breaker`",
            RejectKind::RetryBudgetExhausted => "; see `retry_budget`",
        })
    }
}

impl RejectKind {
    pub(crate) const fn reason(self) -> Reason {
        match self {
            Self::QueueFull(_) => Reason::QueueFull,
            Self::QueueTimeout => Reason::QueueTimeout,
            Self::Deadline => Reason::Deadline,
            Self::DeadlineUnreachable => Reason::DeadlineUnreachable,
            Self::Paused => Reason::Paused,
            Self::Busy => Reason::Busy,
            Self::Closed => Reason::Closed,
            Self::Short(_) => Reason::Short,
            Self::TooLarge(_) => Reason::TooLarge,
            Self::OverBudget => Reason::OverBudget,
            Self::RunOver => Reason::RunOver,
            Self::BreakerOpen => Reason::BreakerOpen,
            Self::RetryBudgetExhausted => Reason::RetryBudget,
        }
    }
}

impl fmt::Display for RejectKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Short(dimension) => return write!(f, "not enough left of `{dimension}`"),
            Self::TooLarge(dimension) => return write!(f, "more than `{dimension}` can ever allow"),
            Self::QueueFull(QueueBound::Lane) => "the lane's queue is full",
            Self::QueueFull(QueueBound::Class) => "the queue of its class is full",
            Self::QueueFull(QueueBound::Tenant) => "the queue of its tenant is full",
            Self::QueueFull(QueueBound::Total) => "all queues together are full",
            Self::QueueTimeout => "queue timeout",
            Self::Deadline => "deadline passed in the queue",
            Self::DeadlineUnreachable => "its deadline cannot be kept",
            Self::Paused => "the upstream's pause outlasts the call",
            Self::Busy => "no slot is free",
            Self::Closed => "the limiter is closed",
            Self::OverBudget => "its run is over budget",
            Self::RunOver => "its run is over",
            Self::BreakerOpen => "the lane's breaker is open",
            Self::RetryBudgetExhausted => "the retry budget is exhausted",
        })
    }
}

/// The upstream was silent for too long after the call was granted.
///
/// Ends a call whose response head or body did not come within `first_byte_timeout`, or whose body paused for longer than
/// `idle_timeout`. Never raised for time spent in the queue.
///
/// Under every wrapper that error types and middleware put around it, [`Stalled::find`] finds it:
///
/// ```
/// fn is_stall(error: &(dyn std::error::Error + 'static)) -> bool {
///     tower_inflight::Stalled::find(error).is_some()
/// }
/// ```
///
/// It is two errors deep, as [`Rejected`] is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stalled {
    source: Stall,
}

/// The source of a [`Stalled`], and all that it knows.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Stall {
    lane: LaneKey,
    silence: Silence,
    after: Duration,
}

/// Which silence was too long.
///
/// ```
/// assert_eq!(tower_inflight::Silence::Idle.setting(), "idle_timeout");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Silence {
    /// From the call to the first byte of the body.
    FirstByte,
    /// Between two pieces of the body.
    Idle,
}

impl Silence {
    /// The setting that bounds it.
    #[must_use]
    pub const fn setting(self) -> &'static str {
        match self {
            Self::FirstByte => "first_byte_timeout",
            Self::Idle => "idle_timeout",
        }
    }
}

impl Stalled {
    pub(crate) fn new(lane: LaneKey, silence: Silence, after: Duration) -> Self {
        Self { source: Stall { lane, silence, after } }
    }

    /// Looks for a stall in `error` and all its sources.
    #[must_use]
    pub fn find(error: &(dyn Error + 'static)) -> Option<Self> {
        let mut next = Some(error);
        while let Some(error) = next {
            if let Some(stalled) = error.downcast_ref::<Self>() {
                return Some(stalled.clone());
            }
            if let Some(stall) = error.downcast_ref::<Stall>() {
                return Some(Self { source: stall.clone() });
            }
            next = error.source();
        }
        None
    }

    /// The lane of the call.
    #[must_use]
    pub fn lane(&self) -> &LaneKey {
        &self.source.lane
    }

    /// Which silence.
    #[must_use]
    pub fn silence(&self) -> Silence {
        self.source.silence
    }

    /// The bound that it passed.
    #[must_use]
    pub fn after(&self) -> Duration {
        self.source.after
    }
}

impl fmt::Display for Stalled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Stall { lane, silence, after } = &self.source;
        write!(f, "{lane} stalled: {} within {}; see `{}`", self.source, shown(*after), silence.setting())
    }
}

impl Error for Stalled {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.source)
    }
}

impl fmt::Display for Stall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.silence {
            Silence::FirstByte => "no first byte",
            Silence::Idle => "no further byte",
        })
    }
}

impl Error for Stall {}

/// Milliseconds are as fine as anybody reads.
fn shown(duration: Duration) -> humantime::FormattedDuration {
    humantime::format_duration(Duration::from_millis(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rejected(kind: RejectKind, retry_after: Option<Duration>) -> Rejected {
        let lane = LaneKey::new("https://gw/v1", "acme/smart");
        let (waited, position, bound) = (Duration::ZERO, None, Bound::None);
        Rejected::new(Rejection { lane, kind, waited, position, in_flight: 2, limit: 6, retry_after, bound })
    }

    #[test]
    fn an_open_breaker_says_when_to_come_back_and_which_setting_opened_it() {
        let rejected = rejected(RejectKind::BreakerOpen, Some(Duration::from_secs(12)));
        assert_eq!(rejected.retry_after(), Some(Duration::from_secs(12)));
        assert_eq!(
            rejected.to_string(),
            "call to https://gw/v1|acme/smart refused: the lane's breaker is open, waited 0s, 2 of 6 slots in use, retry \
             after 12s; see `breaker`"
        );
    }

    #[test]
    fn a_retry_beyond_its_budget_names_the_setting() {
        let rejected = rejected(RejectKind::RetryBudgetExhausted, None);
        assert_eq!(rejected.retry_after(), None);
        assert_eq!(
            rejected.to_string(),
            "call to https://gw/v1|acme/smart refused: the retry budget is exhausted, waited 0s, 2 of 6 slots in use; see \
             `retry_budget`"
        );
    }

    #[test]
    fn their_totals_have_names_of_their_own() {
        let names = [RejectKind::BreakerOpen, RejectKind::RetryBudgetExhausted].map(|kind| kind.reason().as_str());
        assert_eq!(names, ["breaker_open", "retry_budget"]);
    }
}
