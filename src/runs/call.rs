//! The calls of a run: what they ask of it before they are sent.

use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use super::budget::{Asking, BudgetMoment};
use super::event::RunEvent;
use super::hub::RunState;
use crate::engine::runs::{Back, Watch};
use crate::error::RejectKind;
use crate::limiter::key::{Kind, LaneKey};

/// Whose call it is, within a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whose {
    /// The run cannot go on without it, and lends its slot while it waits.
    OwnTurn,
    /// The run goes on beside it.
    Beside,
}

/// Says that a call belongs to a run.
#[derive(Clone, Debug)]
pub(crate) struct CallOfRun {
    run: Arc<RunState>,
    whose: Whose,
}

/// One attempt of such a call.
#[derive(Debug)]
pub(crate) struct RunCall {
    of: Arc<CallOfRun>,
    asking: Option<Asking>,
    watch: Option<Watch>,
    has_asked: bool,
    /// From when it lends until it holds the slot again.
    is_lending: bool,
    /// It has asked for the slot, since its lane had granted it one.
    is_returning: bool,
}

impl CallOfRun {
    pub(super) fn new(run: Arc<RunState>, whose: Whose) -> Self {
        Self { run, whose }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.run.over().is_some()
    }

    pub(crate) fn is_own_turn(&self) -> bool {
        self.whose == Whose::OwnTurn
    }

    /// Which candidate of a router the run's turns go to. `skip` says where to go instead of one that is busy.
    pub(crate) fn candidate(&self, router: u64, skip: impl FnOnce(usize) -> Option<usize>) -> usize {
        self.run.routes.candidate(router, skip)
    }

    pub(crate) fn attempt(self: Arc<Self>) -> RunCall {
        RunCall { of: self, asking: None, watch: None, has_asked: false, is_lending: false, is_returning: false }
    }
}

impl RunCall {
    /// Before it goes to its lane: the run is there, its budget allows another call, and for its own turn it has its slot.
    /// So whoever waits in a lane's line for its own turn has lent its slot, or holds it, and nobody waits for a run slot
    /// with a lane's slot in hand that it got without waiting.
    pub(crate) fn poll_enter(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), RejectKind>> {
        let run = &self.of.run;
        if run.over().is_some() {
            return Poll::Ready(Err(RejectKind::RunOver));
        }
        if !self.has_asked {
            if self.asking.is_none() {
                self.asking = run.hub.ask(&run.user, BudgetMoment::Call);
            }
            if let Some(asking) = &mut self.asking {
                let answer = match asking.poll(cx) {
                    Poll::Ready(answer) => answer,
                    Poll::Pending => return self.poll_over(cx).map(Err),
                };
                if answer.is_err() {
                    return Poll::Ready(Err(RejectKind::OverBudget));
                }
            }
            self.has_asked = true;
            self.asking = None;
        }
        if self.of.whose == Whose::Beside {
            return Poll::Ready(Ok(()));
        }
        self.poll_slot(cx)
    }

    /// It stands in a lane's line.
    pub(crate) fn queued(&mut self, lane: &Arc<LaneKey>, position: u32) {
        let run = &self.of.run;
        run.hub.tell(run, || RunEvent::CallQueued { lane: lane.clone(), position });
        if self.lends(lane) {
            self.lend();
        }
    }

    /// It waits on, with its run's slot lent.
    fn lend(&mut self) {
        self.is_lending = true;
        let run = &self.of.run;
        run.hub.step(|engine, now, effects| engine.lend(run.at, now, effects));
    }

    /// It stands in its lane's line. If it had a slot there, it lost it for want of its run's: it lends on.
    pub(crate) fn waits(&mut self) {
        if std::mem::take(&mut self.is_returning) {
            self.of.run.routes.lost_its_place();
            self.lend();
        }
    }

    /// It must hold its run's slot when it is sent.
    pub(crate) fn lends(&self, lane: &LaneKey) -> bool {
        self.of.whose == Whose::OwnTurn && lane.kind() != Kind::Embedding
    }

    /// The slot that it lent, back again.
    pub(crate) fn poll_back(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), RejectKind>> {
        if !self.is_lending {
            let is_over = self.of.is_over();
            return Poll::Ready(if is_over { Err(RejectKind::RunOver) } else { Ok(()) });
        }
        self.is_returning = true;
        let back = ready!(self.poll_slot(cx));
        self.is_lending = false;
        Poll::Ready(back)
    }

    /// Ready when there is no run any more to make this call.
    pub(crate) fn poll_over(&mut self, cx: &mut Context<'_>) -> Poll<RejectKind> {
        let (run, watch) = (&self.of.run, &mut self.watch);
        run.hub.step(|engine, _, effects| engine.watch(run.at, watch, cx.waker(), &mut effects.spent));
        if run.over().is_some() { Poll::Ready(RejectKind::RunOver) } else { Poll::Pending }
    }

    /// It is sent now.
    pub(crate) fn admitted(&self, lane: &Arc<LaneKey>, wait: Duration) {
        let run = &self.of.run;
        run.hub.tell(run, || RunEvent::CallAdmitted { lane: lane.clone(), wait });
    }

    fn poll_slot(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), RejectKind>> {
        let (run, watch) = (&self.of.run, &mut self.watch);
        let back = run.hub.step(|engine, now, effects| {
            let back = engine.take_back(run.at, now, effects);
            if back == Back::Waiting {
                engine.watch(run.at, watch, cx.waker(), &mut effects.spent);
            }
            back
        });
        match back {
            Back::Held => Poll::Ready(Ok(())),
            Back::Waiting => Poll::Pending,
            Back::Over => Poll::Ready(Err(RejectKind::RunOver)),
        }
    }
}

impl Drop for RunCall {
    /// The run goes on without this call, and wants its slot.
    fn drop(&mut self) {
        if !self.is_lending && self.watch.is_none() {
            return;
        }
        let Self { of, watch, is_lending, .. } = self;
        let run = &of.run;
        run.hub.step(|engine, now, effects| {
            if let Some(watch) = *watch {
                engine.unwatch(run.at, watch, &mut effects.spent);
            }
            if *is_lending {
                engine.take_back(run.at, now, effects);
            }
        });
    }
}
