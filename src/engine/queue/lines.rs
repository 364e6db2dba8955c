//! Lines of one tenant and class, and the rings in which they take turns.

use super::{Next, Queue, State};
use crate::engine::capacity::ClassSet;
use crate::engine::priority::Priority;

impl Queue {
    /// Whose turn it is within one effective class.
    pub(super) fn next_in(&self, effective: Priority, open: ClassSet) -> Option<Next> {
        let may_go = |own: &Priority| *own >= effective && open.contains(*own);
        let owns = || Priority::ALL.into_iter().filter(may_go);
        let tenant = owns()
            .filter_map(|own| {
                let tenant = self.rings[effective.index()][own.index()].head()?;
                Some((self.tenants[tenant].lines[own.index()].turn, tenant))
            })
            .min()
            .map(|(_, tenant)| tenant)?;
        let lines = &self.tenants[tenant].lines;
        owns()
            .filter(|own| lines[own.index()].ring == Some(effective as u8))
            .filter_map(|own| self.first(tenant, own))
            .min_by_key(|&index| (self.waiters[index].arrived_at, self.waiters[index].stamp))
            .map(|index| {
                let waiter = &self.waiters[index];
                Next { index, class: waiter.class, rank: (effective as u8, waiter.arrived_at) }
            })
    }

    /// Puts a waiter that arrived just now at the end of its line.
    pub(super) fn put_last(&mut self, index: u32) {
        let waiter = &mut self.waiters[index];
        waiter.state = State::InLine;
        let (tenant, class) = (waiter.tenant, waiter.class);
        self.tenants[tenant].lines[class.index()].fresh.push_back(&mut self.waiters, index, |w| &mut w.in_line);
        self.place_line(tenant, class);
    }

    /// Puts a waiter at the place in its line that its arrival gives it.
    pub(super) fn put_sorted(&mut self, index: u32) {
        let waiter = &mut self.waiters[index];
        waiter.state = State::Returning;
        let (tenant, class, key) = (waiter.tenant, waiter.class, (waiter.arrived_at, waiter.stamp, index));
        self.tenants[tenant].lines[class.index()].returning.insert(key);
        self.place_line(tenant, class);
    }

    pub(super) fn take_from_line(&mut self, index: u32) {
        let waiter = &self.waiters[index];
        let (tenant, class, key) = (waiter.tenant, waiter.class, (waiter.arrived_at, waiter.stamp, index));
        let line = &mut self.tenants[tenant].lines[class.index()];
        match waiter.state {
            State::InLine => line.fresh.unlink(&mut self.waiters, index, |w| &mut w.in_line),
            State::Returning => drop(line.returning.remove(&key)),
            State::Granted | State::Parked => return,
        }
        self.place_line(tenant, class);
    }

    /// Sends every line of the waiter's tenant that stands in the waiter's ring to the back of it.
    pub(super) fn end_turn(&mut self, index: u32) {
        let (tenant, effective) = (self.waiters[index].tenant, self.waiters[index].effective);
        for own in Priority::ALL {
            let ring = self.rings[usize::from(effective)][own.index()];
            if self.tenants[tenant].lines[own.index()].ring == Some(effective) && !ring.is_only(tenant) {
                self.leave_ring(tenant, own);
                self.join_ring(tenant, own, effective);
            }
        }
    }

    /// Moves a line to the ring of its first waiter's effective class, if it does not stand there already.
    pub(super) fn place_line(&mut self, tenant: u32, own: Priority) {
        let due = self.first(tenant, own).map(|index| self.waiters[index].effective);
        if self.tenants[tenant].lines[own.index()].ring == due {
            return;
        }
        self.leave_ring(tenant, own);
        if let Some(effective) = due {
            self.join_ring(tenant, own, effective);
        }
    }

    /// The first of a line: the earliest arrival of its two parts.
    pub(super) fn first(&self, tenant: u32, own: Priority) -> Option<u32> {
        let line = &self.tenants[tenant].lines[own.index()];
        let fresh = line.fresh.head();
        match line.returning.first() {
            None => fresh,
            Some(&(arrived_at, stamp, index)) => match fresh.map(|fresh| (fresh, &self.waiters[fresh])) {
                Some((fresh, waiter)) if (waiter.arrived_at, waiter.stamp) < (arrived_at, stamp) => Some(fresh),
                _ => Some(index),
            },
        }
    }

    fn join_ring(&mut self, tenant: u32, own: Priority, effective: u8) {
        let line = &mut self.tenants[tenant].lines[own.index()];
        line.ring = Some(effective);
        line.turn = self.next_turn;
        self.next_turn += 1;
        self.rings[usize::from(effective)][own.index()]
            .push_back(&mut self.tenants, tenant, |t| &mut t.lines[own.index()].in_ring);
    }

    fn leave_ring(&mut self, tenant: u32, own: Priority) {
        if let Some(effective) = self.tenants[tenant].lines[own.index()].ring.take() {
            self.rings[usize::from(effective)][own.index()]
                .unlink(&mut self.tenants, tenant, |t| &mut t.lines[own.index()].in_ring);
        }
    }
}
