//! Who may run: run slots, the two lines of those who wait for one, and slots that are lent.
//!
//! A run waits for its user's cap first, behind the other runs of its user, and then for a slot, where users take turns.
//! While its own call waits for a lane it lends the slot, and it takes it back before every run that has not started.
//!
//! ```text
//!            ┌── at door: the budget is asked
//!            ▼
//!  start ▶ user line ──▶ pool line ──▶ starting: the budget is asked again ──▶ running ──▶ (over)
//!                                                                    ▲  ▲ │
//!                                                                    │  │ └─▶ holding: at `depth`, the slot is kept
//!                                          takes its slot back       │  └────────┘ │
//!                                                    returning ──────┘             │ below `depth`
//!                                                        ▲ │                       ▼
//!                                                        └─┴───────────────────── lent
//! ```
//!
//! Invariants, each held by a property test:
//! 1. At most `concurrent` runs hold a slot: those that are starting, running or holding.
//! 2. At most `concurrent_per_user` runs of a user have started and are not over.
//! 3. Queued and lent runs together are at most `depth`, queued ones of a user at most `queued_per_user`.
//! 4. If a run could have a slot, it got it in the step that made it possible.
//! 5. Nobody holds a slot at the bound while a returning run waits for one: the two swap, which leaves the sum of queued
//!    and lent as it is. So slots never wait for each other.
//!
//! Why the waiters' [`Queue`](super::queue::Queue) is not used: a run waits in two lines one after the other, its user's
//! cap and everybody's, while a tenant of that queue is always ready to go. It has no callers that go before all classes,
//! as returning runs do. And aging, expiry, leases and classes, most of that queue, have no meaning for runs, which have
//! no timeout; the slab and the lists are the part that fits.

mod lines;
mod rank;
mod slots;
mod step;
#[cfg(test)]
mod tests;
mod watch;
mod words;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use hashbrown::HashMap;

use self::lines::User;
use self::rank::Sums;
pub(crate) use self::step::{
    Ask, Back, Counts, Door, Effects, Ending, Fact, Limits, Patience, Refusal, RunRef, Standing, UserKey,
};
pub(crate) use self::watch::Watch;
use self::watch::Watchers;
pub use self::words::{QueuedFor, RunBound, RunId, RunStatus};
use super::list::{Links, List};
use super::slab::Slab;
use super::time::Time;

#[derive(Debug)]
struct Entry<R> {
    /// `None` in a vacant place of the slab.
    run: Option<R>,
    id: RunId,
    key: Option<Arc<str>>,
    user: u32,
    state: State,
    patience: Patience,
    /// In the one list that its state stands for.
    links: Links,
    started_at: Time,
    waited: Duration,
    lent_at: Time,
    watchers: Watchers,
}

/// With the index of its user: keys of different users never meet, since a key must not lead to somebody else's run.
type RunKey = (u32, Arc<str>);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    AtDoor,
    InUserLine,
    InPoolLine,
    Starting,
    Running,
    Holding,
    Lent,
    Returning,
}

/// `R` is what the shell knows a run by; it comes back with each [`Fact`].
#[derive(Debug)]
pub(crate) struct Runs<R> {
    limits: Limits,
    asks_at_start: bool,
    entries: Slab<Entry<R>>,
    users: Slab<User>,
    by_user: HashMap<UserKey, u32, foldhash::fast::RandomState>,
    by_key: HashMap<RunKey, u32, foldhash::fast::RandomState>,
    /// In order: newcomers go to one end and most leave from near the other, where memory is warm.
    by_id: BTreeMap<RunId, u32>,
    next_id: u64,
    /// Users with somebody in the pool line, in order of turns.
    ring: List,
    /// One for each user in the ring, at its turn; zeros where turns are over.
    turns: Sums,
    in_ring: u32,
    /// The n-th: users with at least n runs in the pool line.
    levels: Sums,
    door: List,
    returning: List,
    are_returning: u32,
    holding: List,
    counts: Counts,
    is_closed: bool,
}

impl<R: Clone> Runs<R> {
    /// With `asks_at_start`, a run that waited is [`Starting`](Standing::Starting) until [`pass`](Self::pass).
    pub(crate) fn new(limits: Limits, asks_at_start: bool) -> Self {
        Self {
            limits,
            asks_at_start,
            entries: Slab::new(),
            users: Slab::new(),
            by_user: HashMap::default(),
            by_key: HashMap::default(),
            by_id: BTreeMap::new(),
            next_id: 1,
            ring: List::default(),
            turns: Sums::default(),
            in_ring: 0,
            levels: Sums::default(),
            door: List::default(),
            returning: List::default(),
            are_returning: 0,
            holding: List::default(),
            counts: Counts::default(),
            is_closed: false,
        }
    }

    pub(crate) fn counts(&self) -> Counts {
        self.counts
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.limits
    }

    pub(crate) fn by_id(&self, id: RunId) -> Option<&R> {
        self.entries[*self.by_id.get(&id)?].run.as_ref()
    }

