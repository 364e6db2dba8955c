//! The two lines: each user's own, and the one for slots, in which users take turns.

use super::step::{Counts, Effects, Fact, Limits, UserKey};
use super::words::QueuedFor;
use super::{Runs, State};
use crate::engine::list::{Links, List};

#[derive(Debug, Default)]
pub(super) struct User {
    /// `None` in a vacant place of the slab.
    pub(super) key: Option<UserKey>,
    /// Its runs in the user line, and how many.
    pub(super) capped: List,
    are_capped: u32,
    /// Its runs in the pool line, and how many.
    pub(super) ready: List,
    are_ready: u32,
    /// Its runs that hold a slot or have lent it: a run that lends keeps its user's place.
    pub(super) started: u32,
    pub(super) lent: u32,
    /// At the door or in one of the lines.
    pub(super) queued: u32,
    pub(super) members: u32,
    pub(super) in_ring: Links,
    turn: usize,
}

impl User {
    pub(super) fn of(key: UserKey) -> Self {
        Self { key: Some(key), ..Self::default() }
    }

    /// Another of its runs may start, or stand in the pool line.
    pub(super) fn has_room(&self, limits: &Limits) -> bool {
        limits.concurrent_per_user.is_none_or(|most| self.started + self.are_ready < most)
    }

    pub(super) fn counts(&self) -> Counts {
        Counts { running: self.started - self.lent, queued: self.queued, lent: self.lent }
    }
}

impl<R: Clone> Runs<R> {
    /// Puts a run at the end of its user's line, or of the pool line if its user has room.
    pub(super) fn join_line(&mut self, index: u32, effects: &mut Effects<R>) {
        let user = self.entries[index].user;
        if self.users[user].has_room(&self.limits) {
            return self.join_pool_line(index, effects);
        }
        let line = &mut self.users[user];
        line.capped.push_back(&mut self.entries, index, |e| &mut e.links);
        line.are_capped += 1;
        let position = line.are_capped;
        self.entries[index].state = State::InUserLine;
        self.note(index, Fact::Queued { reason: QueuedFor::UserCap, position }, effects);
    }

    /// Moves the first run of a user's line on, if the user has room.
    pub(super) fn promote(&mut self, user: u32, effects: &mut Effects<R>) {
        let line = &mut self.users[user];
        let Some(index) = line.capped.head().filter(|_| line.has_room(&self.limits)) else { return };
        line.capped.unlink(&mut self.entries, index, |e| &mut e.links);
        line.are_capped -= 1;
        self.join_pool_line(index, effects);
    }

    fn join_pool_line(&mut self, index: u32, effects: &mut Effects<R>) {
        let entry = &mut self.entries[index];
        entry.state = State::InPoolLine;
        let user = entry.user;
        let line = &mut self.users[user];
        line.ready.push_back(&mut self.entries, index, |e| &mut e.links);
        let before = line.are_ready;
        line.are_ready += 1;
        let level = line.are_ready as usize;
        while self.levels.len() < level {
            self.levels.push(0);
        }
        self.levels.increment(level);
        if level == 1 {
            self.join_ring(user);
        }
        let position = self.position(user, before);
        self.note(index, Fact::Queued { reason: QueuedFor::GlobalCap, position }, effects);
    }

    pub(super) fn leave_line(&mut self, index: u32) {
        let user = self.entries[index].user;
        if self.entries[index].state == State::InPoolLine {
            return self.leave_pool_line(index, user);
        }
        let line = &mut self.users[user];
        line.capped.unlink(&mut self.entries, index, |e| &mut e.links);
        line.are_capped -= 1;
    }

    fn leave_pool_line(&mut self, index: u32, user: u32) {
        let line = &mut self.users[user];
        line.ready.unlink(&mut self.entries, index, |e| &mut e.links);
        self.levels.decrement(line.are_ready as usize);
        line.are_ready -= 1;
        if line.are_ready == 0 {
            self.leave_ring(user);
        }
        if self.in_ring == 0 {
            self.turns.clear();
            self.levels.clear();
        }
    }

    /// The user's first run leaves the line, and the user goes to the back of the ring.
    pub(super) fn take_turn(&mut self, user: u32) -> u32 {
        let index = self.users[user].ready.head().expect("a user in the ring has somebody in the pool line");
        self.leave_pool_line(index, user);
        if self.users[user].are_ready > 0 {
            self.leave_ring(user);
            self.join_ring(user);
        }
        index
    }

    /// Which line a queued run stands in, and its place there, from 1.
    pub(super) fn place(&self, index: u32) -> (QueuedFor, u32) {
        let entry = &self.entries[index];
        let user = &self.users[entry.user];
        let (reason, line) = match entry.state {
            State::InPoolLine => (QueuedFor::GlobalCap, user.ready),
            _ => (QueuedFor::UserCap, user.capped),
        };
        let mut before = 0;
        let mut at = line.head();
        while let Some(other) = at.filter(|other| *other != index) {
            before += 1;
            at = self.entries[other].links.next();
        }
        let position = match reason {
            QueuedFor::GlobalCap => self.position(entry.user, before),
            _ => before + 1,
        };
        (reason, position)
    }

    /// The place in the pool line of a run that has `before` of its user's runs before it: one more than go first if nobody
    /// else comes. Those are the returning runs, all runs of earlier rounds, and in its own round those of the users whose
    /// turn comes first. The last of these is exact for the first run of a user. Later, some of those users may be out of
    /// runs: then it is too high, by less than one round.
    fn position(&self, user: u32, before: u32) -> u32 {
        let rounds = before as usize;
        let earlier = self.levels.first(rounds);
        let in_round = self.levels.first(rounds + 1) - earlier;
        let turns_before = self.turns.first(self.users[user].turn - 1);
        1 + self.are_returning + earlier + turns_before.min(in_round - 1)
    }

    fn join_ring(&mut self, user: u32) {
        self.renumber_turns();
        self.ring.push_back(&mut self.users, user, |u| &mut u.in_ring);
        self.in_ring += 1;
        self.turns.push(1);
        self.users[user].turn = self.turns.len();
    }

    fn leave_ring(&mut self, user: u32) {
        self.ring.unlink(&mut self.users, user, |u| &mut u.in_ring);
        self.in_ring -= 1;
        self.turns.decrement(self.users[user].turn);
    }

    /// Gives the turns in use the first numbers again, once most are over: a step now and then that pays for as many
    /// joins as it takes long.
    fn renumber_turns(&mut self) {
        if self.turns.len() < 64 + 2 * self.in_ring as usize {
            return;
        }
        self.turns.clear();
        let mut at = self.ring.head();
        while let Some(user) = at {
            self.turns.push(1);
            self.users[user].turn = self.turns.len();
            at = self.users[user].in_ring.next();
        }
    }
}
