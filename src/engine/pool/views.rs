//! What a pool and its lanes show of themselves.

use super::{Figures, Pool, PoolFigures, PoolView};
use crate::engine::lane::LaneView;
use crate::engine::step::{Effects, LaneId};
use crate::engine::time::Time;
use crate::engine::valve::ValveView;

impl Pool {
    /// Slots in use, waiters by class, and the limit.
    #[inline]
    pub(crate) fn figures(&self, id: LaneId) -> Figures {
        let lane = self.lane(id);
        Figures { in_use: lane.valve.in_use(), waiting: lane.queue.waiting_by_class(), limit: lane.valve.limit() }
    }

    /// The pool's own slots in use, and their limit.
    pub(crate) fn own_figures(&self) -> PoolFigures {
        match self.valve.limit() {
            0 => PoolFigures::default(),
            limit => PoolFigures { in_use: self.valve.in_use(), limit },
        }
    }

    /// The pool's own slots and budgets.
    pub(crate) fn own_view(&mut self, now: Time, effects: &mut Effects) -> PoolView {
        let now = self.advance(now, effects);
        PoolView { valve: self.valve.view(now), quota: self.quota.as_mut().map(|quota| quota.view(now)) }
    }

    pub(crate) fn view(&mut self, id: LaneId, now: Time, effects: &mut Effects) -> LaneView {
        let now = self.advance(now, effects);
        let paused_for = self.opens_at(id, now).map(|at| at.since(now));
        let view = self.lane_mut(id).view(now);
        LaneView { valve: ValveView { paused_for, ..view.valve }, ..view }
    }
}
