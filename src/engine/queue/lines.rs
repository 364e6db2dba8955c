//! Lines of one tenant and class, and the rings in which they take turns.

use super::{Line, Next, Place, Queue, State, Waiter};
use crate::engine::capacity::ClassSet;
use crate::engine::priority::Priority;

impl Queue {
    /// Whose turn it is within one effective class.
    #[inline]
    pub(super) fn next_in(&self, effective: Priority, open: ClassSet) -> Option<Next> {
        // Those of a lower own class are in none of these rings.
        let owns = &Priority::ALL[effective.index()..];
        let rings = &self.rings[effective.index()];
        let mut candidates = owns.iter().filter(|own| rings[own.index()].head().is_some() && open.contains(**own));
        let own = *candidates.next()?;
        if candidates.next().is_some() {
            return self.next_of_several(effective, open);
        }
        // Nearly always: nobody has aged into this class, so its own are alone in it.
        let tenant = rings[own.index()].head()?;
        let index = self.first(&self.tenants[tenant].lines[own.index()])?;
        Some(self.as_next(index, effective))
    }

    fn next_of_several(&self, effective: Priority, open: ClassSet) -> Option<Next> {
        let owns = || Priority::ALL[effective.index()..].iter().filter(|own| open.contains(**own));
        let mut earliest_turn: Option<(u64, u32)> = None;
        for own in owns() {
            let Some(tenant) = self.rings[effective.index()][own.index()].head() else { continue };
            let turn = self.tenants[tenant].lines[own.index()].turn;
            if earliest_turn.is_none_or(|(earliest, _)| turn < earliest) {
                earliest_turn = Some((turn, tenant));
            }
        }
        let (_, tenant) = earliest_turn?;
        let mut first: Option<(u32, &Waiter)> = None;
        for own in owns() {
            let line = &self.tenants[tenant].lines[own.index()];
            if line.ring != Some(effective as u8) {
                continue;
            }
            let Some(index) = self.first(line) else { continue };
            let waiter = &self.waiters[index];
            if first.is_none_or(|(_, first)| waiter.rank() < first.rank()) {
                first = Some((index, waiter));
            }
        }
        first.map(|(index, _)| self.as_next(index, effective))
    }

    #[inline]
    fn as_next(&self, index: u32, effective: Priority) -> Next {
        let waiter = &self.waiters[index];
        Next { index, class: waiter.class, rank: (effective as u8, waiter.arrived_at) }
    }

    /// Puts a waiter that arrived just now at the end of its line.
    #[inline]
    pub(super) fn put_last(&mut self, index: u32, tenant: u32, class: Priority) {
        let line = &mut self.tenants[tenant].lines[class.index()];
        let is_first = line.fresh.head().is_none();
        line.fresh.push_back(&mut self.waiters, index, |w| &mut w.in_line);
        if is_first {
            self.place_line(tenant, class);
        }
    }

    /// Puts a waiter at the place in its line that its arrival gives it.
    pub(super) fn put_sorted(&mut self, index: u32) {
        let waiter = &mut self.waiters[index];
        waiter.state = State::Returning;
        let (tenant, class, key) = (waiter.tenant, waiter.class, (waiter.arrived_at, waiter.stamp, index));
        self.tenants[tenant].lines[class.index()].returning.insert(key);
        self.place_line(tenant, class);
    }

    #[inline]
    pub(super) fn take_from_line(&mut self, index: u32, Place { tenant, class, state, .. }: Place) {
        let line = &mut self.tenants[tenant].lines[class.index()];
        match state {
            State::InLine => line.fresh.unlink(&mut self.waiters, index, |w| &mut w.in_line),
            State::Returning => {
                let (arrived_at, stamp) = self.waiters[index].rank();
                line.returning.remove(&(arrived_at, stamp, index));
            }
            State::Granted | State::Parked => return,
        }
        self.place_line(tenant, class);
    }

    /// Sends every line of the waiter's tenant that stands in the waiter's ring to the back of it.
    #[inline]
    pub(super) fn end_turn(&mut self, Place { tenant, effective, .. }: Place) {
        let rings = &mut self.rings[usize::from(effective)];
        for (own, ring) in rings.iter_mut().enumerate() {
            let line = &mut self.tenants[tenant].lines[own];
            if line.ring == Some(effective) {
                // Also where it is last in its ring: turns are compared over the rings of all own classes.
                line.turn = self.next_turn;
                self.next_turn += 1;
                ring.move_back(&mut self.tenants, tenant, |t| &mut t.lines[own].in_ring);
            }
        }
    }

    /// Moves a line to the ring of its first waiter's effective class, if it does not stand there already.
    #[inline]
    pub(super) fn place_line(&mut self, tenant: u32, own: Priority) {
        let line = &self.tenants[tenant].lines[own.index()];
        let due = self.first(line).map(|index| self.waiters[index].effective);
        if line.ring != due {
            self.move_line(tenant, own, due);
        }
    }

    fn move_line(&mut self, tenant: u32, own: Priority, due: Option<u8>) {
        self.leave_ring(tenant, own);
        if let Some(effective) = due {
            self.join_ring(tenant, own, effective);
        }
    }

    /// The first of a line: the earliest arrival of its two parts.
    #[inline]
    pub(super) fn first(&self, line: &Line) -> Option<u32> {
        if line.returning.is_empty() { line.fresh.head() } else { self.first_of_both(line) }
    }

    fn first_of_both(&self, line: &Line) -> Option<u32> {
        let fresh = line.fresh.head();
        match line.returning.first() {
            None => fresh,
            Some(&(arrived_at, stamp, index)) => match fresh.map(|fresh| (fresh, &self.waiters[fresh])) {
                Some((fresh, waiter)) if waiter.rank() < (arrived_at, stamp) => Some(fresh),
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
