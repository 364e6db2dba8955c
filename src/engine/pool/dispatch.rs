//! Who goes next: what may go is asked in [`Pool::next_of`], and taken in [`Pool::grant`].

use super::{LEASE, Pool};
use crate::engine::queue::Next;
use crate::engine::step::{Effects, LaneId};
use crate::engine::time::Time;

impl Pool {
    /// Grants all that can be granted after something changed in one lane.
    ///
    /// Without a cap on the pool, lanes do not touch each other. With one, a slot given back here may be for any of them.
    pub(super) fn dispatch(&mut self, changed: LaneId, now: Time, effects: &mut Effects) {
        if self.listed.is_empty() {
            return;
        }
        if self.valve.is_limited() || self.quota.is_some() {
            return self.dispatch_over_lanes(changed, now, effects);
        }
        while let Some(next) = self.next_of(changed, now) {
            self.grant(changed, next, now, effects);
        }
    }

    pub(super) fn dispatch_over_lanes(&mut self, changed: LaneId, now: Time, effects: &mut Effects) {
        while let Some((id, next)) = self.next_of_all(now) {
            self.grant(id, next, now, effects);
            if id != changed {
                effects.touch(id);
            }
        }
    }

    /// The waiter that comes first over all lanes: by effective class, then by arrival.
    pub(super) fn next_of_all(&mut self, now: Time) -> Option<(LaneId, Next)> {
        let mut best: Option<(LaneId, Next)> = None;
        for at in 0..self.listed.len() {
            let id = LaneId(self.listed[at]);
            if let Some(next) = self.next_of(id, now) {
                if best.is_none_or(|(_, first)| next.rank < first.rank) {
                    best = Some((id, next));
                }
            }
        }
        best.filter(|&(id, next)| self.quota.is_none() || self.fits_pool(id, next, now))
    }

    #[inline]
    pub(super) fn next_of(&mut self, id: LaneId, now: Time) -> Option<Next> {
        let pool_open = self.valve.open_to(now);
        let lane = self.lane_mut(id);
        let open = pool_open.intersect(lane.valve.open_to(now));
        let Some(next) = lane.next(open, now) else {
            if lane.is_followed {
                self.note_no_slot(id, now);
            }
            return None;
        };
        (!lane.is_followed || self.lets_go(id, next, now)).then_some(next)
    }

    #[inline]
    pub(super) fn grant(&mut self, id: LaneId, next: Next, now: Time, effects: &mut Effects) {
        let lane = self.lane_mut(id);
        let (waker, waited) = lane.queue.grant(next, now);
        lane.valve.take(next.class);
        lane.window.record_wait(waited, now);
        lane.note_queue(now);
        self.valve.take(next.class);
        if self.is_followed(id) {
            self.let_in(id, next, now, effects);
        }
        self.waiting -= 1;
        self.next_timeout = self.next_timeout.min(now + LEASE);
        if let Some(waker) = waker {
            effects.wakes.push(waker);
        }
    }
}
