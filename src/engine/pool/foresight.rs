//! Deadlines that cannot be kept: refused on arrival, before a place in line is taken.

use std::time::Duration;

use super::Pool;
use crate::engine::forecast::{Ended, Foreseen, Known, PredictDeadlines, Slots, Wait};
use crate::engine::outcome::{Outcome, OutcomeKind};
use crate::engine::priority::Priority;
use crate::engine::step::{Grant, LaneId, Request};
use crate::engine::time::Time;

impl Pool {
    /// What is to be expected of a call that has to wait, if that ends after its deadline.
    ///
    /// Of what may hold it up, what takes longest counts: the lane's slots, the pool's, or tokens of either; each after the
    /// pause, and after the time until the breaker lets somebody in. As far as known: of the pool's slots nobody knows how long
    /// calls of other lanes hold them, and of tokens, those ahead are taken to use what calls have used lately.
    #[cold]
    pub(crate) fn foresee_miss(
        &mut self,
        id: LaneId,
        request: Request,
        arrived_at: Time,
        now: Time,
    ) -> Option<Foreseen> {
        let Request { deadline, .. } = request;
        let now = now.max(self.now);
        let lane = self.lane_mut(id);
        if lane.policy.predict_deadlines == PredictDeadlines::Off {
            lane.past = None;
            return None;
        }
        let present = lane.present();
        let known = lane.past.get_or_insert_default().known(present, now)?;
        let opens_at = self.opens_at(id, now).unwrap_or(now);
        if deadline < opens_at {
            // The pause alone is too long, and is the better reason.
            return None;
        }
        let opens_at = opens_at.max(now + self.lane(id).breaker.time_left(now).unwrap_or_default());
        let wait = self.foresee_wait(id, &known, request, arrived_at, opens_at.since(now), now);
        let is_missed = now + wait.least.saturating_add(known.service) > deadline;
        is_missed.then_some(Foreseen { wait: wait.expected, service: known.service })
    }

    fn foresee_wait(
        &mut self,
        id: LaneId,
        known: &Known,
        request: Request,
        arrived_at: Time,
        blocked: Duration,
        now: Time,
    ) -> Wait {
        let Request { class, asked, .. } = request;
        let (effective, ahead) = self.lane_mut(id).queue.standing(class, arrived_at, now);
        let is_capped = self.valve.is_limited() || self.quota.is_some();
        let ahead_in_pool = if is_capped { self.ahead_in_pool(effective) } else { ahead };

        let lane = self.lane(id);
        let mut wait = match (lane.slots_left_to(class), lane.valve.slots_for(class)) {
            (Some(left), _) => known.wait_among_equals(left, lane.queue.waiting_by_class()[class.index()], blocked),
            (None, Some(slots)) => known.wait(slots, effective, ahead, blocked),
            (None, None) => Wait::of(blocked),
        };
        if let Some(Slots { limit, withheld, free }) = self.valve.slots_for(class) {
            let shared = Slots { limit: limit - withheld, withheld: 0, free };
            wait = wait.and(known.wait(shared, Priority::Interactive, ahead_in_pool, blocked));
        }
        let lane = self.lane_mut(id);
        if let Some(overdue) = lane.breaker.probes_left(now) {
            // They end as calls do, or are given up; and any moment may be the one.
            wait = wait.and(Wait { expected: overdue.min(known.service), least: Duration::ZERO });
        }
        if let Some(quota) = &mut lane.quota {
            wait = wait.and(Wait::of(quota.fits_after(ahead, known.used, asked.tokens, now).since(now)));
        }
        if let Some(quota) = &mut self.quota {
            wait = wait.and(Wait::of(quota.fits_after(ahead_in_pool, known.used, asked.tokens, now).since(now)));
        }
        wait
    }

    /// Those of all lanes who go before a newcomer of this effective class.
    fn ahead_in_pool(&self, effective: Priority) -> u32 {
        self.listed.iter().map(|&index| self.lane(LaneId(index)).queue.waiting_up_to(effective)).sum()
    }

    /// A call of a lane that remembers is over, and its slot is free.
    #[cold]
    pub(super) fn remember(&mut self, id: LaneId, grant: &Grant, outcome: Outcome, now: Time) {
        let lane = self.lane_mut(id);
        let ended = Ended {
            at: now,
            held: now.since(grant.granted_at),
            class: grant.class,
            is_success: outcome.kind() == OutcomeKind::Success,
            present: lane.present(),
        };
        if let Some(past) = &mut lane.past {
            past.note(ended);
        }
    }
}
