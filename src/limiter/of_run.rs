//! A call that a run makes: what it does with its run's slot while it waits for one of its lane.
//!
//! ```text
//!  Entering ─▶ asks the lane ─▶ sent
//!                   │              ▲
//!                   ▼              │ the run has its slot: collects
//!                InLine ─ granted ─┴─▶ waits for the run's slot, the lane's stays uncollected
//!                   ▲                        │
//!                   └── that lease lapsed ◀──┘
//! ```
//!
//! The order of the two slots. A call takes its lane's slot first and its run's second, so that the run slot is free for
//! others for as long as the lane is busy. Others may wait the other way round, holding a run slot while they wait for a
//! lane, so two rules keep them from waiting for each other:
//! - While a run waits for its slot to come back, no run that waits for a lane in its own turn keeps one: those lend, and
//!   where they may not (the bound), the engine swaps the two.
//! - Calls beside a run's own turn keep the run's slot, whatever they wait for. So a lane's slot that was granted to a run
//!   without its own is not collected before the run's is back. Once every run slot is with a run that has such a call in
//!   some lane's line, it is passed on at once, since it may be what they wait for; the call keeps its place. And should
//!   they wait by calls that nobody knows to be theirs, the lane's slot is under the lease of every grant: after a second
//!   it goes to the next in line.

use std::sync::Arc;
use std::task::{Context, Poll, ready};

use super::acquire::Acquire;
use super::lane::LaneInner;
use super::permit::Permit;
use super::refused::{refuse_unasked, refuse_waiting};
use crate::engine::step::Sight;
use crate::error::Rejected;
use crate::runs::{CallOfRun, RunCall};

pub(super) struct OfRun {
    // Dropped in this order: the place in the lane's line, then the run's slot is asked for.
    wait: Acquire,
    call: RunCall,
    lane: Arc<LaneInner>,
    stage: Stage,
}

enum Stage {
    Entering,
    InLine,
    /// The lane has refused it; the run goes on with its slot.
    Refused(Option<Rejected>),
}

impl OfRun {
    pub(super) fn new(wait: Acquire, lane: Arc<LaneInner>, run: Arc<CallOfRun>) -> Self {
        Self { wait, call: run.attempt(), lane, stage: Stage::Entering }
    }

    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Permit, Rejected>> {
        loop {
            match &mut self.stage {
                Stage::Entering => {
                    if let Err(kind) = ready!(self.call.poll_enter(cx)) {
                        return Poll::Ready(Err(refuse_unasked(&self.lane, kind)));
                    }
                    if let Poll::Ready(arrived) = self.wait.advance(cx) {
                        return Poll::Ready(self.sent(arrived));
                    }
                    self.stage = Stage::InLine;
                    let position = self.wait.position().unwrap_or(1);
                    self.call.queued(&self.lane.key, position);
                }
                Stage::InLine => match self.wait.sight(cx.waker()) {
                    Sight::Granted => match self.call.poll_back(cx) {
                        Poll::Ready(Err(kind)) => {
                            return Poll::Ready(Err(refuse_waiting(&self.lane, kind, self.wait.position())));
                        }
                        Poll::Ready(Ok(())) => {
                            if let Poll::Ready(result) = self.wait.advance(cx) {
                                return Poll::Ready(self.sent(result));
                            }
                        }
                        Poll::Pending => {
                            if self.call.waits_in_vain() {
                                self.wait.decline(cx.waker());
                            }
                            return Poll::Pending;
                        }
                    },
                    Sight::Waiting => {
                        self.call.waits();
                        let kind = ready!(self.call.poll_over(cx));
                        return Poll::Ready(Err(refuse_waiting(&self.lane, kind, self.wait.position())));
                    }
                    Sight::Gone => match ready!(self.wait.advance(cx)) {
                        Ok(permit) => return Poll::Ready(Ok(permit)),
                        Err(rejected) => self.stage = Stage::Refused(Some(rejected)),
                    },
                },
                Stage::Refused(rejected) => {
                    // Over or not: the lane's refusal came first.
                    let _ = ready!(self.call.poll_back(cx));
                    return Poll::Ready(Err(rejected.take().expect("told once")));
                }
            }
        }
    }

    fn sent(&self, result: Result<Permit, Rejected>) -> Result<Permit, Rejected> {
        if let Some(admitted) = result.as_ref().ok().and_then(Permit::admitted) {
            self.call.admitted(&self.lane.key, admitted.waited());
        }
        result
    }
}
