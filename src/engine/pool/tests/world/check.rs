//! What must therefore hold.

use super::*;
use crate::engine::capacity::{Capacity, ClassSet};

impl World {
    /// Slots in use by class, by what the calls say.
    pub(super) fn used(&self, lane: Option<usize>) -> Capacity {
        let SlotPolicy { limit, reserve } = match lane {
            Some(lane) => self.lanes[lane].slots,
            None => self.policy,
        };
        let mut capacity = Capacity::new(limit, reserve);
        let here = self.calls.iter().filter(|call| lane.is_none_or(|lane| call.lane == lane) && !call.is_waiting());
        here.for_each(|call| capacity.take(call.class));
        capacity
    }

    pub(super) fn is_open(&self, lane: usize, class: Priority) -> bool {
        let used = self.used(Some(lane));
        let gate = &self.pool.lane(self.ids[lane]).valve.gate;
        let passing = used.limit().map_or(u32::MAX, |limit| gate.lets_pass(limit, self.now));
        let open: ClassSet = used.open_to(passing).intersect(self.used(None).open_to(u32::MAX));
        open.contains(class)
    }

    pub(super) fn check(&self) -> Checked {
        if self.is_behind {
            return Ok(());
        }
        for lane in 0..self.lanes.len() {
            self.check_counts(lane)?;
        }
        prop_assert_eq!(self.pool.in_use(), self.used(None).in_use());
        let waiting = self.calls.iter().filter(|call| call.is_waiting()).count();
        prop_assert_eq!(self.pool.waiting() as usize, waiting);
        prop_assert!(!self.is_closed || waiting == 0, "somebody waits in a closed pool");
        self.check_grants()?;
        self.check_nothing_is_due()
    }

    fn check_counts(&self, lane: usize) -> Checked {
        let id = self.ids[lane];
        let Figures { in_use, waiting, .. } = self.pool.figures(id);
        prop_assert_eq!(in_use, self.used(Some(lane)).in_use());
        for class in Priority::ALL {
            let of = |call: &&Call| call.lane == lane && call.class == class && call.is_waiting();
            prop_assert_eq!(waiting[class.index()] as usize, self.calls.iter().filter(of).count());
        }
        let totals = self.pool.lane(id).totals;
        prop_assert_eq!(totals, self.totals[lane]);
        let ended: u64 = totals.outcomes.iter().chain(&totals.refused).sum();
        let here = u64::from(in_use + waiting.iter().sum::<u32>());
        prop_assert_eq!(totals.offered, ended + totals.abandoned + here);
        Ok(())
    }

    /// Limits and reserves in force at each grant, and order within class and tenant.
    fn check_grants(&self) -> Checked {
        for granted in self.calls.iter().filter(|call| self.granted.contains(&call.number)) {
            let Call { lane, class, .. } = *granted;
            prop_assert!(
                self.pool.lane(self.ids[lane]).valve.gate.is_open(self.now),
                "{granted:?} was granted in a pause"
            );
            for (limits, of) in [(Some(lane), "lane"), (None, "pool")] {
                let used = self.used(limits);
                let Some(limit) = used.limit() else { continue };
                prop_assert!(used.in_use() <= limit, "above the limit of the {of}");
                let here = self.calls.iter().filter(|call| limits.is_none_or(|lane| call.lane == lane));
                let others = here.filter(|call| !call.is_waiting() && call.class != Priority::Interactive).count();
                let may = limit - used.reserve();
                prop_assert!(class == Priority::Interactive || others <= may as usize, "into the {of}'s reserve");
            }
            let key = |call: &Call| (call.arrived_at, call.number);
            let overtaken = self.calls.iter().find(|call| {
                call.place == Place::Queued
                    && (call.lane, call.class, call.tenant) == (granted.lane, granted.class, granted.tenant)
                    && key(call) < key(granted)
                    && self.newcomer != Some(call.number)
            });
            prop_assert!(overtaken.is_none(), "{granted:?} overtook {overtaken:?}");
        }
        Ok(())
    }

    /// Holds at every moment up to the one that `poll_timeout` names.
    fn check_nothing_is_due(&self) -> Checked {
        for call in &self.calls {
            match call.place {
                Place::Granted(at) => prop_assert!(at + LEASE > self.now, "{call:?} sleeps on its slot"),
                Place::Queued | Place::Parked => prop_assert!(call.expires_at > self.now, "{call:?} is over"),
                Place::Sent(_) => {}
            }
            let is_paused = !self.pool.lane(self.ids[call.lane]).valve.gate.is_open(self.now);
            let may_go = call.place == Place::Queued && !is_paused && self.is_open(call.lane, call.class);
            prop_assert!(!may_go, "{call:?} could go and does not");
        }
        Ok(())
    }
}
