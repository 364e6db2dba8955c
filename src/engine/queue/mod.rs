//! The waiters of one lane, in the order in which they will be granted.
//!
//! A *line* holds the waiters of one tenant and own class, first come, first served. Because aging depends on arrival
//! alone, the first of a line is always its most aged, so nobody moves within a line: the line as a whole stands in the
//! *ring* of its first waiter's effective class. Within an effective class, tenants take turns.
//!
//! Callers that come back (retries keep their first arrival) and waiters that slept through a grant belong somewhere in
//! the middle of a line; those few are kept apart, sorted. Everything else is a list: enqueue, grant and cancel are O(1).

mod aging;
mod lines;
mod tenants;
#[cfg(test)]
mod tests;
mod timeouts;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use hashbrown::HashMap;

use self::tenants::Tenant;
use super::capacity::ClassSet;
use super::list::{Links, List};
use super::priority::Priority;
use super::slab::Slab;
use super::time::Time;

/// Names one waiter for as long as it waits, and nobody after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WaiterId {
    /// Used again for somebody else once the waiter is gone.
    pub(super) index: u32,
    stamp: u32,
}

/// What a waiter asks for.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    pub(crate) class: Priority,
    pub(crate) tenant: Option<Arc<str>>,
    /// The first arrival: earlier than now for a retry.
    pub(crate) arrived_at: Time,
    pub(crate) expires_at: Time,
    pub(crate) expiry: Expiry,
}

/// Which of a waiter's two bounds ends first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Expiry {
    #[default]
    QueueTimeout,
    Deadline,
}

/// A waiter that was removed without a grant.
#[derive(Debug)]
pub(crate) struct Removed {
    pub(super) index: u32,
    pub(crate) class: Priority,
    pub(crate) expires_at: Time,
    pub(crate) expiry: Expiry,
    pub(crate) waker: Option<Waker>,
}

/// The waiter that goes next, and its rank among the heads of other lanes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Next {
    pub(super) index: u32,
    pub(crate) class: Priority,
    pub(crate) rank: (u8, Time),
}

/// What a waiter finds when it looks at its entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    Granted {
        class: Priority,
        waited: Duration,
        granted_at: Time,
    },
    Waiting,
    /// It had slept through a grant and stands in line again.
    BackInLine,
    Gone,
}

/// What a waiter that leaves was holding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Left {
    Place,
    Slot(Priority),
    Nothing,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// In its line's list.
    #[default]
    InLine,
    /// In its line's sorted part.
    Returning,
    /// Holds a slot that it has not collected yet.
    Granted,
    /// Slept through its grant; gets no other before it is polled.
    Parked,
}

#[derive(Debug, Default)]
struct Waiter {
    waker: Option<Waker>,
    arrived_at: Time,
    enqueued_at: Time,
    expires_at: Time,
    granted_at: Time,
    /// In its line while it waits, in `granted` while it holds a slot.
    in_line: Links,
    in_order: Links,
    tenant: u32,
    stamp: u32,
    state: State,
    class: Priority,
    expiry: Expiry,
    /// Index of the effective class.
    effective: u8,
    /// Listed in `early`.
    is_early: bool,
}

/// Where a waiter belongs.
#[derive(Clone, Copy)]
struct Place {
    tenant: u32,
    class: Priority,
    effective: u8,
    state: State,
}

impl Waiter {
    /// Where it stands in its line.
    fn rank(&self) -> (Time, u32) {
        (self.arrived_at, self.stamp)
    }
}

#[derive(Debug, Default)]
struct Line {
    fresh: List,
    /// (arrived_at, stamp, index)
    returning: BTreeSet<(Time, u32, u32)>,
    in_ring: Links,
    /// The effective class whose ring this line stands in.
    ring: Option<u8>,
    turn: u64,
}