    pub(crate) fn by_key(&self, user: &UserKey, key: &Arc<str>) -> Option<&R> {
        let user = *self.by_user.get(user)?;
        self.entries[*self.by_key.get(&(user, key.clone()))?].run.as_ref()
    }

    /// Each user with a run here, and what its runs are doing.
    pub(crate) fn by_user(&self) -> impl Iterator<Item = (&UserKey, Counts)> {
        self.by_user.iter().map(|(key, user)| (key, self.users[*user].counts()))
    }

    /// A slot, or a place in line, or a refusal that leaves no trace.
    pub(crate) fn start(
        &mut self,
        ask: Ask,
        make: impl FnOnce(RunRef) -> R,
        now: Time,
        effects: &mut Effects<R>,
    ) -> Result<R, Refusal> {
        let known = self.by_user.get(&ask.user).copied();
        let has_slot = match known {
            Some(user) => self.has_slot_for(user),
            None => self.has_free_slot(),
        };
        self.check(&ask, known, has_slot)?;
        let id = RunId(self.next_id);
        self.next_id += 1;
        let user = known.unwrap_or_else(|| self.add_user(ask.user));
        let key = ask.key;
        let index = self.entries.insert(Entry {
            id,
            key: key.clone(),
            user,
            patience: ask.patience,
            started_at: now,
            ..Entry::default()
        });
        let run = make(RunRef { index, id });
        self.entries[index].run = Some(run.clone());
        self.by_id.insert(id, index);
        if let Some(key) = key {
            self.by_key.insert((user, key), index);
        }
        self.users[user].members += 1;
        match ask.door {
            Door::Open if has_slot => {
                self.take_slot(index, State::Running);
                self.admitted(index, now, effects);
            }
            // One answer is enough for a run that does not wait in between.
            Door::Asking if has_slot => self.take_slot(index, State::Starting),
            Door::Open => {
                self.count_queued(index);
                self.join_line(index, effects);
            }
            Door::Asking => {
                self.count_queued(index);
                self.door.push_back(&mut self.entries, index, |e| &mut e.links);
            }
        }
        Ok(run)
    }

