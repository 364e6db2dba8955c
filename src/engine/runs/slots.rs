//! Who holds a slot: admitting, lending, taking back.

use super::step::{Back, Effects, Fact};
use super::{RunRef, Runs, State};
use crate::engine::time::Time;

impl<R: Clone> Runs<R> {
    /// Its own call waits for a lane: the slot is for others meanwhile, unless so many are queued or lent that it would
    /// have no place to come back from. One that wanted its slot back wants it no more.
    pub(crate) fn lend(&mut self, run: RunRef, now: Time, effects: &mut Effects<R>) {
        let Some(index) = self.find(run) else { return };
        match self.entries[index].state {
            State::Running => {
                self.entries[index].state = State::Holding;
                self.holding.push_back(&mut self.entries, index, |e| &mut e.links);
                self.dispatch(now, effects);
            }
            State::Returning => {
                self.leave_returning(index);
                self.entries[index].state = State::Lent;
                // Another call of it may want the slot still, and has to say so again.
                effects.wakes.extend(self.entries[index].watchers.take());
                self.dispatch(now, effects);
            }
            _ => {}
        }
    }

    /// It wants to go on: takes its slot back, or waits for one before everybody who has not started.
    pub(crate) fn take_back(&mut self, run: RunRef, now: Time, effects: &mut Effects<R>) -> Back {
        let Some(index) = self.find(run) else { return Back::Over };
        match self.entries[index].state {
            State::Holding => {
                self.holding.unlink(&mut self.entries, index, |e| &mut e.links);
                self.entries[index].state = State::Running;
            }
            State::Lent => {
                self.entries[index].state = State::Returning;
                self.returning.push_back(&mut self.entries, index, |e| &mut e.links);
                self.are_returning += 1;
                self.dispatch(now, effects);
            }
            _ => {}
        }
        match self.entries[index].state {
            State::Running => Back::Held,
            _ => Back::Waiting,
        }
    }

    /// No more may be queued or lent.
    pub(super) fn is_full(&self) -> bool {
        self.counts.queued + self.counts.lent >= self.limits.depth
    }

    /// Nobody is overtaken by taking it: while a slot is free, nobody who could use it waits.
    pub(super) fn has_free_slot(&self) -> bool {
        self.counts.running < self.limits.concurrent
    }

    pub(super) fn has_slot_for(&self, user: u32) -> bool {
        self.has_free_slot() && self.users[user].has_room(&self.limits)
    }

    /// Gives free slots to those who come back and then to those whose turn it is, and lets those lend who may.
    pub(super) fn dispatch(&mut self, now: Time, effects: &mut Effects<R>) {
        loop {
            let has_free = self.has_free_slot();
            let returning = self.returning.head();
            if let Some(index) = returning.filter(|_| has_free) {
                self.resume(index, now, effects);
            } else if let Some(user) = self.ring.head().filter(|_| has_free && !self.is_closed) {
                self.admit_next_of(user, now, effects);
            } else if let Some(holder) = self.holding.head().filter(|_| returning.is_some() || !self.is_full()) {
                self.let_lend(holder, now, effects);
            } else {
                return;
            }
        }
    }

    fn resume(&mut self, index: u32, now: Time, effects: &mut Effects<R>) {
        self.leave_returning(index);
        self.counts.lent -= 1;
        self.counts.running += 1;
        let entry = &mut self.entries[index];
        entry.state = State::Running;
        let user = entry.user;
        self.users[user].lent -= 1;
        let away = now.since(self.entries[index].lent_at);
        self.note(index, Fact::Resumed { away }, effects);
    }

    pub(super) fn leave_returning(&mut self, index: u32) {
        self.returning.unlink(&mut self.entries, index, |e| &mut e.links);
        self.are_returning -= 1;
    }

    fn let_lend(&mut self, index: u32, now: Time, effects: &mut Effects<R>) {
        self.holding.unlink(&mut self.entries, index, |e| &mut e.links);
        self.counts.running -= 1;
        self.counts.lent += 1;
        let entry = &mut self.entries[index];
        entry.state = State::Lent;
        entry.lent_at = now;
        let user = entry.user;
        self.users[user].lent += 1;
        self.note(index, Fact::Lent, effects);
    }

    fn admit_next_of(&mut self, user: u32, now: Time, effects: &mut Effects<R>) {
        let index = self.take_turn(user);
        self.counts.queued -= 1;
        self.users[user].queued -= 1;
        if self.asks_at_start {
            self.take_slot(index, State::Starting);
            effects.wakes.extend(self.entries[index].watchers.take());
        } else {
            self.take_slot(index, State::Running);
            self.admitted(index, now, effects);
        }
    }

    pub(super) fn take_slot(&mut self, index: u32, state: State) {
        let entry = &mut self.entries[index];
        entry.state = state;
        self.users[entry.user].started += 1;
        self.counts.running += 1;
    }
}