#[derive(Debug)]
pub(crate) struct Queue {
    waiters: Slab<Waiter>,
    tenants: Slab<Tenant>,
    by_name: HashMap<Arc<str>, u32, foldhash::fast::RandomState>,
    /// Tenants with a name and nobody here.
    absent: usize,
    /// Lines by the effective class of their first waiter, then by own class. Each ring is in order of turns.
    rings: [[List; 3]; 3],
    next_turn: u64,
    next_stamp: u32,
    /// Everybody here, by enqueue time: carries aging, and expiry for those who expire in that order.
    order: List,
    /// The first waiter in `order` that has not made its first, its second step of aging.
    unaged: [Option<u32>; 2],
    /// Nobody ages before this moment.
    next_aging: Time,
    aging_step: Option<Duration>,
    /// Next steps of aging of those who arrived before they were enqueued: (when, stamp, index).
    steps: BTreeSet<(Time, u32, u32)>,
    /// Expiry of those who expire before somebody enqueued earlier: (when, index).
    early: BTreeSet<(Time, u32)>,
    latest_expiry: Time,
    /// Holders of uncollected slots, by grant time.
    granted: List,
    waiting: [u32; 3],
    waiting_effective: [u32; 3],
}

impl Queue {
    pub(crate) fn new(aging_step: Option<Duration>) -> Self {
        let mut tenants = Slab::new();
        tenants.insert(Tenant::default());
        Self {
            waiters: Slab::new(),
            tenants,
            by_name: HashMap::default(),
            absent: 0,
            rings: Default::default(),
            next_turn: 0,
            next_stamp: 0,
            order: List::default(),
            unaged: [None; 2],
            next_aging: Time::NEVER,
            aging_step,
            steps: BTreeSet::new(),
            early: BTreeSet::new(),
            latest_expiry: Time::ZERO,
            granted: List::default(),
            waiting: [0; 3],
            waiting_effective: [0; 3],
        }
    }

