//! What comes out of a step of a [`Pool`](super::pool::Pool): answers for the caller, and effects for everybody else.

use std::task::Waker;
use std::time::Duration;

use super::asked::Asked;
use super::breaker::Pass;
use super::change::{Cause, ChangeKind};
use super::priority::Priority;
use super::queue::WaiterId;
use super::quota::{Dimension, Tokens};
use super::time::Time;
use super::totals::Reason;

/// Names a lane of this pool. The shell keeps a lane for as long as anybody holds its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LaneId(pub(super) u32);

impl LaneId {
    #[inline]
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

/// A slot that was granted, and is picked up: its call is sent now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Grant {
    pub(crate) class: Priority,
    pub(crate) granted_at: Time,
    pub(crate) waited: Duration,
    /// `None`: nobody followed the lane when it was sent.
    pub(super) terms: Option<Terms>,
    /// Where the pool keeps what controllers were told of it; `None`: there is none here.
    pub(super) told: Option<u32>,
}

/// What a call was let in with, to be settled at its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Terms {
    /// `None`: there was no budget when it was sent, and none that came since gives back what it never took.
    pub(super) charged: Option<Tokens>,
    pub(super) pass: Pass,
}

impl Grant {
    /// Of a lane that nobody follows.
    #[inline]
    pub(crate) fn plain(class: Priority, granted_at: Time, waited: Duration) -> Self {
        Self { class, granted_at, waited, terms: None, told: None }
    }

    /// A controller wants to hear of its first byte.
    #[inline]
    pub(crate) fn is_tracked(&self) -> bool {
        self.told.is_some()
    }
}

/// A call that asks for a slot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    pub(crate) class: Priority,
    pub(crate) asked: Asked,
    /// `NEVER`: none.
    pub(crate) deadline: Time,
}

impl Request {
    /// One of which nothing else is known.
    #[cfg(any(test, feature = "simulator"))]
    pub(crate) fn of(class: Priority) -> Self {
        Self { class, asked: Asked::default(), deadline: Time::NEVER }
    }
}

/// Why there is no slot at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Blocked {
    /// All slots that this class may use are taken, or others are first in line.
    Busy,
    /// The upstream asked for silence, for this much longer.
    Paused(Duration),
    /// A budget per minute has not enough left for it, for this much longer.
    Short(Dimension, Duration),
    /// A budget per minute can never have enough for it: this is all that it holds.
    TooLarge(Dimension, u64),
    /// The breaker is open, for this much longer.
    BreakerOpen(Duration),
    /// It is a retry, and there are too many.
    RetryBudget,
    PastDeadline,
    Closed,
}

impl Blocked {
    /// Waiting would not help.
    pub(crate) fn is_final(self) -> bool {
        matches!(
            self,
            Self::Closed | Self::PastDeadline | Self::TooLarge(..) | Self::BreakerOpen(_) | Self::RetryBudget
        )
    }
}

/// Why a call may not even wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    LaneFull,
    ClassFull,
    TenantFull,
    /// Its time is over already.
    Expired,
    /// Its time is over before the pause is, which goes on for this long.
    Paused(Duration),
}

/// A place in the queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ticket {
    pub(crate) id: WaiterId,
    /// How many were in front of it.
    pub(crate) ahead: u32,
}

/// A waiter that looks for its slot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Look<'a> {
    pub(crate) waker: &'a Waker,
    /// `NEVER`: none.
    pub(crate) deadline: Time,
}

/// What a waiter finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    Granted(Grant),
    Waiting,
    /// It had a slot, but looked only after its deadline; the slot has passed on.
    PastDeadline,
    /// It expired, or the pool was closed.
    Gone,
}

/// What a waiter finds that only looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sight {
    /// A slot is there to be collected.
    Granted,
    Waiting,
    Gone,
}

/// What a step did beyond its answer: to be carried out after the lock is released.
///
/// Whoever steps often keeps it, and its memory, from step to step.
#[derive(Debug, Default)]
pub(crate) struct Effects {
    pub(crate) wakes: Vec<Waker>,
    /// Wakers that nobody needs any more. Dropping one may drop a task, and with it a permit or a waiter of this pool.
    pub(crate) spent: Vec<Waker>,
    /// Lanes other than the one stepped whose figures changed.
    pub(crate) touched: Vec<LaneId>,
    pub(crate) dropped: Vec<Dropped>,
    pub(crate) changes: Vec<Change>,
}

/// A change of what a lane lets through, or the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) whose: Whose,
    pub(crate) kind: ChangeKind,
    pub(crate) cause: Cause,
}

/// Whose slots are meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whose {
    Lane(LaneId),
    Pool,
}

/// Where one valve notes its changes.
pub(super) struct Changes<'a> {
    pub(super) whose: Whose,
    pub(super) list: &'a mut Vec<Change>,
}

impl Changes<'_> {
    #[cold]
    pub(super) fn note(&mut self, kind: ChangeKind, cause: Cause) {
        self.list.push(Change { whose: self.whose, kind, cause });
    }
}

/// A waiter that the engine removed by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Dropped {
    pub(crate) lane: LaneId,
    pub(crate) class: Priority,
    pub(crate) reason: Reason,
}

impl Effects {
    /// One wake and one spent waker at most, and nothing else.
    #[inline]
    pub(crate) fn are_few(&self) -> bool {
        self.wakes.len() <= 1
            && self.spent.len() <= 1
            && self.touched.is_empty()
            && self.dropped.is_empty()
            && self.changes.is_empty()
    }

    pub(super) fn changes_of(&mut self, whose: Whose) -> Changes<'_> {
        Changes { whose, list: &mut self.changes }
    }

    pub(super) fn touch(&mut self, id: LaneId) {
        if !self.touched.contains(&id) {
            self.touched.push(id);
        }
    }
}