    /// The budget has let a run pass: into the line, or from its slot on. A run that was not to wait may not stand in line
    /// now either; the shell ends it, since it knows how to say so.
    pub(crate) fn pass(&mut self, run: RunRef, now: Time, effects: &mut Effects<R>) -> Result<(), RunBound> {
        let Some(index) = self.find(run) else { return Ok(()) };
        let Entry { state, patience, user, .. } = self.entries[index];
        match state {
            State::AtDoor if patience == Patience::Reject && !self.has_slot_for(user) => Err(self.bound_met(user)),
            State::AtDoor => {
                self.door.unlink(&mut self.entries, index, |e| &mut e.links);
                self.join_line(index, effects);
                self.dispatch(now, effects);
                Ok(())
            }
            State::Starting => {
                self.entries[index].state = State::Running;
                self.admitted(index, now, effects);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// The run is over, whatever it was doing. Nothing happens to one that was over already.
    pub(crate) fn end(&mut self, run: RunRef, ending: Ending, now: Time, effects: &mut Effects<R>) {
        let Some(index) = self.find(run) else { return };
        let ending = match self.entries[index].state {
            State::AtDoor | State::InUserLine | State::InPoolLine if ending == Ending::Finished => Ending::Cancelled,
            _ => ending,
        };
        self.leave(index);
        let mut entry = self.entries.remove(index);
        self.by_id.remove(&entry.id);
        if let Some(key) = entry.key.take() {
            self.by_key.remove(&(entry.user, key));
        }
        effects.wakes.extend(entry.watchers.take());
        if let Some(run) = entry.run {
            effects.facts.push((run, Fact::Over(ending)));
        }
        self.promote(entry.user, effects);
        self.leave_user(entry.user);
        self.give_back_room();
        self.dispatch(now, effects);
    }

    pub(crate) fn standing(&self, run: RunRef) -> Standing {
        let Some(index) = self.find(run) else { return Standing::Over };
        let entry = &self.entries[index];
        match entry.state {
            State::AtDoor => Standing::AtDoor,
            State::InUserLine | State::InPoolLine => {
                let (reason, position) = self.place(index);
                Standing::Queued { reason, position }
            }
            State::Starting => Standing::Starting,
            State::Running | State::Holding => Standing::Running { waited: entry.waited },
            State::Lent | State::Returning => Standing::Lent,
        }
    }

    /// Wakes `waker` when the run gets a slot, loses it, or is over.
    pub(crate) fn watch(
        &mut self,
        run: RunRef,
        watch: &mut Option<Watch>,
        waker: &Waker,
        spent: &mut impl Extend<Waker>,
    ) {
        if let Some(index) = self.find(run) {
            self.entries[index].watchers.set(watch, waker, spent);
        }
    }

    pub(crate) fn unwatch(&mut self, run: RunRef, watch: Watch, spent: &mut impl Extend<Waker>) {
        if let Some(index) = self.find(run) {
            self.entries[index].watchers.remove(watch, spent);
        }
    }

    /// Refuses newcomers and cancels those who have not started. The others go on.
    pub(crate) fn close(&mut self, now: Time, effects: &mut Effects<R>) {
        self.is_closed = true;
        for run in self.queued() {
            self.end(run, Ending::Cancelled, now, effects);
        }
    }

    fn check(&self, ask: &Ask, user: Option<u32>, has_slot: bool) -> Result<(), Refusal> {
        if self.is_closed {
            return Err(Refusal::Closed);
        }
        if has_slot {
            return Ok(());
        }
        let bound = if ask.patience == Patience::Reject {
            user.map_or(RunBound::ConcurrentRuns, |user| self.bound_met(user))
        } else if self.is_full() {
            RunBound::QueueDepth
        } else if user.map_or(0, |user| self.users[user].queued) >= self.limits.queued_per_user {
            RunBound::QueuedRunsPerUser
        } else {
            return Ok(());
        };
        Err(Refusal::Bound(bound))
    }

    /// What keeps a run of this user from a slot now.
    fn bound_met(&self, user: u32) -> RunBound {
        match self.users[user].has_room(&self.limits) {
            true => RunBound::ConcurrentRuns,
            false => RunBound::ConcurrentRunsPerUser,
        }
    }

    fn admitted(&mut self, index: u32, now: Time, effects: &mut Effects<R>) {
        let entry = &mut self.entries[index];
        entry.waited = now.since(entry.started_at);
        let waited = entry.waited;
        self.note(index, Fact::Admitted { waited }, effects);
    }

    fn count_queued(&mut self, index: u32) {
        self.counts.queued += 1;
        let user = self.entries[index].user;
        self.users[user].queued += 1;
    }

    /// Takes a run out of its list and the counts.
    fn leave(&mut self, index: u32) {
        let Entry { state, user, .. } = self.entries[index];
        match state {
            State::AtDoor => self.door.unlink(&mut self.entries, index, |e| &mut e.links),
            State::InUserLine | State::InPoolLine => self.leave_line(index),
            State::Holding => self.holding.unlink(&mut self.entries, index, |e| &mut e.links),
            State::Returning => self.leave_returning(index),
            State::Starting | State::Running | State::Lent => {}
        }
        match state {
            State::AtDoor | State::InUserLine | State::InPoolLine => {
                self.counts.queued -= 1;
                self.users[user].queued -= 1;
            }
            State::Starting | State::Running | State::Holding => {
                self.counts.running -= 1;
                self.users[user].started -= 1;
            }
            State::Lent | State::Returning => {
                self.counts.lent -= 1;
                self.users[user].lent -= 1;
                self.users[user].started -= 1;
            }
        }
    }

    fn queued(&self) -> Vec<RunRef> {
        let lines = self.by_user.values().flat_map(|user| [self.users[*user].ready, self.users[*user].capped]);
        let mut queued = Vec::new();
        for line in lines.chain([self.door]) {
            let mut at = line.head();
            while let Some(index) = at {
                queued.push(RunRef { index, id: self.entries[index].id });
                at = self.entries[index].links.next();
            }
        }
        queued
    }

    fn note(&mut self, index: u32, fact: Fact, effects: &mut Effects<R>) {
        let entry = &mut self.entries[index];
        effects.wakes.extend(entry.watchers.take());
        if let Some(run) = &entry.run {
            effects.facts.push((run.clone(), fact));
        }
    }

    fn find(&self, run: RunRef) -> Option<u32> {
        self.entries.get(run.index).filter(|entry| entry.id == run.id).map(|_| run.index)
    }

    fn add_user(&mut self, key: UserKey) -> u32 {
        let user = self.users.insert(User::of(key.clone()));
        self.by_user.insert(key, user);
        user
    }

    /// A user is kept for as long as one of its runs is here.
    fn leave_user(&mut self, user: u32) {
        let members = &mut self.users[user].members;
        *members -= 1;
        if *members == 0 {
            if let Some(key) = self.users.remove(user).key {
                self.by_user.remove(&key);
            }
        }
    }

    /// A map does not shrink by itself, and one live entry would pin the room of the most there ever were.
    fn give_back_room(&mut self) {
        if self.by_user.capacity() > 64 + 8 * self.by_user.len() {
            self.by_user.shrink_to(2 * self.by_user.len());
        }
        if self.by_key.capacity() > 64 + 8 * self.by_key.len() {
            self.by_key.shrink_to(2 * self.by_key.len());
        }
    }
}

impl<R> Default for Entry<R> {
    fn default() -> Self {
        Self {
            run: None,
            id: RunId(0),
            key: None,
            user: 0,
            state: State::AtDoor,
            patience: Patience::Wait,
            links: Links::default(),
            started_at: Time::ZERO,
            waited: Duration::ZERO,
            lent_at: Time::ZERO,
            watchers: Watchers::default(),
        }
    }
}
