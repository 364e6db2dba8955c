//! A waiter rises one class for every step of aging since its arrival.
//!
//! Nobody looks at each waiter: those enqueued on arrival age in the order in which they stand in `order`, so a cursor per
//! step moves over each of them once. Those who arrived before they were enqueued age earlier and are listed in `steps`.

use std::time::Duration;

use super::{Queue, State};
use crate::engine::priority::Priority;
use crate::engine::time::Time;

impl Queue {
    /// Makes every step that is due.
    #[inline]
    pub(super) fn age(&mut self, now: Time) {
        if now >= self.next_aging {
            self.age_all(now);
        }
    }

    fn age_all(&mut self, now: Time) {
        self.next_aging = Time::NEVER;
        let Some(step) = self.aging_step else { return };
        while let Some(&(at, stamp, index)) = self.steps.first() {
            if at > now {
                self.next_aging = at;
                break;
            }
            self.steps.remove(&(at, stamp, index));
            self.raise(index, self.waiters[index].effective.saturating_sub(1));
            if let Some(next) = self.next_step(index) {
                self.steps.insert((next, stamp, index));
            }
        }
        for (made, after) in [(1, step), (2, step.saturating_mul(2))] {
            while let Some(index) = self.unaged[usize::from(made) - 1] {
                let waiter = &self.waiters[index];
                if waiter.enqueued_at + after > now {
                    self.next_aging = self.next_aging.min(waiter.enqueued_at + after);
                    break;
                }
                self.unaged[usize::from(made) - 1] = waiter.in_order.next();
                self.raise(index, (waiter.class as u8).saturating_sub(made));
            }
        }
    }

    /// The effective class of a waiter of this age.
    pub(super) fn aged(&self, own: Priority, age: Duration) -> u8 {
        let steps = self.aging_step.map_or(0, |step| age.as_nanos() / step.as_nanos().max(1));
        (own as u8).saturating_sub(u8::try_from(steps).unwrap_or(u8::MAX))
    }

    /// When a waiter listed in `steps` makes its next one.
    pub(super) fn next_step(&self, index: u32) -> Option<Time> {
        let waiter = &self.waiters[index];
        if waiter.effective == 0 || waiter.arrived_at >= waiter.enqueued_at {
            return None;
        }
        let made = u32::from(waiter.class as u8 - waiter.effective);
        self.aging_step.map(|step| waiter.arrived_at + step.saturating_mul(made + 1))
    }

    fn raise(&mut self, index: u32, effective: u8) {
        let waiter = &mut self.waiters[index];
        if effective >= waiter.effective {
            return;
        }
        if waiter.state != State::Granted {
            self.waiting_effective[usize::from(waiter.effective)] -= 1;
            self.waiting_effective[usize::from(effective)] += 1;
        }
        waiter.effective = effective;
        let (tenant, class) = (waiter.tenant, waiter.class);
        if self.first(&self.tenants[tenant].lines[class.index()]) == Some(index) {
            self.place_line(tenant, class);
        }
    }
}