    /// Nobody waits and nobody holds an uncollected slot.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.waiters.len() == 0
    }

    #[inline]
    pub(crate) fn waiting(&self) -> u32 {
        self.waiting.iter().sum()
    }

    #[inline]
    pub(crate) fn waiting_by_class(&self) -> [u32; 3] {
        self.waiting
    }

    /// When the one who has waited longest was enqueued.
    pub(crate) fn oldest(&mut self) -> Option<Time> {
        let mut at = self.order.head();
        while let Some(index) = at {
            let waiter = &self.waiters[index];
            if waiter.state != State::Granted {
                return Some(waiter.enqueued_at);
            }
            at = waiter.in_order.next();
        }
        None
    }

    pub(crate) fn set_aging_step(&mut self, step: Option<Duration>) {
        self.aging_step = step;
        self.next_aging = Time::ZERO;
        self.steps.clear();
        let mut at = self.order.head();
        while let Some(index) = at {
            if let Some(due_at) = self.next_step(index) {
                self.steps.insert((due_at, self.waiters[index].stamp, index));
            }
            at = self.waiters[index].in_order.next();
        }
    }

    /// Puts a waiter at its place. Returns its id and how many stood before it by effective class: those of its own class
    /// all count, though a returning caller, or a tenant whose turn is near, may go before some of them.
    #[inline]
    pub(crate) fn enqueue(&mut self, ask: Ask, waker: Waker, now: Time) -> (WaiterId, u32) {
        self.age(now);
        let tenant = self.join_tenant(ask.tenant);
        let class = ask.class;
        let is_returning = ask.arrived_at < now;
        let effective = if is_returning { self.aged(class, now.since(ask.arrived_at)) } else { class as u8 };
        let ahead = self.waiting_up_to(Priority::ALL[usize::from(effective)]);

        let stamp = self.next_stamp;
        self.next_stamp = stamp.wrapping_add(1);
        let is_early = ask.expires_at < self.latest_expiry;
        let index = self.waiters.insert(Waiter {
            waker: Some(waker),
            arrived_at: ask.arrived_at,
            enqueued_at: now,
            expires_at: ask.expires_at,
            tenant,
            stamp,
            class,
            expiry: ask.expiry,
            effective,
            is_early,
            ..Waiter::default()
        });
        if is_early {
            self.early.insert((ask.expires_at, index));
        } else {
            self.latest_expiry = ask.expires_at;
        }
        self.order.push_back(&mut self.waiters, index, |w| &mut w.in_order);
        for cursor in &mut self.unaged {
            cursor.get_or_insert(index);
        }
        if let Some(step) = self.aging_step {
            self.next_aging = self.next_aging.min(now + step);
        }
        if is_returning {
            if let Some(at) = self.next_step(index) {
                self.steps.insert((at, stamp, index));
                self.next_aging = self.next_aging.min(at);
            }
            self.put_sorted(index);
        } else {
            self.put_last(index, tenant, class);
        }
        self.count_in(Place { tenant, class, effective, state: State::InLine });
        (WaiterId { index, stamp }, ahead)
    }

    /// The effective class that a newcomer would have, and how many would stand before it.
    pub(crate) fn standing(&mut self, class: Priority, arrived_at: Time, now: Time) -> (Priority, u32) {
        self.age(now);
        let effective = Priority::ALL[usize::from(self.aged(class, now.since(arrived_at)))];
        (effective, self.waiting_up_to(effective))
    }

    /// Waiters of this effective class and of those above.
    #[inline]
    pub(crate) fn waiting_up_to(&self, effective: Priority) -> u32 {
        self.waiting_effective[..=effective.index()].iter().sum()
    }

    /// The waiter that goes next among those whose own class is in `open`.
    #[inline]
    pub(crate) fn next(&mut self, open: ClassSet, now: Time) -> Option<Next> {
        if open.is_empty() || self.waiting() == 0 {
            return None;
        }
        self.age(now);
        for effective in Priority::ALL {
            if self.waiting_effective[effective.index()] > 0 {
                if let Some(next) = self.next_in(effective, open) {
                    return Some(next);
                }
            }
        }
        None
    }

    /// Gives the waiter a slot, to be collected. Its tenant's turn is over. Returns whom to wake and how long it waited.
    #[inline]
    pub(crate) fn grant(&mut self, next: Next, now: Time) -> (Option<Waker>, Duration) {
        let index = next.index;
        let place = self.place(index);
        self.count_out(place);
        self.end_turn(place);
        self.take_from_line(index, place);
        self.granted.push_back(&mut self.waiters, index, |w| &mut w.in_line);
        let waiter = &mut self.waiters[index];
        waiter.state = State::Granted;
        waiter.granted_at = now;
        (waiter.waker.take(), now.since(waiter.enqueued_at))
    }

    /// Takes the slot that a waiter was granted: its class, since when, and the wait for it.
    pub(crate) fn pick_up(&mut self, id: WaiterId) -> Option<(Priority, Time, Duration)> {
        let waiter = self.find(id).filter(|waiter| waiter.state == State::Granted)?;
        let granted = (waiter.class, waiter.granted_at, waiter.granted_at.since(waiter.enqueued_at));
        self.remove(id.index);
        Some(granted)
    }

    /// The waiter looks whether it was granted. Keeps `waker` if it has to wait on, and gives up the one it replaces.
    pub(crate) fn collect(&mut self, id: WaiterId, waker: &Waker, spent: &mut impl Extend<Waker>) -> Found {
        if let Some((class, granted_at, waited)) = self.pick_up(id) {
            return Found::Granted { class, waited, granted_at };
        }
        let Some(waiter) = self.find(id) else { return Found::Gone };
        match waiter.state {
            State::Granted => unreachable!("picked up just now"),
            State::InLine | State::Returning => {
                if !waiter.waker.as_ref().is_some_and(|known| known.will_wake(waker)) {
                    spent.extend(waiter.waker.replace(waker.clone()));
                }
                Found::Waiting
            }
            State::Parked => {
                spent.extend(waiter.waker.replace(waker.clone()));
                self.put_sorted(id.index);
                Found::BackInLine
            }
        }
    }

    /// Whether the waiter holds a slot that it has not collected yet.
    pub(crate) fn is_granted(&mut self, id: WaiterId) -> bool {
        self.find(id).is_some_and(|waiter| waiter.state == State::Granted)
    }

    /// The waiter goes away. Returns what it was holding, and the waker that it gives up.
    pub(crate) fn cancel(&mut self, id: WaiterId) -> (Left, Option<Waker>) {
        let Some(waiter) = self.find(id) else { return (Left::Nothing, None) };
        let left = match waiter.state {
            State::Granted => Left::Slot(waiter.class),
            State::InLine | State::Returning | State::Parked => Left::Place,
        };
        (left, self.remove(id.index))
    }

    /// Removes any waiter. Holders of a slot are left alone.
    pub(crate) fn evict(&mut self) -> Option<Removed> {
        let mut at = self.order.head();
        while let Some(index) = at {
            if self.waiters[index].state != State::Granted {
                return Some(self.drop_waiter(index));
            }
            at = self.waiters[index].in_order.next();
        }
        None
    }

    /// Of everybody here.
    pub(crate) fn wakers(&self) -> Vec<Waker> {
        let mut wakers = Vec::new();
        let mut at = self.order.head();
        while let Some(index) = at {
            wakers.extend(self.waiters[index].waker.clone());
            at = self.waiters[index].in_order.next();
        }
        wakers
    }

    #[inline]
    fn find(&mut self, id: WaiterId) -> Option<&mut Waiter> {
        self.waiters.get_mut(id.index).filter(|waiter| waiter.stamp == id.stamp)
    }

    #[inline]
    fn place(&self, index: u32) -> Place {
        let Waiter { tenant, class, effective, state, .. } = self.waiters[index];
        Place { tenant, class, effective, state }
    }

    /// Takes a waiter into the books of its class and tenant.
    #[inline]
    fn count_in(&mut self, Place { tenant, class, effective, .. }: Place) {
        self.waiting[class.index()] += 1;
        self.waiting_effective[usize::from(effective)] += 1;
        self.tenants[tenant].waiting += 1;
    }

    #[inline]
    fn count_out(&mut self, Place { tenant, class, effective, .. }: Place) {
        self.waiting[class.index()] -= 1;
        self.waiting_effective[usize::from(effective)] -= 1;
        self.tenants[tenant].waiting -= 1;
    }

    /// Frees the entry and all that points to it. Returns the waker, if it has one.
    fn remove(&mut self, index: u32) -> Option<Waker> {
        let place = self.place(index);
        if place.state == State::Granted {
            self.granted.unlink(&mut self.waiters, index, |w| &mut w.in_line);
        } else {
            self.count_out(place);
            self.take_from_line(index, place);
        }
        if self.unaged.contains(&Some(index)) {
            self.pass_unaged(index);
        }
        self.order.unlink(&mut self.waiters, index, |w| &mut w.in_order);
        if !self.steps.is_empty() {
            if let Some(at) = self.next_step(index) {
                self.steps.remove(&(at, self.waiters[index].stamp, index));
            }
        }
        let waiter = &mut self.waiters[index];
        let waker = waiter.waker.take();
        if waiter.is_early {
            self.early.remove(&(waiter.expires_at, index));
        }
        self.waiters.vacate(index);
        if self.waiters.len() == 0 {
            self.latest_expiry = Time::ZERO;
        }
        self.leave_tenant(place.tenant);
        waker
    }

    /// Frees the entry of a waiter that was not granted.
    fn drop_waiter(&mut self, index: u32) -> Removed {
        let Waiter { class, expires_at, expiry, .. } = self.waiters[index];
        Removed { index, class, expires_at, expiry, waker: self.remove(index) }
    }

    fn pass_unaged(&mut self, index: u32) {
        for at in 0..self.unaged.len() {
            if self.unaged[at] == Some(index) {
                self.unaged[at] = self.waiters[index].in_order.next();
            }
        }
    }
}
