//! Calls that get no slot: counted and taken down under the lock, told outside of it.

use std::time::Duration;

use super::key::LaneKey;
use super::lane::LaneInner;
use super::pool;
use crate::engine::pool::Figures;
use crate::engine::quota::Tokens;
use crate::engine::step::Blocked;
use crate::error::{Bound, RejectKind, Rejected, Rejection};

/// A refusal in numbers, made under the lock; the error is built outside of it.
pub(super) struct Refused {
    pub(super) kind: RejectKind,
    bound: Bound,
    retry_after: Option<Duration>,
    in_flight: u32,
    limit: u32,
}

impl Refused {
    pub(super) fn new(
        lane: &LaneInner,
        kind: RejectKind,
        bound: Bound,
        retry_after: Option<Duration>,
        state: &pool::State,
    ) -> Self {
        let Figures { in_use, limit, .. } = state.engine.figures(lane.id);
        Self { kind, bound, retry_after, in_flight: in_use, limit }
    }

    pub(super) fn on_arrival(self, lane: &LaneInner, tokens: Tokens) -> Rejected {
        lane.report_refused(self.kind.reason());
        if matches!(self.kind, RejectKind::Short(_) | RejectKind::TooLarge(_)) {
            lane.report_rejected(tokens);
        }
        self.after(lane, Duration::ZERO, None)
    }

    pub(super) fn after(self, lane: &LaneInner, waited: Duration, position: Option<u32>) -> Rejected {
        let Self { kind, bound, retry_after, in_flight, limit } = self;
        let lane = LaneKey::clone(&lane.key);
        Rejected::new(Rejection { lane, kind, waited, position, in_flight, limit, retry_after, bound })
    }
}

/// For a call that is refused before it asks for a slot.
pub(super) fn refuse_unasked(lane: &LaneInner, kind: RejectKind) -> Rejected {
    let refused = lane.pool.step(lane, |state, _| {
        state.engine.refuse(lane.id, kind.reason());
        Refused::new(lane, kind, Bound::None, None, state)
    });
    refused.on_arrival(lane, Tokens::default())
}

/// For a call that leaves its line, and is counted as having given up there.
pub(super) fn refuse_waiting(lane: &LaneInner, kind: RejectKind, position: Option<u32>) -> Rejected {
    let refused = lane.pool.step(lane, |state, _| Refused::new(lane, kind, Bound::None, None, state));
    refused.after(lane, Duration::ZERO, position)
}

pub(super) fn refuse_to_wait(lane: &LaneInner, blocked: Blocked, state: &mut pool::State) -> Refused {
    match blocked {
        Blocked::Busy => refuse(lane, RejectKind::Busy, Bound::None, None, state),
        Blocked::Paused(left) => refuse(lane, RejectKind::Paused, Bound::None, Some(left), state),
        Blocked::PastDeadline => refuse(lane, RejectKind::Deadline, Bound::None, None, state),
        Blocked::Closed => refuse(lane, RejectKind::Closed, Bound::None, None, state),
        Blocked::BreakerOpen(left) => refuse(lane, RejectKind::BreakerOpen, Bound::None, Some(left), state),
        Blocked::RetryBudget => refuse(lane, RejectKind::RetryBudgetExhausted, Bound::None, None, state),
        Blocked::Short(dimension, left) => refuse(lane, RejectKind::Short(dimension), Bound::None, Some(left), state),
        Blocked::TooLarge(dimension, capacity) => {
            let most = u32::try_from(capacity).unwrap_or(u32::MAX);
            refuse(lane, RejectKind::TooLarge(dimension), Bound::Tokens(most), None, state)
        }
    }
}

/// Counts the refusal and takes down the figures that its error shows.
pub(super) fn refuse(
    lane: &LaneInner,
    kind: RejectKind,
    bound: Bound,
    retry_after: Option<Duration>,
    state: &mut pool::State,
) -> Refused {
    state.engine.note_refused(lane.id, kind.reason());
    Refused::new(lane, kind, bound, retry_after, state)
}
