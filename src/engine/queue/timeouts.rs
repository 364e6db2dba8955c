//! What ends by itself: the wait of those in line, and the lease of those who hold a slot that they do not collect.

use std::task::Waker;
use std::time::Duration;

use super::{Queue, Removed, State, WaiterId};
use crate::engine::priority::Priority;
use crate::engine::time::Time;

impl Queue {
    /// When `lapse` or `expire` next has something to do.
    pub(crate) fn next_timeout(&self, lease: Duration) -> Time {
        let lapse = self.granted.head().map_or(Time::NEVER, |index| self.waiters[index].granted_at + lease);
        let expiry = self.next_to_expire().map_or(Time::NEVER, |index| self.waiters[index].expires_at);
        lapse.min(expiry)
    }

    /// Those in `order` who are not early expire in that order, so its first and the first early one are all to look at.
    fn next_to_expire(&self) -> Option<u32> {
        let waits = |index: &u32| self.waiters[*index].state != State::Granted;
        let mut at = self.order.head();
        while let Some(index) = at.filter(|index| !waits(index)) {
            at = self.waiters[index].in_order.next();
        }
        let early = self.early.iter().map(|&(_, index)| index).find(waits);
        at.into_iter().chain(early).min_by_key(|&index| self.waiters[index].expires_at)
    }

    /// Removes the next waiter whose time is over. Holders of a slot are left alone.
    pub(crate) fn expire(&mut self, now: Time) -> Option<Removed> {
        let index = self.next_to_expire().filter(|&index| self.waiters[index].expires_at <= now)?;
        Some(self.drop_waiter(index))
    }

    /// Takes the slot from the next holder who has not collected it within `lease`; the holder keeps its place in line.
    pub(crate) fn lapse(&mut self, lease: Duration, now: Time) -> Option<(u32, Priority)> {
        let index = self.granted.head()?;
        if self.waiters[index].granted_at + lease > now {
            return None;
        }
        Some((index, self.park(index)))
    }

    /// Takes the slot from a waiter that cannot use it; it keeps its place in line. `waker` is for its expiry.
    pub(crate) fn decline(&mut self, id: WaiterId, waker: &Waker) -> Option<Priority> {
        let waiter = self.find(id).filter(|waiter| waiter.state == State::Granted)?;
        waiter.waker = Some(waker.clone());
        Some(self.park(id.index))
    }

    fn park(&mut self, index: u32) -> Priority {
        self.granted.unlink(&mut self.waiters, index, |w| &mut w.in_line);
        self.waiters[index].state = State::Parked;
        self.count_in(self.place(index));
        self.waiters[index].class
    }
}
